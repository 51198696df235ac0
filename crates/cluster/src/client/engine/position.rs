//! Choice of the free position that a slice-set gets.

use super::context::Cx;
use super::lease::RingsLease;
use super::sets::Sets;
use crate::ids::Position;
use crate::pipeline::PlacedSchedule;
use crate::schedule::Planner;
use crate::set::{Roles, Touched};

/// Requirements of a slice-set for its position.
pub(super) struct PositionNeeds<'a> {
    /// Wide or narrow.
    pub(super) kind: usize,
    pub(super) plan: &'a PlacedSchedule,
    pub(super) touched: &'a Touched,
    pub(super) missing: Roles,
    /// The client makes the parities: no encoder is needed.
    pub(super) by_client: bool,
}

impl PositionNeeds<'_> {
    /// Returns the index, among the free positions of the kind, of the one whose encoder has least
    /// to send; otherwise of the one longest free; and the maker of the parities there. Positions
    /// whose encoder is missing are skipped, unless the client makes the parities.
    pub(super) fn choose(
        &self,
        cx: &Cx<'_>,
        sets: &Sets,
        lease: &RingsLease,
    ) -> Option<(usize, Planner)> {
        let nodes = cx.members.nodes();
        let usable = lease.usable(cx);
        let pipeline = &cx.shared.pipeline;
        let planner = |(at, position): (usize, Position)| {
            let client = self.by_client.then_some(Planner::Client);
            let planner = client.or_else(|| pipeline.planner_without(position, self.missing));
            planner.map(|planner| (at, planner, position))
        };
        let free =
            || sets.free(self.kind).enumerate().filter(|&(_, p)| usable(p)).filter_map(planner);
        if self.touched.is_all() || self.touched.count() == 0 {
            return free().next().map(|(at, planner, _)| (at, planner));
        }
        let kept = self.kept(nodes);
        // The home of a lone block, else whoever keeps most.
        let lone = self.touched.count() == 1;
        let home = self.touched.iter().next().map(|i| self.plan.code.data()[i as usize].node);
        let worth = |position: Position| {
            let node = position.encoder(nodes);
            if lone { u32::from(Some(node) == home) } else { kept[node.index()] }
        };
        let most = free().map(|(.., position)| worth(position)).max()?;
        let found = free().find(|&(.., position)| worth(position) == most);
        found.map(|(at, planner, _)| (at, planner))
    }

    /// Returns, by node, the number of blocks that it keeps for itself; these do not travel.
    fn kept(&self, nodes: u16) -> Vec<u32> {
        let mut kept = vec![0u32; usize::from(nodes)];
        let code = &self.plan.code;
        for index in self.touched.iter() {
            let cell = code.data()[index as usize];
            kept[cell.node.index()] += 1;
            for &sum in code.involved(cell) {
                kept[code.equations()[sum].parity.node.index()] += 1;
            }
        }
        kept
    }
}
