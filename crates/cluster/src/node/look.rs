//! Whose a volume is: for clients whose key is limited to one array, and before a vote is
//! forgotten.
//!
//! ```text
//! OpenVolume ─► open ── its superblock is read ─► of the array: as for everybody
//!                                              └► of none, or another: as if it were not there
//! ```
//! Until then nobody is kept out by them but who would remove the volume.

use std::sync::Arc;

use braid_array::SECTOR_BYTES;
use braid_array::fabric::Volume;

use super::ids::ClientId;
use super::limit::{is_of, not_its_own};
use super::volumes::{Ask, Looking};
use super::{Node, meta};
use crate::assemble::SUPERBLOCK_SECTOR;

/// As much of a superblock as tells whose it is.
const LOOK_BYTES: u32 = 4096;

impl Node {
    /// Has a look at a volume for a client. It counts among its users meanwhile, so that the volume
    /// stays what it is.
    pub(super) fn look(&mut self, name: &Arc<str>, ask: Ask, volume: Volume) {
        let Some(client) = self.clients.get_mut(&ask.client) else { return };
        client.looking = Some(Looking { name: Arc::clone(name), volume, ask });
        let end = SUPERBLOCK_SECTOR * SECTOR_BYTES + u64::from(LOOK_BYTES);
        if volume.bytes < end {
            return self.looked(ask.client, Some(&[]));
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
        if !self.out.is_here(id) {
            return;
        }
        let Some(client) = self.clients.get_mut(&id) else { return };
        let Some(Looking { name, ask, .. }) = client.looking.take() else { return };
        if client.search.is_some() {
            self.stop_looking(&name, id);
            return self.searched(id, &name, found);
        }
        let Some(array) = client.limit else { return };
        let own = found.is_some_and(|found| is_of(&array, found));
        client.asking = false;
        if own {
            self.give(&name, ask, false);
        } else {
            self.out.refuse(id, ask.tag, not_its_own(array, &name));
        }
        self.stop_looking(&name, id);
    }
}
