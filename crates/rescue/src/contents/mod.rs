//! The contents of arrays, as a tree: array, partition, group of LVM2, logical volume; and the
//! findings in each: file systems, layers, zeroes. The same names serve to read a part of it.
//!
//! Each thing is looked at as [`kind::look`] does. A partition table counts on an array and on a
//! logical volume (a disk of a virtual machine), a physical volume on an array and on its
//! partitions; deeper ones are named and not looked into.

mod place;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use crate::image::Image;
use crate::kind::{self, Finding, Kind};
use crate::lvm::{self, Group, LogicalVolume, LvmId, PhysicalVolume};
use crate::partitions;
use place::{Run, View};

pub use place::{Piece, Place};

/// So many things are looked at; each costs 1.2 MiB that are read.
const MOST: usize = 256;
/// Longer names are cut off.
const MAX_NAME_CHARS: usize = 128;
/// LVM2 makes no smaller stripes; in smaller ones, what is read would come in too many pieces.
const MIN_STRIPE_BYTES: u64 = 4096;

/// A thing that lies on an array, or an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// By which it is asked for: `p1`, `vg1/volume_1`, `vg1/disk/p1`. No other has it. Where
    /// several arrays are looked at, partitions have their array's name and a colon before it.
    pub name: String,
    /// Its kind of part of the tree.
    pub kind: ContentKind,
    /// Its length; of a group, all extents of it.
    pub size_bytes: u64,
    /// Where its bytes lie. `None` for a group, and for a volume that cannot be read here, of which
    /// a remark tells why.
    pub place: Option<Place>,
    /// The findings in it. Several mean that older ones were not wiped.
    pub findings: Vec<Finding>,
    /// Remarks on it: all that is not as it should be.
    pub remarks: Vec<String>,
    /// The parts that lie on it.
    pub contents: Vec<Self>,
}

/// The kinds of things in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContentKind {
    /// An array, or another image that was given.
    Array,
    /// A partition.
    Partition {
        /// The purpose that its table names.
        purpose: String,
        /// Its name there.
        label: Option<String>,
    },
    /// A group of LVM2, with the first of its physical volumes.
    Group {
        /// All of its physical volumes that were given: what has them.
        physical_volumes: Vec<String>,
    },
    /// A logical volume of LVM2.
    Volume,
}

impl ContentKind {
    /// In one word.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Array => "array",
            Self::Partition { .. } => "partition",
            Self::Group { .. } => "group",
            Self::Volume => "volume",
        }
    }
}

impl Content {
    fn new(name: String, kind: ContentKind, place: Option<Place>) -> Self {
        let size_bytes = place.as_ref().map_or(0, Place::size_bytes);
        let findings = Vec::new();
        let remarks = Vec::new();
        Self { name, kind, size_bytes, place, findings, remarks, contents: Vec::new() }
    }

    /// This and all that lies on it, in the order in which it is shown.
    pub fn all(&self) -> impl Iterator<Item = &Self> {
        let mut left = vec![self];
        std::iter::from_fn(move || {
            let next = left.pop()?;
            left.extend(next.contents.iter().rev());
            Some(next)
        })
    }

    fn find_mut(&mut self, name: &str) -> Option<&mut Self> {
        if self.name == name {
            return Some(self);
        }
        self.contents.iter_mut().find_map(|content| content.find_mut(name))
    }
}

