//! What the array reports while it is served: a line in the log for each event, and the
//! differences found by the last check, for `status`.

use std::io;
use std::sync::mpsc::Receiver;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use braid_array::events::{ArrayEvent, Fault, SyncAction, SyncEnd};
use braid_array::status::Status;
use braid_array::{MemberId, Refusal};

use crate::control::wire::Mismatch;
use crate::door::Door;
use crate::member::describe;

/// More differences than this are counted by the array, but not kept one by one.
const MAX_MISMATCHES: usize = 1000;

/// Shared by the engine, which reports, and the control socket, which is asked.
#[derive(Debug, Default)]
pub struct News {
    mismatches: Mutex<Vec<Mismatch>>,
    first_failed: OnceLock<(MemberId, Refusal)>,
}

impl News {
    /// The first differences that the last check or repair found.
    #[must_use]
    pub fn mismatches(&self) -> Vec<Mismatch> {
        self.lock().clone()
    }

    /// The first member that failed, and why.
    pub(super) fn first_failed(&self) -> Option<(MemberId, Refusal)> {
        self.first_failed.get().cloned()
    }

    /// Takes an event in, on the engine's thread.
    pub(super) fn report(&self, event: &ArrayEvent) {
        match event {
            ArrayEvent::Within { array, event } => self.take(event, Some(*array)),
            event => self.take(event, None),
        }
    }

