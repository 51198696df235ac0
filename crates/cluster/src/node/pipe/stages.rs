//! The stages of slice-sets: staged, then stored or dropped as the client decides.

use std::sync::Arc;

use super::{Live, Pipe, Stage};
use crate::node::ids::Violation;
use crate::node::out::Out;
use crate::wire::Message;

impl Pipe {
    /// All but the stores is over: it is recorded first, if that is to be.
    pub(super) fn staged(&mut self, number: u16, out: &mut Out) {
        let Some((set, _)) = self.running(number) else { return };
        let recorded = self.is_recorded(set);
        let Some(running) = &mut self.positions[usize::from(number)].running else { return };
        if recorded && running.ok {
            running.stage = Stage::Recording;
            return self.record(number, out);
        }
        self.tell_staged(number, out);
    }

    /// It is recorded, or cannot be.
    pub(in crate::node) fn recorded(&mut self, number: u16, ok: bool, out: &mut Out) {
        let Some(running) = &mut self.positions[usize::from(number)].running else { return };
        running.ok &= ok;
        running.own_fault |= !ok;
        match running.stage {
            Stage::Dropped => self.close(number, out),
            _ => self.tell_staged(number, out),
        }
    }

    pub(in crate::node) fn is_dropped(&self, number: u16) -> bool {
        let running = self.positions[usize::from(number)].running.as_ref();
        running.is_some_and(|running| running.stage == Stage::Dropped)
    }

    /// The client hears how it went.
    pub(super) fn tell_staged(&mut self, number: u16, out: &mut Out) {
        let Some(running) = &mut self.positions[usize::from(number)].running else { return };
        running.stage = Stage::Staged;
        let staged = Message::Prepared {
            position: number,
            generation: running.set.generation,
            ok: running.ok,
            own_fault: running.own_fault,
            no_room: running.own_fault && self.no_room,
            cut_off: running.cut_off,
            received_bytes: out.received_bytes,
        };
        let early = running.ok && braid_array::broken("barrier");
        let (set, part) = (running.set.clone(), Arc::clone(&running.part));
        out.send(self.peer, self.epoch(), &staged);
        for task in part.tasks.iter().filter(|_| early) {
            let Some(op) = self.store(&set, &task.work, &part, false) else { continue };
            out.io(crate::node::out::Flight::Resolve { orphan: self.client }, self.member, op);
        }
    }

    /// The client says that a slice-set takes the place of what is stored.
    pub(in crate::node) fn go(
        &mut self,
        number: u16,
        generation: u32,
        out: &mut Out,
    ) -> Result<(), Violation> {
        let running = self.decided(number, generation)?;
        if !running.ok {
            return Err(Violation("a slice-set goes that is not whole"));
        }
        running.stage = Stage::Going;
        let part = Arc::clone(&running.part);
        if running.stores == 0 {
            self.close(number, out);
            return Ok(());
        }
        for (task, what) in (0..).zip(&part.tasks) {
            if what.work.is_store() {
                self.start(number, task, out);
            }
        }
        Ok(())
    }

    /// The client says that a slice-set is not to be stored.
    pub(in crate::node) fn drop_set(
        &mut self,
        number: u16,
        generation: u32,
        out: &mut Out,
    ) -> Result<(), Violation> {
        let running = self.decided(number, generation)?;
        let ok = running.ok;
        // What is recorded of it must not come back after what is written there next.
        if ok && self.running(number).is_some_and(|(set, _)| self.is_recorded(set)) {
            if let Some(running) = &mut self.positions[usize::from(number)].running {
                running.stage = Stage::Dropped;
            }
            self.record(number, out);
        } else {
            self.close(number, out);
        }
        Ok(())
    }

    /// The slice-set that a client decides about.
    fn decided(&mut self, number: u16, generation: u32) -> Result<&mut Live, Violation> {
        let position = self.positions.get_mut(usize::from(number));
        let running = position.and_then(|position| position.running.as_mut());
        let waits =
            |live: &&mut Live| live.set.generation == generation && live.stage == Stage::Staged;
        running.filter(waits).ok_or(Violation("a decision on what is not staged"))
    }

    pub(super) fn close(&mut self, number: u16, out: &mut Out) {
        let Some(running) = self.positions[usize::from(number)].running.take() else { return };
        self.open -= 1;
        if running.stage == Stage::Going {
            self.positions[usize::from(number)].stored = Some((running.set.version, running.ok));
        }
        let closed = Message::Finished {
            position: number,
            generation: running.set.generation,
            ok: running.ok,
        };
        out.send(self.peer, self.epoch(), &closed);
    }
}
