//! Jobs against a plain file in memory, with a machine that answers in any order.

use std::ops::Range;

use braid_array::action::Event;
use braid_array::request::Full;
use braid_array::status::Status;
use braid_array::{Action, BlockMachine, Buf, Instant, Machine, MemberId, Op, Request};
use braid_array::{RequestError, SECTOR_BYTES};

use super::jobs::{Asker, Came, FinishedJob, FuseJobs};
use super::tree::FileOperation;
use crate::arena::Arena;
use crate::driver::Driver;
use crate::engine::core::Core;
use crate::engine::scattered::ScatteredRanges;
use crate::engine::tests::noise;
use crate::token::{ExportId, Owner};

const BLOCK: u64 = 4096;
const SIZE: u64 = 1 << 22;

/// Takes requests in blocks of so many bytes, and keeps them.
struct Taken(Vec<Request>, u32);

impl Machine for Taken {
    fn handle(&mut self, _now: Instant, _event: Event) {}

    fn poll(&mut self) -> Option<Action> {
        None
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn idle(&self) -> bool {
        self.0.is_empty()
    }
}

impl BlockMachine for Taken {
    fn submit(&mut self, _now: Instant, request: Request) -> Result<(), Full> {
        request.fits(SIZE / SECTOR_BYTES, self.1).unwrap();
        self.0.push(request);
        Ok(())
    }

    fn status(&self) -> Status {
        Status::blank()
    }

    fn array_sectors(&self) -> u64 {
        SIZE / SECTOR_BYTES
    }

    fn block_bytes(&self) -> u32 {
        self.1
    }

    fn read_only(&self) -> bool {
        false
    }

    fn free_member(&self) -> Option<MemberId> {
        None
    }
}

struct World {
    core: Core,
    jobs: FuseJobs,
    machine: Taken,
    /// Content of the array.
    content: Vec<u8>,
    /// Reads of this fail.
    bad: Range<u64>,
    /// State of the random choice of the request that is answered next.
    random: u64,
    /// Answers so far: name and result.
    answers: Vec<(u64, Result<Vec<u8>, RequestError>)>,
    /// Requests of the machine so far.
    requests: usize,
    /// Starts of its writes.
    written: Vec<u64>,
}

impl World {
    fn new(request_bytes: u64) -> Self {
        Self::with_blocks(request_bytes, BLOCK as u32)
    }

    fn with_blocks(request_bytes: u64, block_bytes: u32) -> Self {
        let mut arena = Arena::for_exports(0, request_bytes, 1, false).unwrap();
        let holders = [(); 2].map(|()| arena.admit().unwrap());
        let driver = Driver::threads(arena.memory()).unwrap();
        Self {
            core: Core::new(arena, driver, ScatteredRanges::default()),
            jobs: FuseJobs::new(ExportId(0), block_bytes, holders),
            machine: Taken(Vec::new(), block_bytes),
            content: noise(1, SIZE as usize),
            bad: 0..0,
            random: 1,
            answers: Vec::new(),
            requests: 0,
            written: Vec::new(),
        }
    }

    #[expect(clippy::mut_from_ref, reason = "memory of the arena, of which this has one buffer")]
    fn bytes(&self, buf: Buf) -> &mut [u8] {
        // SAFETY: the test alone looks at this memory, and at one buffer at a time.
        unsafe { self.core.arena.memory().bytes_mut(buf) }
    }

    fn begin(&mut self, unique: u64, ask: FileOperation, data: &[u8]) {
        let landing = matches!(ask, FileOperation::Write { .. }).then(|| {
            let landing = self.core.arena.allocate_landing().expect("a place to land");
            self.bytes(landing)[..data.len()].copy_from_slice(data);
            landing
        });
        self.jobs.begin(&mut self.core, Asker { mount: 0, unique }, ask, landing);
    }

