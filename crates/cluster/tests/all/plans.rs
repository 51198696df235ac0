//! Plans for stripes of every code, carried out on bytes: what is written can be read, the sums
//! fit, and what was lost comes back, whichever members are gone.

use std::sync::Arc;

use braid_array::code::{
    Answers, Cell, Doubt, KnownCode, Misfit, Recovery, StripeCode, doubts, levels::stripe_code,
};
use braid_array::level::{Layout, Level, ParityLayout};
use braid_array::plan::parity::{Segment, Source, StripeView, read, write};
use braid_array::plan::parity_sync::{
    Target, check, differing, mend, rebuild, resync_degraded, right, tell, tell_apart, vouch,
    wrong_strip,
};
use braid_array::plan::{Fetch, Held, MemberIo, MemberPlace, Plan, RoleView, Rows, Taken};
use braid_array::{Buf, Checked, Compute, IoOp, MemberId, Role};
use braid_cluster::Xor2d;

const SECTOR: usize = 512;
/// Rows of a strip, in sectors: one block that is judged by itself.
const STRIP: u32 = 8;
/// From one strip of a member to the next, in sectors.
const STEP: u64 = 2 * STRIP as u64;
const STRIP_BYTES: usize = STRIP as usize * SECTOR;

/// A stripe on its members, and the memory that plans work in: strips for plans, one of zeroes, and
/// one of new content for each cell.
struct Bench {
    code: Arc<KnownCode>,
    /// By the numbers of their cells.
    strips: Vec<Vec<u8>>,
    memory: Vec<u8>,
}

impl Bench {
    fn new(code: StripeCode) -> Self {
        let cells = usize::from(code.nodes()) * usize::from(code.rows());
        let memory = vec![0; (2 * cells + 2) * STRIP_BYTES];
        let mut bench =
            Self { code: Arc::new(code.into()), strips: vec![vec![0; STRIP_BYTES]; cells], memory };
        for index in 0..bench.code.data().len() {
            bench.strips[index] = content(index as u8 + 1);
        }
        bench.make_sums();
        bench
    }

    fn make_sums(&mut self) {
        for equation in self.code.clone().equations() {
            self.strips[self.code.number(equation.parity)] = self.sum_of(equation.parity);
        }
    }

    fn sum_of(&self, cell: Cell) -> Vec<u8> {
        let mut sum = vec![0; STRIP_BYTES];
        for (index, coef) in self.code.terms(cell).iter() {
            braid_parity::combine(&mut [&mut sum], &[coef], &[&self.strips[index as usize]], true);
        }
        sum
    }

    fn buf(&self, strip: usize) -> Buf {
        Buf { offset: (strip * STRIP_BYTES) as u64, len: STRIP_BYTES as u32 }
    }

    fn taken(&self) -> Taken {
        let bufs = (0..=self.strips.len()).map(|strip| self.buf(strip)).collect();
        Taken::new(bufs, Answers::default())
    }

    /// Zeroes.
    fn zero(&mut self) -> Buf {
        let zero = self.buf(self.strips.len() + 1);
        self.bytes(zero).fill(0);
        zero
    }

    /// New content for a data strip.
    fn source(&mut self, index: usize, seed: u8) -> Buf {
        let buf = self.buf(self.strips.len() + 2 + index);
        self.bytes(buf).copy_from_slice(&content(seed));
        buf
    }

    fn bytes(&mut self, buf: Buf) -> &mut [u8] {
        &mut self.memory[buf.offset as usize..][..buf.len as usize]
    }

    /// The stripe when these nodes are gone; a member's strips lie apart.
    fn view(&self, lost: &[Role], parity_valid: bool) -> StripeView {
        let cell = |number| {
            let Cell { row, node } = self.code.cell(number);
            let place = MemberPlace { member: MemberId(node.0), sector: u64::from(row) * STEP };
            let there = (!lost.contains(&node)).then_some(place);
            RoleView { reader: there, writers: [there, None], ..RoleView::default() }
        };
        let cells = (0..self.strips.len()).map(cell).collect();
        StripeView {
            code: self.code.clone(),
            cells,
            parity_valid,
            sums_count: true,
            recorded: false,
        }
    }

    /// What of the strips lies there.
    fn on_member(&mut self, member: MemberId, sector: u64, len: usize) -> &mut [u8] {
        let row = (sector / STEP) as u16;
        let strip = self.code.number(Cell { row, node: Role(member.0) });
        let at = (sector % STEP) as usize * SECTOR;
        &mut self.strips[strip][at..at + len]
    }

