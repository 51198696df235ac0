//! What clients ask for and wait for: everything with a tag.

use braid_array::{IoOp, Refusal, SECTOR_BYTES};

use super::ids::{ClientId, Violation};
use super::out::Flight;
use super::reads::within;
use super::slot::Take;
use super::volumes::Held;
use super::{Node, meta, volumes, votes};
use crate::wire::{MAX_NAME_BYTES, Message, valid_volume_name};

/// Is it about who has an array?
const fn is_of_votes(message: &Message) -> bool {
    matches!(
        message,
        Message::Grant { .. }
            | Message::ReadVote { .. }
            | Message::Forget { .. }
            | Message::StoreView { .. }
            | Message::ListLeftovers { .. }
            | Message::ResolveLeftovers { .. }
    )
}

impl Node {
    /// Who has an array, and what its predecessor has left.
    fn vote_request(&mut self, id: ClientId, message: Message) -> Result<(), Violation> {
        let Some(client) = self.clients.get(&id) else { return Ok(()) };
        if let Message::Grant { tag, array, epoch, client: asks } = message {
            let same = client.vote.is_none_or(|(other, _)| other == array);
            if !same || client.held.is_some() || !self.out.is_only_request(id) {
                return Err(Violation("a Grant that is not the first request"));
            }
            let what = votes::Want::Grant(epoch, asks);
            self.ask_vote(array, votes::Ask { client: id, tag, what });
            return Ok(());
        }
        if let Message::ReadVote { tag, array } = message {
            let what = votes::Want::Read;
            self.ask_vote(array, votes::Ask { client: id, tag, what });
            return Ok(());
        }
        if let Message::Forget { tag, array } = message {
            return self.search_volumes(id, tag, array);
        }
        let (array, _) = client.vote.ok_or(Violation("a request before Grant"))?;
        match message {
            Message::StoreView { tag, view } => {
                let what = votes::Want::Record(view);
                self.ask_vote(array, votes::Ask { client: id, tag, what });
            }
            Message::ListLeftovers { tag, from } => self.inventory(id, tag, array, from),
            Message::ResolveLeftovers { tag, commit: go } => self.settle_left(id, tag, array, &go),
            _ => {}
        }
        Ok(())
    }

    /// Everything with a tag.
    pub(super) fn request(&mut self, id: ClientId, message: Message) -> Result<(), Violation> {
        match message {
            _ if is_of_votes(&message) => return self.vote_request(id, message),
            Message::ListJournal { .. }
            | Message::ReplayJournal { .. }
            | Message::TrimJournal { .. } => {
                return self.journal_request(id, &message);
            }
            Message::CreateVolume { tag, name, bytes } => {
                let ask = volumes::Ask { client: id, tag, write: true, create: Some(bytes) };
                return self.open_volume(&name, ask);
            }
            Message::OpenVolume { tag, name, write } => {
                let ask = volumes::Ask { client: id, tag, write, create: None };
                return self.open_volume(&name, ask);
            }
            Message::NodeStatus { tag, after } => {
                self.survey(id, tag, after);
                return Ok(());
            }
            Message::Identify { tag } => {
                self.out.answer(id, &Message::Identity { tag, node: self.id });
                return Ok(());
            }
            Message::Shutdown { tag } => {
                self.shut_down(id, tag);
                return Ok(());
            }
            Message::StoreCopied { tag, slot, sector, bytes } => {
                return self.take(id, Take { tag, slot, sector, bytes });
            }
            _ => {}
        }
        let held = self.held_by(id)?;
        let tag = match &message {
            Message::DeleteVolume { tag }
            | Message::RemoveVolume { tag }
            | Message::ReadMeta { tag, .. }
            | Message::WriteMeta { tag, .. }
            | Message::OpenPipeline { tag, .. }
            | Message::Connect { tag, .. }
            | Message::LeaseRing { tag }
            | Message::ReturnRing { tag, .. }
            | Message::Flush { tag } => *tag,
            _ => return Err(Violation("a message that clients do not send")),
        };
        match message {
            Message::DeleteVolume { .. } => self.delete(id, tag, &held, held.made),
            Message::RemoveVolume { .. } => self.delete(id, tag, &held, held.write),
            Message::ReadMeta { sector, bytes, .. } => {
                self.meta_request(id, tag, (sector, bytes), meta::MetaOp::Read(bytes), &held);
            }
            Message::WriteMeta { sector, bytes, .. } => {
                let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                self.meta_request(id, tag, (sector, len), meta::MetaOp::Write(bytes), &held);
            }
            Message::OpenPipeline { role, data_sector, params, .. } => {
                return self.prepare(id, tag, (role, data_sector), params, &held);
            }
            Message::Connect { peers, .. } => return self.connect(id, tag, peers),
            Message::LeaseRing { .. } => return self.use_all(id, tag),
            Message::ReturnRing { all, .. } => return self.give_back(id, tag, all),
            _ => {
                let flight = Flight::Flush { client: id, tag };
                self.out.io(flight, held.volume.member, IoOp::Flush);
            }
        }
        Ok(())
    }

