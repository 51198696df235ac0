//! `members`: bonnie++ on XFS over a disk, two and four of them as RAID 0, on machines that let so
//! much through each disk and so much through all of them.

mod chapter;
mod class;
mod numbers;
mod sentences;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::class::{CLASSES, Class, KB, MEMBERS};
use super::{Plan, Wishes, kept, named};
use crate::failure::{About, Failure};
use crate::model::{Chapter, Comparison, Found, Group, Job, Note, Standing};
use crate::rig::process::{Process, until};
use crate::rig::{ArraySpec, FileSystemKind, Room, Stack, file_name};
use crate::tool::{Tool, bonnie, fio, typed};

/// bonnie++ as a whole, or what is left of it.
const BONNIE: &str = "bonnie++";
/// Its sequential part: while it rests afterwards, other cases begin.
const BEGIN: &str = "bonnie++ begins";
/// A file read again and again: from memory.
const WARM: &str = "warm read";
/// A file read once after the file system was mounted anew: from the members.
const COLD: &str = "cold read";
/// Name of both for fio.
const READS: &str = "reads";

/// Chunk of the author's array.
const CHUNK_BYTES: u64 = 256 << 10;
/// Read-ahead of the author, in sectors.
const READ_AHEAD: &str = "65536";
/// XFS itself needs so much at least.
const XFS_BYTES: u64 = 512 << 20;
/// Bytes that an array keeps of a member for itself.
const METADATA_BYTES: u64 = 16 << 20;
const MIB: u64 = 1 << 20;

/// The options of the comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MembersOptions {
    /// The file is as large as what the host lets through in so many milliseconds.
    pub write_ms: u64,
    /// The file that is read is as large as what a case lets through in so many, and is read from
    /// memory for so long.
    pub read_ms: u64,
    /// Characters one by one, and creating files, as the author ran it, too.
    pub whole: bool,
    /// Number of rounds.
    pub runs: u16,
}

/// Members on a machine.
#[derive(Clone, Copy, Debug, PartialEq)]
struct MembersCase {
    class: &'static Class,
    members: u16,
}

impl MembersCase {
    fn of(class: &'static Class) -> [Self; 3] {
        MEMBERS.map(|members| Self { class, members })
    }

    fn all() -> impl Iterator<Item = Self> {
        CLASSES.iter().flat_map(Self::of)
    }

    /// One member on the same machine.
    const fn one(self) -> Self {
        Self { members: 1, ..self }
    }
}

impl fmt::Display for MembersCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x{}", self.class.name, self.members)
    }
}

impl Plan for MembersOptions {
    const NAME: &'static str = "members";

    fn of(wishes: &Wishes) -> Self {
        let runs = wishes.runs();
        if wishes.quick {
            // bonnie++ gives no number for what is over within half a second.
            Self { write_ms: 540, read_ms: 150, whole: false, runs }
        } else {
            // How large his files were the author does not say; they fitted into memory.
            Self { write_ms: 15_000, read_ms: 5000, whole: true, runs }
        }
    }
}

impl Comparison for MembersOptions {
    kept!();

    fn groups(&self) -> Vec<Group> {
        let Self { write_ms, read_ms, whole, runs } = *self;
        let job = |name: &str, takes_ms| Job::new(name, Duration::from_millis(takes_ms));
        // Writing and rewriting, on average over what binds; three seconds of rest and one of
        // seeks; then 20 MiB one character at a time, twice, and 16384 files made and removed.
        let blocks_ms = write_ms * 3;
        let bonnie = if whole {
            vec![job(BONNIE, blocks_ms + 4000 + 60_000)]
        } else {
            vec![job(BEGIN, blocks_ms), job(BONNIE, 1300)]
        };
        let reads = [job(WARM, read_ms + 400), job(COLD, 2 * read_ms + 500)];
        let jobs = [bonnie.as_slice(), &reads].concat();
        let group = |class: &'static Class| Group {
            title: format!("members, {}", class.name),
            cases: MembersCase::of(class).map(|case| case.to_string()).into(),
            jobs: jobs.clone(),
            rounds: runs,
            set_up: Duration::from_millis(700),
        };
        CLASSES.iter().map(group).collect()
    }

    fn set_up(&self, case: &str, room: &Room) -> Result<Standing, Failure> {
        // What is missing is said before anything is set up.
        Tool::find("bonnie++", "bonnie++")?;
        let blockdev = Tool::find("blockdev", "util-linux")?;
        let MembersCase { class, members } = named(MembersCase::all(), case)?;
        let file_mib = class.file_mib(self.write_ms);
        let bound_bytes_s = (class.bound_kb_s(members) * KB) as u64;
        let reads_bytes = (bound_bytes_s * self.read_ms / 1000).next_multiple_of(MIB);
        let array_bytes = XFS_BYTES + 2 * (file_mib * MIB + reads_bytes);
        let member_bytes = array_bytes / u64::from(members) + METADATA_BYTES;
        let mut stack = Stack::new(room, case)
            .files(members.into(), member_bytes.next_multiple_of(MIB))?
            .limited(class.limits(file_mib))?;
        if members > 1 {
            let level = "0".to_owned();
            let chunk_bytes = Some(CHUNK_BYTES);
            stack = stack.array(ArraySpec { level, chunk_bytes, ..ArraySpec::default() })?;
        }
        let mut stack = stack.device()?;
        let mut note = Note::default();
        blockdev.run(["--setra", READ_AHEAD, &stack.top.word()], &mut note)?;
        stack.commands.append(&mut note.commands);
        let stack = stack.file_system(FileSystemKind::Xfs, "noatime")?;
        let mut jobs = Jobs {
            running: None,
            words: self.words(case, file_mib, &stack.top.word()),
            log: room.scratch.join(format!("{}.bonnie", file_name(case))),
            reads_bytes,
            warm_ms: self.read_ms,
        };
        Ok(Standing::on(stack, move |stack, job, note| jobs.run(stack, job, note)))
    }

    fn chapter(&self, found: &Found) -> Chapter {
        chapter::chapter(self, found)
    }
}

