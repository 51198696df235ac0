//! Another shape for the array, as far as the lane has a part in it: requests are mapped by the new
//! one when all members know of it, and while data move a window of the array is kept still.

use std::collections::VecDeque;

use super::io::Owner;
use super::job::move_strips;
use super::jobs::Jobs;
use super::journal_strips;
use super::lane::Lane;
use super::map::ArrayMap;
use super::requests::Requests;
use super::scratch::PAGE_BYTES;
use super::space::Space;
use super::starting::Logging;
use crate::action::{Action, CommandId, IoOp};
use crate::format::ppl::is_suspended;
use crate::format::superblock::feature;
use crate::format::suspended::journal_number;
use crate::geometry::Geometry;
use crate::grow::{self, Grow, NewShape};
use crate::keeper::LaneReport;
use crate::level::Level;
use crate::{Buf, MemberId, Refusal};

/// The window that is to open, if one is: see [`LaneCommand::Window`].
///
/// [`LaneCommand::Window`]: crate::keeper::LaneCommand::Window
#[derive(Debug, Default)]
pub(super) struct Reshaping {
    /// Shapes that were asked for while the array starts, or takes another.
    asked: VecDeque<Asked>,
    opens: bool,
    /// A header that is written to this device once what was saved there is durable.
    header: Option<(MemberId, Vec<u8>)>,
}

/// A shape that was asked for: with `suspends` also where the log has to be off meanwhile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) id: CommandId,
    pub(super) grow: Grow,
    pub(super) suspends: bool,
}

impl Reshaping {
    /// Takes in that another shape is asked for: it begins at once, or when the array has started
    /// and has the shape that it is being given.
    pub(super) fn ask(&mut self, lane: &mut Lane, logging: &Logging, asked: Asked) {
        self.asked.push_back(asked);
        self.begin_asked(lane, logging);
    }

    /// Begins with what was asked for, as soon as it can.
    pub(super) fn begin_asked(&mut self, lane: &mut Lane, logging: &Logging) {
        while !self.asked.is_empty() {
            let keeper = lane.keeper();
            let stops = keeper.is_stopping();
            if !stops && (keeper.holds_requests() || !logging.is_over()) {
                return;
            }
            let Some(asked) = self.asked.pop_front() else { return };
            let begun = if stops {
                Err(Refusal::new("the array is being stopped", "assemble it, and ask again"))
            } else {
                Self::begin(lane, logging, asked)
            };
            if let Err(why) = begun {
                if !lane.keeper().status().superblock.has(feature::RESHAPE_ACTIVE) {
                    lane.report(LaneReport::NothingIsSaved);
                }
                lane.actions.push_back(Action::Reply { id: asked.id, result: Err(why) });
            }
        }
    }

    /// Has the keeper tell the members of another shape, where one can be.
    fn begin(lane: &mut Lane, logging: &Logging, asked: Asked) -> Result<(), Refusal> {
        let Asked { id, grow, suspends } = asked;
        let mut status = lane.keeper().status();
        if suspends {
            status = grow::suspended(&status, grow)?;
        }
        let shape = grow::plan(&status, grow)?;
        if shape.level == Level::Linear && shape.vacant() > 1 {
            // The first one that is told wants all of them: one alone is told, or is not.
            let reason = "a linear array gets its members one after the other";
            return Err(Refusal::new(reason, "ask for one more at a time"));
        }
        let most = logging.most_members();
        if is_suspended(&status.superblock) && shape.raid_disks > most {
            return Err(Refusal::new(
                format!("there is memory for the partial parity logs of {most} members"),
                format!("grow it to {most}, stop it, start it again, and grow it further"),
            ));
        }
        let geometry = shape.geometry()?;
        let recorded = match journal_number(&status.superblock) {
            Some(_) => journal_strips(shape.raid_disks as usize),
            None => 0,
        };
        let (space, strips) = if shape.moves() {
            let old = old_geometry(lane, &shape)?;
            let strips = move_strips(&old, &geometry);
            let backwards = shape.moves_backwards();
            (Space::between(old, geometry, backwards), strips)
        } else {
            (Space::new(geometry), shape.raid_disks as usize + 1)
        };
        let space = space.map_err(Refusal::from)?;
        if lane.pool.all_strips() < strips.max(recorded) as u64 {
            return Err(Refusal::new(
                format!("there is too little memory for stripes of {} members", shape.raid_disks),
                "stop the array, and start it again with more",
            ));
        }
        lane.keeper_mut().grow(id, shape, Box::new(space));
        Ok(())
    }

