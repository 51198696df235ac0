//! Health of arrays in a word, and of all of them together. No I/O.

use std::collections::BTreeSet;

use braid_array::events::SyncAction;
use braid_array::status::{ArrayState, Status};
use braid_host::control::wire::ControlStatus;
use serde::Serialize;

/// Health of an array, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Health {
    /// Does not serve its content, or waits for members that it needs.
    Failed,
    /// Serves its content, with less redundancy than it should have.
    Degraded,
    /// Background work is under way, and no member is lost.
    Busy,
    Well,
}

impl Health {
    pub(super) fn of(status: &Status) -> Self {
        let own = if status.state == ArrayState::Failed || status.waiting.is_some() {
            Self::Failed
        } else if status.degraded > 0 {
            Self::Degraded
        } else if status.sync.action != SyncAction::Idle {
            Self::Busy
        } else {
            Self::Well
        };
        // A failed array within this one is a lost member of it.
        let within = status.children.iter().map(|child| Self::of(child).max(Self::Degraded));
        within.fold(own, Self::min)
    }
}

/// Health of all arrays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Summary {
    /// Arrays that have lost nothing; background work does not count.
    pub(super) well: usize,
    pub(super) all: usize,
    /// `None` without arrays.
    pub(super) worst: Option<Health>,
}

impl Summary {
    /// Counts arrays that answered, and those that did not: these are not well.
    pub(super) fn of(arrays: &[ControlStatus], silent: &BTreeSet<String>) -> Self {
        let answered = arrays.iter().map(|array| Health::of(&array.array));
        let healths = || answered.clone().chain(silent.iter().map(|_| Health::Failed));
        Self {
            well: healths().filter(|health| *health >= Health::Busy).count(),
            all: healths().count(),
            worst: healths().min(),
        }
    }
}

#[cfg(test)]
pub(super) mod testing {
    use braid_array::status::{SyncStatus, Waiting};

    use super::*;
    use crate::cmd::monitor::seen::testing::served;

    /// Returns an array of each health, the best first.
    pub(in crate::cmd::monitor) fn arrays() -> [ControlStatus; 5] {
        let sync = SyncStatus { action: SyncAction::Check, ..SyncStatus::default() };
        let waiting = Some(Waiting { requests: 1, fail_in_ms: None, why: None });
        [
            served("calm", Status::blank()),
            served("checked", Status { sync, ..Status::blank() }),
            served("lame", Status { degraded: 1, ..Status::blank() }),
            served("lost", Status { state: ArrayState::Failed, degraded: 2, ..Status::blank() }),
            served("stuck", Status { waiting, ..Status::blank() }),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::testing::arrays;
    use super::*;

    #[test]
    fn an_array_is_as_well_as_it_and_those_within_it() {
        let healths = arrays().map(|array| Health::of(&array.array));
        let expected =
            [Health::Well, Health::Busy, Health::Degraded, Health::Failed, Health::Failed];
        assert_eq!(healths, expected);
        let outer = |child: ControlStatus| {
            Health::of(&Status { children: vec![child.array], ..Status::blank() })
        };
        let within = [Health::Well, Health::Busy, Health::Degraded, Health::Degraded];
        assert_eq!(arrays().map(outer)[..4], within);
    }

    #[test]
    fn a_silent_array_is_not_well() {
        let none = BTreeSet::new();
        let some = BTreeSet::from(["silent".to_owned()]);
        let of = |count, silent| Summary::of(&arrays()[..count], silent);
        assert_eq!(of(0, &none), Summary { well: 0, all: 0, worst: None });
        assert_eq!(of(2, &none), Summary { well: 2, all: 2, worst: Some(Health::Busy) });
        assert_eq!(of(4, &none), Summary { well: 2, all: 4, worst: Some(Health::Failed) });
        assert_eq!(of(1, &some), Summary { well: 1, all: 2, worst: Some(Health::Failed) });
    }
}
