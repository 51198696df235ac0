//! Reports of the array, as lines of the log.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Instant;

use braid_array::events::{ArrayEvent, Fault, StripeBlock, SyncAction, SyncEnd};
use braid_array::status::{MemberStatus, Status};
use braid_array::{Condition, MemberId, Refusal};
use tracing::Level;

use crate::log::{LineLimit, Verdict};
use crate::submission::SubmissionQueue;
use crate::system::describe;

/// Lines that are alike: of one kind of event, and about one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Alike {
    event: &'static str,
    member: Option<MemberId>,
}

/// Subject of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct About {
    level: Level,
    alike: Alike,
    fault: Fault,
}

/// Writes the log until the engine has ended. The members' names come through the submission queue,
/// so this must not run on the engine's thread.
pub(super) fn log(array: &str, events: &Receiver<ArrayEvent>, submissions: &SubmissionQueue) {
    let mut limit: LineLimit<Alike> = LineLimit::new();
    loop {
        let wait = limit.ends().map(|at| at.saturating_duration_since(Instant::now()));
        let event = match wait {
            None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(wait) => events.recv_timeout(wait),
        };
        for (alike, left) in limit.over(Instant::now()) {
            let status = submissions.status();
            let member = alike.member.map(|id| device(id, status.as_ref()));
            let event = alike.event;
            tracing::warn!(array, member, event, "{left} more lines of this kind in a minute");
        }
        match event {
            Ok(event) => write(array, &event, submissions, &mut limit),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn write(
    array: &str,
    event: &ArrayEvent,
    submissions: &SubmissionQueue,
    limit: &mut LineLimit<Alike>,
) {
    let Some(about) = about(event) else { return };
    let verdict = limit.count(Instant::now(), about.alike);
    if verdict == Verdict::Leave {
        return;
    }
    let status = submissions.status();
    let Some(mut line) = line(event, status.as_ref()) else { return };
    if verdict == Verdict::WriteLast {
        line.push_str(" (more of these within a minute are only counted)");
    }
    let member = about.alike.member.map(|id| device(id, status.as_ref()));
    let Fault { sector, errno } = about.fault;
    let id = condition(event, status.as_ref()).map(tracing::field::display);
    match about.level {
        Level::ERROR => tracing::error!(array, member, errno, sector, id, "{line}"),
        Level::WARN => tracing::warn!(array, member, errno, sector, id, "{line}"),
        _ => tracing::info!(array, member, errno, sector, "{line}"),
    }
}

/// Differences are no line of their own where they are known by the sector of the array alone.
fn about(event: &ArrayEvent) -> Option<About> {
    let about =
        |level, event, member, fault| Some(About { level, alike: Alike { event, member }, fault });
    let none = Fault::default();
    match *event {
        ArrayEvent::MemberFailed { member, fault, .. } => {
            about(Level::ERROR, "member failed", Some(member), fault)
        }
        ArrayEvent::ReadFailed { member, fault } => {
            about(Level::ERROR, "read failed", Some(member), fault)
        }
        ArrayEvent::ArrayFailed => about(Level::ERROR, "array failed", None, none),
        ArrayEvent::Waits { .. } => about(Level::WARN, "array waits", None, none),
        ArrayEvent::DataLost { .. } => about(Level::ERROR, "data lost", None, none),
        ArrayEvent::ParityTrusted { .. } => about(Level::WARN, "parity trusted", None, none),
        ArrayEvent::ChecksumMismatch { member, sector, .. } => {
            let fault = Fault { sector: Some(sector), errno: None };
            about(Level::ERROR, "checksum mismatch", Some(member), fault)
        }
        ArrayEvent::ChecksumsGivenUp { member, fault } => {
            about(Level::ERROR, "checksums given up", Some(member), fault.unwrap_or_default())
        }
        ArrayEvent::MemberFull { member, fault } => {
            about(Level::ERROR, "member full", Some(member), fault)
        }
        ArrayEvent::MemberSlow { member, .. } => {
            about(Level::WARN, "member slow", Some(member), none)
        }
        ArrayEvent::ReadCorrected { member, fault } => {
            about(Level::WARN, "read corrected", Some(member), fault)
        }
        ArrayEvent::NotReplaced { member, .. } => {
            about(Level::ERROR, "not replaced", Some(member), none)
        }
        ArrayEvent::MemberRefused { member, .. } => {
            about(Level::ERROR, "member refused", Some(member), none)
        }
        ArrayEvent::ClientDropped { .. } => about(Level::WARN, "client dropped", None, none),
        ArrayEvent::SyncFinished { mismatch_sectors: 0, end: SyncEnd::Complete, .. } => {
            about(Level::INFO, "sync finished", None, none)
        }
        ArrayEvent::SyncFinished { .. } => about(Level::WARN, "sync finished", None, none),
        ArrayEvent::ShapeChanged { .. } => about(Level::INFO, "shape changed", None, none),
        ArrayEvent::SyncStarted(_) => about(Level::INFO, "sync started", None, none),
        ArrayEvent::MemberActive(member) => about(Level::INFO, "in sync", Some(member), none),
        ArrayEvent::Within { ref event, .. } => self::about(event),
        // What nodes say is not said here.
        // Nor is why the array ends, which is said when it does.
        ArrayEvent::Remark { .. }
        | ArrayEvent::StopAsked
        | ArrayEvent::TakenOver
        | ArrayEvent::MembersChanged => None,
        ArrayEvent::Mismatch { block, member, .. } => {
            block.and_then(|_| about(Level::WARN, "mismatch", member, none))
        }
    }
}

/// Returns the condition that an event makes, as `braid status` shows it from then on.
fn condition(event: &ArrayEvent, status: Option<&Status>) -> Option<Condition> {
    match *event {
        ArrayEvent::MemberFailed { .. } if status.is_some_and(Status::lacks_journal) => {
            Some(Condition::JournalLost)
        }
        ArrayEvent::MemberFailed { member, .. } => {
            let known = status.and_then(|status| status.member(member));
            let on_a_node = known.is_some_and(MemberStatus::is_on_a_node);
            Some(if on_a_node { Condition::NodeLost } else { Condition::MemberFailed })
        }
        ArrayEvent::ArrayFailed => Some(Condition::ArrayFailed),
        ArrayEvent::Waits { .. } => Some(Condition::ArrayWaits),
        ArrayEvent::MemberRefused { .. } => Some(Condition::MemberRefused),
        ArrayEvent::MemberSlow { .. } => Some(Condition::MemberSlow),
        ArrayEvent::ParityTrusted { .. } => Some(Condition::ParityTrusted),
        ArrayEvent::SyncFinished { end: SyncEnd::Unread { .. }, .. } => Some(Condition::Unreadable),
        ArrayEvent::SyncFinished { action: SyncAction::Check, mismatch_sectors: 1.., .. } => {
            Some(Condition::Mismatch)
        }
        ArrayEvent::Within { array, ref event } => {
            condition(event, status.and_then(|status| status.array_within(array)))
        }
        _ => None,
    }
}

fn device(id: MemberId, status: Option<&Status>) -> String {
    let known = status.and_then(|status| status.member(id));
    known.map_or_else(|| format!("member {}", id.0), |member| member.device.clone())
}

fn line(event: &ArrayEvent, status: Option<&Status>) -> Option<String> {
    let member = |id| device(id, status);
    Some(match *event {
        ArrayEvent::MemberFailed { member: id, ref reason, fault, ref next } => {
            let why = Refusal::new(format!("{reason}{}", place(fault)), next.clone());
            format!("{} failed: {why}", member(id))
        }
        ArrayEvent::MemberActive(id) => format!("{} is in sync", member(id)),
        ArrayEvent::ReadCorrected { member: id, fault } => {
            format!("{}: read error corrected{}", member(id), place(fault))
        }
        ArrayEvent::ReadFailed { member: id, fault } => {
            format!("{}: read error not corrected{}", member(id), place(fault))
        }
        ArrayEvent::ChecksumMismatch { member: id, sector, sectors } => {
            format!("{}: sectors {sector}+{sectors} do not fit their checksum", member(id))
        }
        ArrayEvent::ChecksumsGivenUp { member: id, fault } => given_up(&member(id), fault),
        ArrayEvent::MemberFull { member: id, fault } => full(&member(id), fault),
        ArrayEvent::MemberSlow { member: id, ms, others_ms } => {
            let next = "look at its storage and its link: writes wait for it";
            let device = member(id);
            format!("{device} is slow, it takes {ms} ms where others take {others_ms}; {next}")
        }
        ArrayEvent::NotReplaced { member: id, ref reason, ref next } => {
            let why = Refusal::new(reason.clone(), next.clone());
            format!("{} is not replaced: {why}", member(id))
        }
        ArrayEvent::DataLost { sectors } => data_lost(sectors),
        ArrayEvent::ParityTrusted { sectors } => parity_trusted(sectors),
        ArrayEvent::MemberRefused { member: id, ref why } => {
            format!("{} is not taken back: {why}", member(id))
        }
        ArrayEvent::ArrayFailed => "too many members are gone, the array has failed".to_owned(),
        ArrayEvent::Waits { ref reason, ref next } => {
            format!("the array waits: {}", Refusal::new(reason.clone(), next.clone()))
        }
        ArrayEvent::Remark { .. }
        | ArrayEvent::StopAsked
        | ArrayEvent::TakenOver
        | ArrayEvent::MembersChanged => return None,
        ArrayEvent::ClientDropped { ref client } => {
            format!("hung up on {client}: it took no replies over NBD, and memory was short")
        }
        ArrayEvent::ShapeChanged { from, to } => format!("was {from}, is {to} now"),
        ArrayEvent::SyncStarted(action) => format!("{} started", action.name()),
        ArrayEvent::SyncFinished { action, mismatch_sectors, ref end } => {
            finished(action, mismatch_sectors, end)
        }
        ArrayEvent::Within { array, ref event } => {
            let within = status.and_then(|status| status.array_within(array));
            let name = within.map_or_else(|| member(array), Status::short_name);
            format!("{name}: {}", line(event, status)?)
        }
        ArrayEvent::Mismatch { sectors, member: id, block, .. } => {
            let StripeBlock { stripe, row } = block?;
            match (id, row) {
                (Some(id), Some(row)) => {
                    let device = member(id);
                    format!(
                        "{sectors} sectors of block {row} of stripe {stripe} on {device} are wrong"
                    )
                }
                _ => format!("{sectors} sectors of stripe {stripe} differ"),
            }
        }
    })
}

/// Returns the line for a member that has no room.
fn full(member: &str, fault: Fault) -> String {
    let next = "make room there; the write was refused, and the member stays";
    format!("{member} has no room{}; {next}", place(fault))
}

/// Returns the line for checksums of a member whose store fails.
fn given_up(member: &str, fault: Option<Fault>) -> String {
    let why = fault.map_or_else(String::new, |fault| format!("fails{}", place(fault)));
    let why = if fault.is_some() { &why } else { "does not answer" };
    format!(
        "{member}: the store of its checksums {why}; its data are not verified until the array is \
         assembled again, with the store mended or another one"
    )
}

/// Returns the line for so many sectors that a repair made of parity which nothing confirms.
fn parity_trusted(sectors: u64) -> String {
    format!(
        "repair took parity's word for {sectors} sectors that could not be read and waited for a \
         resync: what they hold may be wrong; braid status says where they are, compare them with \
         a backup"
    )
}

/// Returns the line for lost data without valid parity, in so many sectors of each member.
fn data_lost(sectors: u64) -> String {
    let kib = sectors.div_ceil(2);
    format!(
        "no resync had made parity fit {kib} KiB of each member: what the missing members held of \
         them cannot be read; write it again, or restore it from a backup"
    )
}

/// Describes the place of a member's failure, and the system's error.
fn place(fault: Fault) -> String {
    let sector = fault.sector.map_or_else(String::new, |sector| format!(" at sector {sector}"));
    let called = fault.errno.map(|errno| describe(&io::Error::from_raw_os_error(errno)));
    called.map_or_else(|| sector.clone(), |called| format!("{sector}: {called}"))
}

/// Returns the line for the end of background work. Unreadable sectors were not processed.
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
    use braid_array::format::superblock::feature;
    use braid_array::outline::Outline;
    use braid_array::refusal::Next;
    use braid_array::stack::Stack;

    use super::*;
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
        let started = ArrayEvent::SyncStarted(SyncAction::Recovery);
        assert_eq!(line(started).unwrap(), "recovery started");
        let outline = |level, raid_disks| Outline { level, raid_disks, array_sectors: 81_920 };
        let changed = ArrayEvent::ShapeChanged { from: outline(5, 3), to: outline(6, 4) };
        let expected = "was raid5 of 3 members, 40 MiB, is raid6 of 4 members, 40 MiB now";
        assert_eq!(line(changed).unwrap(), expected);
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
        let trusted = line(ArrayEvent::ParityTrusted { sectors: 8 }).unwrap();
        assert!(trusted.starts_with("repair took parity's word for 8 sectors"), "{trusted}");
        let member = None;
        let block = None;
        let mismatch = ArrayEvent::Mismatch { array_sector: 0, sectors: 8, member, block };
        assert_eq!(line(mismatch), None);
        let mismatch = |member, row| {
            let block = Some(StripeBlock { stripe: 7, row });
            line(ArrayEvent::Mismatch { array_sector: 0, sectors: 8, member, block }).unwrap()
        };
        let expected = "8 sectors of block 2 of stripe 7 on /dev/a are wrong";
        assert_eq!(mismatch(Some(MemberId(0)), Some(2)), expected);
        assert_eq!(mismatch(None, None), "8 sectors of stripe 7 differ");
    }

    #[test]
    fn an_event_has_the_id_that_status_shows() {
        let devices = ["/dev/a", "node://10.0.0.1:7000/a"].map(AsRef::as_ref);
        let mut status = crate::testing::status(1 << 20, &devices);
        let failed = |id| ArrayEvent::MemberFailed {
            member: MemberId(id),
            reason: "gone".into(),
            fault: Fault::default(),
            next: Next::default(),
        };
        assert_eq!(condition(&failed(0), Some(&status)), Some(Condition::MemberFailed));
        assert_eq!(condition(&failed(1), Some(&status)), Some(Condition::NodeLost));
        status.superblock.feature_map |= feature::JOURNAL;
        assert_eq!(condition(&failed(0), Some(&status)), Some(Condition::JournalLost));
        let finished = |action, mismatch_sectors, end| {
            condition(&ArrayEvent::SyncFinished { action, mismatch_sectors, end }, Some(&status))
        };
        let check = SyncAction::Check;
        assert_eq!(finished(check, 8, SyncEnd::Complete), Some(Condition::Mismatch));
        assert_eq!(finished(check, 0, SyncEnd::Complete), None);
        assert_eq!(finished(SyncAction::Repair, 8, SyncEnd::Complete), None);
        let unread = SyncEnd::Unread { sectors: 8 };
        assert_eq!(finished(check, 0, unread), Some(Condition::Unreadable));
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
    }

    #[test]
    fn lines_have_a_level_and_fields() {
        let fault = Fault { sector: Some(64), errno: Some(5) };
        let corrected = ArrayEvent::ReadCorrected { member: MemberId(2), fault };
        let alike = Alike { event: "read corrected", member: Some(MemberId(2)) };
        let expected = About { level: Level::WARN, alike, fault };
        assert_eq!(about(&corrected), Some(expected));
        let within = ArrayEvent::Within { array: MemberId(0), event: Box::new(corrected) };
        assert_eq!(about(&within), Some(expected));
        let action = SyncAction::Check;
        let finished = |mismatch_sectors, end| {
            let event = ArrayEvent::SyncFinished { action, mismatch_sectors, end };
            about(&event).map(|about| about.level)
        };
        assert_eq!(finished(0, SyncEnd::Complete), Some(Level::INFO));
        assert_eq!(finished(8, SyncEnd::Complete), Some(Level::WARN));
        assert_eq!(finished(0, SyncEnd::Unread { sectors: 8 }), Some(Level::WARN));
    }
}
