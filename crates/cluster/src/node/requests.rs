//! Dispatch of clients' messages to the machines of the node.

use braid_array::events::ArrayEvent;
use braid_array::{Action, IoOp, Refusal, Role};

use super::Node;
use super::ids::{ArrayId, ClientId, Held, Violation};
use super::out::Flight;
use super::pipeline::{PipelineOpening, ReadRequest, StoreCopied, WantedForm};
use super::sessions::PARTING_TAG;
use super::volumes::{MetaOp, OpenRequest, VolumeCheck};
use super::votes::{Request, RequestPurpose};
use crate::ids::Slot;
use crate::pipeline::Params;
use crate::wire::{MAX_LISTED, MAX_NAME_BYTES, Message, PeerAddress, valid_volume_name};

impl Node {
    /// Handles a message of a client.
    pub(super) fn client_message(
        &mut self,
        client: ClientId,
        message: Message,
    ) -> Result<(), Violation> {
        match message {
            Message::Ping { tag } => {
                let storage_silent_ms = self.out.storage_silent_ms();
                self.out.tell(client, &Message::Pong { tag, storage_silent_ms });
                Ok(())
            }
            Message::BeginSet { set } => {
                let pipe = self.pipes.opened(client, "a slice-set before OpenPipeline")?;
                pipe.open(set, &mut self.out)
            }
            Message::Commit { sets } => {
                let pipe = self.pipes.opened(client, "Commit before OpenPipeline")?;
                let mut sets = sets.into_iter();
                sets.try_for_each(|(at, generation)| pipe.commit(at, generation, &mut self.out))
            }
            Message::Abort { position, generation } => {
                let pipe = self.pipes.opened(client, "Abort before OpenPipeline")?;
                pipe.abort(position, generation, &mut self.out)
            }
            Message::Without { role } => {
                let pipe = self.pipes.opened(client, "Without before OpenPipeline")?;
                if let Some(peer) = pipe.without(role, &mut self.out)? {
                    self.sessions.remove(peer);
                }
                Ok(())
            }
            Message::Refused { tag: PARTING_TAG, reason, .. } => {
                let held = self.volumes.held(client).map(|held| format!("volume {}", held.name));
                let volume = held.unwrap_or_else(|| "this node".to_owned());
                let text = format!("an array does not take {volume} back: {reason}");
                self.out.remark("refused", text);
                Ok(())
            }
            Message::Read { slot, sector, bytes, to } => {
                let wanted = WantedForm::Content;
                self.read(client, slot, ReadRequest { sector, bytes, to, wanted })
            }
            Message::Copy { slot, sector, bytes, into } => {
                let wanted = WantedForm::Copy(into);
                self.read(client, slot, ReadRequest { sector, bytes, to: 0, wanted })
            }
            Message::Digest { slot, sector, bytes, to } => {
                let wanted = WantedForm::Digest;
                self.read(client, slot, ReadRequest { sector, bytes, to, wanted })
            }
            request => {
                self.out.begin_request(client)?;
                self.request(client, request)
            }
        }
    }

    fn read(
        &mut self,
        client: ClientId,
        slot: Slot,
        request: ReadRequest,
    ) -> Result<(), Violation> {
        let pipe = self.pipes.opened(client, "a read before OpenPipeline")?;
        pipe.read(slot, request, &mut self.out)
    }

