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
/// to it ([`copy_target`](super::copy_target)). It goes through the steps of a node that comes back (see
/// [`rejoin`](super::rejoin)), takes the role `place`, and is given all that belongs to that role.
/// When it is lost or refused, the connection of the role is that of the former member again, and
/// the command, if there is one, is refused.
#[derive(Debug)]
pub(in crate::client) struct Newcomer {
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

impl Newcomer {
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
        if self.newcomer.is_some() {
            return Err(Refusal::new("another node is being added", "wait for that, try again"));
        }
        self.begin_newcomer(Origin::Command(command), new, role)
    }

    /// May members come and go?
    pub(in crate::client) fn may_change(&self) -> Result<(), Refusal> {
        self.keeper.is_changeable()?;
        if !matches!(self.phase, Phase::Running) || self.keeper.is_stopping() {
            return Err(Refusal::new("the array is being started or stopped", "try again then"));
        }
        Ok(())
    }

    /// A member is missing, and another node is to have its role: nobody waits for the one that is
    /// being taken in by itself, nor for a copy.
    fn end_untold(&mut self) {
        let untold = |one: &&Newcomer| match one.origin {
            Origin::Absent | Origin::Spare | Origin::Copy { command: None, .. } => true,
            Origin::Command(_) | Origin::Copy { .. } | Origin::Copied => false,
        };
        if let Some(role) = self.newcomer.as_ref().filter(untold).map(|one| one.role) {
            self.newcomer_hears(role, Refusal::new("another member is missing", "begin again"));
            self.return_fails(role);
        }
    }

    /// Is a node being taken in, other than one to which a member is copied? The place of one that
    /// is missing goes before that.
    pub(in crate::client) fn is_taking_in(&self) -> bool {
        let copied = |one: &Newcomer| matches!(one.origin, Origin::Copy { command: None, .. });
        self.newcomer.as_ref().is_some_and(|one| !copied(one))
    }

    /// Begins to take a node in as the member of this role.
    pub(in crate::client) fn begin_newcomer(
        &mut self,
        origin: Origin,
        mut new: NewMember,
        role: u16,
    ) -> Result<(), Refusal> {
        let (address, volume) = member_parts(&new.device).ok_or_else(|| {
            let reason = format!("{} is on no node, and the array is over nodes", new.device);
            Refusal::new(reason, "add node://HOST:PORT/VOLUME")
        })?;
        new.member = self.keeper.id_for(&new.device).ok_or_else(moved)?;
        new.device_sectors = self.engine.journals.sectors_before(new.device_sectors);
        let superblock = self.keeper.candidate(&new, role)?;
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
        self.newcomer = Some(Newcomer { origin, new, role, place, before, grant, why });
        self.dial_again(role);
        Ok(())
    }

    /// The role that a node gets: that which it had, or else one whose member has been removed,
    /// then one whose member will not come back by itself.
    fn place_for(&self, new: &NewMember) -> Option<u16> {
        let own = new.superblock.as_deref().map(|superblock| superblock.role());
        let vacant = |role: &u16| self.keeper.is_vacant(*role) && !self.alive(*role);
        (0..self.shared.params().nodes).filter(vacant).min_by_key(|&role| {
            let session = &self.sessions[usize::from(role)];
            let had = own == Some(braid_array::format::Role::Active(role));
            (!had, session.member.is_some(), session.due.is_some())
        })
    }

    pub(in crate::client) fn is_newcomer(&self, role: u16) -> bool {
        self.newcomer.as_ref().is_some_and(|newcomer| newcomer.role == role)
    }

    /// Something stands against the node of this role, if it is a newcomer.
    pub(in crate::client) fn newcomer_hears(&mut self, role: u16, why: Refusal) {
        if let Some(newcomer) = self.newcomer.as_mut().filter(|newcomer| newcomer.role == role) {
            newcomer.why.get_or_insert(why);
        }
    }

    /// A newcomer is connected. Had it another member, a grant would end that one's connection.
    pub(in crate::client) fn ask_who_it_is(&mut self, role: u16) {
        self.return_step(role, Step::Asking, |tag| Message::Identify { tag });
    }

    /// It is this node.
    pub(in crate::client) fn newcomer_is(&mut self, role: u16, tag: u32, node: u64) {
        let asked = matches!(self.out.requests.remove(&tag), Some((asked, _)) if asked == role);
        let state = self.sessions[usize::from(role)].state;
        if !asked || state != SessionState::Returning(Step::Asking) {
            return self.out.violates(role, "it tells what was not asked");
        }
        let other = |other: u16| other != role && !self.keeper.is_vacant(other);
        if self.ownership.voters_on(node).any(other) {
            let next = "use a node of its own for each member";
            self.newcomer_hears(role, Refusal::new("is on the node of another member", next));
            return self.return_fails(role);
        }
        self.return_grant(role);
    }

    /// A newcomer has granted the array.
    pub(in crate::client) fn newcomer_granted(&mut self, grant: Grant) {
        if let Some(newcomer) = &mut self.newcomer {
            newcomer.grant = Some(grant);
        }
    }

