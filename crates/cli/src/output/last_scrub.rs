//! The last check or repair: its date and findings, for people.

use braid_array::events::SyncAction;
use braid_host::control::wire::{ControlStatus, LastScrub};

use super::time;
use crate::invocation::shell_word;

/// `check`, and `28 Nov 01:09: 48 sectors differ; next: braid repair home`.
pub(crate) fn words(array: &ControlStatus) -> Option<(&'static str, String)> {
    let last = array.last_scrub?;
    let when = time::recent(last.ended_unix_s);
    Some((last.action.name(), format!("{when}: {}", findings(&array.name, &last))))
}

/// `48 sectors differ; next: braid repair home`.
fn findings(name: &str, last: &LastScrub) -> String {
    let name = shell_word(name);
    match (last.mismatch_sectors, last.action) {
        (n, action) if !last.complete => {
            let found = if n == 0 { "no mismatches".to_owned() } else { format!("{n} sectors") };
            format!("not complete, {found} so far; next: braid {} {name}", action.name())
        }
        (0, _) => "no mismatches".to_owned(),
        (n, SyncAction::Repair) => format!("{n} sectors rewritten"),
        (n, _) => format!("{n} sectors differ; next: braid repair {name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_found_something_has_a_next_step() {
        let found = |action, mismatch_sectors| {
            let complete = mismatch_sectors != 16;
            findings("home", &LastScrub { action, ended_unix_s: 0, mismatch_sectors, complete })
        };
        assert_eq!(found(SyncAction::Check, 0), "no mismatches");
        let differ = "48 sectors differ; next: braid repair home";
        assert_eq!(found(SyncAction::Check, 48), differ);
        assert_eq!(found(SyncAction::Repair, 48), "48 sectors rewritten");
        let stopped = "not complete, 16 sectors so far; next: braid check home";
        assert_eq!(found(SyncAction::Check, 16), stopped);
    }
}
