//! Forgetting an array: what this node has granted and was told of it.
//!
//! ```text
//! Forget ── volumes are listed ── each is looked at ─► none has a member: nor a client the array?
//!                                                   │                 the vote file is removed
//!                                                   └► one has, or cannot be read: refused
//! ```
//! A node never does so by itself: it may be the only one of a majority that knows of the newest
//! view, and it knows no other nodes. Whoever says it vouches for that.

use std::collections::VecDeque;

use braid_array::Refusal;
use braid_array::fabric::Survey;

use super::ids::{ArrayId, ClientId, Violation};
use super::limit::{is_of, text_of};
use super::out::Flight;
use super::survey::last_name;
use super::{Node, STORAGE, volumes, votes};
use crate::assemble::SUPERBLOCK_SECTOR;
use crate::wire::MAX_LISTED;

/// A look at all volumes, one after the other.
#[derive(Debug)]
pub(super) struct Search {
    tag: u32,
    array: ArrayId,
    /// Volumes to look at; one is looked at again when its superblock was written.
    names: VecDeque<String>,
    /// The name behind which there may be more.
    after: Option<String>,
}

fn carries(name: &str) -> Refusal {
    let reason = format!("volume {name} carries a member of the array");
    Refusal::new(reason, "delete that volume first, if it is of no use any more")
}

impl Node {
    /// Somebody wants an array to be forgotten.
    pub(super) fn search_volumes(
        &mut self,
        id: ClientId,
        tag: u32,
        array: ArrayId,
    ) -> Result<(), Violation> {
        let Some(client) = self.clients.get_mut(&id) else { return Ok(()) };
        let has = client.vote.is_some() || client.held.is_some() || client.asking;
        if has || !self.out.is_only_request(id) {
            return Err(Violation("a Forget that is not alone"));
        }
        let (names, after) = (VecDeque::new(), Some(String::new()));
        client.search = Some(Search { tag, array, names, after });
        client.asking = true;
        self.search_on(id);
        Ok(())
    }

    /// Takes the next volume, or has more of them listed.
    fn search_on(&mut self, id: ClientId) {
        if !self.out.is_here(id) {
            return;
        }
        let Some(client) = self.clients.get_mut(&id) else { return };
        let Some(search) = &mut client.search else { return };
        let (tag, array) = (search.tag, search.array);
        if let Some(name) = search.names.pop_front() {
            let ask = volumes::Ask { client: id, tag, write: false, create: None };
            self.ask_volume(name.into(), ask);
        } else if let Some(after) = search.after.take() {
            self.out.survey(Flight::Search { client: id }, after, MAX_LISTED);
        } else {
            self.ask_vote(array, votes::Ask { client: id, tag, what: votes::Want::Forget });
        }
    }

    /// These are the next volumes.
    pub(super) fn volumes_listed(&mut self, id: ClientId, result: Result<Survey, Refusal>) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let Some(search) = &mut client.search else { return };
        match result {
            Ok(found) => {
                search.after = last_name(&found).filter(|_| found.more).map(str::to_owned);
                search.names = found.volumes.into_iter().map(|(name, _)| name).collect();
                self.search_on(id);
            }
            Err(why) => self.end_search(id, why),
        }
    }

    /// This is where the superblock of a volume should be, or it cannot be read.
    pub(super) fn searched(&mut self, id: ClientId, name: &str, found: Option<&[u8]>) {
        let Some(client) = self.clients.get(&id) else { return };
        let Some(search) = &client.search else { return };
        match found {
            Some(found) if is_of(&search.array, found) => self.end_search(id, carries(name)),
            Some(_) => self.search_on(id),
            None => {
                let reason =
                    format!("volume {name} cannot be read, and may carry a member of the array");
                self.end_search(id, Refusal::new(reason, STORAGE));
            }
        }
    }

    fn end_search(&mut self, id: ClientId, why: Refusal) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        client.asking = false;
        if let Some(search) = client.search.take() {
            self.out.refuse_busy(id, search.tag, why);
        }
    }

    /// A client has written this sector of its volume, maybe after that was looked at.
    pub(super) fn notice_write(&mut self, client: ClientId, sector: u64) {
        let held = self.clients.get(&client).and_then(|client| client.held.as_ref());
        let Some(name) = held.map(|held| held.name.to_string()) else { return };
        let searches = self.clients.values_mut().filter_map(|client| client.search.as_mut());
        for search in searches.filter(|_| sector == SUPERBLOCK_SECTOR) {
            search.names.push_back(name.clone());
        }
    }

    /// Why the array is not forgotten now that its volumes were looked at.
    pub(super) fn stands_against_forgetting(
        &mut self,
        array: ArrayId,
        ask: &votes::Ask,
    ) -> Option<Refusal> {
        let client = self.clients.get_mut(&ask.client)?;
        client.asking = false;
        let search = client.search.take()?;
        if let Some(name) = search.names.front() {
            let reason = format!("the superblock of volume {name} has just been written");
            return Some(Refusal::new(reason, "try again"));
        }
        let votes = self.clients.values().filter_map(|client| client.vote);
        votes.map(|(of, _)| of).any(|of| of == array).then(|| {
            let reason = "a client has the array, or is gone and left something of it unfinished";
            let next = "stop the array first; if its client is gone, start the node again";
            Refusal::new(reason, next)
        })
    }

    /// For the log.
    pub(super) fn note_forgotten(&mut self, array: ArrayId) {
        let text = format!("forgot its vote of array {}, as it was told to", text_of(array));
        self.out.remark("vote", text);
    }
}
