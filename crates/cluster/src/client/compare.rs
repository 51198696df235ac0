//! Comparing a slice of a stripe, for check and repair: every sum is formed and compared with what
//! is stored. Digests have the same sums, so those of the blocks are all that comes from the nodes;
//! only where they do not fit every block is read.
//!
//! ```text
//!  Digests ─► Screening ─► over
//!                 └─► Reading ─► Fitting ─► Doubting ─► over
//!                                               └─► Righting ─► Mending ─► over
//! ```
//! Nothing is written to the slice meanwhile. A repair ends with a slice-set that makes every sum
//! anew, of the data as they are or, where a data block is known to be wrong, of what the others
//! say it should be.

mod doubt;

use std::sync::Arc;

use braid_array::code::{Cell, Content, Recovery, Term};
use braid_array::events::StripeBlock;
use braid_array::keeper::{Done, Fix, Unread};
use braid_array::{Compute, IoError, MemberId, Outcome};

use super::extent::{Extent, Piece, Whose};
use super::{BLOCK_BYTES, BTreeMap, Buf, Client, IoPurpose, Key, SECTOR_BYTES, VecDeque};
use crate::digest::digest_bytes;
use crate::pipeline::PlacedSchedule;
use crate::set::Roles;
use doubt::{Doubt, Misfit};

/// Blocks that one comparison tells apart. No pipeline has longer slices than these are.
const BLOCKS: u32 = u64::BITS;

/// A slice that is being compared.
#[derive(Debug)]
pub(super) struct Compare {
    fix: Fix,
    plan: Arc<PlacedSchedule>,
    /// Where it lies in the blocks of its stripe.
    extent: Extent,
    stage: Stage,
    /// Digests, or what is stored, and later what should be.
    blocks: BTreeMap<Cell, Buf>,
    /// What is formed to be compared.
    formed: [Buf; 2],
    /// Reads that are not answered.
    reads: u32,
    unread: Vec<Cell>,
    /// What is computed next, in order.
    work: VecDeque<(Compute, About)>,
    busy: Option<About>,
    /// By equation: in which blocks it does not fit.
    differs: Vec<u64>,
    doubts: Vec<Doubt>,
    /// Data blocks that are right in memory and wrong on their nodes.
    righted: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Digests of all that is stored are on their way.
    Digests,
    /// Which sums fit, as digests say?
    Screening,
    /// All that is stored is on its way.
    Reading,
    /// Which sums fit?
    Fitting,
    /// Which block makes them not fit?
    Doubting,
    /// What should it hold?
    Righting,
    /// The slice-set of a repair is on its way.
    Mending,
}

/// What a computation is for.
#[derive(Clone, Copy, Debug)]
enum About {
    /// The next one.
    Next,
    Equation(usize),
    /// What two equations say of a suspect.
    Suspect {
        doubt: usize,
        suspect: usize,
    },
}

impl Client {
    /// Begins with a slice that nobody uses, while all nodes are there. False when there are no
    /// buffers: then it is to be tried again.
    pub(super) fn compare(&mut self, key: Key, fix: Fix) -> bool {
        let planner = self.pipeline.planner(0);
        let Some(plan) = self.pipeline.plan(key.0, planner) else { return false };
        let (at, len) = (key.1 * self.slice_bytes(), self.slice_len(key.1));
        let cells: Vec<Cell> = plan.code.cells().collect();
        // A slice-set whose parities the client makes must not wait for one comparison after the
        // other.
        let (own, spare) = (cells.len() + 2, plan.code.equations().len());
        let Some(mut staged) = self.stage(own + spare, len) else { return false };
        self.staging.give(staged.split_off(own));
        let formed = [staged[cells.len()], staged[cells.len() + 1]];
        let blocks: BTreeMap<Cell, Buf> = cells.into_iter().zip(staged).collect();
        let extent = Extent { stripe: key.0, index: 0, at, len };
        let compare = Compare {
            fix,
            extent,
            stage: Stage::Digests,
            reads: 0,
            blocks,
            formed,
            unread: Vec::new(),
            work: VecDeque::new(),
            busy: None,
            differs: vec![0; plan.code.equations().len()],
            doubts: Vec::new(),
            righted: Vec::new(),
            plan,
        };
        self.compares.insert(key, compare);
        self.areas.entry(key).or_default().readers += 1;
        self.ask_of_all(key, Whose::Digest(key));
        true
    }

    /// Asks all nodes for what they have of a slice.
    fn ask_of_all(&mut self, key: Key, whose: Whose) {
        let Some(compare) = self.compares.get_mut(&key) else { return };
        compare.reads = compare.blocks.len() as u32;
        let piece = |(&cell, &into)| Piece { cell, extent: compare.extent, into, whose };
        let pieces: Vec<Piece> = compare.blocks.iter().map(piece).collect();
        pieces.into_iter().for_each(|piece| self.queue(piece));
    }

