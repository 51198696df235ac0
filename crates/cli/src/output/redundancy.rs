//! Redundancy that is left: which members may still fail, and the next step for an array that lacks
//! some. No I/O.

use braid_array::events::SyncAction;
use braid_array::status::{ArrayState, MemberState, MemberStatus, Status};

use super::shape;
use crate::invocation::shell_word;

/// `one more member may fail`; `None` of an array that has failed.
pub(crate) fn may_fail(status: &Status) -> Option<String> {
    if status.state == ArrayState::Failed {
        return None;
    }
    let live = |member: &&MemberStatus| member.state == MemberState::InSync;
    let live: Vec<&MemberStatus> = status.members.iter().filter(live).collect();
    let needed: Vec<&str> =
        live.iter().filter(|member| member.needed).map(|member| member.device.as_str()).collect();
    if !shape::has_redundancy(status.superblock.level) {
        return Some("no member may fail".to_owned());
    }
    if needed.len() == live.len() {
        return Some("no further member may fail".to_owned());
    }
    if !needed.is_empty() {
        return Some(format!("these may not fail: {}", needed.join(" ")));
    }
    let more = match status.superblock.level {
        6 => 2_usize.saturating_sub(status.degraded.into()),
        1 => live.len() - 1,
        _ => 1,
    };
    Some(match more {
        0 | 1 => "one more member may fail".to_owned(),
        more => format!("{more} more members may fail"),
    })
}

/// Returns the next step for an array that lacks its journal, or members that it does not recover.
pub(crate) fn next(name: &str, status: &Status) -> Option<String> {
    let name = shell_word(name);
    if status.waiting.is_some() {
        // Told with what it waits for.
        return None;
    }
    if status.lacks_journal() {
        return Some(format!("braid add {name} NEW-DEVICE --journal"));
    }
    if status.state == ArrayState::Failed {
        return Some(after_failure(&name, status));
    }
    // A spare takes the place by itself.
    let spare = |member: &MemberStatus| {
        matches!(member.state, MemberState::Spare | MemberState::Rebuilding)
    };
    let recovers = status.sync.action == SyncAction::Recovery || status.members.iter().any(spare);
    (status.degraded > 0 && !recovers).then(|| {
        let on_nodes = status.members.iter().any(MemberStatus::is_on_a_node);
        if on_nodes {
            format!("start the node again; if it is gone for good, braid add {name} NODE")
        } else {
            format!("braid add {name} NEW-DEVICE")
        }
    })
}

fn after_failure(name: &str, status: &Status) -> String {
    let devices: Vec<&MemberStatus> =
        status.members.iter().filter(|member| !member.device.is_empty()).collect();
    if devices.iter().any(|member| member.is_on_a_node()) {
        return "start the nodes again: the array goes on by itself".to_owned();
    }
    let devices: Vec<String> = devices.iter().map(|member| shell_word(&member.device)).collect();
    let devices = devices.join(" ");
    format!("braid stop {name}; bring the devices back; braid assemble --explain {devices}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use braid_array::MemberId;
    use braid_array::format::superblock::feature;
    use braid_array::status::SyncStatus;

    /// Returns an array of this level; `!` before the name of a device the array needs, `-` before
    /// one that has failed.
    fn array(level: i32, devices: &[&str]) -> Status {
        let mut status = Status { state: ArrayState::Clean, ..Status::blank() };
        status.superblock.level = level;
        for (number, device) in devices.iter().enumerate() {
            let failed = device.starts_with('-');
            status.degraded += u16::from(failed);
            let state = if failed { MemberState::Faulty } else { MemberState::InSync };
            let name = device.trim_start_matches(['!', '-']).to_owned();
            let needed = device.starts_with('!');
            let member = MemberStatus::new(MemberId(number as u16), name, state);
            status.members.push(MemberStatus { needed, ..member });
        }
        status
    }

    #[test]
    fn members_that_may_still_fail() {
        let cases: [(i32, &[&str], &str); 8] = [
            (0, &["!a", "!b"], "no member may fail"),
            (5, &["a", "b", "c"], "one more member may fail"),
            (5, &["!a", "-b", "!c"], "no further member may fail"),
            (6, &["a", "b", "c", "d"], "2 more members may fail"),
            (6, &["a", "-b", "c", "d"], "one more member may fail"),
            (1, &["a", "b", "c"], "2 more members may fail"),
            (10, &["!a", "-b", "c", "d"], "these may not fail: a"),
            (10, &["a", "b", "c", "d"], "one more member may fail"),
        ];
        for (level, devices, expected) in cases {
            let told = may_fail(&array(level, devices));
            assert_eq!(told.as_deref(), Some(expected), "{level} {devices:?}");
        }
        let failed = Status { state: ArrayState::Failed, ..array(5, &["!a", "-b", "-c"]) };
        assert_eq!(may_fail(&failed), None);
    }

    #[test]
    fn next_steps() {
        let told = |status: &Status| next("my home", status);
        assert_eq!(told(&array(5, &["a", "b", "c"])), None);
        let degraded = array(5, &["!a", "-b", "!c"]);
        assert_eq!(told(&degraded).unwrap(), "braid add 'my home' NEW-DEVICE");
        let sync = SyncStatus { action: SyncAction::Recovery, ..SyncStatus::default() };
        assert_eq!(told(&Status { sync, ..degraded.clone() }), None);
        let mut spare = degraded.clone();
        spare.members.push(MemberStatus::new(MemberId(3), "d".to_owned(), MemberState::Spare));
        assert_eq!(told(&spare), None);
        let failed = Status { state: ArrayState::Failed, ..degraded };
        let expected =
            "braid stop 'my home'; bring the devices back; braid assemble --explain a b c";
        assert_eq!(told(&failed).unwrap(), expected);
        let mut journaled = array(5, &["a", "b", "c", "-j"]);
        journaled.superblock.feature_map |= feature::JOURNAL;
        assert_eq!(told(&journaled).unwrap(), "braid add 'my home' NEW-DEVICE --journal");
        journaled.members[3].state = MemberState::Journal;
        journaled.degraded = 0;
        assert_eq!(told(&journaled), None);
        let nodes = array(5, &["!node://a:7000/x", "-node://b:7000/x"]);
        assert!(told(&nodes).unwrap().starts_with("start the node again"));
        let failed = Status { state: ArrayState::Failed, ..nodes };
        assert!(told(&failed).unwrap().contains("goes on by itself"));
    }
}
