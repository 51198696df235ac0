//! Votes of this node: its grants, and the views that it was told of.

mod forget;

use std::collections::{BTreeMap, VecDeque};

use braid_array::Refusal;
use braid_array::fabric::NoteOp;

pub(super) use self::forget::{SearchStep, Searches};
use super::STORAGE;
use super::ids::{ArrayId, ClientId, text_of};
use super::notes::note_name;
use super::out::{Flight, NodeOut};
use crate::ids::{Epoch, NodeId};
use crate::view::{View, Vote, slot_byte};
use crate::wire::{Leftover, Message};

/// Arrays that a node votes for at most.
const MAX_ARRAYS: usize = 4096;

/// A request that the vote file of an array has to answer.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) client: ClientId,
    pub(super) tag: u32,
    pub(super) want: RequestPurpose,
}

/// Purpose of a [`Request`].
#[derive(Clone, Debug)]
pub(super) enum RequestPurpose {
    /// To be granted this epoch, as this client.
    Grant { epoch: Epoch, to: u64 },
    /// To have this view stored.
    Store(View),
    /// To know the vote.
    Read,
    /// To have the vote forgotten.
    Forget,
}

/// An array that a client was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    pub(super) array: ArrayId,
    pub(super) epoch: Epoch,
}

/// Event that the node handles before the votes continue.
#[derive(Debug)]
pub(super) enum VoteEvent {
    /// A client was granted an array: older clients of the array are to be ended.
    Granted { client: ClientId, grant: Grant },
    /// A client has searched the volumes, and the vote is to be forgotten.
    Forget(Request),
}

/// State of the vote file of an array.
#[derive(Debug)]
enum File {
    /// The file is being read.
    Loading,
    /// The file agrees with the vote.
    Idle,
    /// This vote is being written, for a request.
    Writing(Box<(Vote, Request)>),
    /// The file is being removed, for a request.
    Removing(Request),
}

#[derive(Debug)]
struct VoteEntry {
    vote: Vote,
    /// Sequence number of the newest slot.
    sequence: u64,
    /// A file exists.
    kept: bool,
    file: File,
    waiting: VecDeque<Request>,
    /// The slice-sets that the last pipeline here has stored.
    leftovers: Vec<Leftover>,
    /// The client and tag of a grant, until nothing of older clients is under way any more.
    granting: Option<(ClientId, u32)>,
}

/// The votes of this node, one entry for each array that was asked of: the vote as its file has it,
/// the operation under way on the file, and the requests that wait. Also holds the grant of each
/// client.
///
/// ```text
/// Grant ── the vote file says so ── older clients' pipelines end ── their I/O is over ──► Granted
/// StoreView ── the vote file says so ──► Ok
/// Forget ── the vote file is gone for good ──► Ok
/// ```
/// One thing after the other for each array. [`request`](Self::request) begins;
/// [`read`](Self::read), [`written`](Self::written) and [`removed`](Self::removed) go on when the
/// executor has answered.
/// After each of them [`run_ready`](Self::run_ready) is called until it returns nothing.
/// [`confirm_grants`](Self::confirm_grants) is called when a client's last I/O may be over, and
/// [`retire`](Self::retire) when it is gone.
#[derive(Debug)]
pub(super) struct Votes {
    node: NodeId,
    incarnation: u64,
    entries: BTreeMap<ArrayId, VoteEntry>,
    grants: BTreeMap<ClientId, Grant>,
}

impl Votes {
    pub(super) const fn new(node: NodeId, incarnation: u64) -> Self {
        Self { node, incarnation, entries: BTreeMap::new(), grants: BTreeMap::new() }
    }

    /// Returns the grant of a client.
    pub(super) fn grant_of(&self, client: ClientId) -> Option<Grant> {
        self.grants.get(&client).copied()
    }

    /// Returns the clients that were granted an array before a newer one. A client of the same
    /// epoch is the same client, before it lost this node.
    pub(super) fn older(&self, grant: Grant, newer: ClientId) -> impl Iterator<Item = ClientId> {
        let older = move |&(&id, of): &(&ClientId, &Grant)| {
            id != newer && of.array == grant.array && of.epoch <= grant.epoch
        };
        self.grants.iter().filter(older).map(|(&id, _)| id)
    }

    /// Forgets the grant of a client that is gone, and of which nothing is under way.
    pub(super) fn retire(&mut self, client: ClientId) {
        self.grants.remove(&client);
    }

