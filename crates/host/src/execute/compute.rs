//! The machine's computations and copies in memory, done at once.

use braid_array::action::Compute;
use braid_array::{Buf, Checked, Outcome};
use crc32c::crc32c_append;

use crate::arena::Memory;

/// Does a computation now.
pub(crate) fn compute(memory: &Memory, compute: &Compute) -> Outcome {
    // The machine names only buffers it holds, with no I/O on them, and its contract keeps
    // destinations apart from sources and from one another.
    let get = |buf: &Buf| {
        // SAFETY: as said above.
        unsafe { memory.bytes(*buf) }
    };
    let get_mut = |buf: &Buf| {
        // SAFETY: as said above.
        unsafe { memory.bytes_mut(*buf) }
    };
    match compute {
        Compute::Sum { inputs, coefs, outputs, accumulate } => {
            let inputs: Vec<&[u8]> = inputs.iter().map(get).collect();
            let mut outputs: Vec<&mut [u8]> = outputs.iter().map(get_mut).collect();
            braid_parity::combine(&mut outputs, coefs, &inputs, *accumulate);
        }
        Compute::Check { data, q_coefs, p, q } => {
            let data: Vec<&[u8]> = data.iter().map(get).collect();
            let found = braid_parity::check(&data, q_coefs, get(p), q.as_ref().map(get));
            return Outcome::Checked(Checked {
                p_differs: found.p_differs,
                q_differs: found.q_differs,
                data_located: found.data_located,
            });
        }
        Compute::Compare { a, b } => {
            let p_differs = braid_parity::differing_blocks(get(a), get(b));
            return Outcome::Checked(Checked { p_differs, ..Checked::default() });
        }
        Compute::Crc { before, inputs } => {
            return Outcome::Crc(inputs.iter().map(get).fold(*before, crc32c_append));
        }
        Compute::SumBlocks { buf } => return Outcome::block_sums(get(buf)),
    }
    Outcome::Done
}

/// Copies metadata out of the arena.
pub(crate) fn load(memory: &Memory, buf: Buf) -> Vec<u8> {
    // SAFETY: the machine names a buffer it holds, with no I/O on it.
    unsafe { memory.bytes(buf) }.to_vec()
}

/// Tells whether a buffer holds nothing but zeroes.
pub(super) fn is_zero(memory: &Memory, buf: Buf) -> bool {
    // SAFETY: the machine names a buffer it holds, with no I/O on it.
    let bytes = unsafe { memory.bytes(buf) };
    bytes.chunks(4096).all(|page| page.iter().fold(0, |sum, byte| sum | byte) == 0)
}

/// Copies metadata into the arena.
pub(crate) fn store(memory: &Memory, buf: Buf, bytes: &[u8]) {
    // SAFETY: the machine names a buffer it holds, with no I/O on it.
    unsafe { memory.bytes_mut(buf) }.copy_from_slice(bytes);
}
