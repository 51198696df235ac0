//! What was written to an array and what of it was flushed, and so what each sector may hold after
//! a power cut.
//!
//! A sector may hold any write to it, answered or not, unless one that came later is durable: a
//! write is durable once it was answered with FUA, or before a flush began that was answered. Where
//! one write only is left, nobody was writing: the sector is *idle*, and must hold that.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::dice::Dice;
use super::disk::SECTOR_BYTES;

/// Sectors of a block of 4 KiB, which md's journal has as a whole or not at all.
pub(super) const BLOCK_SECTORS: u64 = 8;

/// Counts what happens.
type Moment = u64;

/// The number of a write; 0 is the first fill.
type Number = usize;

#[derive(Clone, Debug)]
struct Written {
    sectors: Range<u64>,
    began: Moment,
    answered: Option<Moment>,
    durable: bool,
}

/// The writes to an array.
#[derive(Clone, Debug)]
pub(super) struct History {
    now: Moment,
    writes: Vec<Written>,
}

/// What is not as it may be.
#[derive(Clone, Debug, Default)]
pub(super) struct Verdict {
    /// Sectors of members that are there, idle or not.
    pub(super) there: Vec<u64>,
    /// Idle sectors of lost members.
    pub(super) idle_lost: Vec<u64>,
    /// Sectors of lost members that were being written.
    pub(super) written_lost: Vec<u64>,
    /// Blocks of 4 KiB that hold a part of a write to them.
    pub(super) torn_blocks: Vec<u64>,
    /// Writes of which some sectors are there and others not.
    pub(super) torn_writes: Vec<Number>,
    /// What every sector holds.
    found: Vec<Option<Number>>,
}

impl History {
    /// The whole array was filled, and flushed.
    pub(super) fn of_filled(sectors: u64) -> Self {
        let fill = Written { sectors: 0..sectors, began: 0, answered: Some(0), durable: true };
        Self { now: 0, writes: vec![fill] }
    }

    fn tick(&mut self) -> Moment {
        self.now += 1;
        self.now
    }

    /// A write begins. Its number and what it writes.
    pub(super) fn begin(&mut self, sectors: Range<u64>) -> (Number, Vec<u8>) {
        let number = self.writes.len();
        let data = sectors.clone().flat_map(|sector| stamp(number, sector)).collect();
        let began = self.tick();
        self.writes.push(Written { sectors, began, answered: None, durable: false });
        (number, data)
    }

    /// A write was answered, with FUA or without.
    pub(super) fn answered(&mut self, number: Number, fua: bool) {
        let now = self.tick();
        self.writes[number].answered = Some(now);
        self.writes[number].durable |= fua;
    }

    /// A flush begins.
    pub(super) fn flush(&mut self) -> Moment {
        self.tick()
    }

    /// A flush that began then was answered.
    pub(super) fn flushed(&mut self, began: Moment) {
        for write in &mut self.writes {
            write.durable |= write.answered.is_some_and(|answered| answered < began);
        }
    }

    /// What the array holds now, as long as it was filled only.
    pub(super) fn fill(&self) -> Vec<u8> {
        self.writes[0].sectors.clone().flat_map(|sector| stamp(0, sector)).collect()
    }

    /// Was one over before the other one began?
    fn precedes(&self, one: Number, other: Number) -> bool {
        let answered = self.writes[one].answered;
        answered.is_some_and(|answered| one != other && answered <= self.writes[other].began)
    }

    /// By sector that was written to: the writes that it may hold.
    fn allowed(&self) -> BTreeMap<u64, Vec<Number>> {
        let mut all: BTreeMap<u64, Vec<Number>> = BTreeMap::new();
        for (number, write) in self.writes.iter().enumerate().skip(1) {
            for sector in write.sectors.clone() {
                all.entry(sector).or_insert_with(|| vec![0]).push(number);
            }
        }
        for numbers in all.values_mut() {
            let durable: Vec<Number> =
                numbers.iter().copied().filter(|number| self.writes[*number].durable).collect();
            numbers.retain(|one| !durable.iter().any(|other| self.precedes(*one, *other)));
        }
        all
    }