    fn take(&self, event: &ArrayEvent, within: Option<MemberId>) {
        match *event {
            ArrayEvent::SyncStarted(SyncAction::Check | SyncAction::Repair) => self.lock().clear(),
            ArrayEvent::Mismatch { array_sector, sectors, member } => {
                let mut mismatches = self.lock();
                if mismatches.len() < MAX_MISMATCHES {
                    mismatches.push(Mismatch { array_sector, sectors, member, within });
                }
            }
            ArrayEvent::MemberFailed { member, ref reason, ref next, .. }
            | ArrayEvent::WritesEnded { member, ref reason, ref next } => {
                // Only the first is kept.
                let why = Refusal::new(reason.clone(), next.clone());
                let _ = self.first_failed.set((member, why));
            }
            _ => {}
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Mismatch>> {
        self.mismatches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes a line to stderr for each event, until the engine has ended. The members' names come
/// through the door, so this is not for the engine's thread.
pub(super) fn log(name: &str, events: &Receiver<ArrayEvent>, door: &Door) {
    for event in events {
        if let Some(line) = line(&event, door.status().as_ref()) {
            eprintln!("braid: {name}: {line}");
        }
    }
}

/// Differences are no line of their own: there may be as many as stripes.
fn line(event: &ArrayEvent, status: Option<&Status>) -> Option<String> {
    let member = |id: MemberId| {
        let known = status.and_then(|status| status.member(id));
        known.map_or_else(|| format!("member {}", id.0), |member| member.device.clone())
    };
    Some(match *event {
        ArrayEvent::MemberFailed { member: id, ref reason, fault, ref next } => {
            let why = Refusal::new(format!("{reason}{}", place(fault)), next.clone());
            format!("{} failed: {why}", member(id))
        }
        ArrayEvent::WritesEnded { member: id, ref reason, .. } => {
            format!("{}: {reason}; no more writes until the array is assembled again", member(id))
        }
        ArrayEvent::MemberActive(id) => format!("{} is in sync", member(id)),
        ArrayEvent::ReadCorrected { member: id, fault } => {
            format!("{}: read error corrected{}", member(id), place(fault))
        }
        ArrayEvent::ReadFailed { member: id, fault } => {
            format!("{}: read error not corrected{}", member(id), place(fault))
        }
        ArrayEvent::ArrayFailed => "too many members are gone, the array has failed".to_owned(),
        ArrayEvent::ClientDropped { ref client } => {
            format!("hung up on {client}: it took no replies over NBD, and memory was short")
        }
        ArrayEvent::SyncStarted(action) => format!("{} started", action.name()),
        ArrayEvent::SyncFinished { action, mismatch_sectors, ref end } => {
            finished(action, mismatch_sectors, end)
        }
        ArrayEvent::Within { array, ref event } => {
            let within = status.and_then(|status| status.array_within(array));
            let name = within.map_or_else(|| member(array), Status::short_name);
            format!("{name}: {}", line(event, status)?)
        }
        ArrayEvent::Mismatch { .. } => return None,
    })
}

/// Where a member failed, and what the system called it.
fn place(fault: Fault) -> String {
    let sector = fault.sector.map_or_else(String::new, |sector| format!(" at sector {sector}"));
    let called = fault.errno.map(|errno| describe(&io::Error::from_raw_os_error(errno)));
    called.map_or_else(|| sector.clone(), |called| format!("{sector}: {called}"))
}

/// How background work ended. What could not be read is not done.
fn finished(action: SyncAction, mismatch_sectors: u64, end: &SyncEnd) -> String {
    let mut line = match end {
        SyncEnd::Complete => format!("{} done", action.name()),
        SyncEnd::Unread { sectors } => {
            format!("{} ended, {sectors} sectors could not be read", action.name())
        }
        SyncEnd::Interrupted { reason } => format!("{} interrupted: {reason}", action.name()),
    };
    if mismatch_sectors > 0 {
        let what = if action == SyncAction::Repair { "rewritten" } else { "differ" };
        line.push_str(&format!(", {mismatch_sectors} sectors {what}"));
    }
    line
}

#[cfg(test)]
mod tests {
    use braid_array::refusal::Next;
    use braid_array::stack::Stack;

    use super::*;

    #[test]
    fn a_new_check_forgets_what_the_last_one_found() {
        let news = News::default();
        let mismatch = |array_sector| ArrayEvent::Mismatch {
            array_sector,
            sectors: 8,
            member: Some(MemberId(2)),
        };
        news.report(&mismatch(64));
        assert_eq!(
            news.mismatches(),
            [Mismatch { array_sector: 64, sectors: 8, member: Some(MemberId(2)), within: None }]
        );
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
    fn lines_name_members_by_device() {
        let status = crate::testing::status(1 << 20, &["/dev/a".as_ref(), "/dev/b".as_ref()]);
        let failed = |id, fault| ArrayEvent::MemberFailed {
            member: MemberId(id),
            reason: "write error".into(),
            fault,
            next: Next::default(),
        };
        let at = Fault { sector: Some(64), errno: Some(5) };
        let line = |event| line(&event, Some(&status));
        let expected = "/dev/b failed: write error at sector 64: input/output error";
        assert_eq!(line(failed(1, at)).unwrap(), expected);
        assert_eq!(line(failed(9, Fault::default())).unwrap(), "member 9 failed: write error");
        let full = ArrayEvent::WritesEnded {
            member: MemberId(0),
            reason: "is full".into(),
            next: Next::default(),
        };
        let expected = "/dev/a: is full; no more writes until the array is assembled again";
        assert_eq!(line(full).unwrap(), expected);
        let started = ArrayEvent::SyncStarted(SyncAction::Recovery);
        assert_eq!(line(started).unwrap(), "recovery started");
        let finished = |action, mismatch_sectors, end| {
            line(ArrayEvent::SyncFinished { action, mismatch_sectors, end }).unwrap()
        };
        assert_eq!(finished(SyncAction::Check, 0, SyncEnd::Complete), "check done");
        let differ = finished(SyncAction::Check, 16, SyncEnd::Complete);
        assert_eq!(differ, "check done, 16 sectors differ");
        let unread = finished(SyncAction::Repair, 8, SyncEnd::Unread { sectors: 24 });
        assert_eq!(unread, "repair ended, 24 sectors could not be read, 8 sectors rewritten");
        let interrupted = SyncEnd::Interrupted { reason: "a member failed".into() };
        let interrupted = finished(SyncAction::Recovery, 0, interrupted);
        assert_eq!(interrupted, "recovery interrupted: a member failed");
        let mismatch = ArrayEvent::Mismatch { array_sector: 0, sectors: 8, member: None };
        assert_eq!(line(mismatch), None);
    }

    #[test]
    fn what_happens_within_an_array_is_told_of_that() {
        let mut status = crate::testing::status(1 << 20, &["array h:left".as_ref()]);
        let mut left = crate::testing::status(1 << 20, &["/dev/a".as_ref()]);
        left.superblock.set_name[..6].copy_from_slice(b"h:left");
        let array = Stack::array(MemberId(0));
        status.members[0].member = array;
        left.members[0].member = Stack::leaf(0, MemberId(0));
        status.children.push(left);
        let failed = |member| ArrayEvent::MemberFailed {
            member,
            reason: "gone".into(),
            fault: Fault::default(),
            next: Next::default(),
        };
        let leaf = failed(Stack::leaf(0, MemberId(0)));
        let leaf = ArrayEvent::Within { array, event: Box::new(leaf) };
        assert_eq!(line(&leaf, Some(&status)).unwrap(), "left: /dev/a failed: gone");
        assert_eq!(line(&failed(array), Some(&status)).unwrap(), "array h:left failed: gone");
        let news = News::default();
        let event = ArrayEvent::Mismatch { array_sector: 8, sectors: 1, member: None };
        news.report(&ArrayEvent::Within { array, event: Box::new(event) });
        assert_eq!(news.mismatches()[0].within, Some(array));
    }
}
