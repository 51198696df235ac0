//! The front of a reshape, where the two maps meet, found by the data.
//!
//! The position in the superblocks may be older than what has been moved. In the run that begins a
//! reshape, md's kernel takes the data to begin at the same place in both maps (`min_offset_diff`
//! in `raid5.c`), and writes the position down too seldom: where the number of data disks stays the
//! same, and in the first stripes where it grows, the old copy may be gone by then, also after a
//! clean stop.
//!
//! Parity does not tell: a row of chunks fits its parity in one map as in the other. But the data
//! that were moved last are there twice. For a distance before the front, as long as the data begin
//! apart in the two maps, both give the same data: the old copies have not been written over yet.
//! Before that, and behind the front, one of them gives what lies there by the other map.

use std::ops::Range;

use super::super::{Config, Standing};
use super::{Halfway, Numbers};
use crate::format::reshaped::Side;
use crate::geometry::Strip;
use crate::refusal::{Invocation, Next};
use crate::{Refusal, SECTOR_BYTES};

/// Reads so many bytes from a sector of a device on; `None` where they cannot be read.
pub type ReadMember<'a> = dyn FnMut(&str, u64, usize) -> Option<Vec<u8>> + 'a;

/// Sectors that are compared at once.
pub(super) const PART_SECTORS: u64 = 128;

/// The number of units behind the position that are looked at: with the usual chunks more than md
/// moves in the ten seconds between two positions.
const MOST_UNITS: u64 = 1 << 16;

/// Comparison of the two maps for a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnitComparison {
    /// The same.
    Twice,
    /// The same, but so would much else: sectors that are all alike.
    Bland,
    /// Hidden: members that would tell are missing.
    Hidden,
    /// Not the same.
    Once,
}

/// The place where the reshape stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Front {
    /// The data that were moved last are there twice.
    Seen(u64),
    /// The place that the superblocks tell, as far as can be seen.
    Unseen,
}

impl Halfway {
    /// Returns whether the data may have been moved beyond the position that the superblocks tell.
    /// Where they begin at the same place in both maps nothing is there twice, unless the data
    /// disks change.
    pub(super) fn may_be_stale(&self) -> bool {
        self.numbers.is_by_stripe()
            && (self.shifts || !self.numbers.is_in_place())
            && self.front <= self.numbers.critical_sectors()
    }

    /// Compares what both maps give where the position may be stale, and takes for true what that
    /// tells. Returns what is to be said of it.
    ///
    /// # Errors
    /// When it tells nothing, and `force` was not asked for.
    pub fn look(&mut self, read: &mut ReadMember<'_>) -> Result<Option<String>, Refusal> {
        if self.is_stated {
            return Ok(None);
        }
        if self.is_of_braid() {
            self.is_sure = true;
            return Ok(None);
        }
        if self.has_code() {
            self.code = self.by_code(read);
            return Ok(None);
        }
        if !self.may_be_stale() {
            return Ok(None);
        }
        let told = self.front;
        let found = self.search(read);
        self.is_sure = matches!(found, Some(Front::Seen(_)));
        match found {
            Some(Front::Unseen) => Ok(None),
            Some(Front::Seen(front)) if front == told => Ok(None),
            Some(Front::Seen(front)) => {
                self.front = front;
                // There md has a backup restored, or waits for one.
                if !self.shifts {
                    return Ok(None);
                }
                Ok(Some(format!(
                    "the superblocks say that sector {told} was reached, the data say {front}; md \
                     would go on from the wrong place and lose what lies between"
                )))
            }
            // There the backup holds what is in doubt.
            None if !self.shifts => Ok(None),
            None if self.force => Ok(Some(format!(
                "the position in the superblocks, sector {told}, is older than what has been \
                 moved, and is taken for where the reshape stopped all the same"
            ))),
            None => Err(self.in_doubt()),
        }
    }

    fn in_doubt(&self) -> Refusal {
        let reason = format!(
            "{}: the position in the superblocks is older than what has been moved, and these \
             members do not tell how far that is",
            self.description()
        );
        let advice = "find the missing members, say by --reshape-position SECTOR where it \
                      stopped, or take the superblocks' position for true";
        Refusal::new(reason, self.by_force(advice))
    }

    pub(super) fn by_force(&self, advice: &'static str) -> Next {
        let configs = [&self.old, &self.new].into_iter().filter_map(|one| one.as_deref().ok());
        let members = configs.flat_map(|config| &config.members);
        let mut devices: Vec<String> = members.map(|member| member.device.clone()).collect();
        devices.sort_unstable();
        devices.dedup();
        Next::by(advice, Invocation::Cat { force: true, devices })
    }

    /// Returns how many units behind the position are looked at. Where other disks hold data, md
    /// writes the position down as soon as it is out of the first stripes.
    fn most_units(&self) -> u64 {
        let critical = self.numbers.critical_sectors();
        if self.shifts { MOST_UNITS } else { critical / self.numbers.unit() + 4 }
    }

