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
use braid_array::fabric::{FabricOp, PeerId};
use braid_array::format::{BadBlocks, Superblock, Version};
use braid_array::{Action, Refusal, SECTOR_BYTES};

use super::decision::Grant;
use super::refused::{ITS_STORE, is_other};
use super::setup::LinkState;
use super::step::Step;
use super::{BTreeSet, Client, Instant, Message, Phase, RequestKind};
use crate::assemble::SUPERBLOCK_SECTOR;
use crate::member::member_name;
use crate::wire::PeerAddress;

/// The first attempt comes so long after the loss, each further one later than that before.
const FIRST_MILLIS: u64 = 1_000;
const LAST_MILLIS: u64 = 10_000;
/// How long an attempt may take.
pub(super) const PATIENCE_MILLIS: u64 = 10_000;
/// Bytes of a superblock that are read.
pub(super) const SUPERBLOCK_BYTES: u32 = 4096;

/// How long to wait after so many attempts.
pub(super) fn pause_millis(tries: u32) -> u64 {
    FIRST_MILLIS.checked_shl(tries.min(10)).unwrap_or(LAST_MILLIS).min(LAST_MILLIS)
}

/// What makes one with a journal.
const NEW_VOLUME: &str = "remove it (`braid node delete`) and add the node again";

/// The nodes are being wired to one that comes back.
#[derive(Debug)]
pub(super) struct Wiring {
    role: u16,
    /// Nodes that have not answered.
    left: BTreeSet<u16>,
    ok: bool,
}

impl Client {
    /// The connection to a node was lost: it is tried again after a while.
    pub(super) fn await_return(&mut self, role: u16) {
        let now = self.keeper.now();
        let link = &mut self.links[usize::from(role)];
        link.due = Some(now.plus_millis(pause_millis(link.tries)));
        link.tries = (link.tries + 1).min(10);
        link.lost_at = self.version;
    }

    pub(super) fn may_return(&self) -> bool {
        let stays = self.writes_over() || self.keeper.is_read_only() || self.keeper.is_stopping();
        self.redundant() && !stays && matches!(self.phase, Phase::Running)
    }

    pub(super) fn return_deadline(&self) -> Option<Instant> {
        let may_return = self.may_return();
        let due = |link: &super::Link| match link.state {
            LinkState::Lost if may_return => link.due,
            LinkState::Returning(_) => link.due,
            _ => None,
        };
        self.links.iter().filter_map(due).min()
    }

    /// Begins with nodes whose time has come, and gives up what takes too long, also when nobody is
    /// to return any more.
    pub(super) fn return_tick(&mut self) {
        for role in 0..=self.beside() {
            let link = &self.links[usize::from(role)];
            if link.due.is_none_or(|due| due > self.keeper.now()) {
                continue;
            }
            match link.state {
                LinkState::Lost if self.may_return() => self.dial_again(role),
                LinkState::Returning(_) => self.return_fails(role),
                _ => {}
            }
        }
    }

    /// The number of the next connection.
    pub(super) fn new_peer(&mut self) -> PeerId {
        let peer = self.next_peer;
        self.next_peer = (peer + 1) % PeerId::FIRST_ACCEPTED;
        PeerId(peer)
    }

    pub(super) fn dial_again(&mut self, role: u16) {
        let until = self.keeper.now().plus_millis(PATIENCE_MILLIS);
        let peer = self.new_peer();
        let link = &mut self.links[usize::from(role)];
        let Some(member) = &link.member else { return };
        let address = member.address.clone();
        link.peer = peer;
        link.state = LinkState::Returning(Step::Connecting);
        link.due = Some(until);
        self.leave_if_visited(&address);
        self.actions.push_back(Action::Fabric(FabricOp::Connect { peer, address }));
    }

    /// Goes a step further with a node that comes back, by asking this of it.
    pub(super) fn return_step(
        &mut self,
        role: u16,
        step: Step,
        message: impl FnOnce(u32) -> Message,
    ) {
        self.links[usize::from(role)].state = LinkState::Returning(step);
        self.ask_uncounted(role, RequestKind::Return, message);
    }

    pub(super) fn return_connected(&mut self, role: u16) {
        let peer = self.links[usize::from(role)].peer;
        let admit = FabricOp::Admit { peer, window: 0..u64::MAX };
        self.actions.push_back(Action::Fabric(admit));
        if self.is_newcomer(role) {
            return self.ask_who_it_is(role);
        }
        self.return_grant(role);
    }

    pub(super) fn return_grant(&mut self, role: u16) {
        let grant = self.grant();
        self.return_step(role, Step::Granting, grant);
    }

