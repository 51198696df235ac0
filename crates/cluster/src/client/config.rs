//! What a client is made of.

use braid_array::format::Bitmap;

use crate::member::ClientMember;
use crate::pipeline::Params;

/// An array over nodes.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The pipeline. With `Planner::Client` the client makes the parities of whole stripes itself.
    pub params: Params,
    /// By role; `None` is missing.
    pub members: Vec<Option<ClientMember>>,
    /// Members that could not be reached: their nodes' addresses, and the volumes there.
    pub absent: Vec<(String, String)>,
    /// The bitmap that the array starts with, when it has one.
    pub bitmap: Option<Bitmap>,
    /// Refuses writes.
    pub read_only: bool,
    /// Only has a look, read-only: takes the array over from nobody, and changes nothing.
    pub looks: bool,
    /// The client makes parities itself where that is faster.
    pub mix: bool,
    /// A node that owes an answer and says nothing for so long is lost, in milliseconds.
    pub node_timeout_ms: u64,
    /// Somebody answers for it that the nodes that are not here are off.
    pub force: bool,
}

impl ClientConfig {
    /// An array that is written, with what holds unless somebody says otherwise.
    #[must_use]
    pub const fn new(params: Params, members: Vec<Option<ClientMember>>) -> Self {
        Self {
            params,
            members,
            absent: Vec::new(),
            bitmap: None,
            read_only: false,
            looks: false,
            mix: false,
            node_timeout_ms: NODE_TIMEOUT_MS,
            force: false,
        }
    }
}

/// What `node_timeout_ms` is unless somebody says otherwise.
pub const NODE_TIMEOUT_MS: u64 = 5000;
