//! Who is about to take an array over has its nodes grant it first, and looks then at what lies on
//! them: until then the client that is at work may change it.

use std::collections::{BTreeSet, VecDeque};

use braid_array::action::Event;
use braid_array::fabric::{FabricEvent, FabricOp, PeerId};
use braid_array::{Action, AnyMachine, Instant, Machine};
use braid_cluster::wire::Message;

use super::process::Process;
use super::session::{ARRAY, Session};
use crate::report::Failure;

/// Asks nodes for an epoch, and does nothing with it.
#[derive(Debug)]
struct Fence {
    epoch: u32,
    client: u64,
    /// Nodes that have not answered.
    left: BTreeSet<PeerId>,
    actions: VecDeque<Action>,
}

impl Fence {
    fn new(epoch: u32, client: u64, nodes: u16) -> Self {
        let left: BTreeSet<PeerId> = (0..u32::from(nodes)).map(PeerId).collect();
        let connect = |&peer: &PeerId| {
            let address = format!("n{}", peer.0);
            Action::Fabric(FabricOp::Connect { peer, address })
        };
        Self { epoch, client, actions: left.iter().map(connect).collect(), left }
    }
}

impl Machine for Fence {
    fn handle(&mut self, _now: Instant, event: Event) {
        match event {
            Event::Fabric(FabricEvent::Connected { peer }) => {
                let array = ARRAY;
                let epoch = self.epoch;
                let client = self.client;
                let bytes = Message::Grant { tag: 1, array, epoch, client }.encode(epoch);
                self.actions.push_back(Action::Fabric(FabricOp::Send { peer, bytes }));
            }
            Event::Fabric(FabricEvent::Message { peer, .. } | FabricEvent::Lost { peer, .. }) => {
                self.left.remove(&peer);
            }
            _ => {}
        }
    }

    fn poll(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn idle(&self) -> bool {
        self.left.is_empty()
    }

    fn invariants(&self) -> Result<(), String> {
        Ok(())
    }
}

impl Session {
    /// Has all nodes grant an epoch to nobody, so that the client at work is none any more.
    pub(super) fn fence(&mut self) -> Result<(), Failure> {
        self.cluster.epoch += 1;
        let fence = Fence::new(
            self.cluster.epoch,
            self.cluster.rng.next(),
            self.cluster.scenario.params.nodes,
        );
        let machine = AnyMachine::Plain(Box::new(fence));
        let process = Process::new("a fence".to_owned(), machine, 0, None);
        let fence = self.cluster.world.start(process);
        while !self.cluster.world.processes[fence].machine.idle() {
            if !self.step()? {
                return Err(Failure("nodes do not answer who takes an array over".to_owned()));
            }
        }
        self.cluster.world.kill(fence);
        Ok(())
    }
}
