//! Administrators' commands.

use super::admission::Admission;
use super::core::Core;
use super::members::{Member, Moved, State};
use super::spill::Spill;
use super::{Keeper, LaneCommand, Moving, Traffic};
use crate::action::{Command, CommandId, NewMember};
use crate::events::{Fault, SyncAction};
use crate::format::{MoveNote, Version};
use crate::level::Level;
use crate::refusal::{Invocation, Next, Refusal};
use crate::{Instant, MemberId};

/// The longest time for which a removal waits for what is in flight on a member.
const REMOVAL_MS: u64 = 5_000;

pub(crate) type CommandAnswer = Result<(), Refusal>;

pub(super) fn refuse(reason: impl Into<String>, next: impl Into<Next>) -> CommandAnswer {
    Err(Refusal::new(reason, next))
}

fn no_such_member() -> CommandAnswer {
    refuse("no such member", Next::by("see its members", Invocation::Detail { array: None }))
}

fn reshaped(command: &Command) -> CommandAnswer {
    if matches!(command, Command::Grow(_) | Command::GrowSuspending(_)) {
        // A lane that can map another shape plans it, and calls `grow` or `lengthen`.
        let next = "name a larger --size; for another shape make a new array and copy the data";
        return refuse(
            "over nodes an array cannot have another shape yet, but a larger size",
            next,
        );
    }
    let next = Next::by("wait for its end", Invocation::Watch { array: None });
    refuse("the array is being given another shape", next)
}

fn renew_superblocks(core: &mut Core) -> CommandAnswer {
    if core.service.metadata_frozen() {
        return refuse("no superblocks are written any more", "assemble the array again");
    }
    core.metadata.queue_superblock(true);
    Ok(())
}

/// Takes a device that the move which is asked for next saves to.
fn spill_command(core: &mut Core, over_arrays: bool, new: NewMember) -> CommandAnswer {
    if over_arrays || core.rules.lane_takes_spares {
        let reason = "nothing of an array of arrays, or over nodes, moves in place";
        return refuse(reason, "leave --spill out");
    }
    core.spill = Some(Spill::new(new.member, new.device, new.device_sectors));
    Ok(())
}

/// A removal that waits until nothing means the member any more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Removal {
    id: CommandId,
    member: MemberId,
    /// End of the wait. I/O in flight on the member is then left to itself.
    pub(super) until: Instant,
}

impl Keeper {
    /// Takes a command in.
    pub fn command(&mut self, id: CommandId, command: Command, traffic: Traffic<'_>) {
        let before = self.core.metadata.ticket();
        let remade = self.core.service.is_remade();
        let answer = match command {
            Command::NoteMove(note) => return self.note_command(id, note),
            Command::Stop if self.stop.command.is_some() => {
                refuse("it is being stopped already", "wait for it")
            }
            Command::Stop => {
                self.stop.command = Some(id);
                self.core.service.stopping = true;
                self.stop.lose_patience(self.core.now);
                return;
            }
            Command::SpeedLimits { min_bytes_s, max_bytes_s } => {
                self.sync.set_limits(self.core.now, min_bytes_s, max_bytes_s);
                Ok(())
            }
            Command::Pause(paused) => {
                self.sync.pause(self.core.now, paused);
                if !paused {
                    self.sync.retry(&self.core.members);
                }
                Ok(())
            }
            Command::RenewSuperblocks(_) => renew_superblocks(&mut self.core),
            Command::StopScrub => {
                self.sync.stop_scrub("ended by the administrator");
                Ok(())
            }
            Command::Scrub { .. } if self.lacks_members() => refuse(
                "the array lacks members to compare with",
                "bring them back, or add others, and wait until they are rebuilt",
            ),
            _ if !remade && (self.core.service.read_only || self.core.service.failed) => {
                self.view().is_changeable()
            }
            Command::Scrub { .. } if !self.core.service.redundant => refuse(
                format!("{} has no redundancy to check", self.core.space.level_name()),
                "read all of it to see whether it can be read",
            ),
            Command::Add(new) if self.appends() => self.add_command(*new),
            Command::Remove(member) if self.appends() => self.remove_command(member),
            _ if !remade && !self.core.service.redundant => self.view().is_changeable(),
            Command::Fail(member) => self.fail_command(member, false),
            Command::ForceFail(member) => self.fail_command(member, true),
            _ if self.is_reshaped(&command) => reshaped(&command),
            Command::Remove(member) if self.is_busy(member, traffic) => {
                let until = self.core.now.plus_millis(REMOVAL_MS);
                self.removals.push(Removal { id, member, until });
                return;
            }
            Command::Remove(member) => self.remove_command(member),
            Command::Add(new) if remade => self.vacancies.put_in(&mut self.core, &new),
            Command::Add(new) => self.add_command(*new),
            Command::AddJournal(new) => match self.add_journal_command(id, new) {
                Some(answer) => answer,
                None => return,
            },
            Command::Spill(new) => spill_command(&mut self.core, self.stop.over_arrays, *new),
            Command::JournalMode(mode) => self.journal_mode_command(mode),
            Command::Replace(member) => self.replace_command(member, None),
            Command::ReplaceWith { old, spare } => self.replace_command(old, Some(spare)),
            Command::Scrub { repair } => self.scrub_command(repair),
            Command::Grow(_) | Command::GrowSuspending(_) => reshaped(&command),
        };
        self.reply(id, before, answer);
    }

