//! One end of a connection: puts and messages to one peer and from it.

use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use braid_array::Buf;

use super::domain::{Domain, RegisteredRegion, RemoteRegion, close};
use super::ffi;
use super::info::OfiError;

/// The longest name of an endpoint.
pub(super) const MAX_NAME_BYTES: usize = 256;

/// Completions taken at a time.
const BATCH: usize = 32;

/// Shortest and longest sleep between looks at a device that cannot wake us.
const NAPS: [Duration; 2] = [Duration::from_micros(20), Duration::from_millis(1)];

/// An event of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Happened {
    /// The peer has written into our memory.
    Placed { imm: u32 },
    /// A message has come into the buffer that was given with this number.
    Received { number: usize, bytes: usize },
    /// A put or message of ours is on its way: its buffer may be used again.
    Gone { number: usize },
    /// Sending failed, or nothing comes into the buffer any more: the connection is broken. Either
    /// way the device is done with the buffer.
    Failed { number: usize, sending: bool, error: i32 },
}

/// A libfabric endpoint with its completion queue and address vector, for one peer. Each peer has
/// one of its own: an arriving write tells its 32 bits but not its sender, and closing the endpoint
/// keeps the peer out of our memory. Order of calls: [`open`](Self::open), [`name`](Self::name) for
/// the peer, [`set_peer`](Self::set_peer); then [`put`](Self::put), [`send`](Self::send) and
/// [`receive`](Self::receive), whose completions come from [`wait`](Self::wait). Dropped, it closes
/// before its regions do.
#[derive(Debug)]
pub(super) struct Endpoint {
    ep: NonNull<ffi::fid_ep>,
    queue: Queue,
    av: NonNull<ffi::fid_av>,
    peer: ffi::fi_addr_t,
    /// Region that puts come from.
    arena: Arc<RegisteredRegion>,
    /// Region of the messages.
    messages: RegisteredRegion,
}

// SAFETY: we ask for FI_THREAD_SAFE.
unsafe impl Send for Endpoint {}
// SAFETY: as above.
unsafe impl Sync for Endpoint {}

impl Endpoint {
    /// An endpoint on the device of these regions.
    pub(super) fn open(
        arena: Arc<RegisteredRegion>,
        messages: RegisteredRegion,
    ) -> Result<Self, OfiError> {
        let domain = Arc::clone(arena.domain());
        let queue = Queue::open(&domain)?;
        let mut attr = ffi::fi_av_attr { type_: ffi::FI_AV_TABLE, ..zeroed() };
        let mut av = ptr::null_mut();
        let mut ep = ptr::null_mut();
        // SAFETY: the domain is open; `av` is written on success.
        let code = unsafe {
            ffi::fi_av_open(domain.as_ptr(), &raw mut attr, &raw mut av, ptr::null_mut())
        };
        let av = NonNull::new(av).ok_or_else(|| OfiError::new("fi_av_open", code.into()))?;
        // SAFETY: the domain is open, and the info its own; `ep` is written on success.
        let code = unsafe {
            let info = domain.info().as_ptr();
            ffi::fi_endpoint(domain.as_ptr(), info, &raw mut ep, ptr::null_mut())
        };
        let Some(ep) = NonNull::new(ep) else {
            close(av);
            return Err(OfiError::new("fi_endpoint", code.into()));
        };
        let endpoint = Self { ep, queue, av, peer: 0, arena, messages };
        endpoint.enable()?;
        Ok(endpoint)
    }

    fn enable(&self) -> Result<(), OfiError> {
        let both = u64::from(ffi::FI_TRANSMIT | ffi::FI_RECV);
        let ep = self.ep.as_ptr();
        let cq = self.queue.cq.as_ptr();
        // SAFETY: all three are open, and live as long as the endpoint.
        let code = unsafe { ffi::fi_ep_bind(ep, self.av.as_ptr().cast(), 0) };
        OfiError::check("fi_ep_bind", code.into())?;
        // SAFETY: as above.
        let code = unsafe { ffi::fi_ep_bind(ep, cq.cast(), both) };
        OfiError::check("fi_ep_bind", code.into())?;
        // SAFETY: as above.
        OfiError::check("fi_enable", unsafe { ffi::fi_enable(ep) }.into())
    }

    /// Returns the address by which the other side reaches this endpoint.
    pub(super) fn name(&self) -> Result<Vec<u8>, OfiError> {
        let mut name = vec![0; MAX_NAME_BYTES];
        let mut bytes = name.len();
        // SAFETY: the endpoint is open, and `bytes` says how much it may write.
        let code = unsafe {
            ffi::fi_getname(self.ep.as_ptr().cast(), name.as_mut_ptr().cast(), &raw mut bytes)
        };
        OfiError::check("fi_getname", code.into())?;
        name.truncate(bytes);
        Ok(name)
    }

