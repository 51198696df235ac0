//! Kinds of events, by name.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Events with mdadm's names; `ArrayFailed`, `ArrayGrown`, `ReshapeStarted` to `ReshapeFinished`,
/// `MismatchFound`, `NodeLost` and `DiskWarning` are Braid's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Event {
    DeviceDisappeared,
    RebuildStarted,
    /// Progress of the work, in percent.
    Rebuild(u64),
    RebuildFinished,
    ReshapeStarted,
    /// Progress of a reshape, in percent.
    Reshape(u64),
    ReshapeFinished,
    Fail,
    FailSpare,
    SpareActive,
    NewArray,
    /// Another level, other members or another size.
    ArrayGrown,
    DegradedArray,
    /// More members are gone than the array can do without.
    ArrayFailed,
    MismatchFound,
    NodeLost,
    /// A disk reports that it will fail, or shows signs common to disks that fail soon.
    DiskWarning,
    TestMessage,
}

impl Event {
    pub(super) fn name(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Rebuild(percent) => return Cow::Owned(format!("Rebuild{percent:02}")),
            Self::DeviceDisappeared => "DeviceDisappeared",
            Self::RebuildStarted => "RebuildStarted",
            Self::RebuildFinished => "RebuildFinished",
            Self::ReshapeStarted => "ReshapeStarted",
            Self::Reshape(percent) => return Cow::Owned(format!("Reshape{percent:02}")),
            Self::ReshapeFinished => "ReshapeFinished",
            Self::Fail => "Fail",
            Self::FailSpare => "FailSpare",
            Self::SpareActive => "SpareActive",
            Self::NewArray => "NewArray",
            Self::ArrayGrown => "ArrayGrown",
            Self::DegradedArray => "DegradedArray",
            Self::ArrayFailed => "ArrayFailed",
            Self::MismatchFound => "MismatchFound",
            Self::NodeLost => "NodeLost",
            Self::DiskWarning => "DiskWarning",
            Self::TestMessage => "TestMessage",
        })
    }

    /// Returns whether the event needs action by an administrator, and is therefore mailed.
    pub(super) const fn is_mailed(self) -> bool {
        match self {
            Self::Fail
            | Self::FailSpare
            | Self::DegradedArray
            | Self::ArrayFailed
            | Self::MismatchFound
            | Self::NodeLost
            | Self::DiskWarning
            | Self::DeviceDisappeared
            | Self::TestMessage => true,
            Self::RebuildStarted
            | Self::Rebuild(_)
            | Self::RebuildFinished
            | Self::ReshapeStarted
            | Self::Reshape(_)
            | Self::ReshapeFinished
            | Self::SpareActive
            | Self::ArrayGrown
            | Self::NewArray => false,
        }
    }
}
