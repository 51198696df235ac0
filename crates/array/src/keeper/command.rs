//! Administrators' commands.

use super::members::{Member, State};
use super::place::{Room, place};
use super::{Keeper, LaneCommand, Redundancy, Traffic};
use crate::MemberId;
use crate::action::{Command, CommandId, NewMember};
use crate::assemble::{
    Lineage, MemberConfig, Standing, adopted, check_places, check_shape, lineage,
};
use crate::events::{Fault, SyncAction};
use crate::format::superblock::{Role, feature};
use crate::format::{BadBlocks, Bitmap, Superblock};
use crate::refusal::{Invocation, Next, Refusal};

pub(crate) type Answer = Result<(), Refusal>;

pub(super) fn refuse(reason: impl Into<String>, next: impl Into<Next>) -> Answer {
    Err(Refusal::new(reason, next))
}

fn no_such_member() -> Answer {
    refuse("no such member", Next::by("see its members", Invocation::Detail { array: None }))
}

impl Keeper {
    /// Takes a command in.
    pub fn command(&mut self, id: CommandId, command: Command, traffic: Traffic<'_>) {
        let before = self.meta.ticket();
        let remade = self.is_remade();
        let answer = match command {
            Command::Stop => {
                if self.stop.asked.is_some() {
                    refuse("it is being stopped already", "wait for it")
                } else {
                    self.stop.asked = Some(id);
                    self.lose_patience(self.now);
                    return;
                }
            }
            Command::SpeedLimits { min_bytes_s, max_bytes_s } => {
                self.sync.set_limits(self.now, min_bytes_s, max_bytes_s);
                Ok(())
            }
            Command::Pause(paused) => {
                self.sync.pause(self.now, paused);
                if !paused {
                    self.retry_sync();
                }
                Ok(())
            }
            Command::StopScrub => {
                self.stop_scrub("ended by the administrator");
                Ok(())
            }
            Command::Scrub { .. } if self.lacks_members() => refuse(
                "the array lacks members to compare with",
                "bring them back, or add others, and wait until they are rebuilt",
            ),
            _ if !remade && (self.read_only || self.failed) => self.is_changeable(),
            Command::Scrub { .. } if !self.is_redundant() => refuse(
                format!("{} has no redundancy to check", self.space.level_name()),
                "read all of it to see whether it can be read",
            ),
            _ if !remade && !self.is_redundant() => self.is_changeable(),
            Command::Fail(member) => self.fail_command(member, false),
            Command::ForceFail(member) => self.fail_command(member, true),
            Command::Remove(member) if self.is_busy(member, traffic) => {
                self.begin_removal(id, member);
                return;
            }
            Command::Remove(member) => self.remove_command(member),
            Command::Add(new) if remade => self.put_in(&new),
            Command::Add(new) => self.add_command(*new),
            Command::Replace(member) => self.replace_command(member),
            Command::ReplaceWith { .. } => {
                refuse("spares are not told apart here", "replace it without naming one")
            }
            Command::Scrub { repair } => self.scrub_command(repair),
        };
        self.reply(id, before, answer);
    }

    /// May members come and go?
    ///
    /// # Errors
    /// Why not.
    pub fn is_changeable(&self) -> Answer {
        if self.read_only {
            return refuse("the array is read-only", "assemble it without --readonly");
        }
        if self.failed {
            return refuse(
                "the array has lost too many members",
                "stop it, bring the members back and assemble it again",
            );
        }
        if !self.is_redundant() {
            return refuse(
                format!("{} has no redundancy", self.space.level_name()),
                "restore from a backup what a failed member held",
            );
        }
        Ok(())
    }

    /// Does it lack members without which nothing is compared?
    fn lacks_members(&self) -> bool {
        self.writes_over || self.rules.scrubs_whole && self.members.degraded() > 0
    }

    /// Answers a command: what it changed is on the members before that.
    pub(crate) fn reply(&mut self, id: CommandId, before: u64, answer: Answer) {
        if answer.is_ok() && self.meta.wants_superblock() {
            let told = before.max(self.meta.ticket()).max(self.failure_ticket);
            self.replies.push((told, id));
        } else {
            self.out.push_back(LaneCommand::Reply(id, answer));
        }
    }

