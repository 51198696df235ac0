//! Recovery targets: nodes that are added to the running array, in the place of a lost, removed or
//! absent member. At most one is added at a time. When it is lost or refused, the session of the
//! role returns to the former member, and the command, if there is one, is refused.

use braid_array::action::{CommandId, NewMember};
use braid_array::{MemberId, Refusal, Role};

use super::KeeperSide;
use super::command::{JoinCommand, JoinFacts, Origin, Recovery, Vacancy};
use crate::client::ClientMember;
use crate::client::session_key::SessionKey;

pub(in crate::client) fn moved() -> Refusal {
    Refusal::new("other members have come or gone meanwhile", "add it again")
}

pub(super) fn busy() -> Refusal {
    Refusal::new("another node is being added", "wait for that, try again")
}

/// Returns the role for a node: its former role, else one whose member has been removed, then one
/// whose member will not return by itself.
fn place_for(facts: &JoinFacts, new: &NewMember) -> Option<Role> {
    let own = own_role(new);
    let rank = |one: &&Vacancy| (own != Some(one.role), one.had, one.due.is_some());
    facts.vacancies.iter().min_by_key(rank).map(|vacancy| vacancy.role)
}

/// Returns the role that a node has according to its superblock.
pub(super) fn own_role(new: &NewMember) -> Option<Role> {
    new.superblock.as_deref()?.role().active()
}

impl KeeperSide {
    /// Returns the node that is being added on this session, and the role that it is to have.
    pub(in crate::client) fn target(&self, key: SessionKey) -> Option<(&NewMember, Role)> {
        let recovery = self.recovery.as_ref().filter(|recovery| recovery.key() == key)?;
        Some((&recovery.new, recovery.place))
    }

    /// Notes the sectors of the volume of the node that is being added.
    pub(in crate::client) const fn target_opened(&mut self, sectors: u64) {
        if let Some(recovery) = &mut self.recovery {
            recovery.new.device_sectors = sectors;
        }
    }

    /// Returns whether a node is being added, other than a copy target: a missing member's role
    /// goes before a copy.
    pub(super) fn is_taking_in(&self) -> bool {
        let copied = |one: &Recovery| matches!(one.origin, Origin::Copy { command: None, .. });
        self.recovery.as_ref().is_some_and(|one| !copied(one))
    }

    /// Begins to take a node in, as a member or as a spare where all members are there. The command
    /// is answered when that is done.
    pub(in crate::client) fn add(
        &mut self,
        facts: &JoinFacts,
        command: CommandId,
        new: Box<NewMember>,
    ) {
        let Some(place) = place_for(facts, &new) else {
            return self.commands.push_back(JoinCommand::AddSpare(command, new));
        };
        self.end_untold();
        self.commands.push_back(if self.recovery.is_some() {
            JoinCommand::Reply(command, Err(busy()))
        } else {
            let origin = Origin::Command(command);
            JoinCommand::Recover(Recovery { origin, new, place })
        });
    }

    /// Begins to take a node in as the member of its role, if it may have the role.
    pub(in crate::client) fn begin(
        &mut self,
        recovery: Recovery,
        member: Result<Box<ClientMember>, Refusal>,
    ) {
        match (member, recovery.origin) {
            (Ok(member), _) => {
                self.end_untold();
                let key = recovery.key();
                let place = recovery.place;
                let purpose = recovery.purpose();
                self.commands.push_back(JoinCommand::Connect { key, place, member, purpose });
                self.recovery = Some(recovery);
            }
            (Err(why), Origin::Command(id) | Origin::Copy { command: Some(id), .. }) => {
                self.commands.push_back(JoinCommand::Reply(id, Err(why)));
            }
            (Err(_), Origin::Spare) => self.spares.failed(self.now),
            // If it cannot now, it is looked at again later.
            (Err(_), _) => {}
        }
    }

    /// Ends a recovery that no command waits for: a member is missing, and another node is to have
    /// its role.
    fn end_untold(&mut self) {
        let untold = |one: &&Recovery| match one.origin {
            Origin::Absent | Origin::Spare | Origin::Copy { command: None, .. } => true,
            Origin::Command(_) | Origin::Copy { .. } | Origin::Copied => false,
        };
        if let Some(key) = self.recovery.as_ref().filter(untold).map(Recovery::key) {
            self.fail(key, Some(Refusal::new("another member is missing", "begin again")));
        }
    }

    /// Handles a node that is wired as a member. `is_spare`: the array has it as a spare;
    /// `candidate`: the keeper's id for it, if it may still have the role.
    pub(in crate::client) fn target_wired(
        &mut self,
        is_spare: bool,
        candidate: Result<MemberId, Refusal>,
    ) {
        let Some(recovery) = &mut self.recovery else { return };
        let left = matches!(recovery.origin, Origin::Spare | Origin::Copied) && !is_spare;
        let key = recovery.key();
        match if left { Err(moved()) } else { candidate } {
            Ok(member) => {
                recovery.new.member = member;
                if recovery.origin == Origin::Absent {
                    // If the keeper does not want it, that is for good.
                    self.absents.forget(&recovery.new.device);
                }
                self.commands.push_back(JoinCommand::TakeIn(recovery.clone()));
            }
            Err(why) => self.fail(key, Some(why)),
        }
    }

    /// Hangs up on a node whose negotiation has failed.
    pub(in crate::client) fn fail(&mut self, key: SessionKey, why: Option<Refusal>) {
        self.commands.push_back(JoinCommand::HangUp(key));
        self.failed(key, why);
    }

    /// Notes that an attempt to add a node has failed: everything is as before.
    pub(in crate::client) fn failed(&mut self, key: SessionKey, why: Option<Refusal>) {
        match key {
            SessionKey::AbsentVisit => self.absents.look_over(why, self.now),
            SessionKey::DepartedVisit => {
                self.departed.failed(self.now);
            }
            SessionKey::Member(_) | SessionKey::CopyTarget => self.target_lost(key, why),
        }
    }

    /// Handles the loss of a recovery target before it became a member: everything is as before.
    fn target_lost(&mut self, key: SessionKey, why: Option<Refusal>) {
        let Some(recovery) = self.recovery.take_if(|recovery| recovery.key() == key) else {
            return;
        };
        let Recovery { origin, new, place, .. } = recovery;
        let copied = matches!(origin, Origin::Copy { .. }).then_some(place);
        self.commands.push_back(JoinCommand::Restore(key, copied));
        let long = || Refusal::new("does not get ready", "");
        let Refusal { reason, next } = why.unwrap_or_else(long);
        let why = Refusal { reason, next: next.or("see the log of its node, try again") };
        match origin {
            Origin::Command(id) | Origin::Copy { command: Some(id), .. } => {
                self.commands.push_back(JoinCommand::Reply(id, Err(why)));
            }
            // A copy has ended before its end; nobody waits for it.
            Origin::Copy { command: None, old } => {
                self.commands.push_back(JoinCommand::EndCopying(old, why));
            }
            Origin::Copied => {}
            Origin::Absent => self.absents.failed(&new.device, self.now),
            Origin::Spare => self.spares.failed(self.now),
        }
    }
}