    fn note_command(&mut self, id: CommandId, note: MoveNote) {
        match self.core.note_move(note) {
            Ok(ticket) => self.noted = Some((ticket, id)),
            Err(why) => self.reply(id, self.core.metadata.ticket(), Err(why)),
        }
    }

    /// Returns whether a command has to wait for another shape, or asks for one.
    fn is_reshaped(&self, command: &Command) -> bool {
        if matches!(command, Command::JournalMode(_)) {
            // A journal is off by then, and this is for when it is on again.
            return false;
        }
        let moves = self.sync.moving.is_some();
        // Stripes without redundancy have no place for a spare.
        let stripes = self.core.metadata.superblock.level == Level::Raid0.to_md();
        let waits = stripes || !matches!(command, Command::Remove(_) | Command::Add(_));
        let begins = self.core.service.growing || self.view().holds_requests();
        moves && waits || begins || matches!(command, Command::Grow(_) | Command::GrowSuspending(_))
    }

    /// Returns whether devices may be added only to be appended: until then superblocks do not tell
    /// of them.
    fn appends(&self) -> bool {
        let level = Level::from_md(self.core.metadata.superblock.level);
        matches!(level, Some(Level::Linear | Level::Raid0))
            && !self.core.service.redundant
            && !self.core.service.is_remade()
            && !self.view().holds_requests()
    }

    /// Returns whether members are missing without which nothing is compared.
    fn lacks_members(&self) -> bool {
        self.core.service.writes_over
            || self.core.rules.scrubs_whole && self.core.members.degraded() > 0
    }

    fn fail_command(&mut self, id: MemberId, force: bool) -> CommandAnswer {
        let Some(member) = self.core.members.get(id) else {
            return no_such_member();
        };
        if !member.state.is_live() {
            let reason = format!("{} is faulty already", member.device);
            let device = member.device.clone();
            return refuse(reason, Invocation::Remove { array: None, device });
        }
        // A node that is there is taken back at once: force would be in vain.
        let by_force = !self.core.rules.lane_takes_spares;
        if self.core.needs(id) && !self.core.service.is_remade() && !(force && by_force) {
            return refuse(
                format!(
                    "the array would fail without {}: nothing of it could be read or written",
                    member.device
                ),
                self.before_failing(by_force),
            );
        }
        if let Some(other) =
            self.core.made_up_for(id).and_then(|other| self.core.members.get(other))
        {
            return refuse(
                format!("{} has sectors that only {} makes up for", other.device, member.device),
                "replace it: that copies it before it goes",
            );
        }
        if !force {
            self.vouched_for_without(id)?;
        }
        self.core.note_faulty(id);
        self.fail_member(id, "failed by the administrator", Fault::default());
        Ok(())
    }

    /// Checks that what the other members hold tells what this member holds.
    ///
    /// # Errors
    /// A refusal where a part of the array still waits for a resync.
    fn vouched_for_without(&mut self, id: MemberId) -> CommandAnswer {
        let sectors = self.sync.unsynced.unvouched_sectors(&self.core);
        let Some(Member { device, state: State::InSync { .. }, .. }) = self.core.members.get(id)
        else {
            return Ok(());
        };
        if sectors == 0 {
            return Ok(());
        }
        let kib = sectors.div_ceil(2);
        let reason = format!(
            "a resync has yet to make parity fit {kib} KiB of each member; what {device} holds of \
             them could not be read any more"
        );
        let advice = "wait until the resync is complete, or use --force and lose that";
        refuse(reason, Next::by(advice, Invocation::Watch { array: None }))
    }

    fn remove_command(&mut self, id: MemberId) -> CommandAnswer {
        let Some(member) = self.core.members.get(id) else {
            return no_such_member();
        };
        match member.state {
            State::InSync { .. }
            | State::Rebuilding { .. }
            | State::Retiring { .. }
            | State::Journal => refuse(format!("{} is in use", member.device), "fail it first"),
            State::Faulty { .. } | State::Spare => {
                self.core.note_faulty(id);
                self.vacancies.note(&self.core, id);
                self.core.members.detach(id);
                self.core.members.forget_wanted(id);
                self.core.metadata.queue_superblock(false);
                Ok(())
            }
        }
    }

