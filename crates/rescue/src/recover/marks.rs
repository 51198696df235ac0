//! What is gathered from members: superblocks of file systems first, then blocks that tell where
//! in their file system they belong.

use std::collections::HashMap;
use std::ops::Range;

use braid_array::SECTOR_BYTES;

use super::ext4::{Clue, Ext4, Facts};
use super::xfs::Xfs;
use crate::bytes::{lies_at, u32_le, u64_le};
use crate::image::{self, Image};

/// What is read at once.
const PIECE_BYTES: u64 = 1 << 20;
/// Members up to this size are read as a whole, and of larger ones so much from their beginning.
const WHOLE_BYTES: u64 = 256 << 20;
const BEGINNING_BYTES: u64 = 128 << 20;
/// Further parts of larger members, and their length.
const SPOTS: u64 = 1000;
const SPOT_BYTES: u64 = 128 << 10;
/// Bounds on what hostile bytes can make grow.
const MOST_STRUCTURES: usize = 16;
const MOST_CLUES: usize = 1 << 20;
const MOST_BEGINNINGS: usize = 8;

/// Something that lies in an array and whose blocks tell where they belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Structure(Form);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// The beginning of the array itself, where it is a disk or a volume.
    Disk,
    Xfs(Xfs),
    Ext4(Ext4),
}

impl Structure {
    /// The beginning of an array that is a disk or a volume: what may be there in any case.
    pub const DISK: Self = Self(Form::Disk);

    /// What it is called.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self.0 {
            Form::Disk => "partition table or volume label",
            Form::Xfs(_) => "XFS",
            Form::Ext4(_) => "ext4",
        }
    }

    /// Does it begin with the array?
    pub(super) const fn is_whole(&self) -> bool {
        matches!(self.0, Form::Disk)
    }

    /// Its size in sectors, where it is known.
    pub(super) const fn sectors(&self) -> Option<u64> {
        match self.0 {
            Form::Disk => None,
            Form::Xfs(one) => Some(one.sectors()),
            Form::Ext4(one) => Some(one.sectors()),
        }
    }

    /// The chunk, in sectors, and the number of data disks for which it was made.
    pub(super) fn made_for(&self) -> Option<(u64, u64)> {
        match self.0 {
            Form::Disk => None,
            Form::Xfs(one) => one.made_for(),
            Form::Ext4(one) => one.made_for(),
        }
    }
}

/// A block that tells where it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mark {
    /// Of the member on which it was found, in the order of the members.
    pub member: usize,
    /// Where on it, in sectors.
    pub sector: u64,
    /// The structure to which it belongs, in the order of the structures.
    pub structure: usize,
    /// Where in that structure it belongs, in sectors.
    pub place: u64,
}

/// What was found on one member.
#[derive(Clone, Debug, Default)]
pub struct Harvest {
    pub(super) marks: Vec<(u64, usize, u64)>,
    pub(super) clues: Vec<(u64, usize, Clue)>,
    pub(super) facts: HashMap<usize, Facts>,
    /// Where in the array something begins, in sectors, by labels of physical volumes.
    pub(super) begins: Vec<u64>,
}

/// The ranges of a member of so many bytes that are read first.
#[must_use]
pub fn samples(size_bytes: u64) -> Vec<Range<u64>> {
    if size_bytes <= WHOLE_BYTES {
        return std::iter::once(0..size_bytes).collect();
    }
    let rest = size_bytes - BEGINNING_BYTES;
    let every = rest / SPOTS;
    let spot = |index: u64| {
        // Not in step with anything that is laid out in equal parts.
        let jitter = index.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
        let start = BEGINNING_BYTES + index * every + jitter % every.max(1);
        let start = start / SPOT_BYTES * SPOT_BYTES;
        start..(start + SPOT_BYTES).min(size_bytes)
    };
    std::iter::once(0..BEGINNING_BYTES).chain((0..SPOTS).map(spot)).collect()
}

/// The ranges in which superblocks are looked for: the beginning.
#[must_use]
pub fn beginning(size_bytes: u64) -> Range<u64> {
    0..size_bytes.min(WHOLE_BYTES)
}

