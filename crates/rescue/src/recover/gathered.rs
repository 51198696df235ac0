//! The marks of all members together: each block that was found, and the place to which it belongs.

use std::collections::{BTreeSet, HashMap};

use braid_array::SECTOR_BYTES;

use super::btrfs::Btrfs;
use super::clues::{Clue, Facts};
use super::ext4;
use super::marks::{Form, Harvest, Mark, Structure};
use super::ntfs::Ntfs;
use super::places::Places;
use super::relation::Redundancy;
use super::remains::Remains;

/// All that members tell together.
#[derive(Clone, Debug, Default)]
pub struct Gathered {
    /// In order, each once.
    pub marks: Vec<Mark>,
    facts: HashMap<usize, Facts>,
    /// By a structure and a place in it: the other place of the same block.
    copies: HashMap<(usize, u64), u64>,
    pub(super) remains: Remains,
    /// Where in the array something begins, in sectors.
    pub(super) begins: Vec<u64>,
    /// Where partitions begin on members that are disks, in sectors, by their tables.
    pub(super) starts: BTreeSet<u64>,
    /// Whether all members have such a table.
    pub(super) are_disks: bool,
    /// The redundancy that rows of the members prove.
    pub(super) redundancy: Option<Redundancy>,
}

impl Gathered {
    /// From what was found on each member, in their order.
    #[must_use]
    pub fn of(harvests: &[Harvest], known: &[Structure]) -> Self {
        let remains = harvests.iter().map(|harvest| harvest.remains.clone());
        let mut found = Self { remains: Remains::of(remains), ..Self::default() };
        for (index, one) in harvests.iter().flat_map(|harvest| &harvest.facts) {
            found.facts.entry(*index).or_default().merge(one.clone());
        }
        for (structure, one) in known.iter().enumerate() {
            if let Form::Ntfs(ntfs) = one.0 {
                found.note_copy(structure, ntfs.boot_places());
            }
        }
        for (member, harvest) in harvests.iter().enumerate() {
            for &(sector, structure, place) in &harvest.marks {
                found.marks.push(Mark { member, sector, structure, place });
            }
            for (structure, one) in known.iter().enumerate() {
                let own = || harvest.clues.iter().filter(|clue| clue.1 == structure);
                let clues: Vec<Clue> = own().map(|clue| clue.2).collect();
                let places = found.places(structure, one, &clues);
                for (clue, places) in own().zip(places) {
                    let Some(places) = places else { continue };
                    let mark = Mark { member, sector: clue.0, structure, place: places.first };
                    found.marks.push(mark);
                    found.note_copy(structure, places);
                }
            }
        }
        found.marks.sort_unstable();
        found.marks.dedup();
        found.begins = harvests.iter().flat_map(|harvest| &harvest.begins).copied().collect();
        found.begins.sort_unstable();
        found.begins.dedup();
        found
    }

    /// The same of a set of members that rows prove to be one.
    pub(super) fn within(&self, set: &Redundancy) -> Self {
        let is_own = |mark: &Mark| set.members.contains(&mark.member);
        Self {
            marks: self.marks.iter().copied().filter(is_own).collect(),
            redundancy: Some(set.clone()),
            ..self.clone()
        }
    }

    fn note_copy(&mut self, structure: usize, places: Places) {
        if let Some(copy) = places.copy {
            self.copies.insert((structure, places.first), copy);
        }
    }

    /// The other place of the block that belongs to this one.
    pub(super) fn copy_of(&self, structure: usize, place: u64) -> Option<u64> {
        self.copies.get(&(structure, place)).copied()
    }

    /// Where blocks of a structure belong, as far as the facts tell.
    fn places(&self, index: usize, structure: &Structure, clues: &[Clue]) -> Vec<Option<Places>> {
        let none = Facts::default();
        let facts = self.facts.get(&index).unwrap_or(&none);
        match structure.0 {
            Form::Disk | Form::Xfs(_) => vec![None; clues.len()],
            Form::Ext4(ext4) => {
                let own = clues.iter().filter_map(|clue| match clue {
                    Clue::Ext4(clue) => Some(*clue),
                    _ => None,
                });
                let own: Vec<ext4::Ext4Clue> = own.collect();
                let places = ext4.places(&own, &facts.ext4);
                places.into_iter().map(|place| place.map(Places::only)).collect()
            }
            Form::Btrfs(btrfs) => {
                let place = |clue: &Clue| match *clue {
                    Clue::TreeBlock { logical } => btrfs.places(logical, &facts.chunks),
                    _ => None,
                };
                clues.iter().map(place).collect()
            }
            Form::Ntfs(ntfs) => {
                let place = |clue: &Clue| match *clue {
                    Clue::Record { number } => ntfs.places(number, &facts.runs),
                    _ => None,
                };
                clues.iter().map(place).collect()
            }
        }
    }

    /// Returns whether these bytes prove that they lie at this place of a structure, and whether a
    /// checksum does.
    pub(super) fn proves(
        &self,
        structure: &Structure,
        index: usize,
        bytes: &[u8],
        place: u64,
    ) -> Option<bool> {
        let none = Facts::default();
        let facts = self.facts.get(&index).unwrap_or(&none);
        let (places, by_sum) = match structure.0 {
            Form::Disk => return None,
            Form::Xfs(xfs) => (Places::only(xfs.proven(bytes)?), xfs.has_sums),
            Form::Ext4(ext4) => {
                if let Some((found, place)) = ext4::Ext4::read(bytes) {
                    (Places::only((found.uuid == ext4.uuid).then_some(place)?), true)
                } else {
                    let block = bytes.get(..(ext4.block_sectors() * SECTOR_BYTES) as usize)?;
                    let clue = ext4.look(block, &mut ext4::Ext4Facts::default())?;
                    let place = ext4.places(&[clue], &facts.ext4).pop()??;
                    (Places::only(place), !matches!(clue, ext4::Ext4Clue::Directory { .. }))
                }
            }
            Form::Btrfs(btrfs) => {
                if let Some((found, place)) = Btrfs::read(bytes) {
                    (Places::only((found.uuid == btrfs.uuid).then_some(place)?), true)
                } else {
                    let logical = btrfs.look(bytes, &mut Facts::default().chunks)?;
                    (btrfs.places(logical, &facts.chunks)?, btrfs.is_whole(bytes))
                }
            }
            Form::Ntfs(ntfs) => {
                if let Some(found) = Ntfs::read(bytes) {
                    ((found.serial == ntfs.serial).then(|| ntfs.boot_places())?, false)
                } else {
                    let number = ntfs.look(bytes, &mut Facts::default().runs)?;
                    (ntfs.places(number, &facts.runs)?, false)
                }
            }
        };
        places.contain(place).then_some(by_sum)
    }

    /// Where in a structure further marks are to be expected.
    pub(super) fn known_places(&self, structure: usize, known: &[Structure]) -> Vec<u64> {
        let none = Facts::default();
        let facts = self.facts.get(&structure).unwrap_or(&none);
        match known.get(structure).map(|one| one.0) {
            Some(Form::Xfs(xfs)) => xfs.known_places(),
            Some(Form::Ext4(ext4)) => ext4.known_places(&facts.ext4),
            Some(Form::Btrfs(btrfs)) => btrfs.known_places(&facts.chunks),
            Some(Form::Ntfs(ntfs)) => ntfs.known_places(&facts.runs),
            Some(Form::Disk) | None => Vec::new(),
        }
    }
}
