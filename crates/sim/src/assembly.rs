//! From what lies on the devices to a machine: decoding, deciding, starting.

use braid_array::Array;
use braid_array::array::Scratch;
use braid_array::assemble::Config;
use braid_array::format::{BadBlocks, Superblock, Version};

use crate::disk::Disk;

/// How to start.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// Devices that are not there.
    pub without: &'a [usize],
    /// Serve reads only.
    pub read_only: bool,
    /// Start a degraded array that is not clean.
    pub force: bool,
    /// Smallest I/O of the devices.
    pub block_bytes: u32,
}

/// Why there is no array.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// For people.
    pub reason: String,
    /// Force would start it.
    pub dirty_degraded: bool,
}

/// The machine's scratch, behind the buffers of the requests.
#[must_use]
pub fn scratch(config: &Config, offset: u64) -> Scratch {
    Scratch { offset, bytes: Array::scratch_bytes(config) }
}

/// The superblock on a device, if there is one.
#[must_use]
pub fn superblock_on(disk: &Disk) -> Option<Superblock> {
    let places =
        [(Version::V1_2, 8), (Version::V1_1, 0), (Version::V1_0, (disk.sectors() - 16) & !7)];
    places.into_iter().find_map(|(version, sector)| {
        let mut bytes = vec![0; 4096];
        disk.read(sector, &mut bytes).ok()?;
        Superblock::decode(version, sector, &bytes).ok()
    })
}

/// The bad-block log that goes with a superblock.
#[must_use]
pub fn bad_blocks_on(disk: &Disk, superblock: &Superblock) -> BadBlocks {
    let Some(sector) = superblock.bblog_sector() else { return BadBlocks::default() };
    let mut bytes = vec![0; usize::from(superblock.bblog_size_sectors) * 512];
    if disk.read(sector, &mut bytes).is_err() {
        return BadBlocks::default();
    }
    BadBlocks::decode(&bytes, superblock.bblog_shift).unwrap_or_default()
}

/// Decides who is in, from what lies on the devices.
///
/// # Errors
/// [`Refusal`].
pub fn assemble(disks: &[Disk], how: Start<'_>) -> Result<(Config, Vec<Option<usize>>), Refusal> {
    use braid_array::assemble::{MemberConfig, Standing};
    use braid_array::format::superblock::{MAX_SECTOR, feature};
    use braid_array::format::{Bitmap, Role};
    let no = |reason: &str| Refusal { reason: reason.to_owned(), dirty_degraded: false };
    let found: Vec<_> = disks
        .iter()
        .enumerate()
        .filter(|(i, d)| !how.without.contains(i) && !d.gone())
        .filter_map(|(i, d)| Some((i, superblock_on(d)?)))
        .collect();
    let newest =
        found.iter().map(|(_, s)| s).max_by_key(|s| s.events).ok_or(no("nothing"))?.clone();
    let mut members = Vec::new();
    let mut attached = Vec::new();
    let mut bitmap: Option<Bitmap> = None;
    let mut taken = std::collections::BTreeSet::new();
    for (i, s) in found {
        let standing = match newest.role_of(s.dev_number) {
            Role::Active(role)
                if s.events + 1 >= newest.events && s.role() == newest.role_of(s.dev_number) =>
            {
                if s.has(feature::RECOVERY_OFFSET) {
                    Standing::Rebuilding {
                        role,
                        offset: s.recovery_offset,
                        replacement: s.has(feature::REPLACEMENT),
                        by_bitmap: s.has(feature::RECOVERY_BITMAP),
                    }
                } else {
                    Standing::InSync { role }
                }
            }
            Role::Spare if s.events + 1 >= newest.events => Standing::Spare,
            _ => continue,
        };
        if !taken.insert(s.dev_number) {
            continue;
        }
        if let Some(sector) =
            s.bitmap_sector().filter(|_| matches!(standing, Standing::InSync { .. }))
        {
            let mut bytes = vec![0; 4096];
            if disks[i].read(sector, &mut bytes).is_ok()
                && let Ok(b) = Bitmap::decode(&bytes)
            {
                match &mut bitmap {
                    None => bitmap = Some(b),
                    Some(all) => all.union(&b),
                }
            }
        }
        let bad_blocks = bad_blocks_on(&disks[i], &s);
        members.push(MemberConfig {
            device: format!("d{i}"),
            device_sectors: disks[i].sectors(),
            superblock: s,
            bad_blocks,
            standing,
        });
        attached.push(Some(i));
    }
    let in_sync = members.iter().filter(|m| matches!(m.standing, Standing::InSync { .. })).count();
    let parity = matches!(newest.level, 4..=6);
    if parity
        && in_sync < newest.raid_disks as usize
        && newest.resync_offset != MAX_SECTOR
        && !how.force
    {
        return Err(Refusal { reason: "dirty".into(), dirty_degraded: true });
    }
    Ok((
        Config {
            superblock: newest,
            members,
            bitmap,
            read_only: how.read_only,
            force: how.force,
            block_bytes: how.block_bytes,
        },
        attached,
    ))
}

/// Whatever lies on the devices can be looked at.
pub fn examine(disks: &[Disk]) {
    for disk in disks {
        let _ = superblock_on(disk);
    }
}
