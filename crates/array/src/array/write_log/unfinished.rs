//! What a journal that wrote back had without parity, when an array starts. It is recorded anew,
//! behind all else, so that the old records count no longer; and then it is dirty, as any other
//! data that the journal holds alone.

use std::collections::VecDeque;

use super::super::io::Owner;
use super::super::lane::Lane;
use super::LogIo;
use super::journal::{Journal, State};
use super::record::Records;
use super::ring::Ring;
use crate::format::journal::BLOCK_BYTES;
use crate::log::journal::MOVED_PAGES;
use crate::plan::Place;
use crate::{Buf, IoOp};

/// Data that was recorded without parity.
#[derive(Debug, Default)]
pub(super) struct Unfinished {
    /// To be recorded anew: sector of the array, and position of the page; row by row.
    old: Vec<(u64, u64)>,
    /// What is being recorded, in this strip.
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
    pub(in super::super) place: Place,
    /// The batch that it is in.
    pub(in super::super) batch: u64,
}

impl Unfinished {
    /// `old`: sectors of the array, and where their pages lie in the journal.
    pub(super) fn new(old: Vec<(u64, u64)>) -> Self {
        Self { old, ..Self::default() }
    }

    /// Is some of it being recorded anew?
    pub(super) const fn is_moving(&self) -> bool {
        self.strip.is_some()
    }
}

impl Journal {
    /// Reads some of the unfinished data, to record them anew.
    pub(super) fn move_unfinished(&mut self, lane: &mut Lane) {
        let strip = lane.pool.take(1).and_then(|mut strips| strips.pop());
        let Some(strip) = strip else { return self.fail() };
        let pages = self.unfinished.old.len().min(MOVED_PAGES as usize);
        let rest = self.unfinished.old.split_off(pages);
        let moved = std::mem::replace(&mut self.unfinished.old, rest);
        self.unfinished.strip = Some(strip);
        self.state = State::Moving(moved.len());
        let Ring { member, start, .. } = self.ring;
        for (number, (_, position)) in (0..).zip(&moved) {
            let buf = strip.slice(number * BLOCK_BYTES, BLOCK_BYTES);
            let op = IoOp::Read { sector: start + position, buf };
            lane.issue(member, op, Owner::Log(LogIo::Unit(member)));
        }
        self.unfinished.sectors = moved.into_iter().map(|(sector, _)| sector).collect();
    }

    /// What was read is recorded anew, if there is room for it.
    pub(super) fn record_unfinished(&mut self, lane: &mut Lane) {
        let Some(strip) = self.unfinished.strip else { return self.fail() };
        self.current = Records::of_data(&self.unfinished.sectors, strip);
        if !self.ring.fits(self.current.sectors()) {
            return self.fail();
        }
        self.sum(lane);
    }

    /// It is recorded, in this batch.
    pub(super) fn unfinished_recorded(&mut self, lane: &mut Lane, number: u64) {
        lane.pool.give(self.unfinished.strip.take().into_iter());
        let sectors = std::mem::take(&mut self.unfinished.sectors);
        self.batches.keep(number, sectors.len());
        let Ring { member, start, .. } = self.ring;
        let positions = self.current.blocks(&self.ring).into_iter().flat_map(|block| block.pages());
        for (sector, position) in sectors.into_iter().zip(positions) {
            let place = Place { member, sector: start + position };
            self.unfinished.new.push_back(UnfinishedPage { sector, place, batch: number });
        }
    }

    /// More follows, or the journal begins here.
    pub(super) fn move_on(&mut self, lane: &mut Lane) {
        if self.unfinished.old.is_empty() {
            self.tell(lane);
        } else {
            self.move_unfinished(lane);
        }
    }

    /// A page that is to be read into memory, if there is one.
    pub(super) fn next_unfinished(&mut self) -> Option<UnfinishedPage> {
        self.unfinished.new.pop_front()
    }

    pub(super) fn first_unfinished(&self) -> Option<&UnfinishedPage> {
        self.unfinished.new.front()
    }

    /// Scratch that it has.
    pub(super) fn held_bytes(&self) -> u64 {
        self.unfinished.strip.map_or(0, |strip| strip.len.into())
    }

    /// Could the unfinished data not be recorded anew?
    pub(super) fn is_stuck(&self) -> bool {
        let left = self.unfinished.is_moving() || !self.unfinished.old.is_empty();
        self.state == State::Failed && left
    }
}
