//! Layers on each other, from files of members up to what is measured: set up one by one, and taken
//! down from the uppermost.

use std::any::Any;
use std::path::{Path, PathBuf};

use super::array::{Array, ArraySpec};
use super::device::{FileSystem, FileSystemKind, LoopDevice, start_md};
use super::leftovers::Guard;
use super::limit::{Limits, limited};
use super::room::{Room, file_name};
use super::server::{Program, Server, Target};
use crate::failure::Failure;

/// The layers of a case. Each new one lies on what is [`top`](Self::top); arrays lie on
/// [`members`](Self::members). Each step consumes the stack, so a failed step takes it down.
pub struct Stack {
    /// Unique among those that stand at the same time.
    pub name: String,
    /// Files or devices that an array is made of, in the order of the roles.
    pub members: Vec<PathBuf>,
    /// The uppermost: what is measured.
    pub top: Target,
    /// The process whose CPU time counts.
    pub server: Option<u32>,
    /// Commands that set it up, as they would be typed.
    pub commands: Vec<String>,
    room: Room,
    layers: Vec<Box<dyn Any>>,
    /// Layers that the members are made of.
    below: usize,
}

impl Stack {
    /// Nothing yet.
    pub fn new(room: &Room, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            members: Vec::new(),
            top: Target::Path(PathBuf::new()),
            server: None,
            commands: Vec::new(),
            room: room.clone(),
            layers: Vec::new(),
            below: 0,
        }
    }

    fn with(mut self, layer: impl Any, top: Target) -> Self {
        self.layers.push(Box::new(layer));
        self.top = top;
        self
    }

    fn with_members(mut self, layer: impl Any, members: Vec<PathBuf>) -> Self {
        let first = members.first().cloned().unwrap_or_default();
        self.members = members;
        self.below = self.layers.len() + 1;
        self.with(layer, Target::Path(first))
    }

    /// Files for so many members of so many bytes, or the members that were named.
    pub fn files(self, count: usize, bytes: u64) -> Result<Self, Failure> {
        let files = self.room.member_files(&self.name, count, bytes)?;
        let paths = files.paths.clone();
        Ok(self.with_members(files, paths))
    }

    /// A limit for what goes through the members.
    pub fn limited(self, limits: Limits) -> Result<Self, Failure> {
        let (paths, guards) = limited(&self.room, &self.name, &self.members, limits)?;
        Ok(self.with_members(guards, paths))
    }

    /// A loop device over each member, with these words for `losetup`.
    pub fn loops(self, words: &[&str]) -> Result<Self, Failure> {
        let over = |file: &PathBuf| LoopDevice::with(file, words);
        let devices = self.members.iter().map(over).collect::<Result<Vec<_>, Failure>>()?;
        let paths = devices.iter().map(|one| one.device.clone()).collect();
        Ok(self.with_members(devices, paths))
    }

    /// An array of the members, or of those that the specification has. On top is its file, or the
    /// address of its other export.
    pub fn array(mut self, spec: ArraySpec) -> Result<Self, Failure> {
        let members = if spec.members.is_empty() { self.members.clone() } else { spec.members };
        let array = Array::start(&self.room, &self.name, &ArraySpec { members, ..spec })?;
        self.server = Some(array.pid());
        self.commands.extend_from_slice(array.commands());
        let top = array.target();
        Ok(self.with(array, top))
    }

    /// An array of the kernel's over the members.
    pub fn md(self, level: &str, layout: Option<&str>) -> Result<Self, Failure> {
        let (device, guard) = start_md(level, layout, &self.members)?;
        Ok(self.with(guard, Target::Path(device)))
    }

    /// A loop device over the top, past the page cache below it.
    pub fn device(self) -> Result<Self, Failure> {
        let file = self.top.path();
        self.device_over(&file, LoopDevice::DIRECT)
    }

    /// A loop device over a file, with these words for `losetup`.
    pub fn device_over(self, file: &Path, words: &[&str]) -> Result<Self, Failure> {
        let device = LoopDevice::with(file, words)?;
        let path = device.device.clone();
        Ok(self.with(device, Target::Path(path)))
    }

    /// A file system on the top, mounted with these options; its directory is on top then.
    pub fn file_system(self, kind: FileSystemKind, options: &str) -> Result<Self, Failure> {
        let made = FileSystem::make(&self.room, kind, &self.top.path(), options)?;
        let dir = made.dir.clone();
        Ok(self.with(made, Target::Path(dir)))
    }

    /// The file system that is on the top already, mounted under a name.
    pub fn mounted(self, name: &str, options: &str) -> Result<Self, Failure> {
        let mounted = FileSystem::mount(&self.room, &self.top.path(), name, options)?;
        let dir = mounted.dir.clone();
        Ok(self.with(mounted, Target::Path(dir)))
    }

    /// A directory of its own.
    pub fn directory(self) -> Result<Self, Failure> {
        let path = self.room.scratch.join(file_name(&self.name));
        Ok(self.with(Guard::directory(&path)?, Target::Path(path)))
    }

    /// A program that serves what is on top.
    pub fn served(mut self, program: Program) -> Result<Self, Failure> {
        let server = Server::start(&self.room, &self.name, program, &self.top.word())?;
        if program != Program::NbdFuse {
            self.server = Some(server.pid());
        }
        let target = server.target();
        Ok(self.with(server, target))
    }

    /// Takes down all that lies on the members.
    #[must_use]
    pub fn down_to_members(mut self) -> Self {
        while self.layers.len() > self.below {
            self.layers.pop();
        }
        self.server = None;
        self
    }

    /// The array in it.
    pub fn running_array(&self) -> Option<&Array> {
        self.layers.iter().find_map(|layer| layer.downcast_ref())
    }

    /// The loop device below the file system.
    pub fn upper_device(&self) -> Option<&Path> {
        let mut devices = self.layers.iter().rev().filter_map(|layer| layer.downcast_ref());
        devices.next().map(|device: &LoopDevice| device.device.as_path())
    }

    /// Unmounts the file system on top and mounts it: nothing of it is in the page cache any more.
    pub fn remount(&mut self) -> Result<(), Failure> {
        let mounted = self.layers.last_mut().and_then(|layer| layer.downcast_mut::<FileSystem>());
        mounted.map_or(Ok(()), FileSystem::remount)
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        while self.layers.pop().is_some() {}
    }
}
