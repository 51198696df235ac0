//! The map of one stripe over nodes, and its schedule.

use braid_array::Role;
use braid_array::code::{self, Content, StripeCode};
use braid_cluster::schedule::Endpoint;
use braid_cluster::{self as cluster, Planner, Schedule};

use super::{Cell, Equation, LayoutKind, LayoutPlace, Map, Scheduled, Sender, Term, Transfer};
use crate::args::ScheduleName;
use crate::cmd::shape::ArrayShape;

/// Every cell and equation of a stripe.
pub(super) fn map(shape: &ArrayShape, layout: Option<String>, code: &StripeCode) -> Map {
    let cell = |cell| {
        let index = match code.content(cell) {
            Content::Data(index) => u64::from(index),
            Content::Sum(_) => match (code.kind(cell), code.terms(cell).as_block()) {
                (code::BlockKind::Copy, Some(index)) => u64::from(index),
                _ => u64::from(cell.row),
            },
        };
        Cell { row: u64::from(cell.row), member: cell.node, kind: kind(code.kind(cell)), index }
    };
    let term = |term: &code::Term| Term {
        row: u64::from(term.cell.row),
        member: term.cell.node,
        coef: term.coef,
    };
    let equation = |equation: &code::Equation| Equation {
        parity: LayoutPlace { row: u64::from(equation.parity.row), member: equation.parity.node },
        terms: equation.terms.iter().map(term).collect(),
    };
    let cells = code.cells().map(cell).collect();
    let equations = code.equations().iter().map(equation).collect();
    Map::new(shape, layout, u64::from(code.rows()), cells, equations)
}

const fn kind(kind: code::BlockKind) -> LayoutKind {
    match kind {
        code::BlockKind::Data => LayoutKind::Data,
        code::BlockKind::Copy => LayoutKind::Copy,
        code::BlockKind::Parity => LayoutKind::Parity,
        code::BlockKind::Q => LayoutKind::Q,
        code::BlockKind::Diagonal => LayoutKind::Diag,
    }
}

/// Returns the planner of the parities of the first stripe.
pub(super) const fn planner(name: ScheduleName) -> Planner {
    match name {
        ScheduleName::Client => Planner::Client,
        ScheduleName::Chain => Planner::Chain,
        ScheduleName::Encoder => Planner::Encoder { node: Role(0) },
        ScheduleName::Static => Planner::Static,
    }
}

/// The transfers in the order of their stages, and the loads.
pub(super) fn scheduled(planner: Planner, schedule: &Schedule) -> Scheduled {
    let transfer = |transfer: &cluster::schedule::Transfer| Transfer {
        stage: transfer.stage,
        from: match transfer.from {
            Endpoint::Client => Sender::Client("client"),
            Endpoint::Node(node) => Sender::Node(node),
        },
        to: transfer.to,
        terms: transfer.terms.clone(),
    };
    let mut transfers: Vec<Transfer> = schedule.transfers().iter().map(transfer).collect();
    transfers.sort_by_key(|transfer| transfer.stage);
    Scheduled {
        name: planner.name(),
        transfers,
        ingress: schedule.ingress(),
        egress: schedule.egress(),
    }
}
