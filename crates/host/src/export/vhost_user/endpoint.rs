//! The engine's side of one front end: the rings that are served, and their requests in flight.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use braid_array::{Request, RequestError};

use super::chain::BrokenChain;
use super::device::{ExportedDevice, MAX_RINGS};
use super::endpoint_messages::{EndpointMessage, OpenedRing};
use super::jobs::{FinishedRequest, RequestOrigin, VhostJobs, tell};
use super::request::{BlockOperation, Status, VirtioRequest, copy_in};
use super::ring::VirtioRing;
use super::windows::Windows;
use crate::engine::core::Core;
use crate::token::ExportId;
use crate::users::User;

/// Channel for the position of a ring once it is stopped.
type Stopping = Option<SyncSender<u16>>;

/// A ring that is served.
#[derive(Debug)]
struct Seat {
    ring: VirtioRing,
    kick: Arc<OwnedFd>,
    call: Option<File>,
    error: Option<File>,
    enabled: bool,
    flushes: bool,
    /// A request was answered since the guest was last signalled.
    answered: bool,
    /// A signal is due in any case: the guest may wait for answers of a previous server.
    owed: bool,
    /// Set when the ring is to stop; nothing is taken any more.
    stopping: Stopping,
}

/// A watch that the engine begins or ends for an endpoint.
#[derive(Debug)]
pub(super) enum Watch {
    /// Watch this for a ring.
    Begin { ring: usize, kick: Arc<OwnedFd> },
    /// Watch nothing for a ring any more.
    End { ring: usize },
}

/// The rings of a front end.
#[derive(Debug)]
pub(super) struct VhostEndpoint {
    export: ExportId,
    client: usize,
    device: Arc<ExportedDevice>,
    seats: Vec<Option<Seat>>,
    /// Windows on the memory in which requests lie now.
    windows: Arc<Windows>,
    /// Requests, from the first ring on.
    jobs: Option<VhostJobs>,
    user: Option<User>,
    /// The front end has gone, and its thread waits for the rest to end.
    gone: Option<SyncSender<()>>,
    /// Set while nothing is taken.
    held: bool,
    /// Set when nothing more is taken.
    closed: bool,
}

impl VhostEndpoint {
    pub(super) fn new(export: ExportId, client: usize, device: Arc<ExportedDevice>) -> Self {
        let seats = (0..MAX_RINGS).map(|_| None).collect();
        Self {
            export,
            client,
            device,
            seats,
            windows: Arc::default(),
            jobs: None,
            user: None,
            gone: None,
            held: false,
            closed: false,
        }
    }

    /// Returns the connected user.
    pub(super) const fn user(&self) -> Option<&User> {
        self.user.as_ref()
    }

    /// Handles a message of the front end.
    pub(super) fn hear(
        &mut self,
        core: &mut Core,
        message: EndpointMessage,
        watches: &mut Vec<Watch>,
    ) {
        match message {
            EndpointMessage::Here(user) => self.user = Some(user),
            EndpointMessage::Memory(guest) => {
                self.windows = Arc::new(Windows::of(core.arena.memory(), &guest));
                for seat in self.seats.iter_mut().flatten() {
                    if let Err(broken) = seat.ring.move_to(Arc::clone(&guest)) {
                        seat.give_up(&self.device, broken);
                    }
                }
            }
            EndpointMessage::Start { ring, opened } => self.start(core, ring, *opened, watches),
            EndpointMessage::Enable { ring, on } => {
                if let Some(seat) = &mut self.seats[ring] {
                    seat.enabled = on;
                }
            }
            EndpointMessage::Call { ring, call } => {
                if let Some(seat) = &mut self.seats[ring] {
                    seat.call = call;
                    seat.owed = true;
                }
            }
            EndpointMessage::Stop { ring, done } => {
                if let Some(seat) = &mut self.seats[ring] {
                    seat.stopping = Some(done);
                    watches.push(Watch::End { ring });
                }
            }
            EndpointMessage::Gone { done } => {
                let served = (0..MAX_RINGS).filter(|ring| self.seats[*ring].is_some());
                watches.extend(served.map(|ring| Watch::End { ring }));
                self.gone = Some(done);
            }
        }
    }

    fn start(
        &mut self,
        core: &mut Core,
        ring: usize,
        opened: OpenedRing,
        watches: &mut Vec<Watch>,
    ) {
        if self.jobs.is_none() {
            let name = (self.export, self.client);
            let holder = core.arena.admit();
            self.jobs = holder.map(|holder| VhostJobs::new(name, holder));
        }
        if self.jobs.is_none() {
            tracing::warn!(array = self.device.name, "vhost-user: too many use the array");
            return;
        }
        let OpenedRing { ring: served, kick, call, error, enabled, flushes } = opened;
        let kick = Arc::new(kick);
        watches.push(Watch::Begin { ring, kick: Arc::clone(&kick) });
        self.seats[ring] = Some(Seat {
            ring: served,
            kick,
            call,
            error,
            enabled,
            flushes,
            answered: false,
            owed: true,
            stopping: None,
        });
    }

    /// Notes that a ring may have new requests. `work` takes them with the rest. Returns the
    /// descriptor to watch now.
    pub(super) fn kicked(&self, ring: usize) -> Option<Arc<OwnedFd>> {
        let seat = self.seats[ring].as_ref()?;
        let _ = rustix::io::read(seat.kick.as_fd(), &mut [0; 8]);
        Some(Arc::clone(&seat.kick))
    }

