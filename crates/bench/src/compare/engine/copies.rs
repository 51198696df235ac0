//! What memory itself gives: one thread that copies between an area and the buffers of requests,
//! with nothing of an array between. No engine of one thread over memory can do more.

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::load::{Load, keep};
use crate::compare::figures::Figures;
use crate::failure::Failure;
use crate::model::{Note, Standing};
use crate::rig::talk::cpu_seconds;

/// The clock is read after so much, as often as it costs nothing.
const BETWEEN_BYTES: u32 = 1 << 20;

/// An area to copy from and to.
pub(super) struct Copies {
    area: Vec<u8>,
    length: Duration,
}

impl Copies {
    /// All of the area was written once.
    pub(super) fn new(area_bytes: u64, length: Duration) -> Self {
        Self { area: vec![0xb7; usize::try_from(area_bytes).unwrap_or(0)], length }
    }

    fn drive(&mut self, load: Load) -> Figures {
        let bytes = load.bytes as usize;
        let mut buffers = vec![vec![0xb7; bytes]; load.depth];
        let at_a_time = u64::from((BETWEEN_BYTES / load.bytes).max(1));
        let mut number = 0;
        let before = cpu_seconds("thread-self");
        let begun = Instant::now();
        while begun.elapsed() < self.length {
            for number in number..number + at_a_time {
                let at = load.offset(number, self.area.len() as u64) as usize;
                let there = &mut self.area[at..at + bytes];
                let buffer = &mut buffers[number as usize % load.depth];
                if load.writes {
                    there.copy_from_slice(black_box(buffer));
                } else {
                    black_box(buffer).copy_from_slice(there);
                }
            }
            number += at_a_time;
        }
        let seconds = begun.elapsed().as_secs_f64();
        let cpu_s = before.zip(cpu_seconds("thread-self")).map(|(before, now)| now - before);
        let requests = number as f64;
        let [p50_us, p99_us, p999_us] = [None; 3];
        Figures { requests, iops: requests / seconds, cpu_s, p50_us, p99_us, p999_us }
    }
}

impl Standing for Copies {
    fn run(&mut self, job: &str, note: &mut Note) -> Result<(), Failure> {
        keep(job, note, |load| Ok(self.drive(load)))
    }
}
