//! Requests of clients for their volumes, and answers of the executor.

use std::sync::Arc;

use braid_array::fabric::{Volume, VolumeOp};
use braid_array::{Buf, Refusal, SECTOR_BYTES};

use super::opening::not_its_own;
use super::pages::{MAX_META_BYTES, PageRequest};
use super::{Looking, MetaOp, VolumeCheck, VolumeEvent, VolumeState, Volumes};
use crate::node::STORAGE;
use crate::node::ids::{ClientId, Held, says_clean, within};
use crate::node::out::{Flight, NodeOut};
use crate::node::pipeline::LongerVolume;
use crate::wire::Message;

impl Volumes {
    /// Handles a finished operation on a volume.
    pub(crate) fn answered(
        &mut self,
        name: &Arc<str>,
        result: Result<Volume, Refusal>,
        out: &mut NodeOut,
    ) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        match (&entry.state, result) {
            (&VolumeState::Opening(request), Ok(volume)) => {
                entry.state = VolumeState::Open(volume);
                self.decide(name, request, true, out);
                self.admit_waiting(name, out);
                self.close_if_unused(name, request.create.is_some(), out);
            }
            (&VolumeState::Opening(request), Err(mut why)) => {
                let client = request.client;
                if let Some(user) = self.users.get_mut(&client) {
                    user.asking = false;
                    match request.check {
                        VolumeCheck::Nothing => {}
                        VolumeCheck::IsOf(array) => {
                            out.remark("volume", format!("volume {name}: {}", why.reason));
                            why = not_its_own(array, name);
                        }
                        VolumeCheck::Search => {
                            self.events.push_back(VolumeEvent::SearchFailed { client });
                            why.reason = format!("volume {name}: {}", why.reason);
                        }
                    }
                }
                out.refuse(client, request.tag, why);
                self.remove(name, out);
            }
            (&VolumeState::Closing(asked), result) => {
                match (asked, result) {
                    (Some((client, tag)), Ok(_)) => out.confirm(client, tag),
                    (Some((client, tag)), Err(why)) => out.refuse(client, tag, why),
                    (None, Ok(_)) => {}
                    (None, Err(why)) => self.events.push_back(VolumeEvent::Failed(why)),
                }
                self.remove(name, out);
            }
            (VolumeState::Open(_), result) => self.lengthened(name, result, out),
            (VolumeState::Flushing(_), _) => {}
        }
    }

    /// Gives a client's volume another length.
    pub(crate) fn lengthen(
        &mut self,
        client: ClientId,
        tag: u32,
        held: &Held,
        longer: LongerVolume,
        out: &mut NodeOut,
    ) {
        let Some(entry) = self.entries.get_mut(&held.name) else { return };
        entry.lengthening = Some((client, tag));
        let LongerVolume { kept_bytes, bytes, tail } = longer;
        let member = held.volume.member;
        let op = VolumeOp::Lengthen { member, kept_bytes, bytes, tail };
        out.volume(Arc::clone(&held.name), op);
    }

    /// Takes the new length of an open volume, or the refusal.
    fn lengthened(&mut self, name: &Arc<str>, result: Result<Volume, Refusal>, out: &mut NodeOut) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        let Some((client, tag)) = entry.lengthening.take() else { return };
        match result {
            Ok(volume) => {
                entry.state = VolumeState::Open(volume);
                let held = self.users.values_mut().filter_map(|user| user.held.as_mut());
                held.filter(|held| held.name == *name).for_each(|held| held.volume = volume);
                out.confirm(client, tag);
            }
            Err(why) => out.refuse(client, tag, why),
        }
        self.admit_waiting(name, out);
        self.close_if_unused(name, false, out);
    }

    /// Removes a closed volume; requests that wait open it again.
    fn remove(&mut self, name: &Arc<str>, out: &mut NodeOut) {
        let Some(entry) = self.entries.remove(name) else { return };
        for request in entry.waiting {
            if out.is_here(request.client) {
                self.open(Arc::clone(name), request, out);
            }
        }
    }

    /// Handles the answer of the last flush, and closes the volume.
    pub(crate) fn flushed(&mut self, name: &Arc<str>, ok: bool, out: &mut NodeOut) {
        if !ok {
            let reason = format!("volume {name} cannot be flushed");
            self.events.push_back(VolumeEvent::Failed(Refusal::new(reason, STORAGE)));
        }
        let Some(entry) = self.entries.get_mut(name) else { return };
        let VolumeState::Flushing(volume) = entry.state else { return };
        entry.state = VolumeState::Closing(None);
        out.volume(Arc::clone(name), VolumeOp::Close { member: volume.member });
    }

    /// Releases the volume of a client that needs it no more, and of which nothing is in flight.
    pub(crate) fn release(&mut self, client: ClientId, out: &mut NodeOut) {
        let Some(user) = self.users.remove(&client) else { return };
        let looking = user.looking.map(|Looking { name, .. }| name);
        let Some(name) = user.held.map(|held| held.name).or(looking) else { return };
        let Some(entry) = self.entries.get_mut(&name) else { return };
        entry.users.retain(|&user| user != client);
        entry.writer = entry.writer.filter(|&writer| writer != client);
        self.admit_waiting(&name, out);
        self.close_if_unused(&name, false, out);
    }

    /// Deletes a client's volume, if no other client uses it.
    pub(crate) fn delete(&mut self, client: ClientId, tag: u32, held: &Held, out: &mut NodeOut) {
        let Some(entry) = self.entries.get_mut(&held.name) else { return };
        if entry.users.len() > 1 {
            let why = Refusal::new("volume is in use by another client", "stop that one first");
            return out.refuse_busy(client, tag, why);
        }
        entry.users.clear();
        entry.writer = None;
        entry.state = VolumeState::Closing(Some((client, tag)));
        let op = VolumeOp::Delete { member: held.volume.member };
        out.volume(Arc::clone(&held.name), op);
        self.pages.forget(client);
        if let Some(user) = self.users.get_mut(&client) {
            user.held = None;
        }
    }

    /// Reads or writes a few bytes of a client's volume.
    pub(crate) fn request_meta(
        &mut self,
        client: ClientId,
        tag: u32,
        sector: u64,
        op: MetaOp,
        out: &mut NodeOut,
    ) {
        let Some(held) = self.held(client) else { return };
        let bytes = match &op {
            MetaOp::Read(bytes) | MetaOp::Look(bytes) => *bytes,
            MetaOp::Write(bytes) => u32::try_from(bytes.len()).unwrap_or(u32::MAX),
        };
        let whole =
            bytes > 0 && bytes <= MAX_META_BYTES && u64::from(bytes).is_multiple_of(SECTOR_BYTES);
        if !whole || !within(sector, bytes, held.volume.bytes) {
            let size = held.volume.bytes;
            let reason = format!(
                "{bytes} bytes at sector {sector} are no metadata of a volume of {size} bytes"
            );
            let why = Refusal::new(reason, "use up to 4096, whole sectors");
            return out.refuse(client, tag, why);
        }
        if matches!(op, MetaOp::Write(_)) && !held.write {
            let why = Refusal::new("the volume is open for reading", "open it for writing");
            return out.refuse(client, tag, why);
        }
        let member = held.volume.member;
        if let MetaOp::Write(bytes) = &op {
            self.note_superblock(client, bytes);
        }
        self.pages.request(PageRequest { client, tag, member, sector, op }, out);
    }

    /// Handles bytes that were read into a page, or cannot be.
    pub(crate) fn meta_read(&mut self, flight: &Flight, ok: bool, out: &mut NodeOut) {
        let &Flight::MetaRead { client, tag, page, bytes, look } = flight else { return };
        if ok && out.is_here(client) {
            return out.load(Flight::MetaLoad { client, tag, page, look }, page.slice(0, bytes));
        }
        if look {
            self.looked(client, None, out);
        } else {
            out.refuse(client, tag, Refusal::new("the volume cannot be read", STORAGE));
        }
        self.pages.release(page, out);
    }

    /// Takes bytes that were read into a page: for the request with this tag, or for a look.
    pub(crate) fn meta_loaded(
        &mut self,
        client: ClientId,
        tag: Option<u32>,
        page: Buf,
        bytes: Vec<u8>,
        out: &mut NodeOut,
    ) {
        match tag {
            Some(tag) => {
                self.note_superblock(client, &bytes);
                out.answer(client, &Message::Meta { tag, bytes });
            }
            None => self.looked(client, Some(bytes), out),
        }
        self.pages.release(page, out);
    }

    /// Handles a page that was written to a volume, or cannot be.
    pub(crate) fn meta_written(
        &mut self,
        client: ClientId,
        tag: u32,
        page: Buf,
        ok: bool,
        out: &mut NodeOut,
    ) {
        out.report(client, tag, ok, "the volume cannot be written");
        self.pages.release(page, out);
    }

    /// Notes whether a client's superblock says clean, if these bytes are one.
    fn note_superblock(&mut self, client: ClientId, bytes: &[u8]) {
        if let Some(clean) = says_clean(bytes)
            && let Some(user) = self.users.get_mut(&client)
        {
            user.clean = clean;
        }
    }
}
