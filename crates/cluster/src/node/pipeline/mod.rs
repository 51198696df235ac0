//! The pipelines of clients, with the memory of their rings.

mod lease;
mod leftovers;
mod longer;
mod neighbours;
mod open_set;
mod part;
mod pipe;
mod reads;
mod resolving;
mod ring;
mod seat;
mod sets;
mod slot;

use std::collections::BTreeMap;

use braid_array::array::Scratch;
use braid_array::fabric::PeerId;
use braid_array::{Action, Refusal, Role, SECTOR_BYTES};

use self::lease::Returning;
pub(super) use self::leftovers::Resolved;
pub(super) use self::longer::LongerVolume;
pub(super) use self::pipe::Pipe;
use self::ring::Rings;
use self::seat::Seat;
pub(super) use self::slot::{ReadRequest, StoreCopied, WantedForm};
use super::RingUse;
use super::ids::{ArrayId, ClientId, Held, Violation};
use super::journal::{Bounds, Journal, Ready};
use super::out::NodeOut;
use crate::ids::Slot;
use crate::pipeline::{Params, Pipeline};
use crate::wire::{Leftover, Message};

/// Parameters of a pipeline that a client opens.
#[derive(Debug)]
pub(super) struct PipelineOpening {
    pub(super) client: ClientId,
    /// The connection to the client.
    pub(super) peer: PeerId,
    pub(super) tag: u32,
    /// The array that it was granted.
    pub(super) array: Option<ArrayId>,
    pub(super) role: Role,
    pub(super) data_sector: u64,
    pub(super) params: Params,
}

/// A pipeline, with the place and the memory of its journal.
type SetUp = (Pipe, Option<(Bounds, u64)>);

/// The pipelines, one at most of each client, and the memory that they use.
/// [`open`](Self::open) sets one up; then it is used by [`of`](Self::of), but where its ring or its
/// journal changes, which this type does. [`disconnect`](Self::disconnect) when its client is gone,
/// and [`close`](Self::close) when nothing of it is under way any more; between these, when it has
/// [leftovers](Self::has_leftovers), it [keeps](Self::keep_leftovers) these alone, and a next
/// client resolves them.
#[derive(Debug)]
pub(super) struct Pipes {
    pipes: BTreeMap<ClientId, Pipe>,
    by_session: BTreeMap<u64, ClientId>,
    rings: Rings,
}

impl Pipes {
    /// Creates an empty collection, with this space for rings.
    pub(super) const fn new(space: Scratch) -> Self {
        Self { pipes: BTreeMap::new(), by_session: BTreeMap::new(), rings: Rings::new(space) }
    }

    /// Limits the memory to less than the space.
    pub(super) const fn set_limit(&mut self, bytes: u64) {
        self.rings.set_limit(bytes);
    }

    pub(super) fn ring_use(&self) -> RingUse {
        RingUse { used_bytes: self.rings.used_bytes(), limit_bytes: self.rings.bytes() }
    }

    /// Returns the bytes that a client may use of its ring.
    pub(super) fn lease_bytes(&self, client: ClientId) -> u64 {
        self.pipes.get(&client).map_or(0, |pipe| pipe.lease.bytes(&pipe.seat))
    }

    pub(super) fn has(&self, client: ClientId) -> bool {
        self.pipes.contains_key(&client)
    }

    /// Returns the pipeline of a client.
    pub(super) fn of(&mut self, client: ClientId) -> Option<&mut Pipe> {
        self.pipes.get_mut(&client)
    }

    /// Returns the pipeline that a client must have opened; `early` is the violation otherwise.
    pub(super) fn opened(
        &mut self,
        client: ClientId,
        early: &'static str,
    ) -> Result<&mut Pipe, Violation> {
        self.pipes.get_mut(&client).ok_or(Violation(early))
    }

    /// Returns the pipeline of a client that is still there.
    pub(super) fn serving(&mut self, client: ClientId, out: &NodeOut) -> Option<&mut Pipe> {
        if !out.is_here(client) {
            return None;
        }
        self.pipes.get_mut(&client)
    }

