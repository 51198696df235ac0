//! The moved part of an array, by the parity of level 6.
//!
//! Where the data begin at the same place in both maps, and as many disks hold them, each unit lies
//! on the same sectors of the members before and after it is moved. P and Q are computed from other
//! members in the new map, so rows that were not moved have neither of them right, but for those of
//! which P and Q lie on the same members in both maps. This needs all members of the new map.
//!
//! Since md writes several units at once, some of them may be half written when the power goes off,
//! and others behind these are whole.

use std::ops::Range;

use super::Halfway;
use super::front::{Maps, PART_SECTORS, ReadMember};
use crate::assemble::Standing;
use crate::format::reshaped::Side;
use crate::geometry::{Geometry, Strip};
use crate::{Role, SECTOR_BYTES};

/// md writes no more of a member at once: mdadm has its cache of stripes hold one backup, which is
/// not larger.
const MOST_AT_ONCE_SECTORS: u64 = 16 << 11;

/// Size of the blocks that are compared with parity, row by row.
pub(super) const BLOCK_SECTORS: u64 = 8;

/// The moved ranges, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Code {
    /// Ranges behind the front that were moved all the same.
    pub(super) moved: Vec<Range<u64>>,
    /// Ranges that were being written.
    pub(super) torn: Vec<Range<u64>>,
}

impl Code {
    /// Returns whether this was moved, although it is behind the front.
    pub(super) fn is_moved(&self, sector: u64) -> bool {
        let behind = self.moved.partition_point(|range| range.start <= sector);
        self.moved[..behind].last().is_some_and(|range| range.contains(&sector))
    }
}

/// Adds a range behind the others.
fn push(ranges: &mut Vec<Range<u64>>, range: Range<u64>) {
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}

/// The part of a unit that has been moved.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MovedUnit {
    All,
    Some,
    None,
    /// All zero: as good as moved, and says nothing.
    Blank,
    /// P and Q are right in both maps.
    Either,
}

/// Blocks of a stripe of the new map: as many rows as there are blocks in a strip.
pub(super) struct CodePart {
    /// Array sector and content of each data strip.
    pub(super) data: Vec<(u64, Vec<u8>)>,
    /// A bit for each row in which P and Q are right.
    right: u64,
    /// A bit for each row of zeroes.
    blank: u64,
    /// A bit for each row that has P and Q on the same members in both maps.
    either: u64,
    /// Sector of its place on the members, counted from where the data begin.
    sector: u64,
}

impl CodePart {
    /// Returns whether this row has been moved.
    pub(super) const fn is_moved(&self, row: usize) -> bool {
        self.right & !self.blank & !self.either & 1 << row != 0
    }
}

impl Halfway {
    /// Returns whether parity tells what has been moved. Nothing else does.
    pub(super) fn has_code(&self) -> bool {
        self.numbers.new.parity_disks() == 2
            && self.numbers.is_in_place()
            && !self.shifts
            && !self.numbers.backwards
    }

    /// Finds by parity what has been moved, beginning at the position. The position then becomes
    /// the first unit that was not moved. `None` where members are missing.
    pub(super) fn by_code(&mut self, read: &mut ReadMember<'_>) -> Option<Code> {
        let mut maps = Maps::of(self, read)?;
        let mut front = self.front;
        let mut at = front;
        while let Some(unit) = self.numbers.next_unit(at) {
            at = unit.end;
            match maps.moved(&unit)? {
                MovedUnit::All | MovedUnit::Blank => front = at,
                // If a later one was moved, so was this.
                MovedUnit::Either => {}
                MovedUnit::Some | MovedUnit::None => break,
            }
        }
        let mut units = Vec::new();
        let chunk = self.numbers.unit() / u64::from(self.numbers.new.data_disks());
        let mut at = front;
        for _ in 0..=MOST_AT_ONCE_SECTORS / chunk {
            let Some(unit) = self.numbers.next_unit(at) else { break };
            at = unit.end;
            units.push((maps.moved(&unit)?, unit));
        }
        // Behind the last that was begun is the one that may just have been.
        let is_begun = |(moved, _): &(MovedUnit, Range<u64>)| {
            matches!(moved, MovedUnit::All | MovedUnit::Some)
        };
        let begun = units.iter().rposition(is_begun).map_or(0, |last| last + 1);
        let is_not = |(moved, _): &(MovedUnit, Range<u64>)| *moved == MovedUnit::None;
        let last = units[begun..].iter().position(is_not).unwrap_or(0);
        let mut code = Code::default();
        for (moved, unit) in units.into_iter().take(begun + last + 1) {
            match moved {
                MovedUnit::All => push(&mut code.moved, unit),
                MovedUnit::Either => push(&mut code.torn, unit),
                MovedUnit::Some | MovedUnit::None => maps.divide(&unit, &mut code),
                MovedUnit::Blank => {}
            }
        }
        self.front = front;
        Some(code)
    }
}

