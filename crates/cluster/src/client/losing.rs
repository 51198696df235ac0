//! Nodes that are lost, or given up: what was asked of one, or was to be, goes without it.

use braid_array::fabric::FabricOp;
use braid_array::{Action, Refusal};

use super::presence::Presence;
use super::setup::LinkState;
use super::{Client, Message, RequestKind};

impl Client {
    /// Gives a node up that misbehaves.
    pub(super) fn part_with(&mut self, role: u16, reason: &'static str) {
        if !self.alive(role) {
            return self.return_fails(role);
        }
        let why = Refusal::new(reason, "use the same version of braid everywhere");
        self.keeper.lose_member(self.member_id(role), why);
        self.carry_out();
    }

    /// Whoever does not answer may not take what was sent either: nobody waits for that.
    pub(super) fn hang_up_on(&mut self, role: u16) {
        let peer = self.links[usize::from(role)].peer;
        self.actions.push_back(Action::Fabric(FabricOp::Cut { peer }));
        self.gone(role);
        if let Some(member) = &self.links[usize::from(role)].member {
            self.departs(member.address.clone());
        }
    }

    /// The connection to a node is over.
    pub(super) fn lose(&mut self, role: u16, why: Refusal) {
        self.links[usize::from(role)].state = LinkState::Lost;
        if !(braid_array::broken("reconnect") && matches!(self.phase, super::Phase::Running)) {
            self.keeper.lose_member(self.member_id(role), why);
        }
        self.carry_out();
        self.gone(role);
        self.await_return(role);
    }

    /// What was asked of a node, or was to be, goes without it.
    pub(super) fn gone(&mut self, role: u16) {
        let link = &mut self.links[usize::from(role)];
        link.state = LinkState::Lost;
        link.gone_at.get_or_insert(self.keeper.now());
        link.presence = Presence::default();
        self.pace.forget(role);
        self.share.forget(role);
        let left_open: Vec<RequestKind> = {
            let asked = |&(_, &(asked, _)): &(&u32, &(u16, RequestKind))| asked == role;
            let tags: Vec<u32> = self.questions.iter().filter(asked).map(|(&tag, _)| tag).collect();
            tags.iter().filter_map(|tag| self.questions.remove(tag)).map(|(_, q)| q).collect()
        };
        self.sets_without(role);
        self.others_without(role);
        for question in left_open {
            match question {
                RequestKind::Flush(number) => self.flush_answered(number),
                RequestKind::Meta => self.meta_answered(),
                RequestKind::Rewire => self.rewired(role, false),
                RequestKind::Journal => {}
                RequestKind::OpenVolume
                | RequestKind::OpenPipeline
                | RequestKind::Connect
                | RequestKind::Ping => {}
                RequestKind::Grant | RequestKind::ListLeftovers | RequestKind::Return => {}
                RequestKind::LeaseRing | RequestKind::ReturnRing | RequestKind::StoreCopied(_) => {}
                RequestKind::StoreView(_) | RequestKind::Reread | RequestKind::ResolveLeftovers => {
                }
            }
        }
        self.take_over_without(role);
        self.journals_without(role);
        self.setup_goes_on();
        self.reads_without(role);
    }

    /// The nodes hang up on one that is lost, so that nothing of it comes any more.
    pub(super) fn others_without(&mut self, lost: u16) {
        if lost == self.beside() {
            // Only the one that is copied is connected to it, and is told by itself.
            return;
        }
        for role in 0..self.params().nodes {
            let state = self.links[usize::from(role)].state;
            if matches!(state, LinkState::Wiring { .. } | LinkState::Ready) {
                self.send(role, &Message::Without { role: lost });
            }
        }
    }
}
