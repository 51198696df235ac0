//! mdadm's backups: where the two maps lie upon each other, mdadm copies what is about to be moved
//! to a file, or behind the data of a spare, before md may move it.
//! [Headers](crate::format::backup) say what they hold.

use std::ops::Range;

use super::Halfway;
use super::front::ReadMember;
use crate::assemble::Candidate;
use crate::assemble::judge::same_array;
use crate::format::DevRole;
use crate::format::backup::{HEADER_SECTORS, MAGIC_1, MAGIC_2};
use crate::format::reshaped::Side;
use crate::refusal::{Advised, Next};

/// A backup may be so much older than the superblocks, or younger: mdadm's limits.
const OLDER_SECONDS: u64 = 2 * 60 * 60;
const YOUNGER_SECONDS: u64 = 10 * 60;

/// A part of the array that a backup holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// The file or device.
    pub device: String,
    /// Sectors of its data there.
    pub data: Range<u64>,
    /// Sectors of the array that these are.
    pub array: Range<u64>,
}

/// A member that may hold a backup.
#[derive(Clone, Debug)]
pub(super) struct BackupPlace {
    device: String,
    device_sectors: u64,
    /// Sector of the header behind the data of the backup.
    sector: u64,
}

fn number(header: &[u8], at: usize) -> Option<u64> {
    let bytes = header.get(at..at + 8)?.try_into().ok()?;
    Some(u64::from_le_bytes(bytes))
}

impl Backup {
    pub(super) const fn sectors(&self) -> u64 {
        self.data.end - self.data.start
    }
}

/// The reason why a backup is of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackupError {
    /// No header.
    #[error("it is no backup file of mdadm's")]
    NoMagic,
    /// The backup is of another array.
    #[error("it is of another array, {uuid}")]
    Foreign {
        /// UUID.
        uuid: String,
    },
    /// Numbers that cannot be.
    #[error("its header names sectors that it does not have")]
    Places,
    /// The backup is of another time.
    #[error("it was written {seconds} s {what} the superblocks were")]
    Time {
        /// Difference of the times.
        seconds: u64,
        /// `before` or `after`.
        what: &'static str,
    },
}

impl Advised for BackupError {
    fn next(&self) -> Next {
        match self {
            Self::NoMagic | Self::Foreign { .. } => "name the file that the reshape began with",
            Self::Places => "find a copy of it that is whole",
            Self::Time { .. } => "name the file that the reshape began with, or take it by --force",
        }
        .into()
    }
}

impl Halfway {
    /// Bytes of a backup file that are read to know it.
    pub const BACKUP_HEADER_BYTES: usize = 512;

    /// Gives the contents of this backup precedence over the array. `header` are the first bytes of
    /// a file of so many sectors. Parts of the array behind the reshape are left out.
    ///
    /// # Errors
    /// [`BackupError`].
    pub fn add_backup(
        &mut self,
        device: &str,
        device_sectors: u64,
        header: &[u8],
    ) -> Result<(), BackupError> {
        let halves = self.halves(header)?;
        for (start, array_start, length) in halves.into_iter().filter(|(.., length)| *length > 0) {
            let range = |start: u64| Some(start..start.checked_add(length)?);
            let (Some(data), Some(array)) = (range(start), range(array_start)) else {
                return Err(BackupError::Places);
            };
            if data.end > device_sectors {
                return Err(BackupError::Places);
            }
            let is_over = self.is_moved(&array);
            let overlaps =
                |other: &Backup| array.start < other.array.end && other.array.start < array.end;
            let is_known = self.backups.iter().any(overlaps);
            let backup = Backup { device: device.to_owned(), data, array };
            if is_over {
                self.done.push(backup);
            } else if !is_known {
                self.backups.push(backup);
            }
        }
        self.has_backup = true;
        self.pass_forgotten();
        Ok(())
    }

    /// Returns whether the front has passed all of this.
    pub(super) const fn is_moved(&self, array: &Range<u64>) -> bool {
        if self.numbers.backwards { array.start >= self.front } else { array.end <= self.front }
    }

    /// mdadm drops a backup once what it holds was moved, and makes them one behind the other: what
    /// lies between the position and all that are left was moved.
    fn pass_forgotten(&mut self) {
        let ranges = self.backups.iter().map(|backup| &backup.array);
        let reached = if self.numbers.backwards {
            ranges.map(|range| range.end).max().map(|end| end.min(self.front))
        } else {
            ranges.map(|range| range.start).min().map(|start| start.max(self.front))
        };
        if let (Some(reached), None) = (reached, &self.code) {
            self.front = reached.min(self.numbers.size_sectors());
        }
    }

