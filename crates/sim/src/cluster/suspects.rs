//! Slices of stripes in which parities may not fit the data: the extent of a write hole.

use std::collections::{BTreeMap, BTreeSet};

use braid_cluster::pipeline::Params;

use crate::oracle::{LogicalTime, Range};

/// A slice of a stripe: the stripe, and the number of the slice in its blocks.
pub type Slice = (u64, u32);

/// A place in the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The slice.
    pub slice: Slice,
    /// Index of the data block.
    pub index: u32,
}

/// Where data of an array lies.
#[derive(Clone, Copy, Debug)]
pub struct Map {
    chunk_sectors: u64,
    slice_sectors: u64,
    data_blocks: u64,
}

impl Map {
    /// For these parameters and so many data blocks in a stripe.
    pub const fn new(params: &Params, data_blocks: u64) -> Self {
        let chunk = params.chunk_bytes as u64;
        let slice = params.wide.bytes as u64;
        Self { chunk_sectors: chunk / 512, slice_sectors: slice / 512, data_blocks }
    }

    /// Where a sector of the array lies.
    pub const fn place(&self, sector: u64) -> Place {
        let block = sector / self.chunk_sectors;
        let at = sector % self.chunk_sectors;
        Place {
            slice: (block / self.data_blocks, (at / self.slice_sectors) as u32),
            index: (block % self.data_blocks) as u32,
        }
    }

    pub(super) fn slices(&self, range: Range) -> BTreeSet<Slice> {
        let sectors = (range.sector..range.sector + range.sectors).step_by(8);
        sectors.map(|sector| self.place(sector).slice).collect()
    }
}

/// A write that a power cut may take back, in whole or in part.
#[derive(Debug)]
struct Unsure {
    /// When it was submitted.
    write: LogicalTime,
    range: Range,
    slices: BTreeSet<Slice>,
    /// When it was answered.
    done: Option<LogicalTime>,
}

/// The slices in which parities may not fit, given the answers so far. Unanswered writes leave such
/// slices behind, and so do answered writes that are not durable when the power fails; a resync
/// makes them right. Nothing decoded from such a slice is reliable.
///
/// A write [begins](Self::begins) and [ends](Self::ends): torn if it failed, else unsure until it
/// is durable, by FUA or a [flush](Self::flushed). [`crash`](Self::crash) makes unanswered writes
/// torn, [`power_cut`](Self::power_cut) all that are unsure. After [`resynced`](Self::resynced)
/// nothing is torn, but that, too, is unsure until a flush. [`suspect`](Self::suspect) asks for a
/// sector.
#[derive(Debug)]
pub struct ClusterSuspects {
    map: Map,
    unsure: Vec<Unsure>,
    torn: BTreeSet<Slice>,
}

impl ClusterSuspects {
    /// Creates the set without any slice.
    pub const fn new(map: Map) -> Self {
        Self { map, unsure: Vec::new(), torn: BTreeSet::new() }
    }

    /// Parities may not fit anywhere.
    pub fn all(&mut self, stripes: u64) {
        let slices = self.map.chunk_sectors.div_ceil(self.map.slice_sectors) as u32;
        self.torn.extend((0..stripes).flat_map(|s| (0..slices).map(move |slice| (s, slice))));
    }

    /// A write was submitted at this moment.
    pub fn begins(&mut self, write: LogicalTime, range: Range) {
        let slices = self.map.slices(range);
        self.unsure.push(Unsure { write, range, slices, done: None });
    }

    /// A write was answered, `now`.
    pub fn ends(&mut self, write: LogicalTime, now: LogicalTime, ok: bool, durable: bool) {
        let Some(at) = self.unsure.iter().position(|unsure| unsure.write == write) else { return };
        if !ok {
            let unsure = self.unsure.remove(at);
            self.torn.extend(unsure.slices);
        } else if durable {
            self.unsure.remove(at);
        } else {
            self.unsure[at].done = Some(now);
        }
    }

    /// Records that writes answered before this moment are durable.
    pub fn flushed(&mut self, moment: LogicalTime) {
        self.unsure.retain(|unsure| unsure.done.is_none_or(|done| done > moment));
    }

    /// Marks unanswered writes as torn after the end of the client.
    pub fn crash(&mut self) {
        let torn = self.unsure.extract_if(.., |unsure| unsure.done.is_none());
        self.torn.extend(torn.flat_map(|unsure| unsure.slices));
    }

