//! Nodes that were lost and come back: found again without anybody's command.
//!
//! ```text
//!  Lost ─► Connecting ─► Granting ─► Settling ─► Opening ─► Looking ─► Preparing ─► Prepared
//!    ▲          └────────────┴───────────┴──────────┴──────────┴───────────┴──┐         ▼
//!    └── later, and later ────────────────────────────────────────────────────┴── Wiring ─► Ready
//! ```
//! It is told to drop what it has of slice-sets when no view that a later client may find has it
//! any more. The node has a new pipeline, to which the others are wired anew. Then the keeper takes
//! the member back, which has no part in anything before.

use braid_array::action::NewMember;
use braid_array::events::ArrayEvent;
use braid_array::format::{BadBlocks, Superblock, Version};
use braid_array::{Refusal, SECTOR_BYTES};

use super::refused::{ITS_STORE, is_other};
use super::setup::SessionState;
use super::step::Step;
use crate::assemble::SUPERBLOCK_SECTOR;
use crate::client::ownership::decision::Grant;
use crate::client::retry::{PATIENCE_MILLIS, pause_millis};
use crate::client::{BTreeSet, Client, Instant, Message, Phase, RequestKind};
use crate::member::member_name;
use crate::wire::PeerAddress;

/// Bytes of a superblock that are read.
pub(in crate::client) const SUPERBLOCK_BYTES: u32 = 4096;

/// What makes one with a journal.
const NEW_VOLUME: &str = "remove it (`braid node delete`) and add the node again";

/// The nodes are being wired to one that comes back.
#[derive(Debug)]
pub(in crate::client) struct Wiring {
    role: u16,
    /// Nodes that have not answered.
    left: BTreeSet<u16>,
    ok: bool,
}

impl Client {
    /// The connection to a node was lost: it is tried again after a while.
    pub(in crate::client) fn await_return(&mut self, role: u16) {
        let now = self.keeper.view().now();
        let session = &mut self.sessions[usize::from(role)];
        session.due = Some(now.plus_millis(pause_millis(session.tries)));
        session.tries = (session.tries + 1).min(10);
        session.lost_at = self.engine.sets.version();
    }

    pub(in crate::client) fn may_return(&self) -> bool {
        let stays = self.writes_over()
            || self.keeper.view().is_read_only()
            || self.keeper.view().is_stopping();
        self.shared.redundant() && !stays && matches!(self.phase, Phase::Running)
    }

    pub(in crate::client) fn return_deadline(&self) -> Option<Instant> {
        let may_return = self.may_return();
        let due = |session: &crate::client::Session| match session.state {
            SessionState::Lost if may_return => session.due,
            SessionState::Returning(_) => session.due,
            _ => None,
        };
        self.sessions.iter().filter_map(due).min()
    }

    /// Begins with nodes whose time has come, and gives up what takes too long, also when nobody is
    /// to return any more.
    pub(in crate::client) fn return_tick(&mut self) {
        for role in 0..=self.copy_target() {
            let session = &self.sessions[usize::from(role)];
            if session.due.is_none_or(|due| due > self.keeper.view().now()) {
                continue;
            }
            match session.state {
                SessionState::Lost if self.may_return() => self.dial_again(role),
                SessionState::Returning(_) => self.return_fails(role),
                _ => {}
            }
        }
    }

    pub(in crate::client) fn dial_again(&mut self, role: u16) {
        let Some(member) = &self.sessions[usize::from(role)].member else { return };
        let address = member.address.clone();
        let now = self.keeper.view().now();
        self.departed.close_if_visited(&address, &mut self.out, now);
        let peer = self.out.connect(address);
        let until = self.keeper.view().now().plus_millis(PATIENCE_MILLIS);
        let session = &mut self.sessions[usize::from(role)];
        session.peer = peer;
        session.state = SessionState::Returning(Step::Connecting);
        session.due = Some(until);
    }

    /// Goes a step further with a node that comes back, by asking this of it.
    pub(in crate::client) fn return_step(
        &mut self,
        role: u16,
        step: Step,
        message: impl FnOnce(u32) -> Message,
    ) {
        self.sessions[usize::from(role)].state = SessionState::Returning(step);
        self.request_of_stranger(role, RequestKind::Return, message);
    }

    pub(in crate::client) fn return_connected(&mut self, role: u16) {
        let peer = self.sessions[usize::from(role)].peer;
        self.out.admit(peer);
        if self.is_recovery_target(role) {
            return self.ask_who_it_is(role);
        }
        self.return_grant(role);
    }

    pub(in crate::client) fn return_grant(&mut self, role: u16) {
        let grant = self.ownership.grant(self.shared.params());
        self.return_step(role, Step::Granting, grant);
    }

