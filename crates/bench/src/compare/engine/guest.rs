//! Requests as a virtual machine has them: over vhost-user, where fio has no engine.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::load::{Load, MIB, keep, latencies, measure};
use crate::compare::under_fio::{Served, Target, Under, forgive};
use crate::failure::Failure;
use crate::model::{Note, Standing};
use crate::rig::VirtualDisk;
use crate::rig::talk::cpu_seconds;

/// A disk over vhost-user, the process that serves it, and what lies below.
pub(super) struct Guest {
    disk: VirtualDisk,
    server: u32,
    area_bytes: u64,
    length: Duration,
    commands: Vec<String>,
    _under: Under,
    /// It is somebody else's fault if it fails: the others go on.
    forgiven: bool,
}

impl Guest {
    /// What is served there, all of it written once.
    pub(super) fn filled(
        served: Served,
        area_bytes: u64,
        length: Duration,
    ) -> Result<Self, Failure> {
        let Served { target, server, commands, under } = served;
        let Target::VhostUser(socket) = target else { unreachable!("it is served so") };
        let refused = |why| Failure::refused(socket.display(), why, "see what its process says");
        let disk = VirtualDisk::connect(&socket).map_err(refused)?;
        let mut guest = Self {
            disk,
            server: server.unwrap_or_default(),
            area_bytes,
            length,
            commands,
            _under: under,
            forgiven: false,
        };
        guest.fill().map_err(refused)?;
        Ok(guest)
    }

    /// What goes wrong with it leaves a gap.
    pub(super) fn forgiven(self) -> Self {
        Self { forgiven: true, ..self }
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

    /// How long each request took, and all of them.
    fn ask_for(&mut self, load: Load, length: Duration) -> Result<(Histogram<u64>, f64), String> {
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

impl Standing for Guest {
    fn run(&mut self, job: &str, note: &mut Note) -> Result<(), Failure> {
        note.commands.append(&mut self.commands);
        let length = self.length;
        let server = self.server;
        let cpu_s = || cpu_seconds(server);
        let run =
            keep(job, note, |load| measure(length, cpu_s, |length| self.ask_for(load, length)));
        if self.forgiven { run.map_err(forgive) } else { run }
    }
}