    /// Handles a request whose answer the client waits for.
    fn request(&mut self, client: ClientId, message: Message) -> Result<(), Violation> {
        match message {
            Message::Grant { .. }
            | Message::ReadVote { .. }
            | Message::Forget { .. }
            | Message::StoreView { .. }
            | Message::ListLeftovers { .. }
            | Message::ResolveLeftovers { .. } => self.vote_request(client, message),
            Message::ListJournal { .. }
            | Message::ReplayJournal { .. }
            | Message::TrimJournal { .. } => {
                self.pipes.request_journal(client, &message, &mut self.out)
            }
            Message::CreateVolume { tag, name, bytes } => {
                self.open_volume(client, tag, &name, true, Some(bytes))
            }
            Message::OpenVolume { tag, name, write } => {
                self.open_volume(client, tag, &name, write, None)
            }
            Message::StoreCopied { tag, slot, sector, bytes } => {
                let pipe = self.pipes.opened(client, "a copy before OpenPipeline")?;
                pipe.store_copied(StoreCopied { tag, slot, sector, bytes }, &mut self.out)
            }
            Message::NodeStatus { tag, after } => {
                self.out.survey(Flight::Survey { client, tag }, after, MAX_LISTED);
                Ok(())
            }
            Message::ListSessions { tag, from } => {
                self.tell_sessions(client, tag, from);
                Ok(())
            }
            Message::Identify { tag } => {
                self.out.answer(client, &Message::Identity { tag, node: self.id });
                Ok(())
            }
            Message::Shutdown { tag } => {
                self.out.confirm(client, tag);
                self.out.push(Action::Notify(ArrayEvent::StopAsked));
                Ok(())
            }
            message => self.volume_request(client, message),
        }
    }

    /// Handles a request for a grant, a vote, a view or leftovers.
    fn vote_request(&mut self, client: ClientId, message: Message) -> Result<(), Violation> {
        let granted = self.votes.grant_of(client);
        match message {
            Message::Grant { tag, array, epoch, client: to } => {
                let same = granted.is_none_or(|grant| grant.array == array);
                let alone = self.out.is_only_request(client);
                if !same || self.volumes.held(client).is_some() || !alone {
                    return Err(Violation("a Grant that is not the first request"));
                }
                self.request_vote(
                    array,
                    Request { client, tag, want: RequestPurpose::Grant { epoch, to } },
                );
                return Ok(());
            }
            Message::ReadVote { tag, array } => {
                self.request_vote(array, Request { client, tag, want: RequestPurpose::Read });
                return Ok(());
            }
            Message::Forget { tag, array } => return self.forget(client, tag, array),
            _ => {}
        }
        let array = granted.ok_or(Violation("a request before Grant"))?.array;
        match message {
            Message::StoreView { tag, view } => {
                self.request_vote(
                    array,
                    Request { client, tag, want: RequestPurpose::Store(view) },
                );
            }
            Message::ListLeftovers { tag, from } => {
                let known = self.votes.leftovers(array);
                self.pipes.list_leftovers(client, tag, array, from, known, &mut self.out);
            }
            Message::ResolveLeftovers { tag, commit } => {
                self.pipes.resolve_leftovers(client, tag, array, &commit, &mut self.out);
            }
            _ => {}
        }
        Ok(())
    }

    /// Begins to forget an array for a client.
    fn forget(&mut self, client: ClientId, tag: u32, array: ArrayId) -> Result<(), Violation> {
        let has = self.votes.grant_of(client).is_some()
            || self.volumes.held(client).is_some()
            || self.waits_for_volume(client);
        if has || !self.out.is_only_request(client) {
            return Err(Violation("a Forget that is not alone"));
        }
        self.searches.begin(client, tag, array);
        self.drive_search(client);
        Ok(())
    }

    fn waits_for_volume(&self, client: ClientId) -> bool {
        self.volumes.is_asking(client) || self.searches.is_searching(client)
    }

    fn open_volume(
        &mut self,
        client: ClientId,
        tag: u32,
        name: &str,
        write: bool,
        create: Option<u64>,
    ) -> Result<(), Violation> {
        // A client that reads it may ask for the same one to write it.
        let raises = |held: &Held| *held.name == *name && create.is_none() && write && !held.write;
        let second = self.volumes.held(client).is_some_and(|held| !raises(held));
        if second || self.pipes.has(client) || self.waits_for_volume(client) {
            return Err(Violation("a second volume on one connection"));
        }
        if !valid_volume_name(name) {
            let next = format!(
                "use up to {MAX_NAME_BYTES} letters, digits, dots, hyphens and underscores"
            );
            self.out.refuse(client, tag, Refusal::new("no volume can be called this", next));
            return Ok(());
        }
        if self.witness {
            let why = Refusal::new("the node is a witness: it keeps no volumes", "use another");
            self.out.refuse(client, tag, why);
            return Ok(());
        }
        let check = self.sessions.limit_of(client).map_or(VolumeCheck::Nothing, VolumeCheck::IsOf);
        let request = OpenRequest { client, tag, write, create, check };
        self.volumes.open(name.into(), request, &mut self.out);
        Ok(())
    }

