//! Volumes of LVM2, as far as they are linear or striped: where their bytes lie on physical
//! volumes, which may be arrays. Nothing is activated, and nothing needs the device-mapper.

mod config;
mod description;
mod id;
mod physical;
#[cfg(test)]
mod tests;
mod volume;

use std::collections::{BTreeMap, BTreeSet};

pub use config::ConfigError;
pub use description::{Described, Description, DescriptionError};
pub use id::LvmId;
pub use physical::{AreaError, PhysicalVolume, PhysicalVolumeError};
pub use volume::{LogicalVolume, Refusal, Segment, Stripe, VolumePiece};

/// A group of volumes, as the newest metadata describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The description in the newest metadata. Logical volumes that need physical ones that are not
    /// there are refused.
    pub description: Description,
    /// Remarks: all that is not as it should be.
    pub remarks: Vec<LvmRemark>,
}

/// Facts that users of a group should know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LvmRemark {
    /// A physical volume of the group was not given.
    #[error("the physical volume {id} ({name}) is not there")]
    Missing {
        /// Its uuid.
        id: LvmId,
        /// Its name in the group, and the device that it was last.
        name: String,
    },
    /// A metadata area was not written when the group changed last.
    #[error(
        "the metadata at byte {at_bytes} of the physical volume {id} is older: {seqno}, not \
         {newest}"
    )]
    Older {
        /// The physical volume.
        id: LvmId,
        /// Where the area begins on it.
        at_bytes: u64,
        /// The number of its last change.
        seqno: u64,
        /// The number of the group's last change.
        newest: u64,
    },
    /// Two areas with the same number say different things: two hosts have changed the group.
    #[error(
        "the metadata at byte {at_bytes} of the physical volume {id} says something else, with the \
         same number {seqno}"
    )]
    Disagrees {
        /// The physical volume.
        id: LvmId,
        /// Where the area begins on it.
        at_bytes: u64,
        /// The number of its last change.
        seqno: u64,
    },
    /// A metadata area cannot be used.
    #[error("the metadata at byte {at_bytes} of the physical volume {id} is not used: {why}")]
    Broken {
        /// The physical volume.
        id: LvmId,
        /// Where the area begins on it.
        at_bytes: u64,
        /// The error in it.
        why: AreaError,
    },
    /// Several things that were given say that they are the same physical volume, as the members
    /// of a mirror do.
    #[error("the physical volume {id} was given {times} times; the first one counts")]
    Several {
        /// The physical volume.
        id: LvmId,
        /// The number of times.
        times: usize,
    },
}

/// The groups that these physical volumes belong to, in the order of their uuids. The newest
/// metadata counts, whichever volume it lies on; of two with the same number the first one given.
#[must_use]
pub fn groups(volumes: &[PhysicalVolume]) -> Vec<Group> {
    let mut newest: BTreeMap<LvmId, &Description> = BTreeMap::new();
    for (_, description) in volumes.iter().flat_map(|volume| &volume.descriptions) {
        let best = newest.entry(description.id).or_insert(description);
        if description.seqno > best.seqno {
            *best = description;
        }
    }
    let mut there: BTreeMap<LvmId, usize> = BTreeMap::new();
    for volume in volumes {
        *there.entry(volume.id).or_default() += 1;
    }
    newest.values().map(|description| group(description, volumes, &there)).collect()
}

fn group(
    newest: &Description,
    volumes: &[PhysicalVolume],
    there: &BTreeMap<LvmId, usize>,
) -> Group {
    let mut description = newest.clone();
    let mut remarks = Vec::new();
    let mut refused = BTreeMap::new();
    let mut members = BTreeSet::new();
    for volume in &newest.physical_volumes {
        let id = volume.id;
        let name = volume.told();
        members.insert(id);
        match there.get(&id) {
            None => {
                remarks.push(LvmRemark::Missing { id, name: name.clone() });
                refused.insert(id, Refusal::Missing { id, name });
            }
            Some(_) if volume.is_marked_missing => {
                refused.insert(id, Refusal::MarkedMissing { id, name });
            }
            Some(1) => {}
            Some(times) => remarks.push(LvmRemark::Several { id, times: *times }),
        }
    }
    for volume in &mut description.logical_volumes {
        let Ok(segments) = &volume.segments else { continue };
        let mut stripes = segments.iter().flat_map(|segment| &segment.stripes);
        if let Some(why) = stripes.find_map(|stripe| refused.get(&stripe.volume)) {
            volume.segments = Err(why.clone());
        }
    }
    for volume in volumes {
        let id = volume.id;
        let of_group = volume.descriptions.iter().filter(|(_, other)| other.id == newest.id);
        for (at_bytes, other) in of_group.map(|(at_bytes, other)| (*at_bytes, other)) {
            let seqno = other.seqno;
            if seqno < newest.seqno {
                remarks.push(LvmRemark::Older { id, at_bytes, seqno, newest: newest.seqno });
            } else if other != newest {
                remarks.push(LvmRemark::Disagrees { id, at_bytes, seqno });
            }
        }
        if members.contains(&id) {
            let broken = volume.broken.iter().cloned();
            remarks.extend(broken.map(|(at_bytes, why)| LvmRemark::Broken { id, at_bytes, why }));
        }
    }
    Group { description, remarks }
}
