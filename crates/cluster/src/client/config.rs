//! Configuration of a client.

use braid_array::assemble::{Config, MemberConfig};
use braid_array::format::Bitmap;
use braid_array::{Refusal, Role};

use crate::member::{self, ClientMember, Found};
use crate::pipeline::Params;
use crate::schedule::Planner;

/// Configuration of a [`Client`](super::Client): the pipeline's parameters, the members as their
/// superblocks describe them, addresses where more members may be, and the treatment of absent
/// nodes.
///
/// [`new`](Self::new) sets defaults for everything but the pipeline and the members. The caller
/// then overrides other fields as needed, and passes the result to
/// [`Client::scratch_bytes`](super::Client::scratch_bytes) and [`Client::new`](super::Client::new).
/// Lists "by role" have one entry for each role of the array.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The pipeline. With `Planner::Client` the client makes the parities of whole stripes itself.
    pub params: Params,
    /// By role; `None` is missing.
    pub members: Vec<Option<ClientMember>>,
    /// By role, the state of the members when this was judged. If the state differs once votes are
    /// granted, the client gives up, and has to be made anew from the new state. Empty where no
    /// other client can have changed it.
    pub found: Vec<Option<Found>>,
    /// Members that could not be reached: their nodes' addresses, and the volumes there.
    pub absent: Vec<(String, String)>,
    /// Members by name, among them the absent ones, with the reason for their exclusion.
    pub not_in: Vec<(String, Refusal)>,
    /// Members that replace a member that stays away.
    pub spares: Vec<ClientMember>,
    /// Members that failed while another program served the array, and are listed on.
    pub faulty: Vec<MemberConfig>,
    /// Nodes without a member that are to vote, besides the witnesses that views name.
    pub witnesses: Vec<String>,
    /// The bitmap that the array starts with, when it has one.
    pub bitmap: Option<Bitmap>,
    /// Refuses writes.
    pub read_only: bool,
    /// Only inspects the array, read-only: takes it over from no client, and changes nothing.
    pub looks: bool,
    /// The client makes parities itself where that is faster.
    pub mix: bool,
    /// Time after which a silent node that owes an answer is failed, in milliseconds.
    pub node_timeout_ms: u64,
    /// Time to wait for a member that may return by itself before a spare gets its role, in
    /// milliseconds.
    pub spare_patience_ms: u64,
    /// Writes of at least this many bytes are long. A long write that is alone is not gathered with
    /// others, and may be sent in parts. Data on the wire is timed in units of this size.
    pub long_write_bytes: u64,
    /// The operator guarantees that absent nodes are off.
    pub force: bool,
    /// Succeeds another client of this process. The array is refused if a third client had it in
    /// between.
    pub follows: bool,
    /// Connections are numbered from here.
    pub first_peer: u32,
}

impl ClientConfig {
    /// An array that is written, with defaults for everything else.
    #[must_use]
    pub const fn new(params: Params, members: Vec<Option<ClientMember>>) -> Self {
        Self {
            params,
            members,
            found: Vec::new(),
            absent: Vec::new(),
            not_in: Vec::new(),
            spares: Vec::new(),
            faulty: Vec::new(),
            witnesses: Vec::new(),
            bitmap: None,
            read_only: false,
            looks: false,
            mix: false,
            node_timeout_ms: NODE_TIMEOUT_MS,
            spare_patience_ms: SPARE_PATIENCE_MS,
            long_write_bytes: LONG_WRITE_BYTES,
            force: false,
            follows: false,
            first_peer: 0,
        }
    }

    /// Returns the pipeline's parameters, adjusted to the rest of the configuration. The planner is
    /// one by nodes; the mix decides which parities the client makes.
    pub(super) fn pipeline_params(&self) -> Params {
        let planner = match self.params.planner {
            Planner::Client => Planner::Encoder { node: Role(0) },
            planner => planner,
        };
        Params { planner, silence_ms: silence_ms(self.node_timeout_ms), ..self.params }
    }

    /// The array, as its keeper takes it; `None` without members.
    pub(super) fn kept(&self) -> Option<Config> {
        let spares = self.spares.clone();
        let bitmap = self.bitmap.clone();
        let members = &self.members;
        let mut kept = member::kept(members, spares, bitmap, self.read_only, super::BLOCK_BYTES)?;
        kept.members.extend(self.faulty.iter().cloned());
        Some(kept)
    }
}

/// Default of `spare_patience_ms`. A node that hangs or restarts is back within seconds, and then
/// lacks little data.
pub const SPARE_PATIENCE_MS: u64 = 600_000;

/// Default of `long_write_bytes`. More of the shorter writes may arrive before they are answered
/// piece by piece, and a smaller transfer tells nothing about a link.
pub const LONG_WRITE_BYTES: u64 = 256 << 10;

/// Default of `node_timeout_ms`.
pub const NODE_TIMEOUT_MS: u64 = 5000;

/// Returns the time that nodes tolerate each other's silence. The client's own timeout is longer:
/// two nodes that do not see each other both answer the client. In whole seconds: a finer limit
/// cannot be set everywhere.
fn silence_ms(node_timeout_ms: u64) -> u32 {
    let seconds = (node_timeout_ms * 4 / 5 / 1000).clamp(1, 3600);
    seconds as u32 * 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_bear_less_of_each_other_than_the_client_does() {
        let bear = [1000, 2000, 3000, NODE_TIMEOUT_MS, 60_000, 3_600_000].map(silence_ms);
        assert_eq!(bear, [1000, 1000, 2000, 4000, 48_000, 2_880_000]);
    }
}
