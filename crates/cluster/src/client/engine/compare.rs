//! Comparing a slice of a stripe, for check and repair: every sum is formed and compared with the
//! stored one. Digests have the same sums, so those of the blocks are all that comes from the
//! nodes; only where they do not fit every block is read.
//!
//! ```text
//!  Screening ─► over
//!      └─► Fitting ─► Doubting ─► over
//!                         └─► Righting ─► Repairing ─► over
//! ```
//! Each of the first four carries a plan out. Nothing is written to the slice meanwhile. A repair
//! ends with a slice-set that makes every sum anew. A data block that is known to be wrong is
//! replaced by the content that the others yield.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use braid_array::code::{Answers, BlockKind, Cell, Doubt, KnownCode, Misfit, doubts};
use braid_array::events::StripeBlock;
use braid_array::keeper::{Done, Fix, LaneReport, Unread};
use braid_array::plan::{Plan, PlanNext, Run, Taken, parity_sync};
use braid_array::{Buf, Checked, IoError, MemberId, Outcome, SECTOR_BYTES};

use super::context::{Cx, Note};
use super::decode::Decodes;
use super::extent::{Extent, Whose};
use super::stripe;
use crate::client::Key;
use crate::client::out::IoPurpose;
use crate::digest::digest_bytes;

/// A slice that is being compared. No pipeline has longer slices than one comparison tells blocks
/// apart of.
#[derive(Debug)]
struct Compare {
    fix: Fix,
    code: Arc<KnownCode>,
    /// Range in the blocks of the stripe.
    extent: Extent,
    stage: CompareStage,
    run: Run,
    /// Reads all that is stored, and compares it.
    contents: Plan,
    /// By the numbers of their cells: the stored content, and later the correct content.
    strips: Vec<Buf>,
    /// Sums formed for the comparison.
    formed: [Buf; 2],
    doubts: Vec<Doubt>,
    /// Data blocks that are right in memory and wrong on their nodes.
    righted: BTreeSet<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CompareStage {
    /// Digests show which sums fit.
    Screening,
    /// Contents show which sums fit.
    Fitting,
    /// The blocks that cause a misfit are searched.
    Doubting,
    /// The correct content of a wrong block is formed.
    Righting,
    /// The slice-set of a repair is on its way.
    Repairing,
}

/// Comparisons under way, by slice.
#[derive(Debug, Default)]
pub(super) struct Compares {
    map: BTreeMap<Key, Compare>,
}

impl Compares {
    /// Begins with an unused slice, while all nodes are there. Returns false when buffers are
    /// short: then the caller tries again.
    pub(super) fn begin(
        &mut self,
        cx: &mut Cx<'_>,
        decodes: &mut Decodes,
        key: Key,
        fix: Fix,
    ) -> bool {
        let extent = cx.shared.whole_slice(key);
        let Some(view) = stripe::view(cx, &extent, &BTreeSet::new()) else { return false };
        let code = Arc::clone(&view.code);
        // A slice-set whose parities the client makes must not wait for one comparison after the
        // other.
        let own = view.cells.len() + 2;
        let all = own + code.equations().len();
        let Some(mut staged) = decodes.stage(cx.shared, all, extent.len) else { return false };
        cx.shared.staging.give(staged.split_off(own));
        let formed = [staged[0], staged[1]];
        let mut taken = Taken::new(staged.drain(1..).collect(), Answers::default());
        let check = parity_sync::check(&view, stripe::rows(extent.len), &mut taken);
        let digest = |buf: Buf| buf.slice(0, digest_bytes(buf.len));
        let digests: Vec<Buf> = check.strips.iter().copied().map(digest).collect();
        let fits = parity_sync::fits(&code, &digests, || digest(formed[0]));
        let reads = check.plan.reads.clone();
        let screening = Plan { reads, computes: fits.into(), ..Plan::default() };
        let compare = Compare {
            fix,
            code,
            extent,
            stage: CompareStage::Screening,
            run: Run::new(screening),
            contents: check.plan,
            strips: check.strips,
            formed,
            doubts: Vec::new(),
            righted: BTreeSet::new(),
        };
        cx.shared.areas.reader_begins(key);
        self.map.insert(key, compare);
        self.advance(cx, key);
        true
    }

    pub(super) fn read_done(&mut self, cx: &mut Cx<'_>, key: Key, cell: Cell, ok: bool) {
        let Some(compare) = self.map.get_mut(&key) else { return };
        if ok {
            compare.run.answered(Outcome::Done);
        } else {
            compare.run.unreadable(stripe::place(cell));
        }
        self.advance(cx, key);
    }

    pub(super) fn step_done(
        &mut self,
        cx: &mut Cx<'_>,
        key: Key,
        result: Result<Outcome, IoError>,
    ) {
        let Some(compare) = self.map.get_mut(&key) else { return };
        compare.run.answered(result.unwrap_or(Outcome::Done));
        self.advance(cx, key);
    }

    /// Executes the next steps of a comparison.
    fn advance(&mut self, cx: &mut Cx<'_>, key: Key) {
        loop {
            let Some(compare) = self.map.get_mut(&key) else { return };
            match compare.run.advance() {
                PlanNext::Wait => return,
                PlanNext::Read(which) => {
                    let reads = &compare.run.plan().reads[which];
                    let screening = compare.stage == CompareStage::Screening;
                    let whose = if screening { Whose::Digest(key) } else { Whose::Compare(key) };
                    stripe::read(&mut cx.shared.reads, reads, compare.extent, whose);
                }
                PlanNext::Compute(compute) => cx.out.compute(IoPurpose::Compare { key }, compute),
                PlanNext::Failed => {
                    let unread = compare.unread(cx, key);
                    return self.end(cx, key, Done::Unread(unread));
                }
                PlanNext::Write | PlanNext::Done if compare.stage == CompareStage::Repairing => {
                    return;
                }
                PlanNext::Write | PlanNext::Done => {
                    if let Some(done) = compare.next_stage(cx, key) {
                        return self.end(cx, key, done);
                    }
                }
            }
        }
    }

