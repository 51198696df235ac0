//! A ring over arbitrary bytes, for the fuzzer. Its guarantees hold for all of its output.

use std::sync::Arc;

use vm_memory::{Bytes, GuestAddress, GuestMemory, Permissions};

use super::chain::{Area, bytes};
use super::memory::MappedGuest;
use super::request::{BlockOperation, RequestLimits, copy_in, copy_out};
use super::ring::{RingSetup, VirtioRing};

/// Bytes that a guest of the fuzzer has, in two regions.
pub const FUZZ_MEMORY_BYTES: usize = 0x4000;
const SEAM: usize = 0x1000;
const SIZE: u16 = 16;
const LIMITS: RequestLimits =
    RequestLimits { size_bytes: 1 << 20, block_bytes: 512, read_only: false };

/// Takes all requests of a ring of sixteen, and answers them: descriptors are at 0, the available
/// ring at 0x200, the used ring at 0x300 of the memory.
///
/// # Panics
/// When a guarantee is broken.
pub fn fuzz_ring(memory: &[u8]) {
    let ranges = [(GuestAddress(0), SEAM), (GuestAddress(SEAM as u64), FUZZ_MEMORY_BYTES - SEAM)];
    let guest = MappedGuest::from_ranges(&ranges).expect("memory");
    let memory = &memory[..memory.len().min(FUZZ_MEMORY_BYTES)];
    guest.write_slice(memory, GuestAddress(0)).expect("it is there");
    let setup = RingSetup {
        size: SIZE,
        descriptors: GuestAddress(0),
        available: GuestAddress(0x200),
        used: GuestAddress(0x300),
        base: 0,
        event_index: memory.len().is_multiple_of(2),
        inflight: None,
    };
    let guest = Arc::new(guest);
    let mut ring = VirtioRing::new(&setup, Arc::clone(&guest)).expect("it lies in the memory");
    let mut heads = Vec::new();
    while let Ok(Some((head, asked))) = ring.next(&LIMITS) {
        assert!(head < SIZE && !heads.contains(&head), "a head twice");
        heads.push(head);
        assert!(guest.check_range(asked.status, 1, Permissions::Write), "a status nowhere");
        if let Ok(ask) = asked.ask {
            check(&guest, &ask);
        }
    }
    assert_eq!(usize::from(ring.under_way()), heads.len());
    for head in heads {
        ring.answered(head, 1).expect("it lies in the memory");
    }
    assert_eq!(ring.under_way(), 0);
    ring.wants_call();
}

fn check(guest: &MappedGuest, ask: &BlockOperation) {
    let ranges: Vec<_> = match ask {
        BlockOperation::Read { range, into } => {
            check_data(guest, range, into);
            vec![range]
        }
        BlockOperation::Write { range, from } => {
            check_data(guest, range, from);
            vec![range]
        }
        BlockOperation::Discard(ranges) => ranges.iter().collect(),
        BlockOperation::Zero(ranges) => ranges.iter().map(|(range, _)| range).collect(),
        BlockOperation::Flush | BlockOperation::Id { .. } => Vec::new(),
    };
    for range in ranges {
        assert!(range.start < range.end && range.end <= LIMITS.size_bytes, "{range:?}");
        assert!(range.start.is_multiple_of(512) && range.end.is_multiple_of(512), "{range:?}");
    }
}

/// Data are as long as their range, and can be copied.
fn check_data(guest: &MappedGuest, range: &std::ops::Range<u64>, areas: &[Area]) {
    let len = range.end - range.start;
    assert_eq!(bytes(areas), len);
    let mut copy = vec![0; usize::try_from(len).expect("it fits the device")];
    copy_out(guest, areas, 0, &mut copy).expect("all of it is there");
    copy_in(guest, areas, 0, &copy).expect("all of it is there");
}
