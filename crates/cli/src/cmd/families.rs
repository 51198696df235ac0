//! The arrays that devices belong to, those that lie in others with these; and which of them is
//! meant by a name.

use std::path::PathBuf;

use braid_array::assemble::{Candidate, Verdict};
use braid_array::format::Superblock;

use super::found::{self, Found, Use, is_called};
use super::inside::content;
use super::stranger::refuse_strangers;
use crate::failure::Failure;
use crate::output::shape::short_name;

/// An array and its devices.
pub(super) struct Family {
    /// The newest superblock of the array; of an array of arrays that of the outer one.
    pub(super) superblock: Superblock,
    /// Devices, grouped by inner array if the members are arrays; otherwise one group.
    pub(super) groups: Vec<Vec<Found>>,
    /// Its members are arrays.
    pub(super) nested: bool,
}

/// Arrays and stray devices found.
pub(super) struct Families {
    pub(super) arrays: Vec<Family>,
    /// Devices without a superblock, or with one that cannot be trusted.
    pub(super) strays: Vec<Found>,
}

/// The devices of one array.
struct Group {
    superblock: Superblock,
    found: Vec<Found>,
    /// The superblock of the array that this one is a member of.
    outer: Option<Superblock>,
    /// Set if the array cannot be started: an outer superblock on it cannot be read.
    unknown: bool,
}

impl Group {
    fn new(found: Vec<Found>) -> Option<Self> {
        let superblock = newest(found.iter().map(|one| &one.candidate))?.clone();
        Some(Self { superblock, found, outer: None, unknown: false })
    }

    fn look_inside(self) -> Self {
        let inside = content(&self.found);
        let outer = inside.as_ref().and_then(|inside| inside.superblock.as_ref().ok()).cloned();
        Self { outer, unknown: inside.is_none(), ..self }
    }
}

/// The superblock with the highest event count.
fn newest<'a>(candidates: impl Iterator<Item = &'a Candidate>) -> Option<&'a Superblock> {
    candidates.filter_map(|one| one.superblock.as_ref().ok()).max_by_key(|sb| sb.events)
}

impl Families {
    /// Looks into arrays for arrays that they are members of: where there are several, or where
    /// the one that is there is not called `name`.
    pub(super) fn of(found: Vec<Found>, name: Option<&str>) -> Self {
        let (known, strays): (Vec<Found>, Vec<Found>) =
            found.into_iter().partition(|one| one.candidate.superblock.is_ok());
        let groups: Vec<Group> = found::groups(known).into_iter().filter_map(Group::new).collect();
        let several = groups.len() > 1;
        let wanted = |group: &Group| name.is_none_or(|name| is_called(&group.superblock, name));
        let look = |group: Group| {
            if several || !wanted(&group) { group.look_inside() } else { group }
        };
        let groups: Vec<Group> = groups.into_iter().map(look).collect();
        let outer = groups.iter().filter_map(|group| group.outer.as_ref());
        let mut uuids: Vec<[u8; 16]> = outer.map(|outer| outer.set_uuid).collect();
        uuids.sort_unstable();
        uuids.dedup();
        // One whose members cannot all be started takes in those of which nothing is known.
        let only = <[[u8; 16]; 1]>::try_from(uuids).ok().map(|[uuid]| uuid);
        let mut arrays: Vec<(Option<[u8; 16]>, Family)> = Vec::new();
        for group in groups {
            let uuid = match &group.outer {
                Some(outer) => Some(outer.set_uuid),
                None if group.unknown => only,
                None => None,
            };
            let joined = arrays.iter_mut().find(|(known, _)| uuid.is_some() && *known == uuid);
            match joined {
                Some((_, family)) => family.join(group),
                None => arrays.push((uuid, Family::of(group, uuid.is_some()))),
            }
        }
        Self { arrays: arrays.into_iter().map(|(_, family)| family).collect(), strays }
    }
}

impl Family {
    fn of(group: Group, nested: bool) -> Self {
        let superblock = group.outer.unwrap_or(group.superblock);
        Self { superblock, groups: vec![group.found], nested }
    }

    fn join(&mut self, group: Group) {
        if let Some(outer) = group.outer.filter(|outer| {
            let ours = &self.superblock;
            outer.set_uuid != ours.set_uuid || outer.events > ours.events
        }) {
            self.superblock = outer;
        }
        self.groups.push(group.found);
    }

    /// All its devices.
    pub(super) fn into_devices(self) -> Vec<Found> {
        self.groups.into_iter().flatten().collect()
    }

