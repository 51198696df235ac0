//! Reading partial parity logs, by the rules of the kernel's `raid5-ppl.c`.
//!
//! Only the last unit of a log counts: when it was recorded, all of the one before was in place and
//! durable. Its partial parity and the strips that changed, as they are now, make the parity,
//! whatever of them had arrived.
//!
//! In two cases the kernel asks for a resync where there is nothing to bring in place, and an array
//! that is degraded could not have one: a unit at the start of the area, or its partial parity,
//! that is not whole. Such a unit was being recorded; nothing of it had been written. But since it
//! may be damaged, too, with all members there a resync follows here as well.

use super::{MAX_READ_BYTES, ReadSectors};
use crate::Role;
use crate::SECTOR_BYTES;
use crate::format::ppl::{HEADER_BYTES, PplArea, PplEntry, PplError, PplHeader};
use crate::geometry::{Geometry, Strip};

/// A header in sectors.
const HEADER_SECTORS: u64 = HEADER_BYTES as u64 / SECTOR_BYTES;

/// Findings in the log of one member.
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
    /// A unit was recorded completely and says what cannot be. Since it may tell of later writes
    /// than the ones before it, none of them counts.
    pub impossible: bool,
}

impl PplScan {
    /// Reads the log of a member.
    ///
    /// # Errors
    /// The reason why it cannot be read.
    pub fn read(
        area: PplArea,
        set_uuid: [u8; 16],
        read: &mut ReadSectors<'_>,
    ) -> Result<Self, String> {
        let (last, end) = {
            let mut read = |sector, bytes| read(sector, bytes);
            let mut units = Units::new(area, set_uuid, &mut read);
            let mut last = None;
            while let Some(unit) = units.next_unit()? {
                if unit.standing == UnitStanding::Counts {
                    last = Some(unit);
                    break;
                }
            }
            (last, units.end())
        };
        if end.is_some_and(|(_, end)| end.is_impossible()) {
            let generation = latest_anywhere(area, set_uuid, read)?.unwrap_or(0);
            return Ok(Self { generation, impossible: true, ..Self::default() });
        }
        let Some(PplUnit { at, header: last, .. }) = last else {
            let foreign = matches!(end, Some((_, PplEnd::NoHeader(PplError::Foreign))));
            let latest = latest_anywhere(area, set_uuid, read)?;
            // Where each unit begins at the start, what lies elsewhere says nothing of it.
            let torn = latest.is_some() && !foreign && area.is_ring;
            let generation = latest.map_or(0, |latest| latest.saturating_add(1));
            return Ok(Self { generation, torn, blank: !torn, ..Self::default() });
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

/// The standing of a unit in a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitStanding {
    /// A later one follows: what it tells of is in place.
    Replaced,
    /// The unit is the last one.
    Counts,
    /// The unit is from an earlier round through the area.
    Older,
}

/// A unit of a log, as it is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PplUnit {
    /// Start of the unit, in sectors from the start of the area.
    pub at: u64,
    /// Its header.
    pub header: PplHeader,
    /// Standing in a recovery.
    pub standing: UnitStanding,
}

/// The reason why no further unit follows: the fault of what would be the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PplEnd {
    /// The area has no room for another header.
    #[error("the area ends")]
    Full,
    /// The area has room for one alone.
    #[error("the area is no ring: each unit begins at its start")]
    NoRing,
    /// The bytes are no header.
    #[error(transparent)]
    NoHeader(#[from] PplError),
    /// The unit is longer than what is left of the area.
    #[error("its partial parity does not fit into the area")]
    TooLong,
}

impl PplEnd {
    /// Returns whether the unit was recorded completely, and says what cannot be. Such a unit may
    /// tell of later writes than those before it.
    const fn is_impossible(self) -> bool {
        match self {
            Self::NoHeader(error) => error.is_whole(),
            Self::TooLong => true,
            Self::Full | Self::NoRing => false,
        }
    }
}

/// The units of a log that follow one another from the start of its area on.
pub struct Units<'a> {
    area: PplArea,
    set_uuid: [u8; 16],
    read: &'a mut ReadSectors<'a>,
    state: UnitsState,
    end: Option<(u64, PplEnd)>,
}

