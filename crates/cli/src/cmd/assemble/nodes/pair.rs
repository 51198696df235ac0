//! Selection of the array that counts, of two between which data move or have moved.

use std::collections::BTreeSet;

use braid_array::Refusal;
use braid_array::format::{MoveNote, Superblock};
use braid_cluster::VolumeAddress;
use braid_cluster::assemble::Candidate;
use braid_cluster::pair::{self, Counts, counts, counts_among, is_later, other_volume};
use braid_host::serve::ArrayVolumes;

use super::judge::{Look, LookedAt};
use crate::args::NodeArg;
use crate::cmd::found::is_called;
use crate::cmd::nodes::Missing;

/// The volumes that count.
pub(super) enum Counting {
    /// Those of one array.
    One(Look),
    /// Those of an array that stands alone, and of the one beside it that is not needed.
    Left(Look, ArrayVolumes),
    /// Those of the old array and of the new one.
    Pair(Box<[Look; 2]>),
}

impl Counting {
    /// Chooses among volumes that were looked at, for the array of this name if one is given.
    ///
    /// # Errors
    /// An array is on its way to another one that was not found.
    pub(super) fn of(look: Look, name: Option<&str>) -> Result<Self, Refusal> {
        let look = of_one_name(look, name);
        let Some([old, new]) = pair(&look, name) else {
            let note = newest(&look, name).as_ref().map(MoveNote::of);
            // With what was found of it, the array is the old one or the new one.
            return match note {
                Some(note @ MoveNote::Source) => counts(Some(note), None, false),
                note => counts(None, note.or(Some(MoveNote::Apart)), false),
            }
            .map(|_| Self::One(look));
        };
        let [old, new] = apart(look, [old, new]);
        let begins = Some(MoveNote::Target { front: 0, back: false });
        let chosen = match counts_among(&candidates(&old, None), &candidates(&new, None))? {
            Counts::Both => Self::Pair(Box::new([old, new])),
            // What was not made to its end is left to the next command that makes it.
            Counts::Old if newest(&new, None).as_ref().map(MoveNote::of) == begins => {
                Self::One(old)
            }
            Counts::Old => Self::left(old, &new),
            Counts::New => Self::left(new, &old),
        };
        Ok(chosen)
    }

    fn left(stays: Look, goes: &Look) -> Self {
        match volumes(goes) {
            Some(goes) => Self::Left(stays, goes),
            None => Self::One(stays),
        }
    }
}

/// Returns the volumes of a look, which are those of one array, and then those that a node may have
/// which is away.
pub(super) fn volumes(look: &Look) -> Option<ArrayVolumes> {
    let array = newest(look, None)?.set_uuid;
    let place = |node: &NodeArg| VolumeAddress {
        address: node.address.clone(),
        volume: node.volume.clone().unwrap_or_default(),
    };
    let there = look.volumes.iter().map(|one| &one.node);
    let away = look.missing.iter().map(|one| &one.node);
    Some(ArrayVolumes { array, volumes: there.chain(away).map(place).collect() })
}

fn uuid(one: &LookedAt) -> Option<[u8; 16]> {
    Some(one.found.superblock.as_ref().ok()?.set_uuid)
}

/// Leaves out volumes with the other name of a typed one that have nothing to do with its array.
/// Volumes that are missing get the name that the others have.
fn of_one_name(look: Look, name: Option<&str>) -> Look {
    let Look { volumes, missing } = look;
    let typed: BTreeSet<[u8; 16]> =
        volumes.iter().filter(|one| !one.other).filter_map(uuid).collect();
    let is_kin = |array: [u8; 16]| {
        let kin = |typed: &[u8; 16]| {
            *typed == array || is_later(*typed, array) || is_later(array, *typed)
        };
        typed.is_empty() || typed.iter().any(kin)
    };
    let stays = |one: &LookedAt| match &one.found.superblock {
        _ if !one.other => true,
        Ok(superblock) => {
            is_kin(superblock.set_uuid) && name.is_none_or(|name| is_called(superblock, name))
        }
        Err(_) => false,
    };
    let volumes: Vec<LookedAt> = volumes.into_iter().filter(stays).collect();
    let other = !volumes.is_empty() && volumes.iter().all(|one| one.other);
    let missing = if other { missing.into_iter().map(renamed).collect() } else { missing };
    Look { volumes, missing }
}

fn renamed(Missing { node, error }: Missing) -> Missing {
    let volume = node.volume.as_deref().map(other_volume);
    Missing { node: NodeArg { volume, ..node }, error }
}

/// Returns the UUIDs of two arrays between which data move or have moved, the old one first.
fn pair(look: &Look, name: Option<&str>) -> Option<[[u8; 16]; 2]> {
    let called = |superblock: &&Superblock| name.is_none_or(|name| is_called(superblock, name));
    let superblocks = look.volumes.iter().filter_map(|one| one.found.superblock.as_ref().ok());
    pair::pair_among(&superblocks.filter(called).map(|found| found.set_uuid).collect())
}

/// Divides volumes among two arrays. Either may lack members that are missing.
fn apart(look: Look, arrays: [[u8; 16]; 2]) -> [Look; 2] {
    let mut looks = [Look::default(), Look::default()];
    for one in look.volumes {
        if let Some(side) = arrays.iter().position(|array| uuid(&one) == Some(*array)) {
            looks[side].volumes.push(one);
        }
    }
    for side in &mut looks {
        let roles = newest(side, None).map_or(0, |superblock| superblock.raid_disks as usize);
        if side.volumes.len() < roles {
            let other = side.volumes.first().is_some_and(|one| one.other);
            let missing = look.missing.iter().cloned();
            side.missing = missing.map(|one| if other { renamed(one) } else { one }).collect();
        }
    }
    looks
}

/// Returns the superblock that counts when the array is assembled from these volumes.
fn newest(look: &Look, name: Option<&str>) -> Option<Superblock> {
    pair::newest(&candidates(look, name))
}

/// Returns the volumes that may be of the array of this name, if one is given.
fn candidates(look: &Look, name: Option<&str>) -> Vec<Candidate> {
    let called = |one: &&LookedAt| {
        let superblock = one.found.superblock.as_ref();
        superblock.is_ok_and(|found| name.is_none_or(|name| is_called(found, name)))
    };
    look.volumes.iter().filter(called).map(|one| one.found.clone()).collect()
}
