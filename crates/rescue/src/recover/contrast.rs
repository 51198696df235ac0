//! What tells two hypotheses from each other: what one of them explains and the other does not.
//! What both explain speaks for neither, however much it is.

use super::equations::Equations;
use super::score::explained;
use super::votes::Hypothesis;

/// The least that is explained better for it to be certain, and how many times as much as the
/// other explains alone.
const LEAST_CERTAIN: usize = 8;
const TIMES_CERTAIN: usize = 10;

/// Blocks that one of two explains alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Contrast {
    pub(super) ours: usize,
    pub(super) theirs: usize,
}

impl Contrast {
    /// Does it leave no doubt which of them is meant?
    pub(super) const fn decides(&self) -> bool {
        self.ours >= LEAST_CERTAIN && self.ours >= self.theirs * TIMES_CERTAIN
    }
}

/// What a hypothesis explains.
pub(super) struct Explained<'a> {
    blocks: Vec<bool>,
    one: &'a Hypothesis,
}

impl<'a> Explained<'a> {
    pub(super) fn by(one: &'a Hypothesis, sizes: &[u64], equations: &Equations) -> Self {
        Self { blocks: explained(one, sizes, equations), one }
    }

    pub(super) fn against(&self, other: &Self) -> Contrast {
        let alone = |a: &Self, b: &Self| {
            let blocks = a.blocks.iter().zip(&b.blocks).filter(|(a, b)| **a && !**b).count();
            let walked = a.one.walked.right.difference(&b.one.walked.right).count();
            blocks + walked
        };
        Contrast { ours: alone(self, other), theirs: alone(other, self) }
    }
}
