//! The exports of an array: opened one after the other, before the engine runs or while it does,
//! and taken away one by one, or all at the end.

use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use braid_array::Refusal;

use super::{ExportSpec, Facts, Place};
use crate::control::{self, ListenError, Shown, SocketFile};
use crate::engine::export::Export;
use crate::engine::exports::ExportsDoor;
use crate::export::nbd::{Device, Listener, Present, Server};
use crate::export::{fuse, ublk, vhost_user};
use crate::system::{describe, refused_by_system};
use crate::token::ExportId;
use crate::users::{self, User};

/// An export that stands.
#[derive(Debug)]
struct Open {
    spec: ExportSpec,
    /// With what was chosen for it: a port, a number.
    shown: String,
    stand: Stand,
}

/// What of an export lies outside the engine, and where it is in there.
#[derive(Debug)]
enum Stand {
    /// The file of a socket; none of one on TCP.
    Socket { id: ExportId, file: Option<SocketFile> },
    /// A mount, until it is unmounted.
    Mount { number: usize, mount: Option<fuse::Mount> },
    /// A block device of the kernel's.
    Device { id: ExportId, device: Box<ublk::Device> },
}

/// How an export comes into the engine.
type Enter<'a> = &'a mut dyn FnMut(Box<dyn Export>) -> Result<ExportId, Refusal>;

/// The exports of an array.
#[derive(Debug)]
pub(super) struct Doors {
    name: String,
    run_dir: PathBuf,
    facts: Facts,
    /// For so many mounts there is memory.
    most_mounts: usize,
    open: Vec<Open>,
    shown: Shown,
    /// The clients of all NBD sockets share one limit.
    present: Present,
    /// From the first mount on.
    desk: Option<fuse::Desk>,
    /// The engine runs.
    started: bool,
}

impl Doors {
    /// None yet, of the array of this name.
    pub(super) fn new(name: &str, run_dir: &Path, facts: Facts, most_mounts: u32) -> Self {
        Self {
            name: name.to_owned(),
            run_dir: run_dir.to_owned(),
            facts,
            most_mounts: fuse::MAX_MOUNTS.min(most_mounts as usize),
            open: Vec::new(),
            shown: Shown::default(),
            present: Present::default(),
            desk: None,
            started: false,
        }
    }

    /// How the array is served, at any time.
    pub(super) fn shown(&self) -> Shown {
        self.shown.clone()
    }

    fn show(&self) {
        self.shown.set(self.open.iter().map(|open| open.shown.clone()).collect());
    }

    /// Opens an export, which comes into the engine by `enter`.
    pub(super) fn open(&mut self, spec: &ExportSpec, enter: Enter<'_>) -> Result<(), Refusal> {
        let (shown, stand) = match &spec.place {
            Place::NbdUnix(path) => {
                let (listener, file) = self.listen(spec, path)?;
                let id = self.serve_nbd(spec, Listener::Unix(listener), enter)?;
                (spec.to_string(), Stand::Socket { id, file: Some(file) })
            }
            Place::NbdTcp(address) => {
                let listener = TcpListener::bind(address).map_err(|e| not_there(spec, &e))?;
                // Port 0 became one that is free.
                let address = listener.local_addr().map_err(|e| not_there(spec, &e))?;
                let shown = format!("nbd:tcp:{address}");
                let id = self.serve_nbd(spec, Listener::Tcp(listener), enter)?;
                (shown, Stand::Socket { id, file: None })
            }
            Place::VhostUser(path) => {
                let (listener, file) = self.listen(spec, path)?;
                let mut server = vhost_user::Server::new(self.facts.vhost_user_device(&self.name));
                server.listen(listener).map_err(|error| not_there(spec, &error))?;
                let id = enter(Box::new(server))?;
                (spec.to_string(), Stand::Socket { id, file: Some(file) })
            }
            Place::Fuse(mountpoint) => (spec.to_string(), self.mount(spec, mountpoint, enter)?),
            Place::Ublk(number) => self.make_device(spec, *number, enter)?,
        };
        self.open.push(Open { spec: spec.clone(), shown, stand });
        self.show();
        Ok(())
    }

    fn listen(
        &self,
        spec: &ExportSpec,
        path: &Path,
    ) -> Result<(UnixListener, SocketFile), Refusal> {
        control::listen(&self.run_dir, path, &spec.access).map_err(|error| match error {
            ListenError::Socket(error) => not_there(spec, &error),
            ListenError::Owner(error) => {
                let why = describe(&error);
                let reason = format!("{spec}: cannot be given its owner or group: {why}");
                Refusal::new(reason, "run as root, or name a group that you are in, and no owner")
            }
        })
    }

    fn serve_nbd(
        &self,
        spec: &ExportSpec,
        listener: Listener,
        enter: Enter<'_>,
    ) -> Result<ExportId, Refusal> {
        let Facts { size_bytes, block_bytes, read_only, .. } = self.facts;
        let device = Device::new(self.name.clone(), size_bytes, block_bytes, read_only);
        let mut server = Server::beside(&self.present);
        server.listen(listener, device).map_err(|error| not_there(spec, &error))?;
        enter(Box::new(server))
    }

