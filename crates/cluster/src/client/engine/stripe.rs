//! Slices of stripes over nodes, as planners see them: the strips of a stripe are the parts of its
//! blocks that lie in the slice, and members have the numbers of their roles.

use std::collections::BTreeSet;
use std::sync::Arc;

use braid_array::code::Cell;
use braid_array::plan::parity::StripeView;
use braid_array::plan::{MemberIo, MemberPlace, RoleView, Rows};
use braid_array::{IoOp, MemberId, Role, SECTOR_BYTES};

use super::context::Cx;
use super::extent::{Extent, Piece, Whose};
use super::reads::ReadSlots;
use crate::ids::Position;

/// Distance between the rows of a member in the sectors of plans; so large that each row is read by
/// itself.
const ROW_SECTORS: u64 = 1 << 32;

/// Returns the readable blocks of a range of a stripe, on all nodes or `without` some; `None` when
/// the stripe has no code. Plans write nothing there: writes go through pipelines.
pub(super) fn view(
    cx: &mut Cx<'_>,
    range: &Extent,
    without: &BTreeSet<Role>,
) -> Option<StripeView> {
    let planner = cx.shared.pipeline.planner(Position(0));
    let code = Arc::clone(&cx.shared.pipeline.plan(range.stripe, planner)?.code);
    let lost = cx.lost();
    let reads = |cell: Cell| {
        let is_there = !lost.contains(cell.node) && !without.contains(&cell.node);
        is_there && !cx.is_unknown(range, cell)
    };
    let role =
        |cell: Cell| RoleView { reader: reads(cell).then(|| place(cell)), ..RoleView::default() };
    let sums = code.equations().iter().map(|equation| equation.parity);
    let cells = code.data().iter().copied().chain(sums).map(role).collect();
    let sums_count = cx.sums_count(range);
    Some(StripeView { code, cells, parity_valid: false, sums_count, recorded: false })
}

/// All rows of strips of this length.
pub(super) const fn rows(len: u32) -> Rows {
    Rows::new(0, len / SECTOR_BYTES as u32)
}

/// Where plans read a block.
pub(super) fn place(cell: Cell) -> MemberPlace {
    MemberPlace { member: MemberId(cell.node.0), sector: u64::from(cell.row) * ROW_SECTORS }
}

/// Returns the block at a place that a plan reads.
pub(super) const fn cell(place: MemberPlace) -> Cell {
    Cell { row: (place.sector / ROW_SECTORS) as u16, node: node(place.member) }
}

/// Returns the role that a plan's member id stands for: in plans, roles number the members.
pub(super) const fn node(member: MemberId) -> Role {
    Role(member.0)
}

/// Queues the reads of a plan.
pub(super) fn read(reads: &mut ReadSlots, ios: &[MemberIo], extent: Extent, whose: Whose) {
    for &MemberIo { member, op } in ios {
        if let IoOp::Read { sector, buf: into } = op {
            reads.queue(Piece { cell: cell(MemberPlace { member, sector }), extent, into, whose });
        }
    }
}
