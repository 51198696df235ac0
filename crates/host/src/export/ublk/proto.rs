//! The kernel's protocol of ublk devices: descriptors of requests, commands on the device of their
//! queue, and the places of their data in that device. No I/O.
//!
//! Source: the kernel's `include/uapi/linux/ublk_cmd.h` and `Documentation/block/ublk.rst`. Numbers
//! are in the byte order of the machine.

#![expect(clippy::host_endian_bytes, reason = "kernel and program are on one machine")]

use std::ops::Range;

use braid_array::{Op, SECTOR_BYTES};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, opcode};

/// `struct ublksrv_io_desc`: operation and flags, sectors (32 bits each), first sector, address.
pub const DESCRIPTOR_BYTES: usize = 24;
/// `struct ublksrv_io_cmd`: queue, tag (16 bits each), result (32 bits), address.
pub(super) const COMMAND_BYTES: usize = 16;
/// Ioctl type of both kinds of commands.
pub(super) const GROUP: u8 = b'u';

/// `UBLK_IO_F_FUA`, `UBLK_IO_F_NOUNMAP`.
const FUA: u32 = 1 << 13;
const NO_UNMAP: u32 = 1 << 15;

/// `UBLKSRV_IO_BUF_OFFSET`, and how much room the data of a tag have (`UBLK_TAG_OFF`).
const DATA_OFFSET: u64 = 0x8000_0000;
const DATA_BITS: u32 = 25;

/// Limits of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Size of the device.
    pub size_bytes: u64,
    /// Requests are multiples of this.
    pub block_bytes: u32,
    /// Reads and writes are no longer than this.
    pub most_bytes: u32,
}

/// A request, its range in bytes: within the device, not empty, whole blocks, and of a read or
/// write no longer than these may be. A flush has no range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UblkRequest {
    /// Operation to be done.
    pub op: Op,
    /// Range of the operation.
    pub range: Range<u64>,
}

impl UblkRequest {
    /// Reads a descriptor.
    ///
    /// # Errors
    /// `OPNOTSUPP` for an operation that was not offered, `INVAL` for a range that does not fit.
    pub fn decode(bytes: &[u8; DESCRIPTOR_BYTES], shape: &Shape) -> Result<Self, Errno> {
        let [operation, sectors] = [word(bytes, 0), word(bytes, 4)];
        let fua = operation & FUA != 0;
        let op = match operation & 0xff {
            0 => Op::Read,
            1 => Op::Write { fua },
            2 => return Ok(Self { op: Op::Flush, range: 0..0 }),
            3 => Op::Discard,
            5 => Op::WriteZeroes { fua, unmap: operation & NO_UNMAP == 0 },
            _ => return Err(Errno::OPNOTSUPP),
        };
        let first = u64::from_ne_bytes(bytes[8..16].try_into().expect("eight bytes"));
        let start = first.checked_mul(SECTOR_BYTES).ok_or(Errno::INVAL)?;
        let len = u64::from(sectors) * SECTOR_BYTES;
        let end = start.checked_add(len).ok_or(Errno::INVAL)?;
        let block = u64::from(shape.block_bytes);
        let whole = start.is_multiple_of(block) && len.is_multiple_of(block);
        let has_data = matches!(op, Op::Read | Op::Write { .. });
        let too_long = has_data && len > u64::from(shape.most_bytes);
        if len == 0 || !whole || too_long || end > shape.size_bytes {
            return Err(Errno::INVAL);
        }
        Ok(Self { op, range: start..end })
    }
}

fn word(bytes: &[u8; DESCRIPTOR_BYTES], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// A command on the device of a queue. The kernel answers either with 0 when there is a request of
/// the tag, or with `NODEV` when there will be none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TagCommand {
    /// Wait for the first request of a tag.
    Fetch,
    /// Its request came to this: bytes moved, or an error. Wait for the next.
    Commit(Result<u32, Errno>),
}

impl TagCommand {
    pub(super) const fn code(self) -> Opcode {
        let number = match self {
            Self::Fetch => 0x20,
            Self::Commit(_) => 0x21,
        };
        opcode::read_write::<[u8; COMMAND_BYTES]>(GROUP, number)
    }

