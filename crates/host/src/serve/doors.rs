//! The exports of an array: opened one after the other, and taken away at the end.

use std::io;
use std::net::TcpListener;
use std::path::Path;

use braid_array::Refusal;

use super::{ExportSpec, Facts};
use crate::control::{self, SocketFile};
use crate::engine::Engine;
use crate::export::fuse;
use crate::export::nbd::{Device, Listener, Server};
use crate::export::vhost_user;
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
        }
        self.names.push(shown);
        Ok(())
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
    }

    /// Who uses the mounts.
    pub(super) fn users(&self) -> Vec<User> {
        self.mounts.iter().flat_map(|mount| users::of_mount(mount.mountpoint())).collect()
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
