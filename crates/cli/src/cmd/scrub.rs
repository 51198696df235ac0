//! `braid check` and `braid repair`.

use std::fmt::Write as _;
use std::path::Path;

use braid_array::SECTOR_BYTES;
use braid_array::events::SyncAction;
use braid_array::status::SyncStatus;
use braid_host::control::wire::{ControlStatus, Verb};

use super::{running, status};
use crate::args::ScrubArgs;
use crate::failure::Failure;
use crate::invocation::shell_word;
use crate::output;
use crate::output::progress::Progress;

/// Compare only, or rewrite as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScrubKind {
    Check,
    Repair,
}

impl ScrubKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Repair => "repair",
        }
    }

    fn verb(self) -> Verb {
        match self {
            Self::Check => Verb::Check,
            Self::Repair => Verb::Repair,
        }
    }
}

/// Returns whether this is a check or a repair.
pub(super) const fn is_scrub(action: SyncAction) -> bool {
    matches!(action, SyncAction::Check | SyncAction::Repair)
}

pub(super) fn run(run_dir: &Path, args: &ScrubArgs, kind: ScrubKind) -> Result<(), Failure> {
    let name = &args.name;
    let scrubbing = |sync: &SyncStatus| is_scrub(sync.action) || sync.next.is_some();
    let stops = args.stop && is_running(run_dir, name, kind)?;
    let verb = if args.stop { Verb::StopScrub } else { kind.verb() };
    running::call(kind.name(), run_dir, name, verb)?;
    let array = if args.wait || args.stop {
        status::wait(kind.name(), run_dir, name, Progress::bar(name), scrubbing)?
    } else {
        running::status(kind.name(), run_dir, name)?
    };
    if args.json {
        output::print_json(&output::json::array(&array))?;
    }
    if !args.wait {
        let operation = kind.name();
        let done = if !args.stop {
            format!("{operation} started; to follow it: braid status {} --watch", shell_word(name))
        } else if stops {
            format!("{operation} stopped")
        } else {
            "neither check nor repair was running".to_owned()
        };
        return if args.json { Ok(()) } else { output::answer(&format!("{name}: {done}\n")) };
    }
    if array.array.mismatch_sectors.is_none() {
        let next = format!("see braid status {name} for what happened, then start it again");
        return Err(Failure::refused(kind.name(), name, "it ended before it was complete", next));
    }
    if !args.json {
        output::answer(&outcome(&array, kind))?;
    }
    let differs = kind == ScrubKind::Check && array.array.mismatch_sectors > Some(0);
    let well = !differs && array.array.unreadable_sectors == 0;
    if well { Ok(()) } else { Err(Failure::Silent(Failure::REFUSED)) }
}

/// Returns whether a scrub is running. Refuses for a resync or recovery, which can be held up and
/// not ended: it makes the array whole.
fn is_running(run_dir: &Path, name: &str, kind: ScrubKind) -> Result<bool, Failure> {
    let action = running::status(kind.name(), run_dir, name)?.array.sync.action;
    if !matches!(action, SyncAction::Resync | SyncAction::Recovery) {
        return Ok(is_scrub(action));
    }
    let reason = format!("{} is running, no check", action.name());
    let next = format!("hold it up with braid limit {name} --pause");
    Err(Failure::refused(kind.name(), name, reason, next))
}

/// Returns the findings of the scrub, one line for each place.
fn outcome(array: &ControlStatus, kind: ScrubKind) -> String {
    let name = &array.name;
    let operation = kind.name();
    let unread = array.array.unreadable_sectors;
    let alone = array.array.uncompared_sectors;
    let mut ended = match unread {
        0 => format!("{name}: {operation} complete"),
        n => format!("{name}: {operation} ended, {n} sectors could not be read"),
    };
    if alone > 0 {
        let _ = write!(ended, ", {alone} sectors have nothing left to be compared with");
    }
    let trusted = if kind == ScrubKind::Repair { array.array.trusted_sectors } else { 0 };
    if trusted > 0 {
        let _ = write!(ended, ", {trusted} sectors were taken from parity that may not fit");
    }
    let mut text = match (array.array.mismatch_sectors, kind) {
        (None | Some(0), _) if unread + alone + trusted > 0 => {
            format!("{ended}, no mismatches in the rest\n")
        }
        (None | Some(0), _) => format!("{ended}, no mismatches\n"),
        (Some(n), ScrubKind::Check) => {
            format!("{ended}, {n} sectors differ; braid repair {name} rewrites them\n")
        }
        (Some(n), ScrubKind::Repair) => format!("{ended}, {n} sectors rewritten\n"),
    };
    for found in &array.mismatches {
        let offset = found.array_sector * SECTOR_BYTES;
        let wrong = output::what_is_wrong(&array.array, found);
        let within = output::array_within(&array.array, found);
        let within = within.map_or_else(String::new, |name| format!(" of {name}"));
        let sectors = found.sectors;
        let _ = writeln!(text, "  {sectors} sectors at array offset {offset}{within}{wrong}");
    }
    text + &output::unread::lines(&array.array, usize::MAX)
}
