//! The tasks of slice-sets that are open: what comes, what is started, what ends badly.

use std::sync::Arc;

use braid_array::action::Compute;
use braid_array::{IoOp, SECTOR_BYTES};

use super::{Early, Link, Phase, Pipe};
use crate::node::ids::Violation;
use crate::node::out::{Flight, Out};
use crate::node::part::{Part, Work};
use crate::schedule::Endpoint;
use crate::set::Imm;
use crate::wire::Message;

impl Pipe {
    /// Starts the tasks that wait for nothing, and ends those that wait in vain.
    pub(super) fn begin(&mut self, number: u16, part: &Part, out: &mut Out) {
        for (task, what) in part.tasks.iter().enumerate() {
            let task = task as u16;
            match what.work {
                Work::Arrive { from: Endpoint::Node(node), .. } if !self.stands(node) => {
                    self.give_up(number, task, node, out);
                }
                Work::Arrive { .. } | Work::Store { .. } | Work::Blank { .. } => {}
                _ if what.needs == 0 => self.start(number, task, out),
                _ => {}
            }
        }
    }

    fn stands(&self, node: u16) -> bool {
        let neighbour = &self.neighbours[usize::from(node)];
        matches!(neighbour.link, Link::Up(_)) && neighbour.told.is_some()
    }

    /// An arrival that will never come.
    fn give_up(&mut self, number: u16, task: u16, node: u16, out: &mut Out) {
        let position = &mut self.positions[usize::from(number)];
        if position.states[usize::from(task)].phase == Phase::Waiting {
            self.cut_off(number, node);
            self.over(number, task, false, out);
        }
    }

    /// A slice-set needs a connection that does not stand.
    fn cut_off(&mut self, number: u16, node: u16) {
        if let Some(running) = &mut self.positions[usize::from(number)].running {
            running.cut_off.insert(node);
        }
    }

    /// A slice has come (`placed`), or its sender says that it will not.
    pub(in crate::node) fn arrived(
        &mut self,
        imm: u32,
        from: Endpoint,
        placed: bool,
        out: &mut Out,
    ) -> Result<(), Violation> {
        let imm = Imm::decode(imm);
        let position = self.positions.get_mut(usize::from(imm.position));
        let position = position.ok_or(Violation("a slice for no position"))?;
        if position.running.is_some() {
            return self.resolve(imm, from, placed, out);
        }
        let most = self.pipeline.arrivals(imm.position, self.role) as usize;
        let known = position.early.iter().any(|early| early.imm == imm);
        let barred = !self.write || !self.whole && !self.pipeline.base().contains(&imm.position);
        if barred || known || position.early.len() >= most {
            return Err(Violation("a slice that nobody waits for"));
        }
        position.early.push(Early { imm, from, placed });
        Ok(())
    }

    /// The same, for a slice-set that is open.
    pub(super) fn resolve(
        &mut self,
        imm: Imm,
        from: Endpoint,
        placed: bool,
        out: &mut Out,
    ) -> Result<(), Violation> {
        let position = &self.positions[usize::from(imm.position)];
        let Some(running) = &position.running else {
            return Err(Violation("more slices than the slice-set has"));
        };
        let task = running.part.arrival(usize::from(imm.transfer));
        let task = task.filter(|_| imm.generation == Imm::generation(running.set.generation));
        let task = task.ok_or(Violation("a slice that the slice-set has not"))?;
        let sender = match running.part.tasks[usize::from(task)].work {
            Work::Arrive { from, .. } => Some(from),
            _ => None,
        };
        if sender != Some(from) || position.states[usize::from(task)].phase != Phase::Waiting {
            return Err(Violation("a slice twice or from a stranger"));
        }
        if placed {
            out.received_bytes += u64::from(running.set.len);
        }
        self.over(imm.position, task, placed, out);
        Ok(())
    }

    /// The executor has carried a task out.
    pub(in crate::node) fn done(&mut self, number: u16, task: u16, ok: bool, out: &mut Out) {
        let ok = ok || self.peeked_in_vain(number, task);
        if let Some(running) = &mut self.positions[usize::from(number)].running
            && !ok
        {
            match running.part.tasks[usize::from(task)].work {
                Work::Put { node, .. } => running.cut_off.insert(node),
                _ => running.own_fault = true,
            }
        }
        self.over(number, task, ok, out);
    }