    /// Compares what the array holds with what it may. Which sectors does a lost member have?
    pub(super) fn judge(&self, content: &[u8], is_lost: &dyn Fn(u64) -> bool) -> Verdict {
        let sectors = content.chunks(SECTOR_BYTES).enumerate();
        let found: Vec<Option<Number>> =
            sectors.map(|(sector, bytes)| self.number(sector as u64, bytes)).collect();
        let allowed = self.allowed();
        let mut verdict = Verdict::default();
        for (sector, found) in (0..).zip(&found) {
            let may = allowed.get(&sector).map_or(&[0][..], Vec::as_slice);
            if found.is_some_and(|number| may.contains(&number)) {
                continue;
            }
            match may {
                _ if !is_lost(sector) => verdict.there.push(sector),
                [_] => verdict.idle_lost.push(sector),
                _ => verdict.written_lost.push(sector),
            }
        }
        for block in 0..found.len() as u64 / BLOCK_SECTORS {
            let sectors = block * BLOCK_SECTORS..(block + 1) * BLOCK_SECTORS;
            if (1..self.writes.len()).any(|number| self.is_torn(number, sectors.clone(), &found)) {
                verdict.torn_blocks.push(block);
            }
        }
        let all = 0..found.len() as u64;
        verdict.torn_writes =
            (1..self.writes.len()).filter(|one| self.is_torn(*one, all.clone(), &found)).collect();
        verdict.found = found;
        verdict
    }

    /// What a sector was found to hold, and what was written to its block; for people.
    pub(super) fn tell(&self, verdict: &Verdict, sector: u64) -> String {
        let told = self.writes.iter().enumerate().skip(1).map(|(number, write)| {
            let Written { sectors, began, answered, durable } = write;
            let durable = if *durable { ", durable" } else { "" };
            format!("{number}: {sectors:?}, began {began}, answered {answered:?}{durable}")
        });
        let block = sector / BLOCK_SECTORS * BLOCK_SECTORS;
        let here = |(_, write): &(String, &Written)| {
            write.sectors.start < block + BLOCK_SECTORS && write.sectors.end > block
        };
        let told: Vec<String> =
            told.zip(&self.writes[1..]).filter(here).map(|(told, _)| told).collect();
        format!("{sector} holds {:?} of [{}]", verdict.found[sector as usize], told.join("; "))
    }

    /// The stripes of so many sectors with writes that were answered.
    pub(super) fn answered_stripes(&self, stripe_sectors: u64) -> BTreeSet<u64> {
        let answered = self.writes[1..].iter().filter(|write| write.answered.is_some());
        let stripes =
            |range: &Range<u64>| range.start / stripe_sectors..(range.end - 1) / stripe_sectors + 1;
        answered.flat_map(|write| stripes(&write.sectors)).collect()
    }

    /// Is a part of this write there, within these sectors, and another part not? What lies in the
    /// place of the other may be of a write that came later, or at the same time if there is
    /// nothing of that one below this one.
    fn is_torn(&self, number: Number, within: Range<u64>, found: &[Option<Number>]) -> bool {
        let sectors = &self.writes[number].sectors;
        let sectors = sectors.start.max(within.start)..sectors.end.min(within.end);
        let at = |sector: u64| found[sector as usize];
        if !sectors.clone().any(|sector| at(sector) == Some(number)) {
            return false;
        }
        let above = |other: Number| {
            let common = &self.writes[other].sectors;
            sectors.clone().any(|sector| common.contains(&sector) && at(sector) == Some(number))
        };
        let others: BTreeSet<Number> = sectors.clone().filter_map(at).collect();
        let below = |other: &Number| {
            self.precedes(*other, number) || !self.precedes(number, *other) && above(*other)
        };
        others.iter().filter(|other| **other != number).any(below)
    }

