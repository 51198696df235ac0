//! Arrays whose members are arrays: 1+0, 50, 60, 66. The outer machine's I/O on such a member is
//! a request to the inner machine; user bytes stay where they are, since all share one arena.
//!
//! Outside, a stack looks like one machine whose members are the leaves: those of the first inner
//! array, then of the second, and so on. The inner arrays have ids beyond those of the leaves.
//! Commands for members reach the array that has them: see `members`.

mod members;

use std::collections::VecDeque;

use crate::action::{Command, CommandId, Event};
use crate::events::{ArrayEvent, SyncAction};
use crate::refusal::Refusal;
use crate::request::Full;
use crate::status::{ArrayState, Status};
use crate::{
    Action, Array, BlockMachine, Buf, Instant, IoError, IoId, IoOp, Machine, MemberId, Op, Outcome,
    Request, RequestError, RequestId, SECTOR_BYTES,
};

/// Members an inner array may come to have; leaf ids are `inner * LEAVES + member`.
const LEAVES: u16 = 1024;
/// Inner arrays at most, for leaf ids to tell apart and to stay below those of the arrays.
const ARRAYS: u16 = MemberId::FIRST_ARRAY / LEAVES;
/// Position of the machine's number in the ids of a stack.
const MACHINE_SHIFT: u32 = 56;

/// A command that several machines have to answer.
#[derive(Debug)]
struct Pending {
    id: CommandId,
    waiting: usize,
    result: Result<(), Refusal>,
    /// The next step when these have answered.
    then: Option<Then>,
}

/// The step that follows an answer.
#[derive(Clone, Debug)]
enum Then {
    /// A stop of the inner arrays.
    StopInner,
    /// An inner array that is whole again becomes a member of the outer one anew.
    TakeBack(u16),
}

/// An array of arrays, which owns the machines of all of them and is one to the executor.
///
/// The outer array's I/O becomes requests to inner arrays, and their answers its answers, before
/// `poll` returns. A command for a member goes to the array that has it, any other one to the outer
/// array; a stop reaches the inner arrays once the outer one has stopped.
#[derive(Debug)]
pub struct Stack {
    outer: Array,
    inner: Vec<Array>,
    /// Requests that an inner array's table had no room for.
    backlog: Vec<VecDeque<Request>>,
    pending: Vec<Pending>,
    /// Names of the inner arrays as members.
    titles: Vec<String>,
    /// An inner array has answered, so that the outer one may have something to do now.
    lifted: bool,
    now: Instant,
}

impl Stack {
    /// Puts `outer` on top of `inner`; member `i` of `outer` is `inner[i]`. Arrays beyond its
    /// members can become such.
    ///
    /// # Errors
    /// When there are more than 63 inner arrays, the most a leaf id can tell apart.
    pub fn new(mut outer: Array, inner: Vec<Array>) -> Result<Self, String> {
        if inner.len() > usize::from(ARRAYS) {
            return Err(format!("{} arrays in an array are too many", inner.len()));
        }
        outer.set_over_arrays();
        let backlog = inner.iter().map(|_| VecDeque::new()).collect();
        let members = outer.status().members;
        let title = |id| members.iter().find(|member| member.member == id);
        let titles = (0..)
            .zip(&inner)
            .map(|(number, array)| match title(MemberId(number)) {
                Some(member) => member.device.clone(),
                None => array.status().superblock.title(),
            })
            .collect();
        Ok(Self {
            outer,
            inner,
            backlog,
            pending: Vec::new(),
            titles,
            lifted: false,
            now: Instant::default(),
        })
    }

    /// The leaf id of a member of an inner array.
    #[must_use]
    pub const fn leaf(inner: u16, member: MemberId) -> MemberId {
        MemberId(inner * LEAVES + member.0)
    }

    /// The id of an inner array, which is this member of the outer one.
    #[must_use]
    pub const fn array(member: MemberId) -> MemberId {
        MemberId::of_array(member.0)
    }

    /// Hands an I/O of the outer array to the inner array it is meant for.
    fn descend(&mut self, io: IoId, member: MemberId, op: IoOp) {
        let (op, sector, sectors, buf) = match op {
            IoOp::Read { sector, buf } => (Op::Read, sector, 0, buf),
            IoOp::Write { sector, buf, fua, .. } => (Op::Write { fua }, sector, 0, buf),
            IoOp::WriteZeroes { sector, sectors, unmap, fua } => {
                (Op::WriteZeroes { fua, unmap }, sector, sectors, Default::default())
            }
            IoOp::Discard { sector, sectors } => (Op::Discard, sector, sectors, Default::default()),
            IoOp::Flush => (Op::Flush, 0, 0, Default::default()),
        };
        let sectors = sectors.max(u64::from(buf.len) / SECTOR_BYTES);
        let request = Request { id: RequestId(io.0), op, sector, sectors, buf };
        self.backlog[usize::from(member.0)].push_back(request);
        self.feed(usize::from(member.0));
    }

