//! A reshape: data move row by row to the shape that the array is to have, from the first one on,
//! a window of rows at a time.
//!
//! ```text
//! Closed ─► Opening: writes there wait, what was under way ends ─► Open: units are moved
//!    ▲                                                               │ all of the window
//!    └────── more, or held ◄── Placing: flush, then the front in all superblocks ◄──┘
//! ```
//! Nothing is written over what a superblock on any member still needs. The members' front is at a
//! row of the new shape: what lies before it is there, and all else where it was. New rows begin a
//! few rows before the old ones (`shift`), and hold more of the array each; so the window may reach
//! as far as that takes it into old rows that lie before the front as a whole. `raid5.c` of the
//! kernel goes by the same distance in `reshape_request`.

use super::units::is_busy;
use super::{Sync, WorkPhase};
use crate::SECTOR_BYTES;
use crate::events::SyncAction;
use crate::format::Superblock;
use crate::format::superblock::feature;
use crate::keeper::LaneCommand;
use crate::keeper::core::Core;
use crate::keeper::members::Moved;
use crate::level::Level;

/// Rows of a window at most: writes wait for as long as it takes to move them.
const MOST_ROWS: u64 = (16 << 20) / SECTOR_BYTES;
/// A window is about so many parts of what may be moved in a second.
const PARTS_OF_SECOND: u64 = 4;

/// The stage of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MovingStage {
    Closed,
    Opening,
    Open,
    /// Waits for the update that puts the front here.
    Placing {
        front: u64,
        ticket: u64,
    },
}

/// The move of an array's data. Rows are sectors of the members' data areas.
#[derive(Debug)]
pub(in crate::keeper) struct Moving {
    old_data_disks: u64,
    new_data_disks: u64,
    chunk_sectors: u64,
    /// Rows of the new shape lie so many sectors before those of the old one.
    shift: u64,
    /// The first row behind all.
    pub(super) end: u64,
    /// Rows before it are moved, as all members say.
    pub(super) front: u64,
    /// The first row behind the window.
    window: u64,
    stage: MovingStage,
    /// The reason why it does not go on before something changes.
    pub(super) waits: Option<String>,
}

impl Moving {
    /// The move that a superblock tells of; `None` where it tells of none.
    pub(in crate::keeper) fn of(superblock: &Superblock) -> Option<Self> {
        if !superblock.has(feature::RESHAPE_ACTIVE) {
            return None;
        }
        let parity = Level::from_md(superblock.level)?.parity_disks();
        let new_data_disks = u64::from(superblock.raid_disks - parity);
        let chunk_sectors = u64::from(superblock.chunk_sectors);
        let added = u64::from(superblock.reshape.delta_disks.unsigned_abs());
        let front = superblock.reshape.position / new_data_disks;
        Some(Self {
            old_data_disks: new_data_disks - added,
            new_data_disks,
            chunk_sectors,
            shift: u64::from(superblock.reshape.new_offset.unsigned_abs()),
            end: superblock.size_sectors / chunk_sectors * chunk_sectors,
            front,
            window: front,
            stage: MovingStage::Closed,
            waits: None,
        })
    }

    /// The rows that have moved.
    pub(in crate::keeper) const fn moved(&self) -> Moved {
        Moved { rows: self.front, by: self.shift }
    }

    /// Returns whether all is where it is to be.
    pub(in crate::keeper) fn is_over(&self) -> bool {
        self.front >= self.end && self.stage == MovingStage::Closed
    }

    /// The array sector at a row of the new shape.
    const fn position(&self, row: u64) -> u64 {
        row * self.new_data_disks
    }

    /// Returns the first row that must not be written yet.
    fn safe_end(&self) -> u64 {
        let stripe = self.old_data_disks * self.chunk_sectors;
        let old_rows = self.position(self.front) / stripe * self.chunk_sectors;
        let reach = if crate::broken("reshape-distance") { u64::MAX / 2 } else { old_rows };
        (reach + self.shift).min(self.end)
    }

    /// All that began before the window is over.
    pub(in crate::keeper) fn opened(&mut self) {
        if self.stage == MovingStage::Opening {
            self.stage = MovingStage::Open;
        }
    }
}