enum UnitsState {
    /// Nothing was read.
    New,
    /// This one is next. `counted`: the unit that counts was before it.
    At { at: u64, header: PplHeader, counted: bool },
    /// There are no more.
    Over,
}

impl<'a> Units<'a> {
    /// Begins at the start of the area.
    pub fn new(area: PplArea, set_uuid: [u8; 16], read: &'a mut ReadSectors<'a>) -> Self {
        Self { area, set_uuid, read, state: UnitsState::New, end: None }
    }

    /// Returns the next unit; `None` where they [end](Self::end).
    ///
    /// # Errors
    /// The reason why the device cannot be read.
    pub fn next_unit(&mut self) -> Result<Option<PplUnit>, String> {
        let state = std::mem::replace(&mut self.state, UnitsState::Over);
        let (at, header, counted) = match state {
            UnitsState::New => match self.header(0)? {
                Some(header) => (0, header, false),
                None => return Ok(None),
            },
            UnitsState::At { at, header, counted } => (at, header, counted),
            UnitsState::Over => return Ok(None),
        };
        let behind = at + header.unit_bytes() / SECTOR_BYTES;
        let next = self.header(behind)?;
        // Generations never become less.
        let follows = |next: &PplHeader| {
            next.generation >= header.generation || crate::broken("generation-check")
        };
        let replaced = next.as_ref().is_some_and(follows);
        let standing = match (counted, replaced) {
            (true, _) => UnitStanding::Older,
            (false, true) => UnitStanding::Replaced,
            (false, false) => UnitStanding::Counts,
        };
        if let Some(header) = next {
            let counted = standing != UnitStanding::Replaced;
            self.state = UnitsState::At { at: behind, header, counted };
        }
        Ok(Some(PplUnit { at, header, standing }))
    }

    /// Returns where the units end and why, once they do: in sectors from the start of the area.
    #[must_use]
    pub const fn end(&self) -> Option<(u64, PplEnd)> {
        self.end
    }

    /// Checks the partial parity of each entry of a unit: true where it is as it was recorded, or
    /// where there is none.
    ///
    /// # Errors
    /// The reason why the device cannot be read.
    pub fn whole_entries(&mut self, unit: &PplUnit) -> Result<Vec<bool>, String> {
        let mut sector = self.area.sector + unit.at + HEADER_SECTORS;
        let mut whole = Vec::with_capacity(unit.header.entries.len());
        for entry in &unit.header.entries {
            let end = sector + u64::from(entry.pp_bytes) / SECTOR_BYTES;
            let mut sum = 0;
            while sector < end {
                let bytes = ((end - sector) * SECTOR_BYTES).min(MAX_READ_BYTES.into()) as u32;
                sum = crc32c::crc32c_append(sum, &(self.read)(sector, bytes)?);
                sector += u64::from(bytes) / SECTOR_BYTES;
            }
            whole.push(entry.pp_bytes == 0 || sum == entry.checksum);
        }
        Ok(whole)
    }

