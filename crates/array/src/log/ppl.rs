//! What partial parity logs tell, by the rules of the kernel's `raid5-ppl.c`.
//!
//! Of a log only the last unit counts: when it was recorded, all of the one before was in place and
//! durable. Its partial parity and what the strips that changed hold now make the parity, whatever
//! of them had arrived.
//!
//! In two cases the kernel asks for a resync where there is nothing to bring in place, and an array
//! that is degraded could not have one: a unit at the start of the area, or its partial parity,
//! that is not whole. It was being recorded; nothing of it had been written.

use super::{MAX_READ_BYTES, ReadSectors};
use crate::SECTOR_BYTES;
use crate::format::ppl::{HEADER_BYTES, PplArea, PplEntry, PplError, PplHeader};
use crate::geometry::{Geometry, Strip};

/// Sectors of a header.
const HEADER_SECTORS: u64 = HEADER_BYTES as u64 / SECTOR_BYTES;

/// What the log of one member tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PplScan {
    /// The latest generation that any unit in the area has; 0 without any.
    pub generation: u64,
    /// The entries of the last unit, with their partial parity.
    pub entries: Vec<(PplEntry, Vec<u8>)>,
    /// Nothing in the area is of this array.
    pub blank: bool,
    /// The last unit was not recorded completely.
    pub torn: bool,
    /// A unit was recorded completely and says what cannot be. It may tell of later writes than the
    /// ones before it, so none of them counts.
    pub impossible: bool,
}

/// What lies at a place of an area.
enum Found {
    Unit(PplHeader),
    /// A header of this array, as it was written, that says what cannot be.
    Impossible,
    /// No header, or one that was not recorded completely.
    Damaged,
    /// A header of another array.
    Foreign,
}

impl PplScan {
    /// Reads the log of a member.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn read(
        area: PplArea,
        set_uuid: [u8; 16],
        read: &mut ReadSectors<'_>,
    ) -> Result<Self, String> {
        let mut look = |at: u64| -> Result<Found, String> {
            let bytes = read(area.sector + at, HEADER_BYTES)?;
            Ok(match PplHeader::decode(&bytes, set_uuid) {
                Ok(header) if at + header.unit_bytes() / SECTOR_BYTES <= area.sectors => {
                    Found::Unit(header)
                }
                Ok(_) => Found::Impossible,
                Err(error) if error.is_whole() => Found::Impossible,
                Err(PplError::Foreign) => Found::Foreign,
                Err(_) => Found::Damaged,
            })
        };
        let (at, last) = match last_unit(area, &mut look)? {
            Chain::Last(at, header) => (at, header),
            Chain::Impossible => {
                let generation = latest_anywhere(area, &mut look)?.unwrap_or(0);
                return Ok(Self { generation, impossible: true, ..Self::default() });
            }
            Chain::None { damaged } => {
                let latest = latest_anywhere(area, &mut look)?;
                // Where each unit begins at the start, what lies elsewhere says nothing of it.
                let torn = latest.is_some() && damaged && area.is_ring;
                let generation = latest.map_or(0, |latest| latest.saturating_add(1));
                return Ok(Self { generation, torn, blank: !torn, ..Self::default() });
            }
        };
        let mut scan = Self { generation: last.generation, ..Self::default() };
        let mut sector = area.sector + at + HEADER_SECTORS;
        for entry in &last.entries {
            let parity = read_bytes(sector, entry.pp_bytes, read)?;
            sector += u64::from(entry.pp_bytes) / SECTOR_BYTES;
            if entry.pp_bytes == 0 || crc32c::crc32c(&parity) == entry.checksum {
                scan.entries.push((*entry, parity));
            } else {
                scan.torn = true;
            }
        }
        Ok(scan)
    }
}

