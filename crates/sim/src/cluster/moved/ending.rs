//! The end of a move: the array that has nothing any more loses its nodes while it is being left,
//! with reads of it under way. They are answered all the same, as these nodes come back.

use braid_array::events::SyncAction;
use braid_array::fabric::PeerId;
use braid_array::format::MoveNote;
use braid_array::format::superblock::feature;
use braid_cluster::moving::NEW_PEERS;

use super::{BLOCK_SECTORS, Moved};
use crate::oracle::Range;
use crate::report::Failure;
use crate::workload::Kind;

/// The longest of the reads, in blocks: what is moved last lies near the end.
const READ_BLOCKS: u64 = 4;

impl Moved {
    /// Reads what is moved last, until all has moved and only the end is to be told. Then the
    /// client loses all connections to the array that is left, at times. Drawn aside, so that lives
    /// are as they were before.
    pub(super) fn lose_what_is_left(&mut self) -> Result<(), Failure> {
        let mut aside = self.rng.aside(0x656d_7074_7969_6e67);
        if self.alone.is_some() || aside.percent(40) {
            return Ok(());
        }
        self.world.begin();
        let back = loop {
            let status = self.status();
            let sync = &status.sync;
            if self.in_doubt || self.alone.is_some() || sync.action == SyncAction::Idle {
                return Ok(());
            }
            let back = MoveNote::of(&status.superblock).features() & feature::NODE_BACK != 0;
            let moves = sync.action == SyncAction::Reshape && sync.total_sectors > 0;
            if moves && sync.done_sectors == sync.total_sectors {
                break back;
            }
            if moves && aside.percent(20) && self.judge.free_slot(self.client).is_some() {
                let count = aside.between(1, READ_BLOCKS.min(self.blocks));
                let first = if back { 0 } else { self.blocks - count };
                let range = Range { sector: first * BLOCK_SECTORS, sectors: count * BLOCK_SECTORS };
                self.submit_one(Kind::Read, range);
            }
            if !self.step()? {
                return Ok(());
            }
        };
        let is_left = |peer: PeerId| (peer.0 >= NEW_PEERS) == back;
        for &node in &self.nodes {
            self.world.disconnect_peers(node, self.client, &is_left);
        }
        Ok(())
    }
}
