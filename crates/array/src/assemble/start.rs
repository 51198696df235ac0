//! The start of an array: whether it can start, and with what.

use crate::Role;
use std::collections::BTreeSet;

use super::bitmap::{Merged, merge};
use super::check::{adopted, with_shape};
use super::found_log::shape_of;
use super::refused::{ArrayKind, Refused};
use super::table::Table;
use super::{Candidate, Config, Had, MemberConfig, Options, Standing, Start, StartLog, Verdict};
use crate::SECTOR_BYTES;
use crate::code::Losses;
use crate::condition::Condition;
use crate::format::superblock::{MAX_SECTOR, feature};
use crate::format::{BitmapError, DevRole, Superblock, SuperblockError, Version};
use crate::geometry::{Geometry, GeometryError, MAX_MEMBERS};
use crate::level::{Layout, Level};
use crate::refusal::{Invocation, Next};

impl Table<'_> {
    /// Returns whether the array can start, and with what.
    pub(super) fn start(&mut self, options: Options) -> Start {
        match self.try_start(options) {
            Ok(start) => start,
            Err(Refused { reason, next, could_force }) => {
                Start::Refused { reason, next, could_force }
            }
        }
    }

    fn try_start(&mut self, options: Options) -> Result<Start, Refused> {
        let kind = self.check_kind(options)?;
        let redundant = !matches!(kind.level, Level::Linear | Level::Raid0);
        self.check_copies(redundant)?;
        self.check_candidates(options)?;
        // Without redundancy the geometry needs all members, so they are counted first.
        if !redundant {
            self.check_enough(&kind, options)?;
        }
        let geometry = self.geometry(&kind)?;
        let merged = self.merge_bitmap(&geometry);
        if let Some(merged) = &merged {
            self.bitmap_sectors = merged.bitmap.size_sectors();
            self.check_places();
            if merged.current {
                self.mark_re_add(merged.bitmap.superblock.events_cleared);
            }
        }
        if redundant {
            self.check_enough(&kind, options)?;
        }
        self.check_logs(&kind)?;
        let log = self.start_log(&kind, &geometry, options)?;
        self.check_clean(&kind, &geometry, merged.as_ref(), &log, options)?;
        self.check_expected(options)?;
        self.ready(&kind, &geometry, merged, log, options)
    }

    /// Checks that this is an array that can be run here at all.
    fn check_kind(&self, options: Options) -> Result<ArrayKind, Refused> {
        let newest = self.superblock();
        let use_mdadm = || Next::from("assemble it with mdadm").of(Condition::NotSupported);
        newest
            .supported()
            .map_err(|unsupported| Refused::new(format!("the array {unsupported}"), use_mdadm()))?;
        let level = Level::from_md(newest.level).ok_or_else(|| {
            let name = match newest.level {
                -4 => "multipath".to_owned(),
                -5 => "faulty".to_owned(),
                -100 => "container".to_owned(),
                number => format!("with number {number}"),
            };
            Refused::new(format!("the array is of level {name}"), use_mdadm())
        })?;
        if newest.raid_disks == 0 || newest.raid_disks > MAX_MEMBERS {
            let reason = format!("the array says it has {} members", newest.raid_disks);
            return Err(Refused::new(reason, self.compare()));
        }
        let number = match level {
            Level::Raid0 if !newest.has(feature::RAID0_LAYOUT) => 0,
            _ => newest.layout,
        };
        let layout = Layout::decode(level, number, newest.raid_disks)
            .map_err(|error| Refused::new(error.to_string(), use_mdadm()))?;
        let is_striped = matches!(level, Level::Linear | Level::Raid0);
        if newest.version == Version::V0_90 && is_striped && !options.read_only {
            let reason = format!("a {level} with metadata 0.90 is read, and not written");
            let options = Options { read_only: true, ..options };
            let next = Next::from(self.command(options, Verdict::attached));
            return Err(Refused::new(reason, next.of(Condition::NotSupported)));
        }
        Ok(ArrayKind { level, layout })
    }

    /// Refuses copies of a member where superblocks do not tell which one goes with the others.
    /// Without redundancy, event counts do not change when data do.
    fn check_copies(&self, redundant: bool) -> Result<(), Refused> {
        for (candidate, superblock, verdict) in self.members() {
            let Verdict::Duplicate { of } = verdict else { continue };
            let kept = self.candidates.iter().find(|other| other.device == *of);
            let Some(Ok(kept)) = kept.map(|kept| &kept.superblock) else { continue };
            if kept.events == superblock.events && !(redundant && kept == superblock) {
                let reason = format!(
                    "{}: {verdict}; superblocks do not tell which of the two goes with the other \
                     members",
                    candidate.device
                );
                let next = "name those alone that were copied at the same time, or none that is a \
                            copy, and look at the content with braid cat";
                return Err(Refused::new(reason, Next::from(next).of(Condition::Copies)));
            }
        }
        Ok(())
    }

    /// Checks that nothing is among the candidates that must not be there.
    fn check_candidates(&self, options: Options) -> Result<(), Refused> {
        let without = |verdict: &Verdict| {
            Next::from(self.command(options, Verdict::attached)).of(verdict.condition())
        };
        for (candidate, verdict) in self.candidates.iter().zip(&self.verdicts) {
            let no_member = matches!(candidate.superblock, Err(SuperblockError::NoMagic));
            if no_member || matches!(verdict, Verdict::Foreign { .. }) {
                let reason = format!("{}: {verdict}", candidate.device);
                return Err(Refused::new(reason, without(verdict)));
            }
        }
        for (candidate, superblock, verdict) in self.members() {
            let device = &candidate.device;
            match verdict {
                Verdict::Split { other, events } => {
                    let reason = format!(
                        "{device} and {other} are two halves of a split array: each went on alone \
                         to event count {events}"
                    );
                    let options = Options { read_only: true, ..options };
                    let devices = vec![device.clone()];
                    let look = Invocation::Assemble { name: None, rename: false, options, devices };
                    let next = Next::by("choose a half, and look at one first", look);
                    return Err(Refused::new(reason, next.of(Condition::Split)));
                }
                Verdict::Duplicate { .. } if superblock.events == self.superblock().events => {
                    return Err(Refused::new(format!("{device}: {verdict}"), without(verdict)));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Checks that there are enough members for the level, with `force` if need be.
    fn check_enough(&mut self, kind: &ArrayKind, options: Options) -> Result<(), Refused> {
        let raid_disks = self.superblock().raid_disks;
        let losses = Losses::of(kind.level, kind.layout, raid_disks);
        let losses = losses.map_err(|error| self.no_array(&error))?;
        let enough = |held: &BTreeSet<Role>| losses.survives(|role| !held.contains(&role));
        if options.force {
            self.force(enough);
        }
        let roles = self.in_sync_roles();
        if enough(&roles) {
            return Ok(());
        }
        let forceable = self.forceable().into_iter().map(|(_, role, _)| role);
        let could_force = enough(&roles.iter().copied().chain(forceable).collect());
        let needs = match kind.level {
            Level::Linear | Level::Raid0 => format!("all {raid_disks}"),
            Level::Raid10 => "a copy of everything".to_owned(),
            Level::Raid1 => "1".to_owned(),
            level => format!("{} of {raid_disks}", raid_disks - level.parity_disks()),
        };
        let reason = format!(
            "{} of the {raid_disks} members of this {} can be used, it needs {needs}{}",
            roles.len(),
            kind.level,
            self.problems()
        );
        let next = if could_force {
            let taken = |v: &Verdict| v.attached() || matches!(v, Verdict::Stale { .. });
            let options = Options { force: true, ..options };
            let advice = "find the missing members, or take stale ones and lose what they miss";
            Next::by(advice, self.command(options, taken))
        } else {
            let advice = "find the missing members, and see which device belongs where";
            Next::by(advice, self.examine())
        };
        let next = next.of(Condition::TooFewMembers);
        Err(Refused { could_force, ..Refused::new(reason, next) })
    }

    /// Returns whether data must be computed from parity that may be wrong.
    fn dirty_degraded(&self, kind: &ArrayKind) -> bool {
        let dirty = self.superblock().resync_offset != MAX_SECTOR;
        dirty && kind.level.parity_disks() > 0 && self.degraded() > 0
    }

    fn check_clean(
        &self,
        kind: &ArrayKind,
        geometry: &Geometry,
        merged: Option<&Merged>,
        log: &StartLog,
        options: Options,
    ) -> Result<(), Refused> {
        if options.force || log.closes() || !self.dirty_degraded(kind) {
            return Ok(());
        }
        let members = if self.degraded() == 1 { "a member is" } else { "members are" };
        let rebuilding = |verdict: &&Verdict| matches!(verdict, Verdict::Rebuilding { .. });
        let rebuilding = self.verdicts.iter().filter(rebuilding).count();
        // All are here where each that is not in sync is being rebuilt.
        let (lack, advice) = if rebuilding >= self.degraded() as usize {
            ("not rebuilt yet", "take for data what parity says there")
        } else {
            ("missing", "bring the missing members back, or take for data what parity says there")
        };
        // Stopped before a resync had got anywhere, superblocks say the same as after a crash.
        let why = match self.superblock().resync_offset {
            0 => "the array was not stopped cleanly, or with all of a resync to be done",
            _ => "the array was stopped with a resync to be done",
        };
        let waiting = geometry.sync_sectors().saturating_sub(self.superblock().resync_offset);
        let marked = merged.filter(|merged| merged.current).map(|Merged { bitmap, .. }| {
            bitmap.count() * u64::from(bitmap.superblock.chunk_bytes) / SECTOR_BYTES
        });
        let kib = marked.unwrap_or(waiting).min(waiting).div_ceil(2);
        let reason = format!(
            "{members} {lack} and {why}, so parity that is needed to compute the missing data \
             may be wrong in {kib} KiB of each member{}",
            self.problems()
        );
        let options = Options { force: true, ..options };
        let next = Next::by(advice, self.command(options, Verdict::attached));
        let next = next.of(Condition::DirtyDegraded);
        Err(Refused { could_force: true, ..Refused::new(reason, next) })
    }

    /// Checks that all members are there that the array had when it last ran.
    fn check_expected(&self, options: Options) -> Result<(), Refused> {
        let expected = self.superblock().active_roles();
        let present: BTreeSet<Role> = self.verdicts.iter().filter_map(Verdict::role).collect();
        let missing = expected.difference(&present).count();
        if missing == 0 || options.run || options.force || options.read_only {
            return Ok(());
        }
        let reason = format!(
            "{missing} of the {} members that were active when the array last ran cannot be \
             used{}",
            expected.len(),
            self.problems()
        );
        let options = Options { run: true, ..options };
        let advice = "find the missing members, or start without them";
        let next = Next::by(advice, self.command(options, Verdict::attached));
        Err(Refused::new(reason, next.of(Condition::MembersLeftOut)))
    }

    fn geometry(&self, kind: &ArrayKind) -> Result<Geometry, Refused> {
        let newest = self.superblock();
        let mut sizes: Vec<(Role, u64)> = self
            .members()
            .filter_map(|(_, superblock, v)| Some((v.in_sync_role()?, superblock.data_size)))
            .collect();
        sizes.sort_unstable();
        let sizes: Vec<u64> = sizes.into_iter().map(|(_, sectors)| sectors).collect();
        let shape = shape_of(kind.level, kind.layout, newest, &sizes);
        Geometry::new(&shape).map_err(|error| self.no_array(&error))
    }

    fn no_array(&self, error: &GeometryError) -> Refused {
        Refused::new(format!("the superblocks describe no array: {error}"), self.compare())
    }

    fn merge_bitmap(&self, geometry: &Geometry) -> Option<Merged> {
        let members = self.candidates.iter().zip(&self.verdicts);
        merge(self.superblock(), members, geometry.sync_sectors())
    }

    fn ready(
        &self,
        kind: &ArrayKind,
        geometry: &Geometry,
        merged: Option<Merged>,
        log: StartLog,
        options: Options,
    ) -> Result<Start, Refused> {
        let newest = self.superblock();
        if !options.read_only {
            self.check_bitmaps(merged.is_some())?;
        }
        let mut superblock = newest.clone();
        // A forced array stays unclean: what redundancy is left, or comes back with recovery, may
        // not fit the data.
        for (_, member, verdict) in self.members() {
            if let Verdict::Forced { role, .. } = verdict
                && let Some(entry) = superblock.roles.get_mut(member.dev_number as usize)
            {
                *entry = DevRole::Active(*role);
            }
        }
        if superblock.has(feature::JOURNAL) && matches!(log, StartLog::None) {
            // What only the journal had is lost, and what was being written may be torn.
            superblock.feature_map &= !feature::JOURNAL;
            superblock.resync_offset = 0;
        }
        let none_left = self.dirty_degraded(kind) && self.degraded() >= kind.level.parity_disks();
        let resync_from =
            Some(superblock.resync_offset).filter(|at| *at < geometry.sync_sectors() && !none_left);
        let resync_from = if log.closes() { None } else { resync_from };
        let by_bitmap = resync_from.is_some() && merged.as_ref().is_some_and(|m| m.current);
        let config = Config {
            superblock,
            members: self.member_configs(merged.is_some(), &log),
            bitmap: merged.map(|merged| merged.bitmap),
            log,
            read_only: options.read_only,
            force: options.force,
            block_bytes: newest.logical_block_bytes.max(512),
            spill: None,
        };
        let degraded = u16::try_from(self.degraded()).unwrap_or(u16::MAX);
        Ok(Start::Ready { config: Box::new(config), degraded, resync_from, by_bitmap })
    }

    /// Checks that the array's bitmap can be written to. `readable`: some member's can be read.
    fn check_bitmaps(&self, readable: bool) -> Result<(), Refused> {
        let in_sync = self.candidates.iter().zip(&self.verdicts);
        let in_sync = in_sync.filter(|(_, verdict)| verdict.in_sync_role().is_some());
        for (candidate, _) in in_sync {
            if let Some(Err(BitmapError::Version { kind, .. })) = &candidate.bitmap {
                let reason = format!("the array uses a {kind} bitmap, which braid does not run");
                let next = "assemble it with mdadm, or read it with --readonly";
                return Err(Refused::new(reason, next));
            }
        }
        if readable || self.superblock().bitmap_sector().is_none() {
            return Ok(());
        }
        // It may have been a lockless one, whose unwritten regions have no parity.
        let next = "read the array with --readonly; or drop the bitmap and have all redundancy \
                    written anew: mdadm --assemble --update=no-bitmap, mdadm --stop, mdadm \
                    --assemble --update=resync";
        Err(Refused::new("no member's bitmap can be read", next))
    }

    fn member_configs(&self, bitmap: bool, log: &StartLog) -> Vec<MemberConfig> {
        let attached = self.members().filter(|(_, _, verdict)| verdict.attached());
        // One that cannot be used is left out.
        let unused = |verdict: &Verdict| {
            let has_journal = matches!(log, StartLog::Journal { .. } | StartLog::JournalOff { .. });
            *verdict == Verdict::Journal && !has_journal
        };
        attached
            .filter(|(_, _, verdict)| !unused(verdict))
            .map(|(candidate, superblock, verdict)| MemberConfig {
                device: candidate.device.clone(),
                device_sectors: candidate.device_sectors,
                superblock: self.as_member(superblock),
                bad_blocks: candidate.bad_blocks.clone().unwrap_or_default(),
                standing: standing(superblock, verdict, bitmap),
            })
            .collect()
    }

    /// The superblock of a candidate that is in, as the newest one has it.
    fn as_member(&self, superblock: &Superblock) -> Superblock {
        let newest = self.superblock();
        with_shape(adopted(superblock, newest), newest)
    }

    /// Returns why candidates are kept out that could be expected to be in.
    fn problems(&self) -> String {
        let out = self.candidates.iter().zip(&self.verdicts).filter(|(_, v)| !v.attached());
        let mut text = String::new();
        for (Candidate { device, .. }, verdict) in out.take(3) {
            text.push_str(&format!("; {device} is out: {verdict}"));
        }
        text
    }
}

fn standing(superblock: &Superblock, verdict: &Verdict, bitmap: bool) -> Standing {
    let marked = bitmap && superblock.has(feature::RECOVERY_BITMAP);
    let had = if marked { Had::All } else { Had::NOTHING };
    match *verdict {
        Verdict::Active { role } | Verdict::Forced { role, .. } => Standing::InSync { role },
        Verdict::Rebuilding { role, offset_sectors: offset } => {
            Standing::Rebuilding { role, offset, replacement: false, had }
        }
        Verdict::Replacement { role, offset_sectors: offset } => {
            Standing::Rebuilding { role, offset, replacement: true, had }
        }
        Verdict::Journal => Standing::Journal,
        _ => Standing::Spare,
    }
}