    /// Takes all new requests, and answers those that are over.
    pub(super) fn work(&mut self, core: &mut Core) {
        if let Some(jobs) = &mut self.jobs {
            jobs.work(core);
        }
        self.answer_all();
        if !self.held && !self.closed && self.gone.is_none() {
            for ring in 0..MAX_RINGS {
                self.take(core, ring);
            }
            self.answer_all();
        }
        self.end_what_is_over(core);
    }

    /// Takes all that has come on a ring.
    fn take(&mut self, core: &mut Core, index: usize) {
        let Some(seat) = &mut self.seats[index] else { return };
        let Some(jobs) = &mut self.jobs else { return };
        if !seat.enabled || seat.stopping.is_some() {
            return;
        }
        let limits = self.device.limits();
        loop {
            match seat.ring.next(&limits) {
                Ok(Some((head, VirtioRequest { status, ask }))) => {
                    let guest = Arc::clone(seat.ring.guest());
                    let windows = Arc::clone(&self.windows);
                    let origin = RequestOrigin { ring: index, head, guest, windows, status };
                    match ask {
                        Ok(BlockOperation::Id { into }) => {
                            let id = self.device.id();
                            let room = super::chain::bytes(&into).min(id.len() as u64);
                            let id = &id[..room as usize];
                            let told = copy_in(&origin.guest, &into, 0, id);
                            let status = told.map_or(Status::IoError, |()| Status::Ok);
                            seat.answer(&self.device, tell(&origin, status, room));
                        }
                        Ok(ask) => jobs.begin(core, origin, ask, seat.flushes),
                        Err(status) => seat.answer(&self.device, tell(&origin, status, 0)),
                    }
                }
                Ok(None) => match seat.ring.listen() {
                    Ok(true) => {}
                    Ok(false) => return,
                    Err(broken) => return seat.give_up(&self.device, broken),
                },
                Err(broken) => return seat.give_up(&self.device, broken),
            }
        }
    }

    /// A request to the array is done.
    pub(super) fn completed(
        &mut self,
        core: &mut Core,
        job: usize,
        request: &Request,
        result: Result<(), RequestError>,
    ) {
        let jobs = self.jobs.as_mut().expect("whoever asks has jobs");
        jobs.completed(core, job, request, result);
    }

    fn answer_all(&mut self) {
        while let Some(finished) = self.jobs.as_mut().and_then(VhostJobs::next_finished) {
            if let Some(seat) = &mut self.seats[finished.ring] {
                seat.answer(&self.device, finished);
            }
        }
    }

    /// Signals the guest once for all answers.
    pub(super) fn flush(&mut self) {
        self.seats.iter_mut().flatten().for_each(Seat::tell);
    }

    /// Lets go of rings that are to stop, and of the front end, when nothing of it is left.
    fn end_what_is_over(&mut self, core: &mut Core) {
        for slot in &mut self.seats {
            let over = |seat: &mut Seat| seat.stopping.is_some() && seat.ring.under_way() == 0;
            let Some(mut seat) = slot.take_if(over) else { continue };
            seat.tell();
            if let Some(done) = seat.stopping {
                // Nobody hears it when the front end has gone meanwhile.
                let _ = done.send(seat.ring.base());
            }
        }
        if self.gone.is_some() && self.is_over() {
            self.end(core);
            self.user = None;
            if let Some(done) = self.gone.take() {
                // Nobody hears it when the thread has ended.
                let _ = done.send(());
            }
        }
    }

    /// Returns whether nothing that was taken is in flight.
    pub(super) fn is_over(&self) -> bool {
        self.jobs.as_ref().is_none_or(VhostJobs::is_empty)
    }

    /// Lets go of all rings, and gives the memory of requests back.
    pub(super) fn end(&mut self, core: &mut Core) {
        self.seats.iter_mut().for_each(|seat| *seat = None);
        self.windows = Arc::default();
        let jobs = self.jobs.take();
        jobs.into_iter().for_each(|jobs| core.arena.release_holder(jobs.into_holder()));
    }

    /// Takes nothing, or goes on.
    pub(super) const fn hold(&mut self, held: bool) {
        self.held = held;
    }

    /// Takes nothing more.
    pub(super) const fn close(&mut self) {
        self.closed = true;
    }
}

impl Seat {
    fn answer(&mut self, device: &ExportedDevice, finished: FinishedRequest) {
        self.answered = true;
        if let Err(broken) = self.ring.answered(finished.head, finished.written) {
            self.give_up(device, broken);
        }
    }

    /// Signals the guest after answers, if it wants that.
    fn tell(&mut self) {
        let wanted = std::mem::take(&mut self.answered) && self.ring.wants_call();
        if std::mem::take(&mut self.owed) || wanted {
            self.call.iter().for_each(signal);
        }
    }

    /// Reports a broken ring to the front end, which may set it up again. Nothing more is taken of
    /// it.
    fn give_up(&self, device: &ExportedDevice, broken: BrokenChain) {
        tracing::warn!(array = device.name, "vhost-user: a ring is not served any more: {broken}");
        self.error.iter().for_each(signal);
    }
}

/// Signals an eventfd of the front end's.
fn signal(eventfd: &File) {
    #[expect(clippy::host_endian_bytes, reason = "an eventfd counts in the host's byte order")]
    let one = 1u64.to_ne_bytes();
    let _ = rustix::io::write(eventfd, &one);
}
