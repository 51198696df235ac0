//! Results, with the names of members as they must be typed.

use std::ops::Range;

use braid_array::SECTOR_BYTES;
use braid_host::member::{self, DevicePart, MemberFile, MemberName};
use braid_rescue::recover::{Arrays, Confidence, Hypothesis, MemberInRole, Nested, Ranked};

use super::gather::SearchResult;
use crate::args::RecoverArgs;
use crate::cmd::given::Given;
use crate::output::recovered::{Leg, PlacedMember, Recovered};

/// Arguments, and the members opened for them.
#[derive(Clone, Copy)]
pub(super) struct PlacedArguments<'a> {
    pub(super) args: &'a RecoverArgs,
    pub(super) devices: &'a [MemberFile],
}

impl PlacedArguments<'_> {
    pub(super) fn all(self, judged: &SearchResult) -> Vec<Recovered> {
        match judged {
            SearchResult::One(ranked) => ranked.iter().map(|one| self.ranked(one, 1)).collect(),
            SearchResult::Several(Arrays::Nested(nested)) => vec![self.nested(nested)],
            SearchResult::Several(Arrays::Several(each)) => {
                (1..).zip(each).map(|(array, one)| self.ranked(one, array)).collect()
            }
        }
    }

    fn ranked(self, ranked: &Ranked, array: u32) -> Recovered {
        let evidence = ranked.evidence.clone();
        let confidence = ranked.confidence;
        let found = self.array(&ranked.hypothesis, ranked.needed_sectors);
        Recovered { confidence, evidence, array, ..found }
    }

    /// Returns a raid0, with the arrays that are its members.
    fn nested(self, nested: &Nested) -> Recovered {
        let needed = nested.needed_sectors.map(|sectors| {
            nested.data_offset + sectors.div_ceil(u64::from(nested.shape.raid_disks.max(1)))
        });
        let legs = nested
            .legs
            .iter()
            .enumerate()
            .map(|(role, leg)| Leg { name: format!("leg{role}"), array: self.array(leg, needed) });
        let legs: Vec<Leg> = legs.collect();
        let place = |leg: &Leg| {
            let data_offset_bytes = nested.data_offset * SECTOR_BYTES;
            Some(PlacedMember { member: Leg::member(&leg.name), data_offset_bytes })
        };
        Recovered {
            confidence: nested.confidence,
            shape: nested.shape,
            roles: legs.iter().map(place).collect(),
            evidence: nested.evidence.clone(),
            needed_sectors: nested.needed_sectors,
            options: String::new(),
            array: 1,
            legs,
        }
    }

    /// A hypothesis: a member is a partition where the data lie in one.
    fn array(self, one: &Hypothesis, needed_sectors: Option<u64>) -> Recovered {
        let Self { args, devices } = self;
        // What lies on the array has room in it.
        let needed = needed_sectors.unwrap_or(0).div_ceil(one.shape.data_disks().max(1));
        let place = |place: &Option<MemberInRole>| {
            let place = (*place)?;
            let device = &devices[place.member];
            let data_offset_bytes = place.data_offset * SECTOR_BYTES;
            let bytes = data_offset_bytes..data_offset_bytes.saturating_add(needed * SECTOR_BYTES);
            Some(in_partition(device, &bytes).unwrap_or_else(|| PlacedMember {
                member: device.path.display().to_string(),
                data_offset_bytes,
            }))
        };
        let roles: Vec<Option<PlacedMember>> = one.roles.iter().map(place).collect();
        let members: Vec<&str> =
            roles.iter().flatten().map(|place| place.member.as_str()).collect();
        let given = Given { maps: &args.maps, overlay: args.overlay.dir(), reshape: None };
        Recovered {
            confidence: Confidence::Guess,
            shape: one.shape,
            evidence: Vec::new(),
            needed_sectors,
            options: given.maps_of(&members) + &args.overlay.words(),
            roles,
            array: 1,
            legs: Vec::new(),
        }
    }
}

/// Returns the partition of a disk that contains these bytes of a member. The table may have been
/// written later over a member that is a whole disk.
fn in_partition(disk: &MemberFile, member: &Range<u64>) -> Option<PlacedMember> {
    if disk.part.is_some() {
        return None;
    }
    let table = member::partitions(disk).ok()?;
    let within = |one: &&braid_rescue::partitions::Partition| {
        let bytes = one.start_bytes..one.start_bytes.saturating_add(one.size_bytes);
        let holds = bytes.contains(&member.start) && member.end <= bytes.end;
        !one.kind.is_extended() && one.start_bytes > 0 && holds
    };
    let one = table.partitions.iter().find(within)?;
    let part = Some(DevicePart::Partition(one.number));
    let name = MemberName { file: disk.path.clone(), part }.name();
    Some(PlacedMember {
        member: name.display().to_string(),
        data_offset_bytes: member.start - one.start_bytes,
    })
}