    /// Returns whether all open slice-sets of clients that are still there wait for a decision.
    pub(super) fn are_idle(&self, out: &NodeOut) -> bool {
        let mut here = self.pipes.iter().filter(|(id, _)| out.is_here(**id));
        here.all(|(_, pipe)| pipe.sets.is_idle())
    }

    /// Checks the invariants that hold between two events.
    pub(super) fn check(&self, out: &NodeOut) -> Result<(), String> {
        let count = self.pipes.len();
        let rings = self.rings.count();
        let journals = self.pipes.values().filter(|pipe| pipe.journal.is_some()).count();
        let granted =
            |pipe: &Pipe| self.rings.granted(pipe.seat.ring) == Some(pipe.lease.bytes(&pipe.seat));
        if count + journals != rings || !self.pipes.values().all(granted) {
            return Err(format!("{count} pipelines, {rings} rings, or not as much of them"));
        }
        if count != self.by_session.len() {
            return Err(format!("{count} pipelines, {} sessions", self.by_session.len()));
        }
        let mut here = self.pipes.iter().filter(|(id, _)| out.is_here(**id));
        here.try_for_each(|(_, pipe)| pipe.check(out))
    }

    /// Sets a pipeline up on the client's volume. The answer is sent now, or when the content of
    /// the volume's journal is known.
    pub(super) fn open(&mut self, opening: PipelineOpening, held: &Held, out: &mut NodeOut) {
        let PipelineOpening { client, tag, .. } = opening;
        let session = opening.params.session;
        let (pipe, journal) = match self.set_up(opening, held) {
            Ok(set_up) => set_up,
            Err(why) => return out.refuse(client, tag, why),
        };
        out.admit(pipe.seat.peer, pipe.window());
        self.by_session.insert(session, client);
        out.raise_epoch(client, pipe.seat.epoch());
        let pipe = self.pipes.entry(client).or_insert(pipe);
        let Some((bounds, pages)) = journal else {
            return self.answer_open(client, tag, None, out);
        };
        pipe.journal = Journal::start(client, tag, &bounds, pages, out).map(Box::new);
    }

    fn set_up(&mut self, opening: PipelineOpening, held: &Held) -> Result<SetUp, Refusal> {
        let PipelineOpening { client, peer, array, role, data_sector, params, .. } = opening;
        if self.by_session.contains_key(&params.session) {
            return Err(Refusal::new(
                "a pipeline of this session is here already",
                "give every role another node and try again",
            ));
        }
        if role.0 >= params.nodes {
            let reason = format!("there is no role {role} of {} nodes", params.nodes);
            return Err(Refusal::new(reason, "use a lower"));
        }
        let pipeline = Pipeline::new(params)?;
        let volume_bytes = held.volume.bytes;
        let used = pipeline.member_bytes();
        let end = data_sector.checked_mul(SECTOR_BYTES).and_then(|start| start.checked_add(used));
        if end.is_none_or(|end| end > volume_bytes) {
            let name = &held.name;
            return Err(Refusal::new(
                format!(
                    "volume {name} of {volume_bytes} bytes is too small for its part of the array"
                ),
                "use the volume that the array was created on",
            ));
        }
        let bytes = pipeline.ring_bytes(role);
        let base = pipeline.base_bytes(role);
        let lean = self.rings.is_lean();
        let ring = self.rings.take(bytes, base).map_err(|free| {
            let bytes = if lean { base } else { bytes };
            Refusal::new(
                format!("a ring of {bytes} bytes is needed and {free} are free"),
                "start the node with a larger --ring",
            )
        })?;
        let seat = Seat {
            client,
            peer,
            array,
            role,
            write: held.write,
            member: held.volume.member,
            volume_bytes,
            data_sector,
            ring,
            pipeline,
        };
        let journal = match self.take_pages(&seat) {
            Ok(journal) => journal,
            Err(why) => {
                self.rings.release(ring);
                return Err(why);
            }
        };
        Ok((Pipe::new(seat, !lean), journal))
    }

