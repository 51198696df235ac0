//! A reshape that md began, brought to where the machine can go on with it: backups are written
//! where the new map has them, and superblocks tell the position that the data tell.
//!
//! Until the superblocks are written nothing has changed for who reads them: the backup still wins
//! over what it is written to. From then on it is of no use.

use std::ops::Range;

use super::front::{Maps, PART_SECTORS, ReadMember, UnitComparison};
use super::goes_on::{is_current, is_possible};
use super::{Candidate, Halfway, all_turned, is_halfway};
use crate::assemble::Standing;
use crate::format::backup::saved_at_a_time;
use crate::format::reshaped::Side;
use crate::format::striped::to_level_4;
use crate::format::superblock::{feature, time_code, time_parts};
use crate::format::{DevRole, Superblock};
use crate::{Role, SECTOR_BYTES};

/// Bytes for a sector of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettlingWrite {
    /// Device.
    pub device: String,
    /// Sector.
    pub sector: u64,
    /// Bytes.
    pub bytes: Vec<u8>,
}

/// All that is written before a machine goes on with a reshape.
#[derive(Clone, Debug)]
pub struct Settlement {
    /// Data, and the superblocks of members that missed the last update, which have to be durable
    /// before anything of `metadata` is written: a member that misses that as well would be stale.
    pub data: Vec<SettlingWrite>,
    /// Superblocks, each behind its bitmap's, to be written in this order.
    pub metadata: Vec<SettlingWrite>,
    /// The candidates as they are then.
    pub candidates: Vec<Candidate>,
    /// The array sector at which it goes on.
    pub position: u64,
    /// Sectors for which there should be room in the file that has the backups, to which it saves
    /// what it is about to overwrite. 0: it saves nothing.
    pub saved_sectors: u64,
    /// md began it.
    pub is_of_md: bool,
}

impl Settlement {
    /// Returns whether it saves what it is about to overwrite to the file that has the backups.
    #[must_use]
    pub const fn saves(&self) -> bool {
        self.saved_sectors > 0
    }
}

impl Halfway {
    /// Returns what is to be written for the machine to go on with this, once the members and the
    /// backups have been looked at; `None` where it would not be safe. It `saves` what it is about
    /// to overwrite to the file that has the backups.
    pub fn settled(
        &self,
        candidates: &[Candidate],
        now: u64,
        saves: bool,
        read: &mut ReadMember<'_>,
    ) -> Option<Settlement> {
        if (self.is_in_doubt && !self.force) || self.is_stated {
            return None;
        }
        self.check_backup().ok()?;
        let mut maps = Maps::of(self, read)?;
        // What Braid was about to overwrite is in the backup, or where it was.
        if !maps.are_whole() && !self.is_of_braid() {
            return None;
        }
        let firm = if self.is_sure { maps.firm_front(self.front) } else { self.front };
        // Where data begin elsewhere there are no backups, and all of it is moved once more.
        let position = if self.shifts { firm } else { self.end_of_backups(self.front) };
        // A backup that holds more than the array does is not believed.
        if !self.is_known(position) || position > self.numbers.size_sectors() {
            return None;
        }
        // One may have missed that the reshape was turned round.
        let all = all_turned(&self.numbers, candidates, &self.superblock);
        let newest = self.newest(&all, now, position);
        let candidates: Vec<Candidate> = all.iter().map(|one| self.settle(one, &newest)).collect();
        let mut numbers = self.numbers.clone();
        numbers.position = position;
        let saves = saves && !self.shifts && !numbers.reads_ahead();
        if !is_possible(&numbers, &candidates, &newest, saves) {
            return None;
        }
        let mut data = self.restored(firm.min(position)..firm.max(position), read)?;
        if !crate::broken("settle-behind") {
            let behind = all.iter().filter(|one| self.is_behind(one));
            data.extend(behind.flat_map(|one| written(&self.settle(one, &self.superblock))));
        }
        let metadata = candidates.iter().filter(|one| self.is_told(one)).flat_map(written);
        let metadata = metadata.collect();
        let saved_sectors = if saves { saved_at_a_time(numbers.unit()) } else { 0 };
        let is_of_md = !self.is_of_braid();
        Some(Settlement { data, metadata, candidates, position, saved_sectors, is_of_md })
    }

