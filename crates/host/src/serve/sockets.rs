//! The sockets for NBD clients, each with the disks that are found there.

use std::io;
use std::net::TcpListener;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use braid_array::Refusal;
use slab::Slab;

use super::listening::{Enter, listen_on, not_there};
use super::{ExportPlace, ExportSpec};
use crate::control::SocketFile;
use crate::engine::exports::ExportQueue;
use crate::export::nbd::{self, Device, Listener, NbdServer, Present, SocketDevices};
use crate::handover::{self, Handover, What};
use crate::token::ExportId;
use crate::users::User;

/// A socket in use.
#[derive(Debug)]
struct Socket {
    /// Place with the chosen port.
    place: ExportPlace,
    id: ExportId,
    way_in: WayIn,
    devices: SocketDevices,
}

/// Socket by which clients come in.
#[derive(Debug)]
enum WayIn {
    File(SocketFile),
    Tcp(TcpListener),
}

/// A disk on one of them.
#[derive(Debug)]
pub(super) struct SocketDisk {
    socket: usize,
    device: Arc<Device>,
    /// Parts on it, as disks of their own.
    parts: Vec<Arc<Device>>,
}

impl SocketDisk {
    fn devices(&self) -> impl Iterator<Item = &Arc<Device>> {
        self.parts.iter().chain([&self.device])
    }
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
        beside: Option<&SocketDisk>,
        run_dir: &Path,
        enter: Enter<'_>,
    ) -> Result<(ExportPlace, SocketDisk), Refusal> {
        let device = Arc::new(device);
        let socket = match beside {
            Some(disk) => disk.socket,
            None => self.listen(spec, run_dir, enter)?,
        };
        let Socket { devices, place, .. } = &self.open[socket];
        devices.add(Arc::clone(&device));
        Ok((place.clone(), SocketDisk { socket, device, parts: Vec::new() }))
    }

    /// Serves parts of a disk: the name of each, and its range on the disk.
    pub(super) fn add_parts(&self, disk: &mut SocketDisk, parts: Vec<(String, Range<u64>)>) {
        for (name, bytes) in parts {
            let part = disk.device.part(name, bytes.start, bytes.end - bytes.start);
            let part = Arc::new(part);
            self.open[disk.socket].devices.add(Arc::clone(&part));
            disk.parts.push(part);
        }
    }

    /// Listens, for no disks yet.
    fn listen(
        &mut self,
        spec: &ExportSpec,
        run_dir: &Path,
        enter: Enter<'_>,
    ) -> Result<usize, Refusal> {
        let (place, listener, way_in) = match &spec.place {
            ExportPlace::NbdTcp(address) => {
                let listener = listen_on_tcp(address).map_err(|e| not_there(spec, &e))?;
                // Port 0 became one that is free.
                let address = listener.local_addr().map_err(|e| not_there(spec, &e))?;
                let copy = listener.try_clone().map_err(|e| not_there(spec, &e))?;
                let place = ExportPlace::NbdTcp(address.to_string());
                (place, Listener::Tcp(listener), WayIn::Tcp(copy))
            }
            place => {
                let (listener, file) = listen_on(spec, run_dir)?;
                (place.clone(), Listener::Unix(listener), WayIn::File(file))
            }
        };
        let said = |Refusal { reason, next }| Refusal::new(format!("{spec}: {reason}"), next);
        let tls = spec.tls.as_deref().map(nbd::load).transpose().map_err(said)?;
        let devices = SocketDevices::default();
        let mut server = NbdServer::beside(&self.present);
        server.listen(listener, devices.clone(), tls).map_err(|error| not_there(spec, &error))?;
        server.inherit(&place.to_string());
        let id = enter(Box::new(server))?;
        Ok(self.open.insert(Socket { place, id, way_in, devices }))
    }

    /// Gives all of them to the process that comes after this one.
    pub(super) fn hand_over(&self, to: &mut Handover) -> io::Result<()> {
        self.open.iter().try_for_each(|(_, Socket { place, way_in, .. })| match (place, way_in) {
            (_, WayIn::File(file)) => file.hand_over(to),
            (ExportPlace::NbdTcp(address), WayIn::Tcp(listener)) => {
                to.give(What::Tcp(address.clone()), listener.try_clone()?.into());
                Ok(())
            }
            _ => Ok(()),
        })
    }

    /// Returns the users of a disk.
    pub(super) fn users(&self, disk: &SocketDisk, exports: &ExportQueue) -> Vec<User> {
        let id = self.open[disk.socket].id;
        disk.devices().flat_map(|device| exports.clients(id, Some(device.name()))).collect()
    }

    /// Takes a disk away; with the last one the socket.
    pub(super) fn remove(&mut self, disk: &SocketDisk, exports: &ExportQueue) {
        let Socket { id, devices, .. } = &self.open[disk.socket];
        // Before its clients are hung up on: none may come anew.
        disk.devices().for_each(|device| devices.remove(device));
        if !devices.is_empty() {
            return disk.devices().for_each(|device| exports.close_part(*id, device.name()));
        }
        let Socket { id, way_in, .. } = self.open.remove(disk.socket);
        // The file first: once nobody listens, another process may put its own there.
        drop(way_in);
        exports.remove(id);
    }
}

fn listen_on_tcp(address: &str) -> io::Result<TcpListener> {
    match handover::take(&What::Tcp(address.to_owned())) {
        Some(socket) => Ok(TcpListener::from(socket)),
        None => TcpListener::bind(address),
    }
}
