//! The storage nodes of this machine, queried for each request for metrics.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use braid_cluster::wire::SessionInfo;
use braid_host::fabric::Network;
use braid_host::remote::{NodeSurvey, Remote, RemoteError};

use crate::cmd::{entry, nodes, up};
use crate::config::{Config, NodeEntry};
use crate::output;

/// Timeout of a node's answer; short because a client waits for the metrics.
const PATIENCE: Duration = Duration::from_secs(2);

/// Nodes in the file of arrays and nodes, with their connection options.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes(Arc<[WatchedNode]>);

#[derive(Clone, Debug)]
struct WatchedNode {
    name: String,
    address: String,
    /// `None` if its key cannot be read.
    network: Option<Network>,
}

/// A node as it is now.
#[derive(Debug)]
pub(super) struct NodeSeen {
    pub(super) name: String,
    pub(super) address: String,
    /// `None` if it does not answer.
    pub(super) found: Option<NodeFound>,
}

/// Answers of a node.
#[derive(Debug)]
pub(super) struct NodeFound {
    pub(super) survey: NodeSurvey,
    pub(super) sessions: Vec<SessionInfo>,
}

impl Nodes {
    /// Returns the nodes of a file; none without a file. Entries with a problem are skipped.
    pub(super) fn of(file: &Path) -> Self {
        let Some(config) = Config::if_there(file) else { return Self::default() };
        let wrong = |name: &str| config.problems.iter().any(|problem| problem.concerns(name));
        let sound = config.nodes.iter().filter(|entry| !wrong(&entry.name));
        Self(sound.map(WatchedNode::of).collect())
    }

    /// Asks all of them at the same time: one that is silent holds up no other.
    pub(super) fn ask(&self) -> Vec<NodeSeen> {
        thread::scope(|scope| {
            let asked: Vec<_> = self.0.iter().map(|node| scope.spawn(|| node.ask())).collect();
            asked.into_iter().filter_map(|asked| asked.join().ok()).collect()
        })
    }
}

impl WatchedNode {
    fn of(entry: &NodeEntry) -> Self {
        let words = entry::node_words(entry, true);
        let network = nodes::network("monitor", &words.network).inspect_err(output::failure).ok();
        let open = |network: Network| if words.no_key { network.kind.into() } else { network };
        let network = network.map(open);
        Self { name: entry.name.clone(), address: up::address(&words), network }
    }

    fn ask(&self) -> NodeSeen {
        let found = self.network.and_then(|network| self.look(network).ok());
        NodeSeen { name: self.name.clone(), address: self.address.clone(), found }
    }

    fn look(&self, network: Network) -> Result<NodeFound, RemoteError> {
        let until = Instant::now() + PATIENCE;
        let mut remote = Remote::connect_within(&self.address, network, PATIENCE)?;
        remote.wait_until(until);
        Ok(NodeFound { survey: remote.survey()?, sessions: remote.sessions()? })
    }
}