    /// Searches for the place where the reshape stopped, if that can be told.
    fn search(&self, read: &mut ReadMember<'_>) -> Option<Front> {
        let told = self.front;
        let mut maps = Maps::of(self, read)?;
        let fallback = match maps.is_kept_before(told) {
            UnitComparison::Twice => return maps.run_end(told).map(Front::Seen),
            UnitComparison::Bland => Some(Front::Unseen),
            UnitComparison::Once | UnitComparison::Hidden => None,
        };
        let mut at = told;
        let mut all_tell = maps.kept(told).next().is_none();
        // Ends of what says the same in both maps and is all alike.
        let mut ends = Vec::new();
        let mut is_alike = false;
        let mut is_hidden = false;
        for _ in 0..self.most_units() {
            let Some(unit) = self.numbers.next_unit(at) else { break };
            let found = maps.compare(&unit);
            if is_alike && found == UnitComparison::Once {
                ends.push(at);
            }
            is_alike = found == UnitComparison::Bland;
            is_hidden |= found == UnitComparison::Hidden;
            at = self.numbers.beyond(&unit);
            match found {
                UnitComparison::Twice => {
                    let front = maps.run_end(at)?;
                    return maps.is_all_kept(front, told).then_some(Front::Seen(front));
                }
                UnitComparison::Bland | UnitComparison::Hidden => all_tell = false,
                UnitComparison::Once => {}
            }
        }
        ends.extend(is_alike.then_some(at));
        // Where other disks hold data, all that were looked at would be there twice otherwise.
        if all_tell && !self.shifts {
            return Some(Front::Seen(told));
        }
        if fallback.is_some() || is_hidden || !self.shifts {
            return fallback;
        }
        // It stopped in one of these, and where in it is all the same.
        ends.retain(|end| maps.is_all_kept(*end, told));
        <[u64; 1]>::try_from(ends).ok().map(|[end]| Front::Seen(end))
    }
}

impl Numbers {
    /// The unit that is moved after this sector was reached.
    pub(super) fn next_unit(&self, at: u64) -> Option<Range<u64>> {
        let unit = self.unit();
        let size = self.size_sectors();
        let range = if self.backwards {
            at.checked_sub(1)? / unit * unit..at
        } else {
            at..at.checked_add(unit)?.min(size)
        };
        (!range.is_empty()).then_some(range)
    }

    /// The unit that was moved before this sector was reached.
    pub(super) fn last_unit(&self, at: u64) -> Option<Range<u64>> {
        let unit = self.unit();
        let size = self.size_sectors();
        let range = if self.backwards {
            at..at.checked_add(unit)?.min(size)
        } else {
            at.checked_sub(1)? / unit * unit..at
        };
        (!range.is_empty()).then_some(range)
    }

    pub(super) const fn beyond(&self, unit: &Range<u64>) -> u64 {
        if self.backwards { unit.start } else { unit.end }
    }

    /// Returns whether all of these sectors were still where the old map has them when the front
    /// was there. The data begin so many sectors apart in the two maps.
    fn is_kept(&self, unit: &Range<u64>, front: u64, shift: u64) -> bool {
        let on_member = |sector: u64, map: &crate::geometry::Geometry| {
            let stripe = u64::from(map.chunk_sectors()) * u64::from(map.data_disks());
            (sector / stripe * u64::from(map.chunk_sectors()), stripe)
        };
        let new_chunk = u64::from(self.new.chunk_sectors());
        if self.backwards {
            // All at or behind this was written over.
            let written = on_member(front, &self.new).0.saturating_add(shift);
            let (last, _) = on_member(unit.end - 1, &self.old);
            last + u64::from(self.old.chunk_sectors()) <= written
        } else {
            let (start, stripe) = on_member(front, &self.new);
            let end = if front.is_multiple_of(stripe) { start } else { start + new_chunk };
            on_member(unit.start, &self.old).0 >= end.saturating_sub(shift)
        }
    }
}

/// Both maps, to be read.
pub(super) struct Maps<'a, 'r> {
    pub(super) numbers: &'a Numbers,
    pub(super) old: &'a Config,
    pub(super) new: &'a Config,
    pub(super) read: &'a mut ReadMember<'r>,
}

impl<'a, 'r> Maps<'a, 'r> {
    /// Returns both maps, if both can be read.
    pub(super) fn of(halfway: &'a Halfway, read: &'a mut ReadMember<'r>) -> Option<Self> {
        let old = halfway.old.as_deref().ok()?;
        let new = halfway.new.as_deref().ok()?;
        Some(Self { numbers: &halfway.numbers, old, new, read })
    }
}

