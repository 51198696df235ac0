//! md's journal device: what superblocks say of it, and how one that was lost is replaced.

use super::admission::Admission;
use super::command::{Answer, refuse};
use super::members::State;
use super::{Keeper, LaneCommand};
use crate::action::{CommandId, NewMember};
use crate::status::JournalMode;

/// The tail of the journal: the first record that still counts, in sectors of the device's data
/// area. The lane [moves](Self::move_tail) it when what was recorded before is in place; the
/// superblock says so after the next flush of all members, and only then is what lay before it
/// free. Of a new journal there is no tail until its first block is written, and no superblock
/// before that tells of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct JournalDevice {
    /// As the lane has it.
    tail: Option<u64>,
    /// What lies before it is in place, and durable.
    pub(super) durable_tail: Option<u64>,
    /// As the superblock has it.
    told_tail: Option<u64>,
    /// Who waits until the superblock tells of it.
    waiting: Option<CommandId>,
}

impl JournalDevice {
    pub(super) const fn new(tail: u64) -> Self {
        let tail = Some(tail);
        Self { tail, durable_tail: tail, told_tail: tail, waiting: None }
    }

    /// One that takes the place of another.
    const fn begun_anew(waiting: CommandId) -> Self {
        Self { tail: None, durable_tail: None, told_tail: None, waiting: Some(waiting) }
    }

    /// What was recorded before is in place.
    pub(super) fn move_tail(&mut self, tail: u64) {
        self.tail = Some(tail);
        if crate::broken("tail-after-flush") {
            self.durable_tail = Some(tail);
        }
    }

    /// The tail as a flush of all members begins.
    pub(super) const fn tail(&self) -> Option<u64> {
        self.tail
    }

    pub(super) const fn told_tail(&self) -> Option<u64> {
        self.told_tail
    }

    /// The superblocks are written. Who waited for that?
    pub(super) const fn told(&mut self) -> Option<CommandId> {
        self.told_tail = self.durable_tail;
        if self.told_tail.is_some() { self.waiting.take() } else { None }
    }
}

impl Keeper {
    /// Has writes go by the journal like this.
    pub(super) fn journal_mode_command(&mut self, mode: JournalMode) -> Answer {
        let core = &mut self.core;
        if core.metadata.journal.is_none() {
            let next = "make an array with one: braid create --write-journal DEVICE";
            return refuse("the array has no journal", next);
        }
        if core.service.writes_over {
            let next = "put another device in its place: braid add NAME DEVICE --journal";
            return refuse("the array has lost its journal", next);
        }
        core.out.push(LaneCommand::JournalMode(mode));
        Ok(())
    }

    /// Takes a device as the journal, and has the array written to again. `None`: it is answered
    /// when the superblocks tell of it.
    pub(super) fn add_journal_command(&mut self, id: CommandId, new: &NewMember) -> Option<Answer> {
        let core = &mut self.core;
        if core.metadata.journal.is_none() {
            let next = "make an array with one: braid create --write-journal DEVICE";
            return Some(refuse("the array has no journal that was lost", next));
        }
        if core.members.iter_live().any(|(_, member)| member.state == State::Journal) {
            return Some(refuse("the array has a journal", "fail and remove it first"));
        }
        if core.metadata.clean.writing > 0 {
            return Some(refuse("writes are still on their way", "try again"));
        }
        let member = match Admission::new(core).journal(new) {
            Ok(member) => member,
            Err(why) => return Some(Err(why)),
        };
        let [a, b, c, d, ..] = new.device_uuid;
        let begin = LaneCommand::BeginJournal {
            member: new.member,
            data_offset: member.superblock.data_offset,
            data_sectors: member.superblock.data_size,
            first_seq: u32::from_le_bytes([a, b, c, d]).into(),
        };
        core.members.attach(new.member, member);
        core.metadata.journal = Some(JournalDevice::begun_anew(id));
        core.service.writes_over = false;
        core.out.push(begin);
        None
    }
}
