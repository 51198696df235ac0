//! What a guest writes into its memory: rings, descriptors, requests.

use braid_host::export::vhost_user::{FUZZ_MEMORY_BYTES, fuzz_ring};

use crate::mutate::{Random, mutate};

/// Where things are; `fuzz_ring` looks there.
const TABLE: usize = 0;
const AVAILABLE: usize = 0x200;
const HEADERS: usize = 0x400;
const SLOTS: u64 = 16;

/// A ring of sixteen with requests in it, of which some bytes may have been changed.
pub(crate) fn make(random: &mut Random) -> Vec<u8> {
    const KINDS: [u32; 9] = [0, 1, 4, 8, 11, 13, 14, 2, 99];
    let mut bytes = vec![0; FUZZ_MEMORY_BYTES];
    let put = |bytes: &mut Vec<u8>, at: usize, field: &[u8]| {
        bytes[at..at + field.len()].copy_from_slice(field);
    };
    let address = |random: &mut Random| match random.below(8) {
        0 => random.next(),
        1 => random.next() >> random.below(64),
        _ => random.next() % FUZZ_MEMORY_BYTES as u64,
    };
    for slot in 0..SLOTS as usize {
        // Most are a chain of three: a header, data, a status.
        let role = slot % 3;
        let at = TABLE + slot * 16;
        let (place, len) = match role {
            0 => ((HEADERS + slot * 16) as u64, 16),
            1 => (address(random), (random.next() as u32 >> random.below(32)) & !511),
            _ => (address(random), 1),
        };
        let next = if role < 2 { 1 } else { 0 };
        let write = if role == 2 || (role == 1 && random.below(2) == 0) { 2 } else { 0 };
        let indirect = if random.below(8) == 0 { 4 } else { 0 };
        put(&mut bytes, at, &place.to_le_bytes());
        put(&mut bytes, at + 8, &len.to_le_bytes());
        put(&mut bytes, at + 12, &(next | write | indirect as u16).to_le_bytes());
        put(&mut bytes, at + 14, &(slot as u16 + 1).to_le_bytes());
        let header = HEADERS + slot * 16;
        put(&mut bytes, header, &KINDS[random.below(KINDS.len())].to_le_bytes());
        put(&mut bytes, header + 8, &(random.next() >> random.below(64)).to_le_bytes());
    }
    for place in 0..SLOTS as usize {
        let head = (random.below(6) * 3) as u16;
        put(&mut bytes, AVAILABLE + 4 + place * 2, &head.to_le_bytes());
    }
    let index = random.below(SLOTS as usize + 2) as u16;
    put(&mut bytes, AVAILABLE + 2, &index.to_le_bytes());
    if random.below(2) == 0 {
        mutate(random, &mut bytes, 0x600);
        bytes.resize(FUZZ_MEMORY_BYTES, 0);
    }
    bytes
}

/// Whatever lies there, nothing but requests for what there is comes of it.
pub(crate) fn run(bytes: &[u8]) {
    fuzz_ring(bytes);
}
