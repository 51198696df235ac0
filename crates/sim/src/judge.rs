//! The judge of an array: stamps the written data, knows the requests in flight, and compares read
//! data with the allowed contents.

use std::collections::BTreeMap;

use braid_array::{Buf, Request, RequestError, RequestId};

use crate::device_io::bytes_of;
use crate::oracle::{LogicalTime, Oracle, Range, WriteToken};
use crate::report::Failure;
use crate::stamp::{self, Serial, ZEROES};
use crate::workload::Kind;

/// A request that is not submitted yet. Its buffer holds the data to be written.
#[derive(Clone, Copy, Debug)]
pub struct Draft {
    /// The request for the machine.
    pub request: Request,
    /// Serial in the stamp of the write.
    pub serial: Serial,
    /// Kind of the request.
    pub kind: Kind,
    /// Sectors of the request.
    pub range: Range,
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
pub struct Flight {
    /// The request, as submitted.
    pub request: Request,
    /// Kind of the request.
    pub kind: Kind,
    /// Sectors of the request.
    pub range: Range,
    /// Time of its submission, unique among all requests.
    pub moment: LogicalTime,
    serial: Serial,
    /// Set if all copies were equal when it was submitted: the content read stays.
    equal: bool,
}

/// Allowed contents of one array, and the requests in flight of all its clients.
///
/// Order of calls: [`client_begins`](Self::client_begins); for each request [`draft`](Self::draft),
/// and, when the machine has taken it, [`submitted`](Self::submitted). When the machine answers,
/// [`answered`](Self::answered) returns the request, and the caller decides whether it may fail;
/// then [`conclude`](Self::conclude) judges it. [`client_ends`](Self::client_ends) ends a client
/// that answers nothing more: its unanswered writes may land until they are
/// [decided](Oracle::decided), when the next client serves. The `oracle` is told when memories are
/// lost, by a [power cut](Oracle::power_cut) or [since a moment](Oracle::lose_before).
/// [`content`](Self::content) judges bytes found anywhere else.
#[derive(Debug)]
pub struct Judge {
    /// Allowed contents of every sector.
    pub oracle: Oracle,
    /// Buffers for each request that a client may have in flight.
    buffers: usize,
    clients: BTreeMap<usize, Client>,
}

/// A client, as far as its requests go.
#[derive(Debug)]
struct Client {
    /// Its requests in flight, by number.
    slots: Vec<Option<Flight>>,
    /// Bytes of a request's buffer.
    slot_bytes: u64,
}

impl Judge {
    /// For an array of so many sectors of zeroes.
    pub fn new(sectors: u64) -> Self {
        Self { oracle: Oracle::new(sectors), buffers: 1, clients: BTreeMap::new() }
    }

    /// Blocks of 4 KiB are written as a whole, and found as a whole unless power was lost.
    pub fn of_whole_blocks(mut self) -> Self {
        self.oracle.whole_blocks = true;
        self
    }

    /// Clients have so many buffers for each request in flight: some may have to be given up.
    pub fn with_buffers(self, buffers: usize) -> Self {
        Self { buffers, ..self }
    }

    /// A client may have so many requests in flight, each of which has a buffer of so many bytes.
    pub fn client_begins(&mut self, client: usize, depth: usize, slot_bytes: u64) {
        self.client_ends(client);
        self.clients.insert(client, Client { slots: vec![None; depth], slot_bytes });
    }

    /// Ends a client. Its unanswered writes may land until their fate is decided.
    pub fn client_ends(&mut self, client: usize) {
        let slots = self.clients.remove(&client).map(|client| client.slots);
        for flight in slots.into_iter().flatten().flatten() {
            if flight.kind == Kind::Read {
                self.oracle.read_abandoned(flight.moment);
            }
        }
    }

    /// The number of a request that the client may submit.
    pub fn free_slot(&self, client: usize) -> Option<usize> {
        self.clients.get(&client)?.slots.iter().position(Option::is_none)
    }

    /// The requests of a client in flight.
    pub fn flights(&self, client: usize) -> impl Iterator<Item = &Flight> {
        self.clients.get(&client).into_iter().flat_map(|client| client.slots.iter().flatten())
    }

    /// Returns the number of the client's requests in flight.
    pub fn in_flight(&self, client: usize) -> usize {
        self.flights(client).count()
    }

    /// Returns whether a request of the client is in flight to any of these sectors.
    pub fn touches(&self, client: usize, range: Range) -> bool {
        self.flights(client).any(|flight| flight.range.overlaps(range))
    }

    /// Where a buffer of the client begins that neither a request has nor is `lent`.
    pub fn free_buffer(&self, client: usize, lent: impl Fn(Buf) -> bool) -> Option<u64> {
        let Client { slots, slot_bytes } = self.clients.get(&client)?;
        let len = *slot_bytes as u32;
        let mut offsets = (0..(slots.len() * self.buffers) as u64).map(|at| at * slot_bytes);
        let taken = |offset| self.flights(client).any(|flight| flight.request.buf.offset == offset);
        offsets.find(|&offset| !taken(offset) && !lent(Buf { offset, len }))
    }

