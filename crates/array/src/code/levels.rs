//! The levels that md knows, as stripes.

use crate::geometry::{Geometry, GeometryError, Shape};
use crate::level::{Layout, Level, ParityLayout};
use crate::refusal::{Advised, Next};
use crate::units::gcd;

use super::stripe::{BlockKind, Cell, Equation, StripeCode, Term};

/// Chunks are the blocks here; the mapping asks for a size, and any will do.
const CHUNK_SECTORS: u32 = 8;

/// The reason why a level cannot be cut into stripes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LevelError {
    /// md would not run it.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// Its chunks do not lie side by side.
    #[error("linear has no stripes")]
    Linear,
    /// The copies of a chunk are half a member apart.
    #[error("raid10 with far copies has no stripes")]
    Far,
}

impl Advised for LevelError {
    fn next(&self) -> Next {
        match self {
            Self::Geometry(error) => error.next(),
            Self::Linear => "use raid0".into(),
            Self::Far => "use near or offset copies".into(),
        }
    }
}

/// Returns the code of stripe `stripe`. A stripe is one row of chunks; for raid10 as many rows as
/// it takes until chunks and their copies fill whole rows.
///
/// # Errors
/// For arrays that md refuses, and for levels without stripes.
pub fn stripe_code(
    level: Level,
    layout: Layout,
    nodes: u32,
    stripe: u64,
) -> Result<StripeCode, LevelError> {
    let sizes = vec![u64::from(CHUNK_SECTORS); nodes.min(u32::from(u16::MAX)) as usize];
    let shape = |rows: u64| Shape {
        level,
        layout,
        raid_disks: nodes,
        chunk_sectors: CHUNK_SECTORS,
        size_sectors: rows * u64::from(CHUNK_SECTORS),
        member_data_sectors: &sizes,
    };
    match (level, layout) {
        (Level::Linear, _) => Err(LevelError::Linear),
        (Level::Raid0 | Level::Raid1, _) => Ok(copies(&Geometry::new(&shape(1))?, 1)),
        (Level::Raid4 | Level::Raid5 | Level::Raid6, _) => {
            Ok(parity(&Geometry::new(&shape(1))?, stripe))
        }
        (Level::Raid10, Layout::Raid10(copied)) if copied.far > 1 && !copied.offset => {
            // What md refuses is refused first.
            Geometry::new(&shape(u64::from(copied.far)))?;
            Err(LevelError::Far)
        }
        (Level::Raid10, Layout::Raid10(copied)) => {
            let period = u64::from(copied.near) / gcd(u64::from(copied.near), u64::from(nodes));
            let rows = period * u64::from(copied.far);
            Ok(copies(&Geometry::new(&shape(rows))?, rows as u16))
        }
        (Level::Raid10, _) => Err(GeometryError::Layout { level }.into()),
    }
}

/// After so many stripes the code repeats.
#[must_use]
pub const fn period(layout: Layout, nodes: u32) -> u32 {
    let Layout::Parity(layout) = layout else { return 1 };
    match layout {
        // Q stays on the last member; the others rotate as in a raid5 of one less.
        ParityLayout::LeftAsymmetric6
        | ParityLayout::RightAsymmetric6
        | ParityLayout::LeftSymmetric6
        | ParityLayout::RightSymmetric6 => nodes - 1,
        ParityLayout::ParityFirst | ParityLayout::ParityLast | ParityLayout::ParityFirst6 => 1,
        _ => nodes,
    }
}

/// The code of a stripe of a level with parity.
pub(super) fn parity(geometry: &Geometry, stripe: u64) -> StripeCode {
    let cell = |node| Cell { row: 0, node };
    let data: Vec<Cell> =
        (0..geometry.data_disks()).map(|index| cell(geometry.data_role(stripe, index))).collect();
    let equation = |node, kind, coef: &dyn Fn(u32) -> u8| {
        let term = |(index, &cell): (u32, &Cell)| Term { cell, coef: coef(index) };
        Equation { parity: cell(node), kind, terms: (0..).zip(&data).map(term).collect() }
    };
    let (p, q) = geometry.parity_roles(stripe);
    let mut equations = vec![equation(p, BlockKind::Parity, &|_| 1)];
    if let Some(q) = q {
        equations.push(equation(q, BlockKind::Q, &|index| geometry.q_coef(stripe, index)));
    }
    StripeCode::new(geometry.raid_disks() as u16, 1, data, equations)
}

fn copies(geometry: &Geometry, rows: u16) -> StripeCode {
    let chunk_sectors = u64::from(CHUNK_SECTORS);
    let mut data = Vec::new();
    let mut equations = Vec::new();
    for index in 0..geometry.array_sectors() / chunk_sectors {
        let place = |copy| {
            let strip = geometry.copy(index * chunk_sectors, copy);
            Cell { row: (strip.sector / chunk_sectors) as u16, node: strip.role }
        };
        let first = place(0);
        data.push(first);
        for copy in 1..geometry.copies() {
            let terms = vec![Term { cell: first, coef: 1 }];
            equations.push(Equation { parity: place(copy), kind: BlockKind::Copy, terms });
        }
    }
    StripeCode::new(geometry.raid_disks() as u16, rows, data, equations)
}
