//! A hypothesis in the answer, and the confidence that it deserves.

use super::hypothesis::Hypothesis;
use super::sums::Sums;

/// The confidence that a hypothesis deserves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// Much speaks for it and nothing else comes near.
    High,
    /// More speaks for it than for anything else.
    Likely,
    /// A possible one.
    Guess,
}

impl Confidence {
    /// Its name in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Likely => "likely",
            Self::Guess => "guess",
        }
    }
}

/// A hypothesis and what speaks for it.
#[derive(Clone, Debug)]
pub struct Ranked {
    /// The hypothesis, without members that are behind.
    pub hypothesis: Hypothesis,
    /// The confidence that it deserves.
    pub confidence: Confidence,
    /// The sums of rows of the members.
    pub sums: Sums,
    /// A member that belongs to it and is behind, and has no role therefore.
    pub stale: Option<usize>,
    /// The next best, where there is one: equations that are met, and that could be.
    pub next: Option<(usize, usize)>,
    /// Where in the array the structure ends by which it was found, in sectors, where that is
    /// known.
    pub needed_sectors: Option<u64>,
    /// Evidence for it, for people.
    pub evidence: Vec<String>,
}
