//! What this node has granted, and the views that it was told of.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;

use braid_array::Refusal;
use braid_array::fabric::NoteOp;

use super::ids::{ArrayId, ClientId};
use super::out::Flight;
use super::{Node, STORAGE};
use crate::view::{View, Vote, slot_byte};
use crate::wire::{Leftover, Message};

/// How the notes of arrays end, after the array's id. No volume is called so.
pub const NOTE_ENDING: &str = ".vote";
/// Arrays that a node votes for at most.
const MAX_ARRAYS: usize = 4096;

/// What a client wants.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) client: ClientId,
    pub(super) tag: u32,
    pub(super) what: Want,
}

/// What an [`Ask`] is for.
#[derive(Clone, Debug)]
pub(super) enum Want {
    /// To be granted this epoch, as this client.
    Grant(u32, u64),
    /// To have this recorded.
    Record(View),
    /// To know how it stands.
    Read,
    /// To have all of it forgotten.
    Forget,
}

/// How far the vote file of an array is.
#[derive(Debug)]
enum File {
    /// It is being read.
    Loading,
    /// It says what the vote says.
    Idle,
    /// It is about to say this, for somebody.
    Writing(Box<(Vote, Ask)>),
    /// It is being removed, for somebody.
    Removing(Ask),
}

#[derive(Debug)]
struct Entry {
    vote: Vote,
    /// Of the newest slot.
    sequence: u64,
    /// There is a file.
    kept: bool,
    file: File,
    waiting: VecDeque<Ask>,
    /// The slice-sets that the last pipeline here has stored.
    leftovers: Vec<Leftover>,
    /// Who is granted an epoch when nothing of older clients is under way any more.
    granting: Option<(ClientId, u32)>,
}

/// The votes of this node, one entry for each array that was asked of: the vote as its file has it,
/// what is under way with the file, and the asks that wait.
///
/// ```text
/// Grant ── the vote file says so ── older clients' pipelines end ── their I/O is over ──► Granted
/// Record ── the vote file says so ──► Ok
/// Forget ── the vote file is gone for good ──► Ok
/// ```
/// One thing after the other for each array. [`Node::ask_vote`] begins; [`Node::vote_read`],
/// [`Node::vote_written`] and [`Node::vote_removed`] go on when the executor has answered.
#[derive(Debug, Default)]
pub(super) struct Votes {
    entries: BTreeMap<ArrayId, Entry>,
}

fn note_name(array: ArrayId) -> String {
    let mut name = String::new();
    for (index, byte) in array.iter().enumerate() {
        let dash = if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
        let _ = write!(name, "{dash}{byte:02x}");
    }
    name + NOTE_ENDING
}

/// The array whose note is called so, if it is one.
pub(super) fn array_of_note(name: &str) -> Option<ArrayId> {
    let digits: String = name.strip_suffix(NOTE_ENDING)?.split('-').collect();
    let number = u128::from_str_radix(&digits, 16).ok()?;
    Some(number.to_be_bytes()).filter(|&array| note_name(array) == name)
}

impl Votes {
    /// What the last pipeline of an array has stored here.
    pub(super) fn leftovers(&self, array: ArrayId) -> &[Leftover] {
        self.entries.get(&array).map_or(&[], |entry| &entry.leftovers)
    }

    /// A pipeline has ended, and this is what it has stored.
    pub(super) fn keep_leftovers(&mut self, array: ArrayId, leftovers: Vec<Leftover>) {
        if let Some(entry) = self.entries.get_mut(&array) {
            entry.leftovers = leftovers;
        }
    }
}

impl Node {
    /// A client wants something that the vote file has to say first.
    pub(super) fn ask_vote(&mut self, array: ArrayId, ask: Ask) {
        if let Some(entry) = self.votes.entries.get_mut(&array) {
            entry.waiting.push_back(ask);
            return self.work_votes(array);
        }
        if self.votes.entries.len() >= MAX_ARRAYS {
            let why = Refusal::new("the node votes for too many arrays", "use another node");
            return self.out.refuse(ask.client, ask.tag, why);
        }
        let entry = Entry {
            vote: Vote::default(),
            sequence: 0,
            kept: false,
            file: File::Loading,
            waiting: VecDeque::from([ask]),
            leftovers: Vec::new(),
            granting: None,
        };
        self.votes.entries.insert(array, entry);
        let op = NoteOp::Read { name: note_name(array) };
        self.out.note(Flight::VoteRead { array }, op);
    }

    /// The vote file is read; `None` when it cannot be.
    pub(super) fn vote_read(&mut self, array: ArrayId, bytes: Option<&[u8]>) {
        let Some(entry) = self.votes.entries.get_mut(&array) else { return };
        let Some(bytes) = bytes else {
            let waiting = std::mem::take(&mut entry.waiting);
            self.votes.entries.remove(&array);
            for ask in waiting {
                let why = Refusal::new("cannot read the vote file", STORAGE);
                self.out.refuse(ask.client, ask.tag, why);
            }
            return;
        };
        (entry.sequence, entry.vote) = Vote::newest(&array, bytes).unwrap_or_default();
        entry.kept = !bytes.is_empty();
        entry.file = File::Idle;
        self.work_votes(array);
    }