impl Maps<'_, '_> {
    /// The units that were moved before the front was there and had not been written over then, the
    /// last one first.
    fn kept(&self, front: u64) -> impl Iterator<Item = Range<u64>> + use<> {
        let numbers = self.numbers.clone();
        let shift = self.shift();
        let mut at = front;
        std::iter::from_fn(move || {
            let unit = numbers.last_unit(at).filter(|unit| numbers.is_kept(unit, front, shift))?;
            at = if numbers.backwards { unit.end } else { unit.start };
            Some(unit)
        })
        .take(MOST_UNITS as usize)
    }

    /// Looks whether the front was here when the array stopped, or not much further. Programs may
    /// have written to what had been moved, and so to the new map alone.
    fn is_kept_before(&mut self, front: u64) -> UnitComparison {
        let mut found = UnitComparison::Bland;
        for unit in self.kept(front) {
            match self.compare(&unit) {
                UnitComparison::Twice => return UnitComparison::Twice,
                UnitComparison::Once | UnitComparison::Hidden => found = UnitComparison::Once,
                UnitComparison::Bland => {}
            }
        }
        found
    }

    /// Returns whether all is there twice that has to be if the front was here. Beyond the position
    /// that was told, programs had to wait.
    fn is_all_kept(&mut self, front: u64, told: u64) -> bool {
        let backwards = self.numbers.backwards;
        let beyond = |unit: &Range<u64>| {
            if backwards { unit.end <= told } else { unit.start >= told }
        };
        let mut kept = self.kept(front).take_while(beyond);
        kept.all(|unit| self.compare(&unit) != UnitComparison::Once)
    }

    /// The end of what is there twice from here on, if that can be told.
    fn run_end(&mut self, from: u64) -> Option<u64> {
        let mut at = from;
        while let Some(unit) = self.numbers.next_unit(at) {
            match self.compare(&unit) {
                UnitComparison::Once => break,
                UnitComparison::Hidden => return None,
                UnitComparison::Twice | UnitComparison::Bland => {}
            }
            at = self.numbers.beyond(&unit);
        }
        Some(at)
    }

    /// Returns how far apart the data begin in the two maps, where that is least.
    fn shift(&self) -> u64 {
        let shifts = self.old.members.iter().filter_map(|old| {
            let mut news = self.new.members.iter();
            let new = news.find(|new| new.device == old.device)?;
            Some(old.superblock.data_offset.abs_diff(new.superblock.data_offset))
        });
        shifts.min().unwrap_or(0)
    }

    /// Compares what both maps give here, as far as members are there.
    pub(super) fn compare(&mut self, range: &Range<u64>) -> UnitComparison {
        let mut found = UnitComparison::Bland;
        let mut hidden = false;
        let mut at = range.start;
        while at < range.end {
            let run = self.numbers.old.run(at).min(self.numbers.new.run(at));
            let sectors = run.min(range.end - at).clamp(1, PART_SECTORS);
            let old = self.data(Side::Old, at, sectors);
            let new = self.data(Side::New, at, sectors);
            if let (Some(old), Some(new)) = (old, new) {
                if old != new {
                    return UnitComparison::Once;
                }
                if tells(&old) {
                    found = UnitComparison::Twice;
                }
            } else {
                hidden = true;
            }
            at += sectors;
        }
        if hidden && found == UnitComparison::Bland { UnitComparison::Hidden } else { found }
    }

    /// Sectors of the array, by this map; not beyond the chunk.
    pub(super) fn data(&mut self, side: Side, at: u64, sectors: u64) -> Option<Vec<u8>> {
        let map = self.numbers.map(side);
        if at >= map.array_sectors() {
            return None;
        }
        self.strip(side, map.copy(at, 0), sectors)
    }

    /// Reads a strip from the member of its role.
    pub(super) fn strip(&mut self, side: Side, strip: Strip, sectors: u64) -> Option<Vec<u8>> {
        let Strip { role, sector } = strip;
        let config = if side == Side::Old { self.old } else { self.new };
        let holds = |standing| match standing {
            Standing::InSync { role: held } => held == role,
            Standing::Rebuilding { role: held, offset, replacement: false, .. } => {
                held == role && sector + sectors <= offset
            }
            _ => false,
        };
        let member = config.members.iter().find(|member| holds(member.standing))?;
        let place = member.superblock.data_offset + sector;
        if member.bad_blocks.overlaps(place, sectors) {
            return None;
        }
        (self.read)(&member.device, place, (sectors * SECTOR_BYTES) as usize)
    }
}

/// Returns whether some sector of these is unlike another one. Blank space, and space filled with
/// one pattern, looks the same wherever it is read.
fn tells(bytes: &[u8]) -> bool {
    let mut sectors = bytes.chunks(SECTOR_BYTES as usize);
    let first = sectors.next();
    sectors.any(|sector| Some(sector) != first)
}