    /// Maps by another shape. Nothing is in flight that lies elsewhere by it.
    pub(super) fn take_shape(lane: &mut Lane, jobs: &mut Jobs, shape: &NewShape) {
        lane.members_change();
        jobs.forget_answers();
        let Ok(geometry) = shape.geometry() else { return };
        lane.map = match old_geometry(lane, shape) {
            Ok(old) if shape.moves() => ArrayMap::between(old, geometry, shape.moves_backwards()),
            _ => ArrayMap::new(geometry),
        };
    }

    /// Data up to the front lie by the new map, and writes to those that are moved now wait.
    pub(super) fn set_window(
        &mut self,
        lane: &mut Lane,
        requests: &mut Requests,
        jobs: &mut Jobs,
        (front, end): (u64, u64),
        saved_to: Option<MemberId>,
    ) {
        // What is kept of the old map's rows means others now.
        lane.members_change();
        lane.map.set_window(front, end);
        lane.map.set_saved_to(saved_to);
        lane.ios.elders.turn();
        jobs.elders.turn();
        self.opens = end != front;
        requests.window_moved(lane, jobs);
    }

    /// Has a header written, once what was saved is durable.
    pub(super) fn seal(&mut self, lane: &mut Lane, device: MemberId, header: Vec<u8>) {
        if crate::broken("spill-flush") {
            return self.write_header(lane, device, header);
        }
        self.header = Some((device, header));
        lane.issue(device, IoOp::Flush, Owner::Spill { page: None });
    }

    /// Goes on once the saved window is durable, or the header that was written from a page.
    pub(super) fn spill_answered(&mut self, lane: &mut Lane, page: Option<u64>, ok: bool) {
        if let Some(offset) = page {
            lane.pool.give_page(Buf { offset, len: PAGE_BYTES });
        }
        match self.header.take() {
            Some((device, header)) if ok && !is_left_out(&header) => {
                self.write_header(lane, device, header);
            }
            _ => lane.report(LaneReport::Sealed(ok)),
        }
    }

    fn write_header(&mut self, lane: &mut Lane, device: MemberId, bytes: Vec<u8>) {
        let Some(page) = lane.pool.take_page() else {
            // Metadata are written from all of them, and give them back.
            return self.seal(lane, device, bytes);
        };
        let buf = Buf { len: bytes.len() as u32, ..page };
        lane.actions.push_back(Action::Store { buf, bytes });
        let fua = !crate::broken("spill-header");
        let op = IoOp::Write { sector: 0, buf, fua, fill: false };
        lane.issue(device, op, Owner::Spill { page: Some(page.offset) });
    }

    /// Returns whether a window is to open, and nothing stands against it.
    pub(super) fn may_open(&self, lane: &Lane, jobs: &Jobs) -> bool {
        let are_gone = lane.ios.elders.are_gone() && jobs.elders.are_gone();
        self.opens && (are_gone || crate::broken("reshape-elders"))
    }

    /// Tells the keeper when nothing is under way that began before the window.
    pub(super) fn open_window(&mut self, lane: &mut Lane, jobs: &Jobs) {
        if self.may_open(lane, jobs) {
            self.opens = false;
            lane.report(LaneReport::WindowOpen);
        }
    }
}

/// Returns whether a header is not written: one that tells of nothing, where nobody does.
fn is_left_out(header: &[u8]) -> bool {
    crate::broken("spill-dropped") && header[56..64] == [0; 8]
}

/// The shape that data move from, of which as much of each member counts as of the new one.
fn old_geometry(lane: &Lane, new: &NewShape) -> Result<Geometry, Refusal> {
    let old = &lane.map.geometry;
    NewShape {
        level: old.level(),
        layout: old.layout(),
        raid_disks: old.raid_disks(),
        chunk_sectors: old.chunk_sectors(),
        ..new.clone()
    }
    .geometry()
}
