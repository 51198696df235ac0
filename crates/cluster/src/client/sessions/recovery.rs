//! Nodes that are taken in while the array runs, in the place of one that was lost, removed or
//! absent.

use braid_array::action::{CommandId, NewMember};
use braid_array::events::ArrayEvent;
use braid_array::{MemberId, Refusal, SECTOR_BYTES};

use super::setup::SessionState;
use super::step::Step;
use crate::client::ownership::decision::Grant;
use crate::client::{Client, ClientMember, Instant, Message, Phase};
use crate::member::member_parts;

/// Why one is taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum Origin {
    /// An administrator adds it.
    Command(CommandId),
    /// It was not there at the start.
    Absent,
    /// It is a spare, and wanted.
    Spare,
    /// It is a spare to which this member is copied; once that has begun the command is answered.
    Copy { command: Option<CommandId>, old: MemberId },
    /// It has a copy, and takes the place of the member that it was made of.
    Copied,
}

/// A member, and when it would have been tried again.
type Before = Option<(ClientMember, Option<MemberId>, Option<Instant>)>;

/// The node that is being taken in; there is at most one at a time. An administrator adds it, it
/// was [absent](super::absent) from the start, it is a spare that is wanted, or a member is copied
/// to it ([`copy_target`](super::copy_target)). It goes through the steps of a node that comes back
/// (see [`returning`](super::returning)), takes the role `place`, and is given all that belongs to
/// that role. When it is lost or refused, the connection of the role is that of the former member
/// again, and the command, if there is one, is refused.
#[derive(Debug)]
pub(in crate::client) struct Recovery {
    origin: Origin,
    new: NewMember,
    /// Which connection is its own: that of its role, or the one beside the members.
    role: u16,
    /// The role that it is to have.
    place: u16,
    /// Whose place it takes: who that was, and when it would have been tried again.
    before: Before,
    grant: Option<Grant>,
    /// What has stood against it.
    why: Option<Refusal>,
}

fn moved() -> Refusal {
    Refusal::new("other members have come or gone meanwhile", "add it again")
}

impl Recovery {
    /// The copy begins: the command that is to be answered, and the member that is copied.
    pub(in crate::client) fn begin_copy(&mut self) -> Option<(Option<CommandId>, MemberId)> {
        match &mut self.origin {
            Origin::Copy { command, old } => Some((command.take(), *old)),
            _ => None,
        }
    }

    /// If a member is copied to it: the role, that member, and where it is itself.
    pub(in crate::client) fn copied(&self) -> Option<(u16, MemberId, String)> {
        match self.origin {
            Origin::Copy { old, .. } => Some((self.place, old, self.new.device.clone())),
            _ => None,
        }
    }

    pub(in crate::client) const fn grant(&self) -> Option<&Grant> {
        self.grant.as_ref()
    }

    /// It has the connection of its role, which was that of the member before.
    pub(in crate::client) fn exchanged(&mut self, role: u16, before: Before) {
        (self.origin, self.role, self.before) = (Origin::Copied, role, before);
    }
}

impl Client {
    /// Begins to take a node in; the command is answered when it is a member.
    pub(in crate::client) fn add(&mut self, command: CommandId, new: NewMember) {
        if let Err(why) = self.try_add(command, new) {
            self.out.reply(command, Err(why));
        }
    }

    fn try_add(&mut self, command: CommandId, new: NewMember) -> Result<(), Refusal> {
        self.may_change()?;
        let place = self.place_for(&new);
        let Some(role) = place else { return self.add_spare(command, new) };
        self.end_untold();
        if self.recovery.is_some() {
            return Err(Refusal::new("another node is being added", "wait for that, try again"));
        }
        self.begin_recovery(Origin::Command(command), new, role)
    }

    /// May members come and go?
    pub(in crate::client) fn may_change(&self) -> Result<(), Refusal> {
        self.keeper.view().is_changeable()?;
        if !matches!(self.phase, Phase::Running) || self.keeper.view().is_stopping() {
            return Err(Refusal::new("the array is being started or stopped", "try again then"));
        }
        Ok(())
    }

    /// A member is missing, and another node is to have its role: nobody waits for the one that is
    /// being taken in by itself, nor for a copy.
    fn end_untold(&mut self) {
        let untold = |one: &&Recovery| match one.origin {
            Origin::Absent | Origin::Spare | Origin::Copy { command: None, .. } => true,
            Origin::Command(_) | Origin::Copy { .. } | Origin::Copied => false,
        };
        if let Some(role) = self.recovery.as_ref().filter(untold).map(|one| one.role) {
            self.target_hears(role, Refusal::new("another member is missing", "begin again"));
            self.return_fails(role);
        }
    }

    /// Is a node being taken in, other than one to which a member is copied? The place of one that
    /// is missing goes before that.
    pub(in crate::client) fn is_taking_in(&self) -> bool {
        let copied = |one: &Recovery| matches!(one.origin, Origin::Copy { command: None, .. });
        self.recovery.as_ref().is_some_and(|one| !copied(one))
    }

