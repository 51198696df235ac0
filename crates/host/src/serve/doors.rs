//! The exports of an array: opened one after the other, and taken away at the end.

use std::io;
use std::net::TcpListener;
use std::path::Path;

use braid_array::Refusal;

use super::{ExportSpec, Facts};
use crate::control::{self, SocketFile};
use crate::engine::Engine;
use crate::export::nbd::{Device, Listener, Server};
use crate::export::{fuse, ublk, vhost_user};
use crate::system::describe;
use crate::users::{self, User};

/// The exports that stand.
#[derive(Debug, Default)]
pub(super) struct Doors {
    pub(super) names: Vec<String>,
    mounts: Vec<fuse::Mount>,
    sockets: Vec<SocketFile>,
    /// Until the engine has them.
    nbd: Option<Server>,
    fuse: Option<fuse::Server>,
    vhost_user: Option<vhost_user::Server>,
    ublk: Option<ublk::Server>,
    device: Option<ublk::Device>,
}

impl Doors {
    pub(super) fn open(
        &mut self,
        name: &str,
        export: &ExportSpec,
        run_dir: &Path,
        facts: Facts,
    ) -> Result<(), Refusal> {
        let fail = |error: io::Error| {
            let reason = match error.kind() {
                io::ErrorKind::AddrInUse => "somebody listens there already".to_owned(),
                _ => format!("cannot listen there: {}", describe(&error)),
            };
            Refusal::new(format!("{export}: {reason}"), "name another address")
        };
        let Facts { size_bytes, block_bytes, read_only, .. } = facts;
        let mut serve_nbd = |listener| {
            let device = Device::new(name.to_owned(), size_bytes, block_bytes, read_only);
            self.nbd.get_or_insert_default().listen(listener, device).map_err(fail)
        };
        let mut shown = export.to_string();
        match export {
            ExportSpec::NbdUnix(path) => {
                let (listener, file) = control::listen(run_dir, path).map_err(fail)?;
                self.sockets.push(file);
                serve_nbd(Listener::Unix(listener))?;
            }
            ExportSpec::NbdTcp(address) => {
                let listener = TcpListener::bind(address).map_err(fail)?;
                // Port 0 became one that is free.
                shown = format!("nbd:tcp:{}", listener.local_addr().map_err(fail)?);
                serve_nbd(Listener::Tcp(listener))?;
            }
            ExportSpec::VhostUser(path) => {
                let (listener, file) = control::listen(run_dir, path).map_err(fail)?;
                self.sockets.push(file);
                let device = || facts.vhost_user_device(name);
                let server =
                    self.vhost_user.get_or_insert_with(|| vhost_user::Server::new(device()));
                server.listen(listener).map_err(fail)?;
            }
            ExportSpec::Fuse(mountpoint) => {
                let server = self.fuse.get_or_insert_with(|| fuse::Server::new(block_bytes));
                if !server.has_room() {
                    let reason = format!("{export}: there are too many mounts of the array");
                    return Err(Refusal::new(reason, "name fewer"));
                }
                let setup = fuse::Setup { name, mountpoint, size_bytes, block_bytes, read_only };
                let error = |e: fuse::MountError| {
                    Refusal::new(format!("fuse:{}: {}", e.mountpoint.display(), e.reason), e.next)
                };
                let (mount, mounted) = fuse::mount(&setup).map_err(error)?;
                server.add(mounted);
                self.mounts.push(mount);
            }
            ExportSpec::Ublk(number) => shown = self.make_device(*number, facts)?,
        }
        self.names.push(shown);
        Ok(())
    }

    /// Makes a block device. Returns how it is exported, with its number.
    fn make_device(&mut self, number: Option<u32>, facts: Facts) -> Result<String, Refusal> {
        if self.device.is_some() {
            return Err(Refusal::new("ublk: the array has a device already", "name one"));
        }
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
        let shown = ExportSpec::Ublk(Some(device.number())).to_string();
        self.device = Some(device);
        self.ublk = Some(server);
        Ok(shown)
    }

    /// Begins what needs the engine to run.
    pub(super) fn start(&mut self) -> Result<(), Refusal> {
        self.device.as_mut().map_or(Ok(()), ublk::Device::start)
    }

    /// Gives the engine those that live in its loop.
    pub(super) fn move_in(&mut self, engine: &mut Engine) {
        if let Some(nbd) = self.nbd.take() {
            engine.add_export(Box::new(nbd));
        }
        if let Some(fuse) = self.fuse.take() {
            engine.add_export(Box::new(fuse));
        }
        if let Some(vhost_user) = self.vhost_user.take() {
            engine.add_export(Box::new(vhost_user));
        }
        if let Some(ublk) = self.ublk.take() {
            engine.add_export(Box::new(ublk));
        }
    }

    /// Who uses the mounts and the device.
    pub(super) fn users(&self) -> Vec<User> {
        let mounts = self.mounts.iter().flat_map(|mount| users::of_mount(mount.mountpoint()));
        mounts.chain(self.device.iter().flat_map(ublk::Device::users)).collect()
    }

    /// Takes all away that can be seen. What is in use stays, unless `force`.
    pub(super) fn close(&mut self, force: bool) -> Result<(), Refusal> {
        self.unmount(force)?;
        self.device.as_mut().map_or(Ok(()), |device| device.stop(force))
    }

    /// Takes the mounts away. Those in use stay, unless `force`.
    pub(super) fn unmount(&mut self, force: bool) -> Result<(), Refusal> {
        let mut refusal = Ok(());
        for mount in std::mem::take(&mut self.mounts) {
            let Err((mount, error)) = mount.unmount() else { continue };
            tracing::warn!("{error}");
            if force {
                mount.detach();
            } else {
                let reason = format!("{} {}", error.mountpoint.display(), error.reason);
                refusal = Err(Refusal::new(reason, error.next));
                self.mounts.push(*mount);
            }
        }
        refusal
    }
}