    /// Gives one answer of the machine, chosen at random. Returns false when there is none to give.
    fn step(&mut self) -> bool {
        self.jobs.work(&mut self.core);
        self.core.submit(&mut self.machine);
        if self.machine.0.is_empty() {
            return false;
        }
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let which = (self.random >> 33) as usize % self.machine.0.len();
        let request = self.machine.0.remove(which);
        let result = self.carry_out(&request);
        let completed = self.core.completed(request.id, result);
        let (request, owner, result) = completed.expect("it lies in one piece");
        let Owner::Export(_, job) = owner else { panic!("nobody else asks") };
        let finished = self.jobs.completed(&mut self.core, job.job, &request, result);
        finished.into_iter().for_each(|finished| self.take(finished));
        true
    }

    fn carry_out(&mut self, request: &Request) -> Result<(), RequestError> {
        self.requests += 1;
        let start = request.sector * SECTOR_BYTES;
        if matches!(request.op, Op::Write { .. }) {
            self.written.push(start);
        }
        let end = start + request.sectors * SECTOR_BYTES;
        let range = start as usize..end as usize;
        match request.op {
            Op::Read if start < self.bad.end && self.bad.start < end => {
                return Err(RequestError::Medium);
            }
            Op::Read => self.bytes(request.buf).copy_from_slice(&self.content[range]),
            Op::Write { .. } => {
                let data = self.bytes(request.buf).to_vec();
                self.content[range].copy_from_slice(&data);
            }
            _ => self.content[range].fill(0),
        }
        Ok(())
    }

    fn take(&mut self, finished: FinishedJob) {
        if let Some(landing) = finished.landing {
            self.core.arena.release_landing(landing);
        }
        let data = finished.result.map(|came| match came {
            Came::Data(bufs) => bufs.iter().flat_map(|buf| self.bytes(*buf).to_vec()).collect(),
            Came::Nothing | Came::Written { .. } => Vec::new(),
        });
        self.answers.push((finished.asker.unique, data));
        self.jobs.release(&mut self.core, finished.job);
    }

    /// Goes on to the end, and returns the answers.
    fn run(&mut self) -> Vec<(u64, Result<Vec<u8>, RequestError>)> {
        while self.step() {}
        assert_eq!(self.jobs.len(), 0, "a job has no end");
        let mut answers = std::mem::take(&mut self.answers);
        answers.sort_by_key(|(unique, _)| *unique);
        answers
    }

