//! Dispatch of the executor's answers.

use braid_array::action::{IoError, IoErrorKind};
use braid_array::fabric::{Survey, Volume};
use braid_array::{IoId, Outcome, Refusal};

use super::ids::ClientId;
use super::out::Flight;
use super::pipeline::Resolved;
use super::sessions::{NodeFacts, node_info};
use super::{Node, STORAGE};
use crate::assemble::SUPERBLOCK_SECTOR;
use crate::wire::{self, MAX_LISTED, Message, SessionInfo};

impl Node {
    /// Handles a finished operation.
    pub(super) fn io_done(&mut self, io: IoId, result: Result<Outcome, IoError>) {
        let Some(flight) = self.out.answered(io) else { return };
        let client = flight.client();
        self.out.no_room = matches!(result, Err(error) if error.kind == IoErrorKind::Full);
        match (flight, result) {
            (Flight::Same { client, position, task }, result) => {
                let same = matches!(result, Ok(Outcome::Checked(found)) if found.differs() == 0);
                if let Some(pipe) = self.pipes.serving(client, &self.out) {
                    pipe.compared(position, task, same, &mut self.out);
                }
            }
            (Flight::JournalSum { client, record }, result) => {
                if let Ok(Outcome::Crc(crc)) = result {
                    let out = &mut self.out;
                    self.pipes
                        .with_journal(client, out, |journal, out| journal.summed(record, crc, out));
                }
            }
            (flight, result) => {
                if let Err(error) = result
                    && flight.is_of_storage()
                {
                    self.storage_failed(client, error);
                }
                self.done(flight, result.is_ok());
            }
        }
        if let Some(client) = client {
            self.retire(client);
        }
    }

    /// Logs a failure of the store.
    fn storage_failed(&mut self, client: Option<ClientId>, error: IoError) {
        let held = client.and_then(|client| self.volumes.held(client));
        let volume = held.map_or_else(String::new, |held| format!(" {}", held.name));
        let why = match (error.kind, error.errno) {
            (IoErrorKind::Full, _) => "there is no room for what was written; make room".to_owned(),
            (IoErrorKind::Shrunk, _) => format!("its file has become smaller; {STORAGE}"),
            (_, Some(errno)) => format!("an operation has failed, errno {errno}; {STORAGE}"),
            (_, None) => format!("an operation has failed; {STORAGE}"),
        };
        self.out.remark("storage", format!("volume{volume}: {why}"));
        if error.kind == IoErrorKind::Full
            && let Some(pipe) = client.and_then(|client| self.pipes.serving(client, &self.out))
        {
            pipe.store_is_full();
        }
    }

    fn done(&mut self, flight: Flight, ok: bool) {
        let out = &mut self.out;
        match flight {
            Flight::Task { client, position, task } => {
                if let Some(pipe) = self.pipes.serving(client, out) {
                    pipe.done(position, task, ok, out);
                }
            }
            Flight::Read { client, slot } | Flight::Digest { client, slot } => {
                if let Some(pipe) = self.pipes.serving(client, out) {
                    pipe.read_done(slot, ok, out);
                }
            }
            Flight::ReadPut { client, slot } => self.pipes.read_put(client, slot, out),
            Flight::Flush { client, tag } => {
                out.report(client, tag, ok, "the volume cannot be flushed");
            }
            Flight::MetaRead { .. } => self.volumes.meta_read(&flight, ok, out),
            Flight::MetaWrite { client, tag, page, sector } => {
                if sector == SUPERBLOCK_SECTOR
                    && let Some(held) = self.volumes.held(client)
                {
                    self.searches.look_again(&held.name);
                }
                self.volumes.meta_written(client, tag, page, ok, out);
            }
            Flight::StoreCopied { client, tag, slot } => {
                if let Some(pipe) = self.pipes.of(client) {
                    pipe.copy_stored(slot, tag, ok, out);
                }
            }
            Flight::LastFlush { volume } => self.volumes.flushed(&volume, ok, out),
            Flight::Resolve { orphan } => self.resolve_done(orphan, ok),
            Flight::VoteRead { array } => {
                self.votes.read(array, None, out);
                self.drive_votes(array, None);
            }
            Flight::VoteWrite { array } => {
                let event = self.votes.written(array, ok, out);
                self.drive_votes(array, event);
            }
            Flight::VoteRemove { array } => {
                self.votes.removed(array, ok, out);
                self.drive_votes(array, None);
            }
            Flight::Journal { client } => {
                self.pipes.with_journal(client, out, |journal, out| journal.done(ok, out));
            }
            Flight::JournalTrim { client } => {
                self.pipes.with_journal(client, out, |journal, out| {
                    journal.trimmed(ok, out);
                    None
                });
            }
            Flight::MetaLoad { .. }
            | Flight::JournalLoad { .. }
            | Flight::JournalSum { .. }
            | Flight::Volume { .. }
            | Flight::Survey { .. }
            | Flight::Search { .. }
            | Flight::Same { .. } => {}
        }
    }

