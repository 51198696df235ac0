//! The volumes that clients have open, and the clients that wait for one.
//!
//! ```text
//! Opening ──► Open ── last user gone ──► Flushing ──► Closing ──► gone
//!              └───── DeleteVolume ─────────────────► Closing ──► gone
//! ```
//! While an open volume gets another length, further clients wait, and it is not closed.

mod opening;
mod pages;
mod requests;

use crate::ids::NodeId;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use braid_array::Refusal;
use braid_array::array::Scratch;
use braid_array::fabric::Volume;

pub(super) use self::pages::MetaOp;
use self::pages::RequestPages;
use super::ids::{ArrayId, ClientId, Held};
use super::out::NodeOut;

/// A client that wants a volume.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenRequest {
    pub(super) client: ClientId,
    pub(super) tag: u32,
    pub(super) write: bool,
    /// A new one of this size.
    pub(super) create: Option<u64>,
    pub(super) check: VolumeCheck,
}

/// Check of a volume before a client gets it.
#[derive(Clone, Copy, Debug)]
pub(super) enum VolumeCheck {
    Nothing,
    /// Whether its superblock is that of this array: the client's key is good for no other.
    IsOf(ArrayId),
    /// Its superblock, for a search; the client does not get the volume.
    Search,
}

#[derive(Debug)]
enum VolumeState {
    Opening(OpenRequest),
    Open(Volume),
    Flushing(Volume),
    /// With the client and tag to answer when it was to be deleted.
    Closing(Option<(ClientId, u32)>),
}

#[derive(Debug)]
struct VolumeEntry {
    state: VolumeState,
    users: Vec<ClientId>,
    writer: Option<ClientId>,
    waiting: VecDeque<OpenRequest>,
    /// The client and tag to answer when the open volume has another length.
    lengthening: Option<(ClientId, u32)>,
}

impl VolumeEntry {
    /// Returns whether clients may get the volume now.
    const fn is_given_out(&self) -> bool {
        matches!(self.state, VolumeState::Open(_)) && self.lengthening.is_none()
    }
}

/// A volume that is open, and whose superblock is being read for a client.
#[derive(Clone, Debug)]
struct Looking {
    name: Arc<str>,
    request: OpenRequest,
}

/// Relation of a client to the volumes.
#[derive(Debug, Default)]
struct User {
    /// Waits for a volume.
    asking: bool,
    held: Option<Held>,
    looking: Option<Looking>,
    /// Gone, with leftovers that the next client decides about.
    leftovers: bool,
    /// The last superblock that it read or wrote says that the array is clean.
    clean: bool,
}

/// Event for the node.
#[derive(Debug)]
pub(super) enum VolumeEvent {
    /// The beginning of the superblock of a volume that was looked at for a search; `None` when it
    /// cannot be read.
    Searched { client: ClientId, name: Arc<str>, found: Option<Vec<u8>> },
    /// A search has ended, as a volume could not be opened. The client was told.
    SearchFailed { client: ClientId },
    /// A volume could not be flushed or closed.
    Failed(Refusal),
}

/// The volumes that are open, the clients that use them or wait for them, and the pages through
/// which metadata passes. [`open`](Self::open) begins; answers of the executor go to the methods
/// named after them, then [`next_event`](Self::next_event) is asked until it has none. When a
/// client is gone, [`disconnected`](Self::disconnected) is called, and [`release`](Self::release)
/// when nothing of it is in flight any more.
#[derive(Debug)]
pub(super) struct Volumes {
    node: NodeId,
    entries: BTreeMap<Arc<str>, VolumeEntry>,
    users: BTreeMap<ClientId, User>,
    pages: RequestPages,
    events: VecDeque<VolumeEvent>,
}

impl Volumes {
    /// Creates an empty collection. Takes pages from the front of a space.
    pub(super) fn new(node: NodeId, space: &mut Scratch) -> Self {
        Self {
            node,
            entries: BTreeMap::new(),
            users: BTreeMap::new(),
            pages: RequestPages::new(space),
            events: VecDeque::new(),
        }
    }

    pub(super) fn next_event(&mut self) -> Option<VolumeEvent> {
        self.events.pop_front()
    }

    /// Returns whether no volume is open.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns whether a client has the volume open for writing.
    pub(super) fn is_written(&self, name: &str) -> bool {
        self.entries.get(name).is_some_and(|entry| entry.writer.is_some())
    }

    /// Returns the volume that a client has open.
    pub(super) fn held(&self, client: ClientId) -> Option<&Held> {
        self.users.get(&client)?.held.as_ref()
    }

    /// Returns whether a client waits for a volume.
    pub(super) fn is_asking(&self, client: ClientId) -> bool {
        self.users.get(&client).is_some_and(|user| user.asking)
    }

    /// Returns the number of clients with an open volume.
    pub(super) fn holders(&self) -> usize {
        self.users.values().filter(|user| user.held.is_some()).count()
    }

    /// Returns whether no request waits for a page.
    pub(super) fn is_idle(&self) -> bool {
        self.pages.is_idle()
    }

    pub(super) fn check(&self, out: &NodeOut) -> Result<(), String> {
        self.pages.check(out.pages())
    }

    /// Handles the loss of a client. While leftovers of it exist, no other client gets its volume
    /// for writing.
    pub(super) fn disconnected(&mut self, client: ClientId, leftovers: bool) {
        self.pages.forget(client);
        self.set_leftovers(client, leftovers);
    }

    /// Clears the leftovers of a client: they are resolved, or will never be.
    pub(super) fn resolved(&mut self, client: ClientId) {
        self.set_leftovers(client, false);
    }

    /// Returns whether this client leaves a superblock that says clean, and no leftovers.
    pub(super) fn is_clean(&self, client: ClientId) -> bool {
        self.users.get(&client).is_some_and(|user| user.clean && !user.leftovers)
    }

    fn set_leftovers(&mut self, client: ClientId, leftovers: bool) {
        if let Some(user) = self.users.get_mut(&client) {
            user.leftovers = leftovers;
        }
    }
}