    /// The power is gone.
    pub fn power_cut(&mut self) {
        let unsure = std::mem::take(&mut self.unsure);
        self.torn.extend(unsure.into_iter().flat_map(|unsure| unsure.slices));
    }

    /// Clears all slices after a resync, which is not durable yet.
    pub fn resynced(&mut self, now: LogicalTime) {
        let slices = std::mem::take(&mut self.torn);
        let range = Range::default();
        self.unsure.push(Unsure { write: now, range, slices, done: Some(now) });
    }

    /// Returns whether the slice of this sector is torn, or, with `in_flight`, being written.
    pub fn suspect(&self, sector: u64, in_flight: bool) -> bool {
        let slice = self.map.place(sector).slice;
        let writes = |unsure: &Unsure| unsure.done.is_none() && unsure.slices.contains(&slice);
        self.torn.contains(&slice) || in_flight && self.unsure.iter().any(writes)
    }

    /// Slices that are torn, or would be if the power were lost and only those suffered that may
    /// be written in whole stripes.
    pub fn whole_stripes(&self) -> BTreeSet<Slice> {
        let Map { chunk_sectors, data_blocks, .. } = self.map;
        let mut columns: BTreeMap<(u64, u64), BTreeSet<u64>> = BTreeMap::new();
        for Range { sector, sectors } in self.unsure.iter().map(|unsure| unsure.range) {
            for sector in (sector..sector + sectors).step_by(8) {
                let block = sector / chunk_sectors;
                let at = sector % chunk_sectors;
                let column = columns.entry((block / data_blocks, at / 8)).or_default();
                column.insert(block % data_blocks);
            }
        }
        let whole = columns.iter().filter(|(_, blocks)| blocks.len() as u64 == data_blocks);
        let slice = |(&(stripe, column), _): (&(u64, u64), &BTreeSet<u64>)| {
            (stripe, (column * 8 / self.map.slice_sectors) as u32)
        };
        whole.map(slice).chain(self.torn.iter().copied()).collect()
    }

    /// Sets the torn slices.
    pub fn only(&mut self, slices: BTreeSet<Slice>) {
        self.torn = slices;
    }

    /// Returns whether any slice is torn.
    pub fn any(&self) -> bool {
        !self.torn.is_empty()
    }

    /// Returns whether this slice is torn.
    pub fn torn(&self, slice: Slice) -> bool {
        self.torn.contains(&slice)
    }

    /// Where sectors lie.
    pub const fn map(&self) -> &Map {
        &self.map
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Judge;

    fn suspects() -> ClusterSuspects {
        ClusterSuspects::new(Map { chunk_sectors: 16, slice_sectors: 8, data_blocks: 3 })
    }

    #[test]
    fn a_write_is_suspect_until_it_is_durable() {
        let mut suspects = suspects();
        let mut judge = Judge::new(96);
        let range = Range { sector: 8, sectors: 16 };
        let write = judge.moment();
        suspects.begins(write, range);
        assert!(suspects.suspect(8, true) && suspects.suspect(16, true));
        assert!(!suspects.suspect(8, false) && !suspects.suspect(48, true));
        suspects.ends(write, judge.moment(), true, false);
        assert!(!suspects.suspect(8, true));
        let flush = judge.moment();
        let late = judge.moment();
        suspects.begins(late, Range { sector: 48, sectors: 8 });
        suspects.ends(late, judge.moment(), true, false);
        suspects.flushed(flush);
        suspects.power_cut();
        assert!(suspects.suspect(48, false) && !suspects.suspect(8, false));
        suspects.resynced(judge.moment());
        assert!(!suspects.any());
        suspects.power_cut();
        assert!(suspects.any(), "a resync that is not durable");
    }

    #[test]
    fn a_write_that_fails_or_is_never_answered_is_torn() {
        let mut suspects = suspects();
        let mut judge = Judge::new(96);
        let write = judge.moment();
        suspects.begins(write, Range { sector: 0, sectors: 8 });
        suspects.ends(write, judge.moment(), false, false);
        suspects.begins(judge.moment(), Range { sector: 8, sectors: 8 });
        suspects.crash();
        assert!(suspects.torn((0, 0)) && suspects.torn((0, 1)) && !suspects.torn((1, 0)));
    }
}
