//! An array, its disks, and the executor between them.

use std::collections::BTreeMap;

use super::disk::Disk;
use super::*;
use crate::IoId;
use crate::RequestId;
use crate::action::{Command, IoError, Outcome};
use crate::events::{SyncAction, SyncEnd};

pub(super) type Answer = (RequestId, Result<(), RequestError>);

/// The fate of an I/O.
pub(super) enum Fate {
    Serve,
    Hold,
    Fail(IoError),
    /// Answered as if it were done.
    Lose,
}

type Rule = Box<dyn FnMut(MemberId, IoOp) -> Fate>;

pub(super) struct World {
    pub(super) array: Box<dyn BlockMachine>,
    pub(super) arena: Vec<u8>,
    pub(super) disks: Vec<Option<Disk>>,
    /// The disks of members, where the number is not the same.
    pub(super) places: BTreeMap<MemberId, usize>,
    pub(super) bad: Vec<(MemberId, u64)>,
    pub(super) now: Instant,
    pub(super) reads: usize,
    pub(super) writes: usize,
    pub(super) events: Vec<ArrayEvent>,
    next: u64,
    members_per_array: Option<usize>,
    rule: Rule,
    /// Held back, oldest first.
    pub(super) held: Vec<(IoId, MemberId, IoOp)>,
    /// All I/O the machine asked for.
    pub(super) issued: Vec<(MemberId, IoOp)>,
    pub(super) answers: Vec<Answer>,
    /// I/O that the machine waits for no longer.
    pub(super) abandoned: Vec<IoId>,
    /// The reasons why commands were refused.
    pub(super) refusals: Vec<String>,
    /// The advice that came with the refusals.
    pub(super) advice: Vec<String>,
}

impl World {
    pub(super) fn new(level: i32, layout: u32, disks: u32, chunk: u32) -> Self {
        Self::with(level, layout, disks, chunk, |_| {})
    }

    pub(super) fn with(
        level: i32,
        layout: u32,
        disks: u32,
        chunk: u32,
        change: impl Fn(&mut Config),
    ) -> Self {
        let mut config = config(level, layout, disks, chunk);
        change(&mut config);
        let metadata = config.clone();
        let bytes = Array::scratch_bytes(&config);
        let array = Array::new(Instant(0), config, Scratch { offset: 0, bytes }).unwrap();
        let mut world = Self::around(Box::new(array), metadata.members.len(), bytes);
        world.format(&metadata);
        world
    }

    /// `outer` over arrays of shape `inner`, as many as `outer` has members.
    pub(super) fn stack(outer: (i32, u32, u32, u32), inner: (i32, u32, u32, u32)) -> Self {
        let mut offset = 0;
        let mut start = |config: Config| {
            let bytes = Array::scratch_bytes(&config);
            offset += bytes;
            let scratch = Scratch { offset: offset - bytes, bytes };
            Array::new(Instant(0), config, scratch).unwrap()
        };
        let arrays: Vec<Array> =
            (0..outer.2).map(|_| start(config(inner.0, inner.1, inner.2, inner.3))).collect();
        let mut top = config(outer.0, outer.1, outer.2, outer.3);
        let data_sectors = arrays[0].array_sectors() - DATA_OFFSET;
        top.superblock.size_sectors = data_sectors.min(top.superblock.size_sectors);
        for member in &mut top.members {
            member.device_sectors = arrays[0].array_sectors();
            member.superblock.data_size = data_sectors;
            member.superblock.size_sectors = top.superblock.size_sectors;
        }
        if outer.0 > 0 {
            let size = (arrays[0].array_sectors() - DATA_OFFSET) / 64 * 64;
            let members = top.members.iter_mut().map(|member| &mut member.superblock);
            members.chain([&mut top.superblock]).for_each(|sb| sb.size_sectors = size);
        }
        let top = start(top);
        let stack = crate::stack::Stack::new(top, arrays).unwrap();
        let mut world = Self::around(Box::new(stack), (inner.2 * outer.2) as usize, offset);
        world.members_per_array = Some(inner.2 as usize);
        world
    }

