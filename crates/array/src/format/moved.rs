//! The note of a move of all data between two arrays over nodes. Its position is that of a reshape.

use super::Superblock;
use super::superblock::feature;

/// The part of an array in a move of all data to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveNote {
    /// None.
    Apart,
    /// Its data go to another array, or come back: that one says which are where.
    Source,
    /// Data of another array come here.
    Target {
        /// Those before this array sector are here.
        front: u64,
        /// They go back.
        back: bool,
    },
}

impl MoveNote {
    /// Returns the note of a superblock.
    #[must_use]
    pub const fn of(superblock: &Superblock) -> Self {
        if superblock.has(feature::NODE_TARGET) {
            let back = superblock.has(feature::NODE_BACK);
            Self::Target { front: superblock.reshape.position, back }
        } else if superblock.has(feature::NODE_SOURCE) {
            Self::Source
        } else {
            Self::Apart
        }
    }

    /// Returns the feature bits of the note.
    #[must_use]
    pub const fn features(self) -> u32 {
        match self {
            Self::Apart => 0,
            Self::Source => feature::NODE_SOURCE,
            Self::Target { back: false, .. } => feature::NODE_TARGET,
            Self::Target { back: true, .. } => feature::NODE_TARGET | feature::NODE_BACK,
        }
    }

    /// Returns the position that goes with them.
    #[must_use]
    pub const fn position(self) -> u64 {
        match self {
            Self::Target { front, .. } => front,
            Self::Apart | Self::Source => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written() {
        let notes = [
            MoveNote::Apart,
            MoveNote::Source,
            MoveNote::Target { front: 0, back: false },
            MoveNote::Target { front: 4096, back: true },
        ];
        for note in notes {
            let mut superblock = Superblock::blank();
            superblock.feature_map = feature::NODE_JOURNALS | note.features();
            superblock.reshape.position = note.position();
            assert_eq!(MoveNote::of(&superblock), note);
        }
    }
}
