//! Requests of fio's at random places of anything that can be read and written.

use std::fmt::{self, Write as _};

use super::scramble;
use crate::failure::Failure;
use crate::model::Note;
use crate::rig::{Room, Stack, Target};
use crate::tool::{Tool, fio};

/// Requests at random places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Requests {
    /// Share of requests that read; the others write.
    pub(super) read_percent: u8,
    /// Length of a request.
    pub(super) bytes: u32,
    /// Requests at a time.
    pub(super) depth: usize,
    /// After so many writes comes a flush.
    pub(super) writes_a_flush: Option<usize>,
}

impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.writes() { "write" } else { "read" };
        write!(f, "{what} {}K x{}", self.bytes >> 10, self.depth)
    }
}

impl Requests {
    /// Reads or writes, with nothing flushed.
    pub(super) const fn one_way(writes: bool, bytes: u32, depth: usize) -> Self {
        let read_percent = if writes { 0 } else { 100 };
        Self { read_percent, bytes, depth, writes_a_flush: None }
    }

    pub(super) const fn writes(&self) -> bool {
        self.read_percent == 0
    }

    /// The place of a request. Requests lie side by side and never overlap.
    pub(super) const fn offset(&self, number: u64, area_bytes: u64) -> u64 {
        let places = area_bytes / self.bytes as u64;
        scramble(number) % places * self.bytes as u64
    }

    /// Lines of a job file.
    fn lines(&self) -> String {
        let mut lines = match self.read_percent {
            100 => "rw=randread\n".to_owned(),
            0 => "rw=randwrite\n".to_owned(),
            percent => format!("rw=randrw\nrwmixread={percent}\n"),
        };
        let _ = writeln!(lines, "bs={}\niodepth={}", self.bytes, self.depth);
        if let Some(writes) = self.writes_a_flush {
            let _ = writeln!(lines, "fsync={writes}");
        }
        lines
    }
}

/// Returns the lines of a job file that name the target of fio's requests. fio has no engine for
/// vhost-user.
pub(super) fn target_lines(target: &Target) -> String {
    match target {
        Target::Nbd(uri) => format!("ioengine=nbd\nuri={uri}\n"),
        // fio takes colons in a name for the end of it.
        Target::Path(path) | Target::VhostUser(path) => {
            let name = path.display().to_string().replace(':', "\\:");
            format!("ioengine=libaio\ndirect=1\nfilename={name}\n")
        }
    }
}

/// Writes an area once, so that nothing has to be made room for later and no hole is read.
pub(super) fn fill(room: &Room, stack: &Stack, area_bytes: u64) -> Result<(), Failure> {
    let target = target_lines(&stack.top);
    let text = format!("[fill]\n{target}rw=write\nbs=1m\niodepth=8\nsize={area_bytes}\n");
    let mut note = Note { scratch: room.scratch.clone(), ..Note::default() };
    fio::run(&Tool::find("fio", "fio")?, &text, &mut note)
}

/// The job file of requests within an area, for so long. All latencies count from sending a
/// request.
pub(super) fn job_file(
    name: &str,
    target: &Target,
    requests: Requests,
    (area_bytes, run_ms): (u64, u64),
) -> String {
    format!(
        "[{name}]\n{}{}size={area_bytes}\ntime_based=1\nruntime={run_ms}ms\nnorandommap=1\n\
         lat_percentiles=1\n",
        target_lines(target),
        requests.lines()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fio_is_told_where_and_what() {
        let requests =
            Requests { read_percent: 70, bytes: 4096, depth: 32, writes_a_flush: Some(32) };
        let target = Target::Path("/a:b/c".into());
        let text = job_file("mix", &target, requests, (1 << 20, 250));
        let lines = "[mix]\nioengine=libaio\ndirect=1\nfilename=/a\\:b/c\nrw=randrw\nrwmixread=70\n\
                     bs=4096\niodepth=32\nfsync=32\nsize=1048576\ntime_based=1\nruntime=250ms\n";
        assert!(text.starts_with(lines), "{text}");
        let requests = Requests { read_percent: 0, writes_a_flush: None, ..requests };
        let target = Target::Nbd("nbd+unix:///?socket=/s".to_owned());
        let text = job_file("write", &target, requests, (1 << 20, 250));
        let lines = "[write]\nioengine=nbd\nuri=nbd+unix:///?socket=/s\nrw=randwrite\nbs=4096\n";
        assert!(text.starts_with(lines) && !text.contains("fsync"), "{text}");
    }
}