    /// Handles a request for the volume that the client has open, or for a pipeline over it.
    fn volume_request(&mut self, client: ClientId, message: Message) -> Result<(), Violation> {
        let held = self.volumes.held(client).cloned();
        let held = held.ok_or(Violation("a request before OpenVolume"))?;
        let out = &mut self.out;
        match message {
            Message::DeleteVolume { tag } => self.delete(client, tag, &held, held.made),
            Message::RemoveVolume { tag } => self.delete(client, tag, &held, held.write),
            Message::ReadMeta { tag, sector, bytes } => {
                self.volumes.request_meta(client, tag, sector, MetaOp::Read(bytes), out);
            }
            Message::WriteMeta { tag, sector, bytes } => {
                self.volumes.request_meta(client, tag, sector, MetaOp::Write(bytes), out);
            }
            Message::OpenPipeline { tag, role, data_sector, params } => {
                return self.open_pipeline(client, tag, role, data_sector, params, &held);
            }
            Message::LengthenVolume { tag, data_bytes } => {
                let pipe = self.pipes.opened(client, "LengthenVolume before OpenPipeline")?;
                match pipe.lengthen(data_bytes)? {
                    Ok(longer) => self.volumes.lengthen(client, tag, &held, longer, out),
                    Err(why) => out.refuse(client, tag, why),
                }
            }
            Message::Connect { tag, peers } => return self.connect(client, tag, peers),
            Message::LeaseRing { tag } => return self.pipes.lease_ring(client, tag, out),
            Message::ReturnRing { tag, all } => {
                return self.pipes.return_ring(client, tag, all, out);
            }
            Message::Flush { tag } => {
                out.io(Flight::Flush { client, tag }, held.volume.member, IoOp::Flush);
            }
            _ => return Err(Violation("a message that clients do not send")),
        }
        Ok(())
    }

    fn delete(&mut self, client: ClientId, tag: u32, held: &Held, may: bool) {
        if !may {
            let why = Refusal::new("this connection did not make the volume", "it stays");
            self.out.refuse(client, tag, why);
        } else if self.pipes.has(client) || self.out.uses(client) {
            let why = Refusal::new("the volume is in use", "stop the array first");
            self.out.refuse_busy(client, tag, why);
        } else {
            self.volumes.delete(client, tag, held, &mut self.out);
        }
    }

    fn open_pipeline(
        &mut self,
        client: ClientId,
        tag: u32,
        role: Role,
        data_sector: u64,
        params: Params,
        held: &Held,
    ) -> Result<(), Violation> {
        let Some(peer) = self.out.peer_of(client) else { return Ok(()) };
        if self.pipes.has(client) {
            return Err(Violation("a second pipeline on one connection"));
        }
        let granted = self.votes.grant_of(client);
        if held.write && granted.is_none_or(|grant| grant.epoch != params.epoch) {
            return Err(Violation("a pipeline of an epoch that was not granted"));
        }
        let array = granted.map(|grant| grant.array);
        let opening = PipelineOpening { client, peer, tag, array, role, data_sector, params };
        self.pipes.open(opening, held, &mut self.out);
        Ok(())
    }

    fn connect(
        &mut self,
        client: ClientId,
        tag: u32,
        peers: Vec<PeerAddress>,
    ) -> Result<(), Violation> {
        let pipe = self.pipes.opened(client, "Connect before OpenPipeline")?;
        for dialed in pipe.connect(tag, peers, &mut self.out)? {
            self.sessions.dialed(dialed.peer, client, dialed.neighbour);
        }
        Ok(())
    }
}