    /// Encodes the command for a tag of the first queue, whose data we move ourselves: without an
    /// address.
    pub(super) fn encode(self, tag: u16) -> [u8; COMMAND_BYTES] {
        let result = match self {
            Self::Fetch => 0,
            Self::Commit(Ok(moved)) => moved.cast_signed(),
            Self::Commit(Err(errno)) => -errno.raw_os_error(),
        };
        let mut bytes = [0; COMMAND_BYTES];
        bytes[2..4].copy_from_slice(&tag.to_ne_bytes());
        bytes[4..8].copy_from_slice(&result.to_ne_bytes());
        bytes
    }
}

/// Returns the place of the data of a tag's request, in the device of the first queue.
pub(super) fn data_offset(tag: u16) -> u64 {
    DATA_OFFSET + (u64::from(tag) << DATA_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { size_bytes: 1 << 30, block_bytes: 4096, most_bytes: 1 << 20 };

    fn descriptor(operation: u32, sectors: u32, first: u64) -> [u8; DESCRIPTOR_BYTES] {
        let mut bytes = [0xaa; DESCRIPTOR_BYTES];
        bytes[..4].copy_from_slice(&operation.to_ne_bytes());
        bytes[4..8].copy_from_slice(&sectors.to_ne_bytes());
        bytes[8..16].copy_from_slice(&first.to_ne_bytes());
        bytes
    }

    fn decode(operation: u32, sectors: u32, first: u64) -> Result<UblkRequest, Errno> {
        UblkRequest::decode(&descriptor(operation, sectors, first), &SHAPE)
    }

    #[test]
    fn requests_are_what_the_header_says() {
        let ask = |op, range| Ok(UblkRequest { op, range });
        assert_eq!(decode(0, 8, 16), ask(Op::Read, 8192..12_288));
        // Failing fast and being metadata change nothing.
        assert_eq!(decode(1 | 0xf << 8, 2048, 0), ask(Op::Write { fua: false }, 0..1 << 20));
        assert_eq!(decode(1 | 1 << 13, 8, 0), ask(Op::Write { fua: true }, 0..4096));
        assert_eq!(decode(2, 7, u64::MAX), ask(Op::Flush, 0..0));
        assert_eq!(decode(3, 1 << 21, 0), ask(Op::Discard, 0..1 << 30));
        let zeroes = |fua, unmap| Op::WriteZeroes { fua, unmap };
        assert_eq!(decode(5, 4096, 8), ask(zeroes(false, true), 4096..4096 + (2 << 20)));
        assert_eq!(decode(5 | 1 << 13 | 1 << 15, 8, 0), ask(zeroes(true, false), 0..4096));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for operation in [4, 6, 10, 13, 18, 255] {
            assert_eq!(decode(operation, 8, 0), Err(Errno::OPNOTSUPP), "{operation}");
        }
        let end = SHAPE.size_bytes / SECTOR_BYTES;
        for (operation, sectors, first) in [
            (0, 0, 0),
            (0, 1, 0),
            (0, 8, 1),
            (0, 2056, 0),
            (1, 2056, 0),
            (1, 8, end),
            (1, 16, end - 8),
            (3, 8, end),
            (5, !7, 0),
            (0, 8, u64::MAX),
            (0, 8, u64::MAX / SECTOR_BYTES),
            (3, u32::MAX, u64::MAX - 7),
        ] {
            let found = decode(operation, sectors, first);
            assert_eq!(found, Err(Errno::INVAL), "{operation} {sectors} {first}");
        }
        assert!(decode(1, 8, end - 8).is_ok());
    }

    #[test]
    fn commands_are_as_the_kernel_has_them() {
        // _IOWR('u', 0x20, struct ublksrv_io_cmd), on machines where ioctl numbers are as on most.
        if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            assert_eq!(TagCommand::Fetch.code(), 0xc010_7520);
            assert_eq!(TagCommand::Commit(Ok(0)).code(), 0xc010_7521);
        }
        let bytes = TagCommand::Commit(Err(Errno::IO)).encode(0x0102);
        assert_eq!(bytes[..2], [0; 2]);
        assert_eq!(bytes[2..4], 0x0102u16.to_ne_bytes());
        assert_eq!(bytes[4..8], (-5i32).to_ne_bytes());
        assert_eq!(bytes[8..], [0; 8]);
        assert_eq!(TagCommand::Commit(Ok(4096)).encode(1)[4..8], 4096i32.to_ne_bytes());
        assert_eq!(data_offset(0), 0x8000_0000);
        assert_eq!(data_offset(3), 0x8000_0000 + (3 << 25));
    }
}
