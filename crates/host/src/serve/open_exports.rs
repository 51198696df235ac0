//! The exports of an array: opened one after the other, before the engine runs or while it does,
//! and taken away one by one, or all at the end.

use std::io;
use std::path::{Path, PathBuf};

use braid_array::refusal::{Invocation, Next, Refusal};

use super::check::{ExportedArray, extent_beside, second_device};
use super::contents::{self, ServedPart};
use super::listening::{Enter, listen_on, not_there};
use super::part::Extent;
use super::sockets::{SocketDisk, Sockets};
use super::{ExportPlace, ExportSpec, Facts};
use crate::control::{Shown, SocketFile};
use crate::engine::Engine;
use crate::engine::array_size::ArraySize;
use crate::engine::exports::ExportQueue;
use crate::engine::scattered::ScatteredRanges;
use crate::export::nbd::Device;
use crate::export::{fuse, ublk, vhost_user};
use crate::handover::{self, Handover};
use crate::system::refused_by_system;
use crate::token::ExportId;
use crate::users::{self, User};

/// Suffix after the array's name in the name of the directory of its parts.
const PARTS: &str = ".parts";

/// An export that stands.
#[derive(Debug)]
struct OpenExport {
    spec: ExportSpec,
    /// Place with chosen values: a port, a number.
    place: ExportPlace,
    stand: Stand,
}

/// Part of an export outside the engine, and its place in there.
#[derive(Debug)]
enum Stand {
    /// A disk for NBD clients.
    Disk(SocketDisk),
    /// The socket of a guest.
    Guest { id: ExportId, file: Option<SocketFile> },
    /// A mount, until it is unmounted.
    Mount { number: usize, mount: Option<fuse::Mount> },
    /// A block device of the kernel's.
    Device { id: ExportId, device: Box<ublk::UblkDevice> },
}

/// The exports of an array.
#[derive(Debug)]
pub(super) struct OpenExports {
    name: String,
    run_dir: PathBuf,
    facts: Facts,
    size: ArraySize,
    /// Number of mounts for which there is memory.
    most_mounts: usize,
    open: Vec<OpenExport>,
    shown: Shown,
    sockets: Sockets,
    /// Parts on the array, once they were searched for.
    parts: Option<Vec<ServedPart>>,
    /// Addresses of parts in several pieces.
    scattered: ScatteredRanges,
    /// Mount table, from the first mount on.
    mount_table: Option<fuse::MountTable>,
    /// The engine runs.
    started: bool,
}

impl OpenExports {
    /// Creates the list, still empty, for the array of this name; with its parts, where they are
    /// known; served by this engine.
    pub(super) fn new(
        name: &str,
        run_dir: &Path,
        facts: Facts,
        most_mounts: u32,
        parts: Option<Vec<ServedPart>>,
        engine: &Engine,
    ) -> Self {
        Self {
            name: name.to_owned(),
            run_dir: run_dir.to_owned(),
            facts,
            size: engine.size(),
            most_mounts: fuse::MAX_MOUNTS.min(most_mounts as usize),
            open: Vec::new(),
            shown: Shown::default(),
            sockets: Sockets::default(),
            parts,
            scattered: engine.scattered(),
            mount_table: None,
            started: false,
        }
    }

    /// Returns the list of exports, at any time.
    pub(super) fn shown(&self) -> Shown {
        self.shown.clone()
    }

    fn show(&self) {
        self.shown.set(self.open.iter().map(OpenExport::shown).collect());
    }

    /// Returns the array, as it is now.
    pub(super) fn exported(&self) -> ExportedArray {
        self.facts.exported(&self.size)
    }

    /// Returns whether the array was searched for parts, or has no export that shows them.
    pub(super) fn need_no_look(&self) -> bool {
        self.parts.is_some() || !self.open.iter().any(|open| open.shows_parts(self.exported()))
    }

    /// Returns the parts on the array, if they were searched for.
    pub(super) const fn parts(&self) -> Option<&Vec<ServedPart>> {
        self.parts.as_ref()
    }

    /// Serves the parts on the array, by all present and future exports.
    pub(super) fn set_parts(&mut self, parts: Vec<ServedPart>) {
        self.parts = Some(parts);
        let mut open = std::mem::take(&mut self.open);
        open.iter_mut().for_each(|open| self.show_parts(open));
        self.open = open;
    }

