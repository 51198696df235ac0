//! A lane's array as a test holds it: requests with known content, commands and their answers, the
//! events so far.

use braid_array::action::{Command, CommandId, Event};
use braid_array::events::{ArrayEvent, SyncAction, SyncEnd};
use braid_array::status::{MemberStatus, Status};
use braid_array::{Action, Buf, Instant, MemberId, Op, Refusal, Request, RequestError, RequestId};
use braid_sim::stamp::{self, Serial, ZEROES};

use crate::members::lane::{
    CHUNK_SECTORS, Code, DATA_SECTOR, DATA_SECTORS, Lane, SLOT_BYTES, SLOTS, Setup,
};

/// More events than anything here takes.
const MAX_STEPS: u64 = 2_000_000;

const SECTOR: u64 = 512;
const SLOT_SECTORS: u64 = SLOT_BYTES / SECTOR;

/// An array of a lane, for a test: writes known content and remembers the content of each sector,
/// gives commands and waits for their answers, and keeps the events. Time advances only inside its
/// calls ([`step`](Self::step), [`until`](Self::until), [`pass`](Self::pass)).
pub(crate) struct Array<L> {
    /// Lane that runs it.
    pub(crate) lane: L,
    /// Code of the array.
    pub(crate) code: Code,
    /// Events since it was assembled.
    pub(crate) events: Vec<ArrayEvent>,
    replies: Vec<(CommandId, Result<(), Refusal>)>,
    completed: Vec<(RequestId, Result<(), RequestError>)>,
    commands: u64,
    requests: u64,
    serial: Serial,
    /// The write that each sector was last written by.
    content: Vec<Serial>,
}

impl<L: Lane> Array<L> {
    /// A new array, which runs.
    pub(crate) fn start(code: Code, setup: Setup) -> Self {
        let mut array = Self {
            lane: L::create(code, setup),
            code,
            events: Vec::new(),
            replies: Vec::new(),
            completed: Vec::new(),
            commands: 0,
            requests: 0,
            serial: ZEROES,
            content: Vec::new(),
        };
        array.assemble();
        array.content = vec![ZEROES; array.status().array_sectors as usize];
        array
    }

    /// Starts the array from its members.
    pub(crate) fn assemble(&mut self) {
        self.events.clear();
        self.lane.crash();
        self.lane.assemble(false);
        self.hear();
    }

    /// Starts the array from its members, read-only.
    pub(crate) fn assemble_read_only(&mut self) {
        self.events.clear();
        self.lane.crash();
        self.lane.assemble(true);
        self.hear();
    }

    pub(crate) fn status(&mut self) -> Status {
        self.lane.machine().status()
    }

    pub(crate) fn member(&mut self, member: MemberId) -> Option<MemberStatus> {
        self.status().member(member).cloned()
    }

    pub(crate) fn now(&mut self) -> Instant {
        self.lane.world().0.now()
    }

    fn hear(&mut self) {
        for action in self.lane.outputs() {
            match action {
                Action::Complete { id, result } => self.completed.push((id, result)),
                Action::Reply { id, result } => self.replies.push((id, result)),
                Action::Notify(event) => self.events.push(event),
                other => panic!("{:?}: unexpected {other:?}", self.code),
            }
        }
    }

    /// Lets the next thing happen. False when nothing is due.
    pub(crate) fn step(&mut self) -> bool {
        let moved = self.lane.world().0.step();
        self.hear();
        moved
    }