    fn around(array: Box<dyn BlockMachine>, disks: usize, scratch_bytes: u64) -> Self {
        let disk = || Some(Disk::filled(DATA_OFFSET + MEMBER_SECTORS, 0));
        Self {
            array,
            arena: vec![0; scratch_bytes as usize + (4 << 20)],
            disks: std::iter::repeat_with(disk).take(disks).collect(),
            places: BTreeMap::new(),
            bad: Vec::new(),
            now: Instant(0),
            reads: 0,
            writes: 0,
            events: Vec::new(),
            next: 1,
            members_per_array: None,
            rule: Box::new(|_, _| Fate::Serve),
            held: Vec::new(),
            issued: Vec::new(),
            answers: Vec::new(),
            abandoned: Vec::new(),
            refusals: Vec::new(),
            advice: Vec::new(),
        }
    }

    /// Goes on with the disks of another array of its shape, with its own metadata.
    pub(super) fn take_disks_of(&mut self, other: Self) {
        for (own, disk) in self.disks.iter_mut().zip(other.disks) {
            let metadata = own.as_ref().unwrap().read(0, (DATA_OFFSET * SECTOR_BYTES) as usize);
            let metadata = metadata.to_vec();
            *own = disk;
            own.as_mut().unwrap().write(0, &metadata, true);
        }
    }

    /// The disk behind a member; leaf ids of a stack are far apart.
    pub(super) fn disk(&self, member: MemberId) -> usize {
        match self.members_per_array {
            Some(count) => usize::from(member.0 / 1024) * count + usize::from(member.0 % 1024),
            None => self.places.get(&member).copied().unwrap_or_else(|| member.0.into()),
        }
    }

    pub(super) fn bytes(&mut self, buf: Buf) -> &mut [u8] {
        &mut self.arena[buf.offset as usize..][..buf.len as usize]
    }

    pub(super) fn data_buf(&self, len: usize) -> Buf {
        Buf { offset: (self.arena.len() - (2 << 20)) as u64, len: len as u32 }
    }

    fn member_io(&mut self, member: MemberId, op: IoOp) -> Result<Outcome, IoError> {
        let index = self.disk(member);
        let disk = self.disks[index].as_mut().ok_or(IoError::GONE)?;
        match op {
            IoOp::Read { sector, buf } => {
                self.reads += 1;
                let end = sector + u64::from(buf.len) / SECTOR_BYTES;
                if self.bad.iter().any(|(m, s)| *m == member && (sector..end).contains(s)) {
                    return Err(IoError::MEDIUM);
                }
                let to = &mut self.arena[buf.offset as usize..][..buf.len as usize];
                to.copy_from_slice(disk.read(sector, to.len()));
            }
            IoOp::Write { sector, buf, fua, .. } => {
                self.writes += 1;
                let end = sector + u64::from(buf.len) / SECTOR_BYTES;
                self.bad.retain(|(m, s)| *m != member || !(sector..end).contains(s));
                disk.write(sector, &self.arena[buf.offset as usize..][..buf.len as usize], fua);
            }
            IoOp::WriteZeroes { sector, sectors, fua, .. } => {
                disk.write(sector, &vec![0; (sectors * SECTOR_BYTES) as usize], fua);
            }
            IoOp::Discard { .. } => {}
            IoOp::Flush => disk.flush(),
        }
        Ok(Outcome::Done)
    }

    /// Runs until nothing is left to do but what is held back, at any time within an hour; the
    /// answers that came.
    pub(super) fn run(&mut self) -> Vec<Answer> {
        self.run_until_idle();
        while self.pass_time() {}
        std::mem::take(&mut self.answers)
    }

    /// Lets the time pass until the machine wants to be called, if it does within an hour.
    pub(super) fn pass_time(&mut self) -> bool {
        let Some(at) = self.array.deadline() else { return false };
        if self.now >= Instant(3_600_000_000_000) {
            return false;
        }
        self.now = self.now.max(at);
        self.array.handle(self.now, Event::Tick);
        self.run_until_idle();
        true
    }