    /// A node that comes back has granted what it had, or not.
    pub(in crate::client) fn return_granted(&mut self, role: u16, tag: u32, grant: Option<Grant>) {
        let granting = SessionState::Returning(Step::Granting);
        let asked = self.out.requests.remove(&tag).is_some_and(|(asked, _)| asked == role);
        let session = &self.sessions[usize::from(role)];
        let Some(grant) = grant.filter(|_| asked && session.state == granting) else {
            return self.return_fails(role);
        };
        if self.is_recovery_target(role) {
            self.target_granted(grant);
        } else {
            self.ownership.has_granted(role, Some(grant));
        }
        self.sessions[usize::from(role)].state = SessionState::Returning(Step::Granted);
        self.drop_leftovers();
    }

    /// Has nodes that come back drop what they have of slice-sets, once no takeover may ask them
    /// for that: these went on without them.
    pub(in crate::client) fn drop_leftovers(&mut self) {
        for role in 0..=self.copy_target() {
            let granted = SessionState::Returning(Step::Granted);
            if self.sessions[usize::from(role)].state != granted {
                continue;
            }
            let grant = if self.is_recovery_target(role) {
                self.recovery.as_ref().and_then(super::recovery::Recovery::grant)
            } else {
                self.ownership.grant_of(role)
            };
            let Some(incarnation) = grant.map(|grant| grant.incarnation) else { continue };
            if self.is_out(incarnation) {
                let resolve = |tag| Message::ResolveLeftovers { tag, commit: Vec::new() };
                self.return_step(role, Step::Settling, resolve);
            }
        }
    }

    pub(in crate::client) fn return_answered(
        &mut self,
        role: u16,
        step: Step,
        answer: Result<Option<u64>, Refusal>,
    ) {
        let recovery = self.is_recovery_target(role);
        let session = &mut self.sessions[usize::from(role)];
        match (step, answer) {
            (Step::Settling, Ok(_)) => {
                let Some(member) = &session.member else { return };
                let name = member.volume.clone();
                let message = |tag| Message::OpenVolume { tag, name, write: true };
                self.return_step(role, Step::Opening, message);
            }
            (Step::Opening, Ok(Some(bytes))) if recovery => {
                self.target_opened(role, bytes);
            }
            (Step::Opening, Ok(Some(bytes))) => {
                session.volume_bytes = bytes;
                self.look_at_returned(role);
            }
            (Step::Preparing, Ok(Some(ring))) => {
                session.ring = ring;
                if !self.engine.journals.are_used() {
                    self.prepared_again(role);
                } else if self.engine.journals.suffices(role) {
                    let message = self.engine.journals.empty(self.shared.params().epoch);
                    self.return_step(role, Step::Emptying, message);
                } else {
                    let reason = "its volume has no journal that is large enough";
                    self.refuse_return(role, Refusal::new(reason, NEW_VOLUME));
                }
            }
            (Step::Emptying, Ok(_)) => self.prepared_again(role),
            (Step::Wiring, answer) => self.rewired(role, answer.is_ok()),
            (Step::Flushing, Ok(_)) => self.begin_to_read_back(),
            (Step::Opening, Err(why)) if !recovery => {
                self.refuse_return(role, Refusal::new(why.reason, ITS_STORE));
            }
            (_, Err(why)) => self.refuse_return(role, why),
            _ => self.return_fails(role),
        }
    }

    pub(in crate::client) fn look_at_returned(&mut self, role: u16) {
        let (sector, bytes) = (SUPERBLOCK_SECTOR, SUPERBLOCK_BYTES);
        let message = |tag| Message::ReadMeta { tag, sector, bytes };
        self.return_step(role, Step::Looking, message);
    }

    /// Is this the answer to what was asked of a node that comes back, to see what it is?
    pub(in crate::client) fn is_looked_at(&self, role: u16, tag: u32) -> bool {
        let looking = SessionState::Returning(Step::Looking);
        let asked = matches!(self.out.requests.get(&tag), Some((asked, _)) if *asked == role);
        asked && self.sessions[usize::from(role)].state == looking
    }

    /// What lies on the volume of a node that comes back.
    pub(in crate::client) fn return_looked(&mut self, role: u16, bytes: &[u8]) {
        let found = Superblock::decode(Version::V1_2, SUPERBLOCK_SECTOR, bytes);
        let session = &mut self.sessions[usize::from(role)];
        let Some(member) = &session.member else { return self.return_fails(role) };
        if let Some(why) = is_other(&member.superblock, &found) {
            return self.refuse_return(role, why);
        }
        session.returned = found.ok().map(Box::new);
        self.prepare_returned(role);
    }

    pub(in crate::client) fn prepare_returned(&mut self, role: u16) {
        let (params, data_sector) = (*self.shared.params(), self.data_sector(role));
        let place = self.place_of(role);
        let message = |tag| Message::OpenPipeline { tag, role: place, data_sector, params };
        self.return_step(role, Step::Preparing, message);
    }

