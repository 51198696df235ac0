//! `braid layout`: the place of each data and parity chunk of an array, for one period of the
//! pattern, and the equations between them. With a schedule, one stripe and the transfers of its
//! write.

mod pattern;
mod stripe;
mod text;

use braid_array::Role;
use braid_array::SECTOR_BYTES;
use braid_array::code::{Terms, levels};
use braid_array::format::Superblock;
use braid_array::level::{Layout, Level};
use braid_cluster::family::{XOR2D_MD_LEVEL, XOR2D_NAME};
use braid_cluster::{Schedule, Xor2d};
use serde::{Serialize, Serializer};

use super::shape::{ArrayShape, Typed, family};
use crate::args::LayoutArgs;
use crate::failure::Failure;
use crate::output::{self, json::SCHEMA};

/// Output of `--json`.
#[derive(Debug, Serialize)]
struct Map {
    schema: u32,
    level: &'static str,
    layout: Option<String>,
    raid_devices: u32,
    chunk_bytes: u64,
    rows: u64,
    /// By row and member.
    cells: Vec<Cell>,
    equations: Vec<Equation>,
    schedule: Option<Scheduled>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Cell {
    row: u64,
    member: Role,
    kind: LayoutKind,
    /// Data and copies: which chunk of the array. Parity: which row.
    index: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum LayoutKind {
    Data,
    Copy,
    Parity,
    Q,
    Diag,
}

#[derive(Debug, Serialize)]
struct Equation {
    parity: LayoutPlace,
    terms: Vec<Term>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct LayoutPlace {
    row: u64,
    member: Role,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Term {
    row: u64,
    member: Role,
    coef: u8,
}

/// Write schedule of the stripe.
#[derive(Debug, Serialize)]
struct Scheduled {
    name: &'static str,
    /// By stage.
    transfers: Vec<Transfer>,
    /// Chunks that each node receives, the client's included.
    ingress: Vec<u32>,
    /// Chunks that each node sends.
    egress: Vec<u32>,
}

#[derive(Debug, Serialize)]
struct Transfer {
    stage: u16,
    from: Sender,
    to: Role,
    #[serde(serialize_with = "indices")]
    terms: Terms,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(untagged)]
enum Sender {
    Client(&'static str),
    Node(Role),
}

fn indices<S: Serializer>(terms: &Terms, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(terms.iter().map(|(index, _)| index))
}

impl Map {
    fn new(
        shape: &ArrayShape,
        layout: Option<String>,
        rows: u64,
        mut cells: Vec<Cell>,
        equations: Vec<Equation>,
    ) -> Self {
        cells.sort_by_key(|cell| (cell.row, cell.member));
        Self {
            schema: SCHEMA,
            level: shape.level.name(),
            layout,
            raid_devices: shape.raid_disks,
            chunk_bytes: u64::from(shape.chunk_sectors) * SECTOR_BYTES,
            rows,
            cells,
            equations,
            schedule: None,
        }
    }

    fn cell(&self, row: u64, member: Role) -> Option<&Cell> {
        let found = self.cells.binary_search_by_key(&(row, member), |c| (c.row, c.member));
        found.ok().map(|place| &self.cells[place])
    }
}

pub(super) fn run(args: &LayoutArgs) -> Result<(), Failure> {
    let typed = args.shape.typed("layout", &args.shape.level, args.raid_devices);
    let map = match typed.layout {
        Some(XOR2D_NAME) => xor2d(args, &typed)?,
        _ => level(args, &typed)?,
    };
    if args.json {
        return output::print_json(&map);
    }
    output::answer(&text::text(&map))
}

/// Where data and parity lie in an array that runs. `None` of a level that is not known.
pub(super) fn of_running(superblock: &Superblock) -> Option<impl Serialize + use<>> {
    let Superblock { raid_disks, chunk_sectors, .. } = *superblock;
    if superblock.level == XOR2D_MD_LEVEL {
        let xor2d = Xor2d::new(raid_disks).ok()?;
        let layout = Layout::default_for(Level::Raid6);
        let shape = ArrayShape { level: Level::Raid6, layout, raid_disks, chunk_sectors };
        return Some(stripe::map(&shape, Some(XOR2D_NAME.to_owned()), xor2d.code()));
    }
    let level = Level::from_md(superblock.level)?;
    let layout = Layout::decode(level, superblock.layout, raid_disks).ok()?;
    pattern::map(&ArrayShape { level, layout, raid_disks, chunk_sectors }).ok()
}

/// A level of md's. A schedule is that of the first stripe, and then no other stripe is shown:
/// data indices count from its first chunk.
fn level(args: &LayoutArgs, typed: &Typed<'_>) -> Result<Map, Failure> {
    let shape = ArrayShape::parse(typed)?;
    let Some(name) = args.schedule else {
        let explain = |error| Failure::explained("layout", &args.shape.level, error);
        return pattern::map(&shape).map_err(explain);
    };
    let code = levels::stripe_code(shape.level, shape.layout, shape.raid_disks, 0)
        .map_err(|error| typed.wrong(&error))?;
    let planner = stripe::planner(name);
    let schedule = Schedule::plan(&code, planner).map_err(|_| {
        let reason =
            format!("{} has no static schedule, only layout {XOR2D_NAME} has", shape.level);
        typed.usage(&reason, "use client, chain or encoder")
    })?;
    let mut map = stripe::map(&shape, shape.layout.name(), &code);
    map.schedule = Some(stripe::scheduled(planner, &schedule));
    Ok(map)
}

/// The 2-D XOR code.
fn xor2d(args: &LayoutArgs, typed: &Typed<'_>) -> Result<Map, Failure> {
    family(typed)?;
    let xor2d = Xor2d::new(typed.raid_devices).map_err(|error| typed.wrong(&error))?;
    let shape = ArrayShape::parse(&Typed { layout: None, ..*typed })?;
    let mut map = stripe::map(&shape, Some(XOR2D_NAME.to_owned()), xor2d.code());
    if let Some(name) = args.schedule {
        let planner = stripe::planner(name);
        let schedule = xor2d.schedule(planner).map_err(|error| typed.wrong(&error))?;
        map.schedule = Some(stripe::scheduled(planner, &schedule));
    }
    Ok(map)
}
