//! A logical volume: where its bytes lie.

use std::ops::Range;

use super::id::LvmId;

/// A logical volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogicalVolume {
    /// Its name within the group.
    pub name: String,
    /// Its uuid.
    pub id: LvmId,
    /// Its length.
    pub size_bytes: u64,
    /// Whether it is for users. Otherwise it is a part of another one, which its name tells.
    pub is_visible: bool,
    /// Where its bytes lie: without gaps from its first byte to its last. Or why that is not known.
    pub segments: Result<Vec<Segment>, Refusal>,
}

/// A part of a logical volume that lies on physical volumes in one way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where it begins in the logical volume.
    pub start_bytes: u64,
    /// Its length: as many whole stripes.
    pub size_bytes: u64,
    /// The length that lies on one physical volume before the next one follows; all of it where
    /// there is one.
    pub stripe_bytes: u64,
    /// The physical volumes, in turn.
    pub stripes: Vec<Stripe>,
}

/// A segment's share of a physical volume, in one piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stripe {
    /// The physical volume.
    pub volume: LvmId,
    /// Where the share begins on it, from its first byte.
    pub offset_bytes: u64,
}

/// Bytes that lie together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumePiece {
    /// The physical volume.
    pub volume: LvmId,
    /// Where they lie on it.
    pub offset_bytes: u64,
    /// The number of them.
    pub bytes: u64,
}

/// The reason for which a logical volume cannot be read here; others of its group may be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The volume is neither linear nor striped.
    #[error("it is of type {kind}, which only LVM reads: `lvchange -ay GROUP/VOLUME`")]
    Type {
        /// As LVM calls it: thin, cache, raid1, mirror, snapshot, vdo, …
        kind: String,
    },
    /// The volume lies on another logical volume, as while `pvmove` runs.
    #[error("it lies on \"{name}\", which is no physical volume")]
    OnVolume {
        /// The name in the place of a physical volume.
        name: String,
    },
    /// A physical volume is not there.
    #[error("it needs the physical volume {id} ({name}), which is not there")]
    Missing {
        /// The physical volume's uuid.
        id: LvmId,
        /// Its name in the group, and the device that it was last.
        name: String,
    },
    /// LVM went on without a physical volume; what is on it may be old.
    #[error("it needs the physical volume {id} ({name}), which LVM marked as missing")]
    MarkedMissing {
        /// The physical volume's uuid.
        id: LvmId,
        /// Its name in the group, and the device that it was last.
        name: String,
    },
    /// The metadata makes no sense.
    #[error("the metadata of its {place} is damaged: {what}")]
    Damaged {
        /// The segment's name, or `volume`.
        place: String,
        /// The error.
        what: &'static str,
    },
}

impl LogicalVolume {
    /// The bytes from `offset_bytes` on that lie together; `None` from the volume's end on, and
    /// where it cannot be read.
    #[must_use]
    pub fn piece(&self, offset_bytes: u64) -> Option<VolumePiece> {
        let segments = self.segments.as_ref().ok()?;
        let after = segments.partition_point(|segment| segment.start_bytes <= offset_bytes);
        segments[..after].last()?.piece(offset_bytes)
    }

    /// Where a range of the volume lies, piece by piece in its order; to the volume's end if it is
    /// longer. There may be as many pieces as the range has stripes: they are made as they are
    /// asked for.
    pub fn pieces(&self, range: Range<u64>) -> impl Iterator<Item = VolumePiece> {
        let mut at = range.start;
        std::iter::from_fn(move || {
            let left = range.end.checked_sub(at).filter(|left| *left > 0)?;
            let mut piece = self.piece(at)?;
            piece.bytes = piece.bytes.min(left);
            at += piece.bytes;
            Some(piece)
        })
    }
}

impl Segment {
    fn piece(&self, offset_bytes: u64) -> Option<VolumePiece> {
        let within = offset_bytes.checked_sub(self.start_bytes)?;
        let left = self.size_bytes.checked_sub(within).filter(|left| *left > 0)?;
        let turn = within / self.stripe_bytes;
        let into_stripe = within % self.stripe_bytes;
        let count = self.stripes.len() as u64;
        let stripe = &self.stripes[(turn % count) as usize];
        Some(VolumePiece {
            volume: stripe.volume,
            offset_bytes: stripe.offset_bytes + turn / count * self.stripe_bytes + into_stripe,
            bytes: left.min(self.stripe_bytes - into_stripe),
        })
    }
}
