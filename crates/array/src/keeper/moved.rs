//! Notes of a move of all data between two arrays over nodes.

use super::core::Core;
use crate::format::MoveNote;
use crate::format::superblock::feature;
use crate::refusal::Refusal;

impl Core {
    /// Queues the note for all members, after a flush: a position is told of only so. Returns the
    /// update that tells them.
    ///
    /// # Errors
    /// A refusal, where superblocks are not written.
    pub(super) fn note_move(&mut self, note: MoveNote) -> Result<u64, Refusal> {
        self.took_note()?;
        if !self.rules.lane_takes_spares || self.service.metadata_frozen() {
            return Err(Refusal::new(
                "only an array over nodes with redundancy moves to another one",
                "make a new array and copy the data",
            ));
        }
        let superblock = &mut self.metadata.superblock;
        superblock.feature_map = superblock.feature_map & !feature::NODE_MOVE | note.features();
        self.metadata.position = note.position();
        Ok(self.metadata.queue_superblock(true))
    }

    /// Checks that members were told what was queued for them.
    ///
    /// # Errors
    /// A refusal, where the array has failed meanwhile.
    pub(super) fn took_note(&self) -> Result<(), Refusal> {
        if self.service.failed || self.service.writes_over {
            return Err(Refusal::new("the array has failed", "bring its members back"));
        }
        Ok(())
    }
}
