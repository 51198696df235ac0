//! Data without parity that a journal which wrote back had, when an array starts. These data are
//! recorded anew, behind all else, so that the old records count no longer; and then they are
//! dirty, as any other data that the journal holds alone.

use std::collections::VecDeque;

use super::super::io::{JournalIo, Owner};
use super::super::lane::Lane;
use super::record::Records;
use super::ring::Ring;
use crate::format::journal::BLOCK_BYTES;
use crate::log::journal::MOVED_PAGES;
use crate::plan::MemberPlace;
use crate::{Buf, IoOp};

/// Data that was recorded without parity. Some is [read](Self::read_some) and
/// [recorded](Self::recorded) anew while there is more; then all pages are
/// [taken](Self::take_moved).
#[derive(Debug, Default)]
pub(super) struct Unfinished {
    /// To be recorded anew: sector of the array, and position of the page; row by row.
    old: Vec<(u64, u64)>,
    /// Sectors that are being recorded, in this strip.
    sectors: Vec<u64>,
    strip: Option<Buf>,
    /// Recorded anew, in the same order.
    new: VecDeque<UnfinishedPage>,
}

/// A page that is recorded anew, and not in memory yet.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct UnfinishedPage {
    /// Sector of the array.
    pub(in super::super) sector: u64,
    /// Where it lies on the journal's device.
    pub(in super::super) place: MemberPlace,
    /// The batch that it is in.
    pub(in super::super) batch: u64,
}

impl Unfinished {
    /// `old`: sectors of the array, and where their pages lie in the journal.
    pub(super) fn new(old: Vec<(u64, u64)>) -> Self {
        Self { old, ..Self::default() }
    }

    /// Returns whether some of it is being recorded anew.
    pub(super) const fn is_moving(&self) -> bool {
        self.strip.is_some()
    }

    /// Returns whether more is to be.
    pub(super) const fn has_more(&self) -> bool {
        !self.old.is_empty()
    }

    /// Reads some of it, to record that anew: how many pages. `None`: there is no memory.
    pub(super) fn read_some(&mut self, lane: &mut Lane, ring: &Ring) -> Option<usize> {
        let strip = lane.pool.take(1)?.pop()?;
        let rest = self.old.split_off(self.old.len().min(MOVED_PAGES as usize));
        let moved = std::mem::replace(&mut self.old, rest);
        self.strip = Some(strip);
        for (number, (_, position)) in (0..).zip(&moved) {
            let buf = strip.slice(number * BLOCK_BYTES, BLOCK_BYTES);
            let op = IoOp::Read { sector: ring.start + position, buf };
            lane.issue(ring.member, op, Owner::Journal(JournalIo::Read));
        }
        self.sectors = moved.into_iter().map(|(sector, _)| sector).collect();
        Some(self.sectors.len())
    }

    /// The records of what was read.
    pub(super) fn records(&self) -> Records {
        self.strip.map_or_else(Records::default, |strip| Records::of_data(&self.sectors, strip))
    }

    /// Notes that these records are at the head of the ring, in this batch: returns how many pages.
    pub(super) fn recorded(
        &mut self,
        lane: &mut Lane,
        records: &Records,
        ring: &Ring,
        batch: u64,
    ) -> usize {
        lane.pool.give(self.strip.take().into_iter());
        let sectors = std::mem::take(&mut self.sectors);
        let count = sectors.len();
        let positions = records.blocks(ring).into_iter().flat_map(|block| block.pages());
        for (sector, position) in sectors.into_iter().zip(positions) {
            let place = MemberPlace { member: ring.member, sector: ring.start + position };
            self.new.push_back(UnfinishedPage { sector, place, batch });
        }
        count
    }

    /// The pages that are recorded anew and are to be read into memory.
    pub(super) fn take_moved(&mut self) -> VecDeque<UnfinishedPage> {
        std::mem::take(&mut self.new)
    }

    /// Scratch that it has.
    pub(super) fn held_bytes(&self) -> u64 {
        self.strip.map_or(0, |strip| strip.len.into())
    }
}
