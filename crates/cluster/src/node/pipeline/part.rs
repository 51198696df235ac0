//! Tasks of one node in a slice-set, which wait for one another. A program says which sums go
//! where. The tasks say the rest: the reads before, the place of each sum in each strategy, and the
//! conditions for writing to a slot.

mod restore;

use braid_array::Role;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::pipeline::PlacedSchedule;
use crate::program::{Destination, Output, ProgramStep};
use crate::schedule::{Endpoint, Input};
use crate::set::{Touched, WriteStrategy};
use braid_array::code::{Cell, Content};

/// A slot of the position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SetSlot {
    /// In which this transfer arrives.
    Arrival(usize),
    /// In which a chain of this row would arrive, if it did not begin here.
    Idle(u16),
    /// For the sum of this number that is not formed in place.
    Fresh(u32),
    /// For the old content of this row.
    Old(u16),
}

/// Work of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TaskWork {
    /// Wait for this transfer.
    Arrive {
        /// Its number.
        transfer: usize,
        /// Sender.
        from: Endpoint,
    },
    /// Read a row.
    Read { row: u16, into: SetSlot },
    /// Add up.
    Sum { inputs: Vec<(SetSlot, u8)>, output: SetSlot, accumulate: bool },
    /// Read a row; a failure is no fault.
    Peek { row: u16, into: SetSlot },
    /// Write a row, unless the stored content is the same.
    Store { row: u16, from: SetSlot, unless: Option<SetSlot> },
    /// Make a row read as zeroes.
    Zeroes { row: u16 },
    /// Send on.
    Put { node: Role, transfer: usize, from: SetSlot },
}

impl TaskWork {
    pub(super) const fn is_store(&self) -> bool {
        matches!(self, Self::Store { .. } | Self::Zeroes { .. })
    }
}

/// One task.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) work: TaskWork,
    /// Number of other tasks that have to be over before.
    pub(super) needs: u16,
    /// Tasks that wait for this one.
    pub(super) next: Vec<u16>,
}

/// The tasks of a node.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) plan: Arc<PlacedSchedule>,
    pub(super) tasks: Vec<Task>,
    /// Transfer and task, by transfer.
    arrivals: Vec<(usize, u16)>,
}

impl Part {
    pub(super) fn new(
        plan: Arc<PlacedSchedule>,
        node: Role,
        strategy: WriteStrategy,
        touched: &Touched,
    ) -> Self {
        if let Some(chains) = &plan.chains {
            return Self::of_chains(Arc::clone(&plan), chains, node, touched);
        }
        let program = plan.part(node, strategy, touched);
        let mut builder = TaskBuilder::new(&plan, node, strategy, touched);
        if strategy == WriteStrategy::Zero {
            builder.blank();
        }
        let mut fresh = 0;
        for step in program.steps() {
            let (output, next) = match step.output {
                Output::Received(transfer) => (SetSlot::Arrival(transfer), fresh),
                Output::Fresh => (SetSlot::Fresh(fresh), fresh + 1),
            };
            fresh = next;
            match builder.own_data(step) {
                Some((row, transfer)) => {
                    let needed = |other: &ProgramStep| {
                        builder.own_data(other).is_none()
                            && other.inputs.iter().any(|input| input.transfer == transfer)
                    };
                    let needed = program.steps().iter().any(needed);
                    builder.store_data(row, transfer, needed);
                }
                None => builder.step(step, output),
            }
        }
        builder.part(&plan)
    }

    /// Returns the task that waits for a transfer.
    pub(super) fn arrival(&self, transfer: usize) -> Option<u16> {
        let at = self.arrivals.binary_search_by_key(&transfer, |&(number, _)| number).ok()?;
        Some(self.arrivals[at].1)
    }

    /// Returns the tasks that wait for a transfer.
    pub(super) fn arrivals(&self) -> impl Iterator<Item = u16> {
        self.arrivals.iter().map(|&(_, task)| task)
    }
}

struct TaskBuilder<'a> {
    plan: &'a PlacedSchedule,
    node: Role,
    strategy: WriteStrategy,
    touched: &'a Touched,
    tasks: Vec<Task>,
    /// By transfer: the task that waits for it.
    arrivals: BTreeMap<usize, u16>,
    /// By transfer: where its value lies, and from which task on.
    values: BTreeMap<usize, (SetSlot, u16)>,
    /// By row: the task that reads the old content.
    olds: BTreeMap<u16, u16>,
}

impl<'a> TaskBuilder<'a> {
    const fn new(
        plan: &'a PlacedSchedule,
        node: Role,
        strategy: WriteStrategy,
        touched: &'a Touched,
    ) -> Self {
        Self {
            plan,
            node,
            strategy,
            touched,
            tasks: Vec::new(),
            arrivals: BTreeMap::new(),
            values: BTreeMap::new(),
            olds: BTreeMap::new(),
        }
    }

    fn part(self, plan: &Arc<PlacedSchedule>) -> Part {
        let arrivals = self.arrivals.into_iter().collect();
        Part { plan: Arc::clone(plan), tasks: self.tasks, arrivals }
    }
}

