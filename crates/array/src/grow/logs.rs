//! Logs against the write hole, which cannot change with an array's shape. They may be off
//! meanwhile, and come back.

use super::{Grow, refuse};
use crate::format::Superblock;
use crate::format::journal::least_sectors;
use crate::format::ppl::{self, PplArea};
use crate::format::superblock::feature;
use crate::format::suspended::suspend_journal;
use crate::level::Level;
use crate::refusal::Refusal;
use crate::status::Status;
use crate::units::UNIT_SECTORS;

const WITHOUT: &str = "stop it, give it the policy resync or bitmap, and start it again";

/// Checks that the array has no log that this change would have to change with it.
pub(super) fn check(status: &Status, grow: Grow) -> Result<(), Refusal> {
    let has_journal = status.superblock.has(feature::JOURNAL);
    if !has_journal && !status.superblock.has(feature::ANY_PPL) {
        return Ok(());
    }
    check_room(status, grow)?;
    let (what, is) =
        if has_journal { ("a journal", "it is") } else { ("partial parity logs", "they are") };
    refuse(
        format!("the array has {what}, which cannot change with its shape"),
        format!(
            "grow it with --suspend-policy: {is} off until that is over, and the write hole is \
             open meanwhile"
        ),
    )
}

/// Returns the status of the array with its logs off, if it has any, as they are while it changes.
///
/// # Errors
/// The reason why they could not come back afterwards.
pub fn suspended(status: &Status, grow: Grow) -> Result<Status, Refusal> {
    check_room(status, grow)?;
    let mut suspended = status.clone();
    ppl::suspend(&mut suspended.superblock);
    if let Some(journal) = suspended.journal.take()
        && let Some(member) = status.member(journal.member)
    {
        suspend_journal(&mut suspended.superblock, member.number.into());
    }
    Ok(suspended)
}

/// Checks that an array of the new shape can have the logs, if there are any.
fn check_room(status: &Status, grow: Grow) -> Result<(), Refusal> {
    if let Some(journal) = &status.journal {
        return check_journal(&status.superblock, journal.size_sectors, grow);
    }
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

/// Checks that an array of the new shape can have a journal of this size.
fn check_journal(superblock: &Superblock, sectors: u64, grow: Grow) -> Result<(), Refusal> {
    let mut raid_disks = superblock.raid_disks;
    let mut chunk = superblock.chunk_sectors;
    match grow {
        Grow::Level { level, .. } => {
            let level = Level::from_md(level);
            if level.is_none_or(|level| level.parity_disks() == 0) {
                let level = level.map_or("array", Level::name);
                return refuse(format!("a {level} cannot have the journal that it has"), WITHOUT);
            }
            raid_disks += 1;
        }
        Grow::RaidDisks(count) => raid_disks = count,
        Grow::Chunk(sectors) => chunk = sectors,
        Grow::Size(_) | Grow::Layout(_) | Grow::Undo => {}
    }
    let least = least_sectors(raid_disks, u64::from(chunk.clamp(8, UNIT_SECTORS)));
    if sectors >= least {
        return Ok(());
    }
    let has = sectors / 2;
    let needs = least / 2;
    refuse(
        format!("the journal has {has} KiB, and a write may take {needs} KiB then"),
        "give it a larger one with braid update, once it is stopped",
    )
}
