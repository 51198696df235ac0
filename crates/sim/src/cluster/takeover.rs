//! The array is taken over from a client that runs.

use std::collections::BTreeSet;

use braid_array::Action;
use braid_array::action::Event;
use braid_array::fabric::{FabricEvent, FabricOp, PeerId};
use braid_cluster::wire::Message;

use super::content::ARRAY;
use super::promises::Happened;
use super::session::{FencedClient, Phase, Session};
use crate::report::Failure;
use crate::world::script;

impl Session {
    /// Leaves the client running, for a takeover by another client. A client that does not serve
    /// yet is killed: it would legally take the array back.
    pub fn leave_running(&mut self) {
        if self.phase != Phase::Serving {
            return self.crash();
        }
        self.promises.heard(Happened::ClientGone);
        self.suspects.crash();
        self.cluster.note(&[54], || "TAKE OVER".to_owned());
        self.fenced.push(FencedClient { process: self.client, strays: false, told: false });
    }

    /// Grants an epoch to no client on all nodes, so that the running client is fenced. A client
    /// that takes an array over does the same first, and then reads the volumes.
    pub(super) fn fence(&mut self) -> Result<(), Failure> {
        self.cluster.epoch = self.cluster.epoch.next();
        let epoch = self.cluster.epoch;
        let client = self.cluster.rng.next();
        let grant = Message::Grant { tag: 1, array: ARRAY, epoch, client }.encode(epoch);
        let nodes = u32::from(self.cluster.scenario.params.nodes);
        let connect = |number| {
            let address = format!("n{number}");
            Action::Fabric(FabricOp::Connect { peer: PeerId(number), address })
        };
        let rule = move |event: &Event| match event {
            Event::Fabric(FabricEvent::Connected { peer }) => {
                vec![Action::Fabric(FabricOp::Send { peer: *peer, bytes: grant.clone() })]
            }
            _ => Vec::new(),
        };
        let begin = (0..nodes).map(connect).collect();
        let (fence, heard) = script::start(&mut self.cluster.world, "a fence", 0, begin, rule);
        let answered = |event: &Event| match event {
            Event::Fabric(FabricEvent::Message { peer, .. } | FabricEvent::Lost { peer, .. }) => {
                Some(*peer)
            }
            _ => None,
        };
        let is_over = || {
            let heard = heard.lock().expect("no panic while it is held");
            heard.iter().filter_map(answered).collect::<BTreeSet<PeerId>>().len() == nodes as usize
        };
        self.until("nodes do not answer who takes an array over", |_| is_over())?;
        self.cluster.world.kill(fence);
        Ok(())
    }
}