    /// Returns the places where backups may lie on members: mdadm makes them behind the data of
    /// those that the old map does not have, where it was given no file.
    pub(super) fn places(&self, candidates: &[Candidate]) -> Vec<BackupPlace> {
        let old = self.numbers.old.raid_disks();
        if old >= self.numbers.new.raid_disks() {
            return Vec::new();
        }
        let place = |candidate: &Candidate| {
            let superblock = candidate.superblock.as_ref().ok()?;
            let is_free = match superblock.role() {
                DevRole::Spare => true,
                DevRole::Active(role) => u32::from(role.0) >= old,
                _ => false,
            };
            let end = superblock.data_offset.checked_add(superblock.size_sectors)?;
            let sector = end.checked_sub(HEADER_SECTORS)?;
            (is_free && same_array(superblock, &self.superblock)).then(|| BackupPlace {
                device: candidate.device.clone(),
                device_sectors: candidate.device_sectors,
                sector,
            })
        };
        candidates.iter().filter_map(place).collect()
    }

    /// Looks for backups on members, and has what they hold win over the array.
    ///
    /// # Errors
    /// [`BackupError`], with the member.
    pub fn add_backups_on_members(
        &mut self,
        read: &mut ReadMember<'_>,
    ) -> Result<(), (String, BackupError)> {
        for BackupPlace { device, device_sectors, sector } in self.places.clone() {
            let mut header = |sector| read(&device, sector, Self::BACKUP_HEADER_BYTES);
            // The header is there twice, before the data and behind them.
            let Some(behind) = header(sector) else { continue };
            let Some(start) = self.start_on_member(&behind) else { continue };
            let Some(before) = start.checked_sub(HEADER_SECTORS).and_then(header) else { continue };
            let told = if behind.get(..16) == Some(MAGIC_1.as_slice()) { 68 } else { 100 };
            if before.get(..told) == behind.get(..told) {
                self.add_backup(&device, device_sectors, &behind).map_err(|why| (device, why))?;
            } else if self.is_dropped(&before) {
                self.has_backup = true;
            }
        }
        Ok(())
    }

    /// Returns the sector at which the data of a backup on a member begin, if it is one of this
    /// array.
    fn start_on_member(&self, header: &[u8]) -> Option<u64> {
        match self.halves(header) {
            Ok([(start, ..), _]) => Some(start),
            // It is said later.
            Err(BackupError::Time { .. }) => number(header, 40),
            Err(_) => None,
        }
    }

    /// mdadm drops a backup in the first of its headers alone.
    fn is_dropped(&self, header: &[u8]) -> bool {
        matches!(self.halves(header), Ok([(.., 0), (.., 0)]))
    }

    /// Data sector, array sector and length of both halves.
    fn halves(&self, header: &[u8]) -> Result<[(u64, u64, u64); 2], BackupError> {
        let number = |at| number(header, at).ok_or(BackupError::NoMagic);
        let magic = header.get(..16).ok_or(BackupError::NoMagic)?;
        if magic != MAGIC_1 && magic != MAGIC_2 {
            return Err(BackupError::NoMagic);
        }
        let uuid: [u8; 16] =
            header.get(16..32).and_then(|u| u.try_into().ok()).ok_or(BackupError::NoMagic)?;
        if uuid != self.superblock.set_uuid {
            let version = self.superblock.version;
            let uuid = crate::format::superblock::uuid_text(version, uuid);
            return Err(BackupError::Foreign { uuid });
        }
        let first = (number(40)?, number(48)?, number(56)?);
        let second = if magic == MAGIC_1 {
            (0, 0, 0)
        } else {
            let start = first.0.checked_add(number(72)?).ok_or(BackupError::Places)?;
            (start, number(80)?, number(88)?)
        };
        // Braid tells of a position behind what it has restored at once, however old that is.
        let is_over = |(_, start, length): (u64, u64, u64)| {
            length == 0
                || self.is_of_braid() && self.is_moved(&(start..start.saturating_add(length)))
        };
        let needs = [first, second].into_iter().any(|half| !is_over(half));
        if !self.force && needs {
            self.check_time(number(32)?)?;
        }
        Ok([first, second])
    }

    fn check_time(&self, written: u64) -> Result<(), BackupError> {
        let (told, _) = crate::format::superblock::time_parts(self.superblock.utime);
        let before = told.saturating_sub(written);
        let after = written.saturating_sub(told);
        if before > OLDER_SECONDS {
            return Err(BackupError::Time { seconds: before, what: "before" });
        }
        if after > YOUNGER_SECONDS {
            return Err(BackupError::Time { seconds: after, what: "after" });
        }
        Ok(())
    }

    /// Returns whether the data about the position can only be had from a backup. From half of the
    /// critical sectors on a unit is not written over what is yet to be moved, and mdadm has no
    /// backups of it; but the position is old there.
    pub(super) fn needs_backup(&self) -> bool {
        let critical = self.numbers.critical_sectors();
        let critical = if self.is_sure { (critical / 2).saturating_sub(1) } else { critical };
        self.numbers.is_by_stripe()
            && !self.shifts
            && self.needs(Side::Old)
            && self.front <= critical
    }
}