impl Maps<'_, '_> {
    /// Returns how much of this unit has been moved.
    fn moved(&mut self, unit: &Range<u64>) -> Option<MovedUnit> {
        let mut right = false;
        let mut wrong = false;
        let mut either = false;
        self.parts(unit, &mut |part| {
            let told = part.rows() & !part.blank;
            right |= told & part.right & !part.either != 0;
            wrong |= told & !part.right != 0;
            either |= told & part.right & part.either != 0;
        })?;
        Some(match (right, wrong) {
            (true, false) => MovedUnit::All,
            (true, true) => MovedUnit::Some,
            (false, true) => MovedUnit::None,
            (false, false) if either => MovedUnit::Either,
            (false, false) => MovedUnit::Blank,
        })
    }

    /// Adds what of a unit was moved, and what was being written. With the same chunks a row holds
    /// the same data in both maps, so each is by itself; otherwise the old rows that others were
    /// written over are lost with them.
    fn divide(&mut self, unit: &Range<u64>, code: &mut Code) {
        let mut parts = Vec::new();
        let _ = self.parts(unit, &mut |part| {
            let starts: Vec<u64> = part.data.iter().map(|(at, _)| *at).collect();
            let moved = part.right & !part.blank & !part.either;
            parts.push((part.sector, part.rows(), part.right, moved, starts));
        });
        let has_rows = self.numbers.old.chunk_sectors() == self.numbers.new.chunk_sectors();
        let mut rows = Vec::new();
        let mut moved = false;
        let mut torn = false;
        for (sector, bits, right, is_begun, starts) in parts {
            for row in (0..u64::from(u64::BITS)).filter(|row| bits & 1 << row != 0) {
                let at = row * BLOCK_SECTORS;
                let is_moved = right & 1 << row != 0;
                let is_torn = !is_moved && self.is_of_old(sector + at) == Some(false);
                moved |= is_begun & 1 << row != 0;
                torn |= is_torn;
                if has_rows && (is_moved || is_torn) {
                    let starts = starts.iter().map(|start| start + at);
                    rows.extend(starts.map(|start| (start..start + BLOCK_SECTORS, is_torn)));
                }
            }
        }
        rows.sort_unstable_by_key(|(range, _)| range.start);
        if has_rows {
            for (range, is_torn) in rows {
                push(if is_torn { &mut code.torn } else { &mut code.moved }, range);
            }
        } else if moved || torn {
            push(&mut code.torn, unit.clone());
        }
    }

    /// Returns whether a row has P as the old map has it. Its Q may never have been written.
    fn is_of_old(&mut self, sector: u64) -> Option<bool> {
        let map = &self.numbers.old;
        let (_, q) = map.parity_roles(sector / u64::from(map.chunk_sectors()));
        let disks = u16::try_from(map.raid_disks()).ok()?;
        let mut sum = vec![0; BLOCK_BYTES];
        for role in Role::all(disks).filter(|role| Some(*role) != q) {
            let strip = self.strip(Side::Old, Strip { role, sector }, BLOCK_SECTORS)?;
            braid_parity::xor_into(&mut sum, &[&strip]);
        }
        Some(sum.iter().all(|byte| *byte == 0))
    }