    /// A connection to another node is over: what it did not send will not come.
    pub(in crate::node) fn lost(&mut self, role: u16, out: &mut Out) {
        self.neighbours[usize::from(role)].link = Link::Lost;
        for number in 0..self.positions.len() as u16 {
            let Some(running) = &self.positions[usize::from(number)].running else { continue };
            let part = Arc::clone(&running.part);
            for task in part.arrivals() {
                let work = &part.tasks[usize::from(task)].work;
                let theirs = Endpoint::Node(role);
                if matches!(work, Work::Arrive { from, .. } if *from == theirs) {
                    self.give_up(number, task, role, out);
                }
            }
        }
    }

    fn over(&mut self, number: u16, task: u16, ok: bool, out: &mut Out) {
        let position = &mut self.positions[usize::from(number)];
        let Some(running) = &mut position.running else { return };
        position.states[usize::from(task)].phase = Phase::Over;
        running.ok &= ok;
        let part = Arc::clone(&running.part);
        if part.tasks[usize::from(task)].work.is_store() {
            running.stores -= 1;
            if running.stores == 0 {
                self.close(number, out);
            }
            return;
        }
        running.before -= 1;
        if running.before == 0 {
            return self.staged(number, out);
        }
        for &next in &part.tasks[usize::from(task)].next {
            let state = &mut self.positions[usize::from(number)].states[usize::from(next)];
            state.needs -= 1;
            state.spoiled |= !ok;
            match (state.needs, state.spoiled) {
                _ if part.tasks[usize::from(next)].work.is_store() => {}
                (0, false) => self.start(number, next, out),
                (0, true) => self.skip(number, next, out),
                _ => {}
            }
        }
    }

    /// A task that lacks what it needs.
    fn skip(&mut self, number: u16, task: u16, out: &mut Out) {
        let Some(running) = &self.positions[usize::from(number)].running else { return };
        if let Work::Put { node, transfer, .. } = running.part.tasks[usize::from(task)].work
            && let Link::Up(peer) = self.neighbours[usize::from(node)].link
        {
            let imm = Imm::of(&running.set, transfer).encode();
            out.send(peer, self.epoch(), &Message::Missing { imm });
        }
        self.over(number, task, false, out);
    }

    pub(super) fn start(&mut self, number: u16, task: u16, out: &mut Out) {
        let position = &mut self.positions[usize::from(number)];
        position.states[usize::from(task)].phase = Phase::Started;
        let spoiled = position.states[usize::from(task)].spoiled;
        let Some(running) = &self.positions[usize::from(number)].running else { return };
        let flight = Flight::Task { client: self.client, position: number, task };
        let (part, set) = (&running.part, &running.set);
        let slot = |place| self.slot(part, set, place);
        let sector = |row| {
            let byte = self.pipeline.member_byte(set.stripe, row, set.offset);
            self.data_sector + byte / SECTOR_BYTES
        };
        match &part.tasks[usize::from(task)].work {
            Work::Arrive { .. } => unreachable!("nothing comes before it"),
            &Work::Read { row, into } | &Work::Peek { row, into } => {
                out.io(flight, self.member, IoOp::Read { sector: sector(row), buf: slot(into) });
            }
            Work::Store { .. } | Work::Blank { .. } => {
                self.start_store((number, task), spoiled, out);
            }
            Work::Sum { inputs, output, accumulate } => {
                let compute = Compute::Sum {
                    inputs: inputs.iter().map(|&(place, _)| slot(place)).collect(),
                    coefs: inputs.iter().map(|&(_, coef)| coef).collect(),
                    outputs: vec![slot(*output)],
                    accumulate: *accumulate,
                };
                out.compute(flight, compute);
            }
            &Work::Put { node, transfer, from } => {
                let neighbour = &self.neighbours[usize::from(node)];
                if let (Link::Up(peer), Some((ring, _))) = (neighbour.link, &neighbour.told) {
                    let to = self.pipeline.arrival(&part.plan, set, transfer).offset;
                    let imm = Imm::of(set, transfer).encode();
                    out.put(flight, peer, slot(from), ring.wrapping_add(to), imm);
                } else {
                    self.cut_off(number, node);
                    self.over(number, task, false, out);
                }
            }
        }
    }

    /// A task could not read what would only have been of use: what it was for hears of it.
    fn peeked_in_vain(&mut self, number: u16, task: u16) -> bool {
        let position = &mut self.positions[usize::from(number)];
        let Some(running) = &position.running else { return false };
        let task = &running.part.tasks[usize::from(task)];
        let peek = matches!(task.work, Work::Peek { .. });
        for &next in task.next.iter().filter(|_| peek) {
            position.states[usize::from(next)].spoiled = true;
        }
        peek
    }
}
