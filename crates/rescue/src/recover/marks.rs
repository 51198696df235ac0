//! Marks that are gathered from members: superblocks of file systems first, then blocks that tell
//! where in their file system they belong.

use std::collections::HashMap;
use std::ops::Range;

use braid_array::SECTOR_BYTES;

use super::btrfs::Btrfs;
use super::clues::{Clue, Facts};
use super::ext4::Ext4;
use super::ntfs::Ntfs;
use super::remains::Remain;
use super::xfs::Xfs;
use crate::bytes::{lies_at, u32_le, u64_le};
use crate::crc::crc32;
use crate::image::{self, Image};

/// The length that is read at once.
const PIECE_BYTES: u64 = 1 << 20;
/// Bounds on what hostile bytes can make grow.
const MOST_STRUCTURES: usize = 16;
const MOST_CLUES: usize = 1 << 20;
const MOST_BEGINNINGS: usize = 8;
const MOST_REMAINS: usize = 64;

/// Something that lies in an array and whose blocks tell where they belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Structure(pub(super) Form);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// The beginning of the array itself, where it is a disk or a volume.
    Disk,
    Xfs(Xfs),
    Ext4(Ext4),
    Btrfs(Btrfs),
    Ntfs(Ntfs),
}

impl Structure {
    /// The beginning of an array that is a disk or a volume: what may be there in any case.
    pub const DISK: Self = Self(Form::Disk);

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self.0 {
            Form::Disk => "partition table or volume label",
            Form::Xfs(_) => "XFS",
            Form::Ext4(_) => "ext4",
            Form::Btrfs(_) => "btrfs",
            Form::Ntfs(_) => "NTFS",
        }
    }

    /// Returns whether it begins with the array.
    pub(super) const fn is_whole(&self) -> bool {
        matches!(self.0, Form::Disk)
    }

    /// Its size in sectors, where it is known.
    pub(super) const fn sectors(&self) -> Option<u64> {
        match self.0 {
            Form::Disk => None,
            Form::Xfs(one) => Some(one.sectors()),
            Form::Ext4(one) => Some(one.sectors()),
            Form::Btrfs(one) => Some(one.sectors()),
            Form::Ntfs(one) => Some(one.sectors()),
        }
    }

    /// Returns whether the other one tells where to begin, of the same structure, and this one does
    /// not.
    fn is_poorer_than(&self, other: &Self) -> bool {
        match (self.0, other.0) {
            (Form::Xfs(own), Form::Xfs(other)) => own.root.is_none() && other.root.is_some(),
            _ => false,
        }
    }

    /// The length of a block that has a checksum over all of it, in bytes; 0 where it is short.
    pub(super) const fn block_bytes(&self) -> u32 {
        match self.0 {
            Form::Btrfs(one) => one.node_bytes as u32,
            Form::Disk | Form::Xfs(_) | Form::Ext4(_) | Form::Ntfs(_) => 0,
        }
    }

    /// The chunk, in sectors, and the number of data disks for which it was made.
    pub(super) fn made_for(&self) -> Option<(u64, u64)> {
        match self.0 {
            Form::Disk | Form::Btrfs(_) | Form::Ntfs(_) => None,
            Form::Xfs(one) => one.made_for(),
            Form::Ext4(one) => one.made_for(),
        }
    }
}

/// A block that tells where it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mark {
    /// The member on which it was found, in the order of the members.
    pub member: usize,
    /// Where on it, in sectors.
    pub sector: u64,
    /// The structure to which it belongs, in the order of the structures.
    pub structure: usize,
    /// Where in that structure it belongs, in sectors.
    pub place: u64,
}

/// All that was found on one member.
#[derive(Clone, Debug, Default)]
pub struct Harvest {
    pub(super) marks: Vec<(u64, usize, u64)>,
    pub(super) clues: Vec<(u64, usize, Clue)>,
    pub(super) facts: HashMap<usize, Facts>,
    pub(super) remains: Vec<(u64, Remain)>,
    /// Where in the array something begins, in sectors, by labels of physical volumes.
    pub(super) begins: Vec<u64>,
}

