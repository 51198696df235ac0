//! What a lane reports.

use super::{Keeper, LaneReport};

impl Keeper {
    /// Takes a report in. Commands for the lane may be queued after it.
    pub fn hear(&mut self, report: LaneReport) {
        let core = &mut self.core;
        match report {
            LaneReport::Asked(id) => self.asked(id),
            LaneReport::Answered(id) => self.answered(id),
            LaneReport::ReadUpTo(id, end) => {
                if let Some(member) = core.members.get_mut(id) {
                    member.last_end = end;
                }
            }
            LaneReport::Readable(id, sector, sectors) => {
                if let Some(member) = core.members.get_mut(id) {
                    member.doubts.remove(sector, sectors);
                }
            }
            LaneReport::Unreadable(id, sector, sectors) => {
                if let Some(member) = core.members.get_mut(id) {
                    member.doubts.add(sector, sectors);
                }
            }
            LaneReport::Rewritten(id, sector, sectors) => self.note_rewritten(id, sector, sectors),
            LaneReport::HasRoom(id) => {
                if let Some(member) = core.members.get_mut(id) {
                    member.full_since = None;
                }
            }
            LaneReport::Failed(id, tried, error) => self.failed_io(id, tried, error),
            LaneReport::NotCorrectable(id, fault) => self.not_correctable(id, fault),
            LaneReport::Mended(id, fault, ok) => self.mended(id, fault, ok),
            LaneReport::Fitting(start, end) => self.sync.unsynced.note_fitting(core, start, end),
            LaneReport::Torn(start, end) => self.sync.note_torn(core, start, end),
            LaneReport::Trusted(trusted) => self.sync.scrub.note_trusted(trusted),
            LaneReport::WorkParted(place, more) => self.sync.work_parted(place, more),
            LaneReport::UpdateDone => self.update_done(),
        }
    }
}