    /// The arrays that it consists of, each on its own.
    fn parted(self) -> Vec<Self> {
        let groups = self.groups.into_iter().filter_map(Group::new);
        groups.map(|group| Self::of(group, false)).collect()
    }
}

/// Returns the name of the array, for messages.
pub(super) fn title(superblock: &Superblock) -> String {
    let name = superblock.name();
    let uuid = superblock.uuid_text();
    match short_name(&name) {
        "" => uuid,
        name => format!("{name} ({uuid})"),
    }
}

/// Devices selected by a name.
pub(super) struct Choice {
    /// The members of that array, and devices without a superblock, which belong to none.
    pub(super) members: Vec<PathBuf>,
    /// Set for an array of arrays.
    pub(super) nested: bool,
    /// The other devices, each with the reason.
    pub(super) left_out: Vec<(String, Verdict)>,
}

/// Reason for not choosing an array, with the candidates, for messages.
pub(super) enum Unclear {
    /// No array has the name; the names found.
    Other(Vec<String>),
    /// Several arrays have the name.
    Several(Vec<String>),
}

/// The array of this name among devices. Where there is no array at all, all devices.
pub(super) fn choose(families: Families, name: &str) -> Result<Choice, Unclear> {
    let Families { arrays, strays } = families;
    let strays = strays.into_iter().map(|one| one.device.path).collect::<Vec<_>>();
    if arrays.is_empty() {
        return Ok(Choice { members: strays, nested: false, left_out: Vec::new() });
    }
    let titles: Vec<String> = arrays.iter().map(|family| title(&family.superblock)).collect();
    let called = |family: &Family| is_called(&family.superblock, name);
    let (mut chosen, mut others): (Vec<Family>, Vec<Family>) = arrays.into_iter().partition(called);
    if chosen.is_empty() && matches!(&others[..], [only] if only.superblock.name().is_empty()) {
        // What has no name of its own goes by any.
        chosen.append(&mut others);
    }
    if chosen.is_empty() {
        // The name of an array that is a member of another, then.
        let parts = others.into_iter().flat_map(Family::parted);
        (chosen, others) = parts.partition(called);
    }
    if chosen.len() > 1 {
        let titles = chosen.iter().map(|family| title(&family.superblock));
        return Err(Unclear::Several(titles.collect()));
    }
    let Some(family) = chosen.pop() else { return Err(Unclear::Other(titles)) };
    let left_out = others.into_iter().flat_map(Family::into_devices).map(foreign).collect();
    let nested = family.nested;
    let members = family.into_devices().into_iter().map(|one| one.device.path);
    Ok(Choice { members: members.chain(strays).collect(), nested, left_out })
}

fn foreign(found: Found) -> (String, Verdict) {
    let device = found.candidate.device;
    let verdict = match found.candidate.superblock {
        Ok(superblock) => {
            Verdict::Foreign { uuid: superblock.uuid_text(), name: superblock.name() }
        }
        Err(error) => Verdict::Unreadable { reason: error.to_string() },
    };
    (device, verdict)
}

/// The members of the array of this name among `paths`.
pub(super) fn by_name(
    operation: &str,
    name: &str,
    paths: &[PathBuf],
    purpose: Use<'_>,
) -> Result<Choice, Failure> {
    let found = found::open_all(operation, paths, purpose)?;
    refuse_strangers(operation, &found)?;
    let families = Families::of(found, Some(name));
    choose(families, name).map_err(|unclear| unclear.refusal(operation, name))
}

impl Unclear {
    /// Says which arrays there are instead.
    pub(super) fn refusal(&self, operation: &str, name: &str) -> Failure {
        const LISTED: usize = 4;
        let (Self::Other(titles) | Self::Several(titles)) = self;
        let mut listed = titles.iter().take(LISTED).cloned().collect::<Vec<_>>().join(", ");
        if titles.len() > LISTED {
            listed = format!("{listed} and {} more", titles.len() - LISTED);
        }
        let (reason, which) = match self {
            Self::Several(_) => (format!("several arrays have this name: {listed}"), "a UUID"),
            Self::Other(_) => {
                (format!("the members are those of {listed}"), "the name of the array")
            }
        };
        let next = match (self, operation) {
            (Self::Other(_), "assemble") => {
                format!("use {which}, or start it under another with --rename")
            }
            _ => format!("use {which}"),
        };
        Failure::refused(operation, name, reason, next)
    }
}
