//! Buffers on their way: read, answered, put in place and announced, each at its own time.

use braid_array::action::Event;
use braid_array::fabric::FabricEvent;
use braid_array::{Buf, IoError, IoId, Outcome};

use crate::fault::Mutation;
use crate::world::claims::Use;
use crate::world::due::{EndId, FabricDue};
use crate::world::ground::Ground;
use crate::world::network::{ConnectionEnd, EndState, Network, Put};
use crate::world::process::POISON;

impl Network {
    pub(super) fn put(
        &mut self,
        ground: &mut Ground,
        sender: EndId,
        io: IoId,
        from: Buf,
        to: Buf,
        imm: u32,
    ) {
        let process = self.end(sender).process;
        let peer = self.end(sender.other()).process;
        ground.note(&[23, process as u64, io.0, to.offset, u64::from(imm)], || {
            let Buf { offset, len } = from;
            format!("process {process} puts {offset}+{len} to {peer} at {} imm {imm:#x}", to.offset)
        });
        let source = ground.claim(process, from, Use::Read, "a put");
        if let Some(fault) = self.watch.put(sender, [process, peer], to) {
            ground.fault(process, &fault);
        }
        let reachable = matches!(self.end(sender.other()).state, EndState::Waiting | EndState::Up);
        let target =
            reachable.then(|| ground.processes[peer].claim(to, Use::Write, "a put's arrival"));
        if let Some((_, Some(conflict))) = &target {
            ground.fault(process, &format!("at {}: {conflict}", ground.processes[peer].name));
        }
        let number = self.puts.len();
        let end = to.offset.saturating_add(to.len.into());
        let window = self.end(sender.other()).window.clone();
        let window = window.unwrap_or_else(|| ground.processes[peer].open_to_all.clone());
        let admitted = window.start <= to.offset && end <= window.end;
        if reachable && !admitted {
            ground.fault(process, &format!("puts at {}..{end}, admitted to {window:?}", to.offset));
            self.break_connection(ground, sender.connection);
        }
        let over = !reachable || !admitted || !ground.processes[peer].has(to);
        self.puts.push(Put {
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
            self.forget_put(ground, number);
        }
        if ground.rng.percent(30) {
            self.put_read(ground, number);
        } else {
            ground.later(FabricDue::PutRead(number));
        }
    }

    pub(super) fn put_read(&mut self, ground: &mut Ground, number: usize) {
        let Put { sender, from, to, over, done, .. } = self.puts[number];
        let process = self.end(sender).process;
        let peer = self.end(sender.other()).process;
        if !ground.processes[process].alive {
            self.forget_put(ground, number);
        }
        if done || !ground.processes[process].alive {
            return;
        }
        self.puts[number].bytes = ground.processes[process].bytes(from).to_vec();
        ground.later(FabricDue::PutDone(number));
        if over {
            return;
        }
        if ground.rng.percent(50) && ground.processes[peer].alive {
            ground.processes[peer].bytes(to).fill(POISON);
        }
        ground.later(FabricDue::PutLand(number));
    }

    pub(super) fn put_done(
        &mut self,
        ground: &mut Ground,
        number: usize,
        ok: bool,
    ) -> Option<(usize, Event)> {
        let Put { sender, io, done, .. } = self.puts[number];
        let process = self.end(sender).process;
        if done || !ground.processes[process].alive {
            return None;
        }
        self.puts[number].done = true;
        if let Some(id) = self.puts[number].source.take() {
            ground.processes[process].claims.release(id);
        }
        let result = if ok { Ok(Outcome::Done) } else { Err(IoError::GONE) };
        ground.note(&[26, process as u64, io.0], || {
            format!("process {process} has put io {}: {result:?}", io.0)
        });
        Some((process, Event::Done { io, result }))
    }

    pub(super) fn put_land(
        &mut self,
        ground: &mut Ground,
        number: usize,
    ) -> Option<(usize, Event)> {
        if self.puts[number].over {
            return None;
        }
        let Put { sender, to, .. } = self.puts[number];
        let peer = self.end(sender.other()).process;
        let bytes = std::mem::take(&mut self.puts[number].bytes);
        let lost = ground.mutates(Mutation::LosePut, 100) || !ground.processes[peer].alive;
        if !lost {
            ground.processes[peer].bytes(to).copy_from_slice(&bytes);
        }
        if ground.rng.percent(60) {
            return self.put_placed(ground, number);
        }
        ground.later(FabricDue::PutPlaced(number));
        None
    }

    pub(super) fn put_placed(
        &mut self,
        ground: &mut Ground,
        number: usize,
    ) -> Option<(usize, Event)> {
        let Put { sender, to, imm, over, .. } = self.puts[number];
        let ConnectionEnd { process, peer, state, .. } = *self.end(sender.other());
        if over {
            return None;
        }
        if state == EndState::Waiting {
            ground.later(FabricDue::PutPlaced(number));
            return None;
        }
        self.forget_put(ground, number);
        ground.note(&[27, process as u64, to.offset, u64::from(imm)], || {
            format!("process {process} got {}+{} imm {imm:#x}", to.offset, to.len)
        });
        let event = FabricEvent::Placed { peer, imm };
        Some((process, Event::Fabric(event)))
    }

    /// Ends a put: its remaining steps do not reach the receiver.
    pub(super) fn forget_put(&mut self, ground: &mut Ground, number: usize) {
        self.puts[number].over = true;
        let receiver = self.puts[number].sender.other();
        let process = self.end(receiver).process;
        if let Some(id) = self.puts[number].target.take() {
            ground.processes[process].claims.release(id);
        }
    }

    /// A connection breaks: both ends hear of it, each in its own time.
    pub(crate) fn break_connection(&mut self, ground: &mut Ground, connection: usize) {
        ground.note(&[29, connection as u64], || format!("BREAK connection {connection}"));
        ground.later(FabricDue::Cut(EndId { connection, end: 0 }));
        ground.later(FabricDue::Cut(EndId { connection, end: 1 }));
    }
}
