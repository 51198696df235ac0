//! Context that every state machine of the engine gets with each call.

use std::collections::VecDeque;

use braid_array::array::Scratch;
use braid_array::keeper::{Done, KeeperView, LaneReport, Redundancy, SyncSpace};
use braid_array::{
    Action, Buf, Instant, MemberId, Refusal, RequestError, RequestId, Role, SECTOR_BYTES,
};

use super::areas::Areas;
use super::extent::{Extent, Piece};
use super::pending::PendingSet;
use super::reads::ReadSlots;
use super::requests::Requests;
use super::space::Space;
use super::staging::Staging;
use crate::client::Key;
use crate::client::membership::{Membership, writes_over};
use crate::client::out::{ClientOut, RequestKind};
use crate::client::session_key::SessionKey;
use crate::ids::{Position, StripeNo};
use crate::pipeline::{Params, Pipeline};
use crate::set::Roles;
use crate::wire::Message;

/// Message from one state machine of the engine to another. The engine delivers it after the call.
#[derive(Debug)]
pub(super) enum Note {
    /// A block that a slice-set wanted back is there, or cannot be restored.
    Fetched { position: Position, result: Result<(), RequestError> },
    /// A read that waited for a slice-set to be stored.
    Read(Piece),
    /// A flush request waits until everything answered so far is durable.
    Flush(RequestId),
    /// A slice-set was stored by all nodes that have a part in it.
    Stored { key: Key, position: Position },
    /// A slice-set was aborted, or has more to do: it waits for a position again.
    Again { job: PendingSet, wide: bool },
    /// A slice-set of background work is over.
    WorkSetOver { key: Key, ok: bool },
    /// Background work on a slice is over.
    TaskOver { key: Key, done: Done },
    /// A slice is to be repaired: data blocks get this content, and all sums are made anew.
    Repair { key: Key, contents: Vec<(u32, Buf)> },
}

/// State shared by the machines of the engine: the pipeline, the slices of stripes in use, the
/// client's buffers, reads on their way to nodes, requests, and notes from one machine to another.
#[derive(Debug)]
pub(in crate::client) struct Shared {
    pub(in crate::client) pipeline: Pipeline,
    pub(in crate::client) space: Space,
    pub(super) staging: Staging,
    pub(super) areas: Areas,
    pub(in crate::client) reads: ReadSlots,
    pub(in crate::client) requests: Requests,
    pub(super) zeroes: Buf,
    /// Volumes have another length than this client knows: nothing may be stored any more.
    pub(in crate::client) at_rest: bool,
    pub(super) notes: VecDeque<Note>,
}

impl Shared {
    /// `long_bytes`: length from which a write counts as long.
    pub(in crate::client) fn new(
        pipeline: Pipeline,
        space: Space,
        scratch: Scratch,
        long_bytes: u64,
    ) -> Self {
        let params = *pipeline.params();
        let len = params.wide.bytes;
        let zeroes = Buf { offset: scratch.offset, len };
        let bytes = scratch.bytes.saturating_sub(len.into());
        let rest = Scratch { offset: scratch.offset + u64::from(len), bytes };
        Self {
            pipeline,
            space,
            staging: Staging::new(rest, len),
            areas: Areas::default(),
            reads: ReadSlots::new(params.nodes, params.reads.count),
            requests: Requests::new(long_bytes),
            zeroes,
            at_rest: false,
            notes: VecDeque::new(),
        }
    }

    /// The buffer that is to hold zeroes.
    pub(in crate::client) const fn zeroes(&self) -> Buf {
        self.zeroes
    }

    pub(in crate::client) fn params(&self) -> &Params {
        self.pipeline.params()
    }

    pub(super) const fn slice_bytes(&self) -> u32 {
        self.pipeline.params().wide.bytes
    }

    /// Length of this slice of a block: the last one may be shorter.
    pub(super) fn slice_len(&self, slice: u32) -> u32 {
        let start = slice * self.slice_bytes();
        (self.params().chunk_bytes - start).min(self.slice_bytes())
    }

    pub(super) fn key_of(&self, range: &Extent) -> Key {
        Key { stripe: range.stripe, slice: range.at / self.slice_bytes() }
    }

    /// All of a slice, in each block of its stripe.
    pub(super) fn whole_slice(&self, key: Key) -> Extent {
        let at = key.slice * self.slice_bytes();
        Extent { stripe: key.stripe, index: 0, at, len: self.slice_len(key.slice) }
    }

