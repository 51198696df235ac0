//! md's journal device: how far superblocks say that it is in use.

use crate::action::CommandId;

/// The tail of the journal: the first record that still counts, in sectors of the device's data
/// area. The lane [moves](Self::move_tail) the tail when all records before it are in place; the
/// superblock says so after the next flush of all members, and only then is the space before it
/// free. A new journal has no tail until its first block is written, and no superblock tells of it
/// before that.
#[derive(Clone, Copy, Debug)]
pub(super) struct JournalDevice {
    /// The tail as the lane has it.
    tail: Option<u64>,
    /// The tail before which everything is in place, and durable.
    pub(super) durable_tail: Option<u64>,
    /// The tail as the superblock has it.
    told_tail: Option<u64>,
    /// The command that is answered once the superblock tells of the journal.
    waiting: Option<CommandId>,
}

impl JournalDevice {
    pub(super) const fn new(tail: u64) -> Self {
        let tail = Some(tail);
        Self { tail, durable_tail: tail, told_tail: tail, waiting: None }
    }

    /// Returns the state of a device that takes the place of another.
    pub(super) const fn begun_anew(waiting: CommandId) -> Self {
        Self { tail: None, durable_tail: None, told_tail: None, waiting: Some(waiting) }
    }

    /// Returns the state of a device on which the journal goes on.
    pub(super) const fn resumed() -> Self {
        Self { tail: None, durable_tail: None, told_tail: None, waiting: None }
    }

    /// Returns whether it goes on, and no superblock told of it when the last update was done.
    pub(super) const fn resumes(&self) -> bool {
        self.told_tail.is_none() && self.waiting.is_none()
    }

    /// Moves the tail: all records before it are in place.
    pub(super) fn move_tail(&mut self, tail: u64) {
        self.tail = Some(tail);
        if crate::broken("tail-after-flush") {
            self.durable_tail = Some(tail);
        }
    }

    /// The tail as a flush of all members begins.
    pub(super) const fn tail(&self) -> Option<u64> {
        self.tail
    }

    /// Returns whether the superblock says where the tail is.
    pub(super) fn is_told(self) -> bool {
        self.told_tail == self.tail
    }

    pub(super) const fn told_tail(&self) -> Option<u64> {
        self.told_tail
    }

    /// Returns the command that waits, where no superblock will tell of the journal.
    pub(super) const fn give_up(&mut self) -> Option<CommandId> {
        self.waiting.take()
    }

    /// Takes note that the superblocks are written. Returns the command that waited for that.
    pub(super) const fn told(&mut self) -> Option<CommandId> {
        self.told_tail = self.durable_tail;
        if self.told_tail.is_some() { self.waiting.take() } else { None }
    }
}
