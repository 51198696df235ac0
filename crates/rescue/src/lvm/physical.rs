//! A physical volume: label, header and metadata areas (LVM2's `lib/label/label.h` and
//! `lib/format_text/layout.h`).

use braid_array::SECTOR_BYTES;

use super::description::{Description, DescriptionError};
use super::id::LvmId;
use crate::bytes::{array_at, lies_at, u32_le, u64_le};
use crate::crc::crc32_update;
use crate::image::{Image, Unreadable, read};

/// LVM2's sums begin with this, and end as they are.
const CRC_START: u32 = 0xf597_a6cf;

/// The label is in one of so many sectors.
const LABEL_SECTORS: u64 = 4;
const LABEL: &[u8] = b"LABELONE";
const LABEL_TYPE: &[u8] = b"LVM2 001";

const AREA_MAGIC: &[u8] = b" LVM2 x[5A%r0N*>";
const AREA_HEADER_BYTES: u64 = SECTOR_BYTES;

/// Metadata areas that are read; LVM makes two at most.
const MAX_AREAS: usize = 4;

/// The longest text that is read. A thousand logical volumes have half a megabyte.
const MAX_TEXT_BYTES: u64 = 8 << 20;

/// The flag of a text that is not kept up to date.
const IGNORED: u32 = 1;

/// A physical volume and what the metadata on it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhysicalVolume {
    /// Its uuid.
    pub id: LvmId,
    /// Its length, as it was when it was made.
    pub size_bytes: u64,
    /// Descriptions of its group in its metadata areas, each with the place where the area begins.
    /// None for one that is in no group, or leaves that to others.
    pub descriptions: Vec<(u64, Description)>,
    /// Areas that cannot be used, in the same way.
    pub broken: Vec<(u64, AreaError)>,
}

/// The reason for which an image is no physical volume.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PhysicalVolumeError {
    /// Nothing says that it is one.
    #[error("no label of LVM2 in the first four sectors")]
    None,
    /// The label was damaged.
    #[error("the label of LVM2 at byte {at_bytes} is damaged: {what}")]
    Label {
        /// Where it begins.
        at_bytes: u64,
        /// The error.
        what: &'static str,
    },
    /// None was found, and not all was read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
}

