//! Clients whose key is good for one array alone: what they may say, and which volumes they get.
//!
//! ```text
//! OpenVolume ─► open ── its superblock is read ─► of the array: as for everybody
//!                                              └► of none, or another: as if it were not there
//! ```
//! Until then nobody is kept out by them but who would remove the volume.

use std::sync::Arc;

use braid_array::fabric::{PeerId, Volume};
use braid_array::format::Version;
use braid_array::format::superblock::uuid_text;
use braid_array::{Refusal, SECTOR_BYTES};

use super::ids::{ArrayId, ClientId, Violation};
use super::session::{Conn, refused};
use super::volumes::Ask;
use super::{Node, meta};
use crate::assemble::SUPERBLOCK_SECTOR;
use crate::wire::Message;

/// What a superblock begins with.
const MAGIC: [u8; 4] = 0xa92b_4efc_u32.to_le_bytes();
const MAJOR: [u8; 4] = 1_u32.to_le_bytes();
/// As much as tells whose it is.
const LOOK_BYTES: u32 = 4096;

/// What becomes of a message that such a client may not send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denied {
    /// The request with this tag is refused.
    Refuse(u32),
    /// No client sends it that means well.
    Part,
}

/// A volume that is open, and not yet known to be of the client's array.
#[derive(Clone, Debug)]
pub(super) struct Looking {
    pub(super) name: Arc<str>,
    pub(super) volume: Volume,
    ask: Ask,
}

/// May a client whose key is limited to this array not say this? What is not named here it may not.
pub(super) fn denied(array: &ArrayId, message: &Message) -> Option<Denied> {
    match message {
        // Of the array, as all that follows a grant.
        Message::Grant { array: named, .. } if named == array => None,
        Message::Record { .. } | Message::Inventory { .. } | Message::Settle { .. } => None,
        // Tells no more than that there is a node.
        Message::Identify { .. } | Message::Ping { .. } => None,
        // It is looked at first.
        Message::OpenVolume { .. } => None,
        // Of the volume that it has got, and of the pipeline over that.
        Message::ReadMeta { .. }
        | Message::WriteMeta { .. }
        | Message::Flush { .. }
        | Message::Prepare { .. }
        | Message::Records { .. }
        | Message::Replay { .. }
        | Message::Trim { .. }
        | Message::UseAll { .. }
        | Message::GiveBack { .. }
        | Message::Open { .. }
        | Message::Go { .. }
        | Message::Drop { .. }
        | Message::Read { .. }
        | Message::Digest { .. }
        | Message::Without { .. } => None,
        // The node that is sent joins pipelines of the same array alone, and does not tell why it
        // could not.
        Message::Connect { .. } => None,
        Message::Grant { tag, .. }
        | Message::CreateVolume { tag, .. }
        | Message::DeleteVolume { tag }
        | Message::RemoveVolume { tag }
        | Message::NodeStatus { tag, .. }
        | Message::Shutdown { tag } => Some(Denied::Refuse(*tag)),
        _ => Some(Denied::Part),
    }
}

/// Is this the beginning of a superblock of the array? Its sum is not looked at: what is looked at
/// never changes while somebody writes the rest.
fn is_of(array: &ArrayId, superblock: &[u8]) -> bool {
    superblock.get(0..4) == Some(&MAGIC)
        && superblock.get(4..8) == Some(&MAJOR)
        && superblock.get(16..32) == Some(array)
}

fn text_of(array: ArrayId) -> String {
    uuid_text(Version::V1_2, array)
}

/// There is no such volume for it. Of volumes that are not its own it does not even hear that they
/// are there.
pub(super) fn not_its_own(array: ArrayId, name: &str) -> Refusal {
    let array = text_of(array);
    let reason =
        format!("there is no volume {name} of array {array}, to which this key is limited");
    Refusal::new(reason, "name volumes of that array, or use the cluster key")
}

impl Node {
    /// The array that whoever is at the other end is limited to.
    pub(super) fn limit_of(&self, conn: Conn) -> Option<ArrayId> {
        match conn {
            Conn::New(limit) => limit,
            Conn::Client(id) => self.clients.get(&id)?.limit,
            Conn::Dialing(..) | Conn::Node(..) => None,
        }
    }

    /// Answers what a limited client may not say.
    pub(super) fn deny(
        &mut self,
        peer: PeerId,
        array: ArrayId,
        denied: Denied,
    ) -> Result<(), Violation> {
        let Denied::Refuse(tag) = denied else {
            return Err(Violation("a message that the key of one array does not allow"));
        };
        let reason = format!("this key is limited to array {}", text_of(array));
        let why = Refusal::new(reason, "use the cluster key");
        self.out.send(peer, 0, &refused(tag, false, why));
        Ok(())
    }

    /// Has a look at a volume that a limited client wants. It counts among its users meanwhile, so
    /// that the volume stays what it is.
    pub(super) fn look(&mut self, name: &Arc<str>, ask: Ask, volume: Volume) {
        let Some(client) = self.clients.get_mut(&ask.client) else { return };
        client.looking = Some(Looking { name: Arc::clone(name), volume, ask });
        let end = SUPERBLOCK_SECTOR * SECTOR_BYTES + u64::from(LOOK_BYTES);
        if volume.bytes < end {
            return self.looked(ask.client, None);
        }
        let (op, sector) = (meta::MetaOp::Read(LOOK_BYTES), SUPERBLOCK_SECTOR);
        self.ask_meta(meta::Ask { client: ask.client, tag: ask.tag, sector, op });
    }

    /// Is a client waiting for this?
    pub(super) fn is_looking(&self, id: ClientId) -> bool {
        self.clients.get(&id).is_some_and(|client| client.looking.is_some())
    }

    /// This is where its superblock should be, or it cannot be read.
    pub(super) fn looked(&mut self, id: ClientId, found: Option<&[u8]>) {
        let Some(client) = self.clients.get_mut(&id).filter(|client| client.is_here()) else {
            return;
        };
        let Some(Looking { name, ask, .. }) = client.looking.take() else { return };
        let Some(array) = client.limit else { return };
        let own = found.is_some_and(|found| is_of(&array, found));
        client.asking = false;
        if own {
            self.give(&name, ask, false);
        } else {
            self.refuse(id, ask.tag, not_its_own(array, &name));
        }
        self.stop_looking(&name, id);
    }
}
