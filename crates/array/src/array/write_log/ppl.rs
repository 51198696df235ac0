//! Partial parity logs of RAID 5, as md writes them (`raid5-ppl.c`): each member has a log for the
//! stripes whose parity it holds.
//!
//! ```text
//!             partial parity,              header, partial      the writes         all members
//!             checksums                    parity, durably      themselves         flushed
//!  Idle ───► Summing ───────────────────► Recording ──────────► InPlace ───► Done ──────────► Idle
//!   ▲ writes wait here, and go together                                       (when others wait)
//! ```
//! A log holds one *unit* that counts, the last. So the next one is recorded only when all that the
//! last one tells of is in place, and durable. Writes of it to a member that failed meanwhile need
//! not be, once superblocks say that the member has failed: until then a crash might bring it back.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::super::io::{Owner, PartialParityIo};
use super::super::lane::Lane;
use super::super::recording::Recorded;
use super::unit::{Draft, LogUnit, drafts, holders};
use crate::action::{Action, Compute, Outcome};
use crate::format::ppl::{HEADER_BYTES, PplArea, PplHeader};
use crate::{Buf, IoOp, MemberId, SECTOR_BYTES};

/// The logs of all members, and the flushes between units, which they share. A write is
/// [recorded](Self::record); it may go on when it is among those `released`;
/// when it is [in place](Self::in_place) its unit may be forgotten.
#[derive(Debug)]
pub(in super::super) struct PartialParityLogs {
    set_uuid: [u8; 16],
    logs: BTreeMap<MemberId, Log>,
    /// Memory for units, of logs that are no more.
    free_buffers: Vec<Buf>,
    /// Where each write under way is.
    tickets: BTreeMap<usize, Ticket>,
    /// Writes that may go on.
    pub(super) released: Vec<usize>,
    /// Writes that may when superblocks tell of a failure: without the member that holds their
    /// parity they are in no log, and a crash before that would bring it back as it was.
    untold: Vec<usize>,
    /// Units to be rebuilt on members whose logs are not in use yet. The contents of their areas
    /// are from another time, and count once the members are in sync.
    rebuilds: Vec<usize>,
    /// Members for whose logs there is no memory: I/O that nobody waits for may still use it.
    without_memory: BTreeSet<MemberId>,
    /// Writes that wait for that.
    short: Vec<(usize, MemberId, Vec<Draft>)>,
    /// Flushes that are not answered, while all members are being flushed.
    flushing: usize,
    /// Set when the flushes began while no write was under way without a log.
    covers_all: bool,
    /// Writes under way that are in no log: a resync is to follow them.
    unrecorded: BTreeSet<usize>,
    /// Everything that was written without is durable. Before that, a log tells of nothing.
    begun: bool,
}

/// A write under way. While one member takes a role over from another, a crash may leave the role
/// to either: the write is recorded by both, one after the other in the order of their ids, so that
/// no two writes wait for each other.
#[derive(Debug)]
struct Ticket {
    /// The logs that it is in, or waits for: the last.
    logs: Vec<MemberId>,
    /// The log that comes then.
    next: Option<(MemberId, Vec<Draft>)>,
}

/// The work of one member's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PplState {
    /// The contents of its area are from another time, and are overwritten with zeroes.
    Clearing,
    /// An empty unit is written, behind which nothing counts.
    Emptying,
    Idle,
    /// Sums and checksums that are not done.
    Summing(usize),
    Recording,
    /// Writes of the unit that are not in place.
    InPlace(usize),
    /// All of them are.
    Done,
    /// The writes are durable when the flush under way ends.
    Flushing,
}

#[derive(Debug)]
struct Log {
    /// The device that it is on: an id may mean another one later.
    device_uuid: [u8; 16],
    area: PplArea,
    /// Where in it the next unit begins, in sectors.
    next: u64,
    generation: u64,
    state: PplState,
    buffer: Buf,
    unit: LogUnit,
    /// Writes that go with the next units.
    waiting: VecDeque<(usize, Vec<Draft>)>,
}