    /// Drafts a request of a client, if it may submit another one, and has a buffer that is not
    /// `lent`. The data to be written are put there.
    pub fn draft(
        &mut self,
        client: usize,
        kind: Kind,
        range: Range,
        arena: &mut [u8],
        lent: impl Fn(Buf) -> bool,
    ) -> Option<Draft> {
        let slot = self.free_slot(client)?;
        let has_data = matches!(kind, Kind::Read | Kind::Write { .. });
        let len = if has_data { (range.sectors * 512) as u32 } else { 0 };
        let buf = Buf { offset: self.free_buffer(client, lent)?, len };
        let mut serial = ZEROES;
        if matches!(kind, Kind::Write { .. }) {
            serial = self.oracle.new_serial();
            stamp::fill(&mut arena[bytes_of(buf)], range.sector, serial);
        }
        let Range { sector, sectors } = range;
        let request = Request { id: RequestId(slot as u64), op: kind.op(), sector, sectors, buf };
        Some(Draft { request, serial, kind, range })
    }

    /// The machine has taken it. `equal`: all copies are known to be equal.
    pub fn submitted(&mut self, client: usize, draft: Draft, equal: bool) -> LogicalTime {
        let Draft { request, serial, kind, range } = draft;
        let moment = match kind {
            Kind::Read => self.oracle.read_submitted(),
            Kind::Write { .. } | Kind::Zeroes { .. } => {
                self.oracle.write_submitted(range, serial).submitted
            }
            Kind::Discard => self.oracle.discard_submitted(range).submitted,
            Kind::Flush => self.oracle.flush_submitted(),
        };
        let flight = Flight { request, kind, range, moment, serial, equal };
        self.keep(client, flight);
        moment
    }

    /// The request that a client has answered.
    pub fn answered(&mut self, client: usize, id: RequestId) -> Result<Flight, Failure> {
        let client = self.clients.get_mut(&client);
        let slot = client.and_then(|client| client.slots.get_mut(id.0 as usize));
        let flight = slot.and_then(Option::take);
        flight.ok_or_else(|| Failure(format!("request {} completed twice", id.0)))
    }

    /// An answered request is in flight again, with another buffer.
    pub fn resubmitted(&mut self, client: usize, flight: Flight, buf: Buf) {
        let request = Request { buf, ..flight.request };
        self.keep(client, Flight { request, ..flight });
    }

    fn keep(&mut self, client: usize, flight: Flight) {
        if let Some(client) = self.clients.get_mut(&client) {
            client.slots[flight.request.id.0 as usize] = Some(flight);
        }
    }

    /// Judges an answer. `read` are the bytes of a read, unless they may be old; where they are
    /// `excused` anything may be read.
    pub fn conclude(
        &mut self,
        flight: &Flight,
        result: Result<(), RequestError>,
        read: Option<Read<'_>>,
    ) -> Result<(), Failure> {
        let Flight { kind, range, moment, serial, .. } = *flight;
        match (kind, read) {
            (Kind::Read, Some(read)) if result.is_ok() => {
                let Read { bytes, stays, excused } = read;
                let stays = stays && flight.equal;
                let found = self.oracle.read_completed(moment, range.sector, bytes, stays, excused);
                return found.map_err(|bad| Failure(bad.to_string()));
            }
            (Kind::Read, _) => self.oracle.read_abandoned(moment),
            (Kind::Flush, _) if result.is_ok() => self.oracle.flush_completed(moment),
            (Kind::Flush, _) => {}
            _ => {
                let token = WriteToken { range, serial, submitted: moment };
                self.oracle.write_completed(token, result.is_ok(), kind.fua());
            }
        }
        Ok(())
    }

    /// Judges the content from this sector on, however it was read.
    pub fn content(
        &mut self,
        sector: u64,
        bytes: &[u8],
        excused: &dyn Fn(u64) -> bool,
    ) -> Result<(), Failure> {
        let moment = self.oracle.read_submitted();
        let found = self.oracle.read_completed(moment, sector, bytes, false, excused);
        found.map_err(|bad| Failure(bad.to_string()))
    }

    /// The moment, which all requests submitted so far come before.
    pub fn moment(&mut self) -> LogicalTime {
        self.oracle.flush_submitted()
    }

    /// All that was answered is durable.
    pub fn all_is_durable(&mut self) {
        let moment = self.oracle.flush_submitted();
        self.oracle.flush_completed(moment);
    }
}

/// Data that was read.
#[derive(Clone, Copy)]
pub struct Read<'a> {
    /// The bytes.
    pub bytes: &'a [u8],
    /// Set if the content must not change, where copies were equal.
    pub stays: bool,
    /// Sectors of which nothing is promised.
    pub excused: &'a dyn Fn(u64) -> bool,
}

/// Excuses no sector.
pub const fn nothing(_sector: u64) -> bool {
    false
}
