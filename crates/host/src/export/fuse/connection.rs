//! The kernel's side of one mount: requests are taken off the device, as many at a time as come.
//!
//! Each taking needs room for the longest request there is, so few are under way. While nothing is
//! asked there is none: then the device is only watched, and that costs no memory.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use braid_array::{Buf, Instant};
use rustix::io::Errno;

use super::mount_table::NewMount;
use super::proto::{FuseRequest, HEAD_BYTES};
use super::tree::Tree;
use crate::arena::LANDINGS;
use crate::driver::Op;
use crate::engine::core::Core;
use crate::handover::{Handover, What};
use crate::token::{ExportId, ExportToken, Token};

/// Takings under way at most. Each request that comes wakes all of them.
pub(super) const READERS: usize = 8;
/// Between the beginnings of heads.
const HEAD_STRIDE: u32 = HEAD_BYTES.next_power_of_two() as u32;
/// Heads of so many mounts lie in one input buffer.
pub(crate) const MAX_MOUNTS: usize = 16;
/// Time without a request after which taking stops.
const QUIET_MILLIS: u64 = 1000;

/// Kinds of its tokens.
pub(super) const WATCH: u8 = 0;
pub(super) const READER: u8 = 1;

/// A taking.
#[derive(Debug)]
struct DeviceReader {
    head: Buf,
    /// Buffer for the rest, while the taking is in flight.
    landing: Option<Buf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MountState {
    /// The device is watched.
    Watching,
    /// Requests are taken.
    Taking,
    /// Takings are given up, to watch again.
    Ebbing,
    /// Unmounted, or not to be served any more.
    Over,
}

/// A mount: its device, the file system, and the takings, which are reads of the device. The device
/// is watched from [`start`](Self::start) on; when it is [`readable`](Self::readable) requests are
/// taken, each [`took`](Self::took) brings one, and [`arm`](Self::arm) begins new takings after
/// every turn.
#[derive(Debug)]
pub(super) struct MountConnection {
    export: ExportId,
    index: usize,
    pub(super) device: Arc<OwnedFd>,
    pub(super) tree: Tree,
    mountpoint: PathBuf,
    readers: Vec<DeviceReader>,
    state: MountState,
    /// Landings it has, those of requests under way included.
    pub(super) landings: u32,
    /// Time at which it counts as quiet, unless a request comes.
    quiet_at: Instant,
}

impl MountConnection {
    /// Heads go into a part of `heads` that is its own.
    pub(super) fn new((export, index): (ExportId, usize), mounted: NewMount, heads: Buf) -> Self {
        let NewMount { device, tree, mountpoint } = mounted;
        let first = (index * READERS) as u32;
        let head = |number| heads.slice((first + number) * HEAD_STRIDE, HEAD_BYTES as u32);
        let readers =
            (0..READERS as u32).map(|number| DeviceReader { head: head(number), landing: None });
        Self {
            export,
            index,
            device: Arc::new(device),
            tree,
            mountpoint,
            readers: readers.collect(),
            state: MountState::Over,
            landings: 0,
            quiet_at: Instant::default(),
        }
    }

    /// Watches the device.
    pub(super) fn start(&mut self, core: &mut Core) {
        self.state = MountState::Watching;
        core.driver.start(self.token(WATCH, 0), Op::Readable { file: Arc::clone(&self.device) });
    }

    /// Begins to take requests, as the device is readable or at its end.
    pub(super) fn readable(&mut self, core: &Core) {
        if self.state == MountState::Watching {
            self.state = MountState::Taking;
            self.quiet_at = core.now.plus_millis(QUIET_MILLIS);
        }
    }