    /// Returns whether it is known what lies where, once all between these is restored: the data
    /// tell how far it has come, or a backup is what was before, or nothing has been written over
    /// that is yet to be moved.
    fn is_known(&self, position: u64) -> bool {
        match &self.code {
            // What was moved further on would be lost.
            Some(code) => {
                let ranges = code.moved.iter().chain(&code.torn);
                ranges.map(|range| range.end).max().is_none_or(|end| end <= position)
            }
            None if self.is_sure || position != self.front => true,
            // md waits where backups end.
            None if self.done.iter().any(|one| self.ends_at_front(&one.array)) => true,
            None => !self.shifts && (!self.needs_backup() || self.force && self.has_backup),
        }
    }

    fn ends_at_front(&self, array: &Range<u64>) -> bool {
        self.front == if self.numbers.backwards { array.start } else { array.end }
    }

    /// Returns where the backups end that begin here, the way that data move.
    fn end_of_backups(&self, front: u64) -> u64 {
        let mut at = front;
        let backwards = self.numbers.backwards;
        let next = |at: u64| if backwards { at.checked_sub(1) } else { Some(at) };
        let holds = |at: u64| {
            let mut arrays = self.backups.iter().map(|backup| &backup.array);
            let array = arrays.find(|array| array.contains(&at))?;
            Some(if backwards { array.start } else { array.end })
        };
        while let Some(end) = next(at).and_then(holds) {
            at = end;
        }
        at
    }

    /// Returns the stripes of the new map that hold this range of the array, from backups; from
    /// where they are, if they have moved, but for their parity.
    fn restored(&self, range: Range<u64>, read: &mut ReadMember<'_>) -> Option<Vec<SettlingWrite>> {
        let map = &self.numbers.new;
        if map.parity_disks() == 0 {
            return if range.is_empty() { Some(Vec::new()) } else { None };
        }
        let chunk = u64::from(map.chunk_sectors());
        let stripe_sectors = chunk * u64::from(map.data_disks());
        let ends = [range.start, range.end];
        if !ends.iter().all(|end| end.is_multiple_of(stripe_sectors)) {
            return if range.is_empty() { Some(Vec::new()) } else { None };
        }
        let mut writes = Vec::new();
        for stripe in range.start / stripe_sectors..range.end / stripe_sectors {
            let mut strips: Vec<(Role, Vec<u8>)> = Vec::new();
            let mut coefs = Vec::new();
            for index in 0..map.data_disks() {
                let at = stripe * stripe_sectors + u64::from(index) * chunk;
                strips.push((map.data_role(stripe, index), self.kept(at..at + chunk, read)?));
                coefs.push(map.q_coef(stripe, index));
            }
            let (p, q) = map.parity_roles(stripe);
            let data: Vec<&[u8]> = strips.iter().map(|(_, bytes)| bytes.as_slice()).collect();
            let bytes = (chunk * SECTOR_BYTES) as usize;
            let ones = vec![1; coefs.len()];
            let of = |role, coefs: &[u8]| {
                let mut sum = vec![0; bytes];
                braid_parity::combine(&mut [&mut sum], coefs, &data, false);
                (role, sum)
            };
            let parity: Vec<(Role, Vec<u8>)> =
                [Some(of(p, &ones)), q.map(|q| of(q, &coefs))].into_iter().flatten().collect();
            for (role, bytes) in strips.into_iter().chain(parity) {
                writes.extend(self.placed(role, stripe * chunk, bytes));
            }
        }
        Some(writes)
    }