    pub(super) fn compare_read_done(&mut self, key: Key, cell: Cell, ok: bool) {
        let Some(compare) = self.compares.get_mut(&key) else { return };
        compare.reads -= 1;
        if !ok {
            compare.unread.push(cell);
        }
        self.compare_goes_on(key);
    }

    pub(super) fn compare_step_done(&mut self, key: Key, result: Result<Outcome, IoError>) {
        let Some(compare) = self.compares.get_mut(&key) else { return };
        let differs = match result {
            Ok(Outcome::Checked(checked)) => checked.differs(),
            _ => 0,
        };
        match compare.busy.take() {
            Some(About::Equation(number)) => compare.differs[number] = differs,
            Some(About::Suspect { doubt, suspect }) => {
                compare.doubts[doubt].clear(suspect, differs);
            }
            Some(About::Next) | None => {}
        }
        self.compare_goes_on(key);
    }

    /// Does the next thing.
    fn compare_goes_on(&mut self, key: Key) {
        loop {
            let Some(compare) = self.compares.get_mut(&key) else { return };
            if compare.reads > 0 || compare.busy.is_some() {
                return;
            }
            if let Some((compute, about)) = compare.work.pop_front() {
                compare.busy = Some(about);
                let io = self.io(IoPurpose::Compare { key });
                return self.actions.push_back(super::Action::Compute { io, compute });
            }
            match compare.stage {
                Stage::Digests | Stage::Reading if !compare.unread.is_empty() => {
                    let unread = self.unread_of(key);
                    return self.compare_ends(key, Done::Unread(unread));
                }
                Stage::Digests => compare.fit(Stage::Screening),
                Stage::Screening => return self.screened(key),
                Stage::Reading => compare.fit(Stage::Fitting),
                Stage::Fitting => compare.doubt(),
                Stage::Doubting => {
                    if self.compare_found(key) {
                        return;
                    }
                }
                Stage::Righting => return self.mend(key),
                Stage::Mending => return,
            }
        }
    }

    /// It is known whether digests differ: if not, contents do not.
    fn screened(&mut self, key: Key) {
        let Some(compare) = self.compares.get_mut(&key) else { return };
        if compare.differs.iter().all(|&differs| differs == 0) {
            return self.compare_ends(key, Done::Well { equal: true });
        }
        compare.stage = Stage::Reading;
        // Somebody may have been lost meanwhile.
        if !self.lost().is_empty() {
            return self.compare_ends(key, Done::Failed);
        }
        self.ask_of_all(key, Whose::Compare(key));
    }

    /// It is known what differs. Is that all there is to do?
    fn compare_found(&mut self, key: Key) -> bool {
        let Some(compare) = self.compares.get_mut(&key) else { return true };
        let misfits: Vec<Misfit> = compare.doubts.iter().flat_map(Doubt::misfits).collect();
        let (fix, equal) = (compare.fix, misfits.is_empty());
        if fix == Fix::Repair {
            compare.right(&misfits);
        }
        misfits.iter().for_each(|misfit| self.tell(key, misfit));
        if equal || fix != Fix::Repair {
            self.compare_ends(key, Done::Well { equal });
            return true;
        }
        false
    }

    /// Tells of blocks that do not fit.
    fn tell(&mut self, key: Key, misfit: &Misfit) {
        let Some(Compare { plan, extent, .. }) = self.compares.get(&key) else { return };
        let index = match misfit.wrong {
            Some(cell) => doubt::first_data(&plan.code, cell),
            None => misfit.first_data,
        };
        let at = extent.at + misfit.blocks.trailing_zeros() * BLOCK_BYTES;
        let sectors = misfit.blocks.count_ones() * BLOCK_BYTES / SECTOR_BYTES as u32;
        let array_sector = self.array_sector(key.0, index, at);
        let member = misfit.wrong.map(|cell| self.member_id(cell.node));
        let row = misfit.wrong.map(|cell| cell.row);
        let block = Some(StripeBlock { stripe: key.0, row });
        self.keeper.mismatch(array_sector, sectors, member, block);
    }

    /// The slice-set takes the slice over from the reader, so that no write comes between.
    fn mend(&mut self, key: Key) {
        let Some(compare) = self.compares.get_mut(&key) else { return };
        compare.stage = Stage::Mending;
        let data = compare.plan.code.data();
        let content = |&index: &u32| (index, compare.blocks[&data[index as usize]]);
        let contents = compare.righted.iter().map(content).collect();
        let extent = compare.extent;
        self.add_background_job(key, contents, Roles::NONE);
        self.reader_gone(&extent);
    }

    fn compare_ends(&mut self, key: Key, done: Done) {
        if let Some(extent) = self.compares.get(&key).map(|compare| compare.extent) {
            self.reader_gone(&extent);
        }
        self.forget_compare(key);
        self.task_over(key, done);
    }