    /// Takes memory for a journal, if the member may have one.
    fn take_pages(&mut self, seat: &Seat) -> Result<Option<(Bounds, u64)>, Refusal> {
        let Some(bounds) = bounds(seat) else { return Ok(None) };
        let Some(bytes) = bounds.page_bytes() else { return Ok(None) };
        let why = |_| Refusal::new("no memory is left for a journal", "start it with more --ring");
        let pages = self.rings.take(bytes, bytes).map_err(why)?;
        Ok(Some((bounds, pages)))
    }

    /// Answers `OpenPipeline`. Without a log there is no journal.
    fn answer_open(&mut self, client: ClientId, tag: u32, log: Option<u64>, out: &mut NodeOut) {
        let Some(pipe) = self.pipes.get_mut(&client) else { return };
        if log.is_none()
            && let Some(journal) = pipe.journal.take()
        {
            release_ring(&mut self.rings, journal.pages(), out);
        }
        let ready = Message::PipelineReady {
            tag,
            ring: pipe.seat.ring,
            journal_bytes: log.unwrap_or(0),
            parts_only: pipe.journal.as_ref().is_some_and(|journal| journal.parts_only()),
        };
        out.answer(client, &ready);
    }

    /// Records the slice-sets that are prepared by now.
    pub(super) fn drive_journals(&mut self, out: &mut NodeOut) {
        while let Some(client) = out.next_to_record() {
            if let Some(pipe) = self.serving(client, out) {
                pipe.drive_journal(out);
            }
        }
    }

    /// Applies `act` to the journal of a client that is still there, and drives the journal.
    pub(super) fn with_journal(
        &mut self,
        client: ClientId,
        out: &mut NodeOut,
        act: impl FnOnce(&mut Journal, &mut NodeOut) -> Option<Ready>,
    ) {
        let Some(pipe) = self.serving(client, out) else { return };
        let Some(journal) = pipe.journal.as_deref_mut() else { return };
        let ready = act(journal, out);
        pipe.drive_journal(out);
        if let Some(Ready { tag, log_bytes }) = ready {
            self.answer_open(client, tag, log_bytes, out);
        }
    }

    /// Handles a request of the client to its journal.
    pub(super) fn request_journal(
        &mut self,
        client: ClientId,
        message: &Message,
        out: &mut NodeOut,
    ) -> Result<(), Violation> {
        let pipe = self.pipes.get_mut(&client).filter(|pipe| !pipe.at_rest);
        let journal = pipe.and_then(|pipe| pipe.journal.as_mut());
        let journal = journal.ok_or(Violation("a request to a journal that is not there"))?;
        journal.request(message, out)
    }

    /// Assigns a node to the pipeline that it joins. Returns the client and the neighbour. A client
    /// of another array may know the session, but the node that it sends here names its own array,
    /// and is refused.
    pub(super) fn join(
        &mut self,
        session: u64,
        array: ArrayId,
        role: Role,
        peer: PeerId,
        out: &mut NodeOut,
    ) -> Result<(ClientId, Role), Violation> {
        let stranger = Violation("a node that no pipeline waits for");
        let client = *self.by_session.get(&session).ok_or(stranger)?;
        let pipe = self.serving(client, out).ok_or(stranger)?;
        let neighbour = pipe.join(array, role, peer, out).ok_or(stranger)?;
        Ok((client, neighbour))
    }

    /// Frees a slot whose content has left.
    pub(super) fn read_put(&mut self, client: ClientId, slot: Slot, out: &mut NodeOut) {
        if let Some(pipe) = self.serving(client, out) {
            pipe.read_put(slot, out);
            self.finish_return(client, out);
        }
    }

