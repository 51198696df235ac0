//! The stages of a slice-set, from the time when all have its new content to its end.

use braid_array::RequestError;
use braid_array::keeper::LaneReport;

use super::{PositionedSet, SetStage, Sets};
use crate::client::engine::context::{Cx, Note};
use crate::ids::Position;
use crate::wire::Message;

impl Sets {
    /// Executes the next step of a slice-set once nothing under way has to end before.
    pub(super) fn advance(&mut self, cx: &mut Cx<'_>, position: Position) {
        if cx.out.has_losses() {
            self.waits_for_losses = true;
            self.waits_until_told = true;
            return;
        }
        let Some(open) = self.open.get_mut(&position) else { return };
        if !open.is_due() {
            return;
        }
        let over = cx.writes_over();
        let told = cx.losses_told();
        match open.stage {
            SetStage::Preparing | SetStage::Held if !open.ok || open.parts.is_empty() || over => {
                self.abort(cx, position);
            }
            SetStage::Preparing | SetStage::Held => {
                open.stage = SetStage::Held;
                self.waits_until_told |= !told;
                if told || braid_array::broken("go-needs-view") {
                    self.commit(cx, position, told);
                    if position.0 < self.wide && self.preparing_bytes() == 0 {
                        self.pace.arrived(cx.now());
                    }
                } else if braid_array::broken("view-before-ack") && !open.set.fua {
                    let answered = std::mem::take(&mut open.job.range.requests);
                    answered.into_iter().for_each(|id| cx.part_over(id, Ok(())));
                }
            }
            // Who was lost meanwhile may lack it.
            SetStage::Committing if !told => self.waits_until_told = true,
            SetStage::Committing if !open.noted => self.note_stored(cx, position),
            SetStage::Committing | SetStage::Aborted => self.end(cx, position),
        }
    }

    /// Tells the keeper that all have stored a slice-set, and ends it. A slice-set that makes
    /// unknown blocks known ends only after the bad-block logs record that.
    fn note_stored(&mut self, cx: &mut Cx<'_>, position: Position) {
        let Some(open) = self.open.get_mut(&position) else { return };
        open.noted = true;
        if !cx.keeper.has_failed() {
            cx.note_stored(open.stored());
        }
        if open.clears {
            self.waits_until_told = true;
        } else {
            self.end(cx, position);
        }
    }

    /// Commits a slice-set: all have the new content, which replaces the old.
    fn commit(&mut self, cx: &mut Cx<'_>, position: Position, told: bool) {
        let Some(open) = self.open.get_mut(&position) else { return };
        open.stage = SetStage::Committing;
        open.waits = open.parts;
        let now = cx.now();
        let key = open.job.key;
        let fua = open.set.fua;
        for role in open.parts.iter() {
            self.commits.add(role, position, open.set.generation, now);
            cx.owes(role);
        }
        // Whoever wants it durable waits for its end; and what is long is stored while the next
        // is on its way.
        let long = position.0 < self.wide || open.set.touched.lone().is_none();
        self.commits.hurry |= fua || long;
        if let Some(area) = cx.shared.areas.get_mut(key) {
            area.committing += 1;
        }
        if !fua {
            cx.shared.areas.answered(key, now);
        }
        open.clears = cx.makes_known(open.stored());
        if fua || !told || open.clears {
            return;
        }
        let lasts = open.job.range.fua && !braid_array::broken("flush-waits");
        for id in std::mem::take(&mut open.job.range.requests) {
            if lasts {
                // It is recorded, and what it lies upon may be neither that nor durable.
                cx.note(Note::Flush(id));
            } else {
                cx.part_over(id, Ok(()));
            }
        }
    }

    fn abort(&mut self, cx: &mut Cx<'_>, position: Position) {
        let Some(open) = self.open.get_mut(&position) else { return };
        open.stage = SetStage::Aborted;
        open.waits = open.parts;
        let generation = open.set.generation;
        for role in open.parts.iter() {
            // One that is just being given up is taken out of it next.
            if cx.members.alive(role) {
                cx.send(role, &Message::Abort { position, generation });
            }
            cx.owes(role);
        }
        if open.parts.is_empty() {
            self.end(cx, position);
        }
    }

    /// Ends a slice-set that all have finished.
    fn end(&mut self, cx: &mut Cx<'_>, position: Position) {
        let Some(open) = self.open.remove(&position) else { return };
        let wide = position.0 < self.wide;
        self.free[usize::from(!wide)].push_back(position);
        let PositionedSet { set, mut job, staged, stage, .. } = open;
        cx.shared.staging.give(staged);
        if stage == SetStage::Aborted {
            job.tries += 1;
            self.cut_off_due = true;
            return cx.note(Note::Again { job, wide });
        }
        let key = job.key;
        let ok = !cx.keeper.has_failed();
        if ok && job.goes_on_after(set.strategy) {
            cx.note(Note::Stored { key, position });
            return cx.note(Note::Again { job, wide });
        }
        if job.background {
            cx.note(Note::WorkSetOver { key, ok });
        } else {
            let (start, end) = cx.shared.space.range(key);
            cx.report(LaneReport::EndWrite { start, end, failed: !ok });
        }
        cx.note(Note::Stored { key, position });
        let now = cx.now();
        cx.shared.areas.set_over(key, now);
        let result = if ok { Ok(()) } else { Err(RequestError::Failed) };
        job.range.requests.into_iter().for_each(|id| cx.part_over(id, result));
    }
}
