//! Commands for md's journal: its mode, and how a device that was lost is replaced.

use super::admission::Admission;
use super::command::{CommandAnswer, refuse};
use super::core::Core;
use super::journal_device::JournalDevice;
use super::members::State;
use super::{Keeper, LaneCommand};
use crate::action::{CommandId, NewMember};
use crate::format::suspended::journal_number;
use crate::status::JournalMode;

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

    /// Takes a device as the journal, and has the array written to again. `None`: it is answered
    /// when the superblocks tell of it.
    pub(super) fn add_journal_command(
        &mut self,
        id: CommandId,
        new: &NewMember,
    ) -> Option<CommandAnswer> {
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