impl PartialParityLogs {
    /// No log is in use yet. `buffers`: memory for a unit, two for each role.
    pub(super) fn new(set_uuid: [u8; 16], buffers: Vec<Buf>) -> Self {
        Self {
            set_uuid,
            logs: BTreeMap::new(),
            free_buffers: buffers,
            tickets: BTreeMap::new(),
            released: Vec::new(),
            untold: Vec::new(),
            rebuilds: Vec::new(),
            without_memory: BTreeSet::new(),
            short: Vec::new(),
            flushing: 0,
            covers_all: false,
            unrecorded: BTreeSet::new(),
            begun: false,
        }
    }

    /// Names the memory of units that are not being recorded, and that no I/O may use which was
    /// given up.
    pub(super) fn each_free(&self, lane: &Lane, found: &mut dyn FnMut(Buf)) {
        let resting = self.logs.values().filter(|log| log.state == PplState::Idle);
        let all = resting.map(|log| log.buffer).chain(self.free_buffers.iter().copied());
        all.filter(|buf| !lane.pool.is_lent(*buf)).for_each(found);
    }

    /// Takes the log of a member into use. `generation`: the latest that was found in it, behind
    /// which an empty unit ends it; of a log that was not looked at, nothing may be left that a
    /// recovery would take for the latest.
    pub(super) fn begin(&mut self, lane: &mut Lane, id: MemberId, generation: Option<u64>) {
        let Some(member) = lane.keeper().members().get(id) else { return };
        let device_uuid = member.superblock.device_uuid;
        let Ok(Some(area)) = PplArea::kept(&member.superblock) else { return };
        // Each role has two at most: who holds it, and who takes over or has just been taken over.
        // What is summed ends by itself: until then the memory is in use.
        let gone = |(id, log): (&MemberId, &Log)| {
            let sums = matches!(log.state, PplState::Summing(_));
            (!sums && !lane.keeper().members().live(*id)).then_some(*id)
        };
        for id in self.logs.iter().filter_map(gone).collect::<Vec<_>>() {
            self.end(lane, id);
        }
        let free = self.free_buffers.iter().position(|buf| !lane.pool.is_lent(*buf));
        let Some(free) = free else {
            self.without_memory.insert(id);
            return;
        };
        let log = Log {
            device_uuid,
            area,
            next: 0,
            generation: generation.map_or(0, |latest| latest.saturating_add(1)),
            state: PplState::Clearing,
            buffer: self.free_buffers.swap_remove(free),
            unit: LogUnit::default(),
            waiting: VecDeque::new(),
        };
        let clear = IoOp::WriteZeroes {
            sector: area.sector,
            sectors: area.sectors,
            unmap: false,
            fua: true,
        };
        self.logs.insert(id, log);
        match generation {
            Some(_) => self.write_unit(lane, id, PplState::Emptying),
            None => lane.issue(id, clear, Owner::PartialParity(PartialParityIo::Unit(id))),
        }
    }

    /// Returns whether this write waits for its log, which is busy with something.
    pub(super) fn waits_for(&self, lane: &Lane, index: usize) -> bool {
        if self.rebuilds.contains(&index) {
            return self.is_beginning();
        }
        if self.short.iter().any(|(other, ..)| *other == index) {
            return !self.without_memory.is_empty();
        }
        if self.untold.contains(&index) {
            return !lane.keeper().failures_told();
        }
        let last = self.tickets.get(&index).and_then(|ticket| ticket.logs.last());
        let log = last.and_then(|id| self.logs.get(id));
        log.is_some_and(|log| match log.state {
            PplState::Idle | PplState::Done if !lane.keeper().failures_told() => true,
            PplState::Idle => !self.begun && (self.flushing > 0 || !self.unrecorded.is_empty()),
            PplState::Done => self.flushing > 0,
            _ => true,
        })
    }

    /// Returns whether members are flushed so that a unit may follow another.
    pub(super) const fn is_flushing(&self) -> bool {
        self.flushing > 0
    }

