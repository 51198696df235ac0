//! A file system read by a hypothesis: do directories lie where their inodes say, and do files end
//! there? So also one without checksums tells order and chunk, where most blocks are of files.

mod ext4;
mod xfs;

use std::collections::BTreeSet;

use braid_array::geometry::{Geometry, Strip};
use braid_array::{Role, SECTOR_BYTES};

use super::marks::{Form, Structure};
use super::sums::Members;
use super::votes::Hypothesis;
use crate::bytes::is_zero;

/// Inodes that are looked at.
const MOST_INODES: usize = 240;
/// What counts against a hypothesis under which there is no root directory.
const NO_ROOT: usize = 4;

/// What was found where it has to be, by the numbers of inodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Walked {
    pub(super) right: BTreeSet<u64>,
    wrong: usize,
}

impl Walked {
    pub(super) fn met(&self) -> usize {
        self.right.len()
    }

    pub(super) fn of(&self) -> usize {
        self.right.len() + self.wrong
    }

    /// Notes what an inode proves, if it proves anything.
    fn note(&mut self, number: u64, proves: Option<bool>) {
        match proves {
            Some(true) => _ = self.right.insert(number),
            Some(false) => self.wrong += 1,
            None => {}
        }
    }
}

/// An array as a hypothesis has it.
struct Array<'a, 'b, 'c> {
    members: &'a mut Members<'b, 'c>,
    one: &'a Hypothesis,
    geometry: Geometry,
}

/// The number of the root directory, where it can be walked from there.
fn root(form: &Form) -> Option<u64> {
    match form {
        Form::Ext4(_) => Some(ext4::ROOT),
        // Blocks with checksums tell more, and leave nothing to walk for.
        Form::Xfs(xfs) if !xfs.has_sums => xfs.root,
        _ => None,
    }
}

/// Walks through the structure of a hypothesis, if that can be walked through.
pub(super) fn walk(one: &Hypothesis, members: &mut Members<'_, '_>, known: &[Structure]) -> Walked {
    let mut found = Walked::default();
    let form = known[one.structure].0;
    let Some(root) = root(&form) else { return found };
    let Some(mut array) = Array::of(one, members) else { return found };
    if !array.is_right(&form, root) {
        return Walked { wrong: NO_ROOT, ..found };
    }
    found.right.insert(root);
    match form {
        Form::Ext4(ext4) => array.look_at_ext4(&ext4, &mut found),
        Form::Xfs(xfs) => array.look_at_xfs(&xfs, &mut found),
        Form::Disk | Form::Btrfs(_) | Form::Ntfs(_) => {}
    }
    found
}

/// How many of these inodes prove to be where they have to be, by this hypothesis.
pub(super) fn proven(
    one: &Hypothesis,
    inodes: &BTreeSet<u64>,
    members: &mut Members<'_, '_>,
    known: &[Structure],
) -> usize {
    let form = known[one.structure].0;
    let Some(root) = root(&form) else { return 0 };
    let Some(mut array) = Array::of(one, members) else { return 0 };
    if !one.walked.right.contains(&root) {
        return 0;
    }
    inodes.iter().filter(|number| array.is_right(&form, **number)).count()
}

impl<'a, 'b, 'c> Array<'a, 'b, 'c> {
    fn of(one: &'a Hypothesis, members: &'a mut Members<'b, 'c>) -> Option<Self> {
        let geometry = one.shape.geometry(one.member_sectors(&members.sizes()))?;
        Some(Self { members, one, geometry })
    }
}

impl Array<'_, '_, '_> {
    /// Does this inode prove to be where it has to be?
    fn is_right(&mut self, form: &Form, number: u64) -> bool {
        let proves = match form {
            Form::Ext4(ext4) => self.proves_ext4(ext4, number),
            Form::Xfs(xfs) => self.proves_xfs(xfs, number),
            Form::Disk | Form::Btrfs(_) | Form::Ntfs(_) => None,
        };
        proves == Some(true)
    }

    /// So many sectors of the array.
    fn read(&mut self, sector: u64, sectors: u64) -> Option<Vec<u8>> {
        let chunk = u64::from(self.geometry.chunk_sectors().max(8));
        let mut bytes = Vec::new();
        let mut at = sector;
        while at < sector + sectors {
            let count = (sector + sectors - at).min(chunk - at % chunk);
            bytes.extend(self.piece(at, count)?);
            at += count;
        }
        Some(bytes)
    }

    /// A part of a chunk: of the member that has it, or of the others by the sum of their row.
    fn piece(&mut self, sector: u64, sectors: u64) -> Option<Vec<u8>> {
        if sector >= self.geometry.array_sectors() {
            return None;
        }
        let length = (sectors * SECTOR_BYTES) as usize;
        for copy in 0..self.geometry.copies() {
            let strip = self.geometry.copy(sector, copy);
            if self.one.roles.get(strip.role.index())?.is_some() {
                return self.strip(strip, length);
            }
        }
        if self.one.shape.level.parity_disks() == 0 {
            return None;
        }
        let strip = self.geometry.copy(sector, 0);
        let stripe = strip.sector / u64::from(self.geometry.chunk_sectors());
        let (_, q) = self.geometry.parity_roles(stripe);
        let mut strips = Vec::new();
        for role in (0..self.geometry.raid_disks() as u16).map(Role) {
            if role != strip.role && Some(role) != q {
                strips.push(self.strip(Strip { role, sector: strip.sector }, length)?);
            }
        }
        let strips: Vec<&[u8]> = strips.iter().map(Vec::as_slice).collect();
        let mut sum = vec![0; length];
        braid_parity::xor(&mut sum, &strips);
        Some(sum)
    }

    fn strip(&mut self, strip: Strip, length: usize) -> Option<Vec<u8>> {
        let place = (*self.one.roles.get(strip.role.index())?)?;
        self.members.bytes(place.member, place.data_offset + strip.sector, length)
    }
}

/// Does a file end so many bytes from the beginning of its last block, with zeroes behind?
fn ends_here(block: &[u8], length: u64) -> bool {
    let (text, rest) = block.split_at((length as usize).min(block.len()));
    is_zero(rest) && !is_zero(text)
}