    /// Goes on until this is so.
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, mut reached: impl FnMut(&mut Self) -> bool) {
        for _ in 0..MAX_STEPS {
            if reached(self) {
                return;
            }
            assert!(self.step(), "{:?}: nothing is due, but not: {what}", self.code);
        }
        let sync = self.status().sync;
        panic!("{:?}: never: {what}; {sync:?}", self.code);
    }

    /// Goes on for so long, or until nothing more happens by itself.
    #[track_caller]
    pub(crate) fn pass(&mut self, millis: u64) {
        let end = self.now().plus_millis(millis);
        for _ in 0..MAX_STEPS {
            if self.now() >= end || !self.step() {
                return;
            }
        }
        panic!("{:?}: no end", self.code);
    }

    /// Gives a command. Its answer comes later.
    pub(crate) fn ask(&mut self, command: Command) -> CommandId {
        self.commands += 1;
        let id = CommandId(self.commands);
        let (world, array) = self.lane.world();
        world.handle(array, Event::Command { id, command });
        self.hear();
        id
    }

    /// The answer to a command.
    #[track_caller]
    pub(crate) fn answer(&mut self, id: CommandId) -> Result<(), Refusal> {
        let mut answer = None;
        self.until("an answer", |array| {
            let at = array.replies.iter().position(|(replied, _)| *replied == id);
            answer = at.map(|at| array.replies.remove(at).1);
            answer.is_some()
        });
        answer.expect("an answer")
    }

    /// Gives a command, and waits for its answer.
    #[track_caller]
    pub(crate) fn command(&mut self, command: Command) -> Result<(), Refusal> {
        let id = self.ask(command);
        self.answer(id)
    }

    /// Gives a command that is obeyed.
    #[track_caller]
    pub(crate) fn order(&mut self, command: Command) {
        let words = format!("{command:?}");
        if let Err(refusal) = self.command(command) {
            panic!("{:?}: {words} was refused: {refusal}", self.code);
        }
    }

    /// Gives a command that is refused, with a reason and a next step, and changes nothing.
    #[track_caller]
    pub(crate) fn refused(&mut self, command: Command) -> Refusal {
        let words = format!("{:?}: {command:?}", self.code);
        let events = self.events.len();
        let before = essence(&self.status());
        let Err(refusal) = self.command(command) else { panic!("{words} was obeyed") };
        assert!(!refusal.reason.is_empty(), "{words}: no reason");
        assert!(!refusal.next.is_empty(), "{words}: no next step after {:?}", refusal.reason);
        assert_eq!(essence(&self.status()), before, "{words} changed something");
        assert_eq!(self.events[events..], [], "{words} made something happen");
        refusal
    }

    /// Stops it; it says yes.
    #[track_caller]
    pub(crate) fn stop(&mut self) {
        self.order(Command::Stop);
    }

    /// Kills the machine without a stop.
    pub(crate) fn crash(&mut self) {
        self.lane.crash();
        self.completed.clear();
        self.replies.clear();
    }

    #[track_caller]
    fn request(&mut self, op: Op, sector: u64, buf: Buf) -> RequestId {
        self.requests += 1;
        let id = RequestId(self.requests);
        let sectors = u64::from(buf.len) / SECTOR;
        let request = Request { id, op, sector, sectors, buf };
        self.until("room for a request", |array| {
            let now = array.now();
            array.lane.machine().submit(now, request).is_ok()
        });
        let (world, array) = self.lane.world();
        world.drain(array);
        self.hear();
        id
    }

    #[track_caller]
    fn result(&mut self, id: RequestId) -> Result<(), RequestError> {
        let mut result = None;
        self.until("a completion", |array| {
            let at = array.completed.iter().position(|(completed, _)| *completed == id);
            result = at.map(|at| array.completed.remove(at).1);
            result.is_some()
        });
        result.expect("a result")
    }

    /// Writes, and waits.
    ///
    /// # Errors
    /// Then the content counts as it was before.
    #[track_caller]
    pub(crate) fn try_write(&mut self, sector: u64, sectors: u64) -> Result<(), RequestError> {
        self.serial += 1;
        let id = self.begin_write(slot(0, sectors), sector);
        self.result(id)?;
        self.content[sector as usize..(sector + sectors) as usize].fill(self.serial);
        Ok(())
    }

    #[track_caller]
    fn begin_write(&mut self, buf: Buf, sector: u64) -> RequestId {
        stamp::fill(self.lane.bytes(buf), sector, self.serial);
        self.request(Op::Write { fua: false }, sector, buf)
    }

    /// Writes ranges of so many sectors that begin here, all at once.
    #[track_caller]
    pub(crate) fn write_together(&mut self, starts: &[u64], sectors: u64) {
        self.serial += 1;
        let begin =
            |(number, sector): (u64, &u64)| self.begin_write(slot(number, sectors), *sector);
        let ids: Vec<RequestId> = (0..).zip(starts).map(begin).collect();
        for (id, &sector) in ids.into_iter().zip(starts) {
            assert_eq!(self.result(id), Ok(()), "{:?}", self.code);
            self.content[sector as usize..(sector + sectors) as usize].fill(self.serial);
        }
    }

    /// Writes this range, at most a buffer at a time.
    #[track_caller]
    pub(crate) fn write(&mut self, sector: u64, sectors: u64) {
        for at in (sector..sector + sectors).step_by(SLOT_SECTORS as usize) {
            let result = self.try_write(at, SLOT_SECTORS.min(sector + sectors - at));
            result.unwrap_or_else(|error| panic!("{:?}: a write failed: {error}", self.code));
        }
    }

    /// Flushes: answered writes need not be on the members before.
    #[track_caller]
    fn flush(&mut self) {
        let id = self.request(Op::Flush, 0, Buf { offset: 0, len: 0 });
        assert_eq!(self.result(id), Ok(()), "{:?}", self.code);
    }

    /// Reads a block of anything.
    #[track_caller]
    pub(crate) fn touch(&mut self, sector: u64) {
        self.read(sector, slot(0, 8));
    }

    #[track_caller]
    fn read(&mut self, sector: u64, buf: Buf) {
        loop {
            let id = self.request(Op::Read, sector, buf);
            match self.result(id) {
                Ok(()) => return,
                // Asked for again when the buffer is free.
                Err(RequestError::BufferHeld) => self.pass(10),
                Err(error) => panic!("{:?}: a read failed: {error}", self.code),
            }
        }
    }

    /// Everything that was written can be read, and around it nothing else was.
    #[track_caller]
    pub(crate) fn content_is_right(&mut self) {
        let content = std::mem::take(&mut self.content);
        for (at, serials) in (0..).step_by(SLOT_SECTORS as usize).zip(content.chunks(128)) {
            if serials.iter().all(|serial| *serial == ZEROES) {
                continue;
            }
            let buf = slot(0, serials.len() as u64);
            self.read(at, buf);
            let bytes = self.lane.bytes(buf).chunks(SECTOR as usize);
            for ((number, &serial), found) in (at..).zip(serials).zip(bytes) {
                let right = stamp::matches(found, number, serial);
                let found = stamp::describe(found);
                assert!(right, "{:?}: sector {number} of {serial} is {found}", self.code);
            }
        }
        self.content = content;
    }

    /// Members agree, as they lie there.
    #[track_caller]
    pub(crate) fn members_agree(&mut self) {
        self.flush();
        assert_eq!(self.lane.misfit(), None, "{:?}", self.code);
    }

    /// Where the data of an array sector lies: members and sectors of their data, by role.
    pub(crate) fn places(&mut self, sector: u64) -> Vec<(usize, u64)> {
        let serial = self.content[sector as usize];
        assert_ne!(serial, ZEROES, "sector {sector} was not written");
        self.flush();
        let mut places = Vec::new();
        for device in 0..usize::from(self.code.members) {
            let image = self.lane.disk(device).image();
            let data =
                &image[(DATA_SECTOR * SECTOR) as usize..][..(DATA_SECTORS * SECTOR) as usize];
            let sectors = (0..).zip(data.chunks(SECTOR as usize));
            let own = sectors.filter(|(_, bytes)| stamp::matches(bytes, sector, serial));
            places.extend(own.map(|(at, _)| (device, at)));
        }
        assert!(!places.is_empty(), "{:?}: sector {sector} lies nowhere", self.code);
        places
    }

    /// A parity that counts the block at this place in.
    pub(crate) fn parity_beside(&mut self, (device, at): (usize, u64)) -> (usize, u64) {
        let mut others = (0..usize::from(self.code.members)).filter(|other| *other != device);
        let parity = others.find(|&other| {
            let image = self.lane.disk(other).image();
            let bytes = &image[((DATA_SECTOR + at) * SECTOR) as usize..][..SECTOR as usize];
            stamp::describe(bytes).starts_with("garbage")
        });
        (parity.expect("a parity in the same row"), at)
    }

    /// A byte of a member's data flips.
    pub(crate) fn flip(&mut self, (device, at): (usize, u64)) {
        let disk = self.lane.disk(device);
        let start = ((DATA_SECTOR + at) * SECTOR) as usize;
        let mut bytes = disk.image()[start..start + SECTOR as usize].to_vec();
        bytes[100] ^= 0x10;
        disk.put(DATA_SECTOR + at, &bytes);
    }

    /// Returns the number of sectors within which a mismatch at its first sector is reported.
    pub(crate) fn reach(&mut self) -> u64 {
        if self.code.copies() {
            return SLOT_SECTORS;
        }
        self.status().array_sectors / (DATA_SECTORS / CHUNK_SECTORS) * rows(self.code)
    }

    /// Waits for the end of background work, which has begun.
    #[track_caller]
    pub(crate) fn sync_ends(&mut self, action: SyncAction) -> (u64, SyncEnd) {
        let mut ended = None;
        self.until("the end of background work", |array| {
            ended = array.ended(action);
            ended.is_some()
        });
        self.until("rest", |array| array.status().sync.action == SyncAction::Idle);
        ended.expect("an end")
    }

    /// Returns the end of the latest such work, if it ended, and the number of differing sectors.
    pub(crate) fn ended(&self, action: SyncAction) -> Option<(u64, SyncEnd)> {
        self.events.iter().rev().find_map(|event| match event {
            ArrayEvent::SyncFinished { action: ended, mismatch_sectors, end }
                if *ended == action =>
            {
                Some((*mismatch_sectors, end.clone()))
            }
            _ => None,
        })
    }

    /// Times this work has begun.
    pub(crate) fn begun(&self, action: SyncAction) -> usize {
        self.events.iter().filter(|event| **event == ArrayEvent::SyncStarted(action)).count()
    }

    /// Background work goes no faster than this, in bytes per second and member.
    #[track_caller]
    pub(crate) fn limit(&mut self, max_bytes_s: u64) {
        self.order(Command::SpeedLimits { min_bytes_s: None, max_bytes_s: Some(max_bytes_s) });
    }

    /// And now as fast as it can.
    #[track_caller]
    pub(crate) fn unlimited(&mut self) {
        self.limit(u64::MAX);
    }
}

fn slot(number: u64, sectors: u64) -> Buf {
    assert!(number < SLOTS && sectors <= SLOT_SECTORS);
    Buf { offset: number * SLOT_BYTES, len: (sectors * SECTOR) as u32 }
}

/// Rows of a stripe on each member.
fn rows(code: Code) -> u64 {
    code.family.code(code.members, 0).expect("a code").rows().into()
}

/// Returns the parts of a status that a refused command leaves unchanged.
fn essence(status: &Status) -> String {
    let Status { state, degraded, members, sync, mismatch_sectors, held_up, .. } = status;
    let sync = (sync.action, sync.paused, sync.min_bytes_per_s, sync.max_bytes_per_s);
    format!("{state:?} {degraded} {members:?} {sync:?} {mismatch_sectors:?} {held_up:?}")
}
