//! Events of the array that were reported: the differences found by the last check and the time of
//! its end, for `status`, and the members that failed, the first one first.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use braid_array::events::{ArrayEvent, SyncAction, SyncEnd};
use braid_array::{MemberId, Refusal};

use super::wire::{LastScrub, Mismatch};
use crate::system::since_1970;

/// More differences than this are counted by the array, but not kept one by one.
const MAX_MISMATCHES: usize = 1000;

/// Shared by the engine, which reports, and the control socket, which is asked.
#[derive(Debug, Default)]
pub struct News {
    mismatches: Mutex<Vec<Mismatch>>,
    scrubs: Mutex<Scrubs>,
    failed: Mutex<Vec<(MemberId, Refusal)>>,
    /// The failure that the array could not do without.
    fatal: Mutex<Option<(MemberId, Refusal)>>,
}

/// Checks and repairs of the array and those within it, which begin together.
#[derive(Debug, Default)]
struct Scrubs {
    /// Those that run, by the member that is an array.
    running: BTreeSet<Option<MemberId>>,
    /// Sectors that those found that have ended since the first began.
    mismatch_sectors: u64,
    interrupted: bool,
    last: Option<LastScrub>,
}

impl Scrubs {
    fn begin(&mut self, within: Option<MemberId>) {
        if self.running.is_empty() {
            *self = Self { last: self.last, ..Self::default() };
        }
        self.running.insert(within);
    }

    fn end(&mut self, within: Option<MemberId>, ended: LastScrub, end: &SyncEnd) {
        self.running.remove(&within);
        self.mismatch_sectors += ended.mismatch_sectors;
        self.interrupted |= matches!(end, SyncEnd::Interrupted { .. });
        if self.running.is_empty() {
            let mismatch_sectors = self.mismatch_sectors;
            self.last = Some(LastScrub { mismatch_sectors, complete: !self.interrupted, ..ended });
        }
    }
}

impl News {
    /// Events of an array that another program served before, which told of this check or repair.
    pub(crate) fn after(last_scrub: Option<LastScrub>) -> Self {
        let scrubs = Scrubs { last: last_scrub, ..Scrubs::default() };
        Self { scrubs: Mutex::new(scrubs), ..Self::default() }
    }

    /// Returns the last check or repair that has ended.
    #[must_use]
    pub fn last_scrub(&self) -> Option<LastScrub> {
        self.scrubs().last
    }

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
            ArrayEvent::SyncStarted(SyncAction::Check | SyncAction::Repair) => {
                self.lock().clear();
                self.scrubs().begin(within);
            }
            ArrayEvent::SyncFinished {
                action: action @ (SyncAction::Check | SyncAction::Repair),
                mismatch_sectors,
                ref end,
            } => {
                let ended_unix_s = since_1970().as_secs();
                let ended = LastScrub { action, ended_unix_s, mismatch_sectors, complete: true };
                self.scrubs().end(within, ended, end);
            }
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

    fn scrubs(&self) -> MutexGuard<'_, Scrubs> {
        self.scrubs.lock().unwrap_or_else(PoisonError::into_inner)
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
    fn the_last_scrub_is_one_that_ended_with_all_arrays_within() {
        let news = News::after(None);
        let action = SyncAction::Check;
        let report = |inner: Option<u16>, event: ArrayEvent| match inner {
            None => news.report(&event),
            Some(inner) => {
                let array = Stack::array(MemberId(inner));
                news.report(&ArrayEvent::Within { array, event: Box::new(event) });
            }
        };
        let begin = |inner| report(inner, ArrayEvent::SyncStarted(action));
        let finish = |inner, mismatch_sectors, end| {
            report(inner, ArrayEvent::SyncFinished { action, mismatch_sectors, end });
        };
        let found = || news.last_scrub().map(|last| (last.mismatch_sectors, last.complete));
        begin(Some(0));
        begin(Some(1));
        finish(Some(0), 8, SyncEnd::Complete);
        assert_eq!(found(), None);
        finish(Some(1), 16, SyncEnd::Unread { sectors: 1 });
        assert_eq!(found(), Some((24, true)));
        begin(None);
        finish(None, 32, SyncEnd::Interrupted { reason: "the array is being stopped".into() });
        assert_eq!(found(), Some((32, false)));
        begin(None);
        finish(None, 0, SyncEnd::Complete);
        assert_eq!(found(), Some((0, true)));
        assert!(news.last_scrub().is_some_and(|last| last.ended_unix_s > 1_700_000_000));
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