    /// Carries a plan out; what was compared, in order.
    fn run(&mut self, plan: &Plan) -> Vec<Checked> {
        for MemberIo { member, op } in &plan.reads {
            let IoOp::Read { sector, buf } = *op else { panic!("{op:?} among the reads") };
            let held = self.on_member(*member, sector, buf.len as usize).to_vec();
            self.bytes(buf).copy_from_slice(&held);
        }
        let checked = plan.computes.iter().filter_map(|compute| self.compute(compute)).collect();
        for MemberIo { member, op } in &plan.writes {
            match *op {
                IoOp::Write { sector, buf, .. } => {
                    let bytes = self.bytes(buf).to_vec();
                    self.on_member(*member, sector, bytes.len()).copy_from_slice(&bytes);
                }
                IoOp::WriteZeroes { sector, sectors, .. } => {
                    self.on_member(*member, sector, sectors as usize * SECTOR).fill(0);
                }
                _ => panic!("{op:?} among the writes"),
            }
        }
        checked
    }

    fn compute(&mut self, compute: &Compute) -> Option<Checked> {
        match compute {
            Compute::Sum { inputs, coefs, outputs, accumulate } => {
                assert!(matches!(outputs.len(), 1 | 2));
                assert!(outputs.len() == 1 || outputs[0] != outputs[1]);
                let inputs: Vec<Vec<u8>> = inputs.iter().map(|&b| self.bytes(b).to_vec()).collect();
                let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
                for (&output, coefs) in outputs.iter().zip(coefs.chunks(inputs.len())) {
                    braid_parity::combine(&mut [self.bytes(output)], coefs, &inputs, *accumulate);
                }
                None
            }
            Compute::Crc { .. } | Compute::SumBlocks { .. } => panic!("plans have none"),
            Compute::Compare { a, b } => {
                let differs = self.bytes(*a).to_vec() != self.bytes(*b);
                Some(Checked { p_differs: differs.into(), ..Checked::default() })
            }
            Compute::Check { data, q_coefs, p, q } => {
                let data: Vec<Vec<u8>> = data.iter().map(|&b| self.bytes(b).to_vec()).collect();
                let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
                let mut differs = |coefs: &[u8], held: Buf| {
                    let mut sum = vec![0; STRIP_BYTES];
                    braid_parity::combine(&mut [&mut sum], coefs, &data, false);
                    u64::from(sum != self.bytes(held))
                };
                let p_differs = differs(&vec![1; data.len()], *p);
                let q_differs = q.map_or(0, |q| differs(q_coefs, q));
                Some(Checked { p_differs, q_differs, data_located: None })
            }
        }
    }

    /// Do all sums fit, but for those on these nodes?
    fn fits(&self, lost: &[Role]) -> bool {
        let held = |cell: &Cell| !lost.contains(&cell.node);
        let mut sums = self.code.equations().iter().map(|equation| equation.parity).filter(held);
        sums.all(|cell| self.strips[self.code.number(cell)] == self.sum_of(cell))
    }

    /// Overwrites what is on nodes, as if other devices had come in their place.
    fn lose(&mut self, lost: &[Role]) {
        for number in 0..self.strips.len() {
            if lost.contains(&self.code.cell(number).node) {
                self.strips[number] = content(0xee);
            }
        }
    }
}

fn content(seed: u8) -> Vec<u8> {
    (0..STRIP_BYTES).map(|at| (at as u8).wrapping_mul(seed) ^ seed.rotate_left(3)).collect()
}

/// The codes, and up to two nodes each that are gone.
fn cases() -> Vec<(StripeCode, Vec<Role>)> {
    let parity = |level, nodes, stripe| {
        let layout = Layout::Parity(ParityLayout::LeftSymmetric);
        stripe_code(level, layout, nodes, stripe).expect("the layout suits")
    };
    let mut codes = vec![parity(Level::Raid5, 4, 1), parity(Level::Raid6, 6, 2)];
    codes.extend((4..=6).map(|nodes| Xor2d::new(nodes).expect("4 to 34").code().clone()));
    let mut cases = Vec::new();
    for code in codes {
        let nodes = Role::all(code.nodes());
        let pairs = nodes.clone().flat_map(|a| nodes.clone().map(move |b| [a, b]));
        let sets =
            pairs.filter(|[a, b]| a <= b).map(|[a, b]| if a == b { vec![a] } else { vec![a, b] });
        let survived = sets.filter(|lost| Recovery::plan(&code, lost).is_some());
        cases.extend([vec![]].into_iter().chain(survived).map(|lost| (code.clone(), lost)));
    }
    cases
}