/// Looks at arrays that were given with their names. The contents of one need others only where a
/// group of LVM2 lies on several.
#[must_use]
pub fn look(arrays: &mut [(String, &mut dyn Image)]) -> Vec<Content> {
    let several = arrays.len() > 1;
    let mut names = Vec::new();
    let mut images: Vec<&mut dyn Image> = Vec::new();
    for (name, image) in arrays {
        names.push(name.clone());
        images.push(&mut **image);
    }
    let mut looker = Looker { images, several, used: BTreeSet::new(), left: MOST, found: vec![] };
    let mut contents = Vec::new();
    for (index, name) in names.into_iter().enumerate() {
        let place = Place::range(index, 0..looker.images[index].size_bytes());
        let name = looker.unique(name);
        let mut array = Content::new(name, ContentKind::Array, Some(place));
        looker.look_into(&mut array, Depth::Array);
        contents.push(array);
    }
    let mut physical = Vec::new();
    let mut places: BTreeMap<LvmId, (String, Piece)> = BTreeMap::new();
    for (volume, name, piece) in std::mem::take(&mut looker.found) {
        places.entry(volume.id).or_insert((name, piece));
        physical.push(volume);
    }
    for group in lvm::groups(&physical) {
        let (first, group) = looker.group(group, &places);
        if let Some(home) = contents.iter_mut().find_map(|content| content.find_mut(&first)) {
            home.contents.push(group);
        }
    }
    contents
}

/// Partitions and volumes that can be read, with names that can be those of files, each its own.
#[must_use]
pub fn readable(contents: &[Content]) -> Vec<(String, &Content)> {
    let mut used = BTreeSet::new();
    let parts = contents.iter().flat_map(Content::all);
    let parts = parts.filter(|part| part.place.is_some() && part.kind != ContentKind::Array);
    let named = parts.map(|part| (unique(&mut used, part.name.replace('/', "-")), part));
    named.collect()
}

/// Where in the tree a thing is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    Array,
    Partition,
    Volume,
    InVolume,
}

struct Looker<'a> {
    images: Vec<&'a mut dyn Image>,
    several: bool,
    used: BTreeSet<String>,
    /// The number of further ones that are looked at.
    left: usize,
    /// Physical volumes, what has them, and where they lie.
    found: Vec<(PhysicalVolume, String, Piece)>,
}

impl Looker<'_> {
    fn unique(&mut self, name: String) -> String {
        unique(&mut self.used, name)
    }

    fn look_into(&mut self, content: &mut Content, depth: Depth) {
        let Some(place) = content.place.clone() else { return };
        if self.left == 0 {
            content.remarks.push(format!("not looked into: there are more than {MOST} things"));
            return;
        }
        self.left -= 1;
        let mut view = View { images: &mut self.images, place: &place };
        let look = kind::look(&mut view);
        let lost: u64 = look.unreadable.iter().map(|range| range.end - range.start).sum();
        if lost > 0 {
            let remark = format!("{lost} bytes that would have been looked at cannot be read");
            content.remarks.push(remark);
        }
        content.findings = look.findings;
        let holds =
            |content: &Content, kind| content.findings.iter().any(|finding| finding.kind == kind);
        if matches!(depth, Depth::Array | Depth::Partition) && holds(content, Kind::Lvm2) {
            match (PhysicalVolume::read(&mut view), place.whole()) {
                (Ok(volume), Some(piece)) => {
                    self.found.push((volume, content.name.clone(), piece));
                }
                (Err(why), _) => content.remarks.push(why.to_string()),
                (Ok(_), None) => {}
            }
        }
        let has_table = holds(content, Kind::Gpt) || holds(content, Kind::Mbr);
        if matches!(depth, Depth::Array | Depth::Volume) && has_table {
            self.partitions(content, &place, depth);
        }
    }

    fn partitions(&mut self, disk: &mut Content, place: &Place, depth: Depth) {
        let Ok(table) = partitions::read(&mut View { images: &mut self.images, place }) else {
            return;
        };
        disk.remarks.extend(table.remarks.iter().map(ToString::to_string));
        let before = match depth {
            Depth::Array if self.several => format!("{}:", disk.name),
            Depth::Array => String::new(),
            _ => format!("{}/", disk.name),
        };
        let inner = if depth == Depth::Array { Depth::Partition } else { Depth::InVolume };
        let data = table.partitions.iter().filter(|partition| !partition.kind.is_extended());
        for partition in data {
            if self.left == 0 {
                disk.remarks.push("some of its partitions are left out".to_owned());
                break;
            }
            let end_bytes = partition.start_bytes + partition.size_bytes;
            let kind = ContentKind::Partition {
                purpose: partition.kind.to_string(),
                label: Some(partition.name.clone()).filter(|name| !name.is_empty()),
            };
            let name = self.unique(format!("{before}p{}", partition.number));
            let part = place.part(partition.start_bytes..end_bytes);
            let mut content = Content::new(name, kind, Some(part));
            self.look_into(&mut content, inner);
            disk.contents.push(content);
        }
    }

    /// A group, and what has its first physical volume.
    fn group(
        &mut self,
        group: Group,
        places: &BTreeMap<LvmId, (String, Piece)>,
    ) -> (String, Content) {
        let Group { description, remarks } = group;
        let there = description.physical_volumes.iter().filter_map(|volume| places.get(&volume.id));
        let homes: Vec<String> = there.map(|(name, _)| name.clone()).collect();
        let first = homes.first().cloned().unwrap_or_default();
        let group_name = safe(&description.name);
        let name = self.unique(group_name.clone());
        let mut content = Content::new(name, ContentKind::Group { physical_volumes: homes }, None);
        let extents = description.physical_volumes.iter().map(|volume| volume.extents);
        content.size_bytes =
            extents.fold(0, u64::saturating_add).saturating_mul(description.extent_bytes);
        content.remarks = remarks.iter().map(ToString::to_string).collect();
        for volume in description.logical_volumes.iter().filter(|volume| volume.is_visible) {
            if self.left == 0 {
                content.remarks.push("some of its volumes are left out".to_owned());
                break;
            }
            let name = self.unique(format!("{group_name}/{}", safe(&volume.name)));
            let (place, why) = match place_of(volume, places) {
                Ok(place) => (Some(place), None),
                Err(why) => (None, Some(why)),
            };
            let mut found = Content::new(name, ContentKind::Volume, place);
            found.size_bytes = volume.size_bytes;
            found.remarks.extend(why);
            self.look_into(&mut found, Depth::Volume);
            // Those that cannot be read count as well.
            self.left = self.left.saturating_sub(usize::from(found.place.is_none()));
            content.contents.push(found);
        }
        (first, content)
    }
}