impl TaskBuilder<'_> {
    fn task(&mut self, work: TaskWork, after: &[u16]) -> u16 {
        let number = u16::try_from(self.tasks.len()).expect("a few for each transfer");
        for &before in after {
            self.tasks[usize::from(before)].next.push(number);
        }
        self.tasks.push(Task { work, needs: after.len() as u16, next: Vec::new() });
        number
    }

    /// Returns row and transfer, if a step stores a data block of this node.
    fn own_data(&self, step: &ProgramStep) -> Option<(u16, usize)> {
        let Destination::Store { row } = step.destination else { return None };
        match self.plan.code.content(Cell { row, node: self.node }) {
            Content::Data(index) => Some((row, index as usize)),
            Content::Sum(_) => None,
        }
    }

    /// Adds the store of new content; after the read of the old one, if its value is needed.
    fn store_data(&mut self, row: u16, transfer: usize, value_needed: bool) {
        let mut after = vec![self.arrive(transfer)];
        if self.strategy == WriteStrategy::ReadModifyWrite && value_needed {
            after.push(self.old(row));
        }
        self.task(TaskWork::Store { row, from: SetSlot::Arrival(transfer), unless: None }, &after);
    }

    /// Zeroes all rows of this node. Parities too: those of zeroes are zeroes.
    fn blank(&mut self) {
        let own = self.plan.code.cells().filter(|cell| cell.node == self.node);
        for row in own.map(|cell| cell.row).collect::<Vec<u16>>() {
            self.task(TaskWork::Zeroes { row }, &[]);
        }
    }

    /// Adds any other step: a sum, or a single value, that is sent or becomes a parity.
    fn step(&mut self, step: &ProgramStep, output: SetSlot) {
        let values: Vec<(SetSlot, u16)> =
            step.inputs.iter().map(|input| self.value(input.transfer)).collect();
        let (from, done) = match step.destination {
            Destination::Store { row } if self.strategy == WriteStrategy::ReadModifyWrite => {
                let output = SetSlot::Old(row);
                let old = self.old(row);
                (output, self.sum(&step.inputs, &values, output, Some(old)))
            }
            _ => match (&step.inputs[..], &values[..]) {
                ([Input { coef: 1, .. }], &[only]) => only,
                _ => (output, self.sum(&step.inputs, &values, output, None)),
            },
        };
        let work = match step.destination {
            Destination::Node { node, transfer } => TaskWork::Put { node, transfer, from },
            // No data changes: the parities may be right, and unwritten as the data.
            Destination::Store { row } if self.touched.count() == 0 => {
                let into = SetSlot::Old(row);
                let peek = self.task(TaskWork::Peek { row, into }, &[]);
                self.task(TaskWork::Store { row, from, unless: Some(into) }, &[done, peek]);
                return;
            }
            Destination::Store { row } => TaskWork::Store { row, from, unless: None },
        };
        self.task(work, &[done]);
    }

    /// Adds a sum into `output`. The sum accumulates there if `output` is one of the values, or if
    /// `old` brings its content.
    fn sum(
        &mut self,
        inputs: &[Input],
        values: &[(SetSlot, u16)],
        output: SetSlot,
        old: Option<u16>,
    ) -> u16 {
        let mut after: Vec<u16> = values.iter().map(|&(_, task)| task).chain(old).collect();
        after.sort_unstable();
        after.dedup();
        let all = values.iter().zip(inputs).map(|(&(slot, _), input)| (slot, input.coef));
        let others: Vec<(SetSlot, u8)> = all.filter(|&(slot, _)| slot != output).collect();
        let accumulate = old.is_some() || others.len() < values.len();
        self.task(TaskWork::Sum { inputs: others, output, accumulate }, &after)
    }

    /// Returns the slot of a transfer's value, and the task that puts it there.
    fn value(&mut self, transfer: usize) -> (SetSlot, u16) {
        if let Some(&value) = self.values.get(&transfer) {
            return value;
        }
        // A lost block's value comes from the client.
        let own = self.plan.code.data().get(transfer).filter(|cell| cell.node == self.node);
        let row = own.map(|cell| cell.row);
        let slot = SetSlot::Arrival(transfer);
        let value = match row {
            Some(row) if !self.plan.arrives(transfer, self.touched) => {
                (slot, self.task(TaskWork::Read { row, into: slot }, &[]))
            }
            Some(row) if self.strategy == WriteStrategy::ReadModifyWrite => {
                let after = [self.arrive(transfer), self.old(row)];
                let output = SetSlot::Old(row);
                let sum = TaskWork::Sum { inputs: vec![(slot, 1)], output, accumulate: true };
                (output, self.task(sum, &after))
            }
            _ => (slot, self.arrive(transfer)),
        };
        self.values.insert(transfer, value);
        value
    }

    fn arrive(&mut self, transfer: usize) -> u16 {
        if let Some(&task) = self.arrivals.get(&transfer) {
            return task;
        }
        let from = self.plan.schedule.transfers()[transfer].from;
        let task = self.task(TaskWork::Arrive { transfer, from }, &[]);
        self.arrivals.insert(transfer, task);
        task
    }

    fn old(&mut self, row: u16) -> u16 {
        if let Some(&task) = self.olds.get(&row) {
            return task;
        }
        let task = self.task(TaskWork::Read { row, into: SetSlot::Old(row) }, &[]);
        self.olds.insert(row, task);
        task
    }
}
