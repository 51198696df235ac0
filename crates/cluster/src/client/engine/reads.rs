//! Reads on their way to nodes. A client allocates the nodes' read slots itself; reads without a
//! free slot wait here.

use std::collections::VecDeque;

use braid_array::keeper::LaneReport;
use braid_array::{Instant, Role, SECTOR_BYTES};

use super::extent::{Extent, Piece, Whose};
use crate::client::latency::TimedOperation;
use crate::client::membership::Membership;
use crate::client::out::ClientOut;
use crate::client::session_key::SessionKey;
use crate::ids::Slot;
use crate::pipeline::Pipeline;
use crate::wire::Message;

/// The read slots of one node, and the reads that wait for one.
#[derive(Debug)]
struct Port {
    /// By slot: the read that uses it.
    slots: Vec<Option<Piece>>,
    free: Vec<Slot>,
    queue: VecDeque<Piece>,
}

/// The read slots of all nodes, by role; those of the copy target come last.
#[derive(Debug)]
pub(in crate::client) struct ReadSlots {
    ports: Vec<Port>,
    nodes: u16,
    slots: u16,
}

impl ReadSlots {
    pub(in crate::client) fn new(nodes: u16, slots: u16) -> Self {
        let port = |_| Port {
            slots: (0..slots).map(|_| None).collect(),
            free: Slot::all(slots).rev().collect(),
            queue: VecDeque::new(),
        };
        Self { ports: (0..=nodes).map(port).collect(), nodes, slots }
    }

    fn port(&self, key: impl Into<SessionKey>) -> &Port {
        &self.ports[key.into().index(self.nodes)]
    }

    fn port_mut(&mut self, key: impl Into<SessionKey>) -> &mut Port {
        &mut self.ports[key.into().index(self.nodes)]
    }

    pub(super) fn queue(&mut self, piece: Piece) {
        self.port_mut(piece.cell.node).queue.push_back(piece);
    }

    /// Reads on their way to a node, or waiting.
    pub(super) fn load(&self, role: Role) -> usize {
        let port = self.port(role);
        port.queue.len() + port.slots.len() - port.free.len()
    }

    /// Returns whether a slot from this one on is in use at any node.
    pub(super) fn any_from(&self, first: Slot) -> bool {
        self.ports.iter().any(|port| port.slots.iter().skip(first.index()).any(Option::is_some))
    }

    pub(super) fn nothing_waits(&self) -> bool {
        self.ports.iter().all(|port| port.queue.is_empty())
    }

    /// Slots in use at a node.
    pub(super) fn used(&self, role: Role) -> usize {
        self.port(role).slots.iter().flatten().count()
    }

    pub(super) fn is_counted(&self, role: Role) -> bool {
        let port = self.port(role);
        self.used(role) + port.free.len() == port.slots.len()
    }

    /// Uses a free slot below this one for a read that the caller sends.
    pub(super) fn occupy(
        &mut self,
        key: impl Into<SessionKey>,
        end: u16,
        piece: Piece,
    ) -> Option<Slot> {
        let port = self.port_mut(key);
        let at = port.free.iter().rposition(|&slot| slot.0 < end)?;
        let slot = port.free.swap_remove(at);
        port.slots[slot.index()] = Some(piece);
        Some(slot)
    }

    /// Sends the waiting reads that find a slot below this one. Returns whether any is left.
    pub(super) fn send(
        &mut self,
        end: u16,
        pipeline: &Pipeline,
        members: &Membership,
        now: Instant,
        out: &mut ClientOut,
    ) -> bool {
        let mut short = false;
        for role in Role::all(members.nodes()) {
            while let Some(piece) = self.port_mut(role).queue.pop_front() {
                let Some(slot) = self.occupy(role, end, piece) else {
                    self.port_mut(role).queue.push_front(piece);
                    short = true;
                    break;
                };
                let entry = members.entry(role);
                out.send(entry.peer, &message(pipeline, &piece, slot, entry.data_sector));
                out.report_of(members.id(role), LaneReport::Asked);
                out.latency.begin(role, TimedOperation::Read(slot), now);
            }
        }
        short
    }

    /// Frees the slot of an answered read; returns the read.
    pub(super) fn take(&mut self, key: SessionKey, slot: Slot) -> Option<Piece> {
        let port = self.port_mut(key);
        let piece = port.slots.get_mut(slot.index())?.take()?;
        port.free.push(slot);
        Some(piece)
    }

    /// Removes all reads that wait or are under way at a node that is gone.
    pub(super) fn drain(&mut self, role: Role) -> Vec<Piece> {
        let port = self.port_mut(role);
        let mut pieces: Vec<Piece> = port.queue.drain(..).collect();
        pieces.extend(port.slots.iter_mut().filter_map(Option::take));
        pieces
    }

    /// Frees all slots: a new connection has no read under way.
    pub(in crate::client) fn stands_anew(&mut self, key: impl Into<SessionKey>) {
        let slots = self.slots;
        let port = self.port_mut(key);
        port.slots.fill_with(|| None);
        port.free = Slot::all(slots).rev().collect();
    }

    /// Moves the port of the copy target to a role that it takes over.
    pub(in crate::client) fn exchange(&mut self, role: Role) {
        let target = SessionKey::CopyTarget.index(self.nodes);
        self.ports.swap(role.index(), target);
        let fresh = Self::new(0, self.slots).ports.remove(0);
        self.ports[target] = fresh;
    }

    /// Removes waiting reads of this kind; returns their number.
    pub(super) fn withdraw(&mut self, role: Role, which: impl Fn(Whose) -> bool) -> usize {
        let queue = &mut self.port_mut(role).queue;
        let before = queue.len();
        queue.retain(|piece| !which(piece.whose));
        before - queue.len()
    }

    /// Removes reads of this kind under way, whose answers are ignored; the slots stay in use.
    /// Returns their number.
    pub(super) fn abandon(&mut self, key: SessionKey, which: impl Fn(Whose) -> bool) -> usize {
        let slots = self.port_mut(key).slots.iter_mut();
        slots.filter_map(|slot| slot.take_if(|piece| which(piece.whose))).count()
    }
}

/// Builds the message that asks a node for a read.
fn message(pipeline: &Pipeline, piece: &Piece, slot: Slot, data_sector: u64) -> Message {
    let Extent { stripe, at, len, .. } = piece.extent;
    let sector = data_sector + pipeline.member_byte(stripe, piece.cell.row, at) / SECTOR_BYTES;
    let bytes = len;
    let to = piece.into.offset;
    match piece.whose {
        Whose::Digest(_) | Whose::ReadBack => Message::Digest { slot, sector, bytes, to },
        Whose::Copy { into, .. } => Message::Copy { slot, sector, bytes, into },
        _ => Message::Read { slot, sector, bytes, to },
    }
}
