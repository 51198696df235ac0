//! Power is lost everywhere while whole stripes are written, and the array goes on without some of
//! its members; everything is written anew, and the members come back, or others in their place.

use std::collections::BTreeSet;
use std::num::NonZeroU64;

use braid_array::Role;
use braid_array::action::CommandId;

use self::unknown::Unknown;
use super::away::Search;
use super::nodes::Cluster;
use super::recovery_target::RecoveryTarget;
use super::suspects::Map;
use crate::judge::Judge;
use crate::oracle::{LogicalTime, Range};
use crate::report::Failure;
use crate::rng::Rng;

pub(super) mod array;
mod client;
mod finish;
mod life;
mod loss;
mod steps;
mod unknown;

/// Requests in flight.
const DEPTH: usize = 8;
const BLOCK_SECTORS: u64 = 8;
/// The largest request, in blocks.
const MAX_BLOCKS: u64 = 64;
/// A request's buffer.
const SLOT_BYTES: u64 = MAX_BLOCKS * BLOCK_SECTORS * 512;
/// A member that comes back is whole by then, and so is one that is rebuilt.
const WHOLE_MILLIS: u64 = 120_000;
const STOP: CommandId = CommandId(1);

/// A run in which power is lost under writes, again and again.
///
/// [`run`] makes it. In each round there is a [loss](Self::lose): of everything, the client
/// included, or of more nodes than the array can do without, while the client lives. Some nodes
/// come back, and the array continues without the others ([`live`](Self::live)): blocks are written
/// anew and flushed, nodes come back or are replaced, and more are lost meanwhile. In the end
/// ([`finish`](Self::finish)) all nodes are present, and the array stops and starts again.
///
/// A block reads as data written to it, and never as older data than the last flush. I/O errors are
/// allowed only by [`Unknown`]: while the block lies on a member that is away, or came back without
/// it, and no write to the block was flushed since power was lost.
struct Torn<'a> {
    cluster: &'a mut Cluster,
    client: usize,
    search: Search,
    /// Allowed contents of the blocks.
    judge: Judge,
    /// Blocks that may be I/O errors.
    unknown: Unknown,
    /// Number of the array's blocks.
    blocks: u64,
    /// Blocks that might be errors when the request was submitted, by request.
    doubtful: BTreeSet<(LogicalTime, u64)>,
    /// Writes that might fail when they were submitted.
    risky: BTreeSet<LogicalTime>,
    /// Writes submitted while a resync was due: if a member is lost meanwhile, its lost blocks are
    /// not known yet.
    early: BTreeSet<LogicalTime>,
    /// Only whole stripes are written.
    whole: bool,
    /// Set if all writes since were of whole stripes, with all members present: no record tells
    /// what a member lacks.
    unrecorded: bool,
    /// Nodes that do not run.
    dead: BTreeSet<Role>,
    /// Set if the client is told of nodes only after all are present.
    waits_for_all: bool,
    /// Writes answered before this moment may be lost, and the next flush may fail.
    forgotten: Option<LogicalTime>,
    /// Set if members are in sync that no view lists as such yet.
    joining: bool,
    /// A node that is being added.
    new: Option<RecoveryTarget>,
    stopped: bool,
}

/// Returns whether the seed is such a run. Drawn from a generator of its own, so that other seeds
/// are unchanged.
pub(super) fn is_due(seed: u64) -> bool {
    Rng::new(seed ^ 0x746f_000a).percent(15)
}

/// Runs rounds of power loss, and judges the content.
pub(super) fn run(cluster: &mut Cluster) -> Result<(), Failure> {
    let params = cluster.scenario.params;
    let losses = params.family.losses(params.nodes).map_err(|why| Failure(why.to_string()))?;
    let map = Map::new(&params, cluster.layout.data_blocks());
    let sectors = cluster.layout.sectors();
    let mut torn = Torn {
        client: usize::MAX,
        search: Search::default(),
        judge: Judge::new(sectors),
        unknown: Unknown::new(map, &cluster.layout, losses),
        blocks: sectors / BLOCK_SECTORS,
        doubtful: BTreeSet::new(),
        risky: BTreeSet::new(),
        early: BTreeSet::new(),
        whole: cluster.rng.percent(50),
        unrecorded: true,
        dead: BTreeSet::new(),
        waits_for_all: false,
        forgotten: None,
        joining: false,
        new: None,
        stopped: false,
        cluster,
    };
    torn.begin()?;
    torn.write_all()?;
    for _ in 0..torn.cluster.rng.between(1, 3) {
        torn.lose()?;
        torn.live()?;
    }
    torn.finish()
}

impl Torn<'_> {
    /// Returns the roles of running nodes.
    fn there(&self) -> Vec<Role> {
        let roles = Role::all(self.cluster.scenario.params.nodes);
        roles.filter(|role| !self.dead.contains(role)).collect()
    }

    /// Returns whether the newest view lists enough nodes in their current incarnations.
    fn is_view_new(&self) -> bool {
        let nodes = self.cluster.scenario.params.nodes;
        let away: Vec<Role> = Role::all(nodes).filter(|role| !self.is_in(*role)).collect();
        self.cluster.scenario.survives(&away)
    }

    /// Returns whether the node of this role, in its current incarnation, is in the newest view.
    fn is_in(&self, role: Role) -> bool {
        !self.dead.contains(&role) && self.was_in(role)
    }

    /// Returns whether the node of this role, in its last incarnation, is in the newest view.
    fn was_in(&self, role: Role) -> bool {
        let at = role.index();
        let last = NonZeroU64::new(self.cluster.incarnations[at]);
        self.cluster.newest_view().is_some_and(|view| view.members[at] == last)
    }

    fn roles_out(&self) -> Vec<Role> {
        let roles = Role::all(self.cluster.scenario.params.nodes);
        roles.filter(|role| !self.is_in(*role)).collect()
    }

    /// Sectors of a stripe.
    fn stripe_sectors(&self) -> u64 {
        self.blocks * BLOCK_SECTORS / self.cluster.scenario.params.stripes
    }

    /// Whole stripes, one or a few, or any part.
    fn draw_range(&mut self) -> Range {
        let stripe = self.stripe_sectors();
        let rng = &mut self.cluster.rng;
        let stripes = self.cluster.scenario.params.stripes;
        if self.whole || rng.percent(80) {
            let most = (MAX_BLOCKS * BLOCK_SECTORS / stripe).clamp(1, 3);
            let first = rng.below(stripes);
            let count = rng.between(1, most.min(stripes - first));
            return Range { sector: first * stripe, sectors: count * stripe };
        }
        let first = rng.below(self.blocks);
        let most = (self.blocks - first).min(8);
        let count = rng.between(1, most);
        Range { sector: first * BLOCK_SECTORS, sectors: count * BLOCK_SECTORS }
    }

    /// Returns whether the array has journals, which record the only copy of a member's content.
    const fn is_vouched(&self) -> bool {
        self.cluster.scenario.journal_bytes > 0
    }

    /// Returns whether the array may now be started with all of its members only.
    fn needs_all(&self) -> bool {
        !self.is_vouched() && self.unknown.away().next().is_some()
    }
}