/// The structures whose superblocks lie in this part of a member.
pub fn structures(image: &mut dyn Image, range: Range<u64>, found: &mut Vec<Structure>) {
    each_piece(image, range, &mut |_, piece| {
        for at in (0..piece.len()).step_by(SECTOR_BYTES as usize) {
            let bytes = &piece[at..];
            let form = match Xfs::read(bytes) {
                Some(xfs) => Form::Xfs(xfs),
                None if disk_place(bytes).is_some() => Form::Disk,
                None => match Ext4::read(bytes) {
                    Some((ext4, _)) => Form::Ext4(ext4),
                    None => continue,
                },
            };
            add(found, Structure(form));
        }
    });
}

/// Adds a structure unless it is known; copies of a superblock may differ in what does not matter.
pub fn add(found: &mut Vec<Structure>, one: Structure) {
    let is_same = |known: &Structure| match (known.0, one.0) {
        (Form::Xfs(known), Form::Xfs(one)) => known.uuid == one.uuid,
        (Form::Ext4(known), Form::Ext4(one)) => known.uuid == one.uuid,
        (known, one) => known == one,
    };
    if found.len() < MOST_STRUCTURES && !found.iter().any(is_same) {
        found.push(one);
    }
}

impl Harvest {
    /// Takes in what lies in this range of a member.
    pub fn gather(&mut self, image: &mut dyn Image, range: Range<u64>, known: &[Structure]) {
        each_piece(image, range, &mut |first, piece| {
            for at in (0..piece.len()).step_by(SECTOR_BYTES as usize) {
                let sector = (first + at as u64) / SECTOR_BYTES;
                self.look(&piece[at..], sector, known);
            }
        });
    }

    /// Takes in what was gathered elsewhere on the same member.
    pub fn merge(&mut self, other: Self) {
        self.marks.extend(other.marks);
        self.clues.extend(other.clues);
        for (index, facts) in other.facts {
            self.facts.entry(index).or_default().merge(facts);
        }
        other.begins.into_iter().for_each(|begins| self.note_beginning(begins));
    }

    pub(super) fn note_beginning(&mut self, sector: u64) {
        if self.begins.len() < MOST_BEGINNINGS && !self.begins.contains(&sector) {
            self.begins.push(sector);
        }
    }

    fn look(&mut self, bytes: &[u8], sector: u64, known: &[Structure]) {
        for (index, structure) in known.iter().enumerate() {
            let place = match structure.0 {
                Form::Disk => {
                    extents_begin(bytes).into_iter().for_each(|at| self.note_beginning(at));
                    disk_place(bytes)
                }
                Form::Xfs(xfs) => xfs.place(bytes),
                Form::Ext4(ext4) => self.look_at_ext4(bytes, sector, index, &ext4),
            };
            if let Some(place) = place {
                self.marks.push((sector, index, place));
            }
        }
    }

    fn look_at_ext4(
        &mut self,
        bytes: &[u8],
        sector: u64,
        index: usize,
        ext4: &Ext4,
    ) -> Option<u64> {
        if let Some((found, place)) = Ext4::read(bytes) {
            return (found.uuid == ext4.uuid).then_some(place);
        }
        let block_sectors = ext4.block_sectors();
        if !sector.is_multiple_of(block_sectors.min(8)) || self.clues.len() >= MOST_CLUES {
            return None;
        }
        let block = bytes.get(..(block_sectors * SECTOR_BYTES) as usize)?;
        let clue = ext4.look(block, self.facts.entry(index).or_default())?;
        self.clues.push((sector, index, clue));
        None
    }
}

/// All that members tell together.
#[derive(Clone, Debug, Default)]
pub struct Gathered {
    /// In order, each once.
    pub marks: Vec<Mark>,
    facts: HashMap<usize, Facts>,
    /// Where in the array something begins, in sectors.
    pub(super) begins: Vec<u64>,
}

