//! A device on the side of its owner: from its first command to the last.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use braid_array::refusal::Next;
use braid_array::{Refusal, Request, SECTOR_BYTES};
use rustix::event::EventfdFlags;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::command::{DeviceInfo, DeviceState, FEATURES, Parameters, UblkCommand, sectors_of};
use super::control::{Control, Ticket};
use super::plan::{Choice, choose, mark};
use super::proto::Shape;
use super::resize::resize;
use super::server::UblkServer;
use super::table::DescriptorTable;
use crate::engine::array_size::ArraySize;
use crate::lock::LockedFile;
use crate::system::describe;
use crate::users::{self, User};

/// Requests of a device that are under way at most.
const DEPTH: u16 = 128;
/// Requests that the kernel gives out: one command always waits for a request. By commands that
/// wait it notices at once that a server is gone; without any that takes as long as [`GONE_LOOKS`].
const MOST_REQUESTS: u16 = DEPTH - 1;
/// Time in which the kernel has to close a device.
const PATIENCE: Duration = Duration::from_secs(10);
/// Looks at a device whose server is another process, which may be about to end. They are counted,
/// not timed: where the whole machine stands still the clock goes on, and nothing else does.
const LOOKS: u32 = 500;
/// Looks at a device whose server is gone. Where the server had a request of every tag the kernel
/// notices that by one which is not answered for 30 s.
const GONE_LOOKS: u32 = 2250;
/// Time to wait for the end of a device that only its users can bring about.
const FAREWELL: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Settings of a block device.
#[derive(Debug)]
pub(crate) struct UblkSetup {
    /// N of `/dev/ublkbN`; one that is free otherwise.
    pub(crate) number: Option<u32>,
    /// UUID of the array that it belongs to.
    pub(crate) uuid: [u8; 16],
    pub(crate) size: ArraySize,
    /// Requests are multiples of this, a power of two.
    pub(crate) block_bytes: u32,
    /// Bytes on one member before the next, and in a stripe without its parity; 0 without stripes.
    pub(crate) chunk_bytes: u64,
    pub(crate) stripe_bytes: u64,
    pub(crate) read_only: bool,
}

/// Stage of a device. The stage determines the steps when this is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeviceStage {
    /// No disk yet.
    Made,
    /// Its disk waits for us.
    Recovering,
    /// Its disk is served.
    Live,
    /// Its disk is being taken away.
    Ending(Ticket),
    /// No disk any more.
    Ended,
}

/// A block device. Order of calls: [`make`], then the engine is given its server and runs,
/// [`start`](Self::start), and [`stop`](Self::stop) while the engine runs. When this is dropped, by
/// then after the engine, the device goes; but one that has a disk is left to the next server, and
/// users of the disk wait for that.
#[derive(Debug)]
pub(crate) struct UblkDevice {
    control: Control,
    number: u32,
    /// Size of its disk, and that of the array with its blocks.
    sectors: u64,
    size: ArraySize,
    block_bytes: u32,
    stage: DeviceStage,
    /// Signalled by the server when it cannot serve.
    failed: Arc<OwnedFd>,
}

/// Checks that the kernel has ublk, with all that our devices need, and lets this user have it.
///
/// # Errors
/// The missing feature, and its source.
pub(crate) fn check_driver() -> Result<(), Refusal> {
    Control::open().map(drop)
}

/// Makes a device, or takes over one of the array whose server is gone. Nothing is served yet.
///
/// # Errors
/// When there is no ublk, its user may not use it, or the device belongs to another array.
pub(crate) fn make(setup: &UblkSetup) -> Result<(UblkDevice, UblkServer), Refusal> {
    let control = Control::open()?;
    let failed = rustix::event::eventfd(0, EventfdFlags::CLOEXEC);
    let failed = Arc::new(failed.map_err(|error| refused("make an eventfd", error))?);
    let parameters = setup.parameters();
    let (mut device, info) = find(control, setup, failed)?;
    match device.stage {
        DeviceStage::Recovering => device.take_over(&info, &parameters)?,
        _ => device.describe(&parameters)?,
    }
    let path = format!("/dev/ublkc{}", device.number);
    let file = File::options().read(true).write(true).open(&path).map_err(|error| {
        let reason = format!("{path} cannot be opened: {}", describe(&error));
        Refusal::new(reason, "see whether devtmpfs is mounted on /dev, and who has it open")
    })?;
    let table = DescriptorTable::of(&file, info.depth)
        .map_err(|e| refused("share its table of requests", e))?;
    let shape = Shape {
        size_bytes: parameters.sectors * SECTOR_BYTES,
        block_bytes: setup.block_bytes,
        most_bytes: Request::MAX_BYTES,
    };
    let failed = Arc::clone(&device.failed);
    let server = UblkServer::new(device.number, LockedFile::from(file), table, shape, failed);
    Ok((device, server))
}