    /// Begins to take a node in as the member of this role.
    pub(in crate::client) fn begin_recovery(
        &mut self,
        origin: Origin,
        mut new: NewMember,
        role: u16,
    ) -> Result<(), Refusal> {
        let (address, volume) = member_parts(&new.device).ok_or_else(|| {
            let reason = format!("{} is on no node, and the array is over nodes", new.device);
            Refusal::new(reason, "add node://HOST:PORT/VOLUME")
        })?;
        new.member = self.keeper.view().id_for(&new.device).ok_or_else(moved)?;
        new.device_sectors = self.engine.journals.sectors_before(new.device_sectors);
        let superblock = self.keeper.view().candidate(&new, role)?;
        self.end_untold();
        let place = role;
        let copy = matches!(origin, Origin::Copy { .. });
        let role = if copy { self.copy_target() } else { place };
        if matches!(self.sessions[usize::from(role)].state, SessionState::Returning(_)) {
            self.return_fails(role);
        }
        let session = &mut self.sessions[usize::from(role)];
        let (address, volume) = (address.to_owned(), volume.to_owned());
        let before = session.member.replace(ClientMember { address, volume, superblock });
        let before = before.map(|member| (member, session.id.take(), session.due));
        (session.lost_at, session.refused) = (self.engine.sets.version(), None);
        let (grant, why) = (None, None);
        self.recovery = Some(Recovery { origin, new, role, place, before, grant, why });
        self.dial_again(role);
        Ok(())
    }

    /// The role that a node gets: that which it had, or else one whose member has been removed,
    /// then one whose member will not come back by itself.
    fn place_for(&self, new: &NewMember) -> Option<u16> {
        let own = new.superblock.as_deref().map(|superblock| superblock.role());
        let vacant = |role: &u16| self.keeper.view().is_vacant(*role) && !self.alive(*role);
        (0..self.shared.params().nodes).filter(vacant).min_by_key(|&role| {
            let session = &self.sessions[usize::from(role)];
            let had = own == Some(braid_array::format::Role::Active(role));
            (!had, session.member.is_some(), session.due.is_some())
        })
    }

    pub(in crate::client) fn is_recovery_target(&self, role: u16) -> bool {
        self.recovery.as_ref().is_some_and(|recovery| recovery.role == role)
    }

    /// Something stands against the node of this role, if it is a recovery target.
    pub(in crate::client) fn target_hears(&mut self, role: u16, why: Refusal) {
        if let Some(recovery) = self.recovery.as_mut().filter(|recovery| recovery.role == role) {
            recovery.why.get_or_insert(why);
        }
    }

    /// A recovery target is connected. Had it another member, a grant would end that one's
    /// connection.
    pub(in crate::client) fn ask_who_it_is(&mut self, role: u16) {
        self.return_step(role, Step::Asking, |tag| Message::Identify { tag });
    }

    /// It is this node.
    pub(in crate::client) fn target_is(&mut self, role: u16, tag: u32, node: u64) {
        let asked = matches!(self.out.requests.remove(&tag), Some((asked, _)) if asked == role);
        let state = self.sessions[usize::from(role)].state;
        if !asked || state != SessionState::Returning(Step::Asking) {
            return self.out.violates(role, "it tells what was not asked");
        }
        let other = |other: u16| other != role && !self.keeper.view().is_vacant(other);
        if self.ownership.voters_on(node).any(other) {
            let next = "use a node of its own for each member";
            self.target_hears(role, Refusal::new("is on the node of another member", next));
            return self.return_fails(role);
        }
        self.return_grant(role);
    }

    /// A recovery target has granted the array.
    pub(in crate::client) fn target_granted(&mut self, grant: Grant) {
        if let Some(recovery) = &mut self.recovery {
            recovery.grant = Some(grant);
        }
    }

    /// The volume of a recovery target is open, and has this size: is there a place for it?
    pub(in crate::client) fn target_opened(&mut self, role: u16, bytes: u64) {
        let device_sectors = self.engine.journals.sectors_before(bytes / SECTOR_BYTES);
        let Some(recovery) = &mut self.recovery else { return };
        if matches!(recovery.origin, Origin::Spare | Origin::Copy { .. }) {
            // Nobody was connected to it: it may be anything by now.
            return self.look_at_returned(role);
        }
        recovery.new.device_sectors = device_sectors;
        let id = self.keeper.view().id_for(&recovery.new.device).ok_or_else(moved);
        let candidate = id.and_then(|id| {
            recovery.new.member = id;
            self.keeper.view().candidate(&recovery.new, role)
        });
        match (candidate, &mut self.sessions[usize::from(role)].member) {
            (Ok(superblock), Some(member)) => {
                member.superblock = superblock;
                self.prepare_returned(role);
            }
            (candidate, _) => {
                recovery.why = candidate.err();
                self.return_fails(role);
            }
        }
    }

    /// The role that the node of a connection has, or is to have.
    pub(in crate::client) fn place_of(&self, role: u16) -> u16 {
        let recovery = self.recovery.as_ref().filter(|recovery| recovery.role == role);
        recovery.map_or(role, |recovery| recovery.place)
    }

