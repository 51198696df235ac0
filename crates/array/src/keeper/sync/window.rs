//! The window of a reshape, driven: opened, moved unit by unit, and closed.

use super::FULL_MS;
use super::moving::{Moving, MovingStage};
use super::state::{Sync, WorkPhase, note_unsaved};
use super::units::is_busy;
use crate::SECTOR_BYTES;
use crate::events::SyncAction;
use crate::format::backup::BackupHeader;
use crate::format::superblock::time_parts;
use crate::keeper::LaneCommand;
use crate::keeper::core::Core;
use crate::keeper::spill::Spill;

/// Rows of a window at most: writes wait for as long as it takes to move them.
const MOST_ROWS: u64 = (16 << 20) / SECTOR_BYTES;
/// A window is about so many parts of what may be moved in a second.
const PARTS_OF_SECOND: u64 = 4;

/// Returns how far units may be asked for now.
pub(super) fn limit(sync: &Sync) -> u64 {
    match &sync.moving {
        Some(moving) if sync.action == SyncAction::Reshape => match moving.stage {
            MovingStage::Open | MovingStage::Saving => moving.span().1,
            _ => 0,
        },
        _ => sync.end,
    }
}

/// Returns whether a unit may be asked for now.
pub(super) fn may_issue(sync: &Sync, core: &Core) -> bool {
    let over = core.service.failed || core.service.writes_over;
    let must_go_on = sync.moving.as_ref().is_some_and(Moving::must_go_on);
    if sync.action == SyncAction::Reshape && must_go_on {
        return !over;
    }
    let in_time = sync.speed.next_at().is_some_and(|at| at <= core.now);
    sync.interrupted.is_none() && !sync.paused && in_time
}

/// Takes the next step of a reshape.
pub(super) fn drive(sync: &mut Sync, core: &mut Core) {
    let held = sync.paused || sync.speed.next_at().is_none();
    let ends = sync.interrupted.is_some();
    let Some(moving) = &mut sync.moving else { return };
    match moving.stage {
        MovingStage::Closed if ends || moving.is_at_end() => ended(sync, core),
        MovingStage::Closed if turns(moving) => {
            sync.interrupt("what has moved is to move back");
            ended(sync, core);
        }
        // All that is there has heard of it, or is not needed any more.
        MovingStage::Closed if held || core.members.untold().next().is_some() => {}
        MovingStage::Closed => open(sync, core),
        MovingStage::Opening if ends || held => {
            close(moving, core);
            if ends {
                ended(sync, core);
            }
        }
        MovingStage::Opening | MovingStage::Sealing | MovingStage::Dropping => {}
        MovingStage::Saving => {
            let (_, end) = moving.span();
            sync.issue_units(core);
            if sync.units.is_empty() && (ends || held) {
                sync.moving.iter_mut().for_each(|moving| close(moving, core));
                drive(sync, core);
            } else if sync.units.is_empty() && sync.cursor >= end {
                seal(sync, core);
            }
        }
        MovingStage::Open if moving.is_saved => {
            let (_, end) = moving.span();
            sync.issue_units(core);
            if sync.units.is_empty() && sync.cursor >= end {
                place_front(sync, core);
            } else if sync.units.is_empty() && ends {
                // It goes on there when something has changed.
                ended(sync, core);
            }
        }
        MovingStage::Open => {
            let (_, end) = moving.span();
            sync.issue_units(core);
            if sync.units.is_empty() && (sync.cursor >= end || ends || held) {
                place_front(sync, core);
            }
        }
        MovingStage::Placing { front, ticket }
            if core.metadata.is_done(ticket) || crate::broken("reshape-position") =>
        {
            moving.front = front;
            core.members.set_moved(moving.moved());
            core.space.set_front(front);
            if moving.is_saved {
                drop_saved(moving, core);
            } else if ends || held || moving.is_at_end() || moving.turns {
                close(moving, core);
                drive(sync, core);
            } else {
                open(sync, core);
            }
        }
        MovingStage::Placing { .. } => {}
        MovingStage::Undropped(_) if core.service.stopping || core.service.writes_over => {
            close(moving, core);
            ended(sync, core);
        }
        MovingStage::Undropped(at) if at <= core.now => drop_saved(moving, core),
        MovingStage::Undropped(_) => {}
    }
}

