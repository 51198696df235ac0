//! What the keeper asks for, said to the nodes; and nodes that are to be lost.

use braid_array::keeper::{Keeper, LaneCommand, LaneReport, MetaWrite, Traffic};
use braid_array::{MemberId, Refusal};

use super::out::{Loss, LossKind};
use super::{Client, Message, Phase, RequestKind};
use crate::member;

impl Client {
    /// Carries out what waits, before anything else is done: losses one at a time, each with what
    /// the keeper asks for because of it, in order.
    pub(super) fn drain(&mut self) {
        while self.drain_one() {
            self.refresh();
        }
    }

    /// Carries one thing out; was there any?
    fn drain_one(&mut self) -> bool {
        self.out.report_to(&mut self.keeper);
        if let Some(command) = self.keeper.next_command() {
            self.carry_out(command);
        } else if let Some(loss) = self.out.next_loss() {
            self.carry_out_loss(loss);
        } else if let Some(event) = self.ownership.next_event() {
            self.ownership_event(event);
        } else if self.engine.sets.wait_for_losses() {
            let (engine, mut cx) = self.engine();
            return engine.losses_carried_out(&mut cx);
        } else {
            return false;
        }
        true
    }

    fn carry_out(&mut self, command: LaneCommand) {
        match command {
            LaneCommand::Flush(member) => self.request_meta(member, |tag| Message::Flush { tag }),
            LaneCommand::Write(write) if self.may_tell_members() => self.write_meta(write),
            LaneCommand::Write(write) => self.untold.push_back(write),
            LaneCommand::Work { place, unit, work } => self.engine.add_work(place, unit, work),
            LaneCommand::GiveUp(member) => self.give_up_on(member),
            LaneCommand::Reply(id, result) => {
                if self.keeper.view().has_stopped() {
                    self.hang_up_all();
                    // Nobody answers any more.
                    self.out.requests.clear();
                    self.phase = Phase::Stopped;
                }
                self.out.reply(id, result);
            }
            LaneCommand::Notify(event) => self.out.notify(event),
            LaneCommand::CheckpointDone => self.engine.journals.checkpoint_done(),
            // Slice-sets look in each turn whether they may begin; ids do not change.
            LaneCommand::Updated | LaneCommand::Disown(_) => {}
        }
    }

    fn carry_out_loss(&mut self, Loss { role, why, kind }: Loss) {
        if !self.alive(role) {
            return self.lose_stranger(role, why);
        }
        let id = self.member_id(role);
        if kind == LossKind::Store && self.keeper.view().needs(id) {
            self.waits_for_store(role, &why);
        }
        self.keeper.lose_member(id, why);
        while let Some(command) = self.keeper.next_command() {
            self.carry_out(command);
        }
        if kind == LossKind::Returns && !self.alive(role) {
            self.await_return(role);
        }
    }

    /// The array goes on without a node that is there, at once.
    pub(super) fn lose_now(&mut self, role: u16, why: Refusal, kind: LossKind) {
        self.carry_out_loss(Loss { role, why, kind });
    }

    /// A node that is no member now does not keep to the protocol, or cannot be used.
    pub(super) fn lose_stranger(&mut self, role: u16, why: Refusal) {
        if matches!(self.sessions[usize::from(role)].state, super::SessionState::Returning(_)) {
            self.target_hears(role, why);
            self.return_fails(role);
        }
    }

    /// The array cannot go on without a node whose store fails: it waits for it.
    fn waits_for_store(&mut self, role: u16, why: &Refusal) {
        if let Some(member) = &self.sessions[usize::from(role)].member {
            let name = member::member_name(&member.address, &member.volume);
            let reason = format!("{name}: {}", why.reason);
            self.ownership.refuse(Refusal::new(reason, why.next.clone()));
        }
    }

    fn write_meta(&mut self, write: MetaWrite) {
        let MetaWrite { member, sector, bytes } = write;
        self.request_meta(member, |tag| Message::WriteMeta { tag, sector, bytes });
    }

    /// Superblocks that say who was lost are written when voters have noted it, where it takes
    /// them. Otherwise a client that finds only those who were lost, and their votes, and goes on
    /// with them, would leave superblocks behind that are newer than its own. But where somebody
    /// is in sync anew they come first, as views wait for that.
    fn may_tell_members(&mut self) -> bool {
        self.refresh();
        let noted = || self.members.losses_noted(self.keeper.view());
        !self.members.needs_votes(self.keeper.view())
            || noted()
            || !self.keeper.view().arrivals_told()
    }

    /// Writes what had to wait for votes; if there are not enough of them, nothing.
    fn tell_members(&mut self) {
        if self.untold.is_empty() || !self.may_tell_members() {
            return;
        }
        for write in std::mem::take(&mut self.untold) {
            if self.writes_over() {
                self.keeper.hear(LaneReport::UpdateDone);
            } else {
                self.write_meta(write);
            }
        }
    }

    /// Requests something for the keeper's update.
    fn request_meta(&mut self, member: MemberId, message: impl FnOnce(u32) -> Message) {
        match self.role_of(member).filter(|&role| self.alive(role)) {
            Some(role) => self.request(role, RequestKind::Meta, message),
            None => self.keeper.hear(LaneReport::UpdateDone),
        }
    }

    /// Has the keeper do what it can do now, and opens the slice-sets that wait for it. Did any go
    /// on, so that there may be more to do?
    pub(super) fn advance_keeper(&mut self) -> bool {
        loop {
            self.out.report_to(&mut self.keeper);
            let updates = self.keeper.view().updates();
            self.tell_members();
            self.keeper.drive_sync();
            self.drain();
            let (engine, mut cx) = self.engine_as_is();
            engine.start_work(&mut cx);
            engine.open_sets(&mut cx);
            self.out.report_to(&mut self.keeper);
            self.keeper.drive_meta();
            self.drain();
            self.with_traffic(|keeper, traffic| keeper.drive_removals(traffic));
            self.with_traffic(|keeper, traffic| keeper.drive_stop(traffic));
            self.keeper.drive_meta();
            self.drain();
            let (engine, mut cx) = self.engine_as_is();
            if engine.losses_told(&mut cx) {
                return true;
            }
            if self.keeper.view().updates() == updates {
                return false;
            }
        }
    }

    pub(super) fn with_traffic(&mut self, drive: impl FnOnce(&mut Keeper, Traffic<'_>)) {
        self.out.report_to(&mut self.keeper);
        let quiet = self.quiet();
        let never = |_| false;
        drive(&mut self.keeper, Traffic { quiet, plans: &never, gave_up: &never });
        self.drain();
    }

    /// The keeper waits no longer for a node.
    fn give_up_on(&mut self, member: MemberId) {
        if let Some(role) = self.role_of(member).filter(|&role| self.alive(role)) {
            self.hang_up_on(role);
        }
    }
}