const WHOLE: Rows = Rows::new(0, STRIP);

#[test]
fn what_is_written_comes_back_whoever_is_gone() {
    for (code, lost) in cases() {
        let width = code.data().len();
        // One strip; part of some, and zeroes; everything.
        for (round, covered) in
            [vec![width / 2], (0..width).step_by(2).collect(), (0..width).collect()]
                .into_iter()
                .enumerate()
        {
            let mut bench = Bench::new(code.clone());
            let mut expected = bench.strips.clone();
            let rows = if round == 1 { Rows::new(2, 5) } else { WHOLE };
            let bytes = rows.start as usize * SECTOR..rows.end as usize * SECTOR;
            let mut segments = Vec::new();
            for (at, &index) in covered.iter().enumerate() {
                let zeroes = round == 1 && at == 0;
                let buf = bench.source(index, 0x40 + index as u8).slice(0, bytes.len() as u32);
                let source =
                    if zeroes { Source::Zeroes { unmap: false } } else { Source::Buf(buf) };
                let new = if zeroes { vec![0; bytes.len()] } else { bench.bytes(buf).to_vec() };
                expected[index][bytes.clone()].copy_from_slice(&new);
                segments.push(Segment { index: index as u32, rows, source });
            }
            bench.lose(&lost);
            let view = bench.view(&lost, true);
            let zero = bench.zero();
            let plan = write(Plan::default(), &view, &segments, zero, false, &mut bench.taken())
                .expect("survives");
            bench.run(&plan);
            for (index, expected) in expected[..width].iter().enumerate() {
                let to = bench.source(index, 0);
                let plan = read(&view, index as u32, WHOLE, to, &mut bench.taken());
                bench.run(&plan.expect("survives"));
                assert!(
                    bench.bytes(to) == *expected,
                    "block {index} without {lost:?}: {covered:?}"
                );
            }
        }
    }
}

#[test]
fn what_is_held_is_not_read_again() {
    for (code, lost) in cases() {
        let mut bench = Bench::new(code);
        let expected = bench.strips.clone();
        bench.lose(&lost);
        let view = bench.view(&lost, true);
        let mut held = Held::new();
        let mut reads = 0;
        // One after the other, and then all at once.
        let data = 0..view.data_strips();
        for wanted in data.clone().map(|strip| strip..strip + 1).chain([data]) {
            let fetch = Fetch::new(&view, &held, wanted.clone(), |_| 0).expect("survives");
            let bufs = (held.len()..).take(fetch.strips()).map(|at| bench.buf(at)).collect();
            let plan = fetch.plan(&view, WHOLE, &mut held, bufs);
            reads += plan.reads.len();
            bench.run(&plan);
            for strip in wanted {
                let buf = held[&bench.code.cell(strip)];
                assert!(bench.bytes(buf) == expected[strip], "block {strip} without {lost:?}");
            }
        }
        let there = held.keys().filter(|cell| !lost.contains(&cell.node));
        assert_eq!(reads, there.count(), "without {lost:?}");
    }
}

#[test]
fn lost_members_are_rebuilt() {
    for (code, lost) in cases() {
        let mut bench = Bench::new(code);
        let expected = bench.strips.clone();
        bench.lose(&lost);
        let view = bench.view(&lost, true);
        let whole = bench.view(&[], true);
        let gone = |&strip: &usize| view.cells[strip].reader.is_none();
        // A strip goes to its holder and to a replacement.
        let targets = (0..expected.len()).filter(gone).flat_map(|strip| {
            let place = whole.cells[strip].writers[0].expect("whole");
            [Target { strip, place }; 2]
        });
        let targets: Vec<Target> = targets.collect();
        let plan = rebuild(&view, &targets, WHOLE, &mut bench.taken()).expect("survives");
        bench.run(&plan);
        assert!(bench.strips == expected, "without {lost:?}");
    }
}

