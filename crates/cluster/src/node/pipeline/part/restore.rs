//! Tasks of one node in a slice-set that gives a role its blocks back.

use braid_array::Role;
use std::sync::Arc;

use super::{Part, SetSlot, TaskBuilder, TaskWork};
use crate::pipeline::PlacedSchedule;
use crate::schedule::{ChainLink, Chains};
use crate::set::{Touched, WriteStrategy};

impl Part {
    pub(super) fn of_chains(
        plan: Arc<PlacedSchedule>,
        chains: &Chains,
        node: Role,
        touched: &Touched,
    ) -> Self {
        let strategy = WriteStrategy::Restore(chains.role());
        let mut builder = TaskBuilder::new(&plan, node, strategy, touched);
        for (transfer, link) in chains.links().iter().enumerate() {
            if link.from == node {
                builder.link(transfer, link);
            }
            if link.to == node && node == chains.role() {
                let arrived = builder.arrive(transfer);
                let row = link.row;
                let into = SetSlot::Old(row);
                let peek = builder.task(TaskWork::Peek { row, into }, &[]);
                let from = SetSlot::Arrival(transfer);
                let store = TaskWork::Store { row, from, unless: Some(into) };
                builder.task(store, &[arrived, peek]);
            }
        }
        builder.part(&plan)
    }
}

impl TaskBuilder<'_> {
    /// Adds the node's own content to the arrived sum, and sends the sum on.
    fn link(&mut self, transfer: usize, link: &ChainLink) {
        let mut after: Vec<u16> = link.own.iter().map(|&(row, _)| self.old(row)).collect();
        let from = match (link.before, &link.own[..]) {
            (None, &[(row, 1)]) => SetSlot::Old(row),
            (before, own) => {
                // Nothing arrives for the first of a chain, so its sum has that room.
                let output = before.map_or(SetSlot::Idle(link.row), SetSlot::Arrival);
                after.extend(before.map(|before| self.arrive(before)));
                let inputs = own.iter().map(|&(row, coef)| (SetSlot::Old(row), coef)).collect();
                let accumulate = before.is_some();
                let sum = self.task(TaskWork::Sum { inputs, output, accumulate }, &after);
                after = vec![sum];
                output
            }
        };
        self.task(TaskWork::Put { node: link.to, transfer, from }, &after);
    }
}
