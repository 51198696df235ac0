//! Joining of nodes: members that return, which the keeper takes back, and nodes that are added.

use braid_array::action::NewMember;
use braid_array::events::ArrayEvent;
use braid_array::format::DevRole;
use braid_array::{Refusal, Role};

use super::KeeperSide;
use super::recovery::{Origin, moved, new_member};
use crate::client::parts::Parts;
use crate::client::session_key::SessionKey;
use crate::client::sessions::negotiation::NegotiationStep;
use crate::member::member_name;

impl KeeperSide {
    /// Returns the role for a node: its former role, else one whose member has been removed, then
    /// one whose member will not return by itself.
    pub(super) fn place_for(parts: &Parts, new: &NewMember) -> Option<Role> {
        let own = new.superblock.as_deref().map(|superblock| superblock.role());
        let vacant = |role: &Role| parts.keeper.view().is_vacant(*role) && !parts.alive(*role);
        parts.sessions.list.roles().filter(vacant).min_by_key(|&role| {
            let session = parts.session(role);
            let had = own == Some(DevRole::Active(role));
            (!had, session.member.is_some(), session.due.is_some())
        })
    }

    /// Orders joining nodes to drop their slice-sets, once no takeover may ask for these: the
    /// slice-sets went on without them.
    pub(super) fn drop_leftovers(&self, parts: &mut Parts) {
        for key in parts.sessions.list.member_keys() {
            if !parts.session(key).is_coming_at(NegotiationStep::Granted) {
                continue;
            }
            let grant = match self.recovery.as_ref().filter(|recovery| recovery.key == key) {
                Some(recovery) => recovery.grant.as_ref(),
                None => key.role().and_then(|role| parts.ownership.grant_of(role)),
            };
            let Some(incarnation) = grant.map(|grant| grant.incarnation) else { continue };
            if parts.is_out(incarnation) {
                parts.go_on(key, NegotiationStep::Resolving);
            }
        }
    }

    /// Notes that a joining node is prepared and lacks only the wires.
    pub(super) fn prepared(&mut self, parts: &mut Parts, key: SessionKey) {
        let version = parts.engine.sets.version();
        let session = parts.sessions.list.get_mut(key);
        if key == SessionKey::CopyTarget {
            // It has no part in anything yet.
            session.lost_at = 0;
        } else if parts.engine.journals.are_used() {
            // Records that name its role are from before: none may be left.
            session.lost_at = version;
        }
        self.wire_next(parts);
    }

    /// Returns a member to the keeper: its node is wired.
    pub(super) fn take_back(&mut self, parts: &mut Parts, key: SessionKey) {
        let Some(role) = key.role() else { return self.begin_copying(parts) };
        // Whoever was there before may have been complained about.
        parts.engine.sets.is_connected(role);
        if self.is_recovery_target(key) {
            return self.take_in(parts, role);
        }
        let session = parts.session_mut(role);
        let superblock = session.returned.take();
        let (Some(id), Some(member), Some(superblock)) = (session.id, &session.member, superblock)
        else {
            return;
        };
        let device = member_name(&member.address, &member.volume);
        let new = new_member(id, device, session.volume_bytes, superblock, None);
        session.stands_anew();
        parts.shared.reads.stands_anew(role);
        let known = braid_array::broken("reconnect") && parts.keeper.view().is_in_sync(role);
        let has_all = has_what_it_recorded(parts, key);
        let mut take_back = || parts.keeper_mut().member_returned(&new, role, has_all);
        match if known { Ok(()) } else { take_back() } {
            Ok(()) => parts.session_mut(role).is_back(),
            Err(why) => self.keeps_out(parts, role, why),
        }
    }

    /// Adds a recovery target to the keeper: its node is wired.
    fn take_in(&mut self, parts: &mut Parts, role: Role) {
        if let Err(why) = self.try_take_in(parts, role) {
            return self.fail(parts, role.into(), Some(why));
        }
        let session = parts.session_mut(role);
        session.is_back();
        session.stands_anew();
        parts.shared.reads.stands_anew(role);
        let Some(recovery) = self.recovery.take() else { return };
        parts.ownership.has_granted(role, recovery.grant);
        if let Some(before) = recovery.before {
            self.departed.add(before.member.address, parts.keeper.view().now());
        }
        self.absent_depart(parts);
    }

    fn try_take_in(&mut self, parts: &mut Parts, role: Role) -> Result<(), Refusal> {
        let recovery = self.recovery.as_mut().ok_or_else(moved)?;
        let has_all = has_what_it_recorded(parts, recovery.key);
        parts.hear_reports();
        let keeper = &mut parts.keeper;
        let device = recovery.new.device.as_str();
        let left = !keeper.view().spares().any(|spare| spare.device == device);
        if matches!(recovery.origin, Origin::Spare | Origin::Copied) && left {
            return Err(moved());
        }
        recovery.new.member = keeper.view().id_for(&recovery.new.device).ok_or_else(moved)?;
        let session = parts.sessions.list.get_mut(role);
        // Its pipeline begins there.
        let place = session.member.as_ref().map(|member| member.superblock.data_offset);
        if Some(keeper.view().candidate(&recovery.new, role)?.data_offset) != place {
            return Err(moved());
        }
        match recovery.origin {
            Origin::Command(command) => keeper.take_in(Some(command), &recovery.new, role)?,
            Origin::Spare => keeper.take_in(None, &recovery.new, role)?,
            Origin::Copied => keeper.take_in_copy(&recovery.new, role)?,
            Origin::Copy { .. } => return Err(moved()),
            Origin::Absent => {
                // If the keeper does not want it, that is for good.
                self.absents.forget(&recovery.new.device);
                keeper.member_returned(&recovery.new, role, has_all)?;
            }
        }
        session.id = Some(recovery.new.member);
        Ok(())
    }

    /// Refuses the member of a role, whose content has diverged.
    fn keeps_out(&mut self, parts: &mut Parts, role: Role, why: Refusal) {
        let session = parts.session_mut(role);
        session.refused = Some(why.clone());
        if let Some(member) = session.id {
            parts.out.notify(ArrayEvent::MemberRefused { member, why });
        }
        self.cut(parts, role);
    }
}

/// Returns whether a node has in place everything that the last client answered and that it has a
/// part in.
fn has_what_it_recorded(parts: &Parts, key: SessionKey) -> bool {
    let journals = &parts.engine.journals;
    !journals.are_used() || journals.decided.is_none() || parts.session(key).replayed
}