fn open(sync: &mut Sync, core: &mut Core) {
    let allowed = sync.speed.limit(is_busy(core)) / SECTOR_BYTES / PARTS_OF_SECOND;
    let Some(moving) = &mut sync.moving else { return };
    let most = allowed.min(MOST_ROWS);
    moving.window = moving.next_end(most);
    moving.is_saved = moving.is_in_place() && moving.is_empty(moving.window);
    if moving.is_saved {
        let room = core.spill.as_ref().filter(|spill| !spill.is_over).map_or(0, Spill::room);
        moving.window = moving.next_saved_end(most, room);
        if moving.window == moving.front {
            let reason = "there is no file with room for what is about to be overwritten";
            return sync.note_unmoved(sync.cursor, reason.into());
        }
    }
    moving.stage = MovingStage::Opening;
    sync.cursor = moving.span().0;
    tell_window(moving, core);
}

fn tell_window(moving: &Moving, core: &mut Core) {
    let Moving { front, window: end, is_saved, .. } = *moving;
    let saved_to = if is_saved { core.spill.as_ref().map(|spill| spill.member) } else { None };
    core.out.push(LaneCommand::Window { front, end, saved_to });
}

/// All of the window is saved: has a header tell of it, once that is durable.
fn seal(sync: &mut Sync, core: &mut Core) {
    let Some(moving) = &mut sync.moving else { return };
    let (start, length) = moving.saved();
    let header = header(core, start, length);
    moving.stage = MovingStage::Sealing;
    tell_header(core, header);
}

/// All of the window has moved, or nothing of it has: no header is to tell of it. Until then
/// nothing is written there that a backup would undo.
fn drop_saved(moving: &mut Moving, core: &mut Core) {
    let header = header(core, 0, 0);
    moving.stage = MovingStage::Dropping;
    tell_header(core, header);
}

fn tell_header(core: &mut Core, header: Vec<u8>) {
    let device = core.spill.as_ref().map(|spill| spill.member);
    core.out.0.extend(device.map(|device| LaneCommand::Seal { device, header }));
}

/// The header that tells of so many sectors of the array from this one on. Its time is that of the
/// superblocks, however long nothing has moved: by that a reader knows that they belong together.
fn header(core: &Core, start: u64, length: u64) -> Vec<u8> {
    let (mtime, _) = time_parts(core.metadata.superblock.utime);
    let set_uuid = core.metadata.superblock.set_uuid;
    BackupHeader { set_uuid, mtime, start, length }.encode()
}

/// A header is written, or could not be.
pub(in crate::keeper) fn sealed(sync: &mut Sync, core: &mut Core, ok: bool) {
    let Some(moving) = &mut sync.moving else { return };
    match moving.stage {
        MovingStage::Sealing if ok => {
            moving.stage = MovingStage::Open;
            sync.cursor = moving.span().0;
        }
        MovingStage::Sealing => {
            drop_saved(moving, core);
            note_unsaved(sync, core, sync.cursor);
        }
        MovingStage::Dropping if ok => {
            close(moving, core);
            drive(sync, core);
        }
        MovingStage::Dropping => {
            moving.stage = MovingStage::Undropped(core.now.plus_millis(FULL_MS));
        }
        _ => {}
    }
}

/// All that was asked for is moved: tells the members so, as far as stripes are whole.
fn place_front(sync: &mut Sync, core: &mut Core) {
    let Some(moving) = &mut sync.moving else { return };
    let front = moving.front_after(sync.cursor);
    sync.cursor = front;
    if front == moving.front {
        close(moving, core);
        return drive(sync, core);
    }
    core.metadata.position = moving.position(front);
    let ticket = core.metadata.queue_superblock(true);
    moving.stage = MovingStage::Placing { front, ticket };
}

/// Returns whether it waits to be turned round.
fn turns(moving: &Moving) -> bool {
    moving.turns && moving.can_turn()
}

fn ended(sync: &mut Sync, core: &mut Core) {
    sync.phase = WorkPhase::Running;
    sync.finish(core);
}

/// No writes wait any more.
fn close(moving: &mut Moving, core: &mut Core) {
    moving.stage = MovingStage::Closed;
    moving.window = moving.front;
    moving.is_saved = false;
    tell_window(moving, core);
}

/// Returns whether all is where it is to be, and no work is under way.
pub(in crate::keeper) fn has_moved(sync: &Sync) -> bool {
    sync.is_idle() && sync.moving.as_ref().is_some_and(Moving::is_over)
}

/// Takes the move out once all is where it is to be. Returns whether it is.
pub(in crate::keeper) fn take_moved(sync: &mut Sync) -> bool {
    has_moved(sync) && sync.moving.take().is_some()
}