    fn fail_command(&mut self, id: MemberId, force: bool) -> Answer {
        let Some(member) = self.members.get(id) else {
            return no_such_member();
        };
        if !member.state.is_live() {
            let reason = format!("{} is faulty already", member.device);
            let device = member.device.clone();
            return refuse(reason, Invocation::Remove { array: None, device });
        }
        if self.needs(id) && !self.is_remade() {
            return refuse(
                format!("the array would lose data without {}", member.device),
                self.before_failing(),
            );
        }
        if let Some(other) = self.made_up_for(id).and_then(|other| self.members.get(other)) {
            return refuse(
                format!("{} has sectors that only {} makes up for", other.device, member.device),
                "replace it: that copies it before it goes",
            );
        }
        if !force {
            self.vouched_for_without(id)?;
        }
        self.fail_member(id, "failed by the administrator", Fault::default());
        Ok(())
    }

    /// Does what others hold tell what this member holds?
    ///
    /// # Errors
    /// Not where a resync has yet to be.
    fn vouched_for_without(&mut self, id: MemberId) -> Answer {
        let sectors = self.unvouched_sectors();
        let Some(Member { device, state: State::InSync { .. }, .. }) = self.members.get(id) else {
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

    pub(crate) fn remove_command(&mut self, id: MemberId) -> Answer {
        let Some(member) = self.members.get(id) else {
            return no_such_member();
        };
        match member.state {
            State::InSync { .. } | State::Rebuilding { .. } | State::Leaving { .. } => {
                refuse(format!("{} is in use", member.device), "fail it first")
            }
            State::Faulty { .. } | State::Spare => {
                self.note_vacancy(id);
                self.members.detach(id);
                self.wish_superblock(false);
                Ok(())
            }
        }
    }

    pub(super) fn add_command(&mut self, new: NewMember) -> Answer {
        let member = self.admit(&new)?;
        self.members.attach(new.member, member);
        self.wish_whole_bitmap();
        self.wish_superblock(false);
        self.retry_sync();
        Ok(())
    }

    /// As what a device becomes a member: it is to be given what it missed, or else a spare.
    pub(super) fn admit(&self, new: &NewMember) -> Result<Member, Refusal> {
        self.is_new(new)?;
        if let Some(member) = self.returning_member(new) {
            return Ok(member);
        }
        if new.readd {
            let reason = if self.lineage(new) == Some(Lineage::WentAlone) {
                "is split from the array: each side went on alone"
            } else {
                "cannot take its old role back: what changed is not known"
            };
            let next = "add it: it is then rebuilt as a whole";
            return Err(Refusal::new(format!("{} {reason}", new.device), next));
        }
        self.fresh_member(new)
    }

    /// Is this no member?
    pub(super) fn is_new(&self, new: &NewMember) -> Answer {
        if self.members.iter().any(|(_, member)| member.device == new.device) {
            let reason = format!("{} is a member already", new.device);
            return refuse(reason, "remove it first if it is faulty");
        }
        if self.members.get(new.member).is_some() {
            return refuse("its place in the table is taken", "try again");
        }
        Ok(())
    }

    /// How a device that was a member of this array came by its state.
    pub(super) fn lineage(&self, new: &NewMember) -> Option<Lineage> {
        let superblock = new.superblock.as_deref()?;
        let in_sync = self.members.iter().filter_map(|(_, member)| match member.state {
            State::InSync { role } => Some((member.superblock.dev_number, role)),
            _ => None,
        });
        Some(lineage(superblock, in_sync))
    }

    /// A device that was a member and whose role is free: taken back when the bitmap tells all
    /// that changed since it left.
    fn returning_member(&self, new: &NewMember) -> Option<Member> {
        let superblock = new.superblock.as_deref()?;
        let intent = self.intent.as_ref()?;
        let Role::Active(role) = superblock.role() else { return None };
        let number_free =
            self.members.iter().all(|(_, m)| m.superblock.dev_number != superblock.dev_number);
        let known = superblock.set_uuid == self.superblock.set_uuid
            && superblock.supported_over_nodes().is_ok()
            && superblock.events >= intent.bitmap.superblock.events_cleared
            && u32::from(role) < u32::from(self.space.roles())
            && self.members.role(role).holder.is_none()
            && self.lineage(new) == Some(Lineage::LeftBehind);
        let superblock = adopted(superblock, &self.superblock);
        let fits = check_shape(&superblock, &self.superblock).is_ok()
            && check_places(&superblock, new.device_sectors, self.room().bitmap_sectors).is_ok();
        if !known || !number_free || !fits {
            return None;
        }
        if superblock.has(feature::REPLACEMENT) {
            return None;
        }
        // It may have been in the middle of its rebuild: then it never had what lies beyond.
        let all_once =
            !superblock.has(feature::RECOVERY_OFFSET) || superblock.has(feature::RECOVERY_BITMAP);
        let marked_below = if all_once { u64::MAX } else { superblock.recovery_offset };
        let superblock = Superblock { recovery_offset: 0, ..superblock };
        let by_bitmap = true;
        let mut member = Member::new(MemberConfig {
            device: new.device.clone(),
            device_sectors: new.device_sectors,
            superblock,
            bad_blocks: new.bad_blocks.clone(),
            standing: Standing::Rebuilding { role, offset: 0, replacement: false, by_bitmap },
        });
        member.state = State::Rebuilding { role, offset: 0, replacement: false, marked_below };
        Some(member)
    }

    /// A superblock for a device that becomes a spare, laid out as the other members' are.
    fn fresh_member(&self, new: &NewMember) -> Result<Member, Refusal> {
        let live: Vec<_> = self.members.iter_live().map(|(_, m)| &m.superblock).collect();
        if live.is_empty() {
            return Err(Refusal::new("no member is left", "stop the array and assemble it again"));
        }
        let mut superblock = match place(&live, new.device_sectors, self.room()) {
            Ok(superblock) => superblock,
            Err(needed) => {
                let (device, sectors) = (&new.device, new.device_sectors);
                let next = "use a device at least as large as the other members";
                let reason = format!("{device} is too small: {sectors} sectors, needs {needed}");
                return Err(Refusal::new(reason, next));
            }
        };
        superblock.dev_number = (0u32..)
            .find(|n| self.members.iter().all(|(_, m)| m.superblock.dev_number != *n))
            .unwrap_or(0);
        superblock.device_uuid = new.device_uuid;
        superblock.devflags = 0;
        superblock.corrected_reads = 0;
        superblock.recovery_offset = 0;
        Ok(Member::new(MemberConfig {
            device: new.device.clone(),
            device_sectors: new.device_sectors,
            superblock,
            bad_blocks: BadBlocks::default(),
            standing: Standing::Spare,
        }))
    }

    fn room(&self) -> Room {
        let bitmap = self.intent.as_ref().map(|intent| &intent.bitmap);
        Room {
            used_sectors: self.space.member_sectors(),
            bitmap_sectors: bitmap.map_or(0, Bitmap::size_sectors),
        }
    }

    fn replace_command(&mut self, id: MemberId) -> Answer {
        let spare = self.members.iter().any(|(_, member)| member.state == State::Spare);
        let Some(member) = self.members.get_mut(id) else {
            return no_such_member();
        };
        if !matches!(member.state, State::InSync { .. }) {
            return refuse(format!("{} is not in sync", member.device), "add a spare instead");
        }
        if !spare {
            return refuse("there is no spare to copy it to", "add a spare first");
        }
        member.want_replacement = true;
        self.retry_sync();
        Ok(())
    }

    fn scrub_command(&mut self, repair: bool) -> Answer {
        if self.sync.action != SyncAction::Idle {
            let next = Next::by("wait for it", Invocation::Watch { array: None });
            return refuse(format!("{} is running", self.sync.action.name()), next);
        }
        if !self.is_comparable() {
            return refuse("the array is degraded: nothing to compare with", "add a member first");
        }
        self.request_scrub(repair);
        Ok(())
    }

    /// Is there something to compare any part of the array with?
    pub(crate) fn is_comparable(&self) -> bool {
        if let Redundancy::Parity(parities) = self.space.redundancy() {
            return u32::from(self.members.degraded()) < parities;
        }
        // What can be missed, another one holds as well.
        let roles = 0..self.space.roles();
        roles.filter(|role| self.members.in_sync(*role)).any(|role| self.enough_without(&[role]))
    }

    /// What makes a member dispensable that is not now.
    fn before_failing(&self) -> Next {
        let rebuilding =
            self.members.iter().any(|(_, m)| matches!(m.state, State::Rebuilding { .. }));
        match (rebuilding, self.sync.goes_on()) {
            (true, true) => Next::by(
                "wait until recovery is complete, or stop the array",
                Invocation::Watch { array: None },
            ),
            (true, false) => "let recovery go on and wait until it is complete".into(),
            (false, _) => "add a spare first, and wait until it is rebuilt".into(),
        }
    }

    /// Stopping: when nothing is in flight any more, the superblocks say clean.
    pub fn drive_stop(&mut self, traffic: Traffic<'_>) {
        let Some(id) = self.stop.asked else { return };
        match self.stop.ticket {
            None => {
                if !traffic.quiet || !self.sync.is_idle() || !self.meta.is_idle() {
                    return;
                }
                self.stop.ticket = Some(self.begin_checkpoint());
            }
            Some(ticket) if self.meta.is_done(ticket) && self.meta.is_idle() && !self.stop.over => {
                self.stop.over = true;
                self.out.push_back(LaneCommand::Reply(id, Ok(())));
            }
            Some(_) => {}
        }
    }
}
