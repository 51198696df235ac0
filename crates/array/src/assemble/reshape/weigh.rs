//! Weighing backups: each should hold what was there before md moved it.
//!
//! Usually it does: mdadm writes it, and has md go on then. But since mdadm 4.2 `start_reshape` in
//! its `Grow.c` lets md run before there is a backup, and md takes no lower `sync_max` while it
//! runs. So a backup may have been copied by the old map after the data were moved. Such a backup
//! holds what the old map gives there now, and not what the new one gives.

use std::ops::Range;

use super::code::{BLOCK_SECTORS, block};
use super::front::{Maps, PART_SECTORS, ReadMember};
use super::{Backup, Halfway};
use crate::format::reshaped::Side;
use crate::{Refusal, SECTOR_BYTES};

/// Findings about the backups.
#[derive(Clone, Copy, Default)]
struct BackupFindings {
    /// Something that was moved is in them as the new map has it, and not as the old one has it.
    before: bool,
    /// Something that was moved is not in them.
    after: bool,
    /// The last of them was moved to its end.
    to_the_end: bool,
}

impl Halfway {
    /// Compares the backups with what the members hold. Backups that were made too late are no
    /// longer taken. Returns a sentence for people, if there is something to say.
    pub fn weigh(&mut self, read: &mut ReadMember<'_>) -> Option<String> {
        if self.is_of_braid() {
            return None;
        }
        let said = self.weighed(read);
        self.is_in_doubt |= said.is_some();
        said
    }

    fn weighed(&mut self, read: &mut ReadMember<'_>) -> Option<String> {
        let Some(code) = &self.code else { return self.weigh_by_maps(read) };
        let is_whole = code.torn.is_empty();
        let found = self.found_by_code(read);
        let mut said = None;
        if found.after {
            self.backups.clear();
            let late = "the backup was made after md had moved what it should hold, and is left \
                        out: do not let md restore it";
            said = Some(late.to_owned());
        } else if !found.before && is_whole {
            // The members hold all.
            self.backups.clear();
        } else if !found.before && !self.backups.is_empty() {
            said = Some(self.unknown());
        }
        if self.force
            && let Some(lost) = self.lost()
        {
            let Range { start, end } = lost;
            let lost = format!("sectors {start} to {end} were being moved, and may be wrong");
            said = Some(said.map_or(lost.clone(), |said| format!("{said}; {lost}")));
        }
        said
    }

    /// Returns the range in which something was being written that is in no backup.
    pub(super) fn lost(&self) -> Option<Range<u64>> {
        let torn = self.code.iter().flat_map(|code| &code.torn);
        let is_kept = |unit: &&Range<u64>| {
            let mut at = unit.start;
            while let Some(backup) = self.backups.iter().find(|one| one.array.contains(&at)) {
                at = backup.array.end;
            }
            at >= unit.end
        };
        let mut lost = torn.filter(|unit| !is_kept(unit));
        let first = lost.next()?;
        Some(first.start..lost.next_back().unwrap_or(first).end)
    }

    /// Checks that the needed backups are there.
    pub(super) fn check_backup(&self) -> Result<(), Refusal> {
        if self.code.is_some() {
            let lost = if self.force { None } else { self.lost() };
            let Some(Range { start, end }) = lost else { return Ok(()) };
            let reason = format!(
                "{}: sectors {start} to {end} were being moved, and no backup holds them",
                self.description()
            );
            let advice = "name the file that mdadm was given, by --backup-file FILE; or read \
                          without it: these may be wrong";
            return Err(Refusal::new(reason, self.by_force(advice)));
        }
        if self.force || self.has_backup || !self.needs_backup() {
            return Ok(());
        }
        let mib = (self.front * SECTOR_BYTES) >> 20;
        let reason = format!(
            "{}: what was being moved, about {mib} MiB into the array, may be in a backup \
             alone",
            self.description()
        );
        let next = "name the file that the reshape began with, by --backup-file FILE; or read \
                    without it by --force, what is there may be wrong";
        Err(Refusal::new(reason, next))
    }

    fn unknown(&self) -> String {
        let front = self.front;
        format!(
            "nothing shows that md waited for the backup, and mdadm 4.2 and newer do not have it \
             wait: compare the content from sector {front} on with what you know"
        )
    }

    /// Compares each block that parity says was moved.
    fn found_by_code(&self, read: &mut ReadMember<'_>) -> BackupFindings {
        let mut found = BackupFindings::default();
        for backup in self.backups.iter().chain(&self.done) {
            let mut moved = Vec::new();
            let Some(mut maps) = Maps::of(self, read) else { break };
            let _ = maps.parts(&backup.array, &mut |part| {
                for (at, strip) in &part.data {
                    for row in 0..strip.len().div_ceil(block(strip, 0).len().max(1)) {
                        if part.is_moved(row) {
                            let at = at + row as u64 * BLOCK_SECTORS;
                            moved.push((at, block(strip, row).to_vec()));
                        }
                    }
                }
            });
            for (at, content) in moved {
                let sectors = content.len() as u64 / SECTOR_BYTES;
                let Some(kept) = backup.read(at..at + sectors, read) else { continue };
                found.before |= kept == content;
                found.after |= kept != content;
            }
        }
        found
    }

    /// Weighs the backups where parity does not tell.
    fn weigh_by_maps(&self, read: &mut ReadMember<'_>) -> Option<String> {
        if !self.has_backup || !self.needs_backup() {
            return None;
        }
        let mut found = BackupFindings::default();
        let mut backups: Vec<&Backup> = self.backups.iter().chain(&self.done).collect();
        backups.sort_unstable_by_key(|backup| backup.array.end);
        for backup in &backups {
            found = self.found_by_maps(backup, found, read);
        }
        let end = backups.last().map_or(0, |backup| backup.array.end);
        // md writes the position down half way to where it has to wait, again and again.
        let is_near = end <= self.front.saturating_add(2 * self.numbers.unit());
        if found.before && (!found.to_the_end || is_near) {
            return None;
        }
        Some(self.unknown())
    }

    fn found_by_maps(
        &self,
        backup: &Backup,
        so_far: BackupFindings,
        read: &mut ReadMember<'_>,
    ) -> BackupFindings {
        let mut found = BackupFindings { to_the_end: false, ..so_far };
        let run = |at| self.numbers.old.run(at).min(self.numbers.new.run(at));
        let mut at = backup.array.start;
        while at < backup.array.end {
            let sectors = run(at).min(backup.array.end - at).clamp(1, PART_SECTORS);
            let range = at..at + sectors;
            at += sectors;
            let Some(kept) = backup.read(range.clone(), read) else { continue };
            let Some(mut maps) = Maps::of(self, read) else { break };
            let old = maps.data(Side::Old, range.start, sectors);
            let new = maps.data(Side::New, range.start, sectors);
            let (Some(old), Some(new)) = (old, new) else { continue };
            if old != new {
                found.to_the_end = new == kept;
                found.before |= new == kept;
            }
        }
        found
    }
}

impl Backup {
    /// Sectors of the array, of which it holds all.
    pub(super) fn read(&self, range: Range<u64>, read: &mut ReadMember<'_>) -> Option<Vec<u8>> {
        if range.start < self.array.start || range.end > self.array.end {
            return None;
        }
        let sector = self.data.start + (range.start - self.array.start);
        read(&self.device, sector, ((range.end - range.start) * SECTOR_BYTES) as usize)
    }
}
