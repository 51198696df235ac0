//! Forgetting of an array: this node's grant, and the views that it was told of.
//!
//! ```text
//! Forget ── volumes are listed ── each is looked at ─► none has a member: nor a client the array?
//!                                                   │                 the vote file is removed
//!                                                   └► one has, or cannot be read: refused
//! ```
//! A node never forgets an array by itself: it may be the only one of a majority that knows of the
//! newest view, and it knows no other nodes. The client that orders it vouches for the
//! consequences.

use std::collections::{BTreeMap, VecDeque};

use braid_array::Refusal;
use braid_array::fabric::Survey;

use crate::node::STORAGE;
use crate::node::ids::{ArrayId, ClientId, is_of, next_name};
use crate::node::out::{Flight, NodeOut};
use crate::wire::MAX_LISTED;

/// A look at all volumes, one after the other.
#[derive(Debug)]
pub(crate) struct Search {
    tag: u32,
    array: ArrayId,
    /// Volumes to look at; one is looked at again when its superblock was written.
    names: VecDeque<String>,
    /// The name behind which there may be more.
    after: Option<String>,
}

/// Next step of a search.
#[derive(Debug)]
pub(crate) enum SearchStep {
    /// Look at this volume.
    Look { tag: u32, name: String },
    /// Nothing was found: have the vote of this array forgotten.
    Forget { tag: u32, array: ArrayId },
}

/// The searches of clients that want an array to be forgotten, at most one of each client.
/// [`begin`](Self::begin), then [`step`](Self::step) at once and after each answer, which
/// [`listed`](Self::listed) or [`looked`](Self::looked) takes; [`finish`](Self::finish) when the
/// vote comes to be forgotten.
#[derive(Debug, Default)]
pub(crate) struct Searches {
    by_client: BTreeMap<ClientId, Search>,
}

impl Searches {
    pub(crate) fn is_searching(&self, client: ClientId) -> bool {
        self.by_client.contains_key(&client)
    }

    pub(crate) fn any(&self) -> bool {
        !self.by_client.is_empty()
    }

    pub(crate) fn begin(&mut self, client: ClientId, tag: u32, array: ArrayId) {
        let search = Search { tag, array, names: VecDeque::new(), after: Some(String::new()) };
        self.by_client.insert(client, search);
    }

    /// Returns the next step; `None` while more volumes are being listed.
    pub(crate) fn step(&mut self, client: ClientId, out: &mut NodeOut) -> Option<SearchStep> {
        if !out.is_here(client) {
            return None;
        }
        let search = self.by_client.get_mut(&client)?;
        let tag = search.tag;
        if let Some(name) = search.names.pop_front() {
            return Some(SearchStep::Look { tag, name });
        }
        let Some(after) = search.after.take() else {
            return Some(SearchStep::Forget { tag, array: search.array });
        };
        out.survey(Flight::Search { client }, after, MAX_LISTED);
        None
    }

    /// Takes the next volumes. Others may wait for another look already.
    pub(crate) fn listed(
        &mut self,
        client: ClientId,
        result: Result<Survey, Refusal>,
        out: &mut NodeOut,
    ) {
        let Some(search) = self.by_client.get_mut(&client) else { return };
        match result {
            Ok(found) => {
                search.after = next_name(&found).map(str::to_owned);
                search.names.extend(found.volumes.into_iter().map(|(name, _)| name));
            }
            Err(why) => self.refuse(client, why, out),
        }
    }

    /// Takes the bytes at the place of a volume's superblock; `None` if they cannot be read.
    pub(crate) fn looked(
        &mut self,
        client: ClientId,
        name: &str,
        found: Option<&[u8]>,
        out: &mut NodeOut,
    ) {
        let Some(search) = self.by_client.get(&client) else { return };
        let why = match found {
            Some(found) if is_of(&search.array, found) => Refusal::new(
                format!("volume {name} carries a member of the array"),
                "delete that volume first, if it is of no use any more",
            ),
            Some(_) => return,
            None => Refusal::new(
                format!("volume {name} cannot be read, and may carry a member of the array"),
                STORAGE,
            ),
        };
        self.refuse(client, why, out);
    }

    fn refuse(&mut self, client: ClientId, why: Refusal, out: &mut NodeOut) {
        if let Some(search) = self.by_client.remove(&client) {
            out.refuse_busy(client, search.tag, why);
        }
    }

    /// Queues another look at this volume, whose superblock was written.
    pub(crate) fn look_again(&mut self, name: &str) {
        for search in self.by_client.values_mut() {
            search.names.push_back(name.to_owned());
        }
    }

    /// Removes the search of a client that is gone, or was told of its failure.
    pub(crate) fn retire(&mut self, client: ClientId) {
        self.by_client.remove(&client);
    }

    /// Ends the search of a client. Returns the reason why its array is not forgotten, if a
    /// superblock was written meanwhile.
    pub(crate) fn finish(&mut self, client: ClientId) -> Option<Refusal> {
        let search = self.by_client.remove(&client)?;
        let name = search.names.front()?;
        let reason = format!("the superblock of volume {name} has just been written");
        Some(Refusal::new(reason, "try again"))
    }
}
