//! A schedule as the nodes of a slice-set carry it out.

use crate::program::{Operation, Program, does_anything};
use crate::schedule::{Chains, Endpoint, Input, Schedule};
use crate::set::{Roles, Touched, WriteStrategy};
use braid_array::Role;
use std::sync::Arc;

use braid_array::code::{Content, KnownCode, StripeCode};

/// A schedule with everything that nodes need to know for it.
#[derive(Debug)]
pub struct PlacedSchedule {
    /// The code of the stripe.
    pub code: Arc<KnownCode>,
    /// The schedule.
    pub schedule: Schedule,
    /// The chains, if the schedule gives a role its blocks back.
    pub chains: Option<Chains>,
    /// Roles without a part.
    missing: Roles,
    /// By transfer: its slot among those that arrive at its node.
    ranks: Vec<u32>,
    /// By node: slices that arrive.
    pub(super) received: Vec<u32>,
    /// By node: sums that are not formed in place.
    pub(super) fresh: Vec<u32>,
}

impl PlacedSchedule {
    pub(super) fn new(code: StripeCode, schedule: Schedule, missing: Roles) -> Self {
        let mut received = vec![0; usize::from(code.nodes())];
        let rank = |to: Role| {
            let next: &mut u32 = &mut received[to.index()];
            *next += 1;
            *next - 1
        };
        let ranks = schedule.transfers().iter().map(|transfer| transfer.to).map(rank).collect();
        let fresh = |node| {
            let program = Program::of(&schedule, &code, node);
            // With some blocks untouched, the slot that a sum takes may not be among its inputs.
            let sums = program.steps().iter().filter(|step| step.operation == Operation::Sum);
            sums.count() as u32
        };
        let fresh = Role::all(code.nodes()).map(fresh).collect();
        let code = Arc::new(code.into());
        Self { code, schedule, chains: None, missing, ranks, received, fresh }
    }

    /// Creates the schedule of a slice-set that gives a role its blocks back. A chain has the same
    /// slot at every node.
    pub(super) fn of_chains(code: StripeCode, chains: Chains, missing: Roles) -> Self {
        let nodes = usize::from(code.nodes());
        Self {
            schedule: chains.schedule(&code),
            missing,
            ranks: chains.links().iter().map(|link| link.row.into()).collect(),
            received: vec![code.rows().into(); nodes],
            fresh: vec![0; nodes],
            chains: Some(chains),
            code: Arc::new(code.into()),
        }
    }

    /// Returns the slot of a transfer among those that arrive at its node.
    pub(super) fn rank(&self, transfer: usize) -> u32 {
        self.ranks[transfer]
    }

    /// Returns whether this transfer takes place in such a slice-set.
    #[must_use]
    pub fn live(&self, transfer: usize, strategy: WriteStrategy, touched: &Touched) -> bool {
        let transfer = &self.schedule.transfers()[transfer];
        let wanted = || transfer.terms.iter().any(|(index, _)| touched.contains(index));
        strategy != WriteStrategy::Zero
            && !self.missing.contains(transfer.to)
            && (strategy == WriteStrategy::Reconstruct || touched.is_all() || wanted())
    }

    /// Returns the program of a node in such a slice-set, except for chains; empty when the node
    /// has no part in it. Inputs that are data indices below the number of blocks are values in the
    /// sense of [`WriteStrategy`]. An input that the node gets from its own store does not arrive:
    /// see [`PlacedSchedule::arrives`].
    #[must_use]
    pub fn part(&self, node: Role, strategy: WriteStrategy, touched: &Touched) -> Program {
        if self.missing.contains(node) || self.chains.is_some() {
            return Program::default();
        }
        let live = |transfer| self.live(transfer, strategy, touched);
        let stored = |index: u32| touched.contains(index);
        Program::partial(&self.schedule, &self.code, node, &live, &stored)
    }

    /// Returns the number of blocks that each node stores in such a slice-set, by role.
    #[must_use]
    pub fn stores(&self, strategy: WriteStrategy, touched: &Touched) -> Vec<u16> {
        let changes = |number: usize| {
            let live = |input: &Input| self.live(input.transfer, strategy, touched);
            strategy == WriteStrategy::Zero || self.schedule.sums()[number].iter().any(live)
        };
        let mut stores = vec![0; usize::from(self.code.nodes())];
        for cell in self.code.cells().filter(|cell| !self.missing.contains(cell.node)) {
            let is_stored = match (strategy, self.code.content(cell)) {
                (WriteStrategy::Restore(role), _) => cell.node == role,
                (_, Content::Data(index)) => touched.contains(index),
                (_, Content::Sum(number)) => changes(number),
            };
            stores[cell.node.index()] += u16::from(is_stored);
        }
        stores
    }

    /// Returns whether a live transfer arrives over the network; blocks without new content do not.
    #[must_use]
    pub fn arrives(&self, transfer: usize, touched: &Touched) -> bool {
        let data = self.code.data().len();
        transfer >= data || touched.contains(transfer as u32)
    }

    /// Returns the slices that the client sends in such a slice-set, by transfer, with their
    /// content: the new content of a block, or the sum of an equation, which the client forms.
    pub fn sent_by_client(
        &self,
        strategy: WriteStrategy,
        touched: &Touched,
    ) -> impl Iterator<Item = (usize, Content)> {
        let transfers = self.schedule.transfers().iter().enumerate();
        let sent = transfers.filter(move |&(number, transfer)| {
            transfer.from == Endpoint::Client
                && self.live(number, strategy, touched)
                && self.arrives(number, touched)
        });
        // Data blocks come first, then, when it sends them, the sums: just as cells are numbered.
        sent.map(|(number, _)| (number, self.code.content(self.code.cell(number))))
    }

    /// Returns the nodes with a part in such a slice-set.
    #[must_use]
    pub fn involved(&self, strategy: WriteStrategy, touched: &Touched) -> Vec<Role> {
        let nodes = Role::all(self.code.nodes()).filter(|&node| !self.missing.contains(node));
        if let Some(chains) = &self.chains {
            let ends = chains.links().iter().flat_map(|link| [link.from, link.to]);
            return ends.collect::<Roles>().iter().collect();
        }
        if touched.is_all() {
            return nodes.collect();
        }
        let transfers = self.schedule.transfers();
        let live = (0..transfers.len()).map(|number| self.live(number, strategy, touched));
        let live: Vec<bool> = live.collect();
        let receivers = transfers.iter().zip(&live).filter(|(_, live)| **live);
        let receivers: Roles = receivers.map(|(transfer, _)| transfer.to).collect();
        let stored = |index: u32| touched.contains(index);
        let takes_part = |&node: &Role| {
            receivers.contains(node)
                && does_anything(&self.schedule, &self.code, node, &|one| live[one], &stored)
        };
        nodes.filter(takes_part).collect()
    }
}
