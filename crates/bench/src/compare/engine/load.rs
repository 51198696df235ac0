//! Requests of the engine's own thread, so many at a time, and how long each took.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::compare::named;
use crate::compare::rates::Figures;
use crate::compare::requests::Requests;
use crate::failure::Failure;
use crate::model::Note;
use crate::rig::process::cpu_seconds;
use crate::rig::{Stack, VirtualDisk};

const KIB: u32 = 1024;
pub(super) const MIB: u32 = 1024 * KIB;
/// Lengths of requests, and so many at a time.
const LOADS: [(u32, usize); 6] =
    [(4 * KIB, 1), (4 * KIB, 32), (64 * KIB, 1), (64 * KIB, 32), (MIB, 1), (MIB, 8)];

/// The name under which each run keeps what was measured.
pub(super) const OUTPUT: &str = "engine.json";

/// Latencies are counted in nanoseconds, to three digits, up to this.
const LONGEST_NANOS: u64 = 60_000_000_000;

pub(super) fn loads() -> impl Iterator<Item = Requests> {
    [false, true].into_iter().flat_map(|writes| {
        LOADS.into_iter().map(move |(bytes, depth)| Requests::one_way(writes, bytes, depth))
    })
}

/// Runs the load of this name, and keeps the measurement.
pub(super) fn keep(
    job: &str,
    note: &mut Note,
    drive: impl FnOnce(Requests) -> Result<Figures, String>,
) -> Result<(), Failure> {
    let load = named(loads(), job)?;
    let measured = drive(load)
        .map_err(|reason| Failure::refused(job, reason, "see the kernel's log for why"))?;
    note.file(OUTPUT, serde_json::to_vec_pretty(&measured).unwrap_or_default());
    Ok(())
}

/// Sends requests for this time, after a warm-up of a tenth of it.
pub(super) fn measure(
    length: Duration,
    server_cpu_s: impl Fn() -> Option<f64>,
    mut ask_for: impl FnMut(Duration) -> Result<(Histogram<u64>, f64), String>,
) -> Result<Figures, String> {
    ask_for(length / 10)?;
    let before = server_cpu_s();
    let (latencies, seconds) = ask_for(length)?;
    let cpu_s = before.zip(server_cpu_s()).map(|(before, now)| (now - before).max(0.0));
    let percentile = |of: f64| Some(latencies.value_at_quantile(of) as f64 / 1000.0);
    let requests = latencies.len() as f64;
    Ok(Figures {
        requests,
        iops: requests / seconds,
        cpu_s,
        p50_us: percentile(0.5),
        p99_us: percentile(0.99),
        p999_us: percentile(0.999),
    })
}

pub(super) fn latencies() -> Histogram<u64> {
    Histogram::new_with_max(LONGEST_NANOS, 3).expect("three digits up to a minute")
}

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

    pub(super) fn drive(&mut self, load: Requests, length: Duration) -> Result<Figures, String> {
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
        load: Requests,
        length: Duration,
    ) -> Result<(Histogram<u64>, f64), String> {
        let Self { disk, area_bytes, .. } = self;
        let mut latencies = latencies();
        let begun = Instant::now();
        let mut made = vec![begun; load.depth];
        let mut number = 0;
        let mut begin = |disk: &mut VirtualDisk, slot| {
            number += 1;
            disk.begin(slot, load.writes(), load.offset(number, *area_bytes), load.bytes)
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
