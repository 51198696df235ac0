//! Blocks that do not tell alone where they belong, and facts that blocks tell of other blocks.

use super::btrfs::Chunks;
use super::ext4;
use super::ntfs::Runs;

/// The kind of a block, as far as it can be told alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clue {
    Ext4(ext4::Ext4Clue),
    /// A tree block of btrfs with this logical address.
    TreeBlock {
        logical: u64,
    },
    /// A record of NTFS's master file table.
    Record {
        number: u32,
    },
}

/// Facts that blocks of one structure tell of others.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub(super) ext4: ext4::Ext4Facts,
    pub(super) chunks: Chunks,
    pub(super) runs: Runs,
}

impl Facts {
    /// As lines of numbers: six or two for ext4, four for btrfs, three for NTFS.
    pub(super) fn to_lines(&self) -> Vec<String> {
        [self.ext4.to_lines(), self.chunks.to_lines(), self.runs.to_lines()].concat()
    }

    /// Takes in such a line.
    pub(super) fn take(&mut self, numbers: &[u64]) -> Option<()> {
        match *numbers {
            [logical, bytes, first, second] => self.chunks.take([logical, bytes, first, second]),
            [at, cluster, count] => self.runs.take([at, cluster, count]),
            _ => self.ext4.take(numbers)?,
        }
        Some(())
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.ext4.merge(other.ext4);
        self.chunks.merge(other.chunks);
        self.runs.merge(other.runs);
    }
}