    /// Sets the peer, by the name that it sent.
    pub(super) fn set_peer(&mut self, name: &[u8]) -> Result<(), OfiError> {
        // Providers read as much as their names are long, or up to a zero.
        let mut padded = [0; MAX_NAME_BYTES + 1];
        padded[..name.len().min(MAX_NAME_BYTES)]
            .copy_from_slice(&name[..name.len().min(MAX_NAME_BYTES)]);
        // SAFETY: the address vector is open, and there is more of a name than any provider reads.
        let count = unsafe {
            let av = self.av.as_ptr();
            let name = padded.as_ptr().cast();
            ffi::fi_av_insert(av, name, 1, &raw mut self.peer, 0, ptr::null_mut())
        };
        if count == 1 { Ok(()) } else { Err(OfiError::new("fi_av_insert", libc::EINVAL.into())) }
    }

    /// Returns the region that puts come from.
    pub(super) const fn arena(&self) -> &Arc<RegisteredRegion> {
        &self.arena
    }

    /// Returns the region of the messages.
    pub(super) const fn messages(&self) -> &RegisteredRegion {
        &self.messages
    }

    /// Starts to write a range of the arena to `offset` of the peer's. False when the device takes
    /// no more for now.
    pub(super) fn put(
        &self,
        from: Buf,
        remote: RemoteRegion,
        offset: u64,
        imm: u32,
        number: usize,
    ) -> Result<bool, OfiError> {
        let (piece, mut name) = self.arena.piece(from);
        let beyond = || OfiError {
            call: "fi_writemsg",
            reason: "the put goes beside what the other admits us to".into(),
        };
        let addr = remote.address(offset, from.len.into()).ok_or_else(beyond)?;
        let to = ffi::fi_rma_iov { addr, len: piece.iov_len, key: remote.key };
        let message = ffi::fi_msg_rma {
            msg_iov: &raw const piece,
            desc: &raw mut name,
            iov_count: 1,
            addr: self.peer,
            rma_iov: &raw const to,
            rma_iov_count: 1,
            context: ptr::without_provenance_mut(number),
            data: imm.into(),
        };
        let flags = u64::from(ffi::FI_REMOTE_CQ_DATA | ffi::FI_COMPLETION);
        // SAFETY: the range lies in the region, which the endpoint keeps until after it is closed.
        // That nobody else touches it meanwhile is the rule of the arena.
        posted("fi_writemsg", unsafe {
            ffi::fi_writemsg(self.ep.as_ptr(), &raw const message, flags)
        })
    }

    /// Starts to send a message from this range of the messages' memory. False as for `put`.
    pub(super) fn send(&self, from: Buf, number: usize) -> Result<bool, OfiError> {
        let (piece, mut name) = self.messages.piece(from);
        let message = self.message(&piece, &mut name, number);
        // SAFETY: as in `put`; whoever asks for it leaves the range alone until it is `Gone`.
        posted("fi_sendmsg", unsafe {
            let flags = u64::from(ffi::FI_COMPLETION);
            ffi::fi_sendmsg(self.ep.as_ptr(), &raw const message, flags)
        })
    }

    /// Gives a range of the messages for one that comes in. False as for `put`.
    pub(super) fn receive(&self, into: Buf, number: usize) -> Result<bool, OfiError> {
        let (piece, mut name) = self.messages.piece(into);
        let message = self.message(&piece, &mut name, number);
        // SAFETY: as in `put`; whoever asks for it leaves the range alone until it is `Received`.
        posted("fi_recvmsg", unsafe {
            let flags = u64::from(ffi::FI_COMPLETION);
            ffi::fi_recvmsg(self.ep.as_ptr(), &raw const message, flags)
        })
    }

    fn message(
        &self,
        piece: &ffi::iovec,
        name: &mut *mut libc::c_void,
        number: usize,
    ) -> ffi::fi_msg {
        ffi::fi_msg {
            msg_iov: ptr::from_ref(piece),
            desc: ptr::from_mut(name),
            iov_count: 1,
            addr: self.peer,
            context: ptr::without_provenance_mut(number),
            data: 0,
        }
    }

    /// Waits, at most so long, for an event, and appends it. Some providers work only during this
    /// call.
    pub(super) fn wait(&self, limit: Duration, out: &mut Vec<Happened>) -> Result<(), OfiError> {
        self.queue.wait(limit, out)
    }

