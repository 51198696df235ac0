//! Whether a client gets a volume, and when one is closed. A client whose key is limited to one
//! array gets volumes of that array alone, and a search for members of an array gets none.
//!
//! ```text
//! OpenVolume ─► open ── its superblock is read ─► of the array: as for everybody
//!                                              └► of none, or another: as if it were not there
//! ```
//! Until then the client keeps no other client out, except for one that would remove the volume.

use std::collections::VecDeque;
use std::sync::Arc;

use braid_array::fabric::{Volume, VolumeOp};
use braid_array::{IoOp, Refusal, SECTOR_BYTES};

use super::pages::PageRequest;
use super::{
    Looking, MetaOp, OpenRequest, VolumeCheck, VolumeEntry, VolumeEvent, VolumeState, Volumes,
};
use crate::assemble::SUPERBLOCK_SECTOR;
use crate::node::ids::{ArrayId, ClientId, Held, is_of, text_of};
use crate::node::out::{Flight, NodeOut};
use crate::wire::Message;

/// Bytes of a superblock that tell its array.
const LOOK_BYTES: u32 = 4096;

fn in_use(name: &str) -> Refusal {
    Refusal::new(format!("volume {name} is in use by another client"), "stop that array first")
}

/// Returns the refusal of a volume with leftovers. The next client of their array resolves these.
/// If the node has left the array, that array's client does so when it reaches the node. A
/// restarted node has forgotten them.
fn keeps_leftovers(name: &str) -> Refusal {
    let reason = format!("volume {name} holds writes that a client which is gone left unfinished");
    let next = "assemble its array; if the node is no member of it any more, start it again";
    Refusal::new(reason, next)
}

/// Returns the refusal of a volume of another array. A limited client does not even learn whether
/// such a volume exists.
pub(super) fn not_its_own(array: ArrayId, name: &str) -> Refusal {
    let array = text_of(array);
    let reason =
        format!("there is no volume {name} of array {array}, to which this key is limited");
    Refusal::new(reason, "name volumes of that array, or use the cluster key")
}

impl Volumes {
    /// Opens a volume, whose name is valid, for a client.
    pub(crate) fn open(&mut self, name: Arc<str>, request: OpenRequest, out: &mut NodeOut) {
        self.users.entry(request.client).or_default().asking = true;
        let Some(entry) = self.entries.get_mut(&name) else {
            let owned = name.to_string();
            let op = match request.create {
                Some(bytes) => VolumeOp::Create { name: owned, bytes },
                None => VolumeOp::Open { name: owned },
            };
            let entry = VolumeEntry {
                state: VolumeState::Opening(request),
                users: Vec::new(),
                writer: None,
                waiting: VecDeque::new(),
                lengthening: None,
            };
            self.entries.insert(Arc::clone(&name), entry);
            return out.volume(name, op);
        };
        // A writer may be gone, with only its last I/O under way. What it left prepared waits for
        // another client, and nobody waits for that here.
        let leaves = request.write
            && entry.writer.is_some_and(|id| {
                !out.is_here(id) && !self.users.get(&id).is_some_and(|user| user.leftovers)
            });
        let passed = braid_array::broken("resolved-before-serving");
        if entry.is_given_out() && (!leaves || passed) {
            self.decide(&name, request, false, out);
        } else {
            entry.waiting.push_back(request);
        }
    }