    fn show_parts(&self, open: &mut OpenExport) {
        let array = self.exported();
        let called = self.name(&open.spec).to_owned();
        match &mut open.stand {
            Stand::Disk(disk) if array.is_shown_by(&open.spec) => {
                let block = u64::from(self.facts.block_bytes);
                let parts = self.shown_parts().into_iter();
                let begins = parts.filter(|(_, bytes)| bytes.start.is_multiple_of(block));
                let named = begins.map(|(name, bytes)| (format!("{called}{PARTS}/{name}"), bytes));
                self.sockets.add_parts(disk, named.collect());
            }
            Stand::Mount { number, .. } => {
                if let Some(mount_table) = &self.mount_table {
                    mount_table.show(*number, self.mounted_parts());
                }
            }
            _ => {}
        }
    }

    fn mounted_parts(&self) -> fuse::PartFiles {
        fuse::PartFiles { name: format!("{}{PARTS}", self.name), files: self.shown_parts() }
    }

    fn shown_parts(&self) -> Vec<contents::ShownPart> {
        let parts = self.parts.as_deref().unwrap_or_default();
        contents::shown(parts, &self.scattered)
    }

    /// Opens an export, which comes into the engine by `enter`.
    pub(super) fn open(&mut self, spec: &ExportSpec, enter: Enter<'_>) -> Result<(), Refusal> {
        let mut spec = spec.clone();
        let beside = self.beside(&mut spec)?;
        let extent = self.extent(&spec)?;
        let (place, stand) = match &spec.place {
            ExportPlace::NbdUnix(_) | ExportPlace::NbdTcp(_) => {
                let device = self.device(&spec, &extent);
                let beside = beside.and_then(|at| self.open[at].stand.disk());
                let (place, disk) =
                    self.sockets.serve(&spec, device, beside, &self.run_dir, enter)?;
                (place, Stand::Disk(disk))
            }
            place @ ExportPlace::VhostUser(_) => {
                let (listener, file) = listen_on(&spec, &self.run_dir)?;
                let mut server = vhost_user::VhostServer::new(self.facts.vhost_user_device(
                    &self.name,
                    self.size.clone(),
                    spec.queues,
                ));
                server.listen(listener).map_err(|error| not_there(&spec, &error))?;
                let id = enter(Box::new(server))?;
                (place.clone(), Stand::Guest { id, file: Some(file) })
            }
            place @ ExportPlace::Fuse(path) => (place.clone(), self.mount(&spec, path, enter)?),
            ExportPlace::Ublk(number) => self.make_device(&spec, *number, enter)?,
        };
        let mut open = OpenExport { spec, place, stand };
        if matches!(open.stand, Stand::Disk(_)) {
            self.show_parts(&mut open);
        }
        self.open.push(open);
        self.show();
        Ok(())
    }

    /// Returns the export whose socket this one joins; this one gets its access rights.
    fn beside(&self, spec: &mut ExportSpec) -> Result<Option<usize>, Refusal> {
        // A port that is chosen is none that is in use.
        let joins = spec.place.is_nbd() && !spec.place.leaves_port_open();
        let is_beside = |open: &OpenExport| joins && open.is_at(&spec.place);
        let Some(at) = self.open.iter().position(is_beside) else { return Ok(None) };
        let is_called =
            |open: &OpenExport| is_beside(open) && self.name(&open.spec) == self.name(spec);
        if self.open.iter().any(is_called) {
            let reason = format!("{spec}: there is one named {} already", self.name(spec));
            return Err(Refusal::new(reason, "choose another name=, or another socket"));
        }
        let access = &self.open[at].spec.access;
        if spec.access.is_for_others() && spec.access != *access {
            let reason = format!("{spec}: the socket is there already, with other rights");
            let next = "leave mode, owner and group out, or choose another socket";
            return Err(Refusal::new(reason, next));
        }
        spec.access = access.clone();
        let tls = &self.open[at].spec.tls;
        if spec.tls.is_some() && spec.tls != *tls {
            let reason = format!("{spec}: the address is in use already, with other certificates");
            return Err(Refusal::new(reason, "leave tls= out, or choose another address"));
        }
        spec.tls.clone_from(tls);
        Ok(Some(at))
    }

    /// Returns the name that clients ask for.
    fn name<'a>(&'a self, spec: &'a ExportSpec) -> &'a str {
        spec.part.name().unwrap_or(&self.name)
    }

    /// The bytes of an export, which no other one may write. Exports that the previous program
    /// served go on: the array may have grown meanwhile, and with it what one of them shows.
    fn extent(&self, spec: &ExportSpec) -> Result<Extent, Refusal> {
        let array = self.exported();
        if handover::is_pending() {
            return array.extent(spec);
        }
        let extents = self.open.iter().map(|open| (open.shown(), array.extent(&open.spec)));
        extent_beside(spec, array, extents.filter_map(|(shown, is)| Some((shown, is.ok()?))))
    }