impl Gathered {
    /// From what was found on each member, in their order.
    #[must_use]
    pub fn of(harvests: &[Harvest], known: &[Structure]) -> Self {
        let mut facts: HashMap<usize, Facts> = HashMap::new();
        for (index, one) in harvests.iter().flat_map(|harvest| &harvest.facts) {
            facts.entry(*index).or_default().merge(one.clone());
        }
        let mut marks = Vec::new();
        for (member, harvest) in harvests.iter().enumerate() {
            let mark = |&(sector, structure, place): &(u64, usize, u64)| Mark {
                member,
                sector,
                structure,
                place,
            };
            marks.extend(harvest.marks.iter().map(mark));
            for (structure, ext4) in known.iter().enumerate() {
                let (Form::Ext4(ext4), Some(facts)) = (ext4.0, facts.get(&structure)) else {
                    continue;
                };
                let own = || harvest.clues.iter().filter(|clue| clue.1 == structure);
                let clues: Vec<Clue> = own().map(|clue| clue.2).collect();
                let places = ext4.places(&clues, facts);
                let found = own().zip(places).filter_map(|(clue, place)| Some((clue.0, place?)));
                marks.extend(found.map(|(sector, place)| mark(&(sector, structure, place))));
            }
        }
        marks.sort_unstable();
        marks.dedup();
        let mut begins: Vec<u64> =
            harvests.iter().flat_map(|harvest| &harvest.begins).copied().collect();
        begins.sort_unstable();
        begins.dedup();
        Self { marks, facts, begins }
    }

    /// Where in a structure this lies, if it proves that; and whether a checksum does.
    pub(super) fn proven(
        &self,
        structure: &Structure,
        index: usize,
        bytes: &[u8],
    ) -> Option<(u64, bool)> {
        match structure.0 {
            Form::Disk => None,
            Form::Xfs(xfs) => Some((xfs.proven(bytes)?, true)),
            Form::Ext4(ext4) => {
                if let Some((found, place)) = Ext4::read(bytes) {
                    return (found.uuid == ext4.uuid).then_some((place, true));
                }
                let block = bytes.get(..(ext4.block_sectors() * SECTOR_BYTES) as usize)?;
                let clue = ext4.look(block, &mut Facts::default())?;
                let place = ext4.places(&[clue], self.facts.get(&index)?).pop()??;
                Some((place, !matches!(clue, Clue::Directory { .. })))
            }
        }
    }

    /// Where in a structure further marks are to be expected.
    pub(super) fn known_places(&self, structure: usize, known: &[Structure]) -> Vec<u64> {
        match known.get(structure).map(|one| one.0) {
            Some(Form::Xfs(xfs)) => xfs.known_places(),
            Some(Form::Ext4(ext4)) => match self.facts.get(&structure) {
                Some(facts) => ext4.known_places(facts),
                None => ext4.known_places(&Facts::default()),
            },
            Some(Form::Disk) | None => Vec::new(),
        }
    }
}

/// The sector of a disk in which this lies: a header of a GPT, the label of a physical volume, the
/// header of an encrypted volume.
fn disk_place(bytes: &[u8]) -> Option<u64> {
    if lies_at(bytes, 0, b"EFI PART") {
        return u64_le(bytes, 24).filter(|own| *own == 1);
    }
    if is_label(bytes) {
        return u64_le(bytes, 8).filter(|own| *own < 4);
    }
    let is_luks = lies_at(bytes, 0, b"LUKS\xba\xbe") && matches!(bytes.get(6..8)?, [0, 1 | 2]);
    is_luks.then_some(0)
}

/// Is it the label of a physical volume of LVM2?
fn is_label(bytes: &[u8]) -> bool {
    lies_at(bytes, 0, b"LABELONE") && lies_at(bytes, 24, b"LVM2 001")
}

/// The sector in which the extents of a physical volume begin, by its label: with the first of them
/// a volume may begin. They are aligned to the stripes of the array below. By LVM2's
/// `format_text/layout.h`: the list of areas follows the UUID and the size of the device.
fn extents_begin(bytes: &[u8]) -> Option<u64> {
    if !is_label(bytes) {
        return None;
    }
    let header = usize::try_from(u32_le(bytes, 20)?).ok()?;
    let at = u64_le(bytes, header.checked_add(40)?)?;
    (at > 0 && at < 1 << 40 && at.is_multiple_of(SECTOR_BYTES)).then_some(at / SECTOR_BYTES)
}

/// Reads a range in pieces; what cannot be read is zeroes.
fn each_piece(image: &mut dyn Image, range: Range<u64>, look: &mut dyn FnMut(u64, &[u8])) {
    let mut at = range.start;
    while at < range.end {
        let bytes = PIECE_BYTES.min(range.end - at);
        let piece = image::read_patchy(image, at, bytes as usize);
        look(at, &piece.bytes);
        at += bytes;
    }
}
