//! The protocol with one front end, message by message (QEMU's `docs/interop/vhost-user.rst`). The
//! messages themselves are read and answered by the crate `vhost`.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{MemfdFlags, SealFlags};
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserShMemConfig, VhostUserSharedMsg,
    VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{
    Error, GpuBackend, Result, VhostUserBackendReqHandlerMut, VhostUserProtocolFeatures,
    VhostUserVirtioFeatures,
};
use vm_memory::FileOffset;

use super::device::{ExportedDevice, MAX_RINGS, feature};
use super::endpoint_messages::{EndpointMailbox, EndpointMessage, OpenedRing};
use super::inflight::{InflightRegion, Notes, ring_bytes};
use super::memory::{MAX_REGIONS, RegionTable};
use super::ring::{MAX_SIZE, RingSetup, VirtioRing};
use crate::mailbox::ReceiverGone;

/// Settings of a ring.
#[derive(Debug, Default)]
struct Vring {
    size: u16,
    /// Addresses in the front end: descriptors, available ring, used ring.
    places: Option<[u64; 3]>,
    base: u16,
    call: Option<File>,
    error: Option<File>,
    enabled: bool,
    started: bool,
}

/// A front end: the features negotiated with it, and the settings of its rings. Its thread runs
/// from the connection of the front end to the end of that.
#[derive(Debug)]
pub(super) struct FrontEnd {
    device: Arc<ExportedDevice>,
    mailbox: EndpointMailbox,
    features: u64,
    table: RegionTable,
    notes: Option<Notes>,
    vrings: Vec<Vring>,
}

impl FrontEnd {
    pub(super) fn new(device: Arc<ExportedDevice>, mailbox: EndpointMailbox) -> Self {
        let vrings = (0..device.rings).map(|_| Vring::default()).collect();
        Self { device, mailbox, features: 0, table: RegionTable::default(), notes: None, vrings }
    }

    fn vring(&mut self, index: u32) -> Result<&mut Vring> {
        let index = usize::try_from(index).map_err(|_| Error::InvalidParam)?;
        self.vrings.get_mut(index).ok_or(Error::InvalidParam)
    }

    fn send(&self, message: EndpointMessage) -> Result<()> {
        self.mailbox.send(message).map_err(ended)
    }

    fn has(&self, feature: u64) -> bool {
        self.features & feature != 0
    }

    /// Serves a ring from now on.
    fn start(&mut self, index: usize, kick: OwnedFd) -> Result<()> {
        let vring = &self.vrings[index];
        let place = |user| self.table.translate(user).ok_or(Error::InvalidParam);
        let [descriptors, used, available] = vring.places.ok_or(Error::InvalidParam)?;
        let setup = RingSetup {
            size: vring.size,
            descriptors: place(descriptors)?,
            available: place(available)?,
            used: place(used)?,
            base: vring.base,
            event_index: self.has(feature::EVENT_IDX),
            inflight: self.notes.clone().map(|notes| (notes, index)),
        };
        let ring = VirtioRing::new(&setup, Arc::clone(self.table.guest()));
        let ring = ring.map_err(|error| {
            tracing::warn!(array = self.device.name, "vhost-user: ring {index}: {error}");
            Error::InvalidParam
        })?;
        let opened = Box::new(OpenedRing {
            ring,
            kick,
            call: vring.call.as_ref().map(File::try_clone).transpose().map_err(system)?,
            error: vring.error.as_ref().map(File::try_clone).transpose().map_err(system)?,
            // Who cannot say so has all of them enabled.
            enabled: vring.enabled || !self.has(VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits()),
            flushes: self.has(feature::FLUSH),
        });
        self.vrings[index].started = true;
        self.send(EndpointMessage::Start { ring: index, opened })
    }

    /// Waits until a ring is not served any more.
    fn stop(&mut self, index: usize) -> Result<()> {
        if self.vrings[index].started {
            let base = self
                .mailbox
                .ask(Duration::MAX, |done| EndpointMessage::Stop { ring: index, done })
                .map_err(ended)?;
            self.vrings[index].base = base;
            self.vrings[index].started = false;
        }
        Ok(())
    }

    fn set_table(&mut self, table: RegionTable) -> Result<()> {
        let guest = Arc::clone(table.guest());
        self.table = table;
        self.send(EndpointMessage::Memory(guest))
    }
}

const fn ended(_: ReceiverGone) -> Error {
    Error::BackendInternalError
}

fn system(error: impl Into<std::io::Error>) -> Error {
    Error::ReqHandlerError(error.into())
}

/// Checks that a file is an eventfd: a write to another file might wait.
fn eventfd(file: File) -> Result<File> {
    use std::os::fd::AsRawFd;
    let link = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let is_one = link.is_ok_and(|link| link.as_os_str() == "anon_inode:[eventfd]");
    if is_one { Ok(file) } else { Err(Error::InvalidParam) }
}

/// Maps the memory of the notes.
fn map(inflight: &VhostUserInflight, file: File) -> Result<Notes> {
    let &VhostUserInflight { mmap_size, mmap_offset, num_queues, queue_size } = inflight;
    let size = usize::try_from(mmap_size).map_err(|_| Error::InvalidParam)?;
    let needed = usize::from(num_queues) * ring_bytes(queue_size);
    if !fits(inflight) || size < needed {
        return Err(Error::InvalidParam);
    }
    let region = InflightRegion::from_file(FileOffset::new(file, mmap_offset), size);
    let region = Arc::new(region.map_err(|_| Error::InvalidParam)?);
    Ok(Notes { region, size: queue_size })
}