    fn mount(
        &mut self,
        spec: &ExportSpec,
        mountpoint: &Path,
        enter: Enter<'_>,
    ) -> Result<Stand, Refusal> {
        let Facts { size_bytes, block_bytes, read_only, .. } = self.facts;
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
        let setup = fuse::Setup { name, mountpoint, size_bytes, block_bytes, read_only, access };
        let error = |e: fuse::MountError| Refusal::new(format!("{spec}: {}", e.reason), e.next);
        let (mount, mounted) = fuse::mount(&setup).map_err(error)?;
        let desk = match &mut self.desk {
            Some(desk) => desk,
            none => {
                let (server, desk) =
                    fuse::Server::new(block_bytes).map_err(|error| refused_by_system(&error))?;
                enter(Box::new(server))?;
                none.insert(desk)
            }
        };
        desk.add(number, mounted);
        Ok(Stand::Mount { number, mount: Some(mount) })
    }

    /// Makes a block device. Returns how it is exported, with its number.
    fn make_device(
        &self,
        spec: &ExportSpec,
        number: Option<u32>,
        enter: Enter<'_>,
    ) -> Result<(String, Stand), Refusal> {
        if self.started {
            let reason = format!("{spec}: a block device is made when the array starts");
            return Err(Refusal::new(reason, "stop the array, and assemble it with --export ublk"));
        }
        if self.open.iter().any(|open| matches!(open.stand, Stand::Device { .. })) {
            return Err(Refusal::new("ublk: the array has a device already", "name one"));
        }
        let facts = self.facts;
        let setup = ublk::Setup {
            number,
            uuid: facts.uuid,
            size_bytes: facts.size_bytes,
            block_bytes: facts.block_bytes,
            chunk_bytes: facts.chunk_bytes,
            stripe_bytes: facts.stripe_bytes,
            read_only: facts.read_only,
        };
        let (device, server) = ublk::make(&setup)?;
        let shown = Place::Ublk(Some(device.number())).to_string();
        let id = enter(Box::new(server))?;
        Ok((shown, Stand::Device { id, device: Box::new(device) }))
    }

    fn devices(&mut self) -> impl Iterator<Item = &mut ublk::Device> {
        self.open.iter_mut().filter_map(|open| match &mut open.stand {
            Stand::Device { device, .. } => Some(&mut **device),
            _ => None,
        })
    }

    /// Begins what needs the engine to run.
    pub(super) fn start(&mut self) -> Result<(), Refusal> {
        self.started = true;
        self.devices().try_for_each(ublk::Device::start)
    }

    /// Who uses the mounts and the device.
    pub(super) fn users(&self) -> Vec<User> {
        self.open.iter().flat_map(|open| open.stand.users()).collect()
    }

    /// Which export lies where this one does.
    pub(super) fn find(&self, spec: &ExportSpec) -> Option<usize> {
        self.open.iter().position(|Open { spec: known, shown, .. }| {
            known.place == spec.place || *shown == spec.place.to_string()
        })
    }

    /// Who uses one export.
    pub(super) fn users_of(&self, at: usize, exports: &ExportsDoor) -> Vec<User> {
        match &self.open[at].stand {
            Stand::Socket { id, .. } => exports.clients(*id),
            stand => stand.users(),
        }
    }

    /// Takes one export away, while the engine runs. One in use stays, unless `force`.
    pub(super) fn remove(
        &mut self,
        at: usize,
        force: bool,
        exports: &ExportsDoor,
    ) -> Result<(), Refusal> {
        match &mut self.open[at].stand {
            Stand::Socket { id, file } => {
                // The file first: once nobody listens, another process may put its own there.
                *file = None;
                exports.remove(*id);
            }
            Stand::Mount { number, mount } => {
                unmount(mount, force)?;
                if let Some(desk) = &self.desk
                    && !desk.remove(*number)
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

    /// Takes all away that can be seen. What is in use stays, unless `force`.
    pub(super) fn close(&mut self, force: bool) -> Result<(), Refusal> {
        self.unmount(force)?;
        self.devices().try_for_each(|device| device.stop(force))
    }

    /// Takes the mounts away. Those in use stay, unless `force`.
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

impl Stand {
    /// Who uses it, where the engine does not know.
    fn users(&self) -> Vec<User> {
        match self {
            Self::Socket { .. } | Self::Mount { mount: None, .. } => Vec::new(),
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

/// Nobody can listen there.
fn not_there(spec: &ExportSpec, error: &io::Error) -> Refusal {
    let reason = match error.kind() {
        io::ErrorKind::AddrInUse => "somebody listens there already".to_owned(),
        _ => format!("cannot listen there: {}", describe(error)),
    };
    Refusal::new(format!("{spec}: {reason}"), "name another address")
}
