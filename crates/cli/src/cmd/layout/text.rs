//! The map as a person reads it: a grid of cells, the equations, the transfers stage by stage, the
//! load of every node.

use braid_array::Role;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use braid_array::code::Terms;

use super::{Cell, Equation, LayoutKind, LayoutPlace, Map, Scheduled, Sender, Term};
use crate::args::Size;

/// Everything, a blank line between the parts.
pub(super) fn text(map: &Map) -> String {
    let mut text = format!("{}, {} members", map.level, map.raid_devices);
    if let Some(layout) = &map.layout {
        let _ = write!(text, ", {layout}");
    }
    if map.chunk_bytes > 0 {
        let _ = write!(text, ", chunk {}", Size(map.chunk_bytes));
    }
    if map.schedule.is_some() {
        text.push_str(", first stripe");
    }
    text.push_str("\n\n");
    grid(&mut text, map);
    let sums = map.equations.iter().filter(|equation| equation.terms.len() > 1);
    for (i, equation) in sums.enumerate() {
        let blank = if i == 0 { "\n" } else { "" };
        let _ = writeln!(text, "{blank}{}", spell(map, equation));
    }
    if let Some(plan) = &map.schedule {
        transfers(&mut text, plan);
        loads(&mut text, plan);
        // Copies alone need no encoder.
        if plan.name == "encoder" && map.equations.iter().any(|sum| sum.terms.len() > 1) {
            text.push_str("\nthe next stripe is encoded by the next node\n");
        }
    }
    text
}

fn grid(text: &mut String, map: &Map) {
    text.push_str(" row ");
    let width = map.cells.iter().map(|cell| label(cell).len()).max().unwrap_or(1).max(4) + 1;
    for member in 0..map.raid_devices {
        let _ = write!(text, " {:width$}", format!("m{member}"));
    }
    for row in 0..map.rows {
        end_line(text);
        let _ = write!(text, "{row:4} ");
        for member in 0..map.raid_devices {
            let cell = u16::try_from(member).ok().and_then(|member| map.cell(row, Role(member)));
            let _ = write!(text, " {:width$}", cell.map_or_else(|| "-".to_owned(), label));
        }
    }
    end_line(text);
}

fn end_line(text: &mut String) {
    text.truncate(text.trim_end().len());
    text.push('\n');
}

fn label(cell: &Cell) -> String {
    match cell.kind {
        LayoutKind::Data => format!("D{}", cell.index),
        LayoutKind::Copy => format!("D{}'", cell.index),
        LayoutKind::Parity => format!("P{}", cell.index),
        LayoutKind::Q | LayoutKind::Diag => format!("Q{}", cell.index),
    }
}

/// `Q0 = D0 + 2*D1`; sums and products are those of GF(2^8).
fn spell(map: &Map, equation: &Equation) -> String {
    let name = |row, member| map.cell(row, member).map(label).unwrap_or_default();
    let product = |term: &Term| match term.coef {
        1 => name(term.row, term.member),
        coef => format!("{coef}*{}", name(term.row, term.member)),
    };
    let terms: Vec<String> = equation.terms.iter().map(product).collect();
    let LayoutPlace { row, member } = equation.parity;
    format!("{} = {}", name(row, member), terms.join(" + "))
}

/// Prints a line for each sender and receiver of a stage.
fn transfers(text: &mut String, plan: &Scheduled) {
    let _ = writeln!(text, "\nschedule {}", plan.name);
    let mut stages: BTreeMap<u16, BTreeMap<(Sender, Role), Vec<String>>> = BTreeMap::new();
    for transfer in &plan.transfers {
        let arcs = stages.entry(transfer.stage).or_default();
        arcs.entry((transfer.from, transfer.to)).or_default().push(sum(&transfer.terms));
    }
    for (stage, arcs) in stages {
        let _ = writeln!(text, "stage {stage}");
        for ((from, to), sums) in arcs {
            let _ = writeln!(
                text,
                "  {:>6} -> {:5} {}",
                sender(from),
                format!("m{to}"),
                sums.join(", ")
            );
        }
    }
}

fn sender(from: Sender) -> String {
    match from {
        Sender::Client(client) => client.to_owned(),
        Sender::Node(node) => format!("m{node}"),
    }
}

/// `D0+2*D1`.
fn sum(terms: &Terms) -> String {
    let product = |(index, coef)| match coef {
        1 => format!("D{index}"),
        _ => format!("{coef}*D{index}"),
    };
    terms.iter().map(product).collect::<Vec<_>>().join("+")
}

/// In chunks of one stripe.
fn loads(text: &mut String, plan: &Scheduled) {
    let from_client = plan.transfers.iter().filter(|t| matches!(t.from, Sender::Client(_)));
    let _ = writeln!(text, "\n{:>6} {:>9} {:>6}", "chunks", "receives", "sends");
    let _ = writeln!(text, "{:>6} {:>9} {:>6}", "client", 0, from_client.count());
    for (node, (received, sent)) in plan.ingress.iter().zip(&plan.egress).enumerate() {
        let _ = writeln!(text, "{:>6} {received:>9} {sent:>6}", format!("m{node}"));
    }
}
