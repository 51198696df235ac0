//! XFS over limited members, and what is run on it.

use std::fs;
use std::path::PathBuf;

use super::bonnie::Bonnie;
use super::class::KB;
use super::{BEGIN, COLD, Case, Options, READS, WARM};
use crate::failure::Failure;
use crate::model::{Note, Standing};
use crate::rig::{
    Array, ArraySpec, FileSystem, Kind, LimitedDisks, LoopDevice, MemberFiles, Room, file_name,
};
use crate::tool::{Tool, fio};

/// As its author made the array.
const CHUNK_BYTES: u64 = 256 << 10;
/// In sectors, as its author set it.
const READ_AHEAD: &str = "65536";
/// XFS itself needs so much at least.
const XFS_BYTES: u64 = 512 << 20;
/// What an array keeps of a member for itself.
const METADATA_BYTES: u64 = 16 << 20;
const MIB: u64 = 1 << 20;

/// A case that stands. Taken down from above.
#[derive(Debug)]
pub(super) struct Stand {
    running: Option<Bonnie>,
    words: Vec<String>,
    log: PathBuf,
    reads_bytes: u64,
    warm_ms: u64,
    commands: Vec<String>,
    fs: FileSystem,
    _device: LoopDevice,
    array: Option<Array>,
    _disks: LimitedDisks,
    _files: MemberFiles,
}

impl Stand {
    pub(super) fn set_up(options: &Options, case: Case, room: &Room) -> Result<Self, Failure> {
        // What is missing is said before anything is set up.
        Tool::find("bonnie++", "bonnie++")?;
        let blockdev = Tool::find("blockdev", "util-linux")?;
        let name = case.name();
        let file_mib = case.class.file_mib(options.write_ms);
        let bound_bytes_s = (case.class.bound_kb_s(case.members) * KB) as u64;
        let reads_bytes = (bound_bytes_s * options.read_ms / 1000).next_multiple_of(MIB);
        let array_bytes = XFS_BYTES + 2 * (file_mib * MIB + reads_bytes);
        let member_bytes = array_bytes / u64::from(case.members) + METADATA_BYTES;
        let member_bytes = member_bytes.next_multiple_of(MIB);
        let files = room.member_files(&name, case.members.into(), member_bytes)?;
        let disks = LimitedDisks::over(room, &name, &files.paths, case.class.limits(file_mib))?;
        let array = if case.members == 1 { None } else { Some(array(room, &name, &disks)?) };
        let file = array.as_ref().map_or_else(|| disks.paths[0].clone(), Array::file);
        let device = LoopDevice::over(room, &file)?;
        let mut note = Note::default();
        let block = device.device.display().to_string();
        blockdev.run(["--setra", READ_AHEAD, &block], &mut note)?;
        let fs = FileSystem::make(room, Kind::Xfs, &device.device, "noatime")?;
        let made = array.as_ref().map_or(&[] as &[String], Array::commands);
        Ok(Self {
            running: None,
            words: words(options, &name, file_mib, &fs),
            log: room.scratch.join(format!("{}.bonnie", file_name(&name))),
            reads_bytes,
            warm_ms: options.read_ms,
            commands: [made, &note.commands].concat(),
            fs,
            _device: device,
            array,
            _disks: disks,
            _files: files,
        })
    }

    fn bonnie(&mut self) -> Result<Bonnie, Failure> {
        match self.running.take() {
            Some(running) => Ok(running),
            None => Bonnie::start(&self.words, self.log.clone()),
        }
    }

    /// The file that is read.
    fn file(&self) -> PathBuf {
        self.fs.dir.join("reads")
    }

    /// Writes the file, unless it is there.
    fn lay(&self) -> Result<(), Failure> {
        let bytes = self.reads_bytes as usize;
        if self.file().metadata().is_ok_and(|data| data.len() == bytes as u64) {
            return Ok(());
        }
        let system = |error| Failure::system(self.file().display(), &error, "name another --dir");
        // Anything but zeroes, which might be kept as a hole.
        let content: Vec<u8> = (0..bytes).map(|at| (at % 251 + 1) as u8).collect();
        fs::write(self.file(), content).map_err(system)
    }

    fn read(&self, more: &str, note: &mut Note) -> Result<(), Failure> {
        let file = self.file();
        let bytes = self.reads_bytes;
        let job = format!(
            "[{READS}]\nioengine=psync\nrw=read\nbs=8k\nfilename={}\nsize={bytes}\ninvalidate=0\n\
             {more}",
            file.display()
        );
        fio::run(&Tool::find("fio", "fio")?, &job, note)
    }
}

/// As its author ran it, but for what says how large the file is and what it is called. Without
/// `-q` it says how far it is.
fn words(options: &Options, name: &str, file_mib: u64, fs: &FileSystem) -> Vec<String> {
    let dir = fs.dir.display().to_string();
    let ram_mib = file_mib / 2;
    let mut words = vec!["-d".to_owned(), dir, "-m".to_owned(), name.to_owned()];
    let mut say = |more: &str| words.extend(more.split(' ').map(str::to_owned));
    say(&format!("-u root -s {file_mib} -r {ram_mib}"));
    if !options.whole {
        say("-f -n 0");
    }
    words
}

fn array(room: &Room, name: &str, disks: &LimitedDisks) -> Result<Array, Failure> {
    let spec = ArraySpec {
        name: name.to_owned(),
        level: "0".to_owned(),
        chunk_bytes: Some(CHUNK_BYTES),
        members: disks.paths.clone(),
        ..ArraySpec::default()
    };
    Array::start(room, &spec)
}

impl Standing for Stand {
    fn run(&mut self, job: &str, note: &mut Note) -> Result<(), Failure> {
        match job {
            WARM => {
                self.lay()?;
                let time = format!("time_based\nruntime={}ms\n", self.warm_ms);
                self.read(&time, note)
            }
            COLD => {
                self.lay()?;
                // Nothing of it is in memory any more.
                self.fs.remount()?;
                self.read("", note)
            }
            BEGIN => {
                let mut running = self.bonnie()?;
                running.wait_until_it_rests();
                self.running = Some(running);
                Ok(())
            }
            _ => {
                note.commands.extend(self.commands.iter().cloned());
                self.bonnie()?.finish(note)
            }
        }
    }

    fn server(&self) -> Option<u32> {
        self.array.as_ref().map(Array::pid)
    }
}
