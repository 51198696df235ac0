//! Clients that are taken over while they are at work, and keep trying.

use std::collections::BTreeSet;

use braid_array::Action;
use braid_array::action::Event;
use braid_array::events::ArrayEvent;
use braid_array::fabric::{FabricEvent, FabricOp, PeerId};
use braid_cluster::wire::Message;

use super::promises::Happened;
use super::script;
use super::session::{ARRAY, Phase, Session};
use crate::oracle::Range;
use crate::report::Failure;
use crate::workload::Kind;

/// Requests from here on are begun when the next client serves already.
const STRAY: u64 = 1 << 32;

/// A fenced client: another client has taken its array over, or is about to. Writes answered before
/// the takeover are kept; later ones must not land. [`Session::leave_running`] fences the running
/// client. The fenced client may write once more: after its successor serves, that write must not
/// succeed. The fenced client must notice the takeover.
#[derive(Debug)]
pub(super) struct FencedClient {
    process: usize,
    /// Set while a write is under way that must not land.
    strays: bool,
    /// Set after the client has noticed the takeover.
    told: bool,
}

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

    /// Cuts the power of the fenced clients.
    pub fn kill_fenced(&mut self) {
        for fenced in std::mem::take(&mut self.fenced) {
            self.cluster.world.kill(fenced.process);
            self.judge.client_ends(fenced.process);
        }
    }

    /// Writes once more by the last fenced client. Before the next client serves, the write may
    /// still succeed; afterwards it must not land.
    pub fn write_as_fenced(&mut self, range: Range) {
        let Some(at) = self.fenced.len().checked_sub(1) else { return };
        let fenced = &self.fenced[at];
        let process = fenced.process;
        if fenced.strays || fenced.told {
            return;
        }
        let kind = Kind::Write { fua: false };
        let now = self.cluster.world.now();
        let client = &mut self.cluster.world.processes[process];
        let draft = self.judge.draft(process, kind, range, &mut client.arena);
        let Some(mut draft) = draft else { return };
        let strays = self.phase == Phase::Serving;
        draft.request.id.0 += if strays { STRAY } else { 0 };
        if client.client().submit(now, draft.request).is_err() {
            return;
        }
        let Range { sector, sectors } = range;
        let id = draft.request.id;
        let serial = draft.serial;
        self.cluster.note(&[55, id.0, sector, sectors], || {
            format!("FENCED CLIENT WRITES {sector}+{sectors} serial {serial}, stray {strays}")
        });
        if strays {
            self.fenced[at].strays = true;
        } else {
            self.begin(process, draft, false);
        }
        self.cluster.world.drain(process);
    }

    /// Handles an action of a fenced client; returns false for other processes.
    pub fn fenced_says(&mut self, process: usize, action: &Action) -> Result<bool, Failure> {
        let fenced = self.fenced.iter_mut().find(|fenced| fenced.process == process);
        let Some(fenced) = fenced else { return Ok(false) };
        match action {
            Action::Notify(ArrayEvent::TakenOver) => fenced.told = true,
            Action::Complete { id, result } if id.0 >= STRAY => {
                fenced.strays = false;
                if result.is_ok() {
                    return Err(Failure("a write is answered after a takeover".to_owned()));
                }
            }
            Action::Complete { id, result } => {
                let flight = self.judge.answered(process, *id)?;
                let kind = flight.kind;
                self.cluster.note(&[56, id.0, u64::from(result.is_ok())], || {
                    format!("FENCED CLIENT'S #{} {kind:?}: {result:?}", id.0)
                });
                // What it has read may have been old already.
                self.conclude(&flight, *result, None)?;
            }
            _ => {}
        }
        Ok(true)
    }

    /// Checks that all fenced clients have noticed the takeover. Call it when no message is under
    /// way.
    pub fn fenced_know(&self) -> Result<(), Failure> {
        if self.fenced.iter().all(|fenced| fenced.told) {
            Ok(())
        } else {
            Err(Failure("a client does not hear that its array is taken".to_owned()))
        }
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