    fn run_one(&mut self, ask: FileOperation, data: &[u8]) -> Result<Vec<u8>, RequestError> {
        self.begin(1, ask, data);
        self.run().pop().expect("an answer").1
    }
}

/// Places where blocks, and the longest requests, begin and end, and places beside them.
const EDGES: [u64; 12] = [
    0,
    1,
    511,
    4095,
    4096,
    8192,
    12_289,
    (1 << 20) - 1,
    1 << 20,
    (1 << 20) + 4097,
    (1 << 20) + 8192,
    SIZE,
];

fn ranges() -> impl Iterator<Item = Range<u64>> {
    EDGES.into_iter().flat_map(|a| EDGES.into_iter().filter(move |b| a < *b).map(move |b| a..b))
}

#[test]
fn every_range_is_read_written_and_zeroed_as_in_a_plain_file() {
    let mut world = World::new(8 << 20);
    let mut expected = world.content.clone();
    for (seed, range) in (10..).zip(ranges()) {
        let bytes = range.start as usize..range.end as usize;
        if bytes.len() <= 1 << 20 {
            let data = noise(seed, bytes.len());
            let ask = FileOperation::Write { range: range.clone(), fua: false };
            assert_eq!(world.run_one(ask, &data), Ok(Vec::new()));
            expected[bytes.clone()].copy_from_slice(&data);
            let found = world.run_one(FileOperation::Read(range.clone()), &[]).unwrap();
            assert!(found == data, "{range:?}");
        }
        assert!(world.content == expected, "{range:?} was not written alone");
        if seed % 3 == 0 {
            world.run_one(FileOperation::Zero { range: range.clone(), unmap: true }, &[]).unwrap();
            expected[bytes].fill(0);
            assert!(world.content == expected, "{range:?} was not zeroed alone");
        }
    }
}

/// Writes are cut at multiples of 4 KiB: a journal keeps such a block whole only if one request has
/// all of it.
#[test]
fn long_writes_are_cut_where_such_blocks_begin() {
    let mut world = World::with_blocks(8 << 20, 512);
    for start in [7, 512, 3585, 4095] {
        world.written.clear();
        let ask = FileOperation::Write { range: start..start + (1 << 20), fua: false };
        world.run_one(ask, &noise(start, 1 << 20)).unwrap();
        let first = start - start % 512;
        let cut = |at: &u64| *at != first && !at.is_multiple_of(4096);
        let wrong: Vec<u64> = world.written.iter().copied().filter(cut).collect();
        assert!(wrong.is_empty(), "from {start}: cut at {wrong:?}");
    }
}

#[test]
fn whole_blocks_are_one_request_without_a_copy() {
    let mut world = World::new(8 << 20);
    let ask = FileOperation::Write { range: 4096..4096 + (1 << 20), fua: true };
    world.begin(1, ask, &noise(3, 1 << 20));
    world.core.submit(&mut world.machine);
    let request = world.machine.0[0];
    assert_eq!(request.op, Op::Write { fua: true });
    assert!(world.core.arena.landings().contains(&request.buf.offset));
    world.run();
    assert_eq!(world.requests, 1);
    world.run_one(FileOperation::Zero { range: 8192..SIZE, unmap: false }, &[]).unwrap();
    world.run_one(FileOperation::Read(4096..8192), &[]).unwrap();
    assert_eq!(world.requests, 3);
}

/// Writes parts of the same blocks, all at a time: each has to see the changes of the others.
#[test]
fn parts_of_a_block_do_not_undo_each_other() {
    for seed in 1..20 {
        let mut world = World::new(8 << 20);
        world.random = seed;
        let mut expected = world.content.clone();
        for part in 0..24 {
            let start = part * 512 + if part % 5 == 0 { 0 } else { 7 };
            let len = if part % 7 == 0 { 8192 } else { 505 };
            let range = if len == 8192 { 0..8192 } else { start..start + 505 };
            let bytes = range.start as usize..range.end as usize;
            let data = noise(part + 100, bytes.len());
            // Those that cover each other come in the order in which they are sent.
            if len == 8192 {
                world.run();
            }
            world.begin(part, FileOperation::Write { range, fua: false }, &data);
            if len == 8192 {
                world.run();
            }
            expected[bytes].copy_from_slice(&data);
        }
        world.run();
        assert!(world.content == expected, "seed {seed}");
    }
}

/// Two MiB of one's own are all there is, and each of these wants more than one.
#[test]
fn there_is_always_one_that_ends_however_little_memory_there_is() {
    let mut world = World::new(1);
    while world.core.arena.allocate_landing().is_some() {}
    for unique in 0..40 {
        let start = unique % 7 * 4096 + 1;
        let long = unique % 3 > 0;
        let range = start..start + if long { 1 << 20 } else { 100 };
        world.begin(unique, FileOperation::Read(range), &[]);
    }
    let answers = world.run();
    assert_eq!(answers.len(), 40);
    for (unique, answer) in answers {
        let start = (unique % 7 * 4096 + 1) as usize;
        let len = if unique % 3 > 0 { 1 << 20 } else { 100 };
        assert!(answer.unwrap() == world.content[start..start + len], "read {unique}");
    }
}

#[test]
fn what_cannot_be_read_is_an_error_and_others_go_on() {
    let mut world = World::new(8 << 20);
    world.bad = 4096..8192;
    let before = world.content.clone();
    assert_eq!(world.run_one(FileOperation::Read(5000..5001), &[]), Err(RequestError::Medium));
    let part = FileOperation::Write { range: 4097..4100, fua: false };
    assert_eq!(world.run_one(part, &[1; 3]), Err(RequestError::Medium));
    let edge = FileOperation::Zero { range: 5000..20_000, unmap: true };
    assert_eq!(world.run_one(edge, &[]), Err(RequestError::Medium));
    assert!(world.content == before, "a write that failed has changed something");
    let part = FileOperation::Write { range: 1..2, fua: false };
    assert_eq!(world.run_one(part, &[9]), Ok(Vec::new()), "the turn was not given back");
    assert_eq!(world.content[1], 9);
    assert_eq!(world.run_one(FileOperation::Flush, &[]), Ok(Vec::new()));
}
