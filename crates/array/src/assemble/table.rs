//! The table of candidates: it says which are in. `start` says whether those may start.

use crate::Role;
use std::collections::BTreeSet;

use super::check::{adopted, check_places, check_shape, with_shape};
use super::judge::{Judge, knows, same_array, went_on};
use super::{Assembly, Candidate, Lineage, Options, Start, Verdict, lineage};
use crate::condition::Condition;
use crate::format::superblock::feature;
use crate::format::{DevRole, Superblock};
use crate::refusal::{Invocation, Next};

/// Decides by the newest superblock, which says how the data lie.
pub(super) fn decide_alike(candidates: &[Candidate], newest: usize, options: Options) -> Assembly {
    let mut table = Table::new(candidates, newest);
    table.check_places();
    table.part_duplicates();
    table.promote_replacements();
    table.part_lineages();
    let start = table.start(options);
    let superblock = Box::new(table.superblock().clone());
    let verdicts = table.verdicts;
    let devices = candidates.iter().map(|candidate| candidate.device.clone());
    Assembly { verdicts: devices.zip(verdicts).collect(), newest: Some(superblock), start }
}

/// The candidates and what is known of them so far.
pub(super) struct Table<'a> {
    pub(super) candidates: &'a [Candidate],
    /// Verdicts, one for each candidate.
    pub(super) verdicts: Vec<Verdict>,
    /// The index of the candidate with the newest superblock.
    newest: usize,
    /// Size of the bitmap, if there is one; as long as it is not known, of its superblock.
    pub(super) bitmap_sectors: u64,
}

/// The index of the newest superblock of the array that most candidates belong to: of equally new
/// ones that of a member with a role, after which the array may have gone on, which no other one
/// goes on without, and then the first.
pub(super) fn newest(candidates: &[Candidate]) -> Option<usize> {
    let superblocks = || {
        candidates.iter().enumerate().filter_map(|(i, c)| Some((i, c.superblock.as_ref().ok()?)))
    };
    let members = |of: &Superblock| superblocks().filter(|(_, sb)| same_array(of, sb)).count();
    let known = |sb: &Superblock| {
        let mut equal = superblocks().filter(|(_, other)| other.events == sb.events);
        equal.all(|(_, other)| !same_array(sb, other) || knows(other, sb))
    };
    let rank = |sb: &Superblock| {
        let active = matches!(sb.role(), DevRole::Active(_));
        (sb.events, active, went_on(sb, candidates), known(sb))
    };
    superblocks().rev().max_by_key(|(_, sb)| (members(sb), rank(sb))).map(|(index, _)| index)
}

pub(super) fn without_superblocks(candidates: &[Candidate]) -> Assembly {
    let verdict = |c: &Candidate| match &c.superblock {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    };
    let verdicts: Vec<(String, Verdict)> = candidates
        .iter()
        .map(|c| (c.device.clone(), Verdict::Unreadable { reason: verdict(c) }))
        .collect();
    let reason = match verdicts.first() {
        None => "no members were given".to_owned(),
        Some((device, verdict)) => format!("{device}: {verdict}"),
    };
    let next = Next::by("check the paths, or make a new array", Invocation::Create);
    let next = next.of(verdicts.first().map(|_| Condition::Damaged));
    let start = Start::Refused { reason, next, could_force: false };
    Assembly { verdicts, newest: None, start }
}

impl<'a> Table<'a> {
    fn new(candidates: &'a [Candidate], newest: usize) -> Self {
        let mut table = Self { candidates, verdicts: Vec::new(), newest, bitmap_sectors: 1 };
        let judge = Judge {
            candidates,
            newest: table.superblock(),
            device: candidates[newest].device.as_str(),
        };
        let mut verdicts: Vec<Verdict> = candidates.iter().map(|c| judge.judge(c)).collect();
        // The newest one is judged by itself and so never splits from itself.
        if let Some(other) = verdicts.iter().position(|v| matches!(v, Verdict::Split { .. })) {
            let other = candidates[other].device.clone();
            verdicts[newest] = Verdict::Split { other, events: judge.newest.events };
        }
        table.verdicts = verdicts;
        table
    }

