//! Detection of faults by the messages between machines.

use std::collections::{BTreeMap, BTreeSet};

use braid_array::{Buf, Role};
use braid_cluster::ids::Position;
use braid_cluster::program::Output;
use braid_cluster::wire::Message;
use braid_cluster::{Pipeline, Set};

use super::due::EndId;

/// A node's part of a pipeline.
#[derive(Clone, Copy, Debug)]
struct Ring {
    role: Role,
    /// Where it begins in the node's arena, once said.
    start: Option<u64>,
    /// All of it may be used; the tag of the message that asks for that.
    whole: bool,
    asked: Option<u32>,
}

/// Findings about a message.
#[derive(Debug, Default)]
pub struct MessageFindings {
    /// The message, when it is one.
    pub message: Option<Message>,
    /// Buffers in the sender's arena that are no longer needed.
    pub free: Vec<Buf>,
    /// Fault of the message.
    pub fault: Option<String>,
}

/// Bytes that went out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// In puts.
    pub put_bytes: u64,
    /// In messages.
    pub message_bytes: u64,
    /// Number of messages.
    pub messages: u64,
}

/// State of the pipelines as seen in the messages between machines: location and leased part of the
/// rings, slots used by open slice-sets, and the bytes sent by each process. Forbidden writes are
/// detected with it. The fabric calls [`said`](Self::said) for each message and [`put`](Self::put)
/// for each put; either may return a fault.
#[derive(Debug, Default)]
pub struct Watch {
    pipelines: BTreeMap<u64, Pipeline>,
    /// By process and session.
    rings: BTreeMap<(usize, u64), Ring>,
    /// By connection: which session it belongs to, and of nodes the two.
    sessions: BTreeMap<usize, u64>,
    /// Connections to clients.
    clients: BTreeSet<usize>,
    /// By process, session and position.
    open: BTreeMap<(usize, u64, Position), Set>,
    /// Slice-sets relayed by nodes, by process, session and position. Some never arrive: a
    /// node that was frozen sends to a node that has hung up.
    relayed: BTreeMap<(usize, u64, Position), Set>,
    /// By process.
    sent: BTreeMap<usize, Sent>,
}

impl Ring {
    /// Follows messages about the lease of the ring.
    const fn hears(&mut self, message: &Message) {
        match (message, self.asked) {
            (Message::LeaseRing { tag }, _) => self.asked = Some(*tag),
            (Message::Ok { tag }, Some(asked)) if asked == *tag => self.whole = true,
            (Message::ReturnRing { .. }, _) => (self.whole, self.asked) = (false, None),
            _ => {}
        }
    }
}

impl Watch {
    /// Returns the amounts sent by this process.
    pub fn sent(&self, process: usize) -> Sent {
        self.sent.get(&process).copied().unwrap_or_default()
    }

    /// Examines a message on a connection; `processes` are the sender and the receiver.
    pub fn said(&mut self, sender: EndId, processes: [usize; 2], bytes: &[u8]) -> MessageFindings {
        let [from, to] = processes;
        let sent = self.sent.entry(from).or_default();
        sent.messages += 1;
        sent.message_bytes += bytes.len() as u64;
        let mut told = MessageFindings::default();
        let message = match Message::decode(bytes) {
            Ok((_, message)) => message,
            Err(error) => {
                told.fault = Some(format!("says {error}"));
                return told;
            }
        };
        let session = self.sessions.get(&sender.connection).copied();
        match (&message, session) {
            (Message::OpenPipeline { role, params, .. }, _) => {
                self.sessions.insert(sender.connection, params.session);
                self.clients.insert(sender.connection);
                // What was open before, on a connection that is over, is not any more.
                self.open.retain(|(at, session, _), _| (*at, *session) != (to, params.session));
                self.rings.insert(
                    (to, params.session),
                    Ring { role: *role, start: None, whole: false, asked: None },
                );
                match Pipeline::new(*params) {
                    Ok(pipeline) => drop(self.pipelines.insert(params.session, pipeline)),
                    Err(error) => told.fault = Some(format!("prepares what cannot be: {error}")),
                }
            }
            (Message::PipelineReady { ring, .. }, Some(session)) => {
                if let Some(own) = self.rings.get_mut(&(from, session)) {
                    own.start = Some(*ring);
                }
            }
            (
                Message::LeaseRing { .. } | Message::Ok { .. } | Message::ReturnRing { .. },
                Some(session),
            ) => {
                let node = if matches!(message, Message::Ok { .. }) { from } else { to };
                if let Some(own) = self.rings.get_mut(&(node, session)) {
                    own.hears(&message);
                }
            }
            (Message::Read { slot, .. }, Some(session)) => {
                let beyond = |pipeline: &Pipeline| slot.0 >= pipeline.base_reads();
                told.fault = self.beyond(to, session, beyond);
            }
            (Message::Join { session, .. }, _) => {
                self.sessions.insert(sender.connection, *session);
            }
            (Message::BeginSet { set }, Some(session)) => {
                told.fault = self.opened(sender, (to, session), set);
            }
            // Its slots are kept.
            (Message::Finished { no_room: true, .. }, _) => {}
            (Message::Finished { position, generation, .. }, Some(session)) => {
                let place = (from, session, *position);
                let relayed = self.relayed.remove(&place);
                match self.open.remove(&place).or(relayed) {
                    Some(set) if set.generation == *generation => {
                        told.free = self.slots(from, session, &set);
                    }
                    other => told.fault = Some(format!("closes position {position}: {other:?}")),
                }
            }
            _ => {}
        }
        told.message = Some(message);
        told
    }