    fn held_by(&self, id: ClientId) -> Result<Held, Violation> {
        let held = self.clients.get(&id).and_then(|client| client.held.clone());
        held.ok_or(Violation("a request before OpenVolume"))
    }

    fn open_volume(&mut self, name: &str, ask: volumes::Ask) -> Result<(), Violation> {
        let Some(client) = self.clients.get_mut(&ask.client) else { return Ok(()) };
        // Whoever reads it may ask for the same one to write it.
        let raises = |held: &Held| {
            let same = *held.name == *name && ask.create.is_none();
            same && ask.write && !held.write
        };
        let second = client.held.as_ref().is_some_and(|held| !raises(held));
        if second || client.pipe.is_some() || client.asking {
            return Err(Violation("a second volume on one connection"));
        }
        if !valid_volume_name(name) {
            let next = format!(
                "use up to {MAX_NAME_BYTES} letters, digits, dots, hyphens and underscores"
            );
            self.out.refuse(
                ask.client,
                ask.tag,
                Refusal::new("no volume can be called this", next),
            );
            return Ok(());
        }
        if self.witness {
            let why = Refusal::new("the node is a witness: it keeps no volumes", "use another");
            self.out.refuse(ask.client, ask.tag, why);
            return Ok(());
        }
        client.asking = true;
        self.ask_volume(name.into(), ask);
        Ok(())
    }

    fn delete(&mut self, id: ClientId, tag: u32, held: &Held, may: bool) {
        let piped = self.clients.get(&id).is_some_and(|client| client.pipe.is_some());
        if !may {
            let why = Refusal::new("this connection did not make the volume", "it stays");
            self.out.refuse(id, tag, why);
        } else if piped || self.out.uses(id) {
            self.out.refuse_busy(
                id,
                tag,
                Refusal::new("the volume is in use", "stop the array first"),
            );
        } else {
            self.delete_volume(id, tag, held);
        }
    }

    fn meta_request(
        &mut self,
        id: ClientId,
        tag: u32,
        (sector, bytes): (u64, u32),
        op: meta::MetaOp,
        held: &Held,
    ) {
        let whole = bytes > 0
            && bytes <= meta::MAX_META_BYTES
            && u64::from(bytes).is_multiple_of(SECTOR_BYTES);
        if !whole || !within(sector, bytes, held.volume.bytes) {
            let size = held.volume.bytes;
            let reason = format!(
                "{bytes} bytes at sector {sector} are no metadata of a volume of {size} bytes"
            );
            return self.out.refuse(id, tag, Refusal::new(reason, "use up to 4096, whole sectors"));
        }
        if matches!(op, meta::MetaOp::Write(_)) && !held.write {
            let why = Refusal::new("the volume is open for reading", "open it for writing");
            return self.out.refuse(id, tag, why);
        }
        self.ask_meta(meta::Ask { client: id, tag, sector, op });
    }
}