    /// Returns whether the log of any member is being taken into use.
    pub(super) fn is_beginning(&self) -> bool {
        let begins = |log: &Log| matches!(log.state, PplState::Clearing | PplState::Emptying);
        self.logs.values().any(begins) || !self.without_memory.is_empty()
    }

    /// Makes this write wait until it is in the log, or need not be: no member holds the parity.
    /// False where a resync follows anyway.
    pub(super) fn record(&mut self, lane: &mut Lane, index: usize, recorded: Recorded<'_>) -> bool {
        if let Recorded::Rebuilt { targets } = recorded {
            return self.prepare(lane, index, targets);
        }
        // After a crash the kernel takes all of an array to fit whose logs tell of anything. Before
        // the resync is done, they tell of nothing.
        if lane.keeper().has_to_resync() {
            self.unrecorded.insert(index);
            self.begun = false;
            return false;
        }
        let drafts = drafts(recorded, lane);
        let mut holders = holders(recorded, lane);
        let first = if drafts.is_empty() { None } else { holders.next() };
        let Some(first) = first else {
            self.release(lane, index);
            return true;
        };
        let next = holders.next().map(|second| (second, drafts.clone()));
        self.tickets.insert(index, Ticket { logs: Vec::new(), next });
        self.enqueue(lane, index, first, drafts);
        true
    }

    /// Makes the rebuilding of a unit wait until the logs of these members are in use.
    fn prepare(&mut self, lane: &mut Lane, index: usize, targets: &[MemberId]) -> bool {
        for id in targets {
            if !self.has_log(lane, *id) {
                self.begin(lane, *id, None);
            }
        }
        let waits = self.is_beginning();
        if waits {
            self.rebuilds.push(index);
        }
        waits
    }

    /// Returns whether the log of this member is in use. The log of another device under its id
    /// ends.
    fn has_log(&mut self, lane: &mut Lane, id: MemberId) -> bool {
        let Some(log) = self.logs.get(&id) else { return false };
        let member = lane.keeper().members().get(id);
        let same = member.is_some_and(|member| member.superblock.device_uuid == log.device_uuid);
        // What is summed ends by itself: until then the memory is in use.
        if same || matches!(log.state, PplState::Summing(_)) {
            return true;
        }
        self.end(lane, id);
        false
    }

    /// Rebuilding goes on when all logs are in use.
    fn begun(&mut self) {
        if !self.is_beginning() {
            self.released.append(&mut self.rebuilds);
        }
    }

    /// Puts a write into the queue for the log of this member.
    fn enqueue(&mut self, lane: &mut Lane, index: usize, id: MemberId, drafts: Vec<Draft>) {
        if !self.has_log(lane, id) {
            self.begin(lane, id, None);
        }
        let Some(log) = self.logs.get_mut(&id) else {
            if !self.without_memory.contains(&id) {
                return self.recorded(lane, index);
            }
            return self.short.push((index, id, drafts));
        };
        log.waiting.push_back((index, drafts));
        if let Some(ticket) = self.tickets.get_mut(&index) {
            ticket.logs.push(id);
        }
        self.advance(lane, id);
    }

    /// Memory may have come back, or who waits for it for a log be gone.
    pub(super) fn use_memory(&mut self, lane: &mut Lane) {
        if self.without_memory.is_empty() {
            return;
        }
        for id in std::mem::take(&mut self.without_memory) {
            if lane.keeper().members().live(id) && !self.has_log(lane, id) {
                self.begin(lane, id, None);
            }
        }
        for (index, id, drafts) in std::mem::take(&mut self.short) {
            if lane.keeper().members().live(id) {
                self.enqueue(lane, index, id, drafts);
            } else {
                self.recorded(lane, index);
            }
        }
        self.begun();
    }