/// Makes a new device, or chooses one whose disk waits for a server.
fn find(
    mut control: Control,
    setup: &UblkSetup,
    failed: Arc<OwnedFd>,
) -> Result<(UblkDevice, DeviceInfo), Refusal> {
    let mark = mark(&setup.uuid);
    let mut looks = 0;
    let (info, stage) = loop {
        let found = devices(&mut control);
        match choose(setup.number, mark, &found)? {
            Choice::Clear(number) => delete(&mut control, number)
                .map_err(|error| refused("take a dead device away", error))?,
            Choice::Wait(info) => {
                let most = if has_server(&info) { LOOKS } else { GONE_LOOKS };
                if looks >= most {
                    return Err(served(&info));
                }
                looks += 1;
                thread::sleep(LOOK_AGAIN);
            }
            Choice::Recover(info) => break (info, DeviceStage::Recovering),
            Choice::Add(number) => {
                let mut bytes = new(number, mark).encode();
                let made = control.call(UblkCommand::Add, number, &mut bytes);
                made.map_err(|error| refused("make a device", error))?;
                break (DeviceInfo::decode(&bytes), DeviceStage::Made);
            }
        }
    };
    let device = UblkDevice {
        control,
        number: info.device,
        sectors: 0,
        size: setup.size.clone(),
        block_bytes: setup.block_bytes,
        stage,
        failed,
    };
    Ok((device, info))
}

const fn new(number: u32, mark: u64) -> DeviceInfo {
    DeviceInfo {
        queues: 1,
        depth: DEPTH,
        state: DeviceState::Dead,
        most_bytes: Request::MAX_BYTES,
        device: number,
        pid: -1,
        features: FEATURES,
        mark,
    }
}

impl UblkDevice {
    /// N of `/dev/ublkbN`.
    pub(crate) const fn number(&self) -> u32 {
        self.number
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/ublkb{}", self.number))
    }

    /// Sets the parameters of the future disk.
    fn describe(&mut self, parameters: &Parameters) -> Result<(), Refusal> {
        let mut bytes = parameters.encode();
        self.sectors = parameters.sectors;
        let set = self.control.call(UblkCommand::SetParameters, self.number, &mut bytes);
        set.map_err(|error| refused("set what the disk is like", error))
    }

    /// Takes the place of a server that is gone.
    fn take_over(&mut self, info: &DeviceInfo, parameters: &Parameters) -> Result<(), Refusal> {
        let mut bytes = parameters.encode();
        let told = self.control.call(UblkCommand::Parameters, self.number, &mut bytes);
        told.map_err(|error| refused("tell what the disk is like", error))?;
        if info.most_bytes > Request::MAX_BYTES || !parameters.serve(&bytes) {
            let reason = format!("users wait at {} for another disk", self.path().display());
            let next = "serve the array as it was then, or end them and delete the device";
            return Err(Refusal::new(reason, next));
        }
        self.sectors = sectors_of(&bytes);
        for looks in 0.. {
            match self.control.call(UblkCommand::StartRecovery, self.number, &mut []) {
                // The process that is gone has the device until its last thread is.
                Err(Errno::BUSY) if looks < GONE_LOOKS => thread::sleep(LOOK_AGAIN),
                // A server that took it over has not come to the end of that.
                Ok(()) | Err(Errno::INVAL) => break,
                Err(error) => return Err(refused("take the disk over", error)),
            }
        }
        Ok(())
    }

    /// Lets the disk be used. The engine must run: the kernel waits for it, and reads the beginning
    /// of a new disk.
    ///
    /// # Errors
    /// The kernel refuses, or the engine cannot serve.
    pub(crate) fn start(&mut self) -> Result<(), Refusal> {
        let pid = std::process::id();
        let command = match self.stage {
            DeviceStage::Recovering => UblkCommand::EndRecovery { pid },
            _ => UblkCommand::Start { pid },
        };
        let Self { control, number, failed, .. } = self;
        let mut run = || {
            let watched = control.watch(failed)?;
            let begun = control.begin(command, *number)?;
            if let Some((first, result)) = control.wait(&[watched, begun], None)?
                && first == begun
            {
                return result;
            }
            control.cancel(begun)?;
            control.wait(&[begun], Some(PATIENCE))?;
            Err(Errno::NOSYS)
        };
        match run() {
            Ok(()) => {
                if self.stage == DeviceStage::Made {
                    self.limit_requests();
                }
                self.stage = DeviceStage::Live;
                self.follow_array();
                Ok(())
            }
            Err(Errno::NOSYS) => {
                let reason = "the array's own io_uring cannot take requests of ublk";
                Err(Refusal::new(reason, "see the sysctl kernel.io_uring_disabled"))
            }
            Err(error) => Err(refused("start the disk", error)),
        }
    }

    /// Has the kernel never give out requests of all tags. A disk that is taken over has that from
    /// its first server; its requests, which the kernel would wait for, may be held by now.
    fn limit_requests(&self) {
        let path = format!("/sys/block/ublkb{}/queue/nr_requests", self.number);
        if let Err(error) = fs::write(&path, MOST_REQUESTS.to_string()) {
            tracing::warn!("{path} stays as it is: {}", describe(&error));
        }
    }

    /// Gives a disk the array's size that it was made without: the array has grown since.
    fn follow_array(&mut self) {
        let sectors = self.size.in_blocks(self.block_bytes) / SECTOR_BYTES;
        if sectors != self.sectors {
            resize(&mut self.control, self.number, sectors);
        }
    }

