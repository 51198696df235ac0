//! The executor and the oracle under the simplest machine there is: two plain mirrors.

use braid_array::action::Event;
use braid_array::request::Full;
use braid_array::status::Status;
use braid_array::{
    Action, BlockMachine, Buf, Instant, IoId, IoOp, Machine, MemberId, Op, Request, RequestId,
};

use crate::disk::Disk;
use crate::fault::{FaultProfile, Mutation};
use crate::oracle::{LogicalTime, Oracle, Range, WriteToken};
use crate::rng::Rng;
use crate::stamp;
use crate::trace::Trace;
use crate::world::World;
use crate::world::process::Process;

const SECTORS: u64 = 64;

#[derive(Default)]
struct Mirror {
    next: u64,
    pending: Vec<(RequestId, Vec<IoId>)>,
    actions: Vec<Action>,
}

impl Machine for Mirror {
    fn handle(&mut self, _now: Instant, event: Event) {
        let Event::Done { io, .. } = event else { return };
        for (id, ios) in &mut self.pending {
            ios.retain(|pending| *pending != io);
            if ios.is_empty() {
                self.actions.push(Action::Complete { id: *id, result: Ok(()) });
            }
        }
        self.pending.retain(|(_, ios)| !ios.is_empty());
    }

    fn poll(&mut self) -> Option<Action> {
        (!self.actions.is_empty()).then(|| self.actions.remove(0))
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn idle(&self) -> bool {
        self.pending.is_empty()
    }
}

impl BlockMachine for Mirror {
    fn submit(&mut self, _now: Instant, request: Request) -> Result<(), Full> {
        let Request { sector, buf, .. } = request;
        let (members, op) = match request.op {
            Op::Read => (0..1, IoOp::Read { sector, buf }),
            Op::Write { fua } => (0..2, IoOp::Write { sector, buf, fua, fill: false }),
            _ => (0..2, IoOp::Flush),
        };
        let mut ios = Vec::new();
        for member in members {
            self.next += 1;
            ios.push(IoId(self.next));
            self.actions.push(Action::Io { io: IoId(self.next), member: MemberId(member), op });
        }
        self.pending.push((request.id, ios));
        Ok(())
    }

    fn status(&self) -> Status {
        unreachable!("nobody asks")
    }

    fn array_sectors(&self) -> u64 {
        SECTORS
    }

    fn block_bytes(&self) -> u32 {
        512
    }

    fn read_only(&self) -> bool {
        false
    }

    fn free_member(&self) -> Option<MemberId> {
        None
    }
}

struct Bench {
    world: World,
    /// The process of the mirror.
    process: usize,
    oracle: Oracle,
    buf: Buf,
}

const PROFILE: FaultProfile =
    FaultProfile { disk_nanos: 1000, compute_nanos: 0, slow_permille: 10, ..FaultProfile::CALM };

impl Bench {
    fn new(seed: u64, profile: FaultProfile) -> Self {
        let world = World::new(Rng::new(seed), profile, Trace::new(false));
        let oracle = Oracle::new(SECTORS);
        let mut bench = Self { world, process: 0, oracle, buf: Buf { offset: 0, len: 1024 } };
        bench.start(vec![Disk::new(SECTORS), Disk::new(SECTORS)]);
        bench
    }

    /// A mirror begins on these disks.
    fn start(&mut self, disks: Vec<Disk>) {
        let mirror = Box::new(Mirror::default());
        let attached = [(MemberId(0), 0), (MemberId(1), 1)];
        self.process = self.world.start(Process::of_array(mirror, 4096, disks, &attached));
    }

    fn bytes(&mut self) -> &mut [u8] {
        self.world.processes[self.process].bytes(self.buf)
    }

    /// Runs a request to its end.
    fn request(&mut self, op: Op, sector: u64) {
        let request = Request { id: RequestId(1), op, sector, sectors: 2, buf: self.buf };
        let now = self.world.now();
        self.world.processes[self.process].client().submit(now, request).unwrap();
        self.world.drain(self.process);
        while self.world.step() {}
        assert_eq!(self.world.faults, [""; 0]);
        let expected = Action::Complete { id: RequestId(1), result: Ok(()) };
        assert_eq!(std::mem::take(&mut self.world.outputs), [(self.process, expected)]);
    }

    fn write(&mut self, sector: u64, fua: bool) {
        let serial = self.oracle.new_serial();
        stamp::fill(self.bytes(), sector, serial);
        let token: WriteToken = self.oracle.write_submitted(Range { sector, sectors: 2 }, serial);
        self.request(Op::Write { fua }, sector);
        self.oracle.write_completed(token, true, fua);
    }

    fn flush(&mut self) {
        let moment: LogicalTime = self.oracle.flush_submitted();
        self.request(Op::Flush, 0);
        self.oracle.flush_completed(moment);
    }

    fn read(&mut self, sector: u64) -> bool {
        let moment = self.oracle.read_submitted();
        self.request(Op::Read, sector);
        let bytes = self.bytes().to_vec();
        self.oracle.read_completed(moment, sector, &bytes, false, &|_| false).is_ok()
    }
}

/// Writes, cuts the power, and compares the rest with the oracle.
fn run(seed: u64, profile: FaultProfile) -> bool {
    let mut bench = Bench::new(seed, profile);
    let mut rng = Rng::new(seed);
    for _ in 0..20 {
        match rng.below(8) {
            0 => bench.flush(),
            n => bench.write(rng.below(8), n < 3),
        }
        if !bench.read(rng.below(8)) {
            return false;
        }
    }
    let disks = bench.world.power_cut(bench.process);
    bench.start(disks);
    bench.oracle.power_cut();
    (0..8).all(|sector| bench.read(sector))
}

#[test]
fn a_right_executor_passes_and_a_wrong_one_does_not() {
    assert!((0..100).all(|seed| run(seed, PROFILE)));
    for mutation in [Mutation::DropFlush, Mutation::IgnoreFua, Mutation::Misdirect] {
        let profile = FaultProfile { mutation: Some(mutation), ..PROFILE };
        assert!(!(0..200).all(|seed| run(seed, profile)), "{mutation:?} goes unnoticed");
    }
}

#[test]
fn a_device_that_is_gone_answers_so() {
    let mut bench = Bench::new(1, PROFILE);
    bench.world.processes[bench.process].devices[1].disk.set_gone(true);
    let trace = bench.world.trace.events();
    bench.write(3, false);
    assert_eq!(bench.world.trace.events() - trace, 3, "two writes, of which one fails");
}