    /// The newest superblock.
    pub(super) fn superblock(&self) -> &'a Superblock {
        self.candidates[self.newest].superblock.as_ref().expect("chosen among readable ones")
    }

    /// The readable superblocks with their candidates and verdicts.
    pub(super) fn members(
        &self,
    ) -> impl DoubleEndedIterator<Item = (&'a Candidate, &'a Superblock, &Verdict)> + Clone {
        let with_verdict = self.candidates.iter().zip(&self.verdicts);
        with_verdict.filter_map(|(c, verdict)| Some((c, c.superblock.as_ref().ok()?, verdict)))
    }

    /// Roles without an in-sync member.
    pub(super) fn degraded(&self) -> u32 {
        let in_sync = u32::try_from(self.in_sync_roles().len()).unwrap_or(u32::MAX);
        self.superblock().raid_disks.saturating_sub(in_sync)
    }

    /// The roles that are held completely.
    pub(super) fn in_sync_roles(&self) -> BTreeSet<Role> {
        self.verdicts.iter().filter_map(Verdict::in_sync_role).collect()
    }

    /// Keeps those out whose data and metadata cannot lie where their superblock says.
    pub(super) fn check_places(&mut self) {
        for (index, candidate) in self.candidates.iter().enumerate() {
            if self.verdicts[index].attached()
                && let Err(verdict) = self.places(candidate)
            {
                self.verdicts[index] = verdict;
            }
        }
    }

    fn places(&self, candidate: &Candidate) -> Result<(), Verdict> {
        let Ok(superblock) = &candidate.superblock else { return Ok(()) };
        let newest = self.superblock();
        let superblock = with_shape(adopted(superblock, newest), newest);
        check_places(&superblock, candidate.device_sectors, self.bitmap_sectors)
    }

    /// Keeps only the newest of attached candidates with one device number, or with one role.
    fn part_duplicates(&mut self) {
        let mut order: Vec<usize> =
            (0..self.verdicts.len()).filter(|index| self.verdicts[*index].attached()).collect();
        order.sort_by_key(|index| std::cmp::Reverse(self.events(*index)));
        let mut kept: Vec<usize> = Vec::new();
        for index in order {
            let Some(first) = kept.iter().copied().find(|first| self.clash(*first, index)) else {
                kept.push(index);
                continue;
            };
            self.verdicts[index] = match self.verdicts[index] {
                // The number of one that left may have been given away.
                Verdict::Spare | Verdict::Journal => Verdict::Stale {
                    events: self.events(index),
                    newest: self.superblock().events,
                    re_add_possible: false,
                },
                _ => Verdict::Duplicate { of: self.candidates[first].device.clone() },
            };
        }
    }

    fn events(&self, index: usize) -> u64 {
        self.candidates[index].superblock.as_ref().map_or(0, |superblock| superblock.events)
    }

    fn clash(&self, a: usize, b: usize) -> bool {
        let number =
            |index: usize| self.candidates[index].superblock.as_ref().map(|s| s.dev_number);
        let holds = |index: usize| {
            let replacement = matches!(self.verdicts[index], Verdict::Replacement { .. });
            self.verdicts[index].role().map(|role| (role, replacement))
        };
        number(a) == number(b) || (holds(a).is_some() && holds(a) == holds(b))
    }

    /// A replacement takes the place of a member that is not there.
    fn promote_replacements(&mut self) {
        let size_sectors = self.superblock().size_sectors;
        let held: BTreeSet<Role> = self
            .verdicts
            .iter()
            .filter(|verdict| !matches!(verdict, Verdict::Replacement { .. }))
            .filter_map(Verdict::role)
            .collect();
        for verdict in &mut self.verdicts {
            if let Verdict::Replacement { role, offset_sectors } = *verdict
                && !held.contains(&role)
            {
                *verdict = if offset_sectors >= size_sectors {
                    Verdict::Active { role }
                } else {
                    Verdict::Rebuilding { role, offset_sectors }
                };
            }
        }
    }

    /// Stale members that could take a role which nobody holds or is being rebuilt for, newest
    /// first: index, role, events. Each role and each device number occurs once.
    pub(super) fn forceable(&self) -> Vec<(usize, Role, u64)> {
        let attached = || self.members().filter(|(_, _, verdict)| verdict.attached());
        let mut roles: BTreeSet<Role> = attached().filter_map(|(_, _, v)| v.role()).collect();
        let mut numbers: BTreeSet<u32> = attached().map(|(_, sb, _)| sb.dev_number).collect();
        let mut order: Vec<usize> = (0..self.candidates.len()).collect();
        order.sort_by_key(|index| (std::cmp::Reverse(self.events(*index)), *index));
        let mut found = Vec::new();
        for index in order {
            if let Some((role, number)) = self.could_hold(index)
                && !roles.contains(&role)
                && numbers.insert(number)
            {
                roles.insert(role);
                found.push((index, role, self.events(index)));
            }
        }
        found
    }

    /// Tells members that the array left behind from those that went on without it.
    fn part_lineages(&mut self) {
        let newest = self.superblock().events;
        let other = &self.candidates[self.newest].device;
        let ancestors = self.ancestors();
        for index in 0..self.verdicts.len() {
            if matches!(self.verdicts[index], Verdict::Stale { .. })
                && self.lineage(index) == Lineage::WentAlone
                && !ancestors.contains(&index)
            {
                let other = other.clone();
                let events = self.events(index);
                self.verdicts[index] = Verdict::WentAlone { other, events, newest };
            }
        }
    }

    /// Stale members that were left behind, by members that are current or that were left behind
    /// later: these are the newest of those that a member was with to its end.
    fn ancestors(&self) -> BTreeSet<usize> {
        let mut order: Vec<usize> = (0..self.verdicts.len()).collect();
        order.retain(|index| matches!(self.verdicts[*index], Verdict::Stale { .. }));
        order.sort_by_key(|index| std::cmp::Reverse(self.events(*index)));
        let mut left = BTreeSet::new();
        for index in order {
            let Ok(own) = &self.candidates[index].superblock else { continue };
            let later = |&other: &usize| {
                let Ok(other) = &self.candidates[other].superblock else { return false };
                let whole = !other.has(feature::RECOVERY_OFFSET | feature::REPLACEMENT);
                whole && other.events > own.events && knows(own, other)
            };
            if self.lineage(index) == Lineage::LeftBehind || left.iter().any(later) {
                left.insert(index);
            }
        }
        left
    }

    /// Returns how a candidate with a readable superblock came by its state.
    fn lineage(&self, index: usize) -> Lineage {
        let Ok(superblock) = &self.candidates[index].superblock else { return Lineage::Unclear };
        let in_sync = |(_, sb, verdict): (_, &Superblock, &Verdict)| {
            verdict.in_sync_role().map(|role| (sb.dev_number, role))
        };
        lineage(superblock, self.members().filter_map(in_sync))
    }

    /// The role and the device number of a stale member that had its role completely.
    fn could_hold(&self, index: usize) -> Option<(Role, u32)> {
        let candidate = &self.candidates[index];
        let superblock = candidate.superblock.as_ref().ok()?;
        let Verdict::Stale { .. } = self.verdicts[index] else { return None };
        let DevRole::Active(role) = superblock.role() else { return None };
        let whole = !superblock.has(feature::RECOVERY_OFFSET | feature::REPLACEMENT);
        let possible = self.places(candidate).is_ok()
            && check_shape(superblock, self.superblock()).is_ok()
            && candidate.bad_blocks.is_ok();
        (whole && possible).then_some((role, superblock.dev_number))
    }

    /// Takes stale members in, newest first and those of one event count together, until the
    /// array can run: mdadm's `--force`.
    pub(super) fn force(&mut self, enough: impl Fn(&BTreeSet<Role>) -> bool) {
        let newest = self.superblock().events;
        let mut roles = self.in_sync_roles();
        let mut last = None;
        for (index, role, events) in self.forceable() {
            if enough(&roles) && last != Some(events) {
                return;
            }
            roles.insert(role);
            self.verdicts[index] = Verdict::Forced { role, events, newest };
            last = Some(events);
        }
    }

    /// Marks the stale members that the bitmap can catch up.
    pub(super) fn mark_re_add(&mut self, events_cleared: u64) {
        let newest = self.superblock().events;
        for (index, ..) in self.forceable() {
            let events = self.events(index);
            let re_add_possible =
                events >= events_cleared && self.lineage(index) == Lineage::LeftBehind;
            self.verdicts[index] = Verdict::Stale { events, newest, re_add_possible };
        }
    }
}
