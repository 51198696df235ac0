//! Requests of fio's at random places of anything that can be read and written, for so long: what
//! is served, what is sent to it, and how that is run.

use std::fmt::Write as _;
use std::path::PathBuf;

use crate::failure::{Ends, Failure};
use crate::model::{Note, Standing};
use crate::rig::{Array, LoopDevice, MemberFiles, Nbdkit, Room, StorageDaemon};
use crate::tool::{Tool, fio};

/// Where fio sends requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// To a file or block device, past the page cache.
    Path(PathBuf),
    /// To the server of NBD at this address.
    Nbd(String),
    /// Over this socket. Not by fio, which has no engine for that.
    VhostUser(PathBuf),
}

/// What it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Requests {
    /// Of 100 requests so many read, the others write.
    pub(super) read_percent: u8,
    /// Length of a request.
    pub(super) bytes: u64,
    /// Requests at a time.
    pub(super) depth: usize,
    /// After so many writes comes a flush.
    pub(super) writes_a_flush: Option<usize>,
}

/// Something to be measured: where it is, who serves it, and what lies below.
pub(super) struct Served {
    pub(super) target: Target,
    /// The process whose CPU time counts.
    pub(super) server: Option<u32>,
    /// How it was set up.
    pub(super) commands: Vec<String>,
    pub(super) under: Under,
}

/// What lies below, in the order in which it is taken down.
#[derive(Default)]
pub(super) struct Under {
    pub(super) nbdkit: Option<Nbdkit>,
    pub(super) daemon: Option<StorageDaemon>,
    pub(super) device: Option<LoopDevice>,
    pub(super) array: Option<Array>,
    pub(super) files: Option<MemberFiles>,
}

impl Target {
    /// What the job file says of it.
    fn lines(&self) -> String {
        match self {
            // fio takes colons in a name for the end of it.
            Self::Path(path) => {
                let name = path.display().to_string().replace(':', "\\:");
                format!("ioengine=libaio\ndirect=1\nfilename={name}\n")
            }
            Self::Nbd(uri) => format!("ioengine=nbd\nuri={uri}\n"),
            Self::VhostUser(_) => unreachable!("fio has no engine for vhost-user"),
        }
    }
}

impl Requests {
    /// As `rw` of fio's takes it.
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

/// Something that is served, with what fio is told of it.
pub(super) struct Stands {
    fio: Tool,
    served: Served,
    area_bytes: u64,
    run_ms: u64,
    /// Names and what they stand for.
    jobs: Vec<(String, Requests)>,
    /// It is somebody else's fault if it fails: the others go on.
    forgiven: bool,
}

impl Stands {
    /// Writes the area once, so that nothing has to be made room for later and no hole is read.
    pub(super) fn filled(
        room: &Room,
        served: Served,
        area_bytes: u64,
        run_ms: u64,
        jobs: Vec<(String, Requests)>,
    ) -> Result<Self, Failure> {
        let fio = Tool::find("fio", "fio")?;
        let text = format!(
            "[fill]\n{}rw=write\nbs=1m\niodepth=8\nsize={area_bytes}\n",
            served.target.lines()
        );
        let mut note = Note { scratch: room.scratch.clone(), ..Note::default() };
        fio::run(&fio, &text, &mut note)?;
        Ok(Self { fio, served, area_bytes, run_ms, jobs, forgiven: false })
    }

    /// The array that is served, if it is one.
    pub(super) const fn array(&self) -> Option<&Array> {
        self.served.under.array.as_ref()
    }

    /// What goes wrong with it leaves a gap.
    pub(super) fn forgiven(self) -> Self {
        Self { forgiven: true, ..self }
    }
}

/// What goes wrong with somebody else's program leaves a gap.
pub(super) fn forgive(failure: Failure) -> Failure {
    Failure { ends: Ends::Part, ..failure }
}

/// A job of so long, all of whose latencies count from sending a request.
fn job_file(name: &str, target: &Target, requests: &Requests, area: u64, run_ms: u64) -> String {
    format!(
        "[{name}]\n{}{}size={area}\ntime_based=1\nruntime={run_ms}ms\nnorandommap=1\n\
         lat_percentiles=1\n",
        target.lines(),
        requests.lines()
    )
}

impl Standing for Stands {
    fn run(&mut self, job: &str, note: &mut Note) -> Result<(), Failure> {
        let Some((name, requests)) = self.jobs.iter().find(|(name, _)| name == job) else {
            return Err(Failure::usage(job, "no job has this name", "begin the report anew"));
        };
        note.commands.append(&mut self.served.commands);
        let text = job_file(name, &self.served.target, requests, self.area_bytes, self.run_ms);
        let run = fio::run(&self.fio, &text, note);
        if self.forgiven { run.map_err(forgive) } else { run }
    }

    fn server(&self) -> Option<u32> {
        self.served.server
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fio_is_told_where_and_what() {
        let requests =
            Requests { read_percent: 70, bytes: 4096, depth: 32, writes_a_flush: Some(32) };
        let target = Target::Path("/a:b/c".into());
        let text = job_file("mix", &target, &requests, 1 << 20, 250);
        let lines = "[mix]\nioengine=libaio\ndirect=1\nfilename=/a\\:b/c\nrw=randrw\nrwmixread=70\n\
                     bs=4096\niodepth=32\nfsync=32\nsize=1048576\ntime_based=1\nruntime=250ms\n";
        assert!(text.starts_with(lines), "{text}");
        let requests = Requests { read_percent: 0, writes_a_flush: None, ..requests };
        let target = Target::Nbd("nbd+unix:///?socket=/s".to_owned());
        let text = job_file("write", &target, &requests, 1 << 20, 250);
        let lines = "[write]\nioengine=nbd\nuri=nbd+unix:///?socket=/s\nrw=randwrite\nbs=4096\n";
        assert!(text.starts_with(lines) && !text.contains("fsync"), "{text}");
    }
}
