//! How much of its ring a client may use: the base, or all. What it gives back is the executor's
//! again.

use braid_array::{Action, Refusal};

use super::ids::{ClientId, Violation};
use super::pipe::{Giving, Link, Pipe};
use super::slot::{ReadSlot, Taking};
use super::{Node, pipe_of};

impl Pipe {
    /// How much of the ring may be used.
    pub(super) fn granted_bytes(&self) -> u64 {
        match self.whole {
            true => self.pipeline.ring_bytes(self.role),
            false => self.pipeline.base_bytes(self.role),
        }
    }

    pub(super) fn may_use(&self, position: u16) -> bool {
        match self.giving {
            Some(Giving { all: true, .. }) => false,
            _ => self.whole || self.pipeline.base().contains(&position),
        }
    }

    pub(super) fn may_read_at(&self, slot: u16) -> bool {
        match self.giving {
            Some(Giving { all: true, .. }) => false,
            _ => self.whole || slot < self.pipeline.base_reads(),
        }
    }

    /// The slots for reads that are given back.
    fn given_reads(&self, all: bool) -> &[ReadSlot] {
        let first = if all { 0 } else { usize::from(self.pipeline.base_reads()) };
        &self.reads[first..]
    }

    /// Nothing goes on in what is given back, but that bytes read may still be leaving.
    fn may_give(&self, all: bool) -> bool {
        let gone = |position: u16| all || !self.pipeline.base().contains(&position);
        let leaving = |slot: &ReadSlot| matches!(slot, ReadSlot::Free | ReadSlot::Putting);
        self.giving.is_none()
            && !self.busy_positions().any(gone)
            && self.given_reads(all).iter().all(leaving)
            && self.takes.iter().all(|taking| *taking == Taking::Nothing)
    }
}

impl Node {
    /// The client wants to use all of its ring.
    pub(super) fn use_all(&mut self, id: ClientId, tag: u32) -> Result<(), Violation> {
        let pipe = self.clients.get_mut(&id).and_then(|client| client.pipe.as_mut());
        let pipe = pipe.filter(|pipe| pipe.giving.is_none());
        let pipe = pipe.ok_or(Violation("a use of a ring that is not there"))?;
        if !pipe.whole {
            if !self.rings.grant(pipe.ring) {
                let why = Refusal::new("others use the ring memory", "use less for a while");
                self.out.refuse_busy(id, tag, why);
                return Ok(());
            }
            let base_end = pipe.window().end;
            pipe.whole = true;
            self.out.push(Action::Use { range: base_end..pipe.window().end });
            self.admit_anew(id);
        }
        self.out.confirm(id, tag);
        Ok(())
    }

    /// The client gives memory back.
    pub(super) fn give_back(&mut self, id: ClientId, tag: u32, all: bool) -> Result<(), Violation> {
        let pipe = self.clients.get_mut(&id).and_then(|client| client.pipe.as_mut());
        let pipe = pipe.filter(|pipe| pipe.may_give(all));
        let pipe = pipe.ok_or(Violation("what is given back is in use"))?;
        pipe.giving = Some(Giving { tag, all });
        self.go_on_giving(id);
        Ok(())
    }

    /// Takes back what a client gives, once all that was read has left.
    pub(super) fn go_on_giving(&mut self, id: ClientId) {
        let lean = self.rings.is_lean();
        let Some(pipe) = pipe_of(&mut self.clients, &self.out, id) else { return };
        let Some(Giving { tag, all }) = pipe.giving else { return };
        if pipe.given_reads(all).iter().any(|slot| *slot != ReadSlot::Free) {
            return;
        }
        pipe.giving = None;
        if lean {
            let end = pipe.window().end;
            let was_whole = std::mem::take(&mut pipe.whole);
            let base_end = pipe.window().end;
            self.rings.shrink(pipe.ring);
            let start = if all { pipe.ring } else { base_end };
            self.out.push(Action::GiveBack { range: start..end });
            if was_whole {
                self.admit_anew(id);
            }
        }
        self.out.confirm(id, tag);
    }

    /// Client and neighbours may put as far as the ring may be used now.
    fn admit_anew(&mut self, id: ClientId) {
        let Some(pipe) = self.clients.get(&id).and_then(|client| client.pipe.as_ref()) else {
            return;
        };
        let ups = pipe.neighbours.iter().filter_map(|neighbour| match neighbour.link {
            Link::Up(peer) => Some(peer),
            _ => None,
        });
        for peer in ups.chain([pipe.peer]) {
            self.out.admit(peer, pipe.window());
        }
    }

    /// Nobody uses a ring any more.
    pub(super) fn give_ring(&mut self, offset: u64) {
        let range = self.rings.give(offset);
        if self.rings.is_lean() {
            self.out.push(Action::GiveBack { range });
        }
    }
}