    /// The volume of a newcomer is open, and has this size: is there a place for it?
    pub(in crate::client) fn newcomer_opened(&mut self, role: u16, bytes: u64) {
        let device_sectors = self.engine.journals.sectors_before(bytes / SECTOR_BYTES);
        let Some(newcomer) = &mut self.newcomer else { return };
        if matches!(newcomer.origin, Origin::Spare | Origin::Copy { .. }) {
            // Nobody was connected to it: it may be anything by now.
            return self.look_at_returned(role);
        }
        newcomer.new.device_sectors = device_sectors;
        let id = self.keeper.id_for(&newcomer.new.device).ok_or_else(moved);
        let candidate = id.and_then(|id| {
            newcomer.new.member = id;
            self.keeper.candidate(&newcomer.new, role)
        });
        match (candidate, &mut self.sessions[usize::from(role)].member) {
            (Ok(superblock), Some(member)) => {
                member.superblock = superblock;
                self.prepare_returned(role);
            }
            (candidate, _) => {
                newcomer.why = candidate.err();
                self.return_fails(role);
            }
        }
    }

    /// The role that the node of a connection has, or is to have.
    pub(in crate::client) fn place_of(&self, role: u16) -> u16 {
        let newcomer = self.newcomer.as_ref().filter(|newcomer| newcomer.role == role);
        newcomer.map_or(role, |newcomer| newcomer.place)
    }

    /// A newcomer is wired: the keeper has a member more.
    pub(in crate::client) fn take_in(&mut self, role: u16) {
        if role == self.copy_target() {
            return self.begin_copying();
        }
        if let Err(why) = self.try_take_in(role) {
            self.newcomer_hears(role, why);
            return self.return_fails(role);
        }
        let session = &mut self.sessions[usize::from(role)];
        session.tries = 0;
        session.stands_anew();
        self.shared.reads.stands_anew(role);
        let (grant, before) = match self.newcomer.take() {
            Some(newcomer) => (newcomer.grant, newcomer.before),
            None => (None, None),
        };
        self.ownership.has_granted(role, grant);
        if let Some((member, ..)) = before {
            self.departs(member.address);
        }
    }

    fn try_take_in(&mut self, role: u16) -> Result<(), Refusal> {
        let newcomer = self.newcomer.as_mut().ok_or_else(moved)?;
        let device = newcomer.new.device.as_str();
        let left = !self.keeper.spares().any(|spare| spare.device == device);
        if matches!(newcomer.origin, Origin::Spare | Origin::Copied) && left {
            return Err(moved());
        }
        newcomer.new.member = self.keeper.id_for(&newcomer.new.device).ok_or_else(moved)?;
        let session = &mut self.sessions[usize::from(role)];
        // Its pipeline begins there.
        let place = session.member.as_ref().map(|member| member.superblock.data_offset);
        if Some(self.keeper.candidate(&newcomer.new, role)?.data_offset) != place {
            return Err(moved());
        }
        match newcomer.origin {
            Origin::Command(command) => self.keeper.take_in(Some(command), &newcomer.new, role)?,
            Origin::Spare => self.keeper.take_in(None, &newcomer.new, role)?,
            Origin::Copied => self.keeper.take_in_copy(&newcomer.new, role)?,
            Origin::Copy { .. } => return Err(moved()),
            Origin::Absent => {
                // If the keeper does not want it, that is for good.
                self.absents.forget(&newcomer.new.device);
                self.keeper.member_returned(&newcomer.new, role)?;
            }
        }
        session.id = Some(newcomer.new.member);
        Ok(())
    }

    /// A newcomer is gone before it was a member: all is as before.
    pub(in crate::client) fn newcomer_lost(&mut self, role: u16) {
        let Some(newcomer) = self.newcomer.take_if(|newcomer| newcomer.role == role) else {
            return;
        };
        let session = &mut self.sessions[usize::from(role)];
        match newcomer.before {
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
        let Refusal { reason, next } = newcomer.why.unwrap_or_else(long);
        let why = Refusal { reason, next: next.or("see the log of its node, try again") };
        if matches!(newcomer.origin, Origin::Copy { .. }) {
            self.copy_ends(newcomer.place);
        }
        let id = match newcomer.origin {
            Origin::Command(id) | Origin::Copy { command: Some(id), .. } => id,
            Origin::Copy { old, .. } => return self.not_replaced(old, why),
            Origin::Copied => return,
            Origin::Absent => {
                let now = self.keeper.now();
                return self.absents.failed(&newcomer.new.device, now);
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
            && let Some(role) = self.newcomer.as_ref().map(|newcomer| newcomer.role)
        {
            self.newcomer_hears(role, Refusal::new("the array changes no more", "see its state"));
            self.return_fails(role);
        }
        for role in 0..self.shared.params().nodes {
            let session = &mut self.sessions[usize::from(role)];
            if session.id.is_none_or(|id| self.keeper.knows(id)) || session.alive() {
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
