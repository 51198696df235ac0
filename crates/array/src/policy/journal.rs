//! A journal on a device of its own, given to an array or taken from it.

use super::area::{AreaMember, superblocks};
use super::{Assembly, Candidate, FoundLog, PolicyChange, Write, start_all};
use crate::create::{NewDevice, least_journal_sectors};
use crate::format::journal::MetaBlock;
use crate::format::superblock::{MAX_DEV, feature};
use crate::format::suspended::journal_number;
use crate::format::{BadBlocks, DevRole, Superblock, Version};
use crate::refusal::Refusal;

/// The device of a journal that an array is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewJournal {
    /// The device, on which nothing lies.
    pub device: NewDevice,
    /// Random: the number of the journal's first block.
    pub first_seq: u32,
}

/// A journal says nothing only after a clean stop: superblocks say clean all the while. Of one that
/// is off nothing counts.
pub(super) fn check_empty(candidates: &[Candidate], assembly: &Assembly) -> Result<(), Refusal> {
    for candidate in candidates {
        let is_off = assembly.newest.as_ref().is_some_and(|sb| journal_number(sb).is_some());
        if let Some(Ok(FoundLog::Journal(scan))) = &candidate.log
            && !is_off
            && !scan.is_empty()
        {
            let reason =
                format!("the journal {} holds what is not in its place yet", candidate.device);
            let next =
                start_all(&assembly.verdicts, "start the array, which sees to that, and stop it");
            return Err(Refusal::new(reason, next));
        }
    }
    Ok(())
}

/// The array goes on without its journal; `superblock` is that of the whole array.
pub(super) fn taken(mut superblock: Superblock, members: &[AreaMember<'_>]) -> PolicyChange {
    let is_journal = |member: &&AreaMember<'_>| member.superblock.role() == DevRole::Journal;
    for role in superblock.roles.iter_mut().filter(|role| **role == DevRole::Journal) {
        *role = DevRole::Spare;
    }
    let others: Vec<AreaMember<'_>> =
        members.iter().filter(|member| !is_journal(member)).copied().collect();
    let mut writes = superblocks(&superblock, &others, 0, 0);
    // A device that says nothing of the array can be used for anything.
    let blank = |member: &AreaMember<'_>| Write {
        index: member.index,
        sector: member.superblock.super_offset,
        bytes: vec![0; member.superblock.encode().len()],
    };
    writes.extend(members.iter().filter(is_journal).map(blank));
    let leaves = members.iter().find(is_journal).map(|journal| journal.index);
    PolicyChange { writes, leaves }
}

/// The array gets a journal; `superblock` is that of the whole array.
pub(super) fn given(
    mut superblock: Superblock,
    members: &[AreaMember<'_>],
    new: NewJournal,
) -> Result<PolicyChange, Refusal> {
    let NewJournal { device: NewDevice { device_sectors, device_uuid }, first_seq } = new;
    let placed = matches!(superblock.version, Version::V1_1 | Version::V1_2);
    let (true, Some(super_offset)) = (placed, superblock.version.location(device_sectors)) else {
        let reason = format!(
            "a journal is for arrays with metadata 1.1 or 1.2, and this has {}",
            superblock.version.name()
        );
        return Err(Refusal::new(reason, "make the array anew with braid create --write-journal"));
    };
    let data_offset = superblock.data_offset;
    let data_size = device_sectors.saturating_sub(data_offset);
    let least = least_journal_sectors(superblock.raid_disks);
    if data_size < least {
        let least = (data_offset + least) / 2;
        let reason = format!("a journal of this array takes {least} KiB at least");
        return Err(Refusal::new(reason, "name a larger device with --write-journal"));
    }
    let number = free_number(&superblock, members)?;
    let roles = &mut superblock.roles;
    if roles.len() <= number as usize {
        roles.resize((number as usize + 1).next_multiple_of(128), DevRole::Spare);
    }
    roles[number as usize] = DevRole::Journal;
    let journal = Superblock {
        feature_map: feature::JOURNAL,
        super_offset,
        dev_number: number,
        device_uuid,
        data_size,
        bitmap_offset_sectors: 0,
        recovery_offset: 0,
        corrected_reads: 0,
        devflags: 0,
        ..superblock.clone()
    };
    let index = members.iter().map(|member| member.index + 1).max().unwrap_or(0);
    let write = |sector, bytes| Write { index, sector, bytes };
    let first = MetaBlock { seq: first_seq.into(), position: 0, payloads: Vec::new() };
    let mut writes = vec![write(data_offset, first.encode(superblock.set_uuid))];
    let bad_blocks = |sector| write(sector, BadBlocks::default().encode(journal.bblog_shift));
    writes.extend(journal.bblog_sector().map(bad_blocks));
    // Members that tell of a journal need one that is there.
    writes.push(write(super_offset, journal.blocks(512)));
    writes.extend(superblocks(&superblock, members, feature::JOURNAL, 0));
    Ok(PolicyChange { writes, leaves: None })
}

/// A device number behind all that are in use.
fn free_number(superblock: &Superblock, members: &[AreaMember<'_>]) -> Result<u32, Refusal> {
    let listed = superblock.roles.iter().rposition(|role| *role != DevRole::Spare);
    let listed = listed.map_or(0, |number| number as u32 + 1);
    let held = members.iter().map(|member| member.superblock.dev_number + 1).max().unwrap_or(0);
    let number = listed.max(held).max(superblock.raid_disks);
    if number < MAX_DEV {
        return Ok(number);
    }
    Err(Refusal::new("the array has too many devices for another one", "remove one first"))
}
