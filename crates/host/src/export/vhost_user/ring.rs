//! One ring of requests (a split virtqueue: virtio 1.2, 2.7), without the descriptors by which its
//! ends wake each other.
//!
//! Memory of the guest is not trusted: a ring whose chains cannot be answered is broken, and
//! unusable until the front end sets it up again.

use std::collections::VecDeque;
use std::num::Wrapping;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use virtio_queue::{Queue, QueueT};
use vm_memory::GuestAddress;

use super::chain::{BrokenChain, Chain};
use super::inflight::{Notes, Track};
use super::memory::MappedGuest;
use super::request::{RequestLimits, VirtioRequest};

/// Descriptors of a ring at most.
pub(super) const MAX_SIZE: u16 = 1024;

/// Settings of a ring that is to be served.
#[derive(Debug)]
pub(super) struct RingSetup {
    /// A power of two.
    pub(super) size: u16,
    pub(super) descriptors: GuestAddress,
    pub(super) available: GuestAddress,
    pub(super) used: GuestAddress,
    /// The next one to be taken, where nothing else tells.
    pub(super) base: u16,
    pub(super) event_index: bool,
    /// Notes of requests in flight, and the number of the ring there.
    pub(super) inflight: Option<(Notes, usize)>,
}

/// A ring in use. Requests come by [`next`](Self::next), and go by [`answered`](Self::answered).
/// When nothing has come, [`listen`](Self::listen) has the guest say so when something does.
#[derive(Debug)]
pub(super) struct VirtioRing {
    queue: Queue,
    guest: Arc<MappedGuest>,
    track: Option<Track>,
    /// Requests that were in flight with the previous server of this ring.
    again: VecDeque<u16>,
    /// Requests in flight, by head.
    under_way: Vec<bool>,
    count: u16,
    broken: bool,
}

impl VirtioRing {
    /// # Errors
    /// [`BrokenChain`] when it does not lie in the guest's memory.
    pub(super) fn new(setup: &RingSetup, guest: Arc<MappedGuest>) -> Result<Self, BrokenChain> {
        let mut queue = Queue::new(MAX_SIZE).map_err(|_| BrokenChain::Rings)?;
        queue.try_set_size(setup.size).map_err(|_| BrokenChain::Rings)?;
        queue.try_set_desc_table_address(setup.descriptors).map_err(|_| BrokenChain::Rings)?;
        queue.try_set_avail_ring_address(setup.available).map_err(|_| BrokenChain::Rings)?;
        queue.try_set_used_ring_address(setup.used).map_err(|_| BrokenChain::Rings)?;
        queue.set_event_idx(setup.event_index);
        queue.set_ready(true);
        if !queue.is_valid(&*guest) {
            return Err(BrokenChain::Rings);
        }
        let used = queue.used_idx(&*guest, Ordering::Acquire).map_err(|_| BrokenChain::Rings)?;
        queue.set_next_used(used.0);
        queue.set_next_avail(setup.base);
        let mut track = None;
        let mut again = VecDeque::new();
        if let Some((notes, index)) = &setup.inflight {
            if notes.size < setup.size {
                return Err(BrokenChain::Rings);
            }
            let opened = Track::open(notes.clone(), *index, used.0);
            let (opened, heads) = opened.map_err(|_| BrokenChain::Rings)?;
            // All that was taken was answered or is in flight. The front end's number is of no use
            // when its ring was not stopped: it does not know what was taken.
            let taken = used + Wrapping(heads.len() as u16);
            queue.set_next_avail(taken.0);
            track = Some(opened);
            again = heads.into();
        }
        let under_way = vec![false; setup.size.into()];
        Ok(Self { queue, guest, track, again, under_way, count: 0, broken: false })
    }

    /// The next request, and by which head it is answered.
    ///
    /// # Errors
    /// [`BrokenChain`], once; after that nothing comes.
    pub(super) fn next(
        &mut self,
        limits: &RequestLimits,
    ) -> Result<Option<(u16, VirtioRequest)>, BrokenChain> {
        if self.broken {
            return Ok(None);
        }
        let next = self.take(limits);
        self.broken = next.is_err();
        next
    }

    fn take(
        &mut self,
        limits: &RequestLimits,
    ) -> Result<Option<(u16, VirtioRequest)>, BrokenChain> {
        let head = match self.again.pop_front() {
            Some(head) => head,
            None => match self.pop()? {
                Some(head) => head,
                None => return Ok(None),
            },
        };
        let under_way = self.under_way.get_mut(usize::from(head)).ok_or(BrokenChain::Index)?;
        if std::mem::replace(under_way, true) {
            return Err(BrokenChain::Twice);
        }
        self.count += 1;
        if let Some(track) = &mut self.track {
            track.begin(head);
        }
        let table = GuestAddress(self.queue.desc_table());
        let asked = Chain::read(&self.guest, table, self.queue.size(), head)
            .and_then(|chain| VirtioRequest::of(&self.guest, chain, limits));
        if asked.is_err() {
            // It will never be answered, but nobody waits for that.
            self.count -= 1;
        }
        Ok(Some((head, asked?)))
    }

    /// The head of the next chain.
    fn pop(&mut self) -> Result<Option<u16>, BrokenChain> {
        let guest = &*self.guest;
        let there =
            self.queue.avail_idx(guest, Ordering::Acquire).map_err(|_| BrokenChain::Rings)?;
        let count = there - Wrapping(self.queue.next_avail());
        if count.0 == 0 {
            return Ok(None);
        }
        let chain = self.queue.pop_descriptor_chain(guest).ok_or(BrokenChain::Rings)?;
        Ok(Some(chain.head_index()))
    }

    /// The guest is to say when the next request comes. True when one has come already.
    ///
    /// # Errors
    /// [`BrokenChain`]
    pub(super) fn listen(&mut self) -> Result<bool, BrokenChain> {
        if self.broken {
            return Ok(false);
        }
        self.queue.enable_notification(&*self.guest).map_err(|_| BrokenChain::Rings)
    }

    /// A request has its answer: so many bytes of the guest's memory were written.
    ///
    /// # Errors
    /// [`BrokenChain`]
    pub(super) fn answered(&mut self, head: u16, written: u32) -> Result<(), BrokenChain> {
        self.count -= 1;
        self.under_way[usize::from(head)] = false;
        if let Some(track) = &self.track {
            track.ending(head);
        }
        self.queue.add_used(&*self.guest, head, written).map_err(|_| BrokenChain::Rings)?;
        if let Some(track) = &self.track {
            track.ended(head, self.queue.next_used());
        }
        Ok(())
    }

    /// Returns whether the guest wants a signal for the answers since the last call.
    pub(super) fn wants_call(&mut self) -> bool {
        self.queue.needs_notification(&*self.guest).unwrap_or(false)
    }

    /// Changes the memory in which requests lie.
    ///
    /// # Errors
    /// [`BrokenChain`] when the ring does not lie in it.
    pub(super) fn move_to(&mut self, guest: Arc<MappedGuest>) -> Result<(), BrokenChain> {
        self.guest = guest;
        let stands = self.queue.is_valid(&*self.guest);
        self.broken |= !stands;
        if stands { Ok(()) } else { Err(BrokenChain::Rings) }
    }

    /// Returns the memory in which its requests lie.
    pub(super) const fn guest(&self) -> &Arc<MappedGuest> {
        &self.guest
    }

    /// Requests that have no answer yet.
    pub(super) const fn under_way(&self) -> u16 {
        self.count
    }

    /// Returns the index of the next request to be taken, for the next server.
    pub(super) fn base(&self) -> u16 {
        self.queue.next_avail()
    }
}