    /// Handles the opening of a slice-set at another process; returns its fault.
    fn opened(&mut self, sender: EndId, (to, session): (usize, u64), set: &Set) -> Option<String> {
        let place = (to, session, set.position);
        if !self.clients.contains(&sender.connection) {
            self.relayed.insert(place, set.clone());
            return None;
        }
        let before = self.open.insert(place, set.clone());
        let beyond = |pipeline: &Pipeline| !pipeline.base().contains(&set.position);
        // The client says so as well where what another node relays may not arrive.
        let other = before.filter(|known| known.generation != set.generation);
        let twice = other.map(|set| format!("opens position {} twice", set.position));
        twice.or_else(|| self.beyond(to, session, beyond))
    }

    /// A client uses something that may lie beyond the base, where only that is granted.
    fn beyond(
        &self,
        node: usize,
        session: u64,
        beyond: impl Fn(&Pipeline) -> bool,
    ) -> Option<String> {
        let granted = self.rings.get(&(node, session))?.whole;
        let beyond = beyond(self.pipelines.get(&session)?);
        (beyond && !granted).then(|| "uses what was not granted".to_owned())
    }

    /// All slots that a slice-set may have used on a node.
    fn slots(&mut self, process: usize, session: u64, set: &Set) -> Vec<Buf> {
        let Some(Ring { role, start: Some(start), .. }) =
            self.rings.get(&(process, session)).copied()
        else {
            return Vec::new();
        };
        let Some(pipeline) = self.pipelines.get_mut(&session) else { return Vec::new() };
        let Some(plan) = pipeline.plan_of(set) else { return Vec::new() };
        let transfers = plan.schedule.transfers().iter().enumerate();
        let own = transfers.filter(|(_, transfer)| transfer.to == role);
        let mut slots: Vec<Buf> =
            own.map(|(number, _)| pipeline.arrival(&plan, set, number)).collect();
        if plan.chains.is_some() {
            slots.extend((0..pipeline.rows()).map(|row| pipeline.idle(set, role, row)));
        }
        let part = plan.part(role, set.strategy, &set.touched);
        let fresh = part.steps().iter().filter(|step| step.output == Output::Fresh).count();
        slots.extend((0..fresh as u32).map(|number| pipeline.fresh(set, role, number)));
        slots.extend((0..pipeline.rows()).map(|row| pipeline.old(set, role, row)));
        slots.iter().map(|slot| Buf { offset: start + slot.offset, ..*slot }).collect()
    }

    /// Examines a put to another process; returns its fault.
    pub fn put(&mut self, sender: EndId, processes: [usize; 2], to: Buf) -> Option<String> {
        let [from, receiver] = processes;
        self.sent.entry(from).or_default().put_bytes += u64::from(to.len);
        let session = self.sessions.get(&sender.connection)?;
        let ring = self.rings.get(&(receiver, *session))?;
        let Some(start) = ring.start else {
            return Some("a put to a node that is not prepared".to_owned());
        };
        let bytes = self.pipelines.get(session)?.ring_bytes(ring.role);
        let end = to.offset + u64::from(to.len);
        (to.offset < start || end > start + bytes).then(|| {
            format!("a put at {}+{} beside the ring at {start}+{bytes}", to.offset, to.len)
        })
    }
}
