//! What a node says of itself, for administrators.

use braid_array::events::ArrayEvent;
use braid_array::fabric::Survey;
use braid_array::{Action, Refusal};

use super::Node;
use super::ids::ClientId;
use super::out::Flight;
use crate::wire::{MAX_VOLUMES, Message, VolumeInfo};

impl Node {
    /// Somebody wants to know; has a look at the store.
    pub(super) fn survey(&mut self, client: ClientId, tag: u32, after: String) {
        self.out.survey(Flight::Survey { client, tag }, after, MAX_VOLUMES);
    }

    /// Somebody wants the node to end.
    pub(super) fn shut_down(&mut self, client: ClientId, tag: u32) {
        self.answer(client, &Message::Ok { tag });
        self.out.push(Action::Notify(ArrayEvent::StopAsked));
    }

    pub(super) fn surveyed(&mut self, client: ClientId, tag: u32, result: Result<Survey, Refusal>) {
        let Survey { total_bytes, free_bytes, volumes, more } = match result {
            Ok(survey) => survey,
            Err(why) => return self.refuse(client, tag, why),
        };
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
            more,
        };
        self.answer(client, &info);
    }
}