    /// A write is in a log, or need not be: it waits for the other one, or may go on.
    fn recorded(&mut self, lane: &mut Lane, index: usize) {
        let next = self.tickets.get_mut(&index).and_then(|ticket| ticket.next.take());
        match next {
            Some((id, drafts)) if lane.keeper().members().live(id) => {
                self.enqueue(lane, index, id, drafts);
            }
            _ => self.release(lane, index),
        }
    }

    fn release(&mut self, lane: &Lane, index: usize) {
        if lane.keeper().failures_told() {
            self.released.push(index);
        } else {
            self.untold.push(index);
        }
    }

    /// This write is over: what it wrote is in place, or will not be written.
    pub(super) fn in_place(&mut self, lane: &mut Lane, index: usize) {
        if self.unrecorded.remove(&index) {
            return self.advance_all(lane);
        }
        let Some(ticket) = self.tickets.remove(&index) else { return };
        for id in ticket.logs {
            let Some(log) = self.logs.get_mut(&id) else { continue };
            if let PplState::InPlace(left) = &mut log.state {
                *left -= 1;
                if *left == 0 && crate::broken("unit-after-flush") {
                    log.state = PplState::Idle;
                } else if *left == 0 {
                    log.state = PplState::Done;
                }
            }
            self.advance(lane, id);
        }
    }

    /// Superblocks are written: they may tell of a failure now.
    pub(super) fn updated(&mut self, lane: &mut Lane) {
        if lane.keeper().failures_told() {
            self.released.append(&mut self.untold);
            self.advance_all(lane);
        }
        self.use_memory(lane);
    }

    /// Something that a log has asked for is answered; what failed has made its member faulty.
    pub(in super::super) fn answered(
        &mut self,
        lane: &mut Lane,
        io: PartialParityIo,
        outcome: Option<Outcome>,
    ) {
        match io {
            PartialParityIo::Unit(id) => self.unit_answered(lane, id),
            PartialParityIo::Entry(id, entry) => self.entry_answered(lane, id, entry, outcome),
            PartialParityIo::Flush => {
                self.flushing -= 1;
                if self.flushing == 0 {
                    self.flushed(lane);
                }
            }
        }
        self.use_memory(lane);
    }

    fn unit_answered(&mut self, lane: &mut Lane, id: MemberId) {
        if !lane.keeper().members().live(id) {
            return self.end(lane, id);
        }
        let Some(log) = self.logs.get_mut(&id) else { return };
        match log.state {
            PplState::Clearing => return self.write_unit(lane, id, PplState::Emptying),
            PplState::Recording => {
                log.state = PplState::InPlace(log.unit.jobs.len());
                for index in log.unit.jobs.clone() {
                    self.recorded(lane, index);
                }
            }
            _ => log.state = PplState::Idle,
        }
        self.begun();
        self.advance(lane, id);
    }

    fn entry_answered(
        &mut self,
        lane: &mut Lane,
        id: MemberId,
        entry: u16,
        outcome: Option<Outcome>,
    ) {
        let Some(log) = self.logs.get_mut(&id) else { return };
        let PplState::Summing(left) = &mut log.state else { return };
        match outcome {
            Some(Outcome::Crc(checksum)) => {
                log.unit.drafts[usize::from(entry)].entry.checksum = checksum;
                *left -= 1;
            }
            _ => {
                let inputs = log.unit.output(log.buffer, entry).into_iter().collect();
                let crc = Compute::Crc { before: 0, inputs };
                lane.issue_compute(crc, Owner::PartialParity(PartialParityIo::Entry(id, entry)));
            }
        }
        if *left == 0 {
            self.write_unit(lane, id, PplState::Recording);
        }
    }

    /// A member is gone: what waits for its log needs it no longer.
    fn end(&mut self, lane: &mut Lane, id: MemberId) {
        let Some(log) = self.logs.remove(&id) else { return };
        self.free_buffers.push(log.buffer);
        let being_recorded = matches!(log.state, PplState::Summing(_) | PplState::Recording);
        let jobs = if being_recorded { log.unit.jobs } else { Vec::new() };
        for index in jobs.into_iter().chain(log.waiting.into_iter().map(|(index, _)| index)) {
            self.recorded(lane, index);
        }
        self.begun();
    }