    fn feed(&mut self, index: usize) {
        while let Some(request) = self.backlog[index].front() {
            if self.inner[index].submit(self.now, *request) == Err(Full) {
                return;
            }
            self.backlog[index].pop_front();
        }
    }

    /// The next action of the outer array that leaves the stack.
    fn poll_outer(&mut self) -> Option<Action> {
        while let Some(action) = self.outer.poll() {
            match action {
                Action::Io { io, member, op } => self.descend(io, member, op),
                Action::Compute { io, compute } => return Some(Action::Compute { io, compute }),
                Action::Reply { id, result } => {
                    if let Some(reply) = self.answered(id, result) {
                        return Some(reply);
                    }
                }
                Action::Notify(event) => {
                    return Some(Action::Notify(event.map_member(Self::array)));
                }
                // Its members are arrays, which answer everything.
                Action::Abandon { .. } => {}
                other => return Some(other),
            }
        }
        None
    }

    /// The next action of an inner array that leaves the stack.
    fn poll_inner(&mut self, index: usize) -> Option<Action> {
        let tag = (index as u64 + 1) << MACHINE_SHIFT;
        let number = index as u16;
        while let Some(action) = self.inner[index].poll() {
            match action {
                Action::Io { io, member, op } => {
                    let member = Self::leaf(number, member);
                    return Some(Action::Io { io: IoId(io.0 | tag), member, op });
                }
                Action::Compute { io, compute } => {
                    return Some(Action::Compute { io: IoId(io.0 | tag), compute });
                }
                Action::Load { io, buf } => {
                    return Some(Action::Load { io: IoId(io.0 | tag), buf });
                }
                Action::Abandon { io, buf } => {
                    // It may be scratch of the outer array's.
                    let io = IoId(io.0 | tag);
                    self.outer.lend(io, buf);
                    return Some(Action::Abandon { io, buf });
                }
                Action::Complete { id, result } => {
                    self.outer
                        .handle(self.now, Event::Done { io: IoId(id.0), result: lift(result) });
                    self.lifted = true;
                    self.feed(index);
                }
                Action::Reply { id, result } => {
                    if let Some(reply) = self.answered(id, result) {
                        return Some(reply);
                    }
                }
                Action::Notify(event) => {
                    let event = Box::new(event.map_member(|leaf| Self::leaf(number, leaf)));
                    let array = Self::array(MemberId(number));
                    return Some(Action::Notify(ArrayEvent::Within { array, event }));
                }
                other @ (Action::IoBeside { .. }
                | Action::Store { .. }
                | Action::Use { .. }
                | Action::GiveBack { .. }
                | Action::Fabric(_)
                | Action::Volume { .. }
                | Action::Survey { .. }
                | Action::Note { .. }) => return Some(other),
            }
        }
        None
    }

    /// Takes note that a machine has answered a command. Returns the reply when it was the last.
    fn answered(&mut self, id: CommandId, result: Result<(), Refusal>) -> Option<Action> {
        let at = self.pending.iter().position(|pending| pending.id == id)?;
        let pending = &mut self.pending[at];
        pending.waiting -= 1;
        if result.is_err() {
            pending.result = result;
        }
        if pending.waiting > 0 {
            return None;
        }
        match pending.then.take() {
            Some(Then::StopInner) => {
                pending.waiting = self.inner.len();
                for array in &mut self.inner {
                    array.handle(self.now, Event::Command { id, command: Command::Stop });
                }
                return None;
            }
            Some(Then::TakeBack(number))
                if pending.result.is_ok() && self.take_back(id, number) =>
            {
                return None;
            }
            _ => {}
        }
        let done = self.pending.remove(at);
        Some(Action::Reply { id, result: done.result })
    }

    fn take_command(&mut self, id: CommandId, command: Command) {
        let expect = |waiting| Pending { id, waiting, result: Ok(()), then: None };
        match command {
            Command::Fail(_)
            | Command::ForceFail(_)
            | Command::Remove(_)
            | Command::Add(_)
            | Command::AddJournal(_)
            | Command::Replace(_)
            | Command::ReplaceWith { .. } => {
                self.pending.push(expect(1));
                self.take_member_command(id, command);
            }
            Command::RenewSuperblocks(leaf) => {
                self.pending.push(expect(1));
                let (index, leaf) = Self::locate(leaf);
                let command = Command::RenewSuperblocks(leaf);
                self.inner[index].handle(self.now, Event::Command { id, command });
            }
            Command::JournalMode(_) => {
                let waiting = self.send_to_journals(id, &command);
                self.pending.push(expect(waiting));
            }
            Command::Stop => {
                self.inner.iter_mut().for_each(|array| array.lose_patience(self.now));
                self.pending.push(Pending { then: Some(Then::StopInner), ..expect(1) });
                self.outer.handle(self.now, Event::Command { id, command: Command::Stop });
            }
            Command::Grow(_)
            | Command::GrowSuspending(_)
            | Command::NoteMove(_)
            | Command::Spill(_) => {
                self.pending.push(expect(1));
                self.outer.handle(self.now, Event::Command { id, command });
            }
            Command::Scrub { .. }
            | Command::StopScrub
            | Command::SpeedLimits { .. }
            | Command::Pause(_) => {
                let waiting = self.send_to_redundant(id, &command);
                self.pending.push(expect(waiting));
            }
        }
    }