    /// The write whose sector this is; nothing of a mixture.
    fn number(&self, sector: u64, bytes: &[u8]) -> Option<Number> {
        let number = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
        let number = usize::try_from(number).ok()?;
        let known = self.writes.get(number)?.sectors.contains(&sector);
        (known && bytes == stamp(number, sector)).then_some(number)
    }
}

/// What a write leaves in a sector.
fn stamp(number: Number, sector: u64) -> Vec<u8> {
    let number = number as u64;
    let sum = Dice::new(number << 32 ^ sector).next();
    [number.to_le_bytes(), sum.to_le_bytes()].concat().repeat(SECTOR_BYTES / 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holding(numbers: &[Number]) -> Vec<u8> {
        (0..).zip(numbers).flat_map(|(sector, number)| stamp(*number, sector)).collect()
    }

    #[test]
    fn what_was_flushed_may_not_go_and_what_was_not_may() {
        let mut history = History::of_filled(8);
        let (first, data) = history.begin(1..3);
        assert_eq!(data, holding(&[0, 1, 1])[SECTOR_BYTES..]);
        history.answered(first, false);
        let flush = history.flush();
        let (second, _) = history.begin(2..4);
        history.answered(second, false);
        history.flushed(flush);
        for (numbers, idle, written) in [
            ([0, 1, 1, 0, 0, 0, 0, 0], vec![], vec![]),
            ([0, 1, 2, 2, 0, 0, 0, 0], vec![], vec![]),
            ([0, 0, 1, 0, 0, 0, 0, 0], vec![1], vec![]),
            ([0, 1, 0, 2, 0, 0, 0, 0], vec![], vec![2]),
            ([2, 1, 1, 1, 0, 0, 0, 0], vec![0], vec![3]),
        ] {
            let lost = history.judge(&holding(&numbers), &|_| true);
            assert_eq!((&lost.idle_lost, &lost.written_lost), (&idle, &written), "{numbers:?}");
            let there = history.judge(&holding(&numbers), &|_| false);
            assert_eq!(there.there, [idle, written].concat(), "{numbers:?}");
        }
        let mut garbled = history.fill();
        garbled[8 * SECTOR_BYTES - 1] ^= 1;
        assert_eq!(history.judge(&garbled, &|sector| sector > 1).idle_lost, [7]);
        assert_eq!(history.judge(&garbled, &|sector| sector > 1).there, [1]);
    }

    #[test]
    fn a_block_that_holds_a_part_of_a_write_is_torn() {
        let mut history = History::of_filled(16);
        let (first, _) = history.begin(0..12);
        let (second, _) = history.begin(4..6);
        let torn = |history: &History, numbers: &[Number]| {
            let verdict = history.judge(&holding(numbers), &|_| false);
            (verdict.torn_blocks, verdict.torn_writes)
        };
        let with = |at: Range<usize>, number| {
            let mut numbers = [vec![1; 12], vec![0; 4]].concat();
            numbers[at].fill(number);
            numbers
        };
        assert_eq!(torn(&history, &[0; 16]), (vec![], vec![]));
        assert_eq!(torn(&history, &with(4..6, 2)), (vec![], vec![]));
        assert_eq!(torn(&history, &with(4..5, 2)), (vec![0], vec![1, 2]));
        assert_eq!(torn(&history, &with(8..12, 0)), (vec![], vec![1]));
        assert_eq!(torn(&history, &with(6..7, 0)), (vec![0], vec![1]));
        history.answered(second, false);
        history.answered(first, false);
        let (third, _) = history.begin(5..7);
        history.answered(third, true);
        assert_eq!(torn(&history, &with(5..7, 3)), (vec![], vec![]));
        assert_eq!(torn(&history, &with(5..6, 3)), (vec![0], vec![3]));
    }
}
