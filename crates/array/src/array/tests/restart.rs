//! Metadata on the disks: laid out before the first start, read again after a power cut.

use std::collections::BTreeMap;

use super::disk::Disk;
use super::*;
use crate::action::{Command, NewMember};
use crate::assemble::{Candidate, Options, Start, Verdict, decide};

impl World {
    /// Puts on the disks what an array of this configuration has there.
    pub(super) fn format(&mut self, config: &Config) {
        for (disk, member) in self.disks.iter_mut().flatten().zip(&config.members) {
            let superblock = &member.superblock;
            disk.write(superblock.super_offset, &superblock.encode(), true);
            if let Some(sector) = superblock.bblog_sector() {
                disk.write(sector, &member.bad_blocks.encode(superblock.bblog_shift), true);
            }
            if let Some((bitmap, sector)) = config.bitmap.as_ref().zip(superblock.bitmap_sector()) {
                disk.write(sector, &bitmap.encode_page(0), true);
            }
        }
    }

    /// The contents of a disk.
    pub(super) fn candidate(&self, index: usize) -> Candidate {
        let disk = self.disks[index].as_ref().unwrap();
        let read = |sector, bytes| Ok(disk.read(sector, bytes as usize).to_vec());
        Candidate::read(format!("disk{index}"), disk.sectors(), read).with_log(read)
    }

    pub(super) fn superblock(&self, index: usize) -> Superblock {
        self.candidate(index).superblock.unwrap()
    }

    /// Cuts the power, and starts what the disks then say the array is: a degraded one that was
    /// not clean, too, but never with stale members. Nothing is held back.
    pub(super) fn cut_power_and_restart(&mut self) {
        self.cut_power_and_restart_holding(|_, _| false);
    }

    /// The same, and holds I/O back from the start.
    pub(super) fn cut_power_and_restart_holding(
        &mut self,
        which: impl Fn(MemberId, IoOp) -> bool + 'static,
    ) {
        self.disks.iter_mut().flatten().for_each(Disk::cut_power);
        let there = (0..self.disks.len()).filter(|index| self.disks[*index].is_some());
        let candidates = there.map(|index| self.candidate(index)).collect();
        let assembly = decide(candidates, Options { run: true, force: true, read_only: false });
        let stale = assembly.verdicts.iter().find(|(_, v)| matches!(v, Verdict::Forced { .. }));
        assert!(stale.is_none(), "stale members were needed: {:?}", assembly.verdicts);
        let Start::Ready { config, .. } = assembly.start else {
            panic!("cannot be started: {:?} {:?}", assembly.start, assembly.verdicts);
        };
        self.start(*config, which);
    }

    /// Starts an array of this configuration, and holds I/O back from the start.
    pub(super) fn start(
        &mut self,
        config: Config,
        which: impl Fn(MemberId, IoOp) -> bool + 'static,
    ) {
        let place = |member: &MemberConfig| member.device["disk".len()..].parse().unwrap();
        self.places = config.member_ids().zip(config.members.iter().map(place)).collect();
        if let Some(spill) = &config.spill {
            let index = spill.device["disk".len()..].parse().unwrap();
            self.places.insert(MemberId(config.members.len() as u16), index);
        }
        let bytes = Array::scratch_bytes(&config);
        self.arena.fill(0);
        self.arena.resize(self.arena.len().max(bytes as usize + (4 << 20)), 0);
        let scratch = Scratch { offset: 0, bytes };
        self.array = Box::new(Array::new(self.now, config, scratch).unwrap());
        self.events.clear();
        self.issued.clear();
        self.held.clear();
        self.answers.clear();
        self.hold(which);
        self.run_until_idle();
    }

    /// Adds a new disk full of what must not be read; its number, which its member has, too.
    pub(super) fn add_disk(&mut self) -> MemberId {
        self.disks.push(Some(Disk::filled(DATA_OFFSET + MEMBER_SECTORS, 0x55)));
        self.add(self.disks.len() - 1, false)
    }

    /// Adds a disk, or takes it back into its role.
    pub(super) fn add(&mut self, index: usize, readd: bool) -> MemberId {
        let member = self.array.free_member().unwrap();
        self.places.insert(member, index);
        let candidate = self.candidate(index);
        let command = Command::Add(Box::new(NewMember {
            member,
            device: candidate.device.clone(),
            device_sectors: candidate.device_sectors,
            superblock: candidate.superblock.ok().map(Box::new),
            bad_blocks: candidate.bad_blocks.ok(),
            readd,
            device_uuid: [9; 16],
        }));
        self.begin_command(command);
        member
    }

    /// Returns the contents of the sectors of a disk's data area.
    pub(super) fn data(&self, index: usize, sector: u64, sectors: u64) -> &[u8] {
        let disk = self.disks[index].as_ref().unwrap();
        disk.read(DATA_OFFSET + sector, (sectors * SECTOR_BYTES) as usize)
    }

    /// Device ranges of the data area that were written or zeroed, by disk.
    pub(super) fn written(&self) -> BTreeMap<usize, Vec<(u64, u64)>> {
        let mut written = BTreeMap::<usize, Vec<(u64, u64)>>::new();
        for (member, op) in self.issued.iter().filter(|(_, op)| is_data_write(*op)) {
            let (sector, sectors) = match *op {
                IoOp::Write { sector, buf, .. } => (sector, u64::from(buf.len) / SECTOR_BYTES),
                IoOp::WriteZeroes { sector, sectors, .. } => (sector, sectors),
                _ => unreachable!("not a write"),
            };
            written.entry(self.disk(*member)).or_default().push((sector, sectors));
        }
        written
    }
}

pub(super) fn is_superblock(op: IoOp) -> bool {
    matches!(op, IoOp::Write { sector: SUPER_SECTOR, .. })
}

pub(super) fn is_bitmap(op: IoOp) -> bool {
    matches!(op, IoOp::Write { sector: BITMAP_SECTOR..LOG_SECTOR, .. })
}

pub(super) fn is_data_write(op: IoOp) -> bool {
    matches!(op, IoOp::Write { sector: DATA_OFFSET.., .. } | IoOp::WriteZeroes { .. })
}