    /// Starts takings, nearly twice as many as there are requests in flight. A user of one request
    /// at a time needs one taking, and each further one would be woken for nothing.
    pub(super) fn arm(&mut self, core: &mut Core, under_way: usize) {
        if self.state != MountState::Taking {
            return;
        }
        let most = (2 * under_way).saturating_sub(1).clamp(1, READERS);
        for number in 0..READERS {
            if self.armed() >= most || self.landings >= LANDINGS {
                return;
            }
            if self.readers[number].landing.is_none() {
                let Some(landing) = core.arena.allocate_landing() else { return };
                self.landings += 1;
                let reader = &mut self.readers[number];
                reader.landing = Some(landing);
                let bufs = [reader.head, landing];
                let device = Arc::clone(&self.device);
                core.driver.start(self.token(READER, number), Op::Take { device, bufs });
            }
        }
    }

    fn armed(&self) -> usize {
        self.readers.iter().filter(|reader| reader.landing.is_some()).count()
    }

    /// Ends a taking. Returns the request and the buffer in which it landed, which the caller gives
    /// back. `None` when nothing came.
    pub(super) fn took(
        &mut self,
        core: &mut Core,
        number: usize,
        result: Result<u32, Errno>,
    ) -> Option<(FuseRequest, Buf)> {
        let DeviceReader { head, landing } = &mut self.readers[number];
        let head = *head;
        let landing = landing.take().expect("a taking has room to land");
        let request = match result {
            Ok(len) => {
                self.quiet_at = core.now.plus_millis(QUIET_MILLIS);
                let first = len.min(HEAD_BYTES as u32);
                let memory = core.arena.memory();
                // SAFETY: the taking has ended, so both are this mount's alone.
                let (first, rest) = unsafe {
                    (
                        memory.bytes(head.slice(0, first)),
                        memory.bytes(landing.slice(0, len - first)),
                    )
                };
                FuseRequest::decode(first, rest)
            }
            // What was to be taken has been taken back.
            Err(Errno::NOENT | Errno::CANCELED) => None,
            Err(_) => {
                self.state = MountState::Over;
                None
            }
        };
        if request.is_none() {
            self.give_back(core, landing);
        }
        if self.state == MountState::Ebbing && self.armed() == 0 {
            self.start(core);
        }
        request.map(|request| (request, landing))
    }

    /// Returns whether no taking is in flight and no landing is in use.
    pub(super) fn is_idle(&self) -> bool {
        self.armed() == 0 && self.landings == 0
    }

    /// Takes back where a request landed.
    pub(super) fn give_back(&mut self, core: &mut Core, landing: Buf) {
        self.landings -= 1;
        core.arena.release_landing(landing);
    }

    /// Returns the time of the next check for quiet.
    pub(super) fn deadline(&self) -> Option<Instant> {
        if self.state == MountState::Taking { Some(self.quiet_at) } else { None }
    }

    /// Gives takings up when nothing has come for a while.
    pub(super) fn tick(&mut self, core: &mut Core) {
        if self.state != MountState::Taking || self.quiet_at > core.now {
            return;
        }
        if self.armed() == 0 {
            // All it may have is in use, or nothing came at all.
            return self.start(core);
        }
        self.state = MountState::Ebbing;
        self.cancel(core);
    }

    /// Gives the device to the process that comes after this one.
    pub(super) fn hand_over(&self, to: &mut Handover) -> io::Result<()> {
        to.give(What::Mount(self.mountpoint.clone()), self.device.try_clone()?);
        Ok(())
    }

    /// Takes no more, unless it is started again.
    pub(super) fn close(&mut self, core: &mut Core) {
        self.state = MountState::Over;
        core.driver.cancel(self.token(WATCH, 0));
        self.cancel(core);
    }

    fn cancel(&self, core: &mut Core) {
        for number in 0..READERS {
            if self.readers[number].landing.is_some() {
                core.driver.cancel(self.token(READER, number));
            }
        }
    }

    const fn token(&self, kind: u8, number: usize) -> Token {
        let index = self.index * READERS + number;
        Token::Export(self.export, ExportToken { kind, index })
    }
}
