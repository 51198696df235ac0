//! The sockets for NBD clients, each with the disks that are found there.

use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;

use braid_array::Refusal;
use slab::Slab;

use super::listening::{Enter, listen_on, not_there};
use super::{ExportSpec, Place};
use crate::control::SocketFile;
use crate::engine::exports::ExportsDoor;
use crate::export::nbd::{self, Device, Devices, Listener, Present, Server};
use crate::token::ExportId;
use crate::users::User;

/// A socket in use.
#[derive(Debug)]
struct Socket {
    /// With the port that was chosen.
    place: Place,
    id: ExportId,
    /// None on TCP.
    file: Option<SocketFile>,
    devices: Devices,
}

/// A disk on one of them.
#[derive(Debug)]
pub(super) struct Disk {
    socket: usize,
    device: Arc<Device>,
}

/// The sockets. One is there from its first disk to its last.
#[derive(Debug, Default)]
pub(super) struct Sockets {
    open: Slab<Socket>,
    /// The clients of all share one limit.
    present: Present,
}

impl Sockets {
    /// Serves a disk, on the socket of `beside` or on one of its own. Returns the place with it,
    /// as a port may have been chosen.
    pub(super) fn serve(
        &mut self,
        spec: &ExportSpec,
        device: Device,
        beside: Option<&Disk>,
        run_dir: &Path,
        enter: Enter<'_>,
    ) -> Result<(Place, Disk), Refusal> {
        let device = Arc::new(device);
        let socket = match beside {
            Some(disk) => disk.socket,
            None => self.listen(spec, run_dir, enter)?,
        };
        let Socket { devices, place, .. } = &self.open[socket];
        devices.add(Arc::clone(&device));
        Ok((place.clone(), Disk { socket, device }))
    }

    /// Listens, for no disks yet.
    fn listen(
        &mut self,
        spec: &ExportSpec,
        run_dir: &Path,
        enter: Enter<'_>,
    ) -> Result<usize, Refusal> {
        let (place, listener, file) = match &spec.place {
            Place::NbdTcp(address) => {
                let listener = TcpListener::bind(address).map_err(|e| not_there(spec, &e))?;
                // Port 0 became one that is free.
                let address = listener.local_addr().map_err(|e| not_there(spec, &e))?;
                (Place::NbdTcp(address.to_string()), Listener::Tcp(listener), None)
            }
            place => {
                let (listener, file) = listen_on(spec, run_dir)?;
                (place.clone(), Listener::Unix(listener), Some(file))
            }
        };
        let said = |Refusal { reason, next }| Refusal::new(format!("{spec}: {reason}"), next);
        let tls = spec.tls.as_deref().map(nbd::load).transpose().map_err(said)?;
        let devices = Devices::default();
        let mut server = Server::beside(&self.present);
        server.listen(listener, devices.clone(), tls).map_err(|error| not_there(spec, &error))?;
        let id = enter(Box::new(server))?;
        Ok(self.open.insert(Socket { place, id, file, devices }))
    }

    /// Who uses a disk.
    pub(super) fn users(&self, disk: &Disk, exports: &ExportsDoor) -> Vec<User> {
        exports.clients(self.open[disk.socket].id, Some(disk.device.name()))
    }

    /// Takes a disk away; with the last one the socket.
    pub(super) fn remove(&mut self, disk: &Disk, exports: &ExportsDoor) {
        let Socket { id, devices, .. } = &self.open[disk.socket];
        // Before its clients are hung up on: none may come anew.
        devices.remove(&disk.device);
        if !devices.is_empty() {
            return exports.close_part(*id, disk.device.name());
        }
        let Socket { id, file, .. } = self.open.remove(disk.socket);
        // The file first: once nobody listens, another process may put its own there.
        drop(file);
        exports.remove(id);
    }
}