    fn end(&mut self, cx: &mut Cx<'_>, key: Key, done: Done) {
        if let Some(compare) = self.map.get(&key) {
            cx.reader_gone(&compare.extent);
        }
        self.forget(cx, key);
        cx.note(Note::TaskOver { key, done });
    }

    /// Gives the buffers back.
    pub(super) fn forget(&mut self, cx: &mut Cx<'_>, key: Key) {
        if let Some(compare) = self.map.remove(&key) {
            cx.shared.staging.give(compare.strips.into_iter().chain(compare.formed));
        }
    }

    /// Returns the number of buffers that comparisons hold.
    pub(super) fn buffers(&self) -> usize {
        self.map.values().map(|compare| compare.strips.len() + compare.formed.len()).sum()
    }

    /// The slices that are read.
    pub(super) fn keys(&self) -> impl Iterator<Item = Key> {
        let reading =
            self.map.iter().filter(|(_, compare)| compare.stage != CompareStage::Repairing);
        reading.map(|(&key, _)| key)
    }
}

impl Compare {
    /// Begins the stage after a finished plan. Returns the result if that was the last stage.
    fn next_stage(&mut self, cx: &mut Cx<'_>, key: Key) -> Option<Done> {
        let checked = self.run.checked();
        let plan = match self.stage {
            CompareStage::Screening if checked.iter().all(|checked| checked.differs() == 0) => {
                return Some(Done::Well { equal: true });
            }
            // Somebody may have been lost meanwhile.
            CompareStage::Screening if !cx.lost().is_empty() => return Some(Done::Failed),
            CompareStage::Screening => {
                self.stage = CompareStage::Fitting;
                std::mem::take(&mut self.contents)
            }
            CompareStage::Fitting => {
                self.stage = CompareStage::Doubting;
                let numbers = 0..self.code.equations().len();
                let differs = |number| parity_sync::differing(&self.code, checked, number);
                self.doubts = doubts(&self.code, &numbers.map(differs).collect::<Vec<u64>>());
                parity_sync::tell_apart(&self.code, &self.strips, &self.doubts, self.formed)
            }
            CompareStage::Doubting => {
                parity_sync::tell(&mut self.doubts, checked);
                let misfits: Vec<Misfit> = self.doubts.iter().flat_map(Doubt::misfits).collect();
                misfits.iter().for_each(|misfit| self.tell(cx, key, misfit));
                let equal = misfits.is_empty();
                if equal || self.fix != Fix::Repair {
                    return Some(Done::Well { equal });
                }
                self.stage = CompareStage::Righting;
                let wrong = misfits.iter().filter_map(|misfit| misfit.wrong);
                let data = wrong.filter(|&cell| self.code.kind(cell) == BlockKind::Data);
                self.righted = data.map(|cell| self.code.first_data(cell)).collect();
                parity_sync::right(&self.code, &self.strips, &misfits)
            }
            CompareStage::Righting => {
                self.repair(cx, key);
                Plan::default()
            }
            CompareStage::Repairing => Plan::default(),
        };
        self.run = Run::new(plan);
        None
    }

    /// Reports blocks that do not fit.
    fn tell(&self, cx: &mut Cx<'_>, key: Key, misfit: &Misfit) {
        let index = match misfit.wrong {
            Some(cell) => self.code.first_data(cell),
            None => misfit.first_data,
        };
        let at = self.extent.at + misfit.blocks.trailing_zeros() * Checked::BLOCK_BYTES;
        let sectors = misfit.blocks.count_ones() * Checked::BLOCK_BYTES / SECTOR_BYTES as u32;
        let array_sector = cx.shared.array_sector(key.stripe, index, at);
        let member = misfit.wrong.and_then(|cell| cx.members.id(cell.node));
        let row = misfit.wrong.map(|cell| cell.row);
        let block = Some(StripeBlock { stripe: key.stripe.0, row });
        cx.report(LaneReport::Mismatch { array_sector, sectors, member, block });
    }

    /// The slice-set takes the slice over from the reader, so that no write comes between: notes
    /// are passed on before anything else begins.
    fn repair(&mut self, cx: &mut Cx<'_>, key: Key) {
        self.stage = CompareStage::Repairing;
        let content = |&index: &u32| (index, self.strips[index as usize]);
        let contents = self.righted.iter().map(content).collect();
        cx.note(Note::Repair { key, contents });
        cx.reader_gone(&self.extent);
    }

    /// Returns the ranges of the array that could not be read, with the members that failed.
    fn unread(&self, cx: &Cx<'_>, key: Key) -> Vec<Unread> {
        let mut lost: BTreeMap<u32, Vec<MemberId>> = BTreeMap::new();
        for cell in self.run.unread().iter().copied().map(stripe::cell) {
            let index = self.code.first_data(cell);
            lost.entry(index).or_default().extend(cx.members.id(cell.node));
        }
        let unread = |(index, members)| Unread {
            array_sector: cx.shared.array_sector(key.stripe, index, self.extent.at),
            sectors: u64::from(self.extent.len) / SECTOR_BYTES,
            members,
        };
        lost.into_iter().map(unread).collect()
    }
}