/// Where a logical volume lies on arrays, or why it cannot be read.
fn place_of(
    volume: &LogicalVolume,
    places: &BTreeMap<LvmId, (String, Piece)>,
) -> Result<Place, String> {
    let segments = volume.segments.as_ref().map_err(ToString::to_string)?;
    let mut runs = Vec::new();
    for segment in segments {
        let share_bytes = segment.size_bytes / segment.stripes.len() as u64;
        if segment.stripe_bytes < MIN_STRIPE_BYTES {
            return Err(format!("its stripes have less than {MIN_STRIPE_BYTES} bytes"));
        }
        let mut shares = Vec::new();
        for stripe in &segment.stripes {
            let (name, piece) =
                places.get(&stripe.volume).ok_or("a physical volume of it is not there")?;
            let end = stripe.offset_bytes.checked_add(share_bytes);
            if end.is_none_or(|end| end > piece.bytes) {
                return Err(format!("it ends beyond the end of {name}"));
            }
            shares.push((piece.array, piece.offset_bytes + stripe.offset_bytes));
        }
        runs.push(Run {
            start_bytes: segment.start_bytes,
            size_bytes: segment.size_bytes,
            stripe_bytes: segment.stripe_bytes,
            shares,
        });
    }
    Place::runs(runs).map_err(str::to_owned)
}

/// A name from metadata as one that can be typed, and be that of a file: LVM2 makes no others.
fn safe(name: &str) -> String {
    let is_safe = |char: char| char.is_ascii_alphanumeric() || "+_.-".contains(char);
    let shown = |char| if is_safe(char) { char } else { '_' };
    name.chars().take(MAX_NAME_CHARS).map(shown).collect()
}

/// The name, or with a number where something has it.
fn unique(used: &mut BTreeSet<String>, name: String) -> String {
    let mut number = 1;
    let mut wanted = name.clone();
    while !used.insert(wanted.clone()) {
        number += 1;
        wanted = format!("{name}~{number}");
    }
    wanted
}