/// The reason for which a metadata area says nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AreaError {
    /// The area cannot be read.
    #[error(transparent)]
    Unreadable(#[from] Unreadable),
    /// Its header was damaged, or torn in writing.
    #[error("its header is damaged: {what}")]
    Header {
        /// The error.
        what: &'static str,
    },
    /// Its text was damaged, or torn in writing.
    #[error("the checksum of its text at byte {at_bytes} is wrong")]
    Checksum {
        /// Where the text begins.
        at_bytes: u64,
    },
    /// The text says no group.
    #[error(transparent)]
    Description(#[from] DescriptionError),
}

impl PhysicalVolume {
    /// Reads label, header and metadata: four sectors, and 8 MiB for each of four areas at most.
    ///
    /// # Errors
    /// [`PhysicalVolumeError`]. Metadata areas that are broken are told in `broken`.
    pub fn read(image: &mut dyn Image) -> Result<Self, PhysicalVolumeError> {
        let (at_bytes, label) = find_label(image)?;
        let damaged = |what| PhysicalVolumeError::Label { at_bytes, what };
        let header_at = u32_le(&label, 20).unwrap_or_default() as usize;
        let header = label.get(header_at..).ok_or_else(|| damaged("its header is elsewhere"))?;
        let id = array_at(header, 0).and_then(LvmId::from_bytes);
        let id = id.ok_or_else(|| damaged("its uuid is none"))?;
        let size_bytes = u64_le(header, 32).ok_or_else(|| damaged("it is cut off"))?;
        let mut at = 40;
        let data = list(header, &mut at);
        let areas = list(header, &mut at);
        let (Some(_), Some(areas)) = (data, areas) else {
            return Err(damaged("its list of areas has no end"));
        };
        let mut found = Self { id, size_bytes, descriptions: Vec::new(), broken: Vec::new() };
        for (at_bytes, size_bytes) in areas.into_iter().take(MAX_AREAS) {
            match read_area(image, at_bytes, size_bytes) {
                Ok(Some(description)) => found.descriptions.push((at_bytes, description)),
                Ok(None) => {}
                Err(why) => found.broken.push((at_bytes, why)),
            }
        }
        Ok(found)
    }
}

/// The sector with the label. One that is damaged is told of only if there is no other.
fn find_label(image: &mut dyn Image) -> Result<(u64, Vec<u8>), PhysicalVolumeError> {
    let mut why = PhysicalVolumeError::None;
    for number in 0..LABEL_SECTORS {
        let at_bytes = number * SECTOR_BYTES;
        if at_bytes + SECTOR_BYTES > image.size_bytes() {
            break;
        }
        let sector = match read(image, at_bytes, SECTOR_BYTES as usize) {
            Ok(sector) => sector,
            Err(unreadable) => {
                if why == PhysicalVolumeError::None {
                    why = unreadable.into();
                }
                continue;
            }
        };
        if !sector.starts_with(LABEL) || !lies_at(&sector, 24, LABEL_TYPE) {
            continue;
        }
        let damaged = |what| PhysicalVolumeError::Label { at_bytes, what };
        if u32_le(&sector, 16) != Some(crc32_update(CRC_START, &sector[20..])) {
            why = damaged("its checksum is wrong");
        } else if u64_le(&sector, 8) != Some(number) {
            why = damaged("it belongs in another sector");
        } else {
            return Ok((at_bytes, sector));
        }
    }
    Err(why)
}

/// A list of places and lengths up to one of zeroes; `None` if it does not end.
fn list(header: &[u8], at: &mut usize) -> Option<Vec<(u64, u64)>> {
    let mut list = Vec::new();
    loop {
        let place = u64_le(header, *at)?;
        let length = u64_le(header, *at + 8)?;
        *at += 16;
        if place == 0 {
            return Some(list);
        }
        list.push((place, length));
    }
}

/// The text of an area; `None` where it says nothing.
fn read_area(
    image: &mut dyn Image,
    at_bytes: u64,
    size_bytes: u64,
) -> Result<Option<Description>, AreaError> {
    let header = read(image, at_bytes, AREA_HEADER_BYTES as usize)?;
    let wrong = |what| AreaError::Header { what };
    if !lies_at(&header, 4, AREA_MAGIC) {
        return Err(wrong("it has no signature"));
    }
    if u32_le(&header, 0) != Some(crc32_update(CRC_START, &header[4..])) {
        return Err(wrong("its checksum is wrong"));
    }
    if u32_le(&header, 20) != Some(1) {
        return Err(wrong("it is of an unknown version"));
    }
    if u64_le(&header, 24) != Some(at_bytes) || u64_le(&header, 32) != Some(size_bytes) {
        return Err(wrong("it belongs elsewhere"));
    }
    let offset = u64_le(&header, 40).unwrap_or_default();
    let length = u64_le(&header, 48).unwrap_or_default();
    let flags = u32_le(&header, 60).unwrap_or_default();
    if offset == 0 || length == 0 || flags & IGNORED != 0 {
        return Ok(None);
    }
    let ring_bytes = size_bytes.saturating_sub(AREA_HEADER_BYTES);
    if length > MAX_TEXT_BYTES || length > ring_bytes {
        return Err(wrong("its text is longer than texts are"));
    }
    if !(AREA_HEADER_BYTES..size_bytes).contains(&offset) {
        return Err(wrong("its text is outside of it"));
    }
    let text_at = at_bytes.checked_add(offset).ok_or_else(|| wrong("it ends beyond any disk"))?;
    // Goes on behind the header where it reaches the area's end.
    let first = length.min(size_bytes - offset);
    let mut text = read(image, text_at, first as usize)?;
    if first < length {
        let rest = (length - first) as usize;
        text.extend(read(image, at_bytes + AREA_HEADER_BYTES, rest)?);
    }
    if u32_le(&header, 56) != Some(crc32_update(CRC_START, &text)) {
        return Err(AreaError::Checksum { at_bytes: text_at });
    }
    Ok(Some(Description::parse(&text)?))
}
