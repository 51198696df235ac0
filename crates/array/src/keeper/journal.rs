//! Commands for md's journal: its mode, and how a device that was lost is replaced.

use super::admission::Admission;
use super::command::{CommandAnswer, refuse};
use super::core::Core;
use super::journal_device::JournalDevice;
use super::members::{Member, State};
use super::{Keeper, LaneCommand};
use crate::action::{CommandId, NewMember};
use crate::format::suspended::journal_number;
use crate::refusal::{Invocation, Refusal};
use crate::status::JournalMode;
use crate::{Instant, MemberId};

/// The longest time for which a new journal waits for writes that the lost one let pass.
const WRITES_MS: u64 = 5_000;

/// A device that is to hold the journal when nothing is written any more.
#[derive(Debug)]
pub(super) struct AwaitedJournal {
    id: CommandId,
    new: Box<NewMember>,
    until: Instant,
}

impl AwaitedJournal {
    /// Its id, which nobody else gets.
    pub(super) const fn member(&self) -> MemberId {
        self.new.member
    }

    /// End of the wait.
    pub(super) const fn until(&self) -> Instant {
        self.until
    }

    /// Begins with a journal that waits for writes, or gives it up.
    pub(super) fn take_due(
        waiting: &mut Option<Box<Self>>,
        core: &mut Core,
        is_changeable: CommandAnswer,
    ) {
        let ends = core.service.failed || core.service.stopping;
        let is_due = |awaited: &mut Box<Self>| {
            ends || core.metadata.clean.writing == 0 || awaited.until <= core.now
        };
        let Some(awaited) = waiting.take_if(is_due) else { return };
        let Self { id, new, .. } = *awaited;
        let begun = if core.service.stopping {
            Err(Refusal::new("the array is being stopped", "assemble it, and ask again"))
        } else if core.metadata.clean.writing > 0 && !ends {
            let reason = "a member has not answered for 5 s what is still written to it";
            Err(Refusal::new(reason, Invocation::Detail { array: None }))
        } else {
            is_changeable.and_then(|()| journal_of(core, &new))
        };
        match begun {
            Ok(member) => begin_journal(core, id, &new, member),
            Err(why) => core.out.push(LaneCommand::Reply(id, Err(why))),
        }
    }
}

impl Keeper {
    /// Changes the mode in which writes go by the journal, as soon as that is on.
    pub(super) fn journal_mode_command(&mut self, mode: JournalMode) -> CommandAnswer {
        let core = &mut self.core;
        let is_off = journal_number(&core.metadata.superblock).is_some();
        if core.metadata.journal.is_none() && !is_off {
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

    /// Answers the command that waits for a journal which no superblock will tell of.
    pub(super) fn give_up_journal(&mut self) {
        let Core { service, metadata, out, .. } = &mut self.core;
        if service.metadata_frozen()
            && let Some(id) = metadata.journal.as_mut().and_then(JournalDevice::give_up)
        {
            let next = "put another device in its place: braid add NAME DEVICE --journal";
            let answer = refuse("the device failed before the array could tell of it", next);
            out.push(LaneCommand::Reply(id, answer));
        }
    }

    /// Takes a device as the journal, and has the array written to again, once what the last one
    /// let pass is written. `None`: it is answered when the superblocks tell of it.
    pub(super) fn add_journal_command(
        &mut self,
        id: CommandId,
        new: Box<NewMember>,
    ) -> Option<CommandAnswer> {
        if self.awaited_journal.is_some() {
            return Some(refuse("another device becomes its journal already", "wait for that"));
        }
        let member = match journal_of(&self.core, &new) {
            Ok(member) => member,
            Err(why) => return Some(Err(why)),
        };
        if self.core.metadata.clean.writing == 0 {
            begin_journal(&mut self.core, id, &new, member);
            return None;
        }
        let until = self.core.now.plus_millis(WRITES_MS);
        self.awaited_journal = Some(Box::new(AwaitedJournal { id, new, until }));
        None
    }
}

/// Returns the journal that a device becomes, where the array has lost one.
fn journal_of(core: &Core, new: &NewMember) -> Result<Member, Refusal> {
    if core.metadata.journal.is_none() {
        let next = "make an array with one: braid create --write-journal DEVICE";
        return Err(Refusal::new("the array has no journal that was lost", next));
    }
    if core.members.iter_live().any(|(_, member)| member.state == State::Journal) {
        return Err(Refusal::new("the array has a journal", "fail and remove it first"));
    }
    Admission::new(core).journal(new)
}

fn begin_journal(core: &mut Core, id: CommandId, new: &NewMember, member: Member) {
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
}