    /// The first part of a byte range of the array.
    pub(super) fn extent(&self, start: u64, end: u64) -> Extent {
        let chunk = u64::from(self.params().chunk_bytes);
        let slice = u64::from(self.slice_bytes());
        let block = start / chunk;
        let at = start % chunk;
        let data = u64::from(self.pipeline.data_blocks());
        let len = (slice - at % slice).min(chunk - at).min(end - start);
        Extent {
            stripe: StripeNo(block / data),
            index: (block % data) as u32,
            at: at as u32,
            len: len as u32,
        }
    }

    /// Where in the array this byte of a data block lies.
    pub(super) fn array_sector(&self, stripe: StripeNo, index: u32, at: u32) -> u64 {
        let block = stripe.0 * u64::from(self.pipeline.data_blocks()) + u64::from(index);
        (block * u64::from(self.params().chunk_bytes) + u64::from(at)) / SECTOR_BYTES
    }

    /// Returns whether the array has any redundancy.
    pub(in crate::client) fn redundant(&self) -> bool {
        self.space.redundancy() != Redundancy::None
    }
}

/// Context of one call of the engine: the members, the visible state of the keeper, the queues of
/// outgoing commands and of reports for the keeper, and the state that the machines share. The
/// keeper gets the reports after the call.
pub(in crate::client) struct Cx<'a> {
    pub(in crate::client) keeper: KeeperView<'a>,
    pub(in crate::client) members: &'a Membership,
    pub(in crate::client) out: &'a mut ClientOut,
    pub(in crate::client) shared: &'a mut Shared,
}

impl Cx<'_> {
    pub(super) fn now(&self) -> Instant {
        self.keeper.now()
    }

    pub(super) fn readable(&self, role: Role) -> bool {
        self.members.readable(self.keeper, role)
    }

    /// Returns the roles whose nodes are missing, lost, or not in sync.
    pub(super) fn lost(&self) -> Roles {
        Role::all(self.members.nodes()).filter(|&role| !self.readable(role)).collect()
    }

    /// Returns whether nothing may change any more.
    pub(super) fn writes_over(&self) -> bool {
        writes_over(self.keeper)
    }

    /// Returns whether a later client would learn of all losses, and of all blocks unknown to
    /// members.
    pub(super) fn losses_told(&self) -> bool {
        self.members.losses_told(self.keeper, self.out) && self.keeper.bad_blocks_told()
    }

    pub(super) fn send(&mut self, key: impl Into<SessionKey>, message: &Message) {
        self.out.send(self.members.entry(key).peer, message);
    }

    /// Sends a member a message that is answered with its tag.
    pub(in crate::client) fn request(
        &mut self,
        role: Role,
        kind: RequestKind,
        message: impl FnOnce(u32) -> Message,
    ) {
        self.owes(role);
        let peer = self.members.entry(role).peer;
        self.out.request((role.into(), peer), kind, self.keeper.now(), message);
    }

    /// Notes that a member owes an answer to a message without a tag.
    pub(super) fn owes(&mut self, role: Role) {
        self.report_of(role, LaneReport::Asked);
    }

    /// Notes that such an answer has arrived, or is no longer awaited.
    pub(super) fn answered(&mut self, key: impl Into<SessionKey>) {
        self.report_of(key, LaneReport::Answered);
    }

    /// Tells the keeper something.
    pub(in crate::client) fn report(&mut self, report: LaneReport) {
        self.out.report(report);
    }

    /// Tells the keeper something of the member of a role, if it has one.
    pub(in crate::client) fn report_of(
        &mut self,
        key: impl Into<SessionKey>,
        report: impl FnOnce(MemberId) -> LaneReport,
    ) {
        self.out.report_of(self.members.id(key), report);
    }

    pub(super) fn lose(&mut self, role: Role, why: Refusal) {
        self.out.lose(role, why);
    }

    pub(super) fn note(&mut self, note: Note) {
        self.shared.notes.push_back(note);
    }

    /// Ends a read of this slice.
    pub(super) fn reader_gone(&mut self, range: &Extent) {
        let key = self.shared.key_of(range);
        self.shared.areas.reader_gone(key);
    }

    /// Ends one part of a request.
    pub(super) fn part_over(&mut self, id: RequestId, result: Result<(), RequestError>) {
        let now = self.now();
        let Some((op, result)) = self.shared.requests.part_over(id, result, now) else { return };
        self.report(LaneReport::RequestOver(op));
        self.out.push(Action::Complete { id, result });
    }
}
