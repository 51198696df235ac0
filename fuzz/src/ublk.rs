//! Descriptors of requests to the ublk export.

#![expect(clippy::host_endian_bytes, reason = "kernel and program are on one machine")]

use braid_host::export::ublk::proto::{DESCRIPTOR_BYTES, Shape, UblkRequest};

use crate::mutate::Random;

const SHAPE: Shape = Shape { size_bytes: 64 << 20, block_bytes: 4096, most_bytes: 1 << 20 };

/// A descriptor: numbers large and small, most of them such as a kernel writes.
pub(crate) fn make(random: &mut Random) -> Vec<u8> {
    let unit = [1, 8, 2048][random.below(3)];
    let mut bytes = Vec::new();
    let operation = random.below(20) as u32 | (random.next() as u32) << (8 + random.below(24));
    bytes.extend_from_slice(&operation.to_ne_bytes());
    let sectors = (random.next() >> (32 + random.below(32))) as u32;
    bytes.extend_from_slice(&sectors.wrapping_mul(unit as u32).to_ne_bytes());
    let first = random.next() >> random.below(64);
    bytes.extend_from_slice(&first.wrapping_mul(unit).to_ne_bytes());
    bytes.extend_from_slice(&random.next().to_ne_bytes());
    bytes
}

/// Whatever comes is refused, or asks for what there is.
pub(crate) fn run(bytes: &[u8]) {
    let bytes: [u8; DESCRIPTOR_BYTES] = bytes.try_into().expect("of that length");
    let Ok(UblkRequest { op, range }) = UblkRequest::decode(&bytes, &SHAPE) else { return };
    if op == braid_array::Op::Flush {
        return assert!(range.is_empty());
    }
    let block = u64::from(SHAPE.block_bytes);
    assert!(range.start < range.end && range.end <= SHAPE.size_bytes, "{range:?}");
    assert!(range.start.is_multiple_of(block) && range.end.is_multiple_of(block), "{range:?}");
    let has_data = matches!(op, braid_array::Op::Read | braid_array::Op::Write { .. });
    assert!(!has_data || range.end - range.start <= SHAPE.most_bytes.into(), "{range:?}");
}
