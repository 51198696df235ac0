//! The connection to one peer, as the engine sees it, and how its thread ends.

use std::net::{Shutdown, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use braid_array::action::Event;
use braid_array::fabric::PeerId;

use super::ThreadEvents;
use super::endpoint::Endpoint;
use super::outbox::{Outbox, OutgoingTransfer};

/// State shared by the engine and the thread of one connection. The state is opening, up (with
/// endpoint and outbox), then over. The engine sends ([`push`](Self::push)), says where the peer
/// may put ([`admit`](Self::admit)), and ends the connection: [`leave`](Self::leave) when all is on
/// its way, or [`cut`](Self::cut) at once. The thread reports the connection as [`up`](Self::up),
/// [tells](Self::tell) the engine of events, and [ends](Self::end) it.
#[derive(Debug)]
pub(super) struct Link {
    peer: PeerId,
    /// Array that the peer's key is limited to, if it is.
    limit: Option<[u8; 16]>,
    /// Connection on which the hellos were exchanged.
    stream: TcpStream,
    /// `STAY`, `CLOSE` or `CUT`.
    end: AtomicU8,
    state: Mutex<LinkState>,
    /// Window that the peer may put into, until the thread has told it.
    window: Mutex<Option<Range<u64>>>,
    news: Arc<ThreadEvents>,
}

/// Go on.
const STAY: u8 = 0;
/// End when all is on its way.
const CLOSE: u8 = 1;
/// End.
const CUT: u8 = 2;

#[derive(Debug)]
enum LinkState {
    Opening,
    Up(Arc<Endpoint>, Outbox),
    Over,
}

impl Link {
    /// A connection that does not stand yet.
    pub(super) fn new(
        (peer, limit): (PeerId, Option<[u8; 16]>),
        stream: TcpStream,
        news: Arc<ThreadEvents>,
    ) -> Self {
        let end = AtomicU8::new(STAY);
        let state = Mutex::new(LinkState::Opening);
        Self { peer, limit, stream, end, state, window: Mutex::default(), news }
    }

    /// Sends something, or gives it back when the connection does not stand.
    pub(super) fn push(&self, outgoing: OutgoingTransfer) -> Result<(), OutgoingTransfer> {
        let LinkState::Up(endpoint, outbox) = &mut *self.state() else { return Err(outgoing) };
        // An error comes again when the thread tries; it knows what to do.
        if outbox.push(outgoing).is_err() || outbox.is_stuck() {
            endpoint.wake();
        }
        Ok(())
    }

    /// Lets the peer put into this window; the thread tells it so.
    pub(super) fn admit(&self, window: Range<u64>) {
        *self.window.lock().unwrap_or_else(PoisonError::into_inner) = Some(window);
        if let LinkState::Up(endpoint, _) = &*self.state() {
            endpoint.wake();
        }
    }

    /// Returns the window to tell the peer, once.
    pub(super) fn take_window(&self) -> Option<Range<u64>> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Ends the connection once its queued data are on their way.
    pub(super) fn close(&self) {
        self.ask_for(CLOSE);
    }

    /// Ends the connection.
    pub(super) fn cut(&self) {
        self.ask_for(CUT);
        if matches!(*self.state(), LinkState::Opening) {
            // The thread may wait for the peer's introduction.
            let _ = self.stream.shutdown(Shutdown::Both);
        }
    }

    fn ask_for(&self, end: u8) {
        self.end.fetch_max(end, Ordering::Relaxed);
        if let LinkState::Up(endpoint, _) = &*self.state() {
            endpoint.wake();
        }
    }

    /// Returns whether the engine wants to end the connection.
    pub(super) fn is_closing(&self) -> bool {
        self.end.load(Ordering::Relaxed) >= CLOSE
    }

    /// Returns whether the engine wants to end it at once.
    pub(super) fn is_cut(&self) -> bool {
        self.end.load(Ordering::Relaxed) >= CUT
    }

    fn state(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the engine use the connection.
    pub(super) fn up(&self, endpoint: Arc<Endpoint>, outbox: Outbox) {
        *self.state() = LinkState::Up(endpoint, outbox);
    }

    /// Calls `work` with the outbox, while the connection stands.
    pub(super) fn outbox<T>(&self, work: impl FnOnce(&mut Outbox) -> T) -> Option<T> {
        match &mut *self.state() {
            LinkState::Up(_, outbox) => Some(work(outbox)),
            LinkState::Opening | LinkState::Over => None,
        }
    }

    /// Ends the use by the engine; returns the outbox, with unanswered puts.
    pub(super) fn end(&self) -> Option<Outbox> {
        match std::mem::replace(&mut *self.state(), LinkState::Over) {
            LinkState::Up(_, outbox) => Some(outbox),
            LinkState::Opening | LinkState::Over => None,
        }
    }

    /// The engine can use it no more.
    pub(super) fn is_over(&self) -> bool {
        matches!(*self.state(), LinkState::Over)
    }

    pub(super) const fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub(super) const fn peer(&self) -> PeerId {
        self.peer
    }

    pub(super) const fn limit(&self) -> Option<[u8; 16]> {
        self.limit
    }

    /// The engine has enough to do, and wants the connection to go on.
    pub(super) fn is_to_wait(&self) -> bool {
        self.news.is_full() && !self.is_cut()
    }

    /// Tells the engine.
    pub(super) fn tell(&self, events: Vec<Event>) {
        self.news.tell(events);
    }
}
