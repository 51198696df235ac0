//! What is set up for a case, and how the job file is run on it.

use std::path::{Path, PathBuf};

use super::case::{Built, Cache, Case};
use super::job_file::in_directory;
use super::level::Level;
use super::{Options, published};
use crate::failure::{Ends, Failure};
use crate::model::{Note, Standing};
use crate::rig::leftovers::{Guard, Leftover};
use crate::rig::{
    Array, ArraySpec, FileSystem, Kind, LoopDevice, Md, MdSpec, MemberFiles, NbdFuse, Nbdkit, Room,
    drop_caches, file_name,
};
use crate::tool::{Tool, fio};

/// What a file system and the superblocks of members need on top.
const OVERHEAD_BYTES: u64 = 32 << 20;
/// What btrfs needs on top on each device: it takes space in large pieces.
const BTRFS_OVERHEAD_BYTES: u64 = 384 << 20;
const MEMBER_OVERHEAD_BYTES: u64 = 16 << 20;

/// A case that is set up.
pub(super) struct Stands {
    fio: Tool,
    job_file: String,
    cache: Cache,
    /// It is somebody else's fault if it fails: the others go on.
    forgiven: bool,
    server: Option<u32>,
    /// What was done to set it up.
    commands: Vec<String>,
    directory: PathBuf,
    /// Goes in this order.
    _parts: Parts,
}

/// What it consists of: above before below.
#[derive(Default)]
struct Parts {
    file_system: Option<FileSystem>,
    directory: Option<Guard>,
    device: Option<LoopDevice>,
    nbdfuse: Option<NbdFuse>,
    nbdkit: Option<Nbdkit>,
    array: Option<Array>,
    md: Option<Md>,
    loops: Vec<LoopDevice>,
    members: Option<MemberFiles>,
}

/// Sets a case up.
pub(super) fn set_up(options: &Options, case: Case, room: &Room) -> Result<Stands, Failure> {
    let forgiven = case.built.rival().is_some();
    let fio = Tool::find("fio", "fio")?;
    let mut setting = Setting { options, case, room, parts: Parts::default(), server: None };
    let directory = setting.build().map_err(|failure| forgive(failure, forgiven))?;
    let Setting { parts, server, .. } = setting;
    let job_file = match &options.job {
        Some(job) => job.text.clone(),
        None => published::job_file(options.size_bytes, options.loops, options.runtime_ms),
    };
    Ok(Stands {
        fio,
        job_file: in_directory(&job_file, &directory.display().to_string()),
        cache: case.cache,
        forgiven,
        server,
        commands: parts.array.iter().flat_map(|array| array.commands().to_vec()).collect(),
        directory,
        _parts: parts,
    })
}

fn forgive(failure: Failure, forgiven: bool) -> Failure {
    let ends = if forgiven { Ends::Part } else { failure.ends };
    Failure { ends, ..failure }
}

impl Standing for Stands {
    fn run(&mut self, _job: &str, note: &mut Note) -> Result<(), Failure> {
        note.commands.append(&mut self.commands);
        // What others have left to be written would be written meanwhile.
        match self.cache {
            Cache::Cold => drop_caches()?,
            Cache::Warm => rustix::fs::sync(),
        }
        fio::run(&self.fio, &self.job_file, note).map_err(|failure| {
            let failure = forgive(failure, self.forgiven);
            Failure { object: format!("fio in {}", self.directory.display()), ..failure }
        })
    }

    fn server(&self) -> Option<u32> {
        self.server
    }
}

struct Setting<'a> {
    options: &'a Options,
    case: Case,
    room: &'a Room,
    parts: Parts,
    server: Option<u32>,
}

