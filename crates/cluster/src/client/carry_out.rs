//! What the keeper asks for, said to the nodes.

use braid_array::keeper::{Keeper, LaneCommand, MetaWrite, Traffic};
use braid_array::{Action, MemberId, Refusal};

use super::{Client, Message, Phase, RequestKind};

impl Client {
    /// Does what the keeper asks for, in order.
    pub(super) fn carry_out(&mut self) {
        while let Some(ask) = self.keeper.next_command() {
            match ask {
                LaneCommand::Flush(member) => self.ask_meta(member, |tag| Message::Flush { tag }),
                LaneCommand::Write(write) if self.may_tell_members() => self.write_meta(write),
                LaneCommand::Write(write) => self.untold.push_back(write),
                LaneCommand::Work { place, unit, work } => self.add_work(place, unit, work),
                LaneCommand::GiveUp(member) => self.let_go_of(member),
                LaneCommand::Reply(id, result) => {
                    if self.keeper.has_stopped() {
                        self.hang_up_all();
                        // Nobody answers any more.
                        self.questions.clear();
                        self.phase = Phase::Stopped;
                    }
                    self.actions.push_back(Action::Reply { id, result });
                }
                LaneCommand::Notify(event) => self.actions.push_back(Action::Notify(event)),
                // Slice-sets look at every turn whether they may begin; ids do not change.
                LaneCommand::Updated | LaneCommand::Disown(_) => {}
            }
        }
    }

    fn write_meta(&mut self, write: MetaWrite) {
        let MetaWrite { member, sector, bytes } = write;
        self.ask_meta(member, |tag| Message::WriteMeta { tag, sector, bytes });
    }

    /// Superblocks that say who was lost are written when voters have noted it, where it takes
    /// them. Otherwise a client that finds only those who were lost, and their votes, and goes on
    /// with them, would leave superblocks behind that are newer than its own. But where somebody
    /// is in sync anew they come first, as views wait for that.
    fn may_tell_members(&self) -> bool {
        !self.needs_votes() || self.losses_noted() || !self.keeper.arrivals_told()
    }

    /// Writes what had to wait for votes; if there are not enough of them, nothing.
    fn tell_members(&mut self) {
        if self.untold.is_empty() || !self.may_tell_members() {
            return;
        }
        for write in std::mem::take(&mut self.untold) {
            match self.writes_over() {
                true => self.keeper.update_done(),
                false => self.write_meta(write),
            }
        }
        self.carry_out();
    }

    /// Asks something for the keeper's update.
    fn ask_meta(&mut self, member: MemberId, message: impl FnOnce(u32) -> Message) {
        match self.role_of(member).filter(|&role| self.alive(role)) {
            Some(role) => self.ask(role, RequestKind::Meta, message),
            None => self.keeper.update_done(),
        }
    }

    /// Something asked for the keeper's update is answered.
    pub(super) fn meta_answered(&mut self) {
        self.keeper.update_done();
        self.carry_out();
    }

    /// Has the keeper do what it can do now, and opens the slice-sets that wait for it. Did any go
    /// on, so that there may be more to do?
    pub(super) fn drive_keeper(&mut self) -> bool {
        loop {
            let updates = self.keeper.updates();
            self.tell_members();
            self.keeper.drive_sync();
            self.carry_out();
            self.start_work();
            self.open_sets();
            self.keeper.drive_meta();
            self.carry_out();
            self.with_traffic(|keeper, traffic| keeper.drive_removals(traffic));
            self.with_traffic(|keeper, traffic| keeper.drive_stop(traffic));
            self.keeper.drive_meta();
            self.carry_out();
            if self.go_on_told() {
                return true;
            }
            if self.keeper.updates() == updates {
                return false;
            }
        }
    }

    pub(super) fn with_traffic(&mut self, drive: impl FnOnce(&mut Keeper, Traffic<'_>)) {
        let quiet = self.quiet();
        let never = |_| false;
        drive(&mut self.keeper, Traffic { quiet, plans: &never, gave_up: &never });
        self.carry_out();
    }

    /// The keeper waits no longer for a node.
    fn let_go_of(&mut self, member: MemberId) {
        if let Some(role) = self.role_of(member).filter(|&role| self.alive(role)) {
            self.hang_up_on(role);
        }
    }

    /// A node is there and does not do its part: it cannot be relied on any more. That holds for a
    /// flush, too: the next may succeed without what this one should have made durable.
    pub(super) fn do_without(&mut self, role: u16, why: Refusal) {
        self.keeper.lose_member(self.member_id(role), why);
        self.carry_out();
    }

    pub(super) fn role_of(&self, member: MemberId) -> Option<u16> {
        (0..self.params().nodes).find(|&role| self.links[usize::from(role)].id == Some(member))
    }
}
