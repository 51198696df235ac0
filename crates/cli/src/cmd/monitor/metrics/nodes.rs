//! Metrics of the storage nodes of this machine.

use braid_cluster::wire::SessionInfo;
use braid_host::key::text_of_uuid;
use prometheus_client::registry::{Registry, Unit};

use super::{Gauges, Labels, bytes, family, family_of};
use crate::cmd::monitor::nodes::{NodeFound, NodeSeen};
use crate::cmd::node_admin::{SESSION_HAS, session_has};

#[derive(Debug)]
pub(super) struct NodeMetrics {
    ready: Gauges,
    info: Gauges,
    space: Gauges,
    free: Gauges,
    ring: Gauges,
    ring_used: Gauges,
    sessions: Gauges,
    epoch: Gauges,
    age: Gauges,
    lease: Gauges,
}

impl NodeMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let ready = "1 for a node of this machine that answers";
        let epoch = "The epoch in which a client of a node was granted an array";
        let age = "For how long that client is one";
        Self {
            ready: family(registry, "node_ready", ready),
            info: family(registry, "node_info", "What a node of this machine is"),
            space: bytes(registry, "node_space", "What the store of a node holds in all"),
            free: bytes(registry, "node_free", "What of that is free"),
            ring: bytes(registry, "node_ring", "Memory of a node for data on its way"),
            ring_used: bytes(registry, "node_ring_used", "What of that clients may use"),
            sessions: family(registry, "node_sessions", "Clients of a node, by what each has"),
            epoch: family(registry, "node_grant_epoch", epoch),
            age: family_of(registry, "node_grant_age", Unit::Seconds, age),
            lease: bytes(registry, "node_lease", "What that client may use of its ring"),
        }
    }

    pub(super) fn fill(&self, node: &NodeSeen) {
        let labels = vec![("node", node.address.clone())];
        self.ready.get_or_create(&labels).set(node.found.is_some().into());
        let Some(NodeFound { survey, sessions }) = &node.found else { return };
        let kind = if survey.witness { "witness" } else { "storage" };
        let mut info = labels.clone();
        info.push(("name", node.name.clone()));
        info.push(("version", survey.version.clone()));
        info.push(("kind", kind.to_owned()));
        self.info.get_or_create(&info).set(1);
        if !survey.witness {
            self.space.get_or_create(&labels).set(survey.total_bytes);
            self.free.get_or_create(&labels).set(survey.free_bytes);
            self.ring.get_or_create(&labels).set(survey.ring_bytes);
            self.ring_used.get_or_create(&labels).set(survey.ring_used_bytes);
        }
        for has in SESSION_HAS {
            let count = sessions.iter().filter(|session| session_has(session) == has).count();
            let labels = [&labels[..], &[("has", has.to_owned())]].concat();
            self.sessions.get_or_create(&labels).set(count as u64);
        }
        // The newest of an array comes last.
        for session in sessions.iter().filter(|session| session.connected) {
            self.grant(&labels, session);
        }
    }

    fn grant(&self, labels: &Labels, session: &SessionInfo) {
        let Some((array, epoch)) = session.grant else { return };
        let labels = [&labels[..], &[("uuid", text_of_uuid(array))]].concat();
        self.epoch.get_or_create(&labels).set(epoch.0.into());
        self.age.get_or_create(&labels).set(session.age_ms / 1000);
        self.lease.get_or_create(&labels).set(session.ring_bytes);
    }
}