    /// Returns the device that NBD clients see.
    fn device(&self, spec: &ExportSpec, Extent { bytes, writable }: &Extent) -> Device {
        let name = self.name(spec).to_owned();
        let len = bytes.end - bytes.start;
        let device = Device::new(name, len, self.facts.block_bytes, !writable).at(bytes.start);
        let device =
            if spec.part.reaches_end() { device.reaching_to(self.size.clone()) } else { device };
        if spec.part.name().is_none() { device.by_default() } else { device }
    }

    fn mount(
        &mut self,
        spec: &ExportSpec,
        mountpoint: &Path,
        enter: Enter<'_>,
    ) -> Result<Stand, Refusal> {
        let Facts { block_bytes, read_only, .. } = self.facts;
        let taken = self.open.iter().filter_map(|open| match open.stand {
            Stand::Mount { number, .. } => Some(number),
            _ => None,
        });
        let taken: Vec<usize> = taken.collect();
        let is_free = |number: &usize| !taken.contains(number);
        let Some(number) = (0..self.most_mounts).find(is_free) else {
            let reason = format!("{spec}: there is memory for {} mounts only", self.most_mounts);
            let next = if self.started {
                "remove one, or stop the array and assemble it with all of them"
            } else {
                "name fewer"
            };
            return Err(Refusal::new(reason, next));
        };
        let name = self.name.as_str();
        let access = &spec.access;
        let parts = self.mounted_parts();
        let setup = fuse::MountSetup { name, mountpoint, parts, read_only, access };
        let error = |e: fuse::MountError| Refusal::new(format!("{spec}: {}", e.reason), e.next);
        let (mount, mounted) = fuse::mount(&setup).map_err(error)?;
        let mount_table = match &mut self.mount_table {
            Some(mount_table) => mount_table,
            none => {
                let (server, mount_table) = fuse::FuseServer::new(self.size.clone(), block_bytes)
                    .map_err(|error| refused_by_system(&error))?;
                enter(Box::new(server))?;
                none.insert(mount_table)
            }
        };
        mount_table.add(number, mounted);
        Ok(Stand::Mount { number, mount: Some(mount) })
    }

    /// Makes a block device. Returns where it is, with its number.
    fn make_device(
        &self,
        spec: &ExportSpec,
        number: Option<u32>,
        enter: Enter<'_>,
    ) -> Result<(ExportPlace, Stand), Refusal> {
        if self.started {
            let reason = format!("{spec}: a block device is made when the array starts");
            return Err(Refusal::new(reason, "stop the array, and assemble it with --export ublk"));
        }
        if self.open.iter().any(|open| matches!(open.stand, Stand::Device { .. })) {
            return Err(second_device());
        }
        let facts = self.facts;
        let setup = ublk::UblkSetup {
            number,
            uuid: facts.uuid,
            size: self.size.clone(),
            block_bytes: facts.block_bytes,
            chunk_bytes: facts.chunk_bytes,
            stripe_bytes: facts.stripe_bytes,
            read_only: facts.read_only,
        };
        let (device, server) = ublk::make(&setup)?;
        let place = ExportPlace::Ublk(Some(device.number()));
        let id = enter(Box::new(server))?;
        Ok((place, Stand::Device { id, device: Box::new(device) }))
    }

    fn devices(&mut self) -> impl Iterator<Item = &mut ublk::UblkDevice> {
        self.open.iter_mut().filter_map(|open| match &mut open.stand {
            Stand::Device { device, .. } => Some(&mut **device),
            _ => None,
        })
    }

    /// Starts the exports that need the engine to run.
    pub(super) fn start(&mut self) -> Result<(), Refusal> {
        self.started = true;
        self.devices().try_for_each(ublk::UblkDevice::start)
    }

    /// Returns the users of the mounts and the device.
    pub(super) fn users(&self) -> Vec<User> {
        self.open.iter().flat_map(|open| open.stand.users()).collect()
    }

    /// Finds an export by its place, and by its name if one is given.
    pub(super) fn find(&self, spec: &ExportSpec) -> Result<usize, Refusal> {
        let at_place = self.open.iter().enumerate().filter(|(_, open)| open.is_at(&spec.place));
        let all: Vec<(usize, &str)> =
            at_place.map(|(at, open)| (at, self.name(&open.spec))).collect();
        let found = match (spec.part.name(), &all[..]) {
            (None, [only]) => Some(only),
            _ => all.iter().find(|(_, name)| *name == self.name(spec)),
        };
        if let Some((at, _)) = found {
            return Ok(*at);
        }
        if spec.part.name().is_none() && !all.is_empty() {
            let names: Vec<String> = all.iter().map(|(_, name)| format!("name={name}")).collect();
            let reason = format!("{} has several exports", spec.place);
            return Err(Refusal::new(reason, format!("say which: {}", names.join(" or "))));
        }
        let status = Invocation::Status { array: Some(self.name.clone()) };
        let next = Next::by("see those it has", status);
        Err(Refusal::new(format!("{} has no such export", self.name), next))
    }

