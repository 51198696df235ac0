//! The description of a group in a text of metadata (LVM2's `lib/format_text/import_vsn1.c`).

use std::collections::{BTreeMap, BTreeSet};

use braid_array::SECTOR_BYTES;

use super::config::{ConfigError, Node, Section, parse};
use super::id::LvmId;
use super::volume::{LogicalVolume, Refusal, Segment, Stripe};

/// A group as one text describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The group's name.
    pub name: String,
    /// Its uuid.
    pub id: LvmId,
    /// Counts its changes.
    pub seqno: u64,
    /// Bytes in an extent, the unit in which space is given out.
    pub extent_bytes: u64,
    /// Its physical volumes, in the text's order.
    pub physical_volumes: Vec<Described>,
    /// Its logical volumes, in the text's order.
    pub logical_volumes: Vec<LogicalVolume>,
}

/// A physical volume as its group describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Its name in the text, `pv0` and so on.
    pub name: String,
    /// Its uuid.
    pub id: LvmId,
    /// The device that it was last.
    pub device: String,
    /// Where its first extent begins.
    pub start_bytes: u64,
    /// Its extents.
    pub extents: u64,
    /// Whether LVM went on without it.
    pub is_marked_missing: bool,
}

/// The reason for which a text describes no group.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescriptionError {
    /// The text is none of LVM's.
    #[error(transparent)]
    Text(#[from] ConfigError),
    /// Something is missing, or makes no sense.
    #[error("{section} has no usable \"{key}\"")]
    Key {
        /// Where.
        section: String,
        /// The part that is wrong or missing.
        key: &'static str,
    },
}

impl Described {
    /// Its name, and the device that it was; shortened, since each volume on it is told of it.
    pub(super) fn told(&self) -> String {
        format!("{:.128}, once {:.128}", self.name, self.device)
    }
}

/// Required values of a section.
struct Required<'a>(&'a str, &'a Section);

impl Required<'_> {
    fn take<T>(&self, key: &'static str, found: Option<T>) -> Result<T, DescriptionError> {
        found.ok_or_else(|| DescriptionError::Key { section: self.0.to_owned(), key })
    }

    fn number(&self, key: &'static str) -> Result<u64, DescriptionError> {
        self.take(key, self.1.number(key))
    }

    fn bytes(&self, key: &'static str) -> Result<u64, DescriptionError> {
        let bytes = self.1.number(key).and_then(|sectors| sectors.checked_mul(SECTOR_BYTES));
        self.take(key, bytes)
    }

    fn id(&self) -> Result<LvmId, DescriptionError> {
        self.take("id", self.1.text("id").and_then(LvmId::parse))
    }
}

impl Description {
    /// Reads a text.
    ///
    /// # Errors
    /// [`DescriptionError`]. Errors of one logical volume are in that one's
    /// [`LogicalVolume::segments`].
    pub fn parse(text: &[u8]) -> Result<Self, DescriptionError> {
        let root = parse(text)?;
        let top = Required("the text", &root);
        let contents = root.text("contents").filter(|text| *text == "Text Format Volume Group");
        top.take("contents", contents)?;
        top.take("version", root.number("version").filter(|version| *version == 1))?;
        let (name, group) = top.take("id", root.sections().next())?;
        let required = Required(name, group);
        let extent_bytes = required.bytes("extent_size")?;
        let extent_bytes = required.take("extent_size", Some(extent_bytes).filter(|n| *n > 0))?;
        let mut description = Self {
            name: name.to_owned(),
            id: required.id()?,
            seqno: required.number("seqno")?,
            extent_bytes,
            physical_volumes: Vec::new(),
            logical_volumes: Vec::new(),
        };
        let sections = group.section("physical_volumes").into_iter().flat_map(Section::sections);
        for (name, section) in sections {
            description.physical_volumes.push(described(name, section, extent_bytes)?);
        }
        let named = description.physical_volumes.iter().enumerate();
        let names = named.map(|(index, volume)| (volume.name.clone(), index)).collect();
        let sections = group.section("logical_volumes").into_iter().flat_map(Section::sections);
        let sections: Vec<(&str, &Section)> = sections.collect();
        for (name, section) in &sections {
            let volume = description.logical_volume(&names, name, section)?;
            description.logical_volumes.push(volume);
        }
        let changed: BTreeSet<&str> =
            sections.iter().flat_map(|(_, volume)| snapshots(volume)).collect();
        for volume in &mut description.logical_volumes {
            if changed.contains(volume.name.as_str()) {
                volume.segments = Err(Refusal::Type { kind: "snapshot".to_owned() });
            }
        }
        Ok(description)
    }

