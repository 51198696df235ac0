//! Recovery targets: nodes that are added to the running array, in the place of a lost, removed or
//! absent member.

use braid_array::action::{CommandId, NewMember};
use braid_array::events::ArrayEvent;
use braid_array::format::{BadBlocks, Superblock};
use braid_array::{Instant, MemberId, Refusal, Role, SECTOR_BYTES};

use super::KeeperSide;
use crate::client::ClientMember;
use crate::client::ownership::decision::NodeGrant;
use crate::client::parts::Parts;
use crate::client::session_key::SessionKey;
use crate::client::sessions::Net;
use crate::client::sessions::negotiation::Purpose;
use crate::client::sessions::session::{Session, SessionState};
use crate::member::member_parts;
use crate::wire::Message;

/// Reason for which a node is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// An administrator adds it.
    Command(CommandId),
    /// A member that was absent at the start.
    Absent,
    /// A spare that is needed.
    Spare,
    /// A spare to which this member is copied; the command is answered once the copy has begun.
    Copy { command: Option<CommandId>, old: MemberId },
    /// A finished copy, which replaces its original.
    Copied,
}

impl Origin {
    const fn purpose(self) -> Purpose {
        match self {
            Self::Command(_) | Self::Absent => Purpose::Recover,
            Self::Spare | Self::Copied => Purpose::Spare,
            Self::Copy { .. } => Purpose::Copy,
        }
    }
}

/// The former member of the role, and the time of its next attempt.
#[derive(Debug)]
pub(super) struct Before {
    pub(super) member: ClientMember,
    id: Option<MemberId>,
    due: Option<Instant>,
}

impl Before {
    /// Takes the member of a session, to be tried at once if it is needed again.
    pub(super) fn of(session: Session, now: Instant) -> Option<Self> {
        Some(Self { member: session.member?, id: session.id, due: Some(now) })
    }
}

/// The node that is being added; there is at most one at a time. The node gets the role `place`,
/// and all content of that role. When it is lost or refused, the session of the role returns to the
/// former member, and the command, if there is one, is refused.
#[derive(Debug)]
pub(super) struct Recovery {
    pub(super) origin: Origin,
    pub(super) new: NewMember,
    /// Its session: that of its role, or that of the copy target.
    pub(super) key: SessionKey,
    /// The role that it is to have.
    pub(super) place: Role,
    pub(super) before: Option<Before>,
    pub(super) grant: Option<NodeGrant>,
}

impl Recovery {
    pub(super) const fn session(&self) -> SessionKey {
        self.key
    }
}

/// Returns the member on a volume of this size, in the keeper's form.
pub(super) fn new_member(
    member: MemberId,
    device: String,
    volume_bytes: u64,
    superblock: Box<Superblock>,
    bad_blocks: Option<BadBlocks>,
) -> NewMember {
    NewMember {
        member,
        device,
        device_sectors: volume_bytes / SECTOR_BYTES,
        device_uuid: superblock.device_uuid,
        superblock: Some(superblock),
        bad_blocks,
        readd: false,
    }
}

pub(super) fn moved() -> Refusal {
    Refusal::new("other members have come or gone meanwhile", "add it again")
}

impl KeeperSide {
    pub(super) fn is_recovery_target(&self, key: SessionKey) -> bool {
        self.recovery.as_ref().is_some_and(|recovery| recovery.key == key)
    }

    /// Returns whether a node is being added, other than a copy target: a missing member's role
    /// goes before a copy.
    pub(super) fn is_taking_in(&self) -> bool {
        let copied = |one: &Recovery| matches!(one.origin, Origin::Copy { command: None, .. });
        self.recovery.as_ref().is_some_and(|one| !copied(one))
    }

    /// Ends a recovery that no command waits for: a member is missing, and another node is to have
    /// its role.
    pub(super) fn end_untold(&mut self, parts: &mut Parts) {
        let untold = |one: &&Recovery| match one.origin {
            Origin::Absent | Origin::Spare | Origin::Copy { command: None, .. } => true,
            Origin::Command(_) | Origin::Copy { .. } | Origin::Copied => false,
        };
        if let Some(key) = self.recovery.as_ref().filter(untold).map(Recovery::session) {
            let why = Refusal::new("another member is missing", "begin again");
            self.fail(parts, key, Some(why));
        }
    }

