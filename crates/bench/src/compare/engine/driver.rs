//! Requests as a virtual machine has them: over vhost-user, where fio has no engine.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::load::{EngineLoad, MIB, latencies, measure};
use crate::compare::rates::Figures;
use crate::failure::Failure;
use crate::rig::process::cpu_seconds;
use crate::rig::{Stack, VirtualDisk};

/// A disk over vhost-user, as the driver of a virtual machine uses it.
pub(super) struct Driver {
    disk: VirtualDisk,
    server: u32,
    area_bytes: u64,
}

impl Driver {
    /// The disk that is served there, all of whose area was written once.
    pub(super) fn on(stack: &Stack, area_bytes: u64) -> Result<Self, Failure> {
        let socket = stack.top.path();
        let refused = |why| Failure::refused(socket.display(), why, "see what its process says");
        let disk = VirtualDisk::connect(&socket).map_err(refused)?;
        let mut guest = Self { disk, server: stack.server.unwrap_or_default(), area_bytes };
        guest.fill().map_err(refused)?;
        Ok(guest)
    }

    /// Runs the load.
    pub(super) fn drive(&mut self, load: EngineLoad, length: Duration) -> Result<Figures, String> {
        let server = self.server;
        measure(length, || cpu_seconds(server), |length| self.ask_for(load, length))
    }

    /// Writes the area once, so that no hole is read.
    fn fill(&mut self) -> Result<(), String> {
        let mut slots = Vec::new();
        for number in 0..self.area_bytes / u64::from(MIB) {
            self.disk.begin(0, true, number * u64::from(MIB), MIB)?;
            self.disk.tell()?;
            self.disk.answers(&mut slots)?;
        }
        Ok(())
    }

    /// Makes requests; returns how long each took, and all of them.
    fn ask_for(
        &mut self,
        load: EngineLoad,
        length: Duration,
    ) -> Result<(Histogram<u64>, f64), String> {
        let Self { disk, area_bytes, .. } = self;
        let mut latencies = latencies();
        let begun = Instant::now();
        let mut made = vec![begun; load.depth];
        let mut number = 0;
        let mut begin = |disk: &mut VirtualDisk, slot| {
            number += 1;
            disk.begin(slot, load.writes, load.offset(number, *area_bytes), load.bytes)
        };
        let mut under_way = 0;
        for slot in (0..).take(load.depth) {
            begin(disk, slot)?;
            under_way += 1;
        }
        let mut answered = Vec::new();
        while under_way > 0 {
            disk.tell()?;
            disk.answers(&mut answered)?;
            let now = Instant::now();
            for slot in answered.drain(..) {
                let made = &mut made[usize::from(slot)];
                let nanos = u64::try_from((now - *made).as_nanos()).unwrap_or(u64::MAX);
                latencies.saturating_record(nanos);
                if now - begun < length {
                    *made = now;
                    begin(disk, slot)?;
                } else {
                    under_way -= 1;
                }
            }
        }
        Ok((latencies, begun.elapsed().as_secs_f64()))
    }
}