    /// Decides whether a client gets an open volume, which may have been opened for it.
    pub(super) fn decide(
        &mut self,
        name: &Arc<str>,
        request: OpenRequest,
        opened_for_it: bool,
        out: &mut NodeOut,
    ) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let VolumeState::Open(volume) = entry.state else { return };
        if !out.is_here(request.client) {
            return;
        }
        if let VolumeCheck::Nothing = request.check {
            return self.give(name, request, opened_for_it, out);
        }
        entry.users.push(request.client);
        self.look(name, request, volume, out);
    }

    /// Gives a client an open volume that it may know of, unless it wants to write and another
    /// client already does.
    fn give(
        &mut self,
        name: &Arc<str>,
        request: OpenRequest,
        opened_for_it: bool,
        out: &mut NodeOut,
    ) {
        let OpenRequest { client, tag, write, create, .. } = request;
        let user = self.users.entry(client).or_default();
        user.asking = false;
        let Some(entry) = self.entries.get_mut(name) else { return };
        let VolumeState::Open(volume) = entry.state else { return };
        let made = create.is_some();
        if made && !opened_for_it {
            let why = Refusal::new(format!("volume {name} exists"), "choose another name");
            return out.refuse(client, tag, why);
        }
        let writer_here = entry.writer.is_some_and(|id| out.is_here(id));
        let passed = braid_array::broken("resolved-before-serving") && !writer_here;
        if let Some(writer) = entry.writer
            && write
            && !passed
        {
            let leftovers = self.users.get(&writer).is_some_and(|user| user.leftovers);
            let why = if leftovers { keeps_leftovers(name) } else { in_use(name) };
            return out.refuse_busy(client, tag, why);
        }
        let held = Held { name: Arc::clone(name), volume, write, made };
        if user.held.replace(held).is_none() {
            entry.users.push(client);
        }
        if write {
            entry.writer = Some(client);
        }
        let used = writer_here && entry.writer != Some(client);
        let node = self.node;
        out.answer(client, &Message::Volume { tag, bytes: volume.bytes, node, used });
    }

    /// Reads the superblock of a volume for a client. The client counts as a user of the volume
    /// meanwhile, so that the volume stays open.
    fn look(&mut self, name: &Arc<str>, request: OpenRequest, volume: Volume, out: &mut NodeOut) {
        let OpenRequest { client, tag, .. } = request;
        let looking = Looking { name: Arc::clone(name), request };
        self.users.entry(client).or_default().looking = Some(looking);
        let end = SUPERBLOCK_SECTOR * SECTOR_BYTES + u64::from(LOOK_BYTES);
        if volume.bytes < end {
            return self.looked(client, Some(Vec::new()), out);
        }
        let request = PageRequest {
            client,
            tag,
            member: volume.member,
            sector: SUPERBLOCK_SECTOR,
            op: MetaOp::Look(LOOK_BYTES),
        };
        self.pages.request(request, out);
    }

    /// Takes the bytes at the place of a volume's superblock; `None` if they cannot be read.
    pub(super) fn looked(&mut self, client: ClientId, found: Option<Vec<u8>>, out: &mut NodeOut) {
        if !out.is_here(client) {
            return;
        }
        let Some(user) = self.users.get_mut(&client) else { return };
        let Some(Looking { name, request }) = user.looking.take() else { return };
        match request.check {
            VolumeCheck::Nothing => {}
            VolumeCheck::Search => {
                user.asking = false;
                let name = Arc::clone(&name);
                self.events.push_back(VolumeEvent::Searched { client, name, found });
            }
            VolumeCheck::IsOf(array) if found.is_some_and(|found| is_of(&array, &found)) => {
                self.give(&name, request, false, out);
            }
            VolumeCheck::IsOf(array) => {
                user.asking = false;
                out.refuse(client, request.tag, not_its_own(array, &name));
            }
        }
        // It is among the users once more if it has got the volume.
        let Some(entry) = self.entries.get_mut(&name) else { return };
        if let Some(at) = entry.users.iter().position(|&user| user == client) {
            entry.users.remove(at);
        }
        self.close_if_unused(&name, false, out);
    }

    /// Decides about the requests that wait for an open volume. If it is being closed, they open it
    /// again afterwards.
    pub(super) fn admit_waiting(&mut self, name: &Arc<str>, out: &mut NodeOut) {
        while let Some(entry) = self.entries.get_mut(name)
            && entry.is_given_out()
            && let Some(request) = entry.waiting.pop_front()
        {
            self.decide(name, request, false, out);
        }
    }

    /// Closes an unused volume. Deletes it instead if its maker left before it was there.
    pub(super) fn close_if_unused(&mut self, name: &Arc<str>, made: bool, out: &mut NodeOut) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let VolumeState::Open(volume) = entry.state else { return };
        if !entry.users.is_empty() || entry.lengthening.is_some() {
            return;
        }
        if made {
            entry.state = VolumeState::Closing(None);
            out.volume(Arc::clone(name), VolumeOp::Delete { member: volume.member });
        } else {
            entry.state = VolumeState::Flushing(volume);
            let flight = Flight::LastFlush { volume: Arc::clone(name) };
            out.io(flight, volume.member, IoOp::Flush);
        }
    }
}
