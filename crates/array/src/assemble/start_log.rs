//! The log that an array starts with: what is to be brought in place before it serves anything.

use super::found_log::FoundLog;
use super::refused::{ArrayKind, Refused};
use super::table::Table;
use super::{Candidate, Options, Verdict};
use crate::condition::Condition;
use crate::format::journal;
use crate::format::ppl::PplArea;
use crate::format::superblock::{DevRole, MAX_SECTOR, feature};
use crate::geometry::Geometry;
use crate::level::Level;
use crate::log::journal::JournalScan;
use crate::log::ppl::{PplFix, fixes};
use crate::refusal::Next;
use crate::units::UNIT_SECTORS;
use crate::{MemberId, Role};

/// The log of an array that is to start.
#[derive(Clone, Debug, Default)]
pub enum StartLog {
    /// The array has none.
    #[default]
    None,
    /// Partial parity logs.
    PartialParity {
        /// Parity that is to be made anew.
        fixes: Vec<PplFix>,
        /// The latest generation in the log of each member; `None` of those that have no role.
        generations: Vec<Option<u64>>,
        /// With that, all parity fits.
        closed: bool,
    },
    /// A journal.
    Journal {
        /// The device that holds it.
        member: MemberId,
        /// Contents that are to be brought in place.
        scan: JournalScan,
    },
    /// A journal that is off for a time: nothing that it holds counts.
    JournalOff {
        /// The device that holds it.
        member: MemberId,
        /// Where it goes on.
        scan: JournalScan,
    },
}

impl StartLog {
    /// Partial parity logs that are empty, or are going to be.
    pub(crate) const fn empty_partial_parity() -> Self {
        Self::PartialParity { fixes: Vec::new(), generations: Vec::new(), closed: false }
    }

    /// Returns whether there is something to be brought in place.
    #[must_use]
    pub fn has_to_replay(&self) -> bool {
        match self {
            Self::None | Self::JournalOff { .. } => false,
            Self::PartialParity { fixes, .. } => !fixes.is_empty(),
            Self::Journal { scan, .. } => !scan.is_empty(),
        }
    }

    /// Returns whether all parity fits, once that is done.
    pub(super) const fn closes(&self) -> bool {
        matches!(self, Self::PartialParity { closed: true, .. })
    }
}