const fn fits(inflight: &VhostUserInflight) -> bool {
    let rings = inflight.num_queues as usize;
    let size = inflight.queue_size;
    rings > 0 && rings <= MAX_RINGS && size > 0 && size <= MAX_SIZE
}

impl VhostUserBackendReqHandlerMut for FrontEnd {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        (0..self.vrings.len()).try_for_each(|index| self.stop(index))
    }

    fn reset_device(&mut self) -> Result<()> {
        Err(Error::InvalidOperation("not offered"))
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(self.device.features())
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !self.device.features() != 0 {
            return Err(Error::FeatureMismatch);
        }
        self.features = features;
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy: Option<bool>,
    ) -> Result<Option<Vec<u64>>> {
        let table = RegionTable::of(regions, files).map_err(|_| Error::InvalidParam)?;
        self.set_table(table).map(|()| None)
    }

    fn set_vring_num(&mut self, index: u32, size: u32) -> Result<()> {
        let size = u16::try_from(size).map_err(|_| Error::InvalidParam)?;
        if !size.is_power_of_two() || size > MAX_SIZE {
            return Err(Error::InvalidParam);
        }
        self.vring(index)?.size = size;
        Ok(())
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        self.vring(index)?.places = Some([descriptor, used, available]);
        Ok(())
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        self.vring(index)?.base = u16::try_from(base).map_err(|_| Error::InvalidParam)?;
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        self.vring(index)?;
        self.stop(index as usize)?;
        Ok(VhostUserVringState::new(index, self.vring(index)?.base.into()))
    }

    fn set_vring_kick(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        self.vring(index.into())?;
        let kick = eventfd(fd.ok_or(Error::InvalidParam)?)?;
        rustix::io::ioctl_fionbio(kick.as_fd(), true).map_err(system)?;
        self.stop(index.into())?;
        self.start(index.into(), kick.into())
    }

    fn set_vring_call(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let call = fd.map(eventfd).transpose()?;
        let ring = usize::from(index);
        let vring = self.vring(index.into())?;
        vring.call = call;
        if vring.started {
            let call = vring.call.as_ref().map(File::try_clone).transpose().map_err(system)?;
            self.send(EndpointMessage::Call { ring, call })?;
        }
        Ok(())
    }

    fn set_vring_err(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        self.vring(index.into())?.error = fd.map(eventfd).transpose()?;
        Ok(())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(ExportedDevice::protocol_features())
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<()> {
        let unknown = features & !ExportedDevice::protocol_features().bits() != 0;
        if unknown { Err(Error::FeatureMismatch) } else { Ok(()) }
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(self.device.rings.into())
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        let vring = self.vring(index)?;
        vring.enabled = enable;
        if vring.started {
            self.send(EndpointMessage::Enable { ring: index as usize, on: enable })?;
        }
        Ok(())
    }

    fn get_config(
        &mut self,
        offset: u32,
        size: u32,
        _flags: VhostUserConfigFlags,
    ) -> Result<Vec<u8>> {
        self.device.config(offset, size).ok_or(Error::InvalidParam)
    }

    fn set_config(&mut self, _offset: u32, _: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        Err(Error::InvalidOperation("nothing can be set"))
    }

    fn set_gpu_socket(&mut self, _: GpuBackend) -> Result<()> {
        Err(Error::InvalidOperation("not a GPU"))
    }

    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Result<File> {
        Err(Error::InvalidOperation("not offered"))
    }

    fn get_inflight_fd(&mut self, wanted: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        if !fits(wanted) {
            return Err(Error::InvalidParam);
        }
        let bytes = usize::from(wanted.num_queues) * ring_bytes(wanted.queue_size);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("braid-inflight", flags).map_err(system)?;
        rustix::fs::ftruncate(&file, bytes as u64).map_err(system)?;
        // Nobody can take it away from who looks at it.
        let seals = SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals).map_err(system)?;
        let file = File::from(file);
        let VhostUserInflight { num_queues, queue_size, .. } = *wanted;
        let inflight = VhostUserInflight::new(bytes as u64, 0, num_queues, queue_size);
        self.notes = Some(map(&inflight, file.try_clone().map_err(system)?)?);
        Ok((inflight, file))
    }

    fn set_inflight_fd(&mut self, inflight: &VhostUserInflight, file: File) -> Result<()> {
        self.notes = Some(map(inflight, file)?);
        Ok(())
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(MAX_REGIONS as u64)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        fd: File,
        _postcopy: Option<bool>,
    ) -> Result<Option<u64>> {
        let table = self.table.with(region, fd).map_err(|_| Error::InvalidParam)?;
        self.set_table(table).map(|()| None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        let table = self.table.without(region).map_err(|_| Error::InvalidParam)?;
        self.set_table(table)
    }

    fn set_device_state_fd(
        &mut self,
        _: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        _: File,
    ) -> Result<Option<File>> {
        Err(Error::InvalidOperation("not offered"))
    }

    fn check_device_state(&mut self) -> Result<()> {
        Err(Error::InvalidOperation("not offered"))
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(Error::InvalidOperation("not offered"))
    }

    fn set_log_base(&mut self, _: &VhostUserLog, _: File) -> Result<()> {
        Err(Error::InvalidOperation("not offered"))
    }
}