    /// Ends a `wait` in another thread, if the provider can.
    pub(super) fn wake(&self) {
        if self.queue.wakes {
            // SAFETY: the queue is open and has something to wait for: where it has not, providers
            // follow a null pointer.
            let _ = unsafe { ffi::fi_cq_signal(self.queue.cq.as_ptr()) };
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        // From here on nothing reads or writes the regions on this endpoint's behalf.
        close(self.ep);
        close(self.av);
    }
}

fn posted(call: &'static str, code: isize) -> Result<bool, OfiError> {
    if code == -(ffi::FI_EAGAIN as isize) {
        return Ok(false);
    }
    OfiError::check(call, code as i64).map(|()| true)
}

const fn zeroed<T: Plain>() -> T {
    // SAFETY: the trait says so.
    unsafe { std::mem::zeroed() }
}

/// Structures of libfabric's that may be all zeroes.
///
/// # Safety
/// Only for types of which that is true.
unsafe trait Plain {}
// SAFETY: numbers and pointers that may be null.
unsafe impl Plain for ffi::fi_av_attr {}
// SAFETY: as above.
unsafe impl Plain for ffi::fi_cq_attr {}
// SAFETY: as above.
unsafe impl Plain for ffi::fi_cq_data_entry {}
// SAFETY: as above.
unsafe impl Plain for ffi::fi_cq_err_entry {}

/// Completions, in order.
#[derive(Debug)]
struct Queue {
    cq: NonNull<ffi::fid_cq>,
    /// The device wakes a waiting thread.
    wakes: bool,
}

impl Queue {
    fn open(domain: &Arc<Domain>) -> Result<Self, OfiError> {
        // A descriptor to wait for means sleep. Leaving the choice to the provider could mean a
        // busy loop.
        let mut result = Self::with(domain, ffi::FI_WAIT_FD);
        if result.is_err() {
            result = Self::with(domain, ffi::FI_WAIT_NONE);
        }
        result
    }

    fn with(domain: &Arc<Domain>, wait_obj: ffi::fi_wait_obj) -> Result<Self, OfiError> {
        let format = ffi::FI_CQ_FORMAT_DATA;
        let mut attr = ffi::fi_cq_attr { size: 4096, format, wait_obj, ..zeroed() };
        let mut cq = ptr::null_mut();
        // SAFETY: the domain is open; `cq` is written on success.
        let code = unsafe {
            ffi::fi_cq_open(domain.as_ptr(), &raw mut attr, &raw mut cq, ptr::null_mut())
        };
        let cq = NonNull::new(cq).ok_or_else(|| OfiError::new("fi_cq_open", code.into()))?;
        OfiError::check("fi_cq_open", code.into())?;
        Ok(Self { cq, wakes: wait_obj != ffi::FI_WAIT_NONE })
    }

    fn wait(&self, limit: Duration, out: &mut Vec<Happened>) -> Result<(), OfiError> {
        if self.wakes {
            return self.take(Some(limit), out);
        }
        let begun = Instant::now();
        let mut nap = NAPS[0];
        loop {
            let before = out.len();
            self.take(None, out)?;
            if out.len() > before || begun.elapsed() >= limit {
                return Ok(());
            }
            thread::sleep(nap);
            nap = (nap * 2).min(NAPS[1]);
        }
    }

    /// Takes available completions; with a limit, waits for one.
    fn take(&self, limit: Option<Duration>, out: &mut Vec<Happened>) -> Result<(), OfiError> {
        let mut entries = [const { zeroed::<ffi::fi_cq_data_entry>() }; BATCH];
        let cq = self.cq.as_ptr();
        let to = entries.as_mut_ptr().cast();
        let count = if let Some(limit) = limit {
            let limit = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
            // SAFETY: the queue is open, and there is room for so many entries of its format.
            unsafe { ffi::fi_cq_sread(cq, to, BATCH, ptr::null(), limit) }
        } else {
            // SAFETY: as above.
            unsafe { ffi::fi_cq_read(cq, to, BATCH) }
        };
        let again = [ffi::FI_EAGAIN as isize, libc::EINTR as isize, libc::ECANCELED as isize];
        match usize::try_from(count) {
            Ok(count) => out.extend(entries[..count].iter().filter_map(happened)),
            Err(_) if again.contains(&-count) => {}
            Err(_) if -count == ffi::FI_EAVAIL as isize => out.extend(self.failure()?),
            Err(_) => return Err(OfiError::new("fi_cq_read", count as i64)),
        }
        Ok(())
    }

    fn failure(&self) -> Result<Option<Happened>, OfiError> {
        let mut entry = zeroed::<ffi::fi_cq_err_entry>();
        // SAFETY: the queue is open, and the entry may be written.
        let code = unsafe { ffi::fi_cq_readerr(self.cq.as_ptr(), &raw mut entry, 0) };
        if code == -(ffi::FI_EAGAIN as isize) {
            return Ok(None);
        }
        OfiError::check("fi_cq_readerr", code as i64)?;
        let sending = entry.flags & u64::from(ffi::FI_SEND | ffi::FI_WRITE) != 0;
        let number = entry.op_context.addr();
        Ok(Some(Happened::Failed { number, sending, error: entry.err }))
    }
}

fn happened(entry: &ffi::fi_cq_data_entry) -> Option<Happened> {
    let is = |flag: u32| entry.flags & u64::from(flag) != 0;
    let number = entry.op_context.addr();
    if is(ffi::FI_REMOTE_CQ_DATA) {
        // The rest of the data is not ours: we send 32 bits.
        return Some(Happened::Placed { imm: entry.data as u32 });
    }
    if is(ffi::FI_RECV) {
        return Some(Happened::Received { number, bytes: entry.len });
    }
    is(ffi::FI_SEND | ffi::FI_WRITE).then_some(Happened::Gone { number })
}

impl Drop for Queue {
    fn drop(&mut self) {
        close(self.cq);
    }
}
