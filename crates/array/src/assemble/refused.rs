//! Reasons why an array does not start, and its kind.

use super::Verdict;
use super::table::Table;
use crate::level::{Layout, Level};
use crate::options::Options;
use crate::refusal::{Invocation, Next};

/// A refusal under construction.
pub(super) struct Refused {
    pub(super) reason: String,
    pub(super) next: Next,
    pub(super) could_force: bool,
}

impl Refused {
    pub(super) fn new(reason: impl Into<String>, next: impl Into<Next>) -> Self {
        Self { reason: reason.into(), next: next.into(), could_force: false }
    }
}

/// The kind of an array.
pub(super) struct ArrayKind {
    pub(super) level: Level,
    pub(super) layout: Layout,
}

impl Table<'_> {
    /// Returns the command that assembles the candidates of these verdicts.
    pub(super) fn command(&self, options: Options, take: impl Fn(&Verdict) -> bool) -> Invocation {
        let taken = self.candidates.iter().zip(&self.verdicts).filter(|(_, v)| take(v));
        let devices = taken.map(|(candidate, _)| candidate.device.clone()).collect();
        Invocation::Assemble { name: None, rename: false, options, devices }
    }

    /// Returns the command that shows all superblocks.
    pub(super) fn examine(&self) -> Invocation {
        let devices = self.candidates.iter().map(|candidate| candidate.device.clone()).collect();
        Invocation::Examine { devices }
    }

    pub(super) fn compare(&self) -> Next {
        Next::by("compare the superblocks", self.examine())
    }
}
