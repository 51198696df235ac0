//! The window of a reshape, driven: opened, moved unit by unit, and closed.

use super::moving::{Moving, MovingStage};
use super::state::{Sync, WorkPhase};
use super::units::is_busy;
use crate::SECTOR_BYTES;
use crate::events::SyncAction;
use crate::keeper::LaneCommand;
use crate::keeper::core::Core;

/// Rows of a window at most: writes wait for as long as it takes to move them.
const MOST_ROWS: u64 = (16 << 20) / SECTOR_BYTES;
/// A window is about so many parts of what may be moved in a second.
const PARTS_OF_SECOND: u64 = 4;

/// Returns how far units may be asked for now.
pub(super) fn limit(sync: &Sync) -> u64 {
    match &sync.moving {
        Some(moving) if sync.action == SyncAction::Reshape => match moving.stage {
            MovingStage::Open => moving.span().1,
            _ => 0,
        },
        _ => sync.end,
    }
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
        MovingStage::Opening => {}
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
            if ends || held || moving.is_at_end() || moving.turns {
                close(moving, core);
                drive(sync, core);
            } else {
                open(sync, core);
            }
        }
        MovingStage::Placing { .. } => {}
    }
}

fn open(sync: &mut Sync, core: &mut Core) {
    let allowed = sync.speed.limit(is_busy(core)) / SECTOR_BYTES / PARTS_OF_SECOND;
    let Some(moving) = &mut sync.moving else { return };
    moving.window = moving.next_end(allowed.min(MOST_ROWS));
    moving.stage = MovingStage::Opening;
    sync.cursor = moving.span().0;
    core.out.push(LaneCommand::Window { front: moving.front, end: moving.window });
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
    core.out.push(LaneCommand::Window { front: moving.front, end: moving.front });
}

/// Returns whether all is where it is to be, and no work is under way.
pub(in crate::keeper) fn has_moved(sync: &Sync) -> bool {
    sync.is_idle() && sync.moving.as_ref().is_some_and(Moving::is_over)
}

/// Takes the move out once all is where it is to be. Returns whether it is.
pub(in crate::keeper) fn take_moved(sync: &mut Sync) -> bool {
    has_moved(sync) && sync.moving.take().is_some()
}