    /// A recovery target is wired: the keeper has a member more.
    pub(in crate::client) fn take_in(&mut self, role: u16) {
        if role == self.copy_target() {
            return self.begin_copying();
        }
        if let Err(why) = self.try_take_in(role) {
            self.target_hears(role, why);
            return self.return_fails(role);
        }
        let session = &mut self.sessions[usize::from(role)];
        session.tries = 0;
        session.stands_anew();
        self.shared.reads.stands_anew(role);
        let (grant, before) = match self.recovery.take() {
            Some(recovery) => (recovery.grant, recovery.before),
            None => (None, None),
        };
        self.ownership.has_granted(role, grant);
        if let Some((member, ..)) = before {
            self.departs(member.address);
        }
    }

    fn try_take_in(&mut self, role: u16) -> Result<(), Refusal> {
        let recovery = self.recovery.as_mut().ok_or_else(moved)?;
        let device = recovery.new.device.as_str();
        let left = !self.keeper.view().spares().any(|spare| spare.device == device);
        if matches!(recovery.origin, Origin::Spare | Origin::Copied) && left {
            return Err(moved());
        }
        recovery.new.member = self.keeper.view().id_for(&recovery.new.device).ok_or_else(moved)?;
        let session = &mut self.sessions[usize::from(role)];
        // Its pipeline begins there.
        let place = session.member.as_ref().map(|member| member.superblock.data_offset);
        if Some(self.keeper.view().candidate(&recovery.new, role)?.data_offset) != place {
            return Err(moved());
        }
        match recovery.origin {
            Origin::Command(command) => self.keeper.take_in(Some(command), &recovery.new, role)?,
            Origin::Spare => self.keeper.take_in(None, &recovery.new, role)?,
            Origin::Copied => self.keeper.take_in_copy(&recovery.new, role)?,
            Origin::Copy { .. } => return Err(moved()),
            Origin::Absent => {
                // If the keeper does not want it, that is for good.
                self.absents.forget(&recovery.new.device);
                self.keeper.member_returned(&recovery.new, role)?;
            }
        }
        session.id = Some(recovery.new.member);
        Ok(())
    }

    /// A recovery target is gone before it was a member: all is as before.
    pub(in crate::client) fn target_lost(&mut self, role: u16) {
        let Some(recovery) = self.recovery.take_if(|recovery| recovery.role == role) else {
            return;
        };
        let session = &mut self.sessions[usize::from(role)];
        match recovery.before {
            Some((member, id, due)) => {
                // Who was failed by the administrator stays away; who is to be tried again has his
                // turn next, however often others are tried in his place.
                (session.member, session.id, session.due) = (Some(member), id, due);
            }
            None => {
                (session.member, session.id, session.due) = (None, None, None);
                session.state = SessionState::Missing;
            }
        }
        let long = || Refusal::new("does not get ready", "");
        let Refusal { reason, next } = recovery.why.unwrap_or_else(long);
        let why = Refusal { reason, next: next.or("see the log of its node, try again") };
        if matches!(recovery.origin, Origin::Copy { .. }) {
            self.copy_ends(recovery.place);
        }
        let id = match recovery.origin {
            Origin::Command(id) | Origin::Copy { command: Some(id), .. } => id,
            Origin::Copy { old, .. } => return self.not_replaced(old, why),
            Origin::Copied => return,
            Origin::Absent => {
                let now = self.keeper.view().now();
                return self.absents.failed(&recovery.new.device, now);
            }
            Origin::Spare => return self.spare_fails(),
        };
        self.out.reply(id, Err(why));
    }

    /// A copy has ended before its end; nobody waits for it.
    fn not_replaced(&mut self, old: MemberId, why: Refusal) {
        self.keeper.end_copying(why.reason.clone());
        let Refusal { reason, next } = why;
        let event = ArrayEvent::NotReplaced { member: old, reason: reason.into(), next };
        self.out.notify(event);
    }

    /// Nobody waits for what was asked of a member that is gone.
    pub(in crate::client) fn nothing_asked_of(&mut self, member: MemberId) {
        if self.role_of(member).is_none_or(|role| !self.alive(role)) {
            self.keeper.nothing_asked(member);
        }
    }

    /// Members that were removed do not come back; and nobody comes while the array ends.
    pub(in crate::client) fn forget_removed(&mut self) {
        if !self.may_return()
            && let Some(role) = self.recovery.as_ref().map(|recovery| recovery.role)
        {
            self.target_hears(role, Refusal::new("the array changes no more", "see its state"));
            self.return_fails(role);
        }
        for role in 0..self.shared.params().nodes {
            let session = &mut self.sessions[usize::from(role)];
            if session.id.is_none_or(|id| self.keeper.view().knows(id)) || session.alive() {
                continue;
            }
            if matches!(session.state, SessionState::Returning(_)) {
                self.out.hang_up(session.peer);
                self.return_lost(role);
            }
            let session = &mut self.sessions[usize::from(role)];
            let member = session.member.take();
            (session.id, session.due, session.refused) = (None, None, None);
            session.state = SessionState::Missing;
            if let Some(member) = member {
                self.departs(member.address);
            }
        }
    }
}