    /// Begins what a log can begin: its next unit, or first the flush after the last one.
    fn advance(&mut self, lane: &mut Lane, id: MemberId) {
        let Some(log) = self.logs.get_mut(&id) else { return };
        if log.waiting.is_empty() {
            return;
        }
        if !lane.keeper().members().live(id) && matches!(log.state, PplState::Idle | PplState::Done)
        {
            return self.end(lane, id);
        }
        if !lane.keeper().failures_told() && !crate::broken("unit-after-failure") {
            return;
        }
        let rests = self.flushing == 0;
        match log.state {
            PplState::Idle if self.begun || crate::broken("log-begins-durable") => {
                self.begin_unit(lane, id);
            }
            PplState::Idle if rests && self.unrecorded.is_empty() => self.flush(lane),
            PplState::Done if rests => self.flush(lane),
            _ => {}
        }
    }

    fn begin_unit(&mut self, lane: &mut Lane, id: MemberId) {
        let Some(log) = self.logs.get_mut(&id) else { return };
        let room_bytes = (log.area.sectors * SECTOR_BYTES) as u32 - HEADER_BYTES;
        log.unit = LogUnit::take(&mut log.waiting, room_bytes);
        let sums: Vec<(u16, Compute)> = log.unit.sums(log.buffer).collect();
        log.state = PplState::Summing(sums.len());
        if sums.is_empty() {
            return self.write_unit(lane, id, PplState::Recording);
        }
        for (entry, sum) in sums {
            lane.issue_compute(sum, Owner::PartialParity(PartialParityIo::Entry(id, entry)));
        }
    }

    /// Writes the unit of a log, durably.
    fn write_unit(&mut self, lane: &mut Lane, id: MemberId, state: PplState) {
        if !lane.keeper().members().live(id) {
            return self.end(lane, id);
        }
        let Some(log) = self.logs.get_mut(&id) else { return };
        let bytes = HEADER_BYTES + log.unit.parity_bytes();
        let sectors = u64::from(bytes) / SECTOR_BYTES;
        if log.next + sectors > log.area.sectors || !log.area.is_ring {
            log.next = 0;
        }
        log.generation = log.generation.saturating_add(1);
        let header = PplHeader { generation: log.generation, entries: log.unit.entries() };
        let header_buf = log.buffer.slice(0, HEADER_BYTES);
        let bytes_of_header = header.encode(self.set_uuid);
        lane.actions.push_back(Action::Store { buf: header_buf, bytes: bytes_of_header });
        let sector = log.area.sector + log.next;
        log.next += sectors;
        log.state = state;
        let fua = !crate::broken("log-before-data");
        let op = IoOp::Write { sector, buf: log.buffer.slice(0, bytes), fua, fill: false };
        lane.issue(id, op, Owner::PartialParity(PartialParityIo::Unit(id)));
    }

    /// Flushes all members, for all logs whose units are in place.
    fn flush(&mut self, lane: &mut Lane) {
        for log in self.logs.values_mut().filter(|log| log.state == PplState::Done) {
            log.state = PplState::Flushing;
        }
        let members: Vec<MemberId> = lane.keeper().members().holders().collect();
        self.flushing = members.len();
        self.covers_all = self.unrecorded.is_empty();
        for id in members {
            lane.issue(id, IoOp::Flush, Owner::PartialParity(PartialParityIo::Flush));
        }
    }

    fn flushed(&mut self, lane: &mut Lane) {
        for log in self.logs.values_mut().filter(|log| log.state == PplState::Flushing) {
            log.state = PplState::Idle;
        }
        // What was written without before is durable, if no more has come since.
        self.begun |= self.covers_all && !lane.keeper().has_to_resync();
        self.advance_all(lane);
    }

    fn advance_all(&mut self, lane: &mut Lane) {
        for id in self.logs.keys().copied().collect::<Vec<_>>() {
            self.advance(lane, id);
        }
    }
}
