//! Job files of somebody else's: where they write, and how long they take.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::published;
use crate::failure::Failure;

/// Least time that fio takes around a job.
const AROUND: Duration = Duration::from_millis(350);
/// Time of a job that does not say how long it takes.
const UNKNOWN: Duration = Duration::from_secs(30);
/// Options that name files.
const NAMES: [&str; 3] = ["filename", "filename_format", "opendir"];
/// Options that run programs, or bring in what was not looked at.
const PROGRAMS: [&str; 3] = ["exec_prerun", "exec_postrun", "include"];

/// A job file of fio's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFile {
    /// Name of the file.
    pub name: String,
    /// Content.
    pub text: String,
}

impl JobFile {
    /// Takes a job file that keeps to the directory it is given.
    pub fn new(name: &str, text: &str) -> Result<Self, Failure> {
        let refused = |reason: String, next: &'static str| Err(Failure::usage(name, reason, next));
        for (option, value) in text.lines().filter_map(option) {
            if PROGRAMS.contains(&option) {
                return refused(format!("{option} goes beyond what is measured"), "leave it out");
            }
            let leads_out = |file: &str| file.starts_with('/') || file.contains("..");
            if NAMES.contains(&option) && (value.contains('$') || value.split(':').any(leads_out)) {
                let reason = format!("'{option}={value}' leads out of the directory it is run in");
                return refused(reason, "name a file without its directory");
            }
        }
        if sections(text).next().is_none() {
            return refused("it has no jobs".to_owned(), "write one as fio(1) describes them");
        }
        Ok(Self { name: name.to_owned(), text: text.to_owned() })
    }

    /// Returns how long all of it takes, as far as it says.
    pub(super) fn takes(&self) -> Duration {
        let options = || self.text.lines().filter_map(option);
        let runtime = options().filter(|(name, _)| *name == "runtime");
        let runtime = runtime.filter_map(|(_, value)| duration(value)).max().unwrap_or(UNKNOWN);
        let jobs = u32::try_from(sections(&self.text).count()).unwrap_or(u32::MAX);
        (runtime + AROUND).saturating_mul(jobs)
    }
}

/// About how long the published job file takes, for a file of another size.
pub(super) fn takes(size_bytes: u64, loops: u32, runtime_ms: u64) -> Duration {
    let bytes = size_bytes as f64 * f64::from(loops);
    let runtime = Duration::from_millis(runtime_ms);
    let job = |(_, block, depth, processes, ..): (&str, &str, u16, u16, &str, bool)| {
        // Bytes a second of a machine that is neither old nor large.
        let rate = match (block, depth) {
            ("4k", 1) => 60e6,
            ("4k", _) => 300e6,
            _ => 2e9,
        };
        Duration::from_secs_f64(bytes * f64::from(processes) / rate).min(runtime) + AROUND
    };
    published::JOBS.map(job).into_iter().sum()
}

/// The same job file, for files in a directory. Its own words for that
/// no longer count.
pub(super) fn in_directory(text: &str, directory: &str) -> String {
    let elsewhere = |line: &str| option(line).is_some_and(|(name, _)| name == "directory");
    let rest: Vec<&str> = text.lines().filter(|line| !elsewhere(line)).collect();
    format!("[global]\ndirectory={directory}\n{}\n", rest.join("\n"))
}

/// An option and its value.
fn option(line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    if line.starts_with(['#', ';', '[']) || line.is_empty() {
        return None;
    }
    let (name, value) = line.split_once(['=', ' ']).unwrap_or((line, ""));
    Some((name.trim(), value.trim_start_matches(['=', ' ']).trim()))
}

fn sections(text: &str) -> impl Iterator<Item = &str> {
    let titles = text.lines().map(str::trim).filter(|line| line.starts_with('['));
    titles.filter(|title| !title.eq_ignore_ascii_case("[global]"))
}

/// Reads a time as fio does: seconds without a unit.
fn duration(text: &str) -> Option<Duration> {
    let text = text.to_ascii_lowercase();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit_s = match &text[digits.len()..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        "d" => 86400.0,
        _ => return None,
    };
    let seconds = digits.parse::<f64>().ok()? * unit_s;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIXED: &str = "[global]\ndirectory = /data\nruntime=2m\n\n[oltp]\nrw=randrw\n\
                         filename=a:b\n[log]\nruntime=500ms\nrw=write\n";

    #[test]
    fn a_job_file_stays_where_it_is_put() {
        let own = JobFile::new("oltp", MIXED).expect("a job file");
        let moved = in_directory(&own.text, "/srv/m");
        assert!(moved.starts_with("[global]\ndirectory=/srv/m\n[global]\nruntime=2m\n"));
        assert!(!moved.contains("/data"));
        for line in [
            "filename=/dev/sda",
            " filename = x:/dev/sdb",
            "filename=../x",
            "filename=${HOME}/x",
            "opendir=/etc",
            "filename_format=/dev/$jobnum",
            "exec_prerun=reboot",
            "include other.fio",
        ] {
            let refused = JobFile::new("x", &format!("{MIXED}{line}\n")).expect_err(line);
            assert_eq!(refused.ends, crate::Ends::Usage, "{line}");
        }
        assert!(JobFile::new("x", "[global]\nrw=read\n").is_err());
        assert!(JobFile::new("x", &format!("{MIXED}# filename=/dev/sda\n")).is_ok());
    }

    #[test]
    fn how_long_it_takes_is_known_as_far_as_it_says() {
        let own = JobFile::new("oltp", MIXED).expect("a job file");
        assert_eq!(own.takes(), (Duration::from_secs(120) + AROUND) * 2);
        assert_eq!(duration("1.5s"), Some(Duration::from_millis(1500)));
        for text in ["", "s", "-1", "1x", "nan", "1e400"] {
            assert_eq!(duration(text), None, "{text}");
        }
        let published = takes(published::SIZE_BYTES, published::LOOPS, published::RUNTIME_MS);
        assert!((120..180).contains(&published.as_secs()), "{published:?}");
        assert!(takes(24 << 20, 1000, 150) < Duration::from_secs(5));
    }
}