impl Sync {
    /// Returns how far units may be asked for now.
    pub(super) fn limit(&self) -> u64 {
        match &self.moving {
            Some(moving) if self.action == SyncAction::Reshape => match moving.stage {
                MovingStage::Open => moving.window,
                _ => 0,
            },
            _ => self.end,
        }
    }

    /// Takes the next step of a reshape.
    pub(super) fn drive_moving(&mut self, core: &mut Core) {
        let held = self.paused || self.speed.next_at().is_none();
        let ends = self.interrupted.is_some();
        let Some(moving) = &mut self.moving else { return };
        match moving.stage {
            MovingStage::Closed if ends || moving.front >= moving.end => self.moving_ended(core),
            MovingStage::Closed if held => {}
            MovingStage::Closed => self.open_window(core),
            MovingStage::Opening if ends || held => {
                close(moving, core);
                if ends {
                    self.moving_ended(core);
                }
            }
            MovingStage::Opening => {}
            MovingStage::Open => {
                let window = moving.window;
                self.issue_units(core);
                if self.units.is_empty() && (self.cursor >= window || ends || held) {
                    self.place_front(core);
                }
            }
            MovingStage::Placing { front, ticket } if core.metadata.is_done(ticket) => {
                moving.front = front;
                core.members.set_moved(moving.moved());
                core.space.set_moved_rows(front);
                if ends || held || front >= moving.end {
                    close(moving, core);
                    self.drive_moving(core);
                } else {
                    self.open_window(core);
                }
            }
            MovingStage::Placing { .. } => {}
        }
    }

    fn open_window(&mut self, core: &mut Core) {
        let allowed = self.speed.limit(is_busy(core)) / SECTOR_BYTES / PARTS_OF_SECOND;
        let Some(moving) = &mut self.moving else { return };
        let chunk = moving.chunk_sectors;
        let most = allowed.min(MOST_ROWS).max(chunk) / chunk * chunk;
        moving.window = moving.safe_end().min(moving.front + most) / chunk * chunk;
        moving.stage = MovingStage::Opening;
        self.cursor = moving.front;
        let (front_row, end_row) = (moving.front, moving.window);
        core.out.push(LaneCommand::Window { front_row, end_row });
    }

    /// All that was asked for is moved: tells the members so, as far as stripes are whole.
    fn place_front(&mut self, core: &mut Core) {
        let Some(moving) = &mut self.moving else { return };
        let front = self.cursor.min(moving.window) / moving.chunk_sectors * moving.chunk_sectors;
        self.cursor = front;
        if front <= moving.front {
            close(moving, core);
            return self.drive_moving(core);
        }
        core.metadata.position = moving.position(front);
        let flush = !crate::broken("reshape-flush");
        let ticket = core.metadata.queue_superblock(flush);
        moving.stage = MovingStage::Placing { front, ticket };
    }

    fn moving_ended(&mut self, core: &mut Core) {
        self.phase = WorkPhase::Running;
        self.finish(core);
    }

    /// A unit could not be moved: the array stays as it is until something changes.
    pub(super) fn note_unmoved(&mut self, place: u64, reason: String) {
        self.cursor = self.cursor.min(place);
        self.interrupt(reason.clone());
        if let Some(moving) = &mut self.moving {
            moving.waits = Some(reason);
        }
    }

    /// Takes the move out once all is where it is to be: how far it went.
    pub(in crate::keeper) fn take_moved(&mut self) -> Option<Moved> {
        let idle = self.is_idle();
        self.moving.take_if(|moving| idle && moving.is_over()).map(|moving| moving.moved())
    }

    /// Returns whether data move, or are to.
    pub(in crate::keeper) const fn is_moving(&self) -> bool {
        self.moving.is_some()
    }
}

/// No writes wait any more.
fn close(moving: &mut Moving, core: &mut Core) {
    moving.stage = MovingStage::Closed;
    moving.window = moving.front;
    let (front_row, end_row) = (moving.front, moving.front);
    core.out.push(LaneCommand::Window { front_row, end_row });
}
