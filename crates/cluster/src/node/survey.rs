//! What a node says of itself, for administrators.

use braid_array::events::ArrayEvent;
use braid_array::fabric::Survey;
use braid_array::{Action, Refusal};

use super::Node;
use super::ids::ClientId;
use super::out::Flight;
use super::votes::array_of_note;
use crate::wire::{MAX_LISTED, Message, VolumeInfo};

impl Node {
    /// Somebody wants to know; has a look at the store.
    pub(super) fn survey(&mut self, client: ClientId, tag: u32, after: String) {
        self.out.survey(Flight::Survey { client, tag }, after, MAX_LISTED);
    }

    /// Somebody wants the node to end.
    pub(super) fn shut_down(&mut self, client: ClientId, tag: u32) {
        self.out.confirm(client, tag);
        self.out.push(Action::Notify(ArrayEvent::StopAsked));
    }

    pub(super) fn surveyed(&mut self, client: ClientId, tag: u32, result: Result<Survey, Refusal>) {
        let found = match result {
            Ok(survey) => survey,
            Err(why) => return self.out.refuse(client, tag, why),
        };
        let next = last_name(&found).filter(|_| found.more).unwrap_or_default().to_owned();
        let Survey { total_bytes, free_bytes, volumes, notes, .. } = found;
        let info = |(name, bytes): (String, u64)| {
            let written = self.volumes.is_written(&name);
            VolumeInfo { name, bytes, written }
        };
        let volumes = volumes.into_iter().map(info).collect();
        let clients = self.clients.values().filter(|client| client.held.is_some()).count();
        let info = Message::NodeInfo {
            tag,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            node: self.id,
            total_bytes,
            free_bytes,
            ring_bytes: self.rings.bytes(),
            ring_used_bytes: self.rings.used_bytes(),
            clients: u32::try_from(clients).unwrap_or(u32::MAX),
            witness: self.witness,
            volumes,
            votes: notes.iter().filter_map(|note| array_of_note(note)).collect(),
            next,
        };
        self.out.answer(client, &info);
    }
}

/// The name behind which there may be more.
pub(super) fn last_name(found: &Survey) -> Option<&str> {
    let volume = found.volumes.last().map(|(name, _)| name.as_str());
    volume.max(found.notes.last().map(String::as_str))
}
