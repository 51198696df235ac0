//! Rates of xor and P+Q on one core; with the feature `isal` beside Intel's ISA-L, alternating in
//! one run so that both meet the same weather.
//!
//!     make bench-parity
//!
//! A rate is data bytes read per second. The bound first: from the second-level cache a core of
//! this kind loads one 64-byte line in a cycle, and every byte is loaded once; cold, the bound is
//! the memory, and all kernels tie. Warm repeats one stripe, cold walks over an arena many times
//! the last-level cache.

use std::hint::black_box;
use std::time::{Duration, Instant};

use braid_parity::Kernels;

const ARENA_BYTES: usize = 256 << 20;
const PAGE_BYTES: usize = 4096;
const MAX_STRIPS: usize = 16;
const REPETITIONS: usize = 13;
const REPETITION: Duration = Duration::from_millis(16);

#[derive(Clone, Copy)]
enum Operation {
    Xor,
    Pq,
}

/// One line of the table.
#[derive(Clone, Copy)]
struct Cell {
    operation: Operation,
    data: usize,
    strip_bytes: usize,
    cold: bool,
}

impl Cell {
    fn parities(self) -> usize {
        match self.operation {
            Operation::Xor => 1,
            Operation::Pq => 2,
        }
    }

    fn stripe_bytes(self) -> usize {
        (self.data + self.parities()) * self.strip_bytes
    }
}

/// Who computes: one parity of the data, or P and Q.
type Compute = fn(data: &[&[u8]], parity: &mut [&mut [u8]]);

fn ours(data: &[&[u8]], parity: &mut [&mut [u8]]) {
    match parity {
        [p] => braid_parity::xor(p, data),
        [p, q] => braid_parity::pq(p, q, data),
        _ => unreachable!("one parity or two"),
    }
}

#[cfg(feature = "isal")]
mod isal {
    use std::ffi::{c_int, c_void};

    use super::MAX_STRIPS;

    #[link(name = "isal")]
    unsafe extern "C" {
        fn xor_gen(vects: c_int, len: c_int, array: *mut *mut c_void) -> c_int;
        fn pq_gen(vects: c_int, len: c_int, array: *mut *mut c_void) -> c_int;
    }

    pub(crate) fn compute(data: &[&[u8]], parity: &mut [&mut [u8]]) {
        let mut array = [std::ptr::null_mut::<c_void>(); MAX_STRIPS];
        let data_starts = data.iter().map(|strip| strip.as_ptr().cast_mut().cast());
        let parity_starts = parity.iter_mut().map(|strip| strip.as_mut_ptr().cast());
        let starts = data_starts.chain(parity_starts);
        array.iter_mut().zip(starts).for_each(|(pointer, start)| *pointer = start);
        let len = c_int::try_from(data[0].len()).expect("strips are short");
        let vects = c_int::try_from(data.len() + parity.len()).expect("strips are few");
        // SAFETY: `array` holds `vects` pointers to distinct buffers of `len` bytes, cut from pages
        // and so aligned to the 32 bytes that ISA-L asks for. It writes the last one or two only.
        let failed = unsafe {
            match parity.len() {
                1 => xor_gen(vects, len, array.as_mut_ptr()),
                _ => pq_gen(vects, len, array.as_mut_ptr()),
            }
        };
        assert_eq!(failed, 0, "ISA-L refused the buffers");
    }
}

/// Runs for one repetition and returns GB of data per second.
fn rate(cell: Cell, compute: Compute, arena: &mut [u8], next: &mut usize) -> f64 {
    let stripes = if cell.cold { arena.len() / cell.stripe_bytes() } else { 1 };
    let started = Instant::now();
    let mut stripes_done = 0;
    while started.elapsed() < REPETITION {
        for _ in 0..8 {
            *next = (*next + 1) % stripes;
            let stripe = &mut arena[*next * cell.stripe_bytes()..][..cell.stripe_bytes()];
            compute_stripe(cell, compute, stripe);
            stripes_done += 1;
        }
    }
    let data_bytes = stripes_done * cell.data * cell.strip_bytes;
    data_bytes as f64 / started.elapsed().as_secs_f64() / 1e9
}

