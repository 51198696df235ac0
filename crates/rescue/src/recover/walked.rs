//! The outcome of a walk through a file system.

use std::collections::BTreeSet;

/// Things that were found where they have to be, by the numbers of inodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Walked {
    pub(super) right: BTreeSet<u64>,
    pub(super) wrong: usize,
}

impl Walked {
    pub(super) fn met(&self) -> usize {
        self.right.len()
    }

    pub(super) fn of(&self) -> usize {
        self.right.len() + self.wrong
    }

    /// Notes what an inode proves, if it proves anything.
    pub(super) fn note(&mut self, number: u64, proves: Option<bool>) {
        match proves {
            Some(true) => _ = self.right.insert(number),
            Some(false) => self.wrong += 1,
            None => {}
        }
    }
}
