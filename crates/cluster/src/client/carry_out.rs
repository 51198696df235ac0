//! Execution of the keeper's commands on the nodes, and of the losses of nodes.

use braid_array::keeper::{LaneCommand, LaneReport, MetaWrite};
use braid_array::{MemberId, Refusal};

use super::out::{Loss, LossKind, RequestKind};
use super::parts::Parts;
use super::session_key::SessionKey;
use super::{Client, ClientPhase};
use crate::member;
use crate::wire::Message;

impl Client {
    pub(super) fn carry_out(&mut self, command: LaneCommand) {
        match command {
            LaneCommand::Flush(member) => self.request_meta(member, |tag| Message::Flush { tag }),
            LaneCommand::Write(write) if self.may_tell_members() => self.write_meta(write),
            LaneCommand::Write(write) => self.untold.push_back(write),
            LaneCommand::Work { place, unit, work } => {
                self.parts.engine.add_work(place, unit, work)
            }
            // The keeper waits no longer for a node.
            LaneCommand::GiveUp(member) => {
                if let Some(role) = self.parts.alive_role_of(member) {
                    self.parts.cut(role);
                }
            }
            // Nodes keep journals of their own: a keeper of theirs has no device for one.
            LaneCommand::BeginJournal { .. }
            | LaneCommand::JournalMode(_)
            | LaneCommand::Record(_) => {}
            LaneCommand::Lengthen { member, data_sectors } => {
                self.parts.lengthen(member, data_sectors);
            }
            // The keeper refuses another shape here.
            LaneCommand::Grown(_) | LaneCommand::Window { .. } | LaneCommand::Seal { .. } => {}
            LaneCommand::Reply(id, result) => {
                if self.parts.keeper.view().has_stopped() {
                    self.parts.close_visits();
                    let (sessions, mut net) = self.parts.sessions();
                    sessions.hang_up_all(&mut net);
                    // Nobody answers any more.
                    self.parts.out.requests.clear();
                    self.parts.phase = ClientPhase::Stopped;
                }
                self.parts.out.reply(id, result);
            }
            LaneCommand::Notify(event) => self.parts.out.notify(event),
            LaneCommand::CheckpointDone => self.parts.engine.journals.checkpoint_done(),
            // Slice-sets look in each turn whether they may begin; ids do not change.
            LaneCommand::Updated | LaneCommand::Disown(_) => {}
        }
    }

    pub(super) fn carry_out_loss(&mut self, Loss { key, why, kind }: Loss) {
        let parts = &mut self.parts;
        let Some(role) = parts.sessions.list.alive_role(key) else {
            return parts.lose_stranger(key, Some(why));
        };
        let id = parts.sessions.list.id(role);
        if kind == LossKind::Store && id.is_some_and(|id| parts.keeper.view().needs(id)) {
            // The array cannot go on without it: it waits for it.
            if let Some(member) = &parts.session(role).member {
                let name = member::member_name(&member.address, &member.volume);
                let reason = format!("{name}: {}", why.reason);
                parts.ownership.refuse(Refusal::new(reason, why.next.clone()));
            }
        }
        parts.lose_member(id, why);
        while let Some(command) = self.parts.keeper.next_command() {
            self.carry_out(command);
        }
        if kind == LossKind::Returns && !self.parts.alive(role) {
            let (sessions, net) = self.parts.sessions();
            sessions.await_return(&net, role);
        }
    }

    /// Fails the member of a session at once; the array continues without it.
    pub(super) fn lose_now(&mut self, key: SessionKey, why: Refusal, kind: LossKind) {
        self.carry_out_loss(Loss { key, why, kind });
    }

    fn write_meta(&mut self, write: MetaWrite) {
        let MetaWrite { member, sector, bytes } = write;
        self.request_meta(member, |tag| Message::WriteMeta { tag, sector, bytes });
    }

    /// Returns whether superblocks may be written now. Where losses need votes, a superblock that
    /// records a loss is written only after voters have noted the loss. Otherwise a client that
    /// finds only the lost members, gets their votes and continues with them would leave
    /// superblocks behind that are newer than its own. Superblocks that record a member newly in
    /// sync come first: views wait for them, and they do not mention the loss.
    fn may_tell_members(&mut self) -> bool {
        self.parts.refresh();
        let Parts { members, keeper, .. } = &self.parts;
        let keeper = keeper.view();
        let noted = || members.losses_noted(keeper);
        !members.needs_votes(keeper) || noted() || !keeper.arrivals_told()
    }

    /// Writes the superblocks that had to wait for votes. Too few votes: nothing is written.
    pub(super) fn tell_members(&mut self) {
        if self.untold.is_empty() || !self.may_tell_members() {
            return;
        }
        for write in std::mem::take(&mut self.untold) {
            if self.parts.writes_over() {
                self.parts.keeper_mut().hear(LaneReport::UpdateDone);
            } else {
                self.write_meta(write);
            }
        }
    }

    /// Sends a request of the keeper's superblock update to a member.
    fn request_meta(&mut self, member: MemberId, message: impl FnOnce(u32) -> Message) {
        match self.parts.alive_role_of(member) {
            Some(role) => {
                let (sessions, mut net) = self.parts.sessions();
                sessions.request(&mut net, role, RequestKind::Meta, message);
            }
            None => self.parts.keeper_mut().hear(LaneReport::UpdateDone),
        }
    }
}
