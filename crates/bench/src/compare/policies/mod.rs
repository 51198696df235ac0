//! `policies`: what each consistency policy of RAID 5 costs beside `resync`, which records nothing.

mod case;
mod chapter;
mod stand;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::case::{Case, Load, MEMBERS, Place, Policy};
use self::stand::Stand;
use crate::failure::Failure;
use crate::model::{Chapter, Comparison, Found, Group, Job, Standing};
use crate::rig::Room;

/// What fio takes to start and to end, and a journal to bring its content in place.
const BESIDE: Duration = Duration::from_millis(700);
const LEAST_BYTES: u64 = 32 << 20;

/// What decides about the findings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Length of one measurement.
    pub run_ms: u64,
    /// Size of a member and of a journal.
    pub member_bytes: u64,
    /// How often each.
    pub runs: u16,
}

impl Options {
    /// Each once, for a moment.
    #[must_use]
    pub const fn quick() -> Self {
        Self { run_ms: 500, member_bytes: 64 << 20, runs: 1 }
    }

    /// Each for some seconds.
    #[must_use]
    pub const fn full() -> Self {
        Self { run_ms: 3000, member_bytes: 128 << 20, runs: 3 }
    }

    /// What the members and journals on one medium take.
    fn place_bytes(&self) -> u64 {
        let journals = Policy::ALL.iter().filter(|policy| policy.has_journal()).count();
        (Policy::ALL.len() * MEMBERS + journals) as u64 * self.member_bytes
    }
}

/// The comparison `policies`, with its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policies(pub Options);

impl Comparison for Policies {
    fn name(&self) -> &'static str {
        "policies"
    }

    fn options(&self) -> Value {
        serde_json::to_value(&self.0).unwrap_or_default()
    }

    fn groups(&self) -> Vec<Group> {
        let takes = Duration::from_millis(self.0.run_ms) + BESIDE;
        let group = |place: Place| Group {
            title: format!("policies, {}", place.name()),
            cases: place.cases().map(Case::name).to_vec(),
            jobs: Load::ALL.map(|load| Job { name: load.name().to_owned(), takes }).to_vec(),
            rounds: self.0.runs,
            set_up: Duration::from_millis(1500),
        };
        Place::ALL.map(group).to_vec()
    }

    fn needs_bytes(&self) -> u64 {
        self.0.place_bytes()
    }

    fn needs_memory_bytes(&self) -> u64 {
        self.0.place_bytes()
    }

    fn smaller(&self) -> Option<Box<dyn Comparison>> {
        let member_bytes = self.0.member_bytes / 2;
        let smaller = || Box::new(Self(Options { member_bytes, ..self.0.clone() })) as _;
        (member_bytes >= LEAST_BYTES).then(smaller)
    }

    fn set_up(&self, case: &str, room: &Room) -> Result<Box<dyn Standing>, Failure> {
        let Some(case) = Case::named(case) else {
            return Err(Failure::usage(case, "no case has this name", "begin the report anew"));
        };
        Ok(Box::new(Stand::set_up(&self.0, case, room)?))
    }

    fn chapter(&self, found: &Found) -> Chapter {
        chapter::chapter(&self.0, found)
    }
}
