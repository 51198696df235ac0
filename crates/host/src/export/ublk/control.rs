//! Commands to the driver, over an io_uring of their own: they wait, which the engine must not, and
//! need longer entries than its ring has.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use braid_array::Refusal;
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::io::Errno;

use super::command::{
    COMMAND_BYTES, DeviceInfo, FEATURES, FEATURES_BYTES, INFO_BYTES, UPDATE_SIZE, UblkCommand,
};
use crate::system::describe;

const PATH: &str = "/dev/ublk-control";
/// Limit on commands in flight.
const ENTRIES: u32 = 8;
/// Limit on the data of a command.
const MOST_BYTES: usize = INFO_BYTES;
const OTHER_WAYS: &str = "or export fuse:MOUNTPOINT, of which losetup makes a block device";

/// The driver.
pub(super) struct Control {
    file: File,
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    /// All features that it has.
    features: u64,
    next: u64,
}

/// Names a command that was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket(u64);

/// A command that has ended, and how.
type EndedCommand = (Ticket, Result<(), Errno>);

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").finish_non_exhaustive()
    }
}

impl Control {
    /// Opens it, if it is one that has all that our devices need.
    ///
    /// # Errors
    /// The missing feature, and its source.
    pub(super) fn open() -> Result<Self, Refusal> {
        let file = File::options().read(true).write(true).open(PATH).map_err(|e| absent(&e))?;
        let ring = IoUring::builder().build(ENTRIES).map_err(|error| {
            let reason = format!("ublk needs io_uring, which the system refuses: {error}");
            Refusal::new(reason, "see the sysctl kernel.io_uring_disabled")
        })?;
        let mut control = Self { file, ring, features: 0, next: 0 };
        let mut features = [0; FEATURES_BYTES];
        let old = || Refusal::new("the ublk of this kernel is too old", "use Linux 6.5 or newer");
        match control.call(UblkCommand::Features, 0, &mut features) {
            Ok(()) => {}
            Err(Errno::PERM | Errno::ACCESS) => return Err(not_root()),
            Err(_) => return Err(old()),
        }
        #[expect(clippy::host_endian_bytes, reason = "kernel and program are on one machine")]
        let features = u64::from_ne_bytes(features);
        control.features = features;
        if features & FEATURES == FEATURES { Ok(control) } else { Err(old()) }
    }

    /// Returns whether a disk can get another size while it is used.
    pub(super) const fn can_resize(&self) -> bool {
        self.features & UPDATE_SIZE != 0
    }

    /// Returns the description of a device; `None` when there is none of this number.
    pub(super) fn info(&mut self, device: u32) -> Result<Option<DeviceInfo>, Errno> {
        let mut bytes = [0; INFO_BYTES];
        match self.call(UblkCommand::Info, device, &mut bytes) {
            Ok(()) => Ok(Some(DeviceInfo::decode(&bytes))),
            Err(Errno::NODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Carries a command out, with its data in `bytes`.
    pub(super) fn call(
        &mut self,
        command: UblkCommand,
        device: u32,
        bytes: &mut [u8],
    ) -> Result<(), Errno> {
        let mut carried = Box::new([0; MOST_BYTES]);
        carried[..bytes.len()].copy_from_slice(bytes);
        let address = carried.as_mut_ptr() as u64;
        let ticket = self.push_command(command.encode(device, address, bytes.len()), command)?;
        let ended = self.wait(&[ticket], None);
        let Ok(Some((_, result))) = ended else {
            // The kernel may still use it.
            std::mem::forget(carried);
            return Err(ended.err().unwrap_or(Errno::IO));
        };
        bytes.copy_from_slice(&carried[..bytes.len()]);
        result
    }

    /// Begins a command that carries nothing.
    pub(super) fn begin(&mut self, command: UblkCommand, device: u32) -> Result<Ticket, Errno> {
        self.push_command(command.encode(device, 0, 0), command)
    }

    /// Begins to wait until an eventfd can be read.
    pub(super) fn watch(&mut self, eventfd: &OwnedFd) -> Result<Ticket, Errno> {
        let readable = u32::from(libc::POLLIN.cast_unsigned());
        self.push(opcode::PollAdd::new(Fd(eventfd.as_raw_fd()), readable).build().into())
    }

    /// Ends a command that waits.
    pub(super) fn cancel(&mut self, Ticket(name): Ticket) -> Result<(), Errno> {
        self.push(opcode::AsyncCancel::new(name).build().into()).map(drop)
    }

    /// Waits until one of these has ended, at most for so long. Others that end meanwhile are
    /// forgotten.
    pub(super) fn wait(
        &mut self,
        tickets: &[Ticket],
        limit: Option<Duration>,
    ) -> Result<Option<EndedCommand>, Errno> {
        let begun = Instant::now();
        loop {
            let ended = self.ring.completion().find_map(|entry| {
                let ticket = Ticket(entry.user_data());
                let result = match entry.result() {
                    0.. => Ok(()),
                    errno => Err(Errno::from_raw_os_error(-errno)),
                };
                tickets.contains(&ticket).then_some((ticket, result))
            });
            if ended.is_some() {
                return Ok(ended);
            }
            let left = limit.map(|limit| limit.saturating_sub(begun.elapsed()));
            if left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            let limit = Timespec::from(left.unwrap_or(Duration::from_secs(3600)));
            let arguments = SubmitArgs::new().timespec(&limit);
            match self.ring.submitter().submit_with_args(1, &arguments) {
                Ok(_) => {}
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(errno(&error)),
            }
        }
    }

    fn push_command(
        &mut self,
        encoded: [u8; COMMAND_BYTES],
        command: UblkCommand,
    ) -> Result<Ticket, Errno> {
        let mut bytes = [0; 80];
        bytes[..COMMAND_BYTES].copy_from_slice(&encoded);
        let fd = Fd(self.file.as_raw_fd());
        self.push(opcode::UringCmd80::new(fd, command.code()).cmd(bytes).build())
    }

    fn push(&mut self, entry: squeue::Entry128) -> Result<Ticket, Errno> {
        self.next += 1;
        let entry = entry.user_data(self.next);
        // SAFETY: the files are open as long as this; what a command carries stays until its end,
        // or for good.
        unsafe { self.ring.submission().push(&entry) }.map_err(|_| Errno::BUSY)?;
        self.ring.submit().map_err(|error| errno(&error))?;
        Ok(Ticket(self.next))
    }
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN))
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

fn absent(error: &io::Error) -> Refusal {
    match error.kind() {
        io::ErrorKind::NotFound => Refusal::new(
            format!("this kernel has no ublk: there is no {PATH}"),
            format!("try modprobe ublk_drv (Linux 6.5 or newer), {OTHER_WAYS}"),
        ),
        io::ErrorKind::PermissionDenied => not_root(),
        _ => Refusal::new(
            format!("{PATH} cannot be opened: {}", describe(error)),
            format!("see whether ublk_drv is loaded, {OTHER_WAYS}"),
        ),
    }
}

fn not_root() -> Refusal {
    Refusal::new("only root may make block devices", format!("run as root, {OTHER_WAYS}"))
}