    fn logical_volume(
        &self,
        names: &BTreeMap<String, usize>,
        name: &str,
        section: &Section,
    ) -> Result<LogicalVolume, DescriptionError> {
        let required = Required(name, section);
        let is_segment = |name: &str| name.strip_prefix("segment").is_some_and(is_number);
        let sections = section.sections().filter(|(name, _)| is_segment(name));
        let mut extents: u64 = 0;
        let mut segments = Vec::new();
        for (place, section) in sections {
            extents = extents.saturating_add(section.number("extent_count").unwrap_or_default());
            segments.push(self.segment(names, place, section));
        }
        let damaged = |what| Refusal::Damaged { place: "volume".to_owned(), what };
        let size_bytes = extents.checked_mul(self.extent_bytes);
        let segments = if section.number("segment_count") != Some(segments.len() as u64) {
            Err(damaged("it has not as many segments as it says"))
        } else if size_bytes.is_none() {
            Err(damaged("it is larger than any disk"))
        } else {
            segments.into_iter().collect::<Result<Vec<_>, _>>().and_then(in_order)
        };
        Ok(LogicalVolume {
            name: name.to_owned(),
            id: required.id()?,
            size_bytes: size_bytes.unwrap_or_default(),
            is_visible: section.has("status", "VISIBLE"),
            segments,
        })
    }

    fn segment(
        &self,
        names: &BTreeMap<String, usize>,
        place: &str,
        section: &Section,
    ) -> Result<Segment, Refusal> {
        let damaged = |what| Refusal::Damaged { place: place.to_owned(), what };
        let kind = section.text("type").ok_or_else(|| damaged("it has no type"))?;
        if kind != "striped" {
            return Err(Refusal::Type { kind: kind.to_owned() });
        }
        let extent_bytes = self.extent_bytes;
        let bytes = |key| section.number(key).and_then(|n| n.checked_mul(extent_bytes));
        let (Some(start_bytes), Some(size_bytes)) = (bytes("start_extent"), bytes("extent_count"))
        else {
            return Err(damaged("it has no range"));
        };
        let list = section.list("stripes").unwrap_or_default();
        let (pairs, rest) = list.as_chunks::<2>();
        let count = pairs.len() as u64;
        if count == 0 || !rest.is_empty() || section.number("stripe_count") != Some(count) {
            return Err(damaged("it has not as many stripes as it says"));
        }
        let share_bytes = size_bytes / count;
        let mut stripe_bytes = share_bytes;
        if count > 1 {
            let sectors = section.number("stripe_size").unwrap_or_default();
            stripe_bytes = sectors.checked_mul(SECTOR_BYTES).unwrap_or_default();
        }
        // So the kernel's device-mapper wants it.
        let is_whole = share_bytes.checked_rem(stripe_bytes) == Some(0);
        if !is_whole
            || share_bytes * count != size_bytes
            || !share_bytes.is_multiple_of(extent_bytes)
        {
            return Err(damaged("its length is no number of whole stripes"));
        }
        let mut stripes = Vec::new();
        for pair in pairs {
            let [Node::Text(name), Node::Number(extent)] = pair else {
                return Err(damaged("its stripes are no names and extents"));
            };
            let known = names.get(name).map(|index| &self.physical_volumes[*index]);
            let volume = known.ok_or_else(|| Refusal::OnVolume { name: name.clone() })?;
            let first = u64::try_from(*extent).ok();
            let last = first.and_then(|first| first.checked_add(share_bytes / extent_bytes));
            if last.is_none_or(|last| last > volume.extents) {
                return Err(damaged("it ends beyond its physical volume"));
            }
            // Below the volume's end, which is checked to be a number of bytes.
            let offset_bytes = volume.start_bytes + first.unwrap_or_default() * extent_bytes;
            stripes.push(Stripe { volume: volume.id, offset_bytes });
        }
        Ok(Segment { start_bytes, size_bytes, stripe_bytes, stripes })
    }
}

fn described(
    name: &str,
    section: &Section,
    extent_bytes: u64,
) -> Result<Described, DescriptionError> {
    let required = Required(name, section);
    let start_bytes = required.bytes("pe_start")?;
    let ends = |extents: &u64| {
        extents.checked_mul(extent_bytes).and_then(|bytes| bytes.checked_add(start_bytes)).is_some()
    };
    Ok(Described {
        name: name.to_owned(),
        id: required.id()?,
        device: section.text("device").unwrap_or("unknown").to_owned(),
        start_bytes,
        extents: required.take("pe_count", section.number("pe_count").filter(ends))?,
        is_marked_missing: section.has("flags", "MISSING") || section.has("status", "MISSING"),
    })
}

/// The volume that holds the changes of a snapshot, itself a striped volume; and the origin of one
/// that is being merged, whose content is not its own any more.
fn snapshots(volume: &Section) -> impl Iterator<Item = &str> {
    let segments =
        volume.sections().filter(|(_, segment)| segment.text("type") == Some("snapshot"));
    segments.flat_map(|(_, segment)| {
        let merging = segment.text("merging_store");
        let origin = merging.and(segment.text("origin"));
        [segment.text("cow_store"), merging, origin].into_iter().flatten()
    })
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Sorts segments; one must begin where the one before it ends.
fn in_order(mut segments: Vec<Segment>) -> Result<Vec<Segment>, Refusal> {
    segments.sort_by_key(|segment| segment.start_bytes);
    let mut end = 0;
    for segment in &segments {
        if segment.start_bytes != end {
            let what = "its segments overlap, or something is missing between them";
            return Err(Refusal::Damaged { place: "volume".to_owned(), what });
        }
        end += segment.size_bytes;
    }
    Ok(segments)
}