    /// Runs all that can be done without time passing.
    pub(super) fn run_until_idle(&mut self) {
        while let Some(action) = self.array.poll() {
            match action {
                Action::Io { io, member, op } => {
                    self.issued.push((member, op));
                    let result = match (self.rule)(member, op) {
                        Fate::Serve => self.member_io(member, op),
                        Fate::Fail(error) => Err(error),
                        Fate::Lose => Ok(Outcome::Done),
                        Fate::Hold => {
                            self.held.push((io, member, op));
                            continue;
                        }
                    };
                    self.array.handle(self.now, Event::Done { io, result });
                }
                Action::Compute { io, compute } => {
                    let result = Ok(self.compute(compute));
                    self.array.handle(self.now, Event::Done { io, result });
                }
                Action::Store { buf, bytes } => self.bytes(buf).copy_from_slice(&bytes),
                Action::Complete { id, result } => self.answers.push((id, result)),
                Action::Reply { id, result: Ok(()) } => {
                    self.answers.push((RequestId(id.0), Ok(())));
                }
                Action::Reply { result: Err(refusal), .. } => {
                    self.refusals.push(refusal.reason);
                    self.advice.push(refusal.next.advice.into_owned());
                }
                Action::Notify(event) => self.events.push(event),
                Action::Abandon { io, .. } => self.abandoned.push(io),
                Action::IoBeside { .. }
                | Action::Load { .. }
                | Action::Use { .. }
                | Action::GiveBack { .. }
                | Action::Fabric(_)
                | Action::Volume { .. }
                | Action::Survey { .. }
                | Action::Note { .. } => unreachable!("no node here"),
            }
        }
        self.array.invariants().unwrap();
    }

    /// Overwrites what the machine does not use, as an executor may when it is idle: how much that
    /// was.
    pub(super) fn give_back_unused(&mut self) -> u64 {
        assert!(self.held.is_empty(), "an executor waits until nothing is in flight");
        let mut unused = Vec::new();
        self.array.each_unused(&mut |buf| unused.push(buf));
        for buf in &unused {
            // Zeroes are left: nothing else is where an executor gives memory back.
            let bytes = self.bytes(*buf).iter_mut();
            bytes.filter(|byte| **byte != 0).for_each(|byte| *byte = 0xdc);
        }
        unused.iter().map(|buf| u64::from(buf.len)).sum()
    }

    /// Sets the fate of I/O from now on.
    pub(super) fn rule(&mut self, rule: impl FnMut(MemberId, IoOp) -> Fate + 'static) {
        self.rule = Box::new(rule);
    }

    /// From now on holds back the I/O that this picks.
    pub(super) fn hold(&mut self, which: impl Fn(MemberId, IoOp) -> bool + 'static) {
        self.rule = Box::new(move |m, op| if which(m, op) { Fate::Hold } else { Fate::Serve });
    }

    /// Serves what was held back; what follows from it is held back by the same rule.
    pub(super) fn release(&mut self) {
        for (io, member, op) in std::mem::take(&mut self.held) {
            let result = self.member_io(member, op);
            self.array.handle(self.now, Event::Done { io, result });
        }
        self.run_until_idle();
    }

    /// Serves one of those that are held back.
    pub(super) fn release_one(&mut self, index: usize) {
        let (io, member, op) = self.held.remove(index);
        let result = self.member_io(member, op);
        self.array.handle(self.now, Event::Done { io, result });
        self.run_until_idle();
    }

    /// Releases what is held back, step by step, until this has come to pass.
    pub(super) fn release_until(&mut self, reached: impl Fn(&Self) -> bool) {
        while !reached(self) {
            assert!(!self.held.is_empty(), "nothing is held back that could lead there");
            self.release();
        }
    }

    /// Serves all I/O at once again, what was held back first.
    pub(super) fn hold_nothing(&mut self) {
        self.rule = Box::new(|_, _| Fate::Serve);
        self.release();
    }

    pub(super) fn request(&mut self, op: Op, sector: u64, sectors: u64, buf: Buf) {
        self.ask(op, sector, sectors, buf);
    }

    /// The same; the id of the request.
    pub(super) fn ask(&mut self, op: Op, sector: u64, sectors: u64, buf: Buf) -> RequestId {
        let id = RequestId(self.next);
        self.next += 1;
        let request = Request { id, op, sector, sectors, buf };
        self.array.submit(self.now, request).unwrap();
        id
    }

    pub(super) fn write(&mut self, sector: u64, data: &[u8]) -> Result<(), RequestError> {
        let buf = self.data_buf(data.len());
        self.bytes(buf).copy_from_slice(data);
        self.request(Op::Write { fua: false }, sector, data.len() as u64 / SECTOR_BYTES, buf);
        let done = self.run();
        assert_eq!(done.len(), 1, "one answer to one write");
        done[0].1
    }

    pub(super) fn read(&mut self, sector: u64, sectors: u64) -> Result<Vec<u8>, RequestError> {
        let buf = self.data_buf((sectors * SECTOR_BYTES) as usize);
        self.bytes(buf).fill(0xee);
        self.request(Op::Read, sector, sectors, buf);
        let done = self.run();
        assert_eq!(done.len(), 1, "one answer to one read");
        done[0].1.map(|()| self.bytes(buf).to_vec())
    }

