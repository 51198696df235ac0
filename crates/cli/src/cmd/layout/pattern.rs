//! The map of a level of md's: its mapping, asked for one period.

use braid_array::geometry::{Geometry, GeometryError, Strip};
use braid_array::level::{Layout, Level};

use super::{Cell, Equation, LayoutKind, LayoutPlace, Map, Term};
use crate::cmd::shape::ArrayShape;

/// Every row until the pattern repeats.
pub(super) fn map(shape: &ArrayShape) -> Result<Map, GeometryError> {
    let rows = rows(shape);
    // Levels without chunks: one row of any size stands for all.
    let chunk = u64::from(shape.chunk_sectors.max(8));
    let sizes = vec![rows * chunk; shape.raid_disks as usize];
    let geometry = shape.geometry(&sizes)?;
    let (cells, equations) = if geometry.parity_disks() > 0 {
        parity_cells(&geometry, rows, chunk)
    } else {
        copy_cells(&geometry, chunk)
    };
    Ok(Map::new(shape, shape.layout.name(), rows, cells, equations))
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
    let mut cells = Vec::new();
    let mut equations = Vec::new();
    for row in 0..rows {
        let mut sums = [Vec::new(), Vec::new()];
        for index in 0..geometry.data_disks() {
            let member = geometry.data_role(row, index);
            let strip = Strip { role: member, sector: row * chunk };
            let array_chunk = geometry.array_sector_at(strip).map_or(0, |sector| sector / chunk);
            cells.push(Cell { row, member, kind: LayoutKind::Data, index: array_chunk });
            sums[0].push(Term { row, member, coef: 1 });
            if geometry.parity_disks() == 2 {
                sums[1].push(Term { row, member, coef: geometry.q_coef(row, index) });
            }
        }
        let (p, q) = geometry.parity_roles(row);
        let parities = [(Some(p), LayoutKind::Parity), (q, LayoutKind::Q)];
        for ((member, kind), terms) in parities.into_iter().zip(sums) {
            let Some(member) = member else { continue };
            cells.push(Cell { row, member, kind, index: row });
            equations.push(Equation { parity: LayoutPlace { row, member }, terms });
        }
    }
    (cells, equations)
}

fn copy_cells(geometry: &Geometry, chunk: u64) -> (Vec<Cell>, Vec<Equation>) {
    let mut cells = Vec::new();
    let mut equations = Vec::new();
    for index in 0..geometry.array_sectors() / chunk {
        let place = |copy| {
            let strip = geometry.copy(index * chunk, copy);
            LayoutPlace { row: strip.sector / chunk, member: strip.role }
        };
        let data = place(0);
        cells.push(Cell { row: data.row, member: data.member, kind: LayoutKind::Data, index });
        for copy in 1..geometry.copies() {
            let parity = place(copy);
            cells.push(Cell {
                row: parity.row,
                member: parity.member,
                kind: LayoutKind::Copy,
                index,
            });
            let terms = vec![Term { row: data.row, member: data.member, coef: 1 }];
            equations.push(Equation { parity, terms });
        }
    }
    (cells, equations)
}
