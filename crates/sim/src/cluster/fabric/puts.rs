//! Buffers on their way: read, answered, put in place and announced, each at its own time.

use braid_array::action::Event;
use braid_array::fabric::FabricEvent;
use braid_array::{Buf, IoError, IoId, Outcome};

use crate::cluster::claims::Use;
use crate::cluster::due::{EndId, FabricDue};
use crate::cluster::network::{ConnectionEnd, EndState, Put};
use crate::cluster::process::POISON;
use crate::cluster::world::ClusterWorld;
use crate::fault::Mutation;

impl ClusterWorld {
    pub(super) fn put(&mut self, sender: EndId, io: IoId, from: Buf, to: Buf, imm: u32) {
        let process = self.network.end(sender).process;
        let peer = self.network.end(sender.other()).process;
        self.note(&[23, process as u64, io.0, to.offset, u64::from(imm)], || {
            let Buf { offset, len } = from;
            format!("process {process} puts {offset}+{len} to {peer} at {} imm {imm:#x}", to.offset)
        });
        let (source, conflict) = self.processes[process].claim(from, Use::Read, "a put");
        if let Some(conflict) = conflict {
            self.fault(process, &conflict);
        }
        if let Some(fault) = self.watch.put(sender, [process, peer], to) {
            self.fault(process, &fault);
        }
        let reachable =
            matches!(self.network.end(sender.other()).state, EndState::Waiting | EndState::Up);
        let target =
            reachable.then(|| self.processes[peer].claim(to, Use::Write, "a put's arrival"));
        if let Some((_, Some(conflict))) = &target {
            self.fault(process, &format!("at {}: {conflict}", self.processes[peer].name));
        }
        let number = self.network.puts.len();
        let end = to.offset.saturating_add(to.len.into());
        let window = self.network.end(sender.other()).window.clone();
        let window = window.unwrap_or_else(|| self.processes[peer].open_to_all.clone());
        let admitted = window.start <= to.offset && end <= window.end;
        if reachable && !admitted {
            self.fault(process, &format!("puts at {}..{end}, admitted to {window:?}", to.offset));
            self.break_connection(sender.connection);
        }
        let over = !reachable || !admitted || !self.processes[peer].has(to);
        self.network.puts.push(Put {
            sender,
            io,
            from,
            to,
            imm,
            bytes: Vec::new(),
            source: Some(source),
            target: target.map(|(id, _)| id),
            done: false,
            over,
        });
        if over {
            self.forget_put(number);
        }
        if self.rng.percent(30) {
            self.put_read(number);
        } else {
            self.later(FabricDue::PutRead(number));
        }
    }

    pub(super) fn put_read(&mut self, number: usize) {
        let Put { sender, from, to, over, done, .. } = self.network.puts[number];
        let process = self.network.end(sender).process;
        let peer = self.network.end(sender.other()).process;
        if !self.processes[process].alive {
            self.forget_put(number);
        }
        if done || !self.processes[process].alive {
            return;
        }
        self.network.puts[number].bytes = self.processes[process].bytes(from).to_vec();
        self.later(FabricDue::PutDone(number));
        if over {
            return;
        }
        if self.rng.percent(50) && self.processes[peer].alive {
            self.processes[peer].bytes(to).fill(POISON);
        }
        self.later(FabricDue::PutLand(number));
    }

    pub(super) fn put_done(&mut self, number: usize, ok: bool) -> Option<(usize, Event)> {
        let Put { sender, io, done, .. } = self.network.puts[number];
        let process = self.network.end(sender).process;
        if done || !self.processes[process].alive {
            return None;
        }
        self.network.puts[number].done = true;
        if let Some(id) = self.network.puts[number].source.take() {
            self.processes[process].claims.release(id);
        }
        let result = if ok { Ok(Outcome::Done) } else { Err(IoError::GONE) };
        self.note(&[26, process as u64, io.0], || {
            format!("process {process} has put io {}: {result:?}", io.0)
        });
        Some((process, Event::Done { io, result }))
    }

    pub(super) fn put_land(&mut self, number: usize) -> Option<(usize, Event)> {
        if self.network.puts[number].over {
            return None;
        }
        let Put { sender, to, .. } = self.network.puts[number];
        let peer = self.network.end(sender.other()).process;
        let bytes = std::mem::take(&mut self.network.puts[number].bytes);
        let lost = self.mutates(Mutation::LosePut, 100) || !self.processes[peer].alive;
        if !lost {
            self.processes[peer].bytes(to).copy_from_slice(&bytes);
        }
        if self.rng.percent(60) {
            return self.put_placed(number);
        }
        self.later(FabricDue::PutPlaced(number));
        None
    }

    pub(super) fn put_placed(&mut self, number: usize) -> Option<(usize, Event)> {
        let Put { sender, to, imm, over, .. } = self.network.puts[number];
        let ConnectionEnd { process, peer, state, .. } = *self.network.end(sender.other());
        if over {
            return None;
        }
        if state == EndState::Waiting {
            self.later(FabricDue::PutPlaced(number));
            return None;
        }
        self.forget_put(number);
        self.note(&[27, process as u64, to.offset, u64::from(imm)], || {
            format!("process {process} got {}+{} imm {imm:#x}", to.offset, to.len)
        });
        let event = FabricEvent::Placed { peer, imm };
        Some((process, Event::Fabric(event)))
    }

    /// Ends a put: its remaining steps do not reach the receiver.
    pub(super) fn forget_put(&mut self, number: usize) {
        self.network.puts[number].over = true;
        let receiver = self.network.puts[number].sender.other();
        let process = self.network.end(receiver).process;
        if let Some(id) = self.network.puts[number].target.take() {
            self.processes[process].claims.release(id);
        }
    }

    /// A connection breaks: both ends hear of it, each in its own time.
    pub fn break_connection(&mut self, connection: usize) {
        self.note(&[29, connection as u64], || format!("BREAK connection {connection}"));
        self.later(FabricDue::Cut(EndId { connection, end: 0 }));
        self.later(FabricDue::Cut(EndId { connection, end: 1 }));
    }
}
