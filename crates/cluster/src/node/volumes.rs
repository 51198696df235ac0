//! The volumes that clients have open, and who waits for one.
//!
//! ```text
//! Opening ──► Open ── last user gone ──► Flushing ──► Closing ──► gone
//!              └───── DeleteVolume ─────────────────► Closing ──► gone
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use braid_array::fabric::{Volume, VolumeOp};
use braid_array::{IoOp, Refusal};

use super::Node;
use super::STORAGE;
use super::ids::ClientId;
use super::limit::not_its_own;
use super::out::Flight;
use crate::wire::Message;

/// A client that wants a volume.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub(super) client: ClientId,
    pub(super) tag: u32,
    pub(super) write: bool,
    /// A new one of this size.
    pub(super) create: Option<u64>,
}

#[derive(Debug)]
enum State {
    Opening(Ask),
    Open(Volume),
    Flushing(Volume),
    /// With the client and tag to answer when it was to be deleted.
    Closing(Option<(ClientId, u32)>),
}

#[derive(Debug)]
struct Entry {
    state: State,
    users: Vec<ClientId>,
    writer: Option<ClientId>,
    waiting: VecDeque<Ask>,
}

/// The volume a client has open.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) name: Arc<str>,
    pub(super) volume: Volume,
    pub(super) write: bool,
    /// This client made it.
    pub(super) made: bool,
}

/// A volume that is open, and not yet known to be of the client's array.
#[derive(Clone, Debug)]
pub(super) struct Looking {
    pub(super) name: Arc<str>,
    pub(super) volume: Volume,
    pub(super) ask: Ask,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Volumes {
    entries: BTreeMap<Arc<str>, Entry>,
}

fn in_use(name: &str) -> Refusal {
    Refusal::new(format!("volume {name} is in use by another client"), "stop that array first")
}

/// The next client of its array says what becomes of them. That of an array which the node has left
/// does so as soon as it reaches it; a node that starts again has forgotten them.
fn keeps_leftovers(name: &str) -> Refusal {
    let reason = format!("volume {name} holds writes that a client which is gone left unfinished");
    let next = "assemble its array; if the node is no member of it any more, start it again";
    Refusal::new(reason, next)
}

impl Volumes {
    /// None is open.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Does a client write to it?
    pub(super) fn is_written(&self, name: &str) -> bool {
        self.entries.get(name).is_some_and(|entry| entry.writer.is_some())
    }
}

impl Node {
    pub(super) fn ask_volume(&mut self, name: Arc<str>, ask: Ask) {
        let known = self.volumes.entries.get(&name);
        let writer = known.and_then(|entry| entry.writer).filter(|_| ask.write);
        let leaves = writer.is_some_and(|id| !self.out.is_here(id) && !self.is_orphan(id));
        if let Some(entry) = self.volumes.entries.get_mut(&name) {
            // Who writes may be gone, and only its last I/O is under way. What it left prepared
            // waits for another client, and nobody waits for that here.
            match &entry.state {
                State::Open(_) if !leaves || braid_array::broken("settled-before-serving") => {
                    self.decide(&name, ask, false)
                }
                _ => entry.waiting.push_back(ask),
            }
            return;
        }
        let owned = name.to_string();
        let op = match ask.create {
            Some(bytes) => VolumeOp::Create { name: owned, bytes },
            None => VolumeOp::Open { name: owned },
        };
        let (users, waiting) = (Vec::new(), VecDeque::new());
        let entry = Entry { state: State::Opening(ask), users, writer: None, waiting };
        self.volumes.entries.insert(Arc::clone(&name), entry);
        self.out.volume(name, op);
    }

    /// Whether a client gets a volume that is open, maybe because it asked for it.
    fn decide(&mut self, name: &Arc<str>, ask: Ask, opened_for_it: bool) {
        let Some(entry) = self.volumes.entries.get_mut(name) else { return };
        let State::Open(volume) = entry.state else { return };
        if !self.out.is_here(ask.client) {
            return;
        }
        let Some(client) = self.clients.get_mut(&ask.client) else { return };
        if client.limit.is_some() || client.search.is_some() {
            entry.users.push(ask.client);
            return self.look(name, ask, volume);
        }
        client.asking = false;
        self.give(name, ask, opened_for_it);
    }

    /// Whether a client gets a volume that is open, and that it may know of.
    pub(super) fn give(&mut self, name: &Arc<str>, ask: Ask, opened_for_it: bool) {
        let Some(entry) = self.volumes.entries.get_mut(name) else { return };
        let State::Open(volume) = entry.state else { return };
        let writer_here = entry.writer.is_some_and(|id| self.out.is_here(id));
        let Some(client) = self.clients.get_mut(&ask.client) else { return };
        let made = ask.create.is_some();
        if made && !opened_for_it {
            let why = Refusal::new(format!("volume {name} exists"), "choose another name");
            return self.out.refuse(ask.client, ask.tag, why);
        }
        let passed = braid_array::broken("settled-before-serving") && !writer_here;
        if let Some(writer) = entry.writer.filter(|_| ask.write && !passed) {
            let why = if self.is_orphan(writer) { keeps_leftovers(name) } else { in_use(name) };
            return self.out.refuse_busy(ask.client, ask.tag, why);
        }
        let held = Held { name: Arc::clone(name), volume, write: ask.write, made };
        if client.held.replace(held).is_none() {
            entry.users.push(ask.client);
        }
        if ask.write {
            entry.writer = Some(ask.client);
        }
        let writer = entry.writer.filter(|&writer| writer != ask.client);
        let used = writer.is_some_and(|writer| self.out.is_here(writer));
        let (tag, bytes, node) = (ask.tag, volume.bytes, self.id);
        self.out.answer(ask.client, &Message::Volume { tag, bytes, node, used });
    }

