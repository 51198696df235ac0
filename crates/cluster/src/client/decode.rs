//! Reads of blocks whose node is gone, or cannot read them: the other nodes' blocks are read, and
//! the sums formed that give the lost ones back.

use super::read::{Piece, Whose};
use super::requests::Extent;
use super::{BTreeMap, BTreeSet, Buf, Cell, Client, Key, RequestError, RequestId, Use, VecDeque};
use crate::decode::{Recovery, Step};

/// Blocks wanted of one range of a stripe.
#[derive(Debug)]
pub(super) struct Decode {
    range: Extent,
    /// Data index, where to, whose.
    wanted: Vec<(u32, Buf, RequestId)>,
    /// Nodes that could not read their block.
    without: BTreeSet<u16>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// For the slice to be free, and for buffers.
    Waiting,
    Working {
        /// Reads that are not answered.
        reads: u32,
        failed: bool,
        /// What is where.
        blocks: BTreeMap<Cell, Buf>,
        /// Sums that are still to be formed, in order.
        steps: VecDeque<Step>,
        staged: Vec<Buf>,
    },
}

impl Client {
    /// Wants blocks of a range back, without these nodes.
    pub(super) fn decode(
        &mut self,
        range: Extent,
        wanted: Vec<(u32, Buf, RequestId)>,
        without: BTreeSet<u16>,
    ) {
        let job = self.next_decode;
        self.next_decode = self.next_decode.wrapping_add(1);
        self.decodes.insert(job, Decode { range, wanted, without, state: State::Waiting });
        self.waiting_decodes.push_back(job);
    }

    fn key_of(&self, range: &Extent) -> Key {
        (range.stripe, range.at / self.slice_bytes())
    }

    /// Begins with what waits, in order, as far as slices and buffers are free.
    pub(super) fn start_decodes(&mut self) {
        for _ in 0..self.waiting_decodes.len() {
            let Some(job) = self.waiting_decodes.pop_front() else { break };
            if !self.start_decode(job) {
                self.waiting_decodes.push_back(job);
            }
        }
    }

    /// False when it has to wait.
    fn start_decode(&mut self, job: u32) -> bool {
        let Some(decode) = self.decodes.get(&job) else { return true };
        let range = decode.range;
        let key = self.key_of(&range);
        if self.areas.get(&key).is_some_and(|area| area.sets > 0) {
            return false;
        }
        let mut lost: BTreeSet<u16> = self.lost().into_iter().collect();
        lost.extend(&decode.without);
        let planner = self.pipeline.planner(0);
        let Some(plan) = self.pipeline.plan(range.stripe, planner) else { return true };
        let cells: Vec<Cell> =
            decode.wanted.iter().map(|&(index, ..)| plan.code.data()[index as usize]).collect();
        let gone: Vec<Cell> = cells.iter().copied().filter(|c| lost.contains(&c.node)).collect();
        let lost: Vec<u16> = lost.into_iter().collect();
        let recovery = match gone.is_empty() || !self.torn.contains(&key) {
            true => self.recovery(&plan.code, &lost, &gone),
            false => None,
        };
        let Some(recovery) = recovery else {
            let error = if self.enough() { RequestError::Medium } else { RequestError::Failed };
            self.decode_over(job, Err(error));
            return true;
        };
        let mut blocks: BTreeMap<Cell, Buf> =
            cells.iter().copied().zip(decode.wanted.iter().map(|&(_, buf, _)| buf)).collect();
        let mut reads = recovery.reads();
        reads.extend(cells.iter().filter(|cell| !lost.contains(&cell.node)));
        let sums = recovery.steps().iter().map(|step| step.cell);
        let missing: BTreeSet<Cell> =
            reads.iter().copied().chain(sums).filter(|cell| !blocks.contains_key(cell)).collect();
        let Some(staged) = self.staging.take(missing.len(), range.len) else { return false };
        blocks.extend(missing.into_iter().zip(staged.iter().copied()));
        for &cell in &reads {
            let (extent, into) = (range, blocks[&cell]);
            self.queue(Piece { cell, extent, into, whose: Whose::Decode(job) });
        }
        self.areas.entry(key).or_default().readers += 1;
        let steps = recovery.steps().iter().cloned().collect();
        let (reads, failed) = (reads.len() as u32, false);
        if let Some(decode) = self.decodes.get_mut(&job) {
            decode.state = State::Working { reads, failed, blocks, steps, staged };
        }
        true
    }

    /// How to get these blocks back. With a choice of sums, the one whose nodes have less to do.
    fn recovery(&self, code: &crate::StripeCode, lost: &[u16], gone: &[Cell]) -> Option<Recovery> {
        if lost.len() > 1 || gone.len() != 1 {
            return Recovery::plan(code, lost).map(|all| all.only(gone));
        }
        let load = |cell: Cell| self.links[usize::from(cell.node)].load();
        let work = |number: &usize| {
            let cells = code.equations()[*number].cells();
            cells.filter(|cell| *cell != gone[0]).map(load).sum::<usize>()
        };
        let number = code.involved(gone[0]).iter().copied().min_by_key(work)?;
        Some(Recovery::by_equations(code, &[(gone[0], number)]))
    }

    /// A node could not read its block.
    pub(super) fn decode_without(&mut self, job: u32, node: u16) {
        if let Some(decode) = self.decodes.get_mut(&job) {
            decode.without.insert(node);
        }
    }

    pub(super) fn decode_read_done(&mut self, job: u32, fine: bool) {
        let Some(decode) = self.decodes.get_mut(&job) else { return };
        let State::Working { reads, failed, .. } = &mut decode.state else { return };
        *reads -= 1;
        *failed |= !fine;
        if *reads == 0 {
            if *failed { self.decode_again(job) } else { self.decode_step(job) }
        }
    }

    /// From the beginning, without one more node.
    fn decode_again(&mut self, job: u32) {
        let Some(decode) = self.decodes.get_mut(&job) else { return };
        let range = decode.range;
        if let State::Working { staged, .. } = std::mem::replace(&mut decode.state, State::Waiting)
        {
            self.staging.give(staged);
        }
        self.reader_gone(&range);
        self.waiting_decodes.push_back(job);
    }

    /// Forms the next sum; after the last, the request has its blocks.
    fn decode_step(&mut self, job: u32) {
        let Some(decode) = self.decodes.get_mut(&job) else { return };
        let State::Working { blocks, steps, .. } = &mut decode.state else { return };
        match steps.pop_front() {
            Some(step) => {
                let inputs = step.inputs.iter().map(|term| blocks[&term.cell]).collect();
                let coefs = step.inputs.iter().map(|term| term.coef).collect();
                let output = blocks[&step.cell];
                self.sum(Use::Decode { job }, inputs, coefs, output);
            }
            None => {
                let range = decode.range;
                self.reader_gone(&range);
                self.decode_over(job, Ok(()));
            }
        }
    }

    pub(super) fn decode_step_done(&mut self, job: u32) {
        self.decode_step(job);
    }

    fn decode_over(&mut self, job: u32, result: Result<(), RequestError>) {
        let Some(decode) = self.decodes.remove(&job) else { return };
        if let State::Working { staged, .. } = decode.state {
            self.staging.give(staged);
        }
        for (_, _, id) in decode.wanted {
            self.piece_over(id, result);
        }
    }

    fn reader_gone(&mut self, range: &Extent) {
        let key = self.key_of(range);
        if let Some(area) = self.areas.get_mut(&key) {
            area.readers -= 1;
        }
        self.list(key);
    }
}