    /// The header of the unit that begins here; without one, the units end.
    fn header(&mut self, at: u64) -> Result<Option<PplHeader>, String> {
        let PplArea { sector, sectors, is_ring } = self.area;
        let end = if at + HEADER_SECTORS > sectors {
            PplEnd::Full
        } else if at > 0 && !is_ring {
            PplEnd::NoRing
        } else {
            let bytes = (self.read)(sector + at, HEADER_BYTES)?;
            match PplHeader::decode(&bytes, self.set_uuid) {
                Ok(header) if at + header.unit_bytes() / SECTOR_BYTES > sectors => PplEnd::TooLong,
                Ok(header) => return Ok(Some(header)),
                Err(error) => error.into(),
            }
        };
        self.end = Some((at, end));
        Ok(None)
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

/// The latest generation of any unit, wherever in the area it begins.
fn latest_anywhere(
    area: PplArea,
    set_uuid: [u8; 16],
    read: &mut ReadSectors<'_>,
) -> Result<Option<u64>, String> {
    let mut latest = None;
    for number in 0..area.sectors / HEADER_SECTORS {
        let bytes = read(area.sector + number * HEADER_SECTORS, HEADER_BYTES)?;
        let found = PplHeader::decode(&bytes, set_uuid).ok();
        latest = latest.max(found.map(|found| found.generation));
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
    pub parity: Role,
    /// The roles whose strips changed.
    pub data: Vec<Role>,
    /// The first of the rows, a sector of the members' data areas.
    pub row: u64,
    /// Number of sectors.
    pub sectors: u32,
    /// Sum of the strips that did not change; empty where all changed.
    pub partial_parity: Vec<u8>,
}

/// Returns the parity that is to be made anew by the entry of a log. `held`: how many rows of a
/// role are there, from the first on. Rows are left out where a strip that changed is not there:
/// its content was being written, and nobody else tells it.
///
/// # Errors
/// When the entry does not fit the array: the reason, for people.
pub fn fixes(
    entry: &PplEntry,
    partial_parity: &[u8],
    geometry: &Geometry,
    held: &dyn Fn(Role) -> u64,
) -> Result<Vec<PplFix>, String> {
    let shape = EntryShape::of(entry, geometry)?;
    let mut fixes: Vec<PplFix> = Vec::new();
    let step = shape.step;
    for at in (0..shape.strip_sectors).step_by(step as usize) {
        let strips = shape.strips(at, geometry)?;
        let Some(first) = strips.first() else { continue };
        let row = first.sector;
        let parity = parity_role(entry, row, geometry)?;
        let data: Vec<Role> = strips.iter().map(|strip| strip.role).collect();
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

/// The role that holds the parity of this row, which an entry must say.
fn parity_role(entry: &PplEntry, row: u64, geometry: &Geometry) -> Result<Role, String> {
    let (parity, _) = geometry.parity_roles(row / u64::from(geometry.chunk_sectors()));
    if u32::from(parity.0) == entry.parity_disk {
        return Ok(parity);
    }
    let PplEntry { data_sector, parity_disk, .. } = entry;
    Err(format!(
        "an entry for sector {data_sector} has role {parity_disk} hold the parity, which role \
         {parity} does"
    ))
}

/// Rows that an entry tells of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryRows {
    /// The first of them, a sector of the members' data areas.
    pub row: u64,
    /// Number of sectors.
    pub sectors: u64,
    /// The roles whose strips change in the first row.
    pub data: Vec<Role>,
}

impl EntryRows {
    /// Returns the rows of this entry.
    ///
    /// # Errors
    /// When the entry does not fit the array: the reason, for people.
    pub fn of(entry: &PplEntry, geometry: &Geometry) -> Result<Self, String> {
        let shape = EntryShape::of(entry, geometry)?;
        let strips = shape.strips(0, geometry)?;
        let row = strips.first().map_or(0, |strip| strip.sector);
        parity_role(entry, row, geometry)?;
        let data = strips.into_iter().map(|strip| strip.role).collect();
        Ok(Self { row, sectors: shape.strip_sectors, data })
    }
}

impl PplFix {
    /// Returns whether more rows fit behind it. No fix is higher than a unit of other work.
    fn continues_at(&self, row: u64) -> bool {
        let end = self.row + u64::from(self.sectors);
        end == row && !end.is_multiple_of(FIX_SECTORS)
    }
}

/// The shape of an entry, as the kernel reads it.
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

    /// Returns where the strips lie that change so many sectors behind the first. All of them are
    /// in one row.
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
