//! A member that is copied, and the node that is to take its place. Both have the same role in the
//! same pipeline, and a connection of their own: behind those to the other nodes. Contents go from
//! a slot for reads here to one there, and from that into the store when the client says where.

use braid_array::{Buf, IoOp, Refusal, SECTOR_BYTES};

use super::ids::{ClientId, Violation};
use super::out::{Flight, Out};
use super::pipe::{Link, Pipe};
use super::reads::within;
use super::slot::{ReadSlot, Take, Taking, Wanted};
use super::{Node, STORAGE};

impl Pipe {
    /// Among the neighbours: the other node of the same role.
    pub(super) const fn beside(&self) -> u16 {
        self.pipeline.params().nodes
    }

    /// Where among the neighbours a role is that the client names: its own is that of the other.
    pub(super) const fn neighbour(&self, role: u16) -> u16 {
        if role == self.role { self.beside() } else { role }
    }

    /// Is it connected to no node of another role?
    pub(super) fn is_unconnected(&self) -> bool {
        let others = self.neighbours.iter().take(usize::from(self.beside()));
        others.map(|other| other.link).all(|link| link == Link::Absent)
    }

    fn is_beside_another(&self) -> bool {
        matches!(self.neighbours[usize::from(self.beside())].link, Link::Up(_))
    }

    /// Puts what was read to the other node, into this slot there. False when it is not connected.
    pub(super) fn put_beside(&self, (slot, at): (u16, u16), from: Buf, out: &mut Out) -> bool {
        let other = &self.neighbours[usize::from(self.beside())];
        let (Link::Up(peer), Some((ring, _))) = (other.link, &other.told) else { return false };
        let to = ring.wrapping_add(self.pipeline.read_slot(self.role, at).offset);
        let flight = Flight::ReadPut { client: self.client, slot };
        out.put(flight, peer, from, to, at.into());
        true
    }

    /// The other node has put something here.
    fn taken(&mut self, imm: u32, out: &mut Out) -> Result<(), Violation> {
        let violation = Violation("a copy that nobody waits for");
        let slot = u16::try_from(imm).map_err(|_| violation)?;
        let taking = self.takes.get_mut(usize::from(slot)).ok_or(violation)?;
        match *taking {
            Taking::Nothing => *taking = Taking::Placed,
            Taking::Asked(take) => self.store_copy(take, out),
            Taking::Placed | Taking::Storing => return Err(violation),
        }
        Ok(())
    }

    /// The client says where what comes into a slot belongs. False when nothing will come.
    fn take(&mut self, take: Take, end_bytes: u64, out: &mut Out) -> Result<bool, Violation> {
        let violation = Violation("a copy that does not fit its slot");
        let fits = take.bytes > 0
            && take.bytes <= self.pipeline.params().reads.bytes
            && u64::from(take.bytes).is_multiple_of(SECTOR_BYTES)
            && within(take.sector, take.bytes, end_bytes);
        let free = self.reads.get(usize::from(take.slot)) == Some(&ReadSlot::Free);
        if !fits || !free || !self.write || !self.may_read_at(take.slot) {
            return Err(violation);
        }
        let connected = self.is_beside_another();
        match &mut self.takes[usize::from(take.slot)] {
            Taking::Placed => self.store_copy(take, out),
            Taking::Nothing if !connected => return Ok(false),
            taking @ Taking::Nothing => *taking = Taking::Asked(take),
            Taking::Asked(_) | Taking::Storing => return Err(violation),
        }
        Ok(true)
    }

    fn store_copy(&mut self, Take { tag, slot, sector, bytes }: Take, out: &mut Out) {
        self.takes[usize::from(slot)] = Taking::Storing;
        out.received_bytes += u64::from(bytes);
        let flight = Flight::Take { client: self.client, tag, slot };
        out.io(
            flight,
            self.member,
            IoOp::Write { sector, buf: self.read_buf(slot, bytes), fua: false },
        );
    }

    /// The other node is gone: what is read for it is put to nobody.
    fn orphan_copies(&mut self) {
        for slot in &mut self.reads {
            if let ReadSlot::Reading(ask) | ReadSlot::Queued(ask) = slot
                && matches!(ask.wanted, Wanted::Copy(_))
            {
                ask.wanted = Wanted::OrphanedCopy;
            }
        }
    }

    /// The other node is gone: what it did not put does not come. The tags of those who wait.
    fn nothing_taken(&mut self) -> Vec<u32> {
        let mut waiting = Vec::new();
        for taking in &mut self.takes {
            match *taking {
                Taking::Asked(take) => waiting.push(take.tag),
                Taking::Placed => {}
                Taking::Nothing | Taking::Storing => continue,
            }
            *taking = Taking::Nothing;
        }
        waiting
    }
}

impl Node {
    /// Is this neighbour of a client's pipeline the other node of its role?
    pub(super) fn is_beside(&self, id: ClientId, neighbour: u16) -> bool {
        let pipe = self.clients.get(&id).and_then(|client| client.pipe.as_ref());
        pipe.is_some_and(|pipe| pipe.beside() == neighbour)
    }

    /// That one has put something here.
    pub(super) fn taken(&mut self, id: ClientId, imm: u32) -> Result<(), Violation> {
        let pipe = self.clients.get_mut(&id).and_then(|client| client.pipe.as_mut());
        pipe.map_or(Ok(()), |pipe| pipe.taken(imm, &mut self.out))
    }

    pub(super) fn take(&mut self, id: ClientId, take: Take) -> Result<(), Violation> {
        let Some(client) = self.clients.get_mut(&id) else { return Ok(()) };
        let end_bytes = client.held.as_ref().map_or(0, |held| held.volume.bytes);
        let pipe = client.pipe.as_mut().ok_or(Violation("a copy before OpenPipeline"))?;
        if !pipe.take(take, end_bytes, &mut self.out)? {
            self.not_taken(id, take.tag);
        }
        Ok(())
    }

    fn not_taken(&mut self, id: ClientId, tag: u32) {
        let reason = "the node of the member that is copied is not connected";
        self.out.refuse(id, tag, Refusal::new(reason, "look at the network between the nodes"));
    }

    /// A connection of a pipeline is over, maybe that to the other node of its role.
    pub(super) fn beside_lost(&mut self, id: ClientId, neighbour: u16) {
        let pipe = self.clients.get_mut(&id).and_then(|client| client.pipe.as_mut());
        let Some(pipe) = pipe.filter(|pipe| pipe.beside() == neighbour) else { return };
        pipe.orphan_copies();
        pipe.nothing_taken().into_iter().for_each(|tag| self.not_taken(id, tag));
    }

    /// What was copied is in the store, or cannot be stored.
    pub(super) fn copy_stored(&mut self, id: ClientId, tag: u32, slot: u16, ok: bool) {
        if let Some(pipe) = self.clients.get_mut(&id).and_then(|client| client.pipe.as_mut()) {
            pipe.takes[usize::from(slot)] = Taking::Nothing;
        }
        if ok {
            self.out.confirm(id, tag);
        } else {
            self.out.refuse(id, tag, Refusal::new("the volume cannot be written", STORAGE));
        }
    }
}
