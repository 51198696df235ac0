//! Times as mdadm prints them: ctime(3) in local time.

use chrono::{DateTime, Local};

/// Returns the seconds since 1970 of a superblock's time. Its upper 24 bits are microseconds.
pub(crate) const fn seconds(stored: u64) -> u64 {
    stored & 0xff_ffff_ffff
}

/// `Sat Nov 21 19:27:23 2026`.
pub(crate) fn ctime(stored: u64) -> String {
    i64::try_from(seconds(stored)).ok().and_then(|s| DateTime::from_timestamp(s, 0)).map_or_else(
        || seconds(stored).to_string(),
        |t| t.with_timezone(&Local).format("%a %b %e %H:%M:%S %Y").to_string(),
    )
}