    /// Gives a command that is refused; why.
    pub(super) fn refused(&mut self, command: Command) -> String {
        assert!(!self.begin_command(command), "not refused");
        self.refusals.pop().expect("a refusal")
    }

    pub(super) fn command(&mut self, command: Command) {
        let id = CommandId(self.next);
        self.next += 1;
        self.array.handle(self.now, Event::Command { id, command });
        let done = self.run();
        assert_eq!(done, [(RequestId(id.0), Ok(()))], "{:?}", self.refusals);
    }

    /// Writes with no time passing; whether it was answered.
    pub(super) fn begin_write(&mut self, sector: u64, data: &[u8]) -> bool {
        let buf = self.data_buf(data.len());
        self.bytes(buf).copy_from_slice(data);
        self.request(Op::Write { fua: false }, sector, data.len() as u64 / SECTOR_BYTES, buf);
        self.run_until_idle();
        !std::mem::take(&mut self.answers).is_empty()
    }

    /// Gives a command with no time passing.
    pub(super) fn tell(&mut self, command: Command) {
        let id = CommandId(self.next);
        self.next += 1;
        self.array.handle(self.now, Event::Command { id, command });
        self.run_until_idle();
    }

    /// The same; whether it was answered.
    pub(super) fn begin_command(&mut self, command: Command) -> bool {
        self.tell(command);
        !std::mem::take(&mut self.answers).is_empty()
    }

    /// Returns how the last such work ended, if it did.
    pub(super) fn ended(&self, wanted: SyncAction) -> Option<SyncEnd> {
        self.events.iter().rev().find_map(|event| match event {
            ArrayEvent::SyncFinished { action, end, .. } if *action == wanted => Some(end.clone()),
            _ => None,
        })
    }

    pub(super) fn check(&mut self) -> u64 {
        self.command(Command::Scrub { repair: false });
        self.array.status().mismatch_sectors.unwrap()
    }
}

/// Checks that the array begins with this content.
pub(super) fn holds(world: &mut World, content: &[u8], what: &str) {
    let sectors = content.len() as u64 / SECTOR_BYTES;
    assert!(world.array.array_sectors() >= sectors, "{what}");
    for sector in (0..sectors).step_by(1024) {
        let read = world.read(sector, (sectors - sector).min(1024)).unwrap();
        let start = (sector * SECTOR_BYTES) as usize;
        assert!(read == content[start..start + read.len()], "{what}: at {sector}");
    }
}

/// Has the power go once more in one of three arrays, on the way after the first time.
pub(super) fn lose_once_more(world: &mut World, most: usize, restart: impl FnOnce(&mut World)) {
    if most.is_multiple_of(3) {
        lose_after(world, most % 40);
        world.run_until_idle();
        restart(world);
    }
}

/// Returns after how many writes of `all` the power goes the next time: seldom in the middle, more
/// often where a change begins and ends, which is the first and last `close` ones. After others in
/// each test, for each `number`, and for each draw (`BRAID_DRAW`); after each with
/// `BRAID_EVERY_CUT`.
pub(super) fn next_cut(most: usize, all: usize, close: usize, number: usize) -> usize {
    if std::env::var_os("BRAID_EVERY_CUT").is_some() {
        return most + 1;
    }
    let draw = std::env::var_os("BRAID_DRAW").and_then(|draw| draw.to_str()?.parse().ok());
    let draw: usize = draw.unwrap_or(0);
    let drawn = (most * 31 + number + draw).wrapping_mul(0x9e37_79b9) >> 16;
    let is_close = most < close || most + close >= all;
    let few = (all.saturating_sub(2 * close) / 2).max(1);
    let next = most + 1 + if is_close { drawn % 7 } else { few / 2 + drawn % few };
    // The last one is after all of them, and those at the end are not passed over.
    if is_close { next } else { next.min((all - close).max(most + 1)) }
}

/// Loses what is written after so many writes, as when the power goes. Returns the count of all.
pub(super) fn lose_after(world: &mut World, most: usize) -> std::rc::Rc<std::cell::Cell<usize>> {
    let seen = std::rc::Rc::new(std::cell::Cell::new(0));
    let count = seen.clone();
    world.rule(move |_, op| match op {
        IoOp::Write { .. } | IoOp::WriteZeroes { .. } | IoOp::Flush => {
            count.set(count.get() + 1);
            if count.get() > most { Fate::Lose } else { Fate::Serve }
        }
        _ => Fate::Serve,
    });
    seen
}