impl Setting<'_> {
    /// Builds all of it: the directory in which files are written.
    fn build(&mut self) -> Result<PathBuf, Failure> {
        match self.case.built {
            Built::Bare => self.bare(),
            Built::Plain => {
                let file = self.members(1, self.data_bytes())?.remove(0);
                let device = self.loop_device(&file)?;
                self.ext4(&device)
            }
            Built::Braid(level) => self.braid(level),
            Built::Md(level) => self.md(level),
            Built::Btrfs(level) => self.btrfs(level),
            Built::Nbdkit => self.nbdkit(),
        }
    }

    /// Of the file system that everything is measured on.
    fn data_bytes(&self) -> u64 {
        let size = self.options.size_bytes;
        (size + size / 8 + OVERHEAD_BYTES).next_multiple_of(1 << 20)
    }

    fn member_bytes(&self, level: Level) -> u64 {
        let members = self.options.members(level);
        let stored = self.data_bytes() as f64 * level.stored(members);
        let share = (stored / f64::from(members)) as u64 + MEMBER_OVERHEAD_BYTES;
        share.next_multiple_of(1 << 20)
    }

    fn members(&mut self, count: u16, bytes: u64) -> Result<Vec<PathBuf>, Failure> {
        let files = self.room.member_files(&self.case.name(), usize::from(count), bytes)?;
        let paths = files.paths.clone();
        self.parts.members = Some(files);
        Ok(paths)
    }

    /// A block device over a member, with the page cache or without.
    fn loop_device(&mut self, file: &Path) -> Result<PathBuf, Failure> {
        let made = match self.case.cache {
            Cache::Cold => LoopDevice::over(self.room, file)?,
            Cache::Warm => LoopDevice::with(self.room, file, &["--direct-io=off"])?,
        };
        let device = made.device.clone();
        self.parts.loops.push(made);
        Ok(device)
    }

    fn loop_devices(&mut self, level: Level, bytes: u64) -> Result<Vec<PathBuf>, Failure> {
        let files = self.members(self.options.members(level), bytes)?;
        files.iter().map(|file| self.loop_device(file)).collect()
    }

    fn ext4(&mut self, device: &Path) -> Result<PathBuf, Failure> {
        let made = FileSystem::make(self.room, Kind::Ext4, device, "")?;
        Ok(self.parts.file_system.insert(made).dir.clone())
    }

    /// A block device over something that is a file over FUSE, and a file system on it.
    fn ext4_over_file(&mut self, file: &Path) -> Result<PathBuf, Failure> {
        let made = LoopDevice::over(self.room, file)?;
        let device = self.parts.device.insert(made).device.clone();
        self.ext4(&device)
    }

    fn bare(&mut self) -> Result<PathBuf, Failure> {
        let directory = self.room.scratch.join(file_name(&self.case.name()));
        self.parts.directory = Some(Guard::new(Leftover::Directory(directory.clone())));
        std::fs::create_dir_all(&directory)
            .map_err(|error| Failure::system(directory.display(), &error, "name another --dir"))?;
        Ok(directory)
    }

    fn braid(&mut self, level: Level) -> Result<PathBuf, Failure> {
        let bytes = self.member_bytes(level);
        // Braid opens files past the page cache; over it they are devices that go through it.
        let members = match self.case.cache {
            Cache::Cold => self.members(self.options.members(level), bytes)?,
            Cache::Warm => self.loop_devices(level, bytes)?,
        };
        let (word, layout) = level.words();
        let spec = ArraySpec {
            name: self.case.name(),
            level: word.to_owned(),
            layout: layout.map(str::to_owned),
            members,
            ..ArraySpec::default()
        };
        let array = self.parts.array.insert(Array::start(self.room, &spec)?);
        self.server = Some(array.pid());
        let file = array.file();
        self.ext4_over_file(&file)
    }

    fn md(&mut self, level: Level) -> Result<PathBuf, Failure> {
        Md::exists()?;
        let members = self.loop_devices(level, self.member_bytes(level))?;
        let (word, layout) = level.words();
        let md = Md::start(&MdSpec { level: word, layout, members: &members })?;
        let device = self.parts.md.insert(md).device.clone();
        self.ext4(&device)
    }

    fn btrfs(&mut self, level: Level) -> Result<PathBuf, Failure> {
        let mkfs = Tool::find("mkfs.btrfs", "btrfs-progs")?;
        let bytes = self.member_bytes(level) + BTRFS_OVERHEAD_BYTES;
        let devices = self.loop_devices(level, bytes)?;
        let profile = level.profile().unwrap_or("single");
        let names: Vec<String> = devices.iter().map(|path| path.display().to_string()).collect();
        let mut words = vec!["--quiet", "--force", "--data", profile, "--metadata", profile];
        words.extend(names.iter().map(String::as_str));
        mkfs.output(&words)?;
        let others = names.iter().skip(1).map(|name| format!("device={name}"));
        // Copies on write would be measured instead of the profile.
        let options: Vec<String> = std::iter::once("nodatacow".to_owned()).chain(others).collect();
        let name = file_name(&self.case.name());
        let made = FileSystem::mount(self.room, &devices[0], &name, &options.join(","))?;
        Ok(self.parts.file_system.insert(made).dir.clone())
    }

    fn nbdkit(&mut self) -> Result<PathBuf, Failure> {
        let name = self.case.name();
        let file = self.members(1, self.data_bytes())?.remove(0);
        let served = self.parts.nbdkit.insert(Nbdkit::serve(self.room, &name, &file)?);
        self.server = Some(served.pid());
        let mounted = NbdFuse::mount(self.room, &name, served)?;
        let file = self.parts.nbdfuse.insert(mounted).file().to_owned();
        self.ext4_over_file(&file)
    }
}