    /// Returns the slice-sets that the last pipeline of an array has stored here.
    pub(super) fn leftovers(&self, array: ArrayId) -> &[Leftover] {
        self.entries.get(&array).map_or(&[], |entry| &entry.leftovers)
    }

    /// Keeps the slice-sets that an ended pipeline has stored.
    pub(super) fn keep_leftovers(&mut self, array: ArrayId, leftovers: Vec<Leftover>) {
        if let Some(entry) = self.entries.get_mut(&array) {
            entry.leftovers = leftovers;
        }
    }

    /// Queues a request that the vote file has to answer.
    pub(super) fn request(&mut self, array: ArrayId, request: Request, out: &mut NodeOut) {
        if let Some(entry) = self.entries.get_mut(&array) {
            return entry.waiting.push_back(request);
        }
        if self.entries.len() >= MAX_ARRAYS {
            let why = Refusal::new("the node votes for too many arrays", "use another node");
            return out.refuse(request.client, request.tag, why);
        }
        let entry = VoteEntry {
            vote: Vote::default(),
            sequence: 0,
            kept: false,
            file: File::Loading,
            waiting: VecDeque::from([request]),
            leftovers: Vec::new(),
            granting: None,
        };
        self.entries.insert(array, entry);
        let op = NoteOp::Read { name: note_name(array) };
        out.note(Flight::VoteRead { array }, op);
    }

    /// Takes the content of a vote file; `None` when it cannot be read.
    pub(super) fn read(&mut self, array: ArrayId, bytes: Option<&[u8]>, out: &mut NodeOut) {
        let Some(entry) = self.entries.get_mut(&array) else { return };
        if let Some(bytes) = bytes {
            (entry.sequence, entry.vote) = Vote::newest(&array, bytes).unwrap_or_default();
            entry.kept = !bytes.is_empty();
            entry.file = File::Idle;
            return;
        }
        let waiting = std::mem::take(&mut entry.waiting);
        self.entries.remove(&array);
        for Request { client, tag, .. } in waiting {
            out.refuse(client, tag, Refusal::new("cannot read the vote file", STORAGE));
        }
    }

    /// Answers the waiting requests, one after the other, until the file is busy, none waits, or
    /// the node has to handle an event first.
    pub(super) fn run_ready(&mut self, array: ArrayId, out: &mut NodeOut) -> Option<VoteEvent> {
        loop {
            let entry = self.entries.get_mut(&array)?;
            if !matches!(entry.file, File::Idle) {
                return None;
            }
            let request = entry.waiting.pop_front()?;
            let Request { client, tag, .. } = request;
            if !out.is_here(client) {
                continue;
            }
            match &request.want {
                RequestPurpose::Read => self.tell(array, client, tag, out),
                RequestPurpose::Forget => return Some(VoteEvent::Forget(request)),
                RequestPurpose::Grant { .. } | RequestPurpose::Store(_) => {
                    let Some(vote) = changed(array, entry, &request, self.grants.get(&client))
                    else {
                        out.answer(client, &Message::Outvoted { tag, granted: entry.vote.granted });
                        continue;
                    };
                    let sequence = entry.sequence + 1;
                    let op = NoteOp::Write {
                        name: note_name(array),
                        at: slot_byte(sequence),
                        bytes: vote.encode(&array, sequence),
                    };
                    entry.file = File::Writing(Box::new((vote, request)));
                    out.note(Flight::VoteWrite { array }, op);
                    if braid_array::broken("promise-durable")
                        && let Some(event) = self.written(array, true, out)
                    {
                        return Some(event);
                    }
                }
            }
        }
    }

    /// Answers with the vote.
    fn tell(&mut self, array: ArrayId, client: ClientId, tag: u32, out: &mut NodeOut) {
        let Some(entry) = self.entries.get(&array) else { return };
        let vote = Message::VoteIs {
            tag,
            granted: entry.vote.granted,
            view: entry.vote.view.clone().unwrap_or_default(),
            incarnation: self.incarnation,
            node: self.node,
        };
        out.answer(client, &vote);
        // A client that asks of arrays that do not exist must not use up the room for others.
        if !entry.kept {
            self.remove(array, out);
        }
    }

