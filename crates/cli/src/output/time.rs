//! Times as mdadm prints them: ctime(3) in local time.

use chrono::{DateTime, Datelike, Local, SecondsFormat, Utc};

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

/// `28 Nov 01:09` in local time; `28 Nov 2025 01:09` of another year.
pub(crate) fn recent(unix_s: u64) -> String {
    let time = utc(unix_s).with_timezone(&Local);
    let this_year = time.year() == Local::now().year();
    time.format(if this_year { "%-d %b %H:%M" } else { "%-d %b %Y %H:%M" }).to_string()
}

/// Returns the time as RFC 3339 has it, of universal time.
pub(crate) fn rfc_3339(unix_s: u64) -> String {
    utc(unix_s).to_rfc3339_opts(SecondsFormat::Secs, true)
}

fn utc(unix_s: u64) -> DateTime<Utc> {
    let seconds = i64::try_from(unix_s).ok();
    seconds.and_then(|s| DateTime::from_timestamp(s, 0)).unwrap_or(DateTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_of_another_year_has_its_year() {
        let now = u64::try_from(Utc::now().timestamp()).unwrap();
        assert_eq!(recent(now).matches(' ').count(), 2);
        let then = recent(1_000_000_000);
        assert!(then.contains("Sep 2001"), "{then}");
        assert_eq!(rfc_3339(1_000_000_000), "2001-09-09T01:46:40Z");
    }
}