/// The structures whose superblocks lie in this part of a member.
pub fn structures(image: &mut dyn Image, range: Range<u64>, found: &mut Vec<Structure>) {
    each_piece(image, range, &mut |first, piece| {
        for at in (0..piece.len()).step_by(SECTOR_BYTES as usize) {
            let sector = (first + at as u64) / SECTOR_BYTES;
            if let Some(form) = form(&piece[at..], sector) {
                add(found, Structure(form));
            }
        }
    });
}

fn form(bytes: &[u8], sector: u64) -> Option<Form> {
    let disk = || disk_place(bytes, sector).map(|_| Form::Disk);
    Xfs::read(bytes)
        .map(Form::Xfs)
        .or_else(disk)
        .or_else(|| Btrfs::read(bytes).map(|(btrfs, _)| Form::Btrfs(btrfs)))
        .or_else(|| Ntfs::read(bytes).map(Form::Ntfs))
        .or_else(|| Ext4::read(bytes).map(|(ext4, _)| Form::Ext4(ext4)))
}

/// Adds a structure unless it is known; copies of a superblock may differ in what does not matter.
pub fn add(found: &mut Vec<Structure>, one: Structure) {
    let is_same = |known: &Structure| match (known.0, one.0) {
        (Form::Xfs(known), Form::Xfs(one)) => known.uuid == one.uuid,
        (Form::Ext4(known), Form::Ext4(one)) => known.uuid == one.uuid,
        (Form::Btrfs(known), Form::Btrfs(one)) => known.uuid == one.uuid,
        (Form::Ntfs(known), Form::Ntfs(one)) => known.serial == one.serial,
        (known, one) => known == one,
    };
    match found.iter().position(is_same) {
        // Copies may not have all of it.
        Some(known) if found[known].is_poorer_than(&one) => found[known] = one,
        Some(_) => {}
        None if found.len() < MOST_STRUCTURES => found.push(one),
        None => {}
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
        self.remains.extend(other.remains);
        for (index, facts) in other.facts {
            self.facts.entry(index).or_default().merge(facts);
        }
        other.begins.into_iter().for_each(|sector| self.note_beginning(sector));
    }

    pub(super) fn note_beginning(&mut self, sector: u64) {
        if self.begins.len() < MOST_BEGINNINGS && !self.begins.contains(&sector) {
            self.begins.push(sector);
        }
    }

    /// The same of a part of the member: what was found in these sectors, counted from the first.
    #[must_use]
    pub fn within(&self, sectors: &Range<u64>) -> Self {
        let at = |sector: u64| sectors.contains(&sector).then(|| sector - sectors.start);
        let mark = |one: &(u64, usize, u64)| Some((at(one.0)?, one.1, one.2));
        let clue = |one: &(u64, usize, Clue)| Some((at(one.0)?, one.1, one.2));
        let remain = |one: &(u64, Remain)| Some((at(one.0)?, one.1));
        Self {
            marks: self.marks.iter().filter_map(mark).collect(),
            clues: self.clues.iter().filter_map(clue).collect(),
            facts: self.facts.clone(),
            remains: self.remains.iter().filter_map(remain).collect(),
            begins: self.begins.clone(),
        }
    }

    fn look(&mut self, bytes: &[u8], sector: u64, known: &[Structure]) {
        if self.remains.len() < MOST_REMAINS {
            self.remains.extend(Remain::look(bytes, sector).map(|one| (sector, one)));
        }
        for (index, structure) in known.iter().enumerate() {
            let place = match structure.0 {
                Form::Disk => {
                    extents_begin(bytes).into_iter().for_each(|at| self.note_beginning(at));
                    disk_place(bytes, sector)
                }
                Form::Xfs(xfs) => xfs.place(bytes),
                Form::Ext4(ext4) => self.look_at_ext4(bytes, sector, index, &ext4),
                Form::Btrfs(btrfs) => self.look_at_btrfs(bytes, sector, index, &btrfs),
                Form::Ntfs(ntfs) => self.look_at_ntfs(bytes, sector, index, &ntfs),
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
        if !sector.is_multiple_of(block_sectors.min(8)) || self.is_full() {
            return None;
        }
        let block = bytes.get(..(block_sectors * SECTOR_BYTES) as usize)?;
        let clue = ext4.look(block, &mut self.facts.entry(index).or_default().ext4)?;
        self.clues.push((sector, index, Clue::Ext4(clue)));
        None
    }

    fn look_at_btrfs(
        &mut self,
        bytes: &[u8],
        sector: u64,
        index: usize,
        btrfs: &Btrfs,
    ) -> Option<u64> {
        if let Some((found, place)) = Btrfs::read(bytes) {
            if found.uuid != btrfs.uuid {
                return None;
            }
            btrfs.note_system_chunks(bytes, &mut self.facts.entry(index).or_default().chunks);
            return Some(place);
        }
        if !self.is_full() {
            let chunks = &mut self.facts.entry(index).or_default().chunks;
            let logical = btrfs.look(bytes, chunks)?;
            self.clues.push((sector, index, Clue::TreeBlock { logical }));
        }
        None
    }

    fn look_at_ntfs(
        &mut self,
        bytes: &[u8],
        sector: u64,
        index: usize,
        ntfs: &Ntfs,
    ) -> Option<u64> {
        if let Some(found) = Ntfs::read(bytes) {
            return (found.serial == ntfs.serial).then_some(ntfs.boot_places().first);
        }
        if !self.is_full() {
            let number = ntfs.look(bytes, &mut self.facts.entry(index).or_default().runs)?;
            self.clues.push((sector, index, Clue::Record { number }));
        }
        None
    }

    /// Returns whether it keeps no more clues.
    const fn is_full(&self) -> bool {
        self.clues.len() >= MOST_CLUES
    }
}

/// The sector of a disk in which this lies: a header of a GPT, the label of a physical volume, the
/// header of an encrypted volume.
fn disk_place(bytes: &[u8], sector: u64) -> Option<u64> {
    if lies_at(bytes, 0, b"EFI PART") {
        // The copy at a disk's end. In its own place, by sectors of either size, it is its own.
        let is_own = |own: u64| own == sector || own * 8 == sector;
        let is_copy = |own: u64| (2..1 << 50).contains(&own) && !is_own(own) && has_gpt_sum(bytes);
        return u64_le(bytes, 24).filter(|own| *own == 1 || is_copy(*own));
    }
    if is_label(bytes) {
        return u64_le(bytes, 8).filter(|own| *own < 4);
    }
    let is_luks = lies_at(bytes, 0, b"LUKS\xba\xbe") && matches!(bytes.get(6..8)?, [0, 1 | 2]);
    is_luks.then_some(0)
}

/// Returns whether it is the label of a physical volume of LVM2.
fn is_label(bytes: &[u8]) -> bool {
    lies_at(bytes, 0, b"LABELONE") && lies_at(bytes, 24, b"LVM2 001")
}

/// The sector in which the extents of a physical volume begin, by its label: with the first of them
/// a volume may begin. Extents are aligned to the stripes of the array below. By LVM2's
/// `format_text/layout.h`: the list of areas follows the UUID and the size of the device.
fn extents_begin(bytes: &[u8]) -> Option<u64> {
    if !is_label(bytes) {
        return None;
    }
    let header = usize::try_from(u32_le(bytes, 20)?).ok()?;
    let at = u64_le(bytes, header.checked_add(40)?)?;
    (at > 0 && at < 1 << 40 && at.is_multiple_of(SECTOR_BYTES)).then_some(at / SECTOR_BYTES)
}

/// Returns whether the checksum of a header of a GPT fits.
fn has_gpt_sum(bytes: &[u8]) -> bool {
    let Some(header) = bytes.get(..92) else { return false };
    let mut header = header.to_vec();
    header[16..20].fill(0);
    u32_le(bytes, 12) == Some(92) && u32_le(bytes, 16) == Some(crc32(&header))
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
