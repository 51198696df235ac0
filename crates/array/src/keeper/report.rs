//! The keeper's side of a lane's reports.

use super::spill::Spill;
use super::sync::window::sealed;
use super::{Keeper, LaneReport, Moving};
use crate::events::ArrayEvent;

impl Keeper {
    /// Takes a report in. Commands for the lane may be queued after it.
    pub fn hear(&mut self, report: LaneReport) {
        use LaneReport as R;
        let core = &mut self.core;
        match report {
            R::RequestCame(op) => core.metadata.request_came(op, core.now),
            R::RequestOver(op) => core.metadata.request_over(op, core.now),
            R::BeginWrite { number, start, end } => self.begin_write(number, start, end),
            R::EndWrite { start, end, failed } => self.end_write(start, end, failed),
            R::Asked(id) => core.members.asked(id, core.now),
            R::Answered(id) => core.members.answered(id, core.now),
            R::ReadUpTo(id, end) => core.members.change(id, |member| member.last_end = end),
            R::Readable(id, sector, sectors) => {
                core.members.change(id, |member| member.doubts.remove(sector, sectors));
            }
            R::Unreadable(id, sector, sectors) => {
                core.members.change(id, |member| member.doubts.add(sector, sectors));
            }
            R::Rewritten(id, sector, sectors) => {
                if core.rewritten(id, sector, sectors) {
                    self.sync.logs_have_room();
                }
            }
            R::HasRoom(id) => core.members.change(id, |member| member.full_since = None),
            R::NoRoom(id, fault) => core.no_room(id, fault),
            R::Failed(id, tried, error) => self.failed_io(id, tried, error),
            R::MendingWanted(id, fault) => self.mending_wanted(id, fault),
            R::NotCorrectable(id, fault) => self.not_correctable(id, fault),
            R::Mended(id, fault, ok) => core.mended(id, fault, ok),
            R::Lost(id, why) => self.lose_member(id, why),
            R::Unservable => self.give_up(),
            R::Fitting(start, end) => {
                if self.sync.unsynced.note_fitting(core, start, end) {
                    self.sync.logs_have_room();
                }
            }
            R::Torn(start, end) => self.sync.note_torn(core, start, end),
            R::NothingToResync if core.metadata.has_to_resync() => {
                self.sync.unsynced.all_resynced(core);
            }
            R::NothingToResync => {}
            R::RecordsElsewhere { journal_bytes, parts_only } => {
                core.metadata.records_elsewhere(journal_bytes, parts_only);
            }
            R::StoresUnrecorded => core.metadata.stores_unrecorded(),
            R::NothingIsUnrecorded => core.metadata.nothing_is_unrecorded(),
            R::JournalTail(tail) => {
                core.metadata.journal.iter_mut().for_each(|journal| journal.move_tail(tail));
            }
            R::WantsCheckpoint => {
                self.checkpoints.request(core);
                self.drive_meta();
            }
            R::WorkDone { place, unit, work, done } => {
                if let Some(untrue) = self.sync.work_done(core, place, unit, &work, done) {
                    self.fail_member(untrue.member, untrue.reason, untrue.fault);
                }
            }
            R::WorkParted(place, more) => self.sync.work_parted(place, more),
            R::Trusted(trusted) => self.sync.scrub.note_trusted(trusted),
            R::Mismatch { array_sector, sectors, member, block } => {
                self.sync.scrub.mismatch_sectors += u64::from(sectors);
                core.out.notify(ArrayEvent::Mismatch { array_sector, sectors, member, block });
            }
            R::WindowOpen => self.sync.moving.iter_mut().for_each(Moving::opened),
            R::Sealed(ok) => sealed(&mut self.sync, core, ok),
            R::NothingIsSaved => core.spill.iter_mut().for_each(Spill::end),
            R::Lengthened(id, result) => self.lengthening.made(core, id, result),
            R::UpdateDone => self.update_done(),
        }
    }

    /// Makes sure the members will know of a write before it starts.
    fn begin_write(&mut self, number: u64, start: u64, end: u64) {
        self.checkpoints.note_write();
        let metadata = &mut self.core.metadata;
        let ticket = metadata.begin_write(start, end);
        let update = if metadata.is_done(ticket) { None } else { Some(ticket) };
        self.writes.begin(number, update);
    }

    fn end_write(&mut self, start: u64, end: u64, failed: bool) {
        self.checkpoints.note_write();
        let degraded = self.core.members.degraded() > 0;
        let keep = degraded && !crate::broken("clear-when-whole") || failed;
        self.core.metadata.end_write(start, end, keep);
        if let Some(copying) = &mut self.sync.copying {
            copying.lacks.insert(start, end);
        }
    }
}
