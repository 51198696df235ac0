//! Comparing a slice of a stripe, for check and repair: every sum is formed and compared with what
//! is stored. Digests have the same sums, so those of the blocks are all that comes from the nodes;
//! only where they do not fit every block is read.
//!
//! ```text
//!  Digests ─► Screening ─► over
//!                 └─► Reading ─► Fitting ─► Doubting ─► over
//!                                               └─► Righting ─► Repairing ─► over
//! ```
//! Nothing is written to the slice meanwhile. A repair ends with a slice-set that makes every sum
//! anew, of the data as they are or, where a data block is known to be wrong, of what the others
//! say it should be.

mod doubt;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use braid_array::code::{Cell, Content, Recovery, Term};
use braid_array::events::StripeBlock;
use braid_array::keeper::{Done, Fix, Unread};
use braid_array::{Buf, Compute, IoError, MemberId, Outcome, SECTOR_BYTES};

use super::context::{Cx, Note};
use super::decode::Decodes;
use super::extent::{Extent, Piece, Whose};
use crate::client::out::IoPurpose;
use crate::client::{BLOCK_BYTES, Key};
use crate::digest::digest_bytes;
use crate::ids::Position;
use crate::pipeline::PlacedSchedule;
use doubt::{Doubt, Misfit};

/// Blocks that one comparison tells apart. No pipeline has longer slices than these are.
const BLOCKS: u32 = u64::BITS;

/// A slice that is being compared.
#[derive(Debug)]
struct Compare {
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
    Repairing,
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

/// Comparisons under way, by slice.
#[derive(Debug, Default)]
pub(super) struct Compares {
    map: BTreeMap<Key, Compare>,
}

impl Compares {
    /// Begins with a slice that nobody uses, while all nodes are there. False when there are no
    /// buffers: then it is to be tried again.
    pub(super) fn begin(
        &mut self,
        cx: &mut Cx<'_>,
        decodes: &mut Decodes,
        key: Key,
        fix: Fix,
    ) -> bool {
        let planner = cx.shared.pipeline.planner(Position(0));
        let Some(plan) = cx.shared.pipeline.plan(key.stripe, planner) else { return false };
        let extent = cx.shared.whole_slice(key);
        let cells: Vec<Cell> = plan.code.cells().collect();
        // A slice-set whose parities the client makes must not wait for one comparison after the
        // other.
        let own = cells.len() + 2;
        let all = own + plan.code.equations().len();
        let Some(mut staged) = decodes.stage(cx.shared, all, extent.len) else { return false };
        cx.shared.staging.give(staged.split_off(own));
        let formed = [staged[cells.len()], staged[cells.len() + 1]];
        let mut compare = Compare {
            fix,
            extent,
            stage: Stage::Digests,
            reads: 0,
            blocks: cells.into_iter().zip(staged).collect(),
            formed,
            unread: Vec::new(),
            work: VecDeque::new(),
            busy: None,
            differs: vec![0; plan.code.equations().len()],
            doubts: Vec::new(),
            righted: Vec::new(),
            plan,
        };
        cx.shared.areas.reader_begins(key);
        compare.read_all(cx, Whose::Digest(key));
        self.map.insert(key, compare);
        true
    }

    pub(super) fn read_done(&mut self, cx: &mut Cx<'_>, key: Key, cell: Cell, ok: bool) {
        let Some(compare) = self.map.get_mut(&key) else { return };
        compare.reads -= 1;
        if !ok {
            compare.unread.push(cell);
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
        self.advance(cx, key);
    }

    /// Does the next thing.
    fn advance(&mut self, cx: &mut Cx<'_>, key: Key) {
        loop {
            let Some(compare) = self.map.get_mut(&key) else { return };
            if compare.reads > 0 || compare.busy.is_some() {
                return;
            }
            if let Some((compute, about)) = compare.work.pop_front() {
                compare.busy = Some(about);
                return cx.out.compute(IoPurpose::Compare { key }, compute);
            }
            match compare.stage {
                Stage::Digests | Stage::Reading if !compare.unread.is_empty() => {
                    let unread = compare.unread(cx, key);
                    return self.end(cx, key, Done::Unread(unread));
                }
                Stage::Digests => compare.fit(Stage::Screening),
                Stage::Screening => return self.screened(cx, key),
                Stage::Reading => compare.fit(Stage::Fitting),
                Stage::Fitting => compare.doubt(),
                Stage::Doubting => {
                    if let Some(done) = compare.found(cx, key) {
                        return self.end(cx, key, done);
                    }
                }
                Stage::Righting => return compare.repair(cx, key),
                Stage::Repairing => return,
            }
        }
    }

    /// It is known whether digests differ: if not, contents do not.
    fn screened(&mut self, cx: &mut Cx<'_>, key: Key) {
        let Some(compare) = self.map.get_mut(&key) else { return };
        if compare.differs.iter().all(|&differs| differs == 0) {
            return self.end(cx, key, Done::Well { equal: true });
        }
        compare.stage = Stage::Reading;
        // Somebody may have been lost meanwhile.
        if !cx.lost().is_empty() {
            return self.end(cx, key, Done::Failed);
        }
        compare.read_all(cx, Whose::Compare(key));
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
            cx.shared.staging.give(compare.blocks.into_values().chain(compare.formed));
        }
    }

