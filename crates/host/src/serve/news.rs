//! What the array reports while it is served: a line in the log for each event, and the
//! differences found by the last check, for `status`.

use std::sync::{Mutex, MutexGuard, PoisonError};

use braid_array::MemberId;
use braid_array::events::{ArrayEvent, SyncAction};

use crate::control::wire::Mismatch;

/// More differences than this are counted by the array, but not kept one by one.
const MAX_MISMATCHES: usize = 1000;

/// Shared by the engine, which reports, and the control socket, which is asked.
#[derive(Debug, Default)]
pub struct News {
    mismatches: Mutex<Vec<Mismatch>>,
}

impl News {
    /// The first differences that the last check or repair found.
    #[must_use]
    pub fn mismatches(&self) -> Vec<Mismatch> {
        self.lock().clone()
    }

    /// Takes an event in. The line is for the log.
    pub(super) fn report(&self, event: &ArrayEvent) -> Option<String> {
        match *event {
            ArrayEvent::SyncStarted(SyncAction::Check | SyncAction::Repair) => self.lock().clear(),
            ArrayEvent::Mismatch { array_sector, sectors, member } => {
                let mut mismatches = self.lock();
                if mismatches.len() < MAX_MISMATCHES {
                    mismatches.push(Mismatch { array_sector, sectors, member });
                }
            }
            _ => {}
        }
        line(event)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Mismatch>> {
        self.mismatches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Differences are no line of their own: there may be as many as stripes.
fn line(event: &ArrayEvent) -> Option<String> {
    let member = |id: &MemberId| format!("member {}", id.0);
    Some(match event {
        ArrayEvent::MemberFailed { member: id, reason } => {
            format!("{} failed: {reason}", member(id))
        }
        ArrayEvent::MemberActive(id) => format!("{} is in sync", member(id)),
        ArrayEvent::ReadCorrected { member: id, sector } => {
            format!("{}: read error corrected at sector {sector}", member(id))
        }
        ArrayEvent::ArrayFailed => "too many members are gone, the array has failed".to_owned(),
        ArrayEvent::SyncStarted(action) => format!("{} started", action.name()),
        ArrayEvent::SyncFinished { action, complete: true } => format!("{} done", action.name()),
        ArrayEvent::SyncFinished { action, complete: false } => {
            format!("{} interrupted", action.name())
        }
        ArrayEvent::Mismatch { .. } => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_check_forgets_what_the_last_one_found() {
        let news = News::default();
        let mismatch = |array_sector| ArrayEvent::Mismatch {
            array_sector,
            sectors: 8,
            member: Some(MemberId(2)),
        };
        assert_eq!(news.report(&mismatch(64)), None);
        assert_eq!(
            news.mismatches(),
            [Mismatch { array_sector: 64, sectors: 8, member: Some(MemberId(2)) }]
        );
        let started = ArrayEvent::SyncStarted(SyncAction::Recovery);
        assert_eq!(news.report(&started).unwrap(), "recovery started");
        assert_eq!(news.mismatches().len(), 1);
        let started = ArrayEvent::SyncStarted(SyncAction::Check);
        assert_eq!(news.report(&started).unwrap(), "check started");
        for sector in 0..2000 {
            news.report(&mismatch(sector));
        }
        assert_eq!(news.mismatches().len(), MAX_MISMATCHES);
    }
}