fn compute_stripe(cell: Cell, compute: Compute, stripe: &mut [u8]) {
    let (data_bytes, parity_bytes) = stripe.split_at_mut(cell.data * cell.strip_bytes);
    let mut data = data_bytes.chunks_exact(cell.strip_bytes);
    let data: [&[u8]; MAX_STRIPS] = std::array::from_fn(|_| data.next().unwrap_or_default());
    let mut parity = parity_bytes.chunks_exact_mut(cell.strip_bytes);
    let mut parity: [&mut [u8]; 2] = std::array::from_fn(|_| parity.next().unwrap_or_default());
    compute(&data[..cell.data], black_box(&mut parity[..cell.parities()]));
}

/// The median, and in percent of it how far the middle half of the rates spreads.
fn median(mut rates: Vec<f64>) -> (f64, String) {
    rates.sort_by(f64::total_cmp);
    let quarter = |i: usize| rates[i * (rates.len() - 1) / 4];
    let spread = (quarter(3) - quarter(1)) / quarter(2) * 100.0;
    (quarter(2), format!("{spread:.1} %"))
}

fn measure(cell: Cell, arena: &mut [u8], other: Option<Compute>) {
    let mut our_rates = Vec::new();
    let mut other_rates = Vec::new();
    let mut next = 0;
    rate(cell, ours, arena, &mut next);
    for _ in 0..REPETITIONS {
        our_rates.push(rate(cell, ours, arena, &mut next));
        other_rates.extend(other.map(|other| rate(cell, other, arena, &mut next)));
    }
    let name = match cell.operation {
        Operation::Xor => format!("xor {}+1", cell.data),
        Operation::Pq => format!("P+Q {}+2", cell.data),
    };
    let temperature = if cell.cold { "cold" } else { "warm" };
    let (our_rate, spread) = median(our_rates);
    print!("{name}  {:>4}K {temperature}  {our_rate:>6.1} {spread:>9}", cell.strip_bytes >> 10);
    if other.is_some() {
        let (other_rate, spread) = median(other_rates);
        print!("  {other_rate:>6.1} {spread:>9}  {:>5.2}", our_rate / other_rate);
    }
    println!();
}

/// A rate of something wrong is worth nothing: both must write the same parity.
fn assert_same_parity(cell: Cell, arena: &mut [u8], other: Compute) {
    let stripe = &mut arena[..cell.stripe_bytes()];
    compute_stripe(cell, ours, stripe);
    let wanted = stripe.to_vec();
    stripe[cell.data * cell.strip_bytes..].fill(0x55);
    compute_stripe(cell, other, stripe);
    assert!(wanted == stripe, "ISA-L computes another parity than we do");
}

fn main() {
    #[cfg(feature = "isal")]
    let other: Option<Compute> = Some(isal::compute);
    #[cfg(not(feature = "isal"))]
    let other: Option<Compute> = None;

    println!("GB/s of data on one core, median of {REPETITIONS} x {} ms", REPETITION.as_millis());
    println!("ours: {} kernels", Kernels::fastest().name());
    match other {
        Some(_) => println!("\n                      ours    spread   ISA-L    spread  ratio"),
        None => println!("alone: build with --features isal (Debian: libisal-dev) to compare\n"),
    }
    // Written once, so that every page is real; aligned to pages as the engine's buffers are.
    let mut arena: Vec<u8> =
        (0..ARENA_BYTES + PAGE_BYTES).map(|i| ((i * 167) >> 5) as u8).collect();
    let skip = arena.as_ptr().align_offset(PAGE_BYTES);
    let arena = &mut arena[skip..][..ARENA_BYTES];
    for operation in [Operation::Xor, Operation::Pq] {
        for data in [4, 8] {
            for (cold, kib) in [false, true].into_iter().flat_map(|c| [16, 64, 128].map(|k| (c, k)))
            {
                let cell = Cell { operation, data, strip_bytes: kib << 10, cold };
                if let Some(other) = other {
                    assert_same_parity(cell, arena, other);
                }
                measure(cell, arena, other);
            }
        }
    }
}
