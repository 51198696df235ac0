//! Joining of nodes: members that return, which the keeper takes back, and nodes that are added.

use braid_array::events::ArrayEvent;
use braid_array::{Refusal, Role};

use super::keeper_side::{KeeperSide, moved};
use super::parts::Parts;
use super::session_key::SessionKey;
use super::sessions::negotiation::NegotiationStep;

impl Parts {
    /// Begins the attempts to add nodes, and to tell departed ones, whose time has come.
    pub(super) fn look_for_nodes(&mut self) {
        let facts = self.join_facts();
        let list = &self.sessions.list;
        let member = |key| {
            let session = list.get(key);
            Some((key, session.address()?.to_owned(), session.alive() || session.due.is_some()))
        };
        let members: Vec<_> = list.member_keys().filter_map(member).collect();
        self.join(|side| side.tick(&facts, &members));
    }

    /// Handles a node that rests at a step.
    pub(super) fn holds(&mut self, key: SessionKey, step: NegotiationStep) {
        match step {
            NegotiationStep::Granted if key.is_visit() => self.drop_leftovers([key]),
            NegotiationStep::Granted => self.drop_leftovers(self.sessions.list.member_keys()),
            NegotiationStep::Prepared if self.alive(key) => self.start_goes_on(),
            NegotiationStep::Prepared => {
                let version = self.engine.sets.version();
                let session = self.sessions.list.get_mut(key);
                if key == SessionKey::CopyTarget {
                    // It has no part in anything yet.
                    session.lost_at = 0;
                } else if self.engine.journals.are_used() {
                    // Records that name its role are from before: none may be left.
                    session.lost_at = version;
                }
                self.wire_next();
            }
            NegotiationStep::ReadingBack => {
                let Some(place) = self.sessions.list.place(key) else { return };
                self.engine.read_back.begin(place);
                self.sessions.rest(key, NegotiationStep::ReadingBack);
            }
            _ => {}
        }
    }

    /// Orders nodes that are no members now to drop their slice-sets, once no takeover may ask for
    /// these: the slice-sets went on without them.
    pub(super) fn drop_leftovers(&mut self, keys: impl IntoIterator<Item = SessionKey>) {
        for key in keys {
            let session = self.session(key);
            if session.is_coming_at(NegotiationStep::Granted)
                && let Some(incarnation) = session.grant.as_ref().map(|grant| grant.incarnation)
                && self.is_out(incarnation)
            {
                self.go_on(key, NegotiationStep::Resolving);
            }
        }
    }

    /// Handles the end of wiring of a joining node, with success or not.
    pub(super) fn wired(&mut self, key: SessionKey, ok: bool) {
        if self.session(key).is_coming_at(NegotiationStep::Wiring) {
            match key.role() {
                _ if !ok || !self.may_return() => self.join(|side| side.fail(key, None)),
                Some(role) => self.joins(role),
                None => self.join(KeeperSide::copy_wired),
            }
        }
        self.wire_next();
    }

    /// Has the keeper take in or take back the member of this role: its node is wired.
    fn joins(&mut self, role: Role) {
        // Whoever was there before may have been complained about.
        self.engine.sets.is_connected(role);
        let session = self.session(role);
        if let Some((new, place)) = self.keeper_side.target(role.into()) {
            let is_spare = self.keeper.view().spares().any(|spare| spare.device == new.device);
            // Its pipeline begins there.
            let begins = session.member.as_ref().map(|member| member.superblock.data_offset);
            let candidate = self.candidate(new, place).and_then(|(id, superblock)| {
                if Some(superblock.data_offset) == begins { Ok(id) } else { Err(moved()) }
            });
            self.join(|side| side.target_wired(is_spare, candidate));
        } else {
            self.take_back(role);
        }
    }

    /// Returns a member to the keeper.
    fn take_back(&mut self, role: Role) {
        let session = self.session_mut(role);
        let back = session.id.zip(session.returned.take());
        let new = back.and_then(|(id, superblock)| session.new_member(id, superblock, None));
        let Some(new) = new else { return };
        session.stands_anew();
        self.shared.reads.stands_anew(role);
        let known = braid_array::broken("reconnect") && self.keeper.view().is_in_sync(role);
        let has_all = self.has_what_it_recorded(role);
        let mut take_back = || self.keeper_mut().member_returned(&new, role, has_all);
        match if known { Ok(()) } else { take_back() } {
            Ok(()) => self.session_mut(role).is_back(),
            // Its content has diverged.
            Err(why) => {
                let session = self.session_mut(role);
                session.refused = Some(why.clone());
                if let Some(member) = session.id {
                    self.out.notify(ArrayEvent::MemberRefused { member, why });
                }
                self.cut(role);
            }
        }
    }

    /// Fails a node without a member, if it is joining.
    pub(super) fn lose_stranger(&mut self, key: SessionKey, why: Option<Refusal>) {
        if self.session(key).is_coming() {
            self.join(|side| side.fail(key, why));
        }
    }

    /// Forgets removed members. While the array ends, no node joins.
    pub(super) fn forget_removed(&mut self) {
        if !self.may_return() {
            self.join(KeeperSide::stop);
        }
        for role in self.sessions.list.roles() {
            let session = self.session(role);
            let known = session.id.is_none_or(|id| self.keeper.view().knows(id));
            if known || session.alive() {
                continue;
            }
            self.lose_stranger(role.into(), None);
            self.departs(role);
            self.session_mut(role).clear();
        }
    }
}