impl Table<'_> {
    /// Checks that the array can have the logs that its superblock names.
    pub(super) fn check_logs(&self, kind: &ArrayKind) -> Result<(), Refused> {
        let newest = self.superblock();
        let reason = if newest.has(feature::ANY_PPL) && kind.level != Level::Raid5 {
            format!(
                "the array is a {} with a partial parity log, which only a raid5 has",
                kind.level
            )
        } else if newest.has(feature::JOURNAL) && kind.level.parity_disks() == 0 {
            format!(
                "the array is a {} with a journal, which only levels with parity have",
                kind.level
            )
        } else if newest.has(feature::JOURNAL) && newest.has(feature::BITMAP_OFFSET) {
            "the array has a journal and a bitmap, which exclude each other".to_owned()
        } else {
            match PplArea::of(newest) {
                Ok(_) => return Ok(()),
                Err(_) if matches!(newest.role(), DevRole::Journal | DevRole::Spare) => {
                    return Ok(());
                }
                Err(reason) => format!("the newest superblock is not possible: {reason}"),
            }
        };
        Err(Refused::new(reason, self.compare()))
    }

    /// The log that the array starts with.
    pub(super) fn start_log(
        &self,
        kind: &ArrayKind,
        geometry: &Geometry,
        options: Options,
    ) -> Result<StartLog, Refused> {
        let newest = self.superblock();
        let log = if newest.has(feature::JOURNAL) {
            self.start_journal(options)?
        } else if newest.has(feature::ANY_PPL) && kind.level == Level::Raid5 {
            self.start_partial_parity(geometry)
        } else if options.read_only {
            StartLog::None
        } else {
            self.journal_off()
        };
        if !options.read_only {
            self.check_log_room(&log, geometry.chunk_sectors().clamp(8, UNIT_SECTORS).into())?;
        }
        Ok(log)
    }

    /// Checks that the largest write fits into the log.
    fn check_log_room(&self, log: &StartLog, unit_sectors: u64) -> Result<(), Refused> {
        let newest = self.superblock();
        let reason = match log {
            StartLog::None | StartLog::JournalOff { .. } => return Ok(()),
            StartLog::PartialParity { .. } => match PplArea::of(newest) {
                Ok(Some(area)) if !area.takes(unit_sectors) => format!(
                    "the partial parity log of each member has {} KiB, less than a write may take",
                    area.sectors / 2
                ),
                _ => return Ok(()),
            },
            StartLog::Journal { scan, .. } => {
                let least = journal::least_sectors(newest.raid_disks, unit_sectors);
                if scan.area.sectors >= least {
                    return Ok(());
                }
                let has = scan.area.sectors / 2;
                let needs = least / 2;
                format!("the journal has {has} KiB, and a write of the array may take {needs} KiB")
            }
        };
        let next = "read it with --readonly; or take the log away with braid update \
                    --consistency-policy resync, and give it a larger one";
        Err(Refused::new(reason, next))
    }

    fn start_partial_parity(&self, geometry: &Geometry) -> StartLog {
        let attached = || self.members().filter(|(_, _, verdict)| verdict.attached());
        let scan = |found: &Option<Result<FoundLog, String>>| match found {
            Some(Ok(FoundLog::PartialParity(scan))) => Some(scan.clone()),
            _ => None,
        };
        let generations = attached()
            .map(|(candidate, _, verdict)| {
                verdict.role().and(scan(&candidate.log)).map(|scan| scan.generation)
            })
            .collect();
        let mut all = Vec::new();
        let mut proved = false;
        let whole = self.degraded() == 0;
        let mut doubtful = self.superblock().resync_offset != 0;
        for (candidate, _, verdict) in attached() {
            let Some(role) = verdict.in_sync_role() else { continue };
            let scan = scan(&candidate.log).filter(|scan| !scan.blank && !scan.impossible);
            let Some(scan) = scan else {
                doubtful = true;
                continue;
            };
            proved |= scan.torn || !scan.entries.is_empty();
            // Of a unit that was never whole nothing is written; one that was damaged since looks
            // the same. A resync settles that where one is possible.
            doubtful |= scan.torn && whole;
            for (entry, parity) in &scan.entries {
                match fixes(entry, parity, geometry, &|role| self.held_rows(role)) {
                    Ok(fixes) if fixes.iter().all(|fix| fix.parity == role) => all.extend(fixes),
                    _ => doubtful = true,
                }
            }
        }
        // Of an array that is clean, nothing is to be made anew.
        if self.superblock().resync_offset == MAX_SECTOR {
            all.clear();
        }
        StartLog::PartialParity { fixes: all, generations, closed: proved && !doubtful }
    }

    /// Returns how many rows of a role are on members that are there, from the first on.
    fn held_rows(&self, role: Role) -> u64 {
        let rows = self.verdicts.iter().map(|verdict| match *verdict {
            Verdict::Active { role: held } | Verdict::Forced { role: held, .. } if held == role => {
                u64::MAX
            }
            Verdict::Rebuilding { role: held, offset_sectors } if held == role => offset_sectors,
            _ => 0,
        });
        rows.max().unwrap_or(0)
    }

    /// The journal that is off for a time, if its device is there. Its records are of before.
    fn journal_off(&self) -> StartLog {
        let attached = (0u16..).zip(self.members().filter(|(_, _, verdict)| verdict.attached()));
        let mut journals =
            attached.filter(|(_, (_, _, verdict))| matches!(verdict, Verdict::Journal));
        match journals.next() {
            Some((index, (Candidate { log: Some(Ok(FoundLog::Journal(scan))), .. }, _, _))) => {
                StartLog::JournalOff { member: MemberId(index), scan: scan.emptied() }
            }
            _ => StartLog::None,
        }
    }

    fn start_journal(&self, options: Options) -> Result<StartLog, Refused> {
        let attached = self.members().filter(|(_, _, verdict)| verdict.attached());
        let journal =
            (0u16..).zip(attached).find(|(_, (_, _, verdict))| matches!(verdict, Verdict::Journal));
        let reason = match journal {
            Some((index, (candidate, _, _))) => match &candidate.log {
                Some(Ok(FoundLog::Journal(scan)))
                    if !options.read_only && !scan.has_room_to_move() =>
                {
                    let device = &candidate.device;
                    let reason = format!(
                        "the journal {device} is too full for what it holds without parity to be \
                         recorded anew"
                    );
                    let next = "assemble it with mdadm and stop it, which brings that in place";
                    return Err(Refused::new(reason, next));
                }
                Some(Ok(FoundLog::Journal(scan))) => {
                    let member = MemberId(index);
                    return Ok(StartLog::Journal { member, scan: scan.clone() });
                }
                Some(Err(reason)) => {
                    format!("the journal {} cannot be used: {reason}", candidate.device)
                }
                _ => format!("the journal {} was not read", candidate.device),
            },
            None => {
                let stale = self.members().find(|(_, superblock, verdict)| {
                    superblock.role() == DevRole::Journal
                        && matches!(verdict, Verdict::Stale { .. })
                });
                match stale {
                    Some((candidate, _, verdict)) => {
                        format!("the journal {} is {verdict}", candidate.device)
                    }
                    None => "the journal of the array is not there".to_owned(),
                }
            }
        };
        // Nobody vouches for parity, which takes the place of what is missing.
        let readable = options.read_only && journal.is_none() && self.degraded() == 0;
        if options.force || readable {
            return Ok(StartLog::None);
        }
        Err(self.without_journal(reason, options))
    }

    /// Returns the refusal of an array whose journal is missing, and what a start without it would
    /// cost.
    fn without_journal(&self, reason: String, options: Options) -> Refused {
        let options = Options { force: true, ..options };
        let advice = "bring the journal back; or start without it, and lose what was acknowledged \
                      and is in the journal alone: all redundancy is then made anew";
        let next = Next::by(advice, self.command(options, Verdict::attached));
        let next = next.of(Condition::JournalLost);
        Refused { could_force: true, ..Refused::new(reason, next) }
    }
}
