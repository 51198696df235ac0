//! What the blocks of an array may hold, by what its clients were told.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::cluster::sequenced_blocks::{self, BLOCK_BYTES, SECTOR_BYTES};
use crate::report::Failure;

/// A block, every word of which is the number of the write that it has from.
#[derive(Clone, Debug)]
struct Block {
    /// What may be read.
    now: BTreeSet<u64>,
    /// What may be read after a loss of power.
    durable: BTreeSet<u64>,
    /// Sectors may be of different writes, as power was lost in the middle.
    mixed: bool,
    /// It may be anything.
    free: bool,
    /// When its last write was answered; `None` while it was not.
    answered: Option<u64>,
    /// Since it was durable it was written where no journal has it.
    unrecorded: bool,
    /// A request for it is under way.
    busy: bool,
}

/// For each block the numbers of the writes that it may be read as: now, and after a loss of power.
/// As long as only some nodes were lost that is what was answered; after a loss of power, what was
/// flushed, or anything since. A request takes its blocks ([`take`](Self::take)), so that no two
/// are under way for one block, and leaves them in the end ([`leave`](Self::leave));
/// [`write`](Self::write), [`written`](Self::written), [`flushed`](Self::flushed) and
/// [`power_lost`](Self::power_lost) tell what happened, [`read`](Self::read) judges.
#[derive(Debug)]
pub(super) struct Blocks {
    blocks: Vec<Block>,
    /// So many things happened.
    moment: u64,
}

impl Blocks {
    pub(super) fn new(count: u64) -> Self {
        let block = Block {
            now: BTreeSet::from([0]),
            durable: BTreeSet::from([0]),
            mixed: false,
            free: false,
            answered: Some(0),
            unrecorded: false,
            busy: false,
        };
        Self { blocks: vec![block; count as usize], moment: 0 }
    }

    pub(super) const fn len(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Takes these for a request, if none is under way for any of them.
    pub(super) fn take(&mut self, range: Range<usize>) -> bool {
        let free = !self.blocks[range.clone()].iter().any(|block| block.busy);
        if free {
            self.blocks[range].iter_mut().for_each(|block| block.busy = true);
        }
        free
    }

    pub(super) fn leave(&mut self, range: Range<usize>) {
        self.blocks[range].iter_mut().for_each(|block| block.busy = false);
    }

    /// A write of these begins, with numbers from `first` on.
    pub(super) fn write(&mut self, range: Range<usize>, first: u64, recorded: bool) {
        for (value, block) in (first..).zip(&mut self.blocks[range]) {
            block.now.insert(value);
            block.durable.insert(value);
            block.answered = None;
            block.unrecorded |= !recorded;
        }
    }

    /// It is answered.
    pub(super) fn written(&mut self, range: Range<usize>, first: u64, fua: bool) {
        self.moment += 1;
        for (value, block) in (first..).zip(&mut self.blocks[range]) {
            block.now = BTreeSet::from([value]);
            (block.mixed, block.free) = (false, false);
            block.answered = Some(self.moment);
            if fua {
                block.durable = block.now.clone();
                block.unrecorded = false;
            }
        }
    }

    /// A flush begins: when that is.
    pub(super) const fn moment(&self) -> u64 {
        self.moment
    }

    /// A flush is over that began then.
    pub(super) fn flushed(&mut self, began: u64) {
        let covered = |block: &&mut Block| block.answered.is_some_and(|at| at <= began);
        for block in self.blocks.iter_mut().filter(covered) {
            block.durable = block.now.clone();
            block.unrecorded = false;
        }
    }

    /// The client is gone, and answers nothing any more.
    pub(super) fn client_gone(&mut self) {
        self.blocks.iter_mut().for_each(|block| block.busy = false);
    }

    /// More nodes have lost their memories than the others make up for; or, where members are
    /// missing, too.
    pub(super) fn power_lost(&mut self, missing: bool) {
        for block in &mut self.blocks {
            block.mixed |= block.durable.len() > 1;
            block.free |= missing && block.unrecorded;
            block.now = block.durable.clone();
        }
    }

    /// This is read. When all that was left was `decided`, it stays.
    ///
    /// # Errors
    /// What must not be there.
    pub(super) fn read(&mut self, first: u64, bytes: &[u8], decided: bool) -> Result<(), Failure> {
        for (number, bytes) in (first..).zip(bytes.chunks_exact(BLOCK_BYTES)) {
            let block = &mut self.blocks[number as usize];
            if block.free {
                continue;
            }
            let sectors: BTreeSet<u64> = bytes
                .chunks_exact(SECTOR_BYTES)
                .map(sequenced_blocks::write_of)
                .collect::<Option<_>>()
                .ok_or_else(|| {
                    Failure(format!("a sector of block {number} is of more than one write"))
                })?;
            let known = sectors.iter().all(|value| block.now.contains(value));
            if !known || sectors.len() > 1 && !block.mixed {
                let may = &block.now;
                return Err(Failure(format!("block {number} holds {sectors:?}, may hold {may:?}")));
            }
            if decided && sectors.len() == 1 {
                block.durable.extend(&sectors);
                block.now = sectors;
            }
        }
        Ok(())
    }
}