    fn add_command(&mut self, new: NewMember) -> CommandAnswer {
        let member = Admission::new(&self.core).admit(&new)?;
        let moved = self.sync.moving.as_ref().map(Moving::moved);
        let bitmap = self.core.metadata.intent.as_ref().map(|intent| intent.bitmap.size_sectors());
        let is_too_small = |Moved { by, .. }: Moved| {
            let behind = self.core.space.member_sectors().saturating_add_signed(by.max(0));
            member.head_room(bitmap.unwrap_or(0)) < by.min(0).unsigned_abs()
                || member.superblock.data_size < behind
        };
        if moved.is_some_and(is_too_small) {
            return refuse(
                format!("{} is too small for data to move there now", member.device),
                Next::by("add it when the reshape is over", Invocation::Watch { array: None }),
            );
        }
        self.core.attach(new.member, member);
        if let Some(moved) = moved {
            self.core.members.set_moved(moved);
        }
        self.core.metadata.queue_whole_bitmap();
        self.core.metadata.queue_superblock(false);
        self.sync.retry(&self.core.members);
        Ok(())
    }

    fn replace_command(&mut self, id: MemberId, with: Option<MemberId>) -> CommandAnswer {
        if self.core.metadata.superblock.version == Version::V0_90 {
            let reason = "superblocks of version 0.90 cannot tell of a member beside another one";
            return refuse(reason, "fail it, and a spare takes its role over");
        }
        let members = &self.core.members;
        let spare = members.iter().any(|(_, member)| member.state == State::Spare);
        if let Some(with) = with
            && members.get(with).is_none_or(|member| member.state != State::Spare)
        {
            let next = Next::by("see which are", Invocation::Detail { array: None });
            return refuse("what is to replace it is no spare", next);
        }
        if let Some(State::InSync { role }) = members.get(id).map(|member| member.state)
            && with.is_some()
            && members.role(role).beside.is_some()
        {
            let next = Next::by("wait for that", Invocation::Watch { array: None });
            return refuse("the member is being replaced already", next);
        }
        let Some(member) = self.core.members.get_mut(id) else {
            return no_such_member();
        };
        if !matches!(member.state, State::InSync { .. }) {
            return refuse(format!("{} is not in sync", member.device), "add a spare instead");
        }
        if !spare {
            return refuse("there is no spare to copy it to", "add a spare first");
        }
        member.want_replacement = true;
        member.wanted_spare = with;
        self.sync.retry(&self.core.members);
        Ok(())
    }

    fn scrub_command(&mut self, repair: bool) -> CommandAnswer {
        if self.sync.action != SyncAction::Idle {
            let next = Next::by("wait for it", Invocation::Watch { array: None });
            return refuse(format!("{} is running", self.sync.action.name()), next);
        }
        if !self.core.is_comparable() {
            return refuse("the array is degraded: nothing to compare with", "add a member first");
        }
        self.sync.scrub.request(repair);
        Ok(())
    }

    /// Returns the next step for an administrator who cannot fail a member now: what makes the
    /// member dispensable, or how to fail it `by_force` all the same.
    fn before_failing(&self, by_force: bool) -> Next {
        let rebuilding = !self.core.members.rebuilding().is_empty();
        if !rebuilding && by_force {
            return "add a spare first, and wait until it is rebuilt; or use --force, and assemble \
                    the array again after that"
                .into();
        }
        if !rebuilding {
            return "add a spare first, and wait until it is rebuilt".into();
        }
        if !self.sync.goes_on() {
            return "let recovery go on and wait until it is complete".into();
        }
        let advice = "wait until recovery is complete, or stop the array";
        Next::by(advice, Invocation::Watch { array: None })
    }

    /// Answers a command: what it changed is on the members before that.
    pub(super) fn reply(&mut self, id: CommandId, before: u64, answer: CommandAnswer) {
        let metadata = &self.core.metadata;
        if answer.is_ok() && metadata.wants_superblock() {
            let told = before.max(metadata.ticket()).max(self.failures.ticket);
            self.replies.push((told, id));
        } else {
            self.core.out.push(LaneCommand::Reply(id, answer));
        }
    }

    /// Out of use, but for I/O in flight and plans made before.
    fn is_busy(&self, id: MemberId, traffic: Traffic<'_>) -> bool {
        let Some(member) = self.core.members.get(id) else { return false };
        let unused = matches!(member.state, State::Faulty { .. } | State::Spare);
        unused && (member.in_flight > 0 || traffic.is_meant(id))
    }

    /// Removes the members that have become quiet, or have had their time.
    pub fn drive_removals(&mut self, traffic: Traffic<'_>) {
        for removal in std::mem::take(&mut self.removals) {
            let id = removal.member;
            if self.is_busy(id, traffic) {
                let in_time = self.core.now < removal.until;
                let spare = self.core.members.get(id).is_some_and(|m| m.state == State::Spare);
                if !in_time && spare {
                    self.fail_member(id, "does not answer", Fault::default());
                }
                if in_time || spare || (traffic.plans)(id) {
                    self.removals.push(removal);
                    continue;
                }
                self.core.out.push(LaneCommand::Disown(id));
            }
            let before = self.core.metadata.ticket();
            let answer = self.remove_command(id);
            self.reply(removal.id, before, answer);
        }
    }
}