    /// A node that comes back has granted what it had, or not.
    pub(super) fn return_granted(&mut self, role: u16, tag: u32, grant: Option<Grant>) {
        let granting = LinkState::Returning(Step::Granting);
        let asked = self.questions.remove(&tag).is_some_and(|(asked, _)| asked == role);
        let link = &self.links[usize::from(role)];
        let Some(grant) = grant.filter(|_| asked && link.state == granting) else {
            return self.return_fails(role);
        };
        if self.is_newcomer(role) {
            self.newcomer_granted(grant);
        } else {
            self.takeover.grants.insert(role, grant);
            self.takeover.voters_due = true;
        }
        self.links[usize::from(role)].state = LinkState::Returning(Step::Granted);
        self.drop_leftovers();
    }

    /// Has nodes that come back drop what they have of slice-sets, once no takeover may ask them
    /// for that: these went on without them.
    pub(super) fn drop_leftovers(&mut self) {
        for role in 0..=self.beside() {
            let granted = LinkState::Returning(Step::Granted);
            if self.links[usize::from(role)].state != granted {
                continue;
            }
            let grant = match self.is_newcomer(role) {
                true => self.newcomer.as_ref().and_then(super::newcomer::Newcomer::grant),
                false => self.takeover.grants.get(&role),
            };
            if grant.is_some_and(|grant| self.is_out(grant.incarnation)) {
                let settle = |tag| Message::ResolveLeftovers { tag, commit: Vec::new() };
                self.return_step(role, Step::Settling, settle);
            }
        }
    }

    pub(super) fn return_answered(
        &mut self,
        role: u16,
        step: Step,
        answer: Result<Option<u64>, Refusal>,
    ) {
        let newcomer = self.is_newcomer(role);
        let link = &mut self.links[usize::from(role)];
        match (step, answer) {
            (Step::Settling, Ok(_)) => {
                let Some(member) = &link.member else { return };
                let name = member.volume.clone();
                let message = |tag| Message::OpenVolume { tag, name, write: true };
                self.return_step(role, Step::Opening, message);
            }
            (Step::Opening, Ok(Some(bytes))) if newcomer => {
                self.newcomer_opened(role, bytes);
            }
            (Step::Opening, Ok(Some(bytes))) => {
                link.volume_bytes = bytes;
                self.look_at_returned(role);
            }
            (Step::Preparing, Ok(Some(ring))) => {
                link.ring = ring;
                if !self.journals.are_used() {
                    self.prepared_again(role);
                } else if self.journal_suffices(role) {
                    let message = self.empty_journal();
                    self.return_step(role, Step::Emptying, message);
                } else {
                    let reason = "its volume has no journal that is large enough";
                    self.refuse_return(role, Refusal::new(reason, NEW_VOLUME));
                }
            }
            (Step::Emptying, Ok(_)) => self.prepared_again(role),
            (Step::Wiring, answer) => self.rewired(role, answer.is_ok()),
            (Step::Flushing, Ok(_)) => self.begin_to_read_back(),
            (Step::Opening, Err(why)) if !newcomer => {
                self.refuse_return(role, Refusal::new(why.reason, ITS_STORE));
            }
            (_, Err(why)) => self.refuse_return(role, why),
            _ => self.return_fails(role),
        }
    }

    pub(super) fn look_at_returned(&mut self, role: u16) {
        let (sector, bytes) = (SUPERBLOCK_SECTOR, SUPERBLOCK_BYTES);
        let message = |tag| Message::ReadMeta { tag, sector, bytes };
        self.return_step(role, Step::Looking, message);
    }

    /// Is this the answer to what was asked of a node that comes back, to see what it is?
    pub(super) fn is_looked_at(&self, role: u16, tag: u32) -> bool {
        let looking = LinkState::Returning(Step::Looking);
        let asked = matches!(self.questions.get(&tag), Some((asked, _)) if *asked == role);
        asked && self.links[usize::from(role)].state == looking
    }

    /// What lies on the volume of a node that comes back.
    pub(super) fn return_looked(&mut self, role: u16, bytes: &[u8]) {
        let found = Superblock::decode(Version::V1_2, SUPERBLOCK_SECTOR, bytes);
        let link = &mut self.links[usize::from(role)];
        let Some(member) = &link.member else { return self.return_fails(role) };
        if let Some(why) = is_other(&member.superblock, &found) {
            return self.refuse_return(role, why);
        }
        link.returned = found.ok().map(Box::new);
        self.prepare_returned(role);
    }

    pub(super) fn prepare_returned(&mut self, role: u16) {
        let (params, data_sector) = (*self.params(), self.data_sector(role));
        let place = self.place_of(role);
        let message = |tag| Message::OpenPipeline { tag, role: place, data_sector, params };
        self.return_step(role, Step::Preparing, message);
    }