    /// Begins to take a node in as the member of this role.
    pub(super) fn begin_recovery(
        &mut self,
        parts: &mut Parts,
        origin: Origin,
        mut new: NewMember,
        place: Role,
    ) -> Result<(), Refusal> {
        let (address, volume) = member_parts(&new.device).ok_or_else(|| {
            let reason = format!("{} is on no node, and the array is over nodes", new.device);
            Refusal::new(reason, "add node://HOST:PORT/VOLUME")
        })?;
        new.member = parts.keeper.view().id_for(&new.device).ok_or_else(moved)?;
        new.device_sectors = parts.engine.journals.sectors_before(new.device_sectors);
        let superblock = parts.keeper.view().candidate(&new, place)?;
        let address = address.to_owned();
        let volume = volume.to_owned();
        self.end_untold(parts);
        let copy = matches!(origin, Origin::Copy { .. });
        let key = if copy { SessionKey::CopyTarget } else { place.into() };
        if parts.session(key).is_coming() {
            self.fail(parts, key, None);
        }
        let version = parts.engine.sets.version();
        let session = parts.session_mut(key);
        let before = session.member.replace(ClientMember {
            address,
            volume,
            superblock,
            bad_blocks: BadBlocks::default(),
        });
        let before = before.map(|member| {
            let id = session.id.take();
            Before { member, id, due: session.due }
        });
        session.copy_of = copy.then_some(place);
        session.lost_at = version;
        session.refused = None;
        self.recovery = Some(Recovery { origin, new, key, place, before, grant: None });
        let (sessions, mut net) = parts.sessions();
        sessions.dial(&mut net, key, origin.purpose());
        Ok(())
    }

    /// Hangs up on a node whose negotiation has failed.
    pub(super) fn fail(&mut self, parts: &mut Parts, key: SessionKey, why: Option<Refusal>) {
        let (sessions, mut net) = parts.sessions();
        sessions.end(&mut net, key);
        self.failed(parts, key, why);
    }

    /// Notes that an attempt to add a node has failed: everything is as before.
    pub(in crate::client) fn failed(
        &mut self,
        parts: &mut Parts,
        key: SessionKey,
        why: Option<Refusal>,
    ) {
        let now = parts.keeper.view().now();
        match key {
            SessionKey::AbsentVisit => self.absents.look_over(why, now),
            SessionKey::DepartedVisit => {
                self.departed.visits.failed(now);
            }
            SessionKey::Member(_) | SessionKey::CopyTarget => self.target_lost(parts, key, why),
        }
    }

    /// Handles the loss of a recovery target before it became a member: everything is as before.
    fn target_lost(&mut self, parts: &mut Parts, key: SessionKey, why: Option<Refusal>) {
        let Some(recovery) = self.recovery.take_if(|recovery| recovery.key == key) else {
            return;
        };
        let session = parts.session_mut(key);
        session.copy_of = None;
        match recovery.before {
            Some(Before { member, id, due }) => {
                // Who was failed by the administrator stays away; who is to be tried again has his
                // turn next, however often others are tried in his place.
                session.member = Some(member);
                session.id = id;
                session.due = due;
            }
            None => session.clear(),
        }
        let long = || Refusal::new("does not get ready", "");
        let Refusal { reason, next } = why.unwrap_or_else(long);
        let why = Refusal { reason, next: next.or("see the log of its node, try again") };
        if matches!(recovery.origin, Origin::Copy { .. }) {
            end_copy(parts, recovery.place);
        }
        let now = parts.keeper.view().now();
        match recovery.origin {
            Origin::Command(id) | Origin::Copy { command: Some(id), .. } => {
                parts.out.reply(id, Err(why));
            }
            // A copy has ended before its end; nobody waits for it.
            Origin::Copy { command: None, old } => {
                parts.keeper_mut().end_copying(why.reason.clone());
                let Refusal { reason, next } = why;
                let event = ArrayEvent::NotReplaced { member: old, reason: reason.into(), next };
                parts.out.notify(event);
            }
            Origin::Copied => {}
            Origin::Absent => self.absents.failed(&recovery.new.device, now),
            Origin::Spare => self.spares.failed(now),
        }
    }

    /// Notes that the member of a role has left the array, or is abandoned.
    pub(super) fn departs(&mut self, parts: &Parts, role: Role) {
        if let Some(address) = parts.session(role).address() {
            self.departed.add(address.to_owned(), parts.keeper.view().now());
        }
    }

    /// Cuts the connection to an unresponsive node, so that its unsent data is not waited for.
    pub(in crate::client) fn cut(&mut self, parts: &mut Parts, role: Role) {
        parts.cut(role);
        self.departs(parts, role);
    }

    /// Wires the next prepared node, once no slice-set from the time of its loss can reach it.
    pub(in crate::client) fn wire_next(&mut self, parts: &mut Parts) {
        let facts = parts.facts();
        let Parts { keeper, out, sessions, engine, .. } = parts;
        out.report_to(keeper);
        let mut net = Net { keeper: keeper.view(), out, facts };
        let sets = &engine.sets;
        let journals = &engine.journals;
        let over = |lost_at| sets.oldest().is_none_or(|oldest| lost_at < oldest);
        sessions.wire_next(&mut net, |lost_at| over(lost_at) && journals.allow(lost_at));
    }
}

/// Ends a copy whose target is gone.
fn end_copy(parts: &mut Parts, place: Role) {
    let (engine, mut cx) = parts.engine();
    engine.end_copy(&mut cx, place);
    let session = parts.session(place);
    if session.state == SessionState::Ready {
        parts.out.send(session.peer, &Message::Without { role: place });
    }
}