    /// Handles a finished write of the vote file.
    pub(super) fn written(
        &mut self,
        array: ArrayId,
        ok: bool,
        out: &mut NodeOut,
    ) -> Option<VoteEvent> {
        let entry = self.entries.get_mut(&array)?;
        let File::Writing(writing) = std::mem::replace(&mut entry.file, File::Idle) else {
            return None;
        };
        let (vote, Request { client, tag, want }) = *writing;
        if !ok {
            out.refuse(client, tag, Refusal::new("cannot write the vote file", STORAGE));
            return None;
        }
        entry.vote = vote;
        entry.sequence += 1;
        entry.kept = true;
        let RequestPurpose::Grant { epoch, .. } = want else {
            out.confirm(client, tag);
            return None;
        };
        entry.granting = Some((client, tag));
        let grant = Grant { array, epoch };
        self.grants.insert(client, grant);
        Some(VoteEvent::Granted { client, grant })
    }

    /// Removes the vote file, if nothing stands against it.
    pub(super) fn forget(
        &mut self,
        array: ArrayId,
        request: Request,
        against: Option<Refusal>,
        out: &mut NodeOut,
    ) {
        let Request { client, tag, .. } = request;
        let against = against.or_else(|| {
            self.grants.values().any(|grant| grant.array == array).then(|| {
                let reason =
                    "a client has the array, or is gone and left something of it unfinished";
                let next = "stop the array first; if its client is gone, start the node again";
                Refusal::new(reason, next)
            })
        });
        if let Some(why) = against {
            return out.refuse_busy(client, tag, why);
        }
        let Some(entry) = self.entries.get_mut(&array) else { return };
        if entry.kept {
            entry.file = File::Removing(request);
            let op = NoteOp::Remove { name: note_name(array) };
            return out.note(Flight::VoteRemove { array }, op);
        }
        let why = Refusal::new("the node has no vote of this array", "check the UUID");
        out.refuse(client, tag, why);
        self.remove(array, out);
    }

    /// Handles a finished removal of the vote file. If it failed the vote still holds, as the file
    /// may be there again when the node restarts.
    pub(super) fn removed(&mut self, array: ArrayId, ok: bool, out: &mut NodeOut) {
        let Some(entry) = self.entries.get_mut(&array) else { return };
        let File::Removing(Request { client, tag, .. }) =
            std::mem::replace(&mut entry.file, File::Idle)
        else {
            return;
        };
        if !ok {
            return out.refuse(client, tag, Refusal::new("cannot remove the vote file", STORAGE));
        }
        self.remove(array, out);
        let text = format!("forgot its vote of array {}, as it was told to", text_of(array));
        out.remark("vote", text);
        out.confirm(client, tag);
    }

    /// Removes the entry of an array of which nothing is known any more; waiting requests begin
    /// anew.
    fn remove(&mut self, array: ArrayId, out: &mut NodeOut) {
        let Some(entry) = self.entries.remove(&array) else { return };
        for request in entry.waiting {
            self.request(array, request, out);
        }
    }

    /// Answers grants when older clients' last I/O is over.
    pub(super) fn confirm_grants(&mut self, out: &mut NodeOut) {
        for (&array, entry) in &mut self.entries {
            let Some((client, tag)) = entry.granting else { continue };
            let granted = entry.vote.granted;
            let busy = self.grants.iter().any(|(&id, of)| {
                of.array == array && of.epoch <= granted && id != client && out.uses(id)
            });
            if busy && !braid_array::broken("epoch-refused") {
                continue;
            }
            entry.granting = None;
            let granted = Message::Granted {
                tag,
                view: entry.vote.view.clone().unwrap_or_default(),
                incarnation: self.incarnation,
                node: self.node,
            };
            out.answer(client, &granted);
        }
    }
}

/// Returns the vote that a request asks for; `None` when the present vote is newer.
fn changed(
    array: ArrayId,
    entry: &VoteEntry,
    request: &Request,
    granted: Option<&Grant>,
) -> Option<Vote> {
    let mut vote = entry.vote.clone();
    match &request.want {
        &RequestPurpose::Grant { epoch, to }
            if epoch > vote.granted || epoch == vote.granted && to == vote.to =>
        {
            vote.granted = epoch;
            vote.to = to;
        }
        RequestPurpose::Store(view)
            if granted == Some(&Grant { array, epoch: view.epoch })
                && view.epoch == vote.granted
                && Some(view.order()) > vote.view.as_ref().map(View::order) =>
        {
            vote.view = Some(view.clone());
        }
        _ => return None,
    }
    Some(vote)
}
