//! `braid layout`: where each data and parity chunk of an array lies, for one period of the
//! pattern, and the equations between them.

use std::fmt::Write as _;

use braid_array::SECTOR_BYTES;
use braid_array::geometry::{Geometry, GeometryError, Strip};
use braid_array::level::{Layout, Level};
use serde::Serialize;

use super::shape::{ArrayShape, Typed};
use crate::args::{LayoutArgs, Size};
use crate::failure::Failure;
use crate::output::{self, json::SCHEMA};

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Map {
    schema: u32,
    level: &'static str,
    layout: Option<String>,
    raid_devices: u32,
    chunk_bytes: u64,
    rows: u64,
    cells: Vec<Cell>,
    equations: Vec<Equation>,
    /// Only arrays over nodes have one.
    schedule: Option<()>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Cell {
    row: u64,
    member: u16,
    kind: Kind,
    /// Data and copies: which chunk of the array. Parity: which stripe.
    index: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Data,
    Copy,
    Parity,
    Q,
}

#[derive(Debug, Serialize)]
struct Equation {
    parity: Place,
    terms: Vec<Term>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Place {
    row: u64,
    member: u16,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Term {
    row: u64,
    member: u16,
    coef: u8,
}

pub(super) fn run(args: &LayoutArgs) -> Result<(), Failure> {
    let shape = ArrayShape::parse(&Typed {
        operation: "layout",
        object: &args.level,
        level: &args.level,
        layout: args.layout.as_deref(),
        raid_devices: args.raid_devices,
        chunk: args.chunk,
    })?;
    let map = map(&shape).map_err(|error| Failure::explained("layout", &args.level, error))?;
    if args.json {
        return output::print_json(&map);
    }
    output::answer(&text(&map))
}

fn map(shape: &ArrayShape) -> Result<Map, GeometryError> {
    let rows = rows(shape);
    // Levels without chunks: one row of any size stands for all.
    let chunk = u64::from(shape.chunk_sectors.max(8));
    let sizes = vec![rows * chunk; shape.raid_disks as usize];
    let geometry = shape.geometry(&sizes)?;
    let (mut cells, equations) = if geometry.parity_disks() > 0 {
        parity_cells(&geometry, rows, chunk)
    } else {
        copy_cells(&geometry, chunk)
    };
    cells.sort_by_key(|cell| (cell.row, cell.member));
    Ok(Map {
        schema: SCHEMA,
        level: shape.level.name(),
        layout: shape.layout.name(),
        raid_devices: shape.raid_disks,
        chunk_bytes: u64::from(shape.chunk_sectors) * SECTOR_BYTES,
        rows,
        cells,
        equations,
        schedule: None,
    })
}

/// Rows after which the pattern repeats.
fn rows(shape: &ArrayShape) -> u64 {
    let disks = u64::from(shape.raid_disks);
    match shape.layout {
        Layout::Parity(_) => disks,
        Layout::Raid10(layout) => {
            let near = u64::from(layout.near);
            let period = near / gcd(near, disks);
            // Two rows of each far section show how they are shifted.
            u64::from(layout.far) * if layout.far > 1 { period.max(2) } else { period }
        }
        _ if matches!(shape.level, Level::Raid0 | Level::Raid4) => 2,
        _ => 1,
    }
}

const fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn parity_cells(geometry: &Geometry, rows: u64, chunk: u64) -> (Vec<Cell>, Vec<Equation>) {
    let (mut cells, mut equations) = (Vec::new(), Vec::new());
    for row in 0..rows {
        let mut sums = [Vec::new(), Vec::new()];
        for index in 0..geometry.data_disks() {
            let member = geometry.data_role(row, index);
            let strip = Strip { role: member, sector: row * chunk };
            let array_chunk = geometry.array_sector_at(strip).map_or(0, |sector| sector / chunk);
            cells.push(Cell { row, member, kind: Kind::Data, index: array_chunk });
            sums[0].push(Term { row, member, coef: 1 });
            if geometry.parity_disks() == 2 {
                sums[1].push(Term { row, member, coef: geometry.q_coef(row, index) });
            }
        }
        let (p, q) = geometry.parity_roles(row);
        let parities = [(Some(p), Kind::Parity), (q, Kind::Q)];
        for ((member, kind), terms) in parities.into_iter().zip(sums) {
            let Some(member) = member else { continue };
            cells.push(Cell { row, member, kind, index: row });
            equations.push(Equation { parity: Place { row, member }, terms });
        }
    }
    (cells, equations)
}

fn copy_cells(geometry: &Geometry, chunk: u64) -> (Vec<Cell>, Vec<Equation>) {
    let (mut cells, mut equations) = (Vec::new(), Vec::new());
    for index in 0..geometry.array_sectors() / chunk {
        let place = |copy| {
            let strip = geometry.copy(index * chunk, copy);
            Place { row: strip.sector / chunk, member: strip.role }
        };
        let data = place(0);
        cells.push(Cell { row: data.row, member: data.member, kind: Kind::Data, index });
        for copy in 1..geometry.copies() {
            let parity = place(copy);
            cells.push(Cell { row: parity.row, member: parity.member, kind: Kind::Copy, index });
            let terms = vec![Term { row: data.row, member: data.member, coef: 1 }];
            equations.push(Equation { parity, terms });
        }
    }
    (cells, equations)
}

fn text(map: &Map) -> String {
    let mut text = format!("{}, {} members", map.level, map.raid_devices);
    if let Some(layout) = &map.layout {
        let _ = write!(text, ", {layout}");
    }
    if map.chunk_bytes > 0 {
        let _ = write!(text, ", chunk {}", Size(map.chunk_bytes));
    }
    text.push_str("\n\n row ");
    let width = map.cells.iter().map(|cell| label(cell).len()).max().unwrap_or(1).max(4) + 1;
    for member in 0..map.raid_devices {
        let _ = write!(text, " {:width$}", format!("m{member}"));
    }
    for row in 0..map.rows {
        end_line(&mut text);
        let _ = write!(text, "{row:4} ");
        for member in 0..map.raid_devices {
            let here = |cell: &&Cell| cell.row == row && u32::from(cell.member) == member;
            let label = map.cells.iter().find(here).map_or_else(|| "-".to_owned(), label);
            let _ = write!(text, " {label:width$}");
        }
    }
    end_line(&mut text);
    let sums = map.equations.iter().filter(|equation| equation.terms.len() > 1);
    for (i, equation) in sums.enumerate() {
        let blank = if i == 0 { "\n" } else { "" };
        let _ = writeln!(text, "{blank}{}", spell(map, equation));
    }
    text
}

fn end_line(text: &mut String) {
    text.truncate(text.trim_end().len());
    text.push('\n');
}

fn label(cell: &Cell) -> String {
    match cell.kind {
        Kind::Data => format!("D{}", cell.index),
        Kind::Copy => format!("D{}'", cell.index),
        Kind::Parity => format!("P{}", cell.index),
        Kind::Q => format!("Q{}", cell.index),
    }
}

/// `Q0 = D0 + 2*D1`; sums and products are those of GF(2^8).
fn spell(map: &Map, equation: &Equation) -> String {
    let name = |row: u64, member: u16| {
        let found = map.cells.iter().find(|cell| cell.row == row && cell.member == member);
        found.map(label).unwrap_or_default()
    };
    let product = |term: &Term| match term.coef {
        1 => name(term.row, term.member),
        coef => format!("{coef}*{}", name(term.row, term.member)),
    };
    let terms: Vec<String> = equation.terms.iter().map(product).collect();
    let Place { row, member } = equation.parity;
    format!("{} = {}", name(row, member), terms.join(" + "))
}