impl MembersOptions {
    /// Command line of the author, but for the size and the name of the file. Without `-q` bonnie++
    /// says how far it is.
    fn words(&self, name: &str, file_mib: u64, dir: &str) -> Vec<String> {
        let ram_mib = file_mib / 2;
        let mut words = ["-d", dir, "-m", name].map(str::to_owned).to_vec();
        let mut say = |more: &str| words.extend(more.split(' ').map(str::to_owned));
        say(&format!("-u root -s {file_mib} -r {ram_mib}"));
        if !self.whole {
            say("-f -n 0");
        }
        words
    }
}

/// Words on stderr when the sequential part is over.
const RESTS: &str = "Reading intelligently...done";
/// Time until a part of it is over.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Jobs on a case. A run of bonnie++ may be left alone while it rests: between its sequential part
/// and the seeks it sleeps for three seconds, in which another case can be measured.
struct Jobs {
    running: Option<Process>,
    words: Vec<String>,
    /// File of what bonnie++ says on stderr.
    log: PathBuf,
    reads_bytes: u64,
    warm_ms: u64,
}

impl Jobs {
    fn run(&mut self, stack: &mut Stack, job: &str, note: &mut Note) -> Result<(), Failure> {
        match job {
            WARM => {
                let time = format!("time_based\nruntime={}ms\n", self.warm_ms);
                self.read(&self.file(stack)?, &time, note)
            }
            COLD => {
                let file = self.file(stack)?;
                // Nothing of it is in memory any more.
                stack.remount()?;
                self.read(&file, "", note)
            }
            BEGIN => {
                let bonnie = self.bonnie()?;
                let rests = || fs::read_to_string(&self.log).is_ok_and(|said| said.contains(RESTS));
                // How it ended, if it has, is known later.
                until(PATIENCE, || rests() || bonnie.has_ended());
                self.running = Some(bonnie);
                Ok(())
            }
            _ => self.finish(note),
        }
    }

    /// The run of bonnie++ that rests, or a new one.
    fn bonnie(&mut self) -> Result<Process, Failure> {
        if let Some(running) = self.running.take() {
            return Ok(running);
        }
        let mut command = Tool::find("bonnie++", "bonnie++")?.command();
        command.args(&self.words);
        Process::start(command, self.log.clone()).about("bonnie++", "check that it can be run")
    }

    /// Waits until bonnie++ has ended, and notes what it said.
    fn finish(&mut self, note: &mut Note) -> Result<(), Failure> {
        let mut bonnie = self.bonnie()?;
        note.commands.push(typed("bonnie++", &self.words));
        let mut said = String::new();
        while let Ok(line) = bonnie.read_line(PATIENCE) {
            said.push_str(&line);
            said.push('\n');
        }
        let refused = |reason: String| Failure::refused("bonnie++", reason, "see what it works on");
        bonnie.finish(PATIENCE).map_err(refused)?;
        // It is of no use without the process.
        let _ = fs::remove_file(&self.log);
        bonnie::keep(&said, note)
    }

    /// The file that is read: written, unless it is there.
    fn file(&self, stack: &Stack) -> Result<PathBuf, Failure> {
        let file = stack.top.path().join("reads");
        let bytes = self.reads_bytes as usize;
        if file.metadata().is_ok_and(|data| data.len() == bytes as u64) {
            return Ok(file);
        }
        // Anything but zeroes, which might be kept as a hole.
        let content: Vec<u8> = (0..bytes).map(|at| (at % 251 + 1) as u8).collect();
        fs::write(&file, content).about(file.display(), "name another --dir")?;
        Ok(file)
    }

    fn read(&self, file: &std::path::Path, more: &str, note: &mut Note) -> Result<(), Failure> {
        let bytes = self.reads_bytes;
        let job = format!(
            "[{READS}]\nioengine=psync\nrw=read\nbs=8k\nfilename={}\nsize={bytes}\ninvalidate=0\n\
             {more}",
            file.display()
        );
        fio::run(&Tool::find("fio", "fio")?, &job, note)
    }
}