    /// Handles a finished operation of a decision on a client's leftovers.
    fn resolve_done(&mut self, orphan: ClientId, ok: bool) {
        let Some(resolved) = self.pipes.resolve_done(orphan, ok, &mut self.out) else { return };
        let Resolved { by, tag, ok, no_room } = resolved;
        if ok {
            self.resolved(orphan);
        }
        if !ok && no_room {
            self.out.refuse(by, tag, wire::no_room());
        } else if !ok || !self.pipes.is_resolving(by, tag) {
            self.out.report(by, tag, ok, "what was left here cannot be stored");
        }
    }

    /// Handles bytes that were loaded from the arena, or read from a vote file.
    pub(super) fn loaded(&mut self, io: IoId, bytes: Vec<u8>) {
        let out = &mut self.out;
        match out.answered(io) {
            Some(Flight::MetaLoad { client, tag, page, look }) => {
                let tag = if look { None } else { Some(tag) };
                self.volumes.meta_loaded(client, tag, page, bytes, out);
                self.retire(client);
            }
            Some(Flight::VoteRead { array }) => {
                self.votes.read(array, Some(&bytes), out);
                self.drive_votes(array, None);
            }
            Some(Flight::JournalLoad { client }) => {
                self.pipes.with_journal(client, out, |journal, out| journal.loaded(&bytes, out));
                self.retire(client);
            }
            _ => {}
        }
    }

    /// Handles a volume that was opened, closed or deleted.
    pub(super) fn volume_answered(&mut self, io: IoId, result: Result<Volume, Refusal>) {
        if let Some(Flight::Volume { volume }) = self.out.answered(io) {
            self.volumes.answered(&volume, result, &mut self.out);
        }
    }

    /// Handles the result of a survey of the store.
    pub(super) fn surveyed(&mut self, io: IoId, result: Result<Survey, Refusal>) {
        let client = match self.out.answered(io) {
            Some(Flight::Survey { client, tag }) => {
                self.tell_status(client, tag, result);
                client
            }
            Some(Flight::Search { client }) => {
                self.searches.listed(client, result, &mut self.out);
                self.drive_search(client);
                client
            }
            _ => return,
        };
        self.retire(client);
    }

    /// Answers with a page of the other clients: the connection, the volume, the grant and the ring
    /// memory of each.
    pub(super) fn tell_sessions(&mut self, client: ClientId, tag: u32, from: u32) {
        let others = self.sessions.clients_from(from);
        let mut known = others.filter(|(id, _)| *id != client);
        let sessions = known.by_ref().take(MAX_LISTED).map(|(id, since)| SessionInfo {
            number: id.0,
            age_ms: (self.out.now.0 - since.0) / 1_000_000,
            connected: self.out.is_here(id),
            volume: self.volumes.held(id).is_some(),
            grant: self.votes.grant_of(id).map(|grant| (grant.array, grant.epoch)),
            ring_bytes: self.pipes.lease_bytes(id),
        });
        let sessions: Vec<SessionInfo> = sessions.collect();
        let next = known.next().map_or(0, |(id, _)| id.0);
        self.out.answer(client, &Message::Sessions { tag, sessions, next });
    }

    fn tell_status(&mut self, client: ClientId, tag: u32, result: Result<Survey, Refusal>) {
        let facts = NodeFacts {
            node: self.id,
            witness: self.witness,
            rings: self.pipes.ring_use(),
            clients: self.volumes.holders(),
        };
        match result {
            Ok(found) => {
                let info = node_info(tag, found, facts, |name| self.volumes.is_written(name));
                self.out.answer(client, &info);
            }
            Err(why) => self.out.refuse(client, tag, why),
        }
    }
}
