//! The contrast between two hypotheses: all that one of them explains and the other does not.
//! Blocks that both explain speak for neither, however many there are.

use std::collections::BTreeSet;

use super::equations::Equations;
use super::hypothesis::Hypothesis;
use super::marks::Structure;
use super::score::{Account, accounts};
use super::sums::Members;
use super::walk::proven;

/// The least that is explained better for it to be certain, and how many times as much as the
/// other explains alone.
const LEAST_CERTAIN: usize = 8;
const TIMES_CERTAIN: usize = 10;

/// Blocks that one of two explains, against the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Contrast {
    /// Blocks that this one explains and the other denies.
    ours: usize,
    /// Blocks that the other explains and this one denies.
    theirs: usize,
    /// Blocks that the other explains, and that belong where nobody can look by this one.
    hidden: usize,
}

impl Contrast {
    /// Returns whether more speaks for the first one.
    pub(super) const fn favours(&self) -> bool {
        self.ours > self.theirs + self.hidden
    }

    /// Returns whether it leaves no doubt about which of them is meant.
    pub(super) const fn decides(&self) -> bool {
        self.ours >= LEAST_CERTAIN && self.ours >= self.theirs * TIMES_CERTAIN
    }
}

/// The blocks that a hypothesis explains.
pub(super) struct Explained<'a> {
    blocks: Vec<Account>,
    one: &'a Hypothesis,
}

impl<'a> Explained<'a> {
    pub(super) fn by(one: &'a Hypothesis, sizes: &[u64], equations: &Equations) -> Self {
        Self { blocks: accounts(one, sizes, equations), one }
    }

    /// Each is asked about what was found by the other, too: how far a walk comes depends on what
    /// it meets.
    pub(super) fn against(
        &self,
        other: &Self,
        members: &mut Members<'_, '_>,
        known: &[Structure],
    ) -> Contrast {
        let mut only = |own: &Hypothesis, other: &Hypothesis| {
            let found: BTreeSet<u64> = &own.walked.right - &other.walked.right;
            found.len() - proven(other, &found, members, known)
        };
        let ours = only(self.one, other.one);
        let theirs = only(other.one, self.one);
        let blocks = self.blocks_against(other);
        Contrast { ours: blocks.ours + ours, theirs: blocks.theirs + theirs, ..blocks }
    }

    pub(super) fn blocks_against(&self, other: &Self) -> Contrast {
        let count = |own: Account, others: Account| {
            let pairs = self.blocks.iter().zip(&other.blocks);
            pairs.filter(|pair| *pair == (&own, &others)).count()
        };
        Contrast {
            ours: count(Account::Explained, Account::Denied),
            theirs: count(Account::Denied, Account::Explained),
            hidden: count(Account::Unseen, Account::Explained),
        }
    }
}

#[cfg(test)]
mod tests {
    use braid_array::level::{Layout, Level};

    use super::super::shapes::Shape;
    use super::*;

    #[test]
    fn what_both_explain_and_what_parity_hides_says_nothing() {
        let shape =
            Shape { level: Level::Raid0, layout: Layout::None, chunk_sectors: 8, raid_disks: 2 };
        let one = &Hypothesis::empty(shape, 0, 0);
        let contrast = |own: &[Account], other: &[Account]| {
            let explained = |blocks: &[Account]| Explained { blocks: blocks.to_vec(), one };
            explained(own).blocks_against(&explained(other))
        };
        let all = [Account::Explained; 1000];
        assert_eq!(contrast(&all, &all), Contrast::default());
        assert!(!contrast(&all, &all).favours());
        let hidden = [Account::Unseen; 1000];
        assert!(!contrast(&all, &hidden).favours());
        assert!(!contrast(&hidden, &all).favours());
        // Eight of a thousand are enough where nothing speaks for the other one.
        let mut other = all;
        other[..8].fill(Account::Denied);
        assert!(contrast(&all, &other).decides());
        let mut own = all;
        own[500] = Account::Denied;
        let both = contrast(&own, &other);
        assert_eq!(both, Contrast { ours: 8, theirs: 1, hidden: 0 });
        assert!(both.favours() && !both.decides());
    }
}