/// Reads so many bytes, in as many parts as that takes.
fn read_bytes(sector: u64, bytes: u32, read: &mut ReadSectors<'_>) -> Result<Vec<u8>, String> {
    let mut found = Vec::new();
    while let left @ 1.. = bytes - found.len() as u32 {
        let at = sector + found.len() as u64 / SECTOR_BYTES;
        found.extend(read(at, left.min(MAX_READ_BYTES))?);
    }
    Ok(found)
}

/// What the units of an area come to that follow one another from its start on.
enum Chain {
    /// The last one, and where in the area it begins.
    Last(u64, PplHeader),
    /// One that says what cannot be.
    Impossible,
    /// None at the start, where there is a header of another array or, `damaged`, no whole one.
    None { damaged: bool },
}

/// The last unit of an area. In a ring units follow one another from the start on, and generations
/// never become less.
fn last_unit(
    area: PplArea,
    look: &mut impl FnMut(u64) -> Result<Found, String>,
) -> Result<Chain, String> {
    let mut chain = Chain::None { damaged: true };
    let mut at = 0;
    while at + HEADER_SECTORS <= area.sectors {
        let found = match (look(at)?, &chain) {
            (Found::Unit(found), _) => found,
            (Found::Impossible, _) => return Ok(Chain::Impossible),
            (Found::Foreign, Chain::None { .. }) => return Ok(Chain::None { damaged: false }),
            (Found::Foreign | Found::Damaged, _) => break,
        };
        let older = matches!(&chain, Chain::Last(_, last) if found.generation < last.generation);
        if older && !crate::broken("generation-check") {
            break;
        }
        let end = at + found.unit_bytes() / SECTOR_BYTES;
        chain = Chain::Last(at, found);
        if !area.is_ring {
            break;
        }
        at = end;
    }
    Ok(chain)
}

/// The latest generation of any unit, wherever in the area it begins.
fn latest_anywhere(
    area: PplArea,
    look: &mut impl FnMut(u64) -> Result<Found, String>,
) -> Result<Option<u64>, String> {
    let mut latest = None;
    let starts = (0..area.sectors / HEADER_SECTORS).map(|number| number * HEADER_SECTORS);
    for at in starts {
        if let Found::Unit(found) = look(at)? {
            latest = latest.max(Some(found.generation));
        }
    }
    Ok(latest)
}

/// Rows that are made anew at once lie between multiples of this.
pub const FIX_SECTORS: u64 = 128;

/// Parity that is to be made anew: rows of a stripe, from partial parity and strips of data as they
/// are now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PplFix {
    /// The role that holds the parity.
    pub parity: u16,
    /// The roles whose strips changed.
    pub data: Vec<u16>,
    /// The first of the rows, a sector of the members' data areas.
    pub row: u64,
    /// How many sectors.
    pub sectors: u32,
    /// What the strips that did not change add up to; empty where all changed.
    pub partial_parity: Vec<u8>,
}

/// What is to be made anew by the entry of a log. `held`: how many rows of a role are there, from the
/// first on. Rows are left out of which a strip is not there that changed: what it held was being
/// written, and nobody else tells of it.
///
/// # Errors
/// When the entry does not fit the array: the reason, for people.
pub fn fixes(
    entry: &PplEntry,
    partial_parity: &[u8],
    geometry: &Geometry,
    held: &dyn Fn(u16) -> u64,
) -> Result<Vec<PplFix>, String> {
    let shape = EntryShape::of(entry, geometry)?;
    let mut fixes: Vec<PplFix> = Vec::new();
    let step = shape.step;
    for at in (0..shape.strip_sectors).step_by(step as usize) {
        let strips = shape.strips(at, geometry)?;
        let Some(first) = strips.first() else { continue };
        let row = first.sector;
        let (parity, _) = geometry.parity_roles(row / u64::from(geometry.chunk_sectors()));
        if u32::from(parity) != entry.parity_disk {
            let PplEntry { data_sector, parity_disk, .. } = entry;
            return Err(format!(
                "an entry for sector {data_sector} has role {parity_disk} hold the parity, which \
                 role {parity} does"
            ));
        }
        let data: Vec<u16> = strips.iter().map(|strip| strip.role).collect();
        let reach = strips.iter().map(|strip| held(strip.role)).min().unwrap_or(0);
        let there = reach.saturating_sub(row).min(step);
        if there == 0 {
            continue;
        }
        let bytes = |sectors: u64| (sectors * SECTOR_BYTES) as usize;
        let part = match partial_parity {
            [] => &[],
            all => all.get(bytes(at)..bytes(at + there)).ok_or("partial parity is cut off")?,
        };
        match fixes.last_mut() {
            Some(fix) if fix.continues_at(row) && fix.data == data => {
                fix.sectors += there as u32;
                fix.partial_parity.extend_from_slice(part);
            }
            _ => fixes.push(PplFix {
                parity,
                data,
                row,
                sectors: there as u32,
                partial_parity: part.to_vec(),
            }),
        }
    }
    Ok(fixes)
}

