//! I/O of machines carried out on pretend disks, as the run's fault profile has it.

use std::ops::Range;

use braid_array::{Buf, IoError, IoOp, SECTOR_BYTES};

use crate::disk::Disk;
use crate::fault::{FaultProfile, Mutation};
use crate::rng::Rng;

const SECTOR: u64 = SECTOR_BYTES;

/// Where a buffer lies in the arena.
pub const fn bytes_of(buf: Buf) -> Range<usize> {
    buf.offset as usize..buf.offset as usize + buf.len as usize
}

/// Carries an I/O out. `mark` is the cache's mark when a flush was issued.
///
/// # Errors
/// Returns the error of the device.
pub fn perform(
    disk: &mut Disk,
    op: IoOp,
    mark: u64,
    arena: &mut [u8],
    profile: &FaultProfile,
    rng: &mut Rng,
) -> Result<(), IoError> {
    let durable = |fua| fua && profile.mutation != Some(Mutation::IgnoreFua);
    match op {
        IoOp::Read { sector, buf } => disk.read(sector, &mut arena[bytes_of(buf)]),
        IoOp::Write { sector, buf, fua, .. } => {
            let bytes = &arena[bytes_of(buf)];
            if let Err(error) = disk.writable(sector, u64::from(buf.len) / SECTOR) {
                disk.write_some(sector, bytes, rng);
                return Err(error);
            }
            let lands_at = match profile.mutation {
                Some(Mutation::LoseWrite) if rng.below(200) == 0 => return Ok(()),
                Some(Mutation::Misdirect) if rng.below(200) == 0 => sector + 1,
                _ => sector,
            };
            if disk.writable(lands_at, u64::from(buf.len) / SECTOR).is_ok() {
                disk.write(lands_at, bytes, durable(fua));
            }
            Ok(())
        }
        IoOp::WriteZeroes { sector, sectors, fua, .. } => {
            disk.writable(sector, sectors)?;
            if profile.mutation != Some(Mutation::DropZeroes) {
                disk.write_zeroes(sector, sectors, durable(fua));
            }
            Ok(())
        }
        IoOp::Discard { sector, sectors } => {
            // A device takes discards of sectors that it cannot write.
            disk.writable(sector, 0)?;
            if profile.discard_zeroes {
                disk.write_zeroes(sector, sectors, false);
            }
            Ok(())
        }
        IoOp::Flush => {
            disk.writable(0, 0)?;
            if profile.mutation != Some(Mutation::DropFlush) {
                disk.flush(mark);
            }
            Ok(())
        }
    }
}

/// Interrupts an I/O by the death of its issuer or a loss of power: any part of its write arrives.
pub fn interrupt(disk: &mut Disk, op: IoOp, arena: &[u8], rng: &mut Rng) {
    match op {
        IoOp::Write { sector, buf, .. } => disk.write_some(sector, &arena[bytes_of(buf)], rng),
        IoOp::WriteZeroes { sector, sectors, .. } => {
            disk.write_some(sector, &vec![0; (sectors * SECTOR) as usize], rng);
        }
        _ => {}
    }
}

/// Returns the sectors that an I/O writes: the first one, and their number.
pub fn written(op: IoOp) -> Option<(u64, u64)> {
    match op {
        IoOp::Write { sector, buf, .. } => Some((sector, u64::from(buf.len) / SECTOR)),
        IoOp::WriteZeroes { sector, sectors, .. } => Some((sector, sectors)),
        _ => None,
    }
}

/// Returns the reason why an I/O is invalid.
pub fn objection(op: IoOp, profile: &FaultProfile) -> Option<&'static str> {
    let (sector, sectors) = match op {
        IoOp::Read { sector, buf } | IoOp::Write { sector, buf, .. } => {
            if !u64::from(buf.len).is_multiple_of(SECTOR) {
                return Some("not in sectors");
            }
            if !buf.offset.is_multiple_of(profile.align_bytes) {
                return Some("a buffer that is not aligned");
            }
            (sector, u64::from(buf.len) / SECTOR)
        }
        IoOp::WriteZeroes { sector, sectors, .. } | IoOp::Discard { sector, sectors } => {
            (sector, sectors)
        }
        IoOp::Flush => return None,
    };
    let block = u64::from(profile.block_bytes) / SECTOR;
    let in_blocks = sectors > 0 && sector.is_multiple_of(block) && sectors.is_multiple_of(block);
    (!in_blocks).then_some("not in blocks of the device")
}
