//! Next step that an alert names, and the id of the condition that asks for it. No I/O.

use braid_array::Condition;

use super::event::Event;
use super::seen::{Seen, node_of};
use crate::invocation::shell_word;

/// Returns what to do about an event of this array, and by which command.
pub(super) fn step(event: Event, array: &Seen, member: Option<&str>) -> Option<String> {
    let name = shell_word(array.served());
    let device = || member.map_or_else(|| "DEVICE".to_owned(), shell_word);
    Some(match event {
        Event::Fail if array.next.is_some() && !array.has_failed() => {
            let on_a_disk = member.is_some_and(|member| node_of(member).is_none());
            let next = array.next.as_ref()?;
            if on_a_disk {
                format!("braid remove {name} {}; {next}", device())
            } else {
                next.clone()
            }
        }
        Event::Fail | Event::DegradedArray | Event::ArrayFailed => match &array.next {
            Some(next) => next.clone(),
            None if array.recovers() => format!("braid status {name} --watch shows the recovery"),
            None => format!("braid status {name} says what is missing"),
        },
        Event::FailSpare => {
            format!("braid remove {name} {}; braid add {name} NEW-DEVICE", device())
        }
        Event::NodeLost => "start the node again, with its store".to_owned(),
        Event::MismatchFound if array.repaired => return None,
        Event::MismatchFound => format!("braid repair {name}"),
        Event::DiskWarning => {
            format!("braid add {name} NEW-DEVICE; braid replace {name} {}", device())
        }
        Event::DeviceDisappeared => {
            format!("braid up {name}, unless it was stopped on purpose; its log has the reason")
        }
        // What it lacks now, if anything.
        Event::ArrayGrown => return array.next.clone(),
        Event::RebuildStarted
        | Event::Rebuild(_)
        | Event::RebuildFinished
        | Event::ReshapeStarted
        | Event::Reshape(_)
        | Event::ReshapeFinished
        | Event::SpareActive
        | Event::NewArray
        | Event::TestMessage => return None,
    })
}

/// Returns the id of the condition that an event tells of.
pub(super) fn id(event: Event, array: &Seen) -> Option<String> {
    let condition = match event {
        Event::Fail | Event::FailSpare | Event::DegradedArray | Event::ArrayFailed => {
            return array.ids.first().cloned();
        }
        Event::NodeLost => Condition::NodeLost,
        Event::MismatchFound => Condition::Mismatch,
        Event::DiskWarning => Condition::DiskWarning,
        Event::DeviceDisappeared => Condition::NotRunning,
        Event::RebuildStarted
        | Event::Rebuild(_)
        | Event::RebuildFinished
        | Event::ReshapeStarted
        | Event::Reshape(_)
        | Event::ReshapeFinished
        | Event::SpareActive
        | Event::NewArray
        | Event::ArrayGrown
        | Event::TestMessage => return None,
    };
    Some(condition.to_string())
}

#[cfg(test)]
mod tests {
    use braid_array::events::SyncAction;

    use super::super::seen::Sync;
    use super::*;

    #[test]
    fn each_event_that_is_mailed_names_a_step() {
        let next = Some("braid add home NEW-DEVICE".to_owned());
        let degraded = Seen { name: "home/left".to_owned(), next, ..Seen::default() };
        let sync = Some(Sync { action: SyncAction::Recovery, mark: 0 });
        let recovering = Seen { next: None, sync, ..degraded.clone() };
        let failed = vec!["failed".to_owned()];
        let next = Some("braid stop home; ...".to_owned());
        let failed = Seen { state: failed, next, ..degraded.clone() };
        let waiting = Seen { next: None, sync: None, ..failed.clone() };
        let repaired = Seen { repaired: true, ..recovering.clone() };
        let new = "braid remove home /dev/b; braid add home NEW-DEVICE";
        let disk = Some("/dev/b");
        let node = Some("node://n:7000/home");
        let cases = [
            (Event::Fail, &degraded, disk, Some(new)),
            (Event::Fail, &degraded, node, Some("braid add home NEW-DEVICE")),
            (Event::Fail, &recovering, disk, Some("braid status home --watch shows the recovery")),
            (Event::Fail, &failed, disk, Some("braid stop home; ...")),
            (Event::ArrayFailed, &failed, None, Some("braid stop home; ...")),
            (Event::ArrayFailed, &waiting, None, Some("braid status home says what is missing")),
            (Event::FailSpare, &recovering, disk, Some(new)),
            (Event::MismatchFound, &recovering, None, Some("braid repair home")),
            (Event::MismatchFound, &repaired, None, None),
            (
                Event::DiskWarning,
                &recovering,
                disk,
                Some("braid add home NEW-DEVICE; braid replace home /dev/b"),
            ),
            (Event::NewArray, &degraded, None, None),
        ];
        for (event, array, member, expected) in cases {
            assert_eq!(step(event, array, member).as_deref(), expected, "{event:?} {member:?}");
        }
        let named = |event| id(event, &Seen { ids: vec!["BRAID-104".into()], ..Seen::default() });
        assert_eq!(named(Event::Fail).as_deref(), Some("BRAID-104"));
        assert_eq!(named(Event::NodeLost).as_deref(), Some("BRAID-105"));
        assert_eq!(named(Event::SpareActive), None);
        let gone = step(Event::DeviceDisappeared, &recovering, None).unwrap();
        assert!(gone.starts_with("braid up home, unless"), "{gone}");
    }
}