#[test]
fn what_does_not_fit_is_found_and_made_right() {
    for (code, _) in cases().into_iter().filter(|(_, lost)| lost.is_empty()) {
        let bench = Bench::new(code.clone());
        for strip in 0..bench.strips.len() {
            let mut bench = Bench::new(code.clone());
            let view = bench.view(&[], true);
            let plan = check(&view, WHOLE, &mut bench.taken());
            let checked = bench.run(&plan.plan);
            assert!(checked.iter().all(|checked| checked.differs() == 0));
            assert_eq!(wrong_strip(&code, &checked), None);
            let sound = bench.strips.clone();
            let sums = code.equations().len();
            bench.strips[strip][7] ^= 0x10;
            let plan = check(&view, WHOLE, &mut bench.taken());
            let checked = bench.run(&plan.plan);
            assert!(checked.iter().any(|checked| checked.differs() != 0), "strip {strip}");
            let wrong = wrong_strip(&code, &checked);
            let is_data = strip < code.data().len();
            let told = code.rows() > 1 || sums > 1 && !is_data;
            assert_eq!(wrong, told.then_some(strip));
            let located = if is_data { wrong } else { None };
            bench.run(&mend(&view, WHOLE, &plan.strips, located));
            assert!(bench.fits(&[]));
            assert!(bench.strips == sound || !told, "strip {strip}");
        }
    }
}

#[test]
fn what_the_sums_say_of_a_strip_tells_which_is_wrong() {
    for (code, _) in cases().into_iter().filter(|(_, lost)| lost.is_empty()) {
        let sums = code.equations().len();
        for strip in 0..code.cells().count() {
            let mut bench = Bench::new(code.clone());
            let sound = bench.strips[strip].clone();
            bench.strips[strip][7] ^= 0x10;
            let view = bench.view(&[], true);
            let plan = check(&view, WHOLE, &mut bench.taken());
            let checked = bench.run(&plan.plan);
            let differs = (0..sums).map(|number| differing(&code, &checked, number));
            let mut found = doubts(&code, &differs.collect::<Vec<u64>>());
            let formed = [0, 1].map(|index| bench.source(index, 0));
            let compared = bench.run(&tell_apart(&code, &plan.strips, &found, formed));
            tell(&mut found, &compared);
            let misfits: Vec<Misfit> = found.iter().flat_map(Doubt::misfits).collect();
            let told: Vec<_> = misfits.iter().map(|misfit| (misfit.wrong, misfit.blocks)).collect();
            assert_eq!(told, [((sums > 1).then_some(code.cell(strip)), 1)]);
            bench.run(&right(&code, &plan.strips, &misfits));
            if sums > 1 && view.is_data(strip) {
                assert!(bench.bytes(plan.strips[strip]) == sound, "strip {strip}");
            }
        }
    }
}

#[test]
fn sums_that_are_torn_are_made_to_fit_what_is_left() {
    for (code, lost) in cases() {
        let mut bench = Bench::new(code);
        bench.strips[0][3] ^= 1;
        bench.lose(&lost);
        let view = bench.view(&lost, false);
        if lost.is_empty() || view.lost().len() == bench.code.equations().len() {
            continue;
        }
        let plan = resync_degraded(&view, WHOLE, &mut bench.taken()).expect("survives");
        bench.run(&plan);
        // Read from what is left twice, by each of the sums that there are, it is the same.
        let gone = |&strip: &usize| view.cells[strip].reader.is_none() && view.is_data(strip);
        for strip in (0..bench.strips.len()).filter(gone) {
            let to = bench.source(strip, 0);
            let plan = read(&view, strip as u32, WHOLE, to, &mut bench.taken());
            bench.run(&plan.expect("survives"));
            bench.strips[strip] = bench.bytes(to).to_vec();
        }
        assert!(bench.fits(&lost), "without {lost:?}");
    }
}

#[test]
fn a_second_sum_vouches_for_what_the_first_says() {
    for (code, _) in cases().into_iter().filter(|(_, lost)| lost.is_empty()) {
        for strip in (0..code.data().len()).filter(|&s| code.involved(code.data()[s]).len() > 1) {
            for torn in [false, true] {
                let mut bench = Bench::new(code.clone());
                let mut view = bench.view(&[], false);
                view.cells[strip].reader = None;
                let first = code.involved(code.cell(strip))[0];
                let others = code.equations()[first].cells().map(|cell| code.number(cell));
                let other =
                    others.into_iter().find(|&other| other != strip).expect("a sum of more");
                bench.strips[other][9] ^= u8::from(torn);
                let plan = vouch(&view, strip, WHOLE, &mut bench.taken()).expect("one is lost");
                let checked = bench.run(&plan.plan);
                let differs = checked.iter().any(|checked| checked.differs() != 0);
                assert_eq!(differs, torn, "strip {strip}");
            }
        }
    }
}