    /// Returns the users of one export.
    pub(super) fn users_of(&self, at: usize, exports: &ExportQueue) -> Vec<User> {
        match &self.open[at].stand {
            Stand::Disk(disk) => self.sockets.users(disk, exports),
            Stand::Guest { id, .. } => exports.clients(*id, None),
            stand => stand.users(),
        }
    }

    /// Takes one export away, while the engine runs. One in use stays, unless `force`.
    pub(super) fn remove(
        &mut self,
        at: usize,
        force: bool,
        exports: &ExportQueue,
    ) -> Result<(), Refusal> {
        match &mut self.open[at].stand {
            Stand::Disk(disk) => self.sockets.remove(disk, exports),
            Stand::Guest { id, file } => {
                // The file first: once nobody listens, another process may put its own there.
                *file = None;
                exports.remove(*id);
            }
            Stand::Mount { number, mount } => {
                unmount(mount, force)?;
                if let Some(mount_table) = &self.mount_table
                    && !mount_table.remove(*number)
                {
                    let reason = "a member does not answer what was asked over it";
                    let next = "see the state of the members, and try again";
                    return Err(Refusal::new(reason, next));
                }
            }
            Stand::Device { id, device } => {
                device.stop(force)?;
                exports.remove(*id);
            }
        }
        self.open.remove(at);
        self.show();
        Ok(())
    }

    /// Gives the sockets to the process that comes after this one; mounts and clients are the
    /// engine's to give. Returns the exports as that one has to open them.
    pub(super) fn hand_over(&self, to: &mut Handover) -> io::Result<Vec<String>> {
        self.sockets.hand_over(to)?;
        for open in &self.open {
            if let Stand::Guest { file: Some(file), .. } = &open.stand {
                file.hand_over(to)?;
            }
        }
        Ok(self.open.iter().map(OpenExport::anew).collect())
    }

    /// Takes all visible exports away. Exports in use stay, unless `force`.
    pub(super) fn close(&mut self, force: bool) -> Result<(), Refusal> {
        self.unmount(force)?;
        self.devices().try_for_each(|device| device.stop(force))
    }

    /// Takes the mounts away. Mounts in use stay, unless `force`.
    pub(super) fn unmount(&mut self, force: bool) -> Result<(), Refusal> {
        let mut refusal = Ok(());
        for open in &mut self.open {
            if let Stand::Mount { mount, .. } = &mut open.stand
                && let Err(error) = unmount(mount, force)
            {
                refusal = Err(error);
            }
        }
        refusal
    }
}

impl OpenExport {
    /// Returns whether it shows the parts on the array.
    fn shows_parts(&self, array: ExportedArray) -> bool {
        let can = matches!(self.stand, Stand::Disk(_) | Stand::Mount { .. });
        can && array.is_shown_by(&self.spec)
    }

    /// Returns the text for people, with chosen values.
    fn shown(&self) -> String {
        ExportSpec { place: self.place.clone(), ..self.spec.clone() }.to_string()
    }

    /// Returns the text by which a process that finds it open opens it again.
    fn anew(&self) -> String {
        match &self.stand {
            // By its real path: nobody may look there while nobody answers.
            Stand::Mount { mount: Some(mount), .. } => {
                let place = ExportPlace::Fuse(mount.mountpoint().to_owned());
                ExportSpec { place, ..self.spec.clone() }.to_string()
            }
            _ => self.shown(),
        }
    }

    fn is_at(&self, place: &ExportPlace) -> bool {
        self.spec.place == *place || self.place == *place
    }
}

impl Stand {
    const fn disk(&self) -> Option<&SocketDisk> {
        match self {
            Self::Disk(disk) => Some(disk),
            _ => None,
        }
    }

    /// Returns the users that the engine does not know.
    fn users(&self) -> Vec<User> {
        match self {
            Self::Disk(_) | Self::Guest { .. } | Self::Mount { mount: None, .. } => Vec::new(),
            Self::Mount { mount: Some(mount), .. } => users::of_mount(mount.mountpoint()),
            Self::Device { device, .. } => device.users(),
        }
    }
}

/// Takes a mount away, unless it is in use; with `force` also then.
fn unmount(slot: &mut Option<fuse::Mount>, force: bool) -> Result<(), Refusal> {
    let Some(mount) = slot.take() else { return Ok(()) };
    let Err((mount, error)) = mount.unmount() else { return Ok(()) };
    tracing::warn!("{error}");
    if force {
        mount.detach();
        return Ok(());
    }
    *slot = Some(*mount);
    Err(Refusal::new(format!("{} {}", error.mountpoint.display(), error.reason), error.next))
}
