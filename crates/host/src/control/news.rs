//! Events of the array that were reported: the differences found by the last check, for `status`,
//! and the members that failed, the first one first.

use std::sync::{Mutex, MutexGuard, PoisonError};

use braid_array::events::{ArrayEvent, SyncAction};
use braid_array::{MemberId, Refusal};

use super::wire::Mismatch;

/// More differences than this are counted by the array, but not kept one by one.
const MAX_MISMATCHES: usize = 1000;

/// Shared by the engine, which reports, and the control socket, which is asked.
#[derive(Debug, Default)]
pub struct News {
    mismatches: Mutex<Vec<Mismatch>>,
    failed: Mutex<Vec<(MemberId, Refusal)>>,
    /// The failure that the array could not do without.
    fatal: Mutex<Option<(MemberId, Refusal)>>,
}

impl News {
    /// The first differences that the last check or repair found.
    #[must_use]
    pub fn mismatches(&self) -> Vec<Mismatch> {
        self.lock().clone()
    }

    /// The members that failed, and why, the first one first.
    pub(crate) fn failed(&self) -> Vec<(MemberId, Refusal)> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the reason why there is no array: the member whose failure ended it, or else the
    /// first that failed.
    pub(crate) fn cause(&self) -> Option<(MemberId, Refusal)> {
        let fatal = self.fatal.lock().unwrap_or_else(PoisonError::into_inner).clone();
        fatal.or_else(|| self.failed().into_iter().next())
    }

    /// Takes an event in, on the engine's thread.
    pub(crate) fn report(&self, event: &ArrayEvent) {
        match event {
            ArrayEvent::Within { array, event } => self.take(event, Some(*array)),
            event => self.take(event, None),
        }
    }

    fn take(&self, event: &ArrayEvent, within: Option<MemberId>) {
        match *event {
            ArrayEvent::SyncStarted(SyncAction::Check | SyncAction::Repair) => self.lock().clear(),
            ArrayEvent::Mismatch { array_sector, sectors, member, block } => {
                let mut mismatches = self.lock();
                if mismatches.len() < MAX_MISMATCHES {
                    let found = Mismatch { array_sector, sectors, member, block, within };
                    mismatches.push(found);
                }
            }
            ArrayEvent::MemberFailed { member, ref reason, ref next, .. } => {
                let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
                // Once for each, however often it comes back.
                if !failed.iter().any(|(known, _)| *known == member) {
                    failed.push((member, Refusal::new(reason.clone(), next.clone())));
                }
            }
            ArrayEvent::ArrayFailed => {
                let latest = self.failed().pop();
                *self.fatal.lock().unwrap_or_else(PoisonError::into_inner) = latest;
            }
            _ => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Mismatch>> {
        self.mismatches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use braid_array::stack::Stack;

    use super::*;
    use braid_array::events::{Fault, StripeBlock};
    use braid_array::refusal::Next;

    #[test]
    fn a_new_check_forgets_what_the_last_one_found() {
        let news = News::default();
        let sectors = 8;
        let member = Some(MemberId(2));
        let block = Some(StripeBlock { stripe: 4, row: Some(1) });
        let mismatch = |array_sector| ArrayEvent::Mismatch { array_sector, sectors, member, block };
        news.report(&mismatch(64));
        let found = Mismatch { array_sector: 64, sectors, member, block, within: None };
        assert_eq!(news.mismatches(), [found]);
        news.report(&ArrayEvent::SyncStarted(SyncAction::Recovery));
        assert_eq!(news.mismatches().len(), 1);
        news.report(&ArrayEvent::SyncStarted(SyncAction::Check));
        assert_eq!(news.mismatches().len(), 0);
        for sector in 0..2000 {
            news.report(&mismatch(sector));
        }
        assert_eq!(news.mismatches().len(), MAX_MISMATCHES);
    }

    #[test]
    fn the_failure_that_ended_the_array_is_known() {
        let news = News::default();
        let failed = |number, reason: &'static str| ArrayEvent::MemberFailed {
            member: MemberId(number),
            reason: reason.into(),
            fault: Fault::default(),
            next: Next::default(),
        };
        assert_eq!(news.cause(), None);
        news.report(&failed(0, "has missed writes"));
        assert_eq!(news.cause(), Some((MemberId(0), Refusal::plain("has missed writes"))));
        news.report(&failed(1, "needs a larger ring"));
        news.report(&ArrayEvent::ArrayFailed);
        news.report(&failed(2, "is hung up on"));
        assert_eq!(news.cause(), Some((MemberId(1), Refusal::plain("needs a larger ring"))));
        assert_eq!(news.failed().len(), 3);
    }

    #[test]
    fn a_difference_within_an_array_is_known_by_that() {
        let news = News::default();
        let array = Stack::array(MemberId(0));
        let event = ArrayEvent::Mismatch { array_sector: 8, sectors: 1, member: None, block: None };
        news.report(&ArrayEvent::Within { array, event: Box::new(event) });
        assert_eq!(news.mismatches()[0].within, Some(array));
    }
}