    fn prepared_again(&mut self, role: u16) {
        let version = self.engine.sets.version();
        let target = self.copy_target();
        let session = &mut self.sessions[usize::from(role)];
        if role == target {
            // It has no part in anything yet.
            session.lost_at = 0;
        } else if self.engine.journals.are_used() {
            // Records that name its role are from before: none may be left.
            session.lost_at = version;
        }
        session.state = SessionState::Returning(Step::Prepared);
        self.wire_returned();
    }

    /// Wires the next node that is prepared, one after the other.
    pub(in crate::client) fn wire_returned(&mut self) {
        let prepared = SessionState::Returning(Step::Prepared);
        if self.wiring.is_some() {
            return;
        }
        // What was under way when it was lost must not reach it any more.
        let oldest = self.engine.sets.oldest().unwrap_or(u64::MAX);
        let ready = |session: &crate::client::Session| {
            let over = session.lost_at < oldest && self.engine.journals.allow(session.lost_at);
            session.state == prepared && over
        };
        let role = self.sessions.iter().position(ready);
        let Some(role) = role.map(|role| role as u16) else { return };
        if role == self.copy_target() {
            return self.wire_copy_target(self.place_of(role));
        }
        let address = |(role, session): (u16, &crate::client::Session)| {
            let address = session.member.as_ref()?.address.clone();
            Some(PeerAddress { role, address, ring: session.ring })
        };
        let all: Vec<PeerAddress> = (0..).zip(&self.sessions).filter_map(address).collect();
        let (own, others): (Vec<_>, Vec<_>) = all
            .into_iter()
            .filter(|peer| peer.role == role || self.alive(peer.role))
            .partition(|peer| peer.role == role);
        let left = others.iter().map(|other| other.role).chain([role]).collect();
        self.wires(role, left);
        for other in &others {
            let peers = own.clone();
            self.request(other.role, RequestKind::Rewire, |tag| Message::Connect { tag, peers });
        }
        self.return_step(role, Step::Wiring, |tag| Message::Connect { tag, peers: others });
    }

    /// These are being wired to one that comes back.
    pub(in crate::client) fn wires(&mut self, role: u16, left: BTreeSet<u16>) {
        self.wiring = Some(Wiring { role, left, ok: true });
    }

    /// One of those that are being wired has answered, or is lost, or both.
    pub(in crate::client) fn rewired(&mut self, one: u16, ok: bool) {
        let Some(wiring) = &mut self.wiring else { return };
        wiring.ok &= ok;
        wiring.left.remove(&one);
        if !wiring.ok && !wiring.left.is_empty() {
            // The others need not wait for it.
            let role = wiring.role;
            self.others_without(role);
        }
        let Some(wiring) = self.wiring.take_if(|wiring| wiring.left.is_empty()) else { return };
        let stands = self.sessions[usize::from(wiring.role)].state;
        if stands == SessionState::Returning(Step::Wiring) {
            if wiring.ok && self.may_return() {
                self.take_back(wiring.role);
            } else {
                self.return_fails(wiring.role);
            }
        }
        self.wire_returned();
    }

    /// The node is wired: the keeper has the member again.
    fn take_back(&mut self, role: u16) {
        // Whoever was there before may have been complained about.
        self.engine.sets.is_connected(role);
        if self.is_recovery_target(role) {
            return self.take_in(role);
        }
        let member_id = self.member_id(role);
        let session = &mut self.sessions[usize::from(role)];
        let (Some(member), Some(superblock)) = (&session.member, session.returned.take()) else {
            return;
        };
        let new = NewMember {
            member: member_id,
            device: member_name(&member.address, &member.volume),
            device_sectors: session.volume_bytes / SECTOR_BYTES,
            device_uuid: superblock.device_uuid,
            superblock: Some(superblock),
            bad_blocks: BadBlocks::default(),
            readd: false,
        };
        session.stands_anew();
        self.shared.reads.stands_anew(role);
        let known = braid_array::broken("reconnect") && self.keeper.view().is_in_sync(role);
        match if known { Ok(()) } else { self.keeper.member_returned(&new, role) } {
            Ok(()) => self.sessions[usize::from(role)].tries = 0,
            // It has a past of its own.
            Err(why) => {
                self.sessions[usize::from(role)].refused = Some(why.clone());
                let event = ArrayEvent::MemberRefused { member: member_id, why };
                self.out.notify(event);
                self.hang_up_on(role);
            }
        }
    }

    /// It did not come back this time.
    pub(in crate::client) fn return_fails(&mut self, role: u16) {
        let peer = self.sessions[usize::from(role)].peer;
        self.out.hang_up(peer);
        self.return_lost(role);
    }

    /// The connection to a node that was coming back is over.
    pub(in crate::client) fn return_lost(&mut self, role: u16) {
        let state = self.sessions[usize::from(role)].state;
        self.sessions[usize::from(role)].state = SessionState::Lost;
        self.out.requests.retain(|_, (asked, _)| *asked != role);
        self.await_return(role);
        self.target_lost(role);
        if state == SessionState::Returning(Step::Wiring) {
            self.rewired(role, false);
        }
    }
}