    /// The executor has carried an operation out.
    pub(super) fn volume_answered(&mut self, name: &Arc<str>, result: Result<Volume, Refusal>) {
        let Some(entry) = self.volumes.entries.get_mut(name) else { return };
        match (&entry.state, result) {
            (&State::Opening(ask), Ok(volume)) => {
                entry.state = State::Open(volume);
                self.decide(name, ask, true);
                self.admit_waiting(name);
                self.close_if_unused(name, ask.create.is_some());
            }
            (&State::Opening(ask), Err(mut why)) => {
                if let Some(client) = self.clients.get_mut(&ask.client) {
                    client.asking = false;
                    if let Some(array) = client.limit {
                        self.out.remark("volume", format!("volume {name}: {}", why.reason));
                        why = not_its_own(array, name);
                    }
                    if client.search.take().is_some() {
                        why.reason = format!("volume {name}: {}", why.reason);
                    }
                }
                self.out.refuse(ask.client, ask.tag, why);
                self.forget_volume(name);
            }
            (&State::Closing(asked), result) => {
                match (asked, result) {
                    (Some((client, tag)), Ok(_)) => self.out.confirm(client, tag),
                    (Some((client, tag)), Err(why)) => self.out.refuse(client, tag, why),
                    (None, Ok(_)) => {}
                    (None, Err(why)) => self.stop_trouble(why),
                }
                self.forget_volume(name);
            }
            (State::Open(_) | State::Flushing(_), _) => {}
        }
    }

    fn admit_waiting(&mut self, name: &Arc<str>) {
        let next = |entry: &mut Entry| match entry.state {
            State::Open(_) => entry.waiting.pop_front(),
            // They open it again when it is closed.
            _ => None,
        };
        while let Some(ask) = self.volumes.entries.get_mut(name).and_then(next) {
            self.decide(name, ask, false);
        }
    }

    /// It is closed; those who wait open it again.
    fn forget_volume(&mut self, name: &Arc<str>) {
        let Some(entry) = self.volumes.entries.remove(name) else { return };
        for ask in entry.waiting {
            if self.out.is_here(ask.client) {
                self.ask_volume(Arc::clone(name), ask);
            }
        }
    }

    /// Closes a volume that nobody uses; removes it when its maker left before it was there.
    fn close_if_unused(&mut self, name: &Arc<str>, made: bool) {
        let Some(entry) = self.volumes.entries.get_mut(name) else { return };
        let State::Open(volume) = entry.state else { return };
        if !entry.users.is_empty() {
            return;
        }
        if made {
            entry.state = State::Closing(None);
            self.out.volume(Arc::clone(name), VolumeOp::Delete { member: volume.member });
        } else {
            entry.state = State::Flushing(volume);
            let flight = Flight::LastFlush { volume: Arc::clone(name) };
            self.out.io(flight, volume.member, IoOp::Flush);
        }
    }

    /// The flush before the end is answered.
    pub(super) fn last_flush(&mut self, name: &Arc<str>, ok: bool) {
        if !ok {
            let reason = format!("volume {name} cannot be flushed");
            self.stop_trouble(Refusal::new(reason, STORAGE));
        }
        let Some(entry) = self.volumes.entries.get_mut(name) else { return };
        let State::Flushing(volume) = entry.state else { return };
        entry.state = State::Closing(None);
        self.out.volume(Arc::clone(name), VolumeOp::Close { member: volume.member });
    }

    /// A client needs its volume no more, and nothing of it is in flight.
    pub(super) fn release_volume(&mut self, name: &Arc<str>, client: ClientId) {
        let Some(entry) = self.volumes.entries.get_mut(name) else { return };
        entry.users.retain(|&user| user != client);
        entry.writer = entry.writer.filter(|&writer| writer != client);
        self.admit_waiting(name);
        self.close_if_unused(name, false);
    }

    /// A client knows whether the volume is its own: it is among the users if it has got it.
    pub(super) fn stop_looking(&mut self, name: &Arc<str>, client: ClientId) {
        let Some(entry) = self.volumes.entries.get_mut(name) else { return };
        if let Some(at) = entry.users.iter().position(|&user| user == client) {
            entry.users.remove(at);
        }
        self.close_if_unused(name, false);
    }

    /// Removes the volume that a client made, if it alone uses it.
    pub(super) fn delete_volume(&mut self, client: ClientId, tag: u32, held: &Held) {
        let Some(entry) = self.volumes.entries.get_mut(&held.name) else { return };
        if entry.users.len() > 1 {
            let why = Refusal::new("volume is in use by another client", "stop that one first");
            return self.out.refuse_busy(client, tag, why);
        }
        entry.users.clear();
        entry.writer = None;
        entry.state = State::Closing(Some((client, tag)));
        let op = VolumeOp::Delete { member: held.volume.member };
        self.out.volume(Arc::clone(&held.name), op);
        if let Some(client) = self.clients.get_mut(&client) {
            client.held = None;
        }
    }
}
