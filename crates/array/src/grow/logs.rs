//! Logs against the write hole, which cannot change with an array's shape. Partial parity logs may
//! be off meanwhile, and come back: a journal may not.

use super::{Grow, refuse};
use crate::format::ppl::{self, PplArea};
use crate::format::superblock::feature;
use crate::level::Level;
use crate::refusal::Refusal;
use crate::status::Status;
use crate::units::UNIT_SECTORS;

const WITHOUT: &str = "stop it, give it the policy resync or bitmap, and start it again";

/// Checks that the array has no log that this change would have to change with it.
pub(super) fn check(status: &Status, grow: Grow) -> Result<(), Refusal> {
    if status.journal.is_some() || status.superblock.has(feature::JOURNAL) {
        return refuse("the array has a journal, which cannot change with its shape", WITHOUT);
    }
    if !status.superblock.has(feature::ANY_PPL) {
        return Ok(());
    }
    check_room(status, grow)?;
    refuse(
        "the array has partial parity logs, which cannot change with its shape",
        "grow it with --suspend-policy: they are off until that is over, and the write hole is \
         open meanwhile",
    )
}

/// Returns the status of the array with its partial parity logs off, if it has any, as they are
/// while it changes.
///
/// # Errors
/// The reason why they could not come back afterwards.
pub fn suspended(status: &Status, grow: Grow) -> Result<Status, Refusal> {
    check_room(status, grow)?;
    let mut suspended = status.clone();
    ppl::suspend(&mut suspended.superblock);
    Ok(suspended)
}

/// Checks that an array of the new shape can have the logs, if there are any.
fn check_room(status: &Status, grow: Grow) -> Result<(), Refusal> {
    let Ok(Some(area)) = PplArea::kept(&status.superblock) else { return Ok(()) };
    match grow {
        Grow::Level { level, .. } => {
            let level = Level::from_md(level).map_or("array", Level::name);
            refuse(format!("a {level} cannot have the partial parity logs that it has"), WITHOUT)
        }
        Grow::RaidDisks(count) if count as usize > ppl::MAX_MEMBERS => {
            let most = ppl::MAX_MEMBERS;
            refuse(format!("partial parity logs are for {most} members at most"), WITHOUT)
        }
        Grow::Chunk(sectors) if !area.takes(u64::from(sectors.min(UNIT_SECTORS))) => {
            let reason = "the partial parity logs have too little room for such chunks";
            refuse(reason, "name smaller ones; or give it larger logs with braid update")
        }
        _ => Ok(()),
    }
}