    fn prepared_again(&mut self, role: u16) {
        let version = self.version;
        let beside = self.beside();
        let link = &mut self.links[usize::from(role)];
        if role == beside {
            // It has no part in anything yet.
            link.lost_at = 0;
        } else if self.journals.are_used() {
            // Records that name its role are from before: none may be left.
            link.lost_at = version;
        }
        link.state = LinkState::Returning(Step::Prepared);
        self.wire_returned();
    }

    /// Wires the next node that is prepared, one after the other.
    pub(super) fn wire_returned(&mut self) {
        let prepared = LinkState::Returning(Step::Prepared);
        if self.wiring.is_some() {
            return;
        }
        // What was under way when it was lost must not reach it any more.
        let oldest = self.open.values().map(|open| open.set.version).min().unwrap_or(u64::MAX);
        let ready = |link: &super::Link| {
            let over = link.lost_at < oldest && self.journals.allow(link.lost_at);
            link.state == prepared && over
        };
        let role = self.links.iter().position(ready);
        let Some(role) = role.map(|role| role as u16) else { return };
        if role == self.beside() {
            return self.wire_beside(self.place_of(role));
        }
        let address = |(role, link): (u16, &super::Link)| {
            let address = link.member.as_ref()?.address.clone();
            Some(PeerAddress { role, address, ring: link.ring })
        };
        let all: Vec<PeerAddress> = (0..).zip(&self.links).filter_map(address).collect();
        let (own, others): (Vec<_>, Vec<_>) = all
            .into_iter()
            .filter(|peer| peer.role == role || self.alive(peer.role))
            .partition(|peer| peer.role == role);
        let left = others.iter().map(|other| other.role).chain([role]).collect();
        self.wires(role, left);
        for other in &others {
            let peers = own.clone();
            self.ask(other.role, RequestKind::Rewire, |tag| Message::Connect { tag, peers });
        }
        self.return_step(role, Step::Wiring, |tag| Message::Connect { tag, peers: others });
    }

    /// These are being wired to one that comes back.
    pub(super) fn wires(&mut self, role: u16, left: BTreeSet<u16>) {
        self.wiring = Some(Wiring { role, left, ok: true });
    }

    /// One of those that are being wired has answered, or is lost, or both.
    pub(super) fn rewired(&mut self, one: u16, ok: bool) {
        let Some(wiring) = &mut self.wiring else { return };
        wiring.ok &= ok;
        wiring.left.remove(&one);
        if !wiring.ok && !wiring.left.is_empty() {
            // The others need not wait for it.
            let role = wiring.role;
            self.others_without(role);
        }
        let Some(wiring) = self.wiring.take_if(|wiring| wiring.left.is_empty()) else { return };
        let stands = self.links[usize::from(wiring.role)].state;
        if stands == LinkState::Returning(Step::Wiring) {
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
        self.cut_off.retain(|&(a, b)| a != role && b != role);
        if self.is_newcomer(role) {
            return self.take_in(role);
        }
        let member_id = self.member_id(role);
        let link = &mut self.links[usize::from(role)];
        let (Some(member), Some(superblock)) = (&link.member, link.returned.take()) else { return };
        let new = NewMember {
            member: member_id,
            device: member_name(&member.address, &member.volume),
            device_sectors: link.volume_bytes / SECTOR_BYTES,
            device_uuid: superblock.device_uuid,
            superblock: Some(superblock),
            bad_blocks: BadBlocks::default(),
            readd: false,
        };
        link.state = LinkState::Ready;
        link.due = None;
        link.stands_anew();
        let known = braid_array::broken("reconnect") && self.keeper.is_in_sync(role);
        match if known { Ok(()) } else { self.keeper.member_returned(&new, role) } {
            Ok(()) => self.links[usize::from(role)].tries = 0,
            // It has a past of its own.
            Err(why) => {
                self.links[usize::from(role)].refused = Some(why.clone());
                let event = ArrayEvent::MemberRefused { member: member_id, why };
                self.actions.push_back(Action::Notify(event));
                self.hang_up_on(role);
            }
        }
        self.carry_out();
    }

    /// It did not come back this time.
    pub(super) fn return_fails(&mut self, role: u16) {
        let peer = self.links[usize::from(role)].peer;
        self.actions.push_back(Action::Fabric(FabricOp::HangUp { peer }));
        self.return_lost(role);
    }

    /// The connection to a node that was coming back is over.
    pub(super) fn return_lost(&mut self, role: u16) {
        let state = self.links[usize::from(role)].state;
        self.links[usize::from(role)].state = LinkState::Lost;
        self.questions.retain(|_, (asked, _)| *asked != role);
        self.await_return(role);
        self.newcomer_lost(role);
        if state == LinkState::Returning(Step::Wiring) {
            self.rewired(role, false);
        }
    }
}