    /// Gives the buffers back.
    pub(super) fn forget_compare(&mut self, key: Key) {
        if let Some(compare) = self.compares.remove(&key) {
            self.staging.give(compare.blocks.into_values().chain(compare.formed));
        }
    }

    /// What of the array could not be read, and from whom.
    fn unread_of(&self, key: Key) -> Vec<Unread> {
        let Some(Compare { plan, extent, unread, .. }) = self.compares.get(&key) else {
            return Vec::new();
        };
        let mut lost: BTreeMap<u32, Vec<MemberId>> = BTreeMap::new();
        for &cell in unread {
            let index = doubt::first_data(&plan.code, cell);
            lost.entry(index).or_default().push(self.member_id(cell.node));
        }
        let sectors = u64::from(extent.len) / SECTOR_BYTES;
        let unread = |(index, members)| Unread {
            array_sector: self.array_sector(key.0, index, extent.at),
            sectors,
            members,
        };
        lost.into_iter().map(unread).collect()
    }

    /// Where in the array this byte of a data block lies.
    pub(super) fn array_sector(&self, stripe: u64, index: u32, at: u32) -> u64 {
        let block = stripe * u64::from(self.pipeline.data_blocks()) + u64::from(index);
        (block * u64::from(self.params().chunk_bytes) + u64::from(at)) / SECTOR_BYTES
    }
}

impl Compare {
    /// How many buffers it holds.
    pub(super) fn buffers(&self) -> usize {
        self.blocks.len() + self.formed.len()
    }

    /// Is it a reader of its slice?
    pub(super) fn reads(&self) -> bool {
        self.stage != Stage::Mending
    }

    /// Has each sum compared with what is stored of it, or the same of digests.
    fn fit(&mut self, stage: Stage) {
        self.stage = stage;
        let plan = Arc::clone(&self.plan);
        for (number, equation) in plan.code.equations().iter().enumerate() {
            let a = match equation.terms[..] {
                [Term { cell, coef: 1 }] => self.known(self.blocks[&cell]),
                _ => self.form(&equation.terms, 0),
            };
            let b = self.known(self.blocks[&equation.parity]);
            self.work.push_back((Compute::Compare { a, b }, About::Equation(number)));
        }
    }

    /// Has all that the equations say of each suspect compared.
    fn doubt(&mut self) {
        self.stage = Stage::Doubting;
        let plan = Arc::clone(&self.plan);
        self.doubts = doubt::doubts(&plan.code, &self.differs);
        for doubt in 0..self.doubts.len() {
            let numbers = self.doubts[doubt].equations.clone();
            for (suspect, cell) in self.doubts[doubt].to_compare().into_iter().enumerate() {
                for (nth, &number) in numbers.iter().enumerate() {
                    let said = Recovery::by_equations(&plan.code, &[(cell, number)]);
                    self.form(&said.steps()[0].inputs, nth.min(1));
                    if nth > 0 {
                        let [a, b] = self.formed;
                        let about = About::Suspect { doubt, suspect };
                        self.work.push_back((Compute::Compare { a, b }, about));
                    }
                }
            }
        }
    }

    /// Has wrong data blocks replaced by what they should be.
    fn right(&mut self, misfits: &[Misfit]) {
        self.stage = Stage::Righting;
        for misfit in misfits {
            let Some(cell) = misfit.wrong else { continue };
            let Content::Data(index) = self.plan.code.content(cell) else { continue };
            let said = Recovery::by_equations(&self.plan.code, &[(cell, misfit.equation)]);
            let inputs = &said.steps()[0].inputs;
            for block in (0..BLOCKS).filter(|block| misfit.blocks >> block & 1 == 1) {
                let part = |cell: &Cell| self.blocks[cell].slice(block * BLOCK_BYTES, BLOCK_BYTES);
                let compute = Compute::Sum {
                    inputs: inputs.iter().map(|term| part(&term.cell)).collect(),
                    coefs: inputs.iter().map(|term| term.coef).collect(),
                    outputs: vec![part(&cell)],
                    accumulate: false,
                };
                self.work.push_back((compute, About::Next));
            }
            if !self.righted.contains(&index) {
                self.righted.push(index);
            }
        }
    }

    /// Has a sum formed.
    fn form(&mut self, terms: &[Term], nth: usize) -> Buf {
        let formed = self.known(self.formed[nth]);
        let compute = Compute::Sum {
            inputs: terms.iter().map(|term| self.known(self.blocks[&term.cell])).collect(),
            coefs: terms.iter().map(|term| term.coef).collect(),
            outputs: vec![formed],
            accumulate: false,
        };
        self.work.push_back((compute, About::Next));
        formed
    }

    /// As much of a buffer as is known of a block.
    fn known(&self, block: Buf) -> Buf {
        match self.stage {
            Stage::Screening => block.slice(0, digest_bytes(block.len)),
            _ => block,
        }
    }
}