    /// Gives a command about journals to the arrays that have one; to the outer one, which says so,
    /// where none has. To how many.
    fn send_to_journals(&mut self, id: CommandId, command: &Command) -> usize {
        let has_journal = |array: &Array| array.status().journal.is_some();
        let none = !self.inner.iter().any(has_journal);
        let arrays = std::iter::once(&mut self.outer).chain(&mut self.inner);
        let mut count = 0;
        for (number, array) in arrays.enumerate() {
            if has_journal(array) || none && number == 0 {
                array.handle(self.now, Event::Command { id, command: command.clone() });
                count += 1;
            }
        }
        count
    }

    /// Gives a command about background work to the arrays that have such; to how many.
    fn send_to_redundant(&mut self, id: CommandId, command: &Command) -> usize {
        let event = || Event::Command { id, command: command.clone() };
        let arrays = std::iter::once(&mut self.outer).chain(&mut self.inner);
        let mut fit: Vec<&mut Array> = arrays.filter(|array| array.is_redundant()).collect();
        // Where nothing can be compared, an answer says why.
        if matches!(command, Command::Scrub { .. }) && fit.iter().any(|array| array.is_comparable())
        {
            fit.retain_mut(|array| {
                let comparable = array.is_comparable();
                if !comparable {
                    array.skip_scrub();
                }
                comparable
            });
        }
        if fit.is_empty() {
            // Nothing is redundant; the outer array's answer says so.
            self.outer.handle(self.now, event());
            return 1;
        }
        for array in &mut fit {
            array.handle(self.now, event());
        }
        fit.len()
    }
}

/// Makes the outer array's status tell what goes on in the arrays it is made of: with one of them
/// degraded the whole is, and work in one of them is work of the whole.
fn sum_up(status: &mut Status) {
    let children = &status.children;
    let degraded = |sum: u16, child: &Status| sum.saturating_add(child.degraded);
    status.degraded = children.iter().fold(status.degraded, degraded);
    // A level without redundancy takes no part in background work.
    let takes_part = |array: &Status| array.superblock.level > 0;
    let all = || std::iter::once(&*status).chain(children);
    let nowhere = !all().any(takes_part);
    let worked = || all().filter(move |array| nowhere || takes_part(array));
    let busy = worked().find(|array| array.sync.action != SyncAction::Idle);
    let waiting = || worked().find(|array| !array.sync.is_idle());
    let sync = busy.or_else(waiting).or(worked().next()).map(|array| array.sync);
    let mismatch_sectors = worked().map(|array| array.mismatch_sectors).sum();
    let held_up = worked().find_map(|array| array.held_up.clone());
    let unreadable_sectors = worked().map(|array| array.unreadable_sectors).sum();
    let trusted_sectors = worked().map(|array| array.trusted_sectors).sum();
    let uncompared_sectors = worked().map(|array| array.uncompared_sectors).sum();
    let unsynced_sectors = worked().map(|array| array.unsynced_sectors).sum();
    status.held_up = held_up;
    status.unreadable_sectors = unreadable_sectors;
    status.trusted_sectors = trusted_sectors;
    status.uncompared_sectors = uncompared_sectors;
    status.unsynced_sectors = unsynced_sectors;
    status.sync = sync.unwrap_or_default();
    status.mismatch_sectors = mismatch_sectors;
    let needs_all = status.superblock.level <= 0;
    if needs_all && children.iter().any(|child| child.state == ArrayState::Failed) {
        status.state = ArrayState::Failed;
    }
}

/// Translates an inner array's answer for the outer one.
const fn lift(result: Result<(), RequestError>) -> Result<Outcome, IoError> {
    match result {
        Ok(()) => Ok(Outcome::Done),
        Err(RequestError::Medium) => Err(IoError::MEDIUM),
        Err(RequestError::NoSpace) => Err(IoError { kind: crate::IoErrorKind::Full, errno: None }),
        Err(RequestError::BufferHeld) => Err(IoError::ABANDONED),
        Err(_) => Err(IoError::GONE),
    }
}

