//! Things that are no member of an array: an archive or an image to be unpacked, a file system, a
//! layer of something else, or nothing. Told by signatures at the beginning and the end, as
//! libblkid and `file` know them; each probe names its source where it is not plain.

mod archives;
mod file_systems;
mod kinds;
mod layers;
#[cfg(test)]
mod tests;
mod window;

use std::ops::Range;

use uuid::Uuid;

use crate::bytes::is_zero;
use crate::image::{Image, PAGE_BYTES, read_patchy};
use crate::partitions::{self, TableKind};
use window::Window;

pub use kinds::Kind;

/// Pages between beginning and end that are looked at before all is called zeroes.
const SAMPLES: u64 = 64;

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its kind.
    pub kind: Kind,
    /// Where its signature lies.
    pub at_bytes: u64,
    /// Its uuid or serial number, as `blkid` prints it, where it has one that is easily read.
    pub uuid: Option<String>,
    /// Its label, in the same way. Fit to be printed.
    pub label: Option<String>,
}

impl Finding {
    fn new(kind: Kind, at_bytes: u64) -> Self {
        Self { kind, at_bytes, uuid: None, label: None }
    }

    /// A uuid of all zeroes is none.
    fn uuid(mut self, bytes: Option<[u8; 16]>) -> Self {
        self.uuid = bytes.filter(|bytes| !is_zero(bytes)).map(|b| Uuid::from_bytes(b).to_string());
        self
    }
}

/// All that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// In the order of what users most likely have to do with: what has to be unpacked, layers,
    /// file systems, partition tables. Several mean that older ones were not wiped.
    pub findings: Vec<Finding>,
    /// Sectors that would have been looked at and cannot be read, as offsets in the image.
    pub unreadable: Vec<Range<u64>>,
}

/// Looks at the beginning and the end of an image, 1.2 MiB of it, and at its partition table. Only
/// where nothing is found and all of that is zeroes, 64 pages between are looked at as well.
#[must_use]
pub fn look(image: &mut dyn Image) -> Look {
    let window = Window::read(image);
    let mut findings = archives::find(&window);
    findings.extend(layers::find(&window));
    findings.extend(file_systems::find(&window));
    if let Ok(table) = partitions::read(image) {
        let kind = match table.kind {
            TableKind::Gpt => Kind::Gpt,
            TableKind::Mbr => Kind::Mbr,
        };
        findings.push(Finding::new(kind, 0));
    }
    let mut unreadable = window.unreadable.clone();
    if findings.is_empty()
        && unreadable.is_empty()
        && image.size_bytes() > 0
        && window.is_zero()
        && samples_are_zero(image, &mut unreadable)
    {
        findings.push(Finding::new(Kind::Zeroes, 0));
    }
    Look { findings, unreadable }
}

fn samples_are_zero(image: &mut dyn Image, unreadable: &mut Vec<Range<u64>>) -> bool {
    let size_bytes = image.size_bytes();
    (0..SAMPLES).all(|index| {
        let at_bytes = size_bytes / SAMPLES * index / PAGE_BYTES * PAGE_BYTES;
        let found = read_patchy(image, at_bytes, PAGE_BYTES as usize);
        unreadable.extend_from_slice(&found.holes);
        found.holes.is_empty() && is_zero(&found.bytes)
    })
}