    /// Returns the users of the disk.
    pub(crate) fn users(&self) -> Vec<User> {
        users::of_device(&format!("ublkb{}", self.number))
    }

    /// Takes the disk away, after all requests are answered; with `force` also while it is in use,
    /// and its users get errors. Where requests do not end by themselves, the removal goes on until
    /// the end of the engine answers them.
    ///
    /// # Errors
    /// When the disk is in use; it is served on.
    pub(crate) fn stop(&mut self, force: bool) -> Result<(), Refusal> {
        if self.stage == DeviceStage::Recovering {
            // Its users go on waiting.
            return Ok(());
        }
        let mut claim = None;
        if self.stage == DeviceStage::Live && !force {
            // Whoever is in a mount namespace of their own is seen by nothing else, and nobody can
            // mount it from now on.
            let flags = OFlags::EXCL | OFlags::CLOEXEC;
            let claimed = rustix::fs::open(self.path(), flags, Mode::empty());
            if matches!(claimed, Err(Errno::BUSY)) {
                let reason = format!("{} is in use by {}", self.path().display(), User::Unseen);
                return Err(Refusal::new(reason, "look for who has it mounted"));
            }
            claim = claimed.ok();
        }
        let begun = self.control.begin(UblkCommand::Stop, self.number);
        let begun = begun.map_err(|error| refused("take the disk away", error))?;
        self.stage = DeviceStage::Ending(begun);
        self.await_end();
        drop(claim);
        Ok(())
    }

    fn await_end(&mut self) {
        if let DeviceStage::Ending(ticket) = self.stage
            && let Ok(Some(_)) = self.control.wait(&[ticket], Some(PATIENCE))
        {
            self.stage = DeviceStage::Ended;
        }
    }
}

impl Drop for UblkDevice {
    fn drop(&mut self) {
        self.await_end();
        match self.stage {
            DeviceStage::Recovering | DeviceStage::Live => {}
            DeviceStage::Made | DeviceStage::Ending(_) | DeviceStage::Ended => {
                if let Err(error) = delete(&mut self.control, self.number) {
                    tracing::warn!("{} stays: {error}", self.path().display());
                }
            }
        }
    }
}

impl UblkSetup {
    fn parameters(&self) -> Parameters {
        let logical_shift = self.block_bytes.trailing_zeros() as u8;
        // What almost all disks write without reading.
        let physical_shift = logical_shift.max(12);
        // The kernel takes powers of two only: the largest of which chunk or stripe is a multiple.
        let part_of = |bytes: u64| (bytes.trailing_zeros().min(30) as u8).max(physical_shift);
        let striped = self.chunk_bytes > 0;
        Parameters {
            read_only: self.read_only,
            sectors: self.size.in_blocks(self.block_bytes) / SECTOR_BYTES,
            logical_shift,
            physical_shift,
            shortest_shift: if striped { part_of(self.chunk_bytes) } else { physical_shift },
            best_shift: if striped { part_of(self.stripe_bytes) } else { physical_shift },
            most_sectors: Request::MAX_BYTES / SECTOR_BYTES as u32,
            discard_bytes: 1 << physical_shift,
            most_discard_sectors: u32::MAX / SECTOR_BYTES as u32,
        }
    }
}

/// All devices there are.
fn devices(control: &mut Control) -> Vec<DeviceInfo> {
    let entries = fs::read_dir("/sys/class/ublk-char").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let numbers = names.filter_map(|name| name.strip_prefix("ublkc")?.parse().ok());
    numbers.filter_map(|number| control.info(number).ok().flatten()).collect()
}

/// Takes a device away. While it is still open, the kernel defers the removal.
fn delete(control: &mut Control, number: u32) -> Result<(), Errno> {
    let ticket = control.begin(UblkCommand::Delete, number)?;
    match control.wait(&[ticket], Some(FAREWELL))? {
        Some((_, result)) => result,
        None => Err(Errno::BUSY),
    }
}

/// Returns whether a device is served by another process that is there. One that this process has
/// taken the place of is not.
fn has_server(info: &DeviceInfo) -> bool {
    let pid = info.pid.cast_unsigned();
    // One that has ended, and is not waited for by its parent, has no program.
    pid != std::process::id() && fs::read_link(format!("/proc/{pid}/exe")).is_ok()
}

fn served(info: &DeviceInfo) -> Refusal {
    let device = format!("/dev/ublkb{}", info.device);
    if has_server(info) {
        let server = users::Process::of(info.pid.cast_unsigned());
        let reason = format!("{device} of the array is served by {server}");
        return Refusal::new(reason, Next::from("stop that one"));
    }
    let reason = format!("the kernel does not let go of {device}, whose server is gone");
    Refusal::new(reason, "see the kernel's log, and try again")
}

fn refused(what: &str, errno: Errno) -> Refusal {
    let reason = format!("ublk refuses to {what}: {}", describe(&io::Error::from(errno)));
    Refusal::new(reason, "see the kernel's log")
}