    /// Returns whether this row has P and Q on the same members in both maps, so that they are
    /// right in both.
    fn is_either(&self, sector: u64) -> bool {
        let old = &self.numbers.old;
        let new = &self.numbers.new;
        let old_stripe = sector / u64::from(old.chunk_sectors());
        let new_stripe = sector / u64::from(new.chunk_sectors());
        let roles = old.parity_roles(old_stripe);
        let Some(q) = roles.1 else { return false };
        let is_held = |standing| standing == Standing::InSync { role: q };
        let coef = |map: &Geometry, stripe, role| {
            map.data_index(stripe, role).map(|index| map.q_coef(stripe, index))
        };
        let disks = u16::try_from(new.raid_disks()).unwrap_or(u16::MAX);
        roles == new.parity_roles(new_stripe)
            && self.old.members.iter().any(|member| is_held(member.standing))
            && Role::all(disks)
                .all(|role| coef(old, old_stripe, role) == coef(new, new_stripe, role))
    }

    /// The stripes of the new map in this range of the array, in parts; `None` where one of them
    /// cannot be read.
    pub(super) fn parts(
        &mut self,
        range: &Range<u64>,
        each: &mut dyn FnMut(&CodePart),
    ) -> Option<()> {
        let chunk = u64::from(self.numbers.new.chunk_sectors());
        let stripe_sectors = chunk * u64::from(self.numbers.new.data_disks());
        let mut at = range.start / stripe_sectors * chunk;
        let end = range.end.div_ceil(stripe_sectors) * chunk;
        while at < end {
            let sectors = (chunk - at % chunk).min(PART_SECTORS);
            each(&self.part(at / chunk, at % chunk, sectors)?);
            at += sectors;
        }
        Some(())
    }

    fn part(&mut self, stripe: u64, offset: u64, sectors: u64) -> Option<CodePart> {
        let map = &self.numbers.new;
        let chunk = u64::from(map.chunk_sectors());
        let sector = stripe * chunk + offset;
        let (p, q) = map.parity_roles(stripe);
        let mut strip = |role| self.strip(Side::New, Strip { role, sector }, sectors);
        let p = strip(p)?;
        let q = strip(q?)?;
        let mut data = Vec::new();
        let mut coefs = Vec::new();
        for index in 0..map.data_disks() {
            let at = (stripe * u64::from(map.data_disks()) + u64::from(index)) * chunk + offset;
            data.push((at, strip(map.data_role(stripe, index))?));
            coefs.push(map.q_coef(stripe, index));
        }
        let strips: Vec<&[u8]> = data.iter().map(|(_, strip)| strip.as_slice()).collect();
        let checked = braid_parity::check(&strips, &coefs, &p, Some(&q));
        let is_blank = |row: usize| {
            let mut all = strips.iter().copied().chain([&p[..], &q[..]]);
            all.all(|strip| block(strip, row).iter().all(|byte| *byte == 0))
        };
        let rows = sectors.div_ceil(BLOCK_SECTORS) as usize;
        let blank = (0..rows).filter(|row| is_blank(*row)).map(|row| 1 << row).sum();
        let either = (0..rows as u64).filter(|row| self.is_either(sector + row * BLOCK_SECTORS));
        let either = either.map(|row| 1 << row).sum();
        Some(CodePart {
            either,
            data,
            right: !(checked.p_differs | checked.q_differs),
            blank,
            sector,
        })
    }
}

impl CodePart {
    /// A bit for each row.
    fn rows(&self) -> u64 {
        let rows = self.data.first().map_or(0, |(_, strip)| strip.chunks(BLOCK_BYTES).len());
        u64::MAX.checked_shr(64 - rows as u32).unwrap_or(0)
    }
}

const BLOCK_BYTES: usize = (BLOCK_SECTORS * SECTOR_BYTES) as usize;

/// A block of a strip.
pub(super) fn block(strip: &[u8], row: usize) -> &[u8] {
    strip.chunks(BLOCK_BYTES).nth(row).unwrap_or(&[])
}