    /// How many buffers comparisons hold.
    pub(super) fn buffers(&self) -> usize {
        self.map.values().map(|compare| compare.blocks.len() + compare.formed.len()).sum()
    }

    /// The slices that are read.
    pub(super) fn keys(&self) -> impl Iterator<Item = Key> {
        let reading = self.map.iter().filter(|(_, compare)| compare.stage != Stage::Repairing);
        reading.map(|(&key, _)| key)
    }
}

impl Compare {
    /// Asks all nodes for what they have of the slice.
    fn read_all(&mut self, cx: &mut Cx<'_>, whose: Whose) {
        self.reads = self.blocks.len() as u32;
        for (&cell, &into) in &self.blocks {
            cx.shared.reads.queue(Piece { cell, extent: self.extent, into, whose });
        }
    }

    /// It is known what differs. What becomes of the comparison, if that is all there is to do?
    fn found(&mut self, cx: &mut Cx<'_>, key: Key) -> Option<Done> {
        let misfits: Vec<Misfit> = self.doubts.iter().flat_map(Doubt::misfits).collect();
        let equal = misfits.is_empty();
        if self.fix == Fix::Repair {
            self.right(&misfits);
        }
        misfits.iter().for_each(|misfit| self.tell(cx, key, misfit));
        (equal || self.fix != Fix::Repair).then_some(Done::Well { equal })
    }

    /// Tells of blocks that do not fit.
    fn tell(&self, cx: &mut Cx<'_>, key: Key, misfit: &Misfit) {
        let index = match misfit.wrong {
            Some(cell) => doubt::first_data(&self.plan.code, cell),
            None => misfit.first_data,
        };
        let at = self.extent.at + misfit.blocks.trailing_zeros() * BLOCK_BYTES;
        let sectors = misfit.blocks.count_ones() * BLOCK_BYTES / SECTOR_BYTES as u32;
        let array_sector = cx.shared.array_sector(key.stripe, index, at);
        let member = misfit.wrong.map(|cell| cx.members.id(cell.node));
        let row = misfit.wrong.map(|cell| cell.row);
        let block = Some(StripeBlock { stripe: key.stripe.0, row });
        cx.keeper.mismatch(array_sector, sectors, member, block);
    }

    /// The slice-set takes the slice over from the reader, so that no write comes between: notes
    /// are passed on before anything else begins.
    fn repair(&mut self, cx: &mut Cx<'_>, key: Key) {
        self.stage = Stage::Repairing;
        let data = self.plan.code.data();
        let content = |&index: &u32| (index, self.blocks[&data[index as usize]]);
        let contents = self.righted.iter().map(content).collect();
        cx.note(Note::Repair { key, contents });
        cx.reader_gone(&self.extent);
    }

    /// What of the array could not be read, and from whom.
    fn unread(&self, cx: &Cx<'_>, key: Key) -> Vec<Unread> {
        let mut lost: BTreeMap<u32, Vec<MemberId>> = BTreeMap::new();
        for &cell in &self.unread {
            let index = doubt::first_data(&self.plan.code, cell);
            lost.entry(index).or_default().push(cx.members.id(cell.node));
        }
        let unread = |(index, members)| Unread {
            array_sector: cx.shared.array_sector(key.stripe, index, self.extent.at),
            sectors: u64::from(self.extent.len) / SECTOR_BYTES,
            members,
        };
        lost.into_iter().map(unread).collect()
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