    /// Grants the client all of its ring, if there is memory.
    pub(super) fn lease_ring(
        &mut self,
        client: ClientId,
        tag: u32,
        out: &mut NodeOut,
    ) -> Result<(), Violation> {
        let pipe = self.pipes.get_mut(&client).filter(|pipe| pipe.lease.returning.is_none());
        let pipe = pipe.ok_or(Violation("a use of a ring that is not there"))?;
        if !pipe.lease.whole {
            if !self.rings.grant(pipe.seat.ring) {
                let why = Refusal::new("others use the ring memory", "use less for a while");
                out.refuse_busy(client, tag, why);
                return Ok(());
            }
            let base_end = pipe.window().end;
            pipe.lease.whole = true;
            out.push(Action::Use { range: base_end..pipe.window().end });
            admit_anew(pipe, out);
        }
        out.confirm(client, tag);
        Ok(())
    }

    /// Begins a return of memory by the client.
    pub(super) fn return_ring(
        &mut self,
        client: ClientId,
        tag: u32,
        all: bool,
        out: &mut NodeOut,
    ) -> Result<(), Violation> {
        let pipe = self.pipes.get_mut(&client);
        let pipe = pipe.ok_or(Violation("what is given back is in use"))?;
        pipe.begin_return(tag, all)?;
        self.finish_return(client, out);
        Ok(())
    }

    /// Takes returned memory back, once all content that was read there has left.
    fn finish_return(&mut self, client: ClientId, out: &mut NodeOut) {
        let Some(pipe) = self.pipes.get_mut(&client) else { return };
        let Some(Returning { tag, all }) = pipe.take_returned() else { return };
        if self.rings.is_lean() {
            let end = pipe.window().end;
            let was_whole = std::mem::take(&mut pipe.lease.whole);
            let base_end = pipe.window().end;
            self.rings.shrink(pipe.seat.ring);
            let start = if all { pipe.seat.ring } else { base_end };
            out.push(Action::GiveBack { range: start..end });
            if was_whole {
                admit_anew(pipe, out);
            }
        }
        out.confirm(client, tag);
    }

    /// Ends the connections of a lost client to other nodes. Returns these connections.
    pub(super) fn disconnect(&self, client: ClientId, out: &mut NodeOut) -> Vec<PeerId> {
        self.pipes.get(&client).map_or(Vec::new(), |pipe| pipe.neighbours.hang_up(out))
    }

    /// Ends a pipeline of which nothing is under way. If its client wrote, returns the array and
    /// the slice-sets that are stored here.
    pub(super) fn close(
        &mut self,
        client: ClientId,
        out: &mut NodeOut,
    ) -> Option<(ArrayId, Vec<Leftover>)> {
        let pipe = self.pipes.remove(&client)?;
        release_ring(&mut self.rings, pipe.seat.ring, out);
        if let Some(journal) = &pipe.journal {
            release_ring(&mut self.rings, journal.pages(), out);
        }
        self.by_session.remove(&pipe.seat.pipeline.params().session);
        Some((pipe.seat.written_array()?, pipe.leftovers()))
    }
}

/// Returns the possible place of a journal on the member of a pipeline that writes.
fn bounds(seat: &Seat) -> Option<Bounds> {
    let array = seat.written_array()?;
    let start = seat.data_sector * SECTOR_BYTES;
    let end = start + seat.pipeline.member_bytes();
    Some(Bounds {
        array,
        member: seat.member,
        data: (start, end),
        volume_bytes: seat.volume_bytes,
        positions: seat.pipeline.positions(),
        rows: seat.pipeline.rows(),
    })
}

/// Lets client and neighbours put into the part of the ring that may be used now.
fn admit_anew(pipe: &Pipe, out: &mut NodeOut) {
    for peer in pipe.neighbours.peers().chain([pipe.seat.peer]) {
        out.admit(peer, pipe.window());
    }
}

/// Releases a ring that is not used any more.
fn release_ring(rings: &mut Rings, offset: u64, out: &mut NodeOut) {
    let range = rings.release(offset);
    if rings.is_lean() {
        out.push(Action::GiveBack { range });
    }
}
