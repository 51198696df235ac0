//! Counters of I/O on members.

use std::sync::Arc;

use braid_array::{IoOp, MemberId};

use super::Executor;
use crate::lock::LockedFile;
use braid_array::figures::{IoFigures, MemberFigures, OperationKind};

pub(super) const fn kind(op: IoOp) -> OperationKind {
    match op {
        IoOp::Read { .. } => OperationKind::Read,
        IoOp::Write { .. } => OperationKind::Write,
        IoOp::Flush => OperationKind::Flush,
        IoOp::WriteZeroes { .. } => OperationKind::Zero,
        IoOp::Discard { .. } => OperationKind::Discard,
    }
}

impl Executor {
    /// The figures of a member, while this file is it: another device may have its id by now.
    pub(super) fn figures_of(
        &mut self,
        id: MemberId,
        file: &Arc<LockedFile>,
    ) -> Option<&mut IoFigures> {
        let member = self.members.get_mut(usize::from(id.0))?.as_mut()?;
        Arc::ptr_eq(&member.file, file).then_some(&mut member.figures)
    }

    /// Returns the counters of I/O on members so far.
    pub(crate) fn figures(&self) -> Vec<MemberFigures> {
        let flights = || self.flights.iter().map(|(_, flight)| &flight.file);
        let ranges = || self.ranges.iter().map(|(_, range)| &range.file);
        let members = (0..).map(MemberId).zip(&self.members);
        let there = members.filter_map(|(id, member)| Some((id, member.as_ref()?)));
        let figures = there.map(|(id, member)| {
            let of_it = |file: &&Arc<LockedFile>| Arc::ptr_eq(file, &member.file);
            let in_flight = flights().chain(ranges()).filter(of_it).count() as u64;
            let io = IoFigures { in_flight, ..member.figures.clone() };
            MemberFigures { member: id, io }
        });
        figures.collect()
    }
}