impl Machine for Stack {
    fn handle(&mut self, now: Instant, event: Event) {
        self.now = self.now.max(now);
        match event {
            Event::Done { io, result } => {
                let inner = IoId(io.0 & ((1 << MACHINE_SHIFT) - 1));
                let done = Event::Done { io: inner, result };
                match (io.0 >> MACHINE_SHIFT) as usize {
                    0 => self.outer.handle(now, done),
                    number => {
                        self.outer.unlend(io);
                        self.inner[number - 1].handle(now, done);
                    }
                }
            }
            Event::Command { id, command } => self.take_command(id, command),
            Event::Tick => {
                for array in std::iter::once(&mut self.outer).chain(&mut self.inner) {
                    array.handle(now, Event::Tick);
                }
            }
            Event::Loaded { io, bytes } => {
                let inner = IoId(io.0 & ((1 << MACHINE_SHIFT) - 1));
                let loaded = Event::Loaded { io: inner, bytes };
                match (io.0 >> MACHINE_SHIFT) as usize {
                    0 => self.outer.handle(now, loaded),
                    number => self.inner[number - 1].handle(now, loaded),
                }
            }
            // Local arrays have no peers and no volumes.
            Event::Fabric(_) | Event::Survey { .. } | Event::Volume { .. } => {}
        }
    }

    fn poll(&mut self) -> Option<Action> {
        loop {
            self.lifted = false;
            if let Some(action) = self.poll_outer() {
                return Some(action);
            }
            for index in 0..self.inner.len() {
                if let Some(action) = self.poll_inner(index) {
                    return Some(action);
                }
            }
            if !self.lifted {
                return None;
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let inner = self.inner.iter().filter_map(Machine::deadline);
        inner.chain(self.outer.deadline()).min()
    }

    fn idle(&self) -> bool {
        self.outer.idle() && self.inner.iter().all(Machine::idle)
    }

    fn each_unused(&self, found: &mut dyn FnMut(Buf)) {
        self.outer.each_unused(found);
        self.inner.iter().for_each(|array| array.each_unused(found));
    }

    fn invariants(&self) -> Result<(), String> {
        self.outer.invariants().map_err(|what| format!("the outer array: {what}"))?;
        for (index, array) in self.inner.iter().enumerate() {
            array.invariants().map_err(|what| format!("array {index} within: {what}"))?;
        }
        let taken: usize = self.inner.iter().map(|array| array.under_way().0).sum();
        let waiting: usize = self.backlog.iter().map(VecDeque::len).sum();
        let (_, asked) = self.outer.under_way();
        if taken + waiting != asked {
            return Err(format!("{asked} I/Os of the outer array, {taken} + {waiting} within"));
        }
        if self.pending.iter().any(|pending| pending.waiting == 0) {
            return Err("a command that all have answered is not".to_owned());
        }
        Ok(())
    }
}

impl BlockMachine for Stack {
    fn submit(&mut self, now: Instant, request: Request) -> Result<(), Full> {
        self.now = self.now.max(now);
        self.outer.submit(now, request)
    }

    fn expect_writes(&mut self, more: bool) {
        self.outer.expect_writes(more);
    }

    fn status(&self) -> Status {
        let mut status = self.outer.status();
        status.children = self.inner.iter().map(BlockMachine::status).collect();
        for member in &mut status.members {
            member.member = Self::array(member.member);
        }
        for member in status.unreadable.iter_mut().flat_map(|place| &mut place.members) {
            *member = Self::array(*member);
        }
        if let Some(journal) = &mut status.journal {
            journal.member = Self::array(journal.member);
        }
        for (index, child) in status.children.iter_mut().enumerate() {
            if let Some(journal) = &mut child.journal {
                journal.member = Self::leaf(index as u16, journal.member);
            }
            for member in &mut child.members {
                member.member = Self::leaf(index as u16, member.member);
            }
            for member in child.unreadable.iter_mut().flat_map(|place| &mut place.members) {
                *member = Self::leaf(index as u16, *member);
            }
        }
        sum_up(&mut status);
        status
    }

    fn array_sectors(&self) -> u64 {
        self.outer.array_sectors()
    }

    fn block_bytes(&self) -> u32 {
        self.inner.iter().map(BlockMachine::block_bytes).max().unwrap_or(512)
    }

    fn read_only(&self) -> bool {
        self.outer.read_only()
    }

    /// In the inner array that misses most: a device added goes where it is needed.
    fn free_member(&self) -> Option<MemberId> {
        let neediest = (0..self.inner.len())
            .max_by_key(|index| (self.inner[*index].degraded(), usize::MAX - index))?;
        self.free_member_within(Self::array(MemberId(neediest as u16)))
    }

    fn free_member_within(&self, array: MemberId) -> Option<MemberId> {
        let number = array.array_number()?;
        let member = self.inner.get(number)?.free_member()?;
        Some(Self::leaf(number as u16, member))
    }
}
