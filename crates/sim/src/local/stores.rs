//! Stores beside members, which hold their checksums: where they come from when an array starts,
//! and what they suffer while it runs.

use std::collections::BTreeSet;

use braid_array::MemberId;
use braid_array::assemble::Config;
use braid_array::format::Superblock;
use braid_array::integrity::{FoundArea, storable};

use super::{CLIENT, Local};
use crate::disk::Disk;
use crate::local::assembly::{Attached, How, Memory, Refusal};
use crate::local::create;
use crate::local::part::Part;
use crate::rng::Rng;

/// The integrity areas of members, behind their data or in stores. Stores that are not there are
/// made.
pub(super) fn areas(
    config: &Config,
    attached: &Attached,
    disks: &mut [Disk],
    part: &Part,
    how: How<'_>,
    memory: &mut Memory<'_>,
) -> Result<Vec<(MemberId, FoundArea)>, Refusal> {
    let stores = part.scenario.stores;
    let mut areas = Vec::new();
    for (id, member) in config.member_ids().zip(&config.members) {
        let Some((_, device)) = attached.iter().find(|(other, _)| *other == id) else { continue };
        let disk = &mut disks[*device];
        let found = if !stores {
            let read = |sector, bytes| disk.bytes(sector, bytes);
            let found = FoundArea::read(&member.superblock, disk.sectors(), read);
            found.map_err(|why| Refusal::flat(&why.to_string()))?
        } else if part.forgets_stores {
            None
        } else {
            stored(&member.superblock, disk, how.read_only, memory.rng)
        };
        areas.extend(found.map(|area| (id, area)));
    }
    Ok(areas)
}

/// The area in the store of a member.
fn stored(
    superblock: &Superblock,
    disk: &mut Disk,
    read_only: bool,
    rng: &mut Rng,
) -> Option<FoundArea> {
    let area = storable(superblock).ok()?;
    if disk.beside().is_none_or(|store| store.sectors() < area.sectors()) && !read_only {
        disk.set_beside(Disk::new(area.sectors()));
    }
    let store = disk.beside()?;
    let read = |sector, bytes| disk.bytes(sector, bytes);
    let found = FoundArea::stored(superblock, read, |sector, bytes| store.bytes(sector, bytes));
    if let Ok(Some(found)) = found {
        return Some(found);
    }
    if read_only {
        return None;
    }
    let begun = FoundArea::begun(superblock, create::uuid(rng), read);
    // It may hold an area of something else.
    if let Some(store) = disk.beside_mut().filter(|store| !store.gone()) {
        store.fill(0);
    }
    begun
}

/// The devices whose stores fail.
pub(super) fn faulty(disks: &[&Disk]) -> BTreeSet<usize> {
    let fails = |disk: &Disk| disk.beside().is_some_and(Disk::fails);
    disks.iter().enumerate().filter(|(_, disk)| fails(disk)).map(|(device, _)| device).collect()
}

/// Between two lives stores are mended, or others put in their places, or not; now and then an
/// administrator forgets to name them. Where blocks have rotted, all are there.
pub(super) fn mend(local: &mut Local, disks: &mut [Disk]) {
    let mut rng = local.rng.aside(8);
    let are_needed = !local.rotten.is_empty();
    local.parts.devices[0].forgets_stores = !are_needed && rng.percent(15);
    for store in disks.iter_mut().filter_map(Disk::beside_mut) {
        if are_needed || rng.percent(70) {
            store.mend();
        }
        if !are_needed && rng.percent(5) {
            *store = Disk::new(store.sectors());
        }
    }
}

/// Faults that stores get in a life.
#[derive(Debug)]
pub(super) struct StoreTroubles {
    rng: Rng,
    /// After so many requests.
    at: Vec<u64>,
    /// Stores that answer nothing, and after how many requests they answer again.
    hung: Vec<(usize, u64)>,
}

impl StoreTroubles {
    /// Draws when they come.
    pub(super) fn draw(local: &Local, requests: u64) -> Self {
        let mut rng = local.rng.aside(7);
        let comes = local.scenario.stores && local.rotten.is_empty();
        let count = if comes { rng.pick(&[0, 0, 0, 1, 1, 2]) } else { 0 };
        let at = (0..count).map(|_| rng.below(requests)).collect();
        Self { rng, at, hung: Vec::new() }
    }

    /// Lets those come whose time it is.
    pub(super) fn drive(&mut self, local: &mut Local, submitted: u64) {
        for (device, _) in self.hung.extract_if(.., |(_, until)| *until <= submitted) {
            local.world.wake_beside(CLIENT, device);
        }
        while let Some(due) = self.at.iter().position(|at| *at <= submitted) {
            self.at.swap_remove(due);
            let kind = self.rng.below(6);
            self.strike(local, submitted, kind);
        }
    }

    /// After a rest, when nothing is marked, some fail: with luck between the next superblock and
    /// the next mark.
    pub(super) fn after(&mut self, rest: bool, local: &mut Local, submitted: u64) {
        if rest && local.scenario.stores && local.rotten.is_empty() && self.rng.percent(70) {
            let kind = if self.rng.percent(60) { 5 } else { self.rng.below(5) };
            self.strike(local, submitted, kind);
        }
    }

    /// Draws after how many events the power is cut where a store was just given up.
    pub(super) fn draw_cut(&mut self, local: &mut Local, crash: bool) -> Option<u64> {
        let given_up = std::mem::take(&mut local.sums.given_up);
        (given_up && crash && self.rng.percent(70)).then(|| self.rng.between(1, 12))
    }

    fn strike(&mut self, local: &mut Local, submitted: u64, kind: u64) {
        let devices = 0..local.process().devices.len();
        let has_store = |device: &usize| local.disk(*device).beside().is_some();
        let devices: Vec<_> = devices.filter(has_store).collect();
        if devices.is_empty() {
            return;
        }
        let device = self.rng.pick(&devices);
        local.sums.faulty.insert(device);
        local.note(&[83, device as u64, kind], || format!("STORE {device} fault {kind}"));
        let Some(store) = local.disk_mut(device).beside_mut() else { return };
        match kind {
            0 => store.set_gone(true),
            1 => store.set_full(true),
            2 => {
                store.set_hung(true);
                self.hung.push((device, submitted + self.rng.between(1, 60)));
            }
            5 => store.go_after(self.rng.between(1, 2)),
            _ => {
                let sectors = store.sectors();
                for _ in 0..3 {
                    let sector = self.rng.below(sectors);
                    match kind {
                        3 => store.lose_sector(sector),
                        _ => store.break_sector(sector),
                    }
                }
            }
        }
    }
}