    /// Goes on with what waits, one after the other.
    fn work_votes(&mut self, array: ArrayId) {
        while let Some(entry) = self.votes.entries.get_mut(&array)
            && matches!(entry.file, File::Idle)
            && let Some(ask) = entry.waiting.pop_front()
        {
            let Some(client) = self.clients.get(&ask.client) else { continue };
            if !self.out.is_here(ask.client) {
                continue;
            }
            let mut vote = entry.vote.clone();
            match &ask.what {
                Want::Read => {
                    let (incarnation, node) = (self.incarnation, self.id);
                    let (tag, Vote { granted, view, .. }) = (ask.tag, vote);
                    let is_kept = entry.kept;
                    let is = Message::VoteIs { tag, granted, view, incarnation, node };
                    self.out.answer(ask.client, &is);
                    // Whoever asks of arrays that are none must not use up the room for others.
                    if !is_kept {
                        self.drop_vote(array);
                    }
                    continue;
                }
                Want::Forget => {
                    self.begin_forgetting(array, ask);
                    continue;
                }
                Want::Grant(epoch, client)
                    if *epoch > vote.granted || *epoch == vote.granted && *client == vote.to =>
                {
                    (vote.granted, vote.to) = (*epoch, *client);
                }
                Want::Record(view)
                    if client.vote == Some((array, view.epoch))
                        && view.epoch == vote.granted
                        && view.order() > vote.view.order() =>
                {
                    vote.view = view.clone();
                }
                _ => {
                    let (tag, granted) = (ask.tag, vote.granted);
                    self.out.answer(ask.client, &Message::Outvoted { tag, granted });
                    continue;
                }
            }
            let sequence = entry.sequence + 1;
            let op = NoteOp::Write {
                name: note_name(array),
                at: slot_byte(sequence),
                bytes: vote.encode(&array, sequence),
            };
            entry.file = File::Writing(Box::new((vote, ask)));
            self.out.note(Flight::VoteWrite { array }, op);
            if braid_array::broken("promise-durable") {
                return self.vote_written(array, true);
            }
        }
    }

    /// The vote file says what it should, or not.
    pub(super) fn vote_written(&mut self, array: ArrayId, ok: bool) {
        let Some(entry) = self.votes.entries.get_mut(&array) else { return };
        let File::Writing(writing) = std::mem::replace(&mut entry.file, File::Idle) else {
            return;
        };
        let (vote, Ask { client, tag, what }) = *writing;
        if !ok {
            self.out.refuse(client, tag, Refusal::new("cannot write the vote file", STORAGE));
            return self.work_votes(array);
        }
        entry.vote = vote;
        entry.sequence += 1;
        entry.kept = true;
        match what {
            Want::Record(_) | Want::Read | Want::Forget => self.out.confirm(client, tag),
            Want::Grant(epoch, _) => {
                entry.granting = Some((client, tag));
                if let Some(known) = self.clients.get_mut(&client) {
                    known.vote = Some((array, epoch));
                }
                if !braid_array::broken("epoch-refused") {
                    self.end_older(array, epoch, client);
                }
                self.go_on_granting();
            }
        }
        self.work_votes(array);
    }

    /// Removes the vote file, if nothing stands against it.
    fn begin_forgetting(&mut self, array: ArrayId, ask: Ask) {
        if let Some(why) = self.stands_against_forgetting(array, &ask) {
            self.out.refuse_busy(ask.client, ask.tag, why);
            return;
        }
        let Some(entry) = self.votes.entries.get_mut(&array) else { return };
        if entry.kept {
            entry.file = File::Removing(ask);
            let op = NoteOp::Remove { name: note_name(array) };
            return self.out.note(Flight::VoteRemove { array }, op);
        }
        let why = Refusal::new("the node has no vote of this array", "check the UUID");
        self.out.refuse(ask.client, ask.tag, why);
        self.drop_vote(array);
    }

    /// The vote file is gone for good, or not: then what it said still holds, as it may be there
    /// again when the node starts again.
    pub(super) fn vote_removed(&mut self, array: ArrayId, ok: bool) {
        let Some(entry) = self.votes.entries.get_mut(&array) else { return };
        let File::Removing(Ask { client, tag, .. }) =
            std::mem::replace(&mut entry.file, File::Idle)
        else {
            return;
        };
        if !ok {
            self.out.refuse(client, tag, Refusal::new("cannot remove the vote file", STORAGE));
            return self.work_votes(array);
        }
        self.drop_vote(array);
        self.note_forgotten(array);
        self.out.confirm(client, tag);
    }

    /// There is nothing to know of an array any more; who waits begins with that.
    fn drop_vote(&mut self, array: ArrayId) {
        let Some(entry) = self.votes.entries.remove(&array) else { return };
        for ask in entry.waiting {
            self.ask_vote(array, ask);
        }
    }

    /// Tells those who wait for older clients' last I/O that it is over.
    pub(super) fn go_on_granting(&mut self) {
        let mut over = Vec::new();
        for (array, entry) in &mut self.votes.entries {
            let Some((asks, tag)) = entry.granting else { continue };
            let granted = entry.vote.granted;
            let busy = self.clients.iter().any(|(&id, client)| {
                let older = client.vote.filter(|(of, _)| of == array);
                let older = older.is_some_and(|(_, epoch)| epoch <= granted) && id != asks;
                older && self.out.uses(id)
            });
            if !busy || braid_array::broken("epoch-refused") {
                entry.granting = None;
                over.push((asks, tag, entry.vote.view.clone()));
            }
        }
        for (client, tag, view) in over {
            let (incarnation, node) = (self.incarnation, self.id);
            self.out.answer(client, &Message::Granted { tag, view, incarnation, node });
        }
    }
}
