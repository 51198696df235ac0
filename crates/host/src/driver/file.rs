//! File operations as plain calls, which return when they have ended.

use rustix::fs::FallocateFlags;
use rustix::io::{Errno, IoSlice, ReadWriteFlags};

use crate::arena::Memory;
use crate::driver::Op;

/// Carries a file operation out and returns how it ended.
pub(super) fn carry_out(memory: &Memory, op: &Op) -> Result<u32, Errno> {
    loop {
        match attempt(memory, op) {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

fn attempt(memory: &Memory, op: &Op) -> Result<u32, Errno> {
    let moved = |moved| u32::try_from(moved).expect("no more than was asked for");
    match op {
        Op::Read { file, offset, buf } => {
            // SAFETY: the operation holds the buffer until it has ended.
            let bytes = unsafe { memory.bytes_mut(*buf) };
            rustix::io::pread(file, bytes, *offset).map(moved)
        }
        Op::Write { file, offset, buf, dsync } => {
            // SAFETY: as above.
            let bytes = unsafe { memory.bytes(*buf) };
            let written = if *dsync {
                let flags = ReadWriteFlags::DSYNC;
                rustix::io::pwritev2(file, &[IoSlice::new(bytes)], *offset, flags)
            } else {
                rustix::io::pwrite(file, bytes, *offset)
            };
            written.map(moved)
        }
        Op::Sync { file } => rustix::fs::fdatasync(file).map(|()| 0),
        Op::Allocate { file, mode, offset, len } => {
            let mode = FallocateFlags::from_bits_retain(mode.cast_unsigned());
            rustix::fs::fallocate(file, mode, *offset, *len).map(|()| 0)
        }
        _ => unreachable!("not a file operation"),
    }
}