impl PplFix {
    /// Do more rows fit behind it? No fix is higher than a unit of other work.
    fn continues_at(&self, row: u64) -> bool {
        let end = self.row + u64::from(self.sectors);
        end == row && !end.is_multiple_of(FIX_SECTORS)
    }
}

/// What an entry covers, as the kernel reads it.
struct EntryShape {
    first: u64,
    /// The array sector behind the last.
    end: u64,
    strips: u64,
    strip_sectors: u64,
    /// Rows that are looked at together: a block of 4 KiB, or a sector.
    step: u64,
}

impl EntryShape {
    fn of(entry: &PplEntry, geometry: &Geometry) -> Result<Self, String> {
        let chunk = u64::from(geometry.chunk_sectors());
        let all = u64::from(geometry.data_disks());
        let parity_sectors = u64::from(entry.pp_bytes) / SECTOR_BYTES;
        let data_sectors = u64::from(entry.data_bytes) / SECTOR_BYTES;
        let first = entry.data_sector;
        let beyond = || format!("an entry for sector {first} is not within the array");
        let (strips, strip_sectors, behind) = match parity_sectors {
            0 => (all, data_sectors / all, (all - 1) * chunk + data_sectors / all),
            height if height < chunk => {
                let strips = data_sectors / height;
                (strips, height, strips.saturating_sub(1) * chunk + height)
            }
            height if height == chunk => (all, chunk, data_sectors),
            _ => return Err(format!("an entry for sector {first} is higher than a chunk")),
        };
        let end = first.checked_add(behind).filter(|end| *end <= geometry.array_sectors());
        let end = end.ok_or_else(beyond)?;
        let exact = match parity_sectors {
            height if height == chunk => data_sectors <= all * chunk,
            _ => strips * strip_sectors == data_sectors,
        };
        let possible = (1..=all).contains(&strips) && (1..=chunk).contains(&strip_sectors);
        if !possible || !exact {
            return Err(format!("an entry for sector {first} has no possible shape"));
        }
        let whole = first.is_multiple_of(8) && end.is_multiple_of(8);
        let step = if whole && strip_sectors.is_multiple_of(8) { 8 } else { 1 };
        Ok(Self { first, end, strips, strip_sectors, step })
    }

    /// Where the strips lie that change so many sectors behind the first. They are in one row.
    fn strips(&self, at: u64, geometry: &Geometry) -> Result<Vec<Strip>, String> {
        let chunk = u64::from(geometry.chunk_sectors());
        let sectors = (0..self.strips).map(|strip| self.first + at + strip * chunk);
        let strips: Vec<Strip> =
            sectors.filter(|sector| *sector < self.end).map(|s| geometry.copy(s, 0)).collect();
        let one_row = strips.windows(2).all(|pair| pair[0].sector == pair[1].sector);
        if !one_row {
            return Err(format!("an entry for sector {} leaves its stripe", self.first));
        }
        Ok(strips)
    }
}