    /// Sectors of the array, from a backup or where they have moved to.
    fn kept(&self, range: Range<u64>, read: &mut ReadMember<'_>) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let backup = self.backups.iter().find(|one| one.array.contains(&at));
            let end = if let Some(backup) = backup {
                let end = range.end.min(backup.array.end);
                bytes.extend(backup.read(at..end, read)?);
                end
            } else if self.is_moved(&(at..at + 1)) {
                let end = range.end.min(at + self.numbers.new.run(at).min(PART_SECTORS));
                bytes.extend(Maps::of(self, read)?.data(Side::New, at, end - at)?);
                end
            } else {
                return None;
            };
            at = end;
        }
        Some(bytes)
    }

    /// A strip where the new map has it, if its member is there.
    fn placed(&self, role: Role, sector: u64, bytes: Vec<u8>) -> Option<SettlingWrite> {
        let members = &self.new.as_deref().ok()?.members;
        let member = members.iter().find(|it| it.standing == Standing::InSync { role })?;
        let sector = member.superblock.data_offset + sector;
        Some(SettlingWrite { device: member.device.clone(), sector, bytes })
    }

    /// Returns whether a candidate is told of the position.
    fn is_told(&self, candidate: &Candidate) -> bool {
        let own = candidate.superblock.as_ref();
        own.is_ok_and(|own| is_current(own, &self.superblock) && is_halfway(own))
    }

    /// Returns whether a candidate has missed the last update.
    fn is_behind(&self, candidate: &Candidate) -> bool {
        let is_older = |own: &Superblock| own.events < self.superblock.events;
        let own = candidate.superblock.as_ref();
        let rests = own.is_ok_and(|own| !own.has(feature::RECOVERY_OFFSET) && is_older(own));
        rests && self.is_told(candidate)
    }

    /// The newest superblock with the position. A member that is being rebuilt, as that with Q is
    /// for md while level 5 becomes level 6, is a spare until the reshape is over.
    fn newest(&self, candidates: &[Candidate], now: u64, position: u64) -> Superblock {
        let mut newest = (*self.superblock).clone();
        newest.events += 1;
        // By its microseconds it is known not to be md's.
        let (seconds, micros) = time_parts(now);
        newest.utime = time_code(seconds, micros.max(1));
        newest.reshape.position = position;
        for own in candidates.iter().filter(|one| self.is_told(one)) {
            if let Ok(own) = &own.superblock
                && own.has(feature::RECOVERY_OFFSET)
                && let Some(role) = newest.roles.get_mut(own.dev_number as usize)
            {
                *role = DevRole::Spare;
            }
        }
        newest
    }

    /// A candidate as it is when its superblock tells what the newest one does.
    fn settle(&self, candidate: &Candidate, newest: &Superblock) -> Candidate {
        let mut settled = candidate.clone();
        if self.is_told(candidate)
            && let Ok(own) = &mut settled.superblock
        {
            if let Some(Ok(bitmap)) = &mut settled.bitmap
                && !bitmap.stale(own.set_uuid, own.events)
            {
                bitmap.superblock.events = newest.events;
            }
            own.events = newest.events;
            own.utime = newest.utime;
            own.reshape.position = newest.reshape.position;
            own.roles.clone_from(&newest.roles);
            own.feature_map &= !feature::RECOVERY_OFFSET;
            own.recovery_offset = 0;
        }
        settled
    }
}

impl Maps<'_, '_> {
    /// Returns whether all members are there, but for one that holds nothing but Q, or is being
    /// rebuilt: stripes that were written over as far as the other ones were cannot be computed.
    fn are_whole(&self) -> bool {
        let missing = |side: Side| {
            let config = if side == Side::Old { self.old } else { self.new };
            let disks = u16::try_from(self.numbers.map(side).raid_disks()).unwrap_or(u16::MAX);
            let apart = self.numbers.apart(side);
            let holds = |role| {
                let mut members = config.members.iter();
                members.any(|member| match member.standing {
                    Standing::InSync { role: held } => held == role,
                    Standing::Rebuilding { role: held, .. } => {
                        held == role && self.numbers.map(side).parity_disks() == 2
                    }
                    _ => false,
                })
            };
            Role::all(disks).filter(|role| Some(*role) != apart && !holds(*role)).count()
        };
        missing(Side::Old) == 0 && missing(Side::New) == 0
    }

    /// Goes back over what is the same in both maps: nothing shows that its parity was written, and
    /// to move it once more does no harm.
    fn firm_front(&mut self, front: u64) -> u64 {
        let told = self.numbers.position;
        let mut at = front;
        while at != told
            && let Some(unit) = self.numbers.last_unit(at)
            && matches!(self.compare(&unit), UnitComparison::Bland | UnitComparison::Twice)
        {
            at = if self.numbers.backwards { unit.end } else { unit.start };
        }
        at
    }
}

/// The bitmap's superblock and the member's, as they are written.
fn written(candidate: &Candidate) -> Vec<SettlingWrite> {
    let Ok(superblock) = &candidate.superblock else { return Vec::new() };
    let write = |sector, bytes| SettlingWrite { device: candidate.device.clone(), sector, bytes };
    let bitmap = candidate.bitmap.as_ref().and_then(|bitmap| bitmap.as_ref().ok());
    let bitmap = bitmap.zip(superblock.bitmap_sector());
    let bitmap = bitmap.map(|(bitmap, sector)| write(sector, bitmap.encode_page(0)));
    let own = write(superblock.super_offset, to_level_4(superblock.clone()).encode());
    bitmap.into_iter().chain([own]).collect()
}
