//! Requests in flight of a ring, noted in memory that the front end keeps while this process is
//! away.
//!
//! The layout is the one that QEMU's `docs/interop/vhost-user.rst` gives for split virtqueues,
//! under "Inflight I/O tracking". For each ring a header of 16 bytes: u64 features (0), u16 version
//! (1), u16 number of descriptors, u16 head of the last batch, u16 used index; then for each
//! descriptor 16 bytes: u8 in flight, five of padding, u16 next of the batch, u64 counter. In the
//! byte order of the machine.
//!
//! The order of stores carries it. A request is marked before anything is done for it. At its end
//! it becomes the last batch, is put into the used ring, and is unmarked; then the used index is
//! stored. A used index that differs from the used ring's shows that the last batch was answered.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use vm_memory::{Bytes, MmapRegion, VolatileMemory};

const HEADER_BYTES: usize = 16;
const DESCRIPTOR_BYTES: usize = 16;
/// Rings begin on lines of the processor's caches.
const ALIGNMENT: usize = 64;
const VERSION: u16 = 1;

/// Offsets of fields in the header, and in the entry of a descriptor.
mod at {
    pub(super) const VERSION: usize = 8;
    pub(super) const COUNT: usize = 10;
    pub(super) const LAST_BATCH: usize = 12;
    pub(super) const USED: usize = 14;
    pub(super) const IN_FLIGHT: usize = 0;
    pub(super) const NEXT: usize = 6;
    pub(super) const COUNTER: usize = 8;
}

/// Memory of that kind.
pub(super) type InflightRegion = MmapRegion<()>;

/// Memory for some rings, each of up to `size` descriptors.
#[derive(Clone, Debug)]
pub(super) struct Notes {
    pub(super) region: Arc<InflightRegion>,
    pub(super) size: u16,
}

/// Bytes of memory for one ring.
pub(super) const fn ring_bytes(size: u16) -> usize {
    (HEADER_BYTES + size as usize * DESCRIPTOR_BYTES).next_multiple_of(ALIGNMENT)
}

/// The requests under way of one ring. A request [begins](Self::begin), is
/// [ending](Self::ending) before it is put into the used ring, and has [ended](Self::ended) after.
#[derive(Debug)]
pub(super) struct Track {
    notes: Notes,
    start: usize,
    counter: u64,
}

/// Reason for which a ring cannot be tracked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the memory of what is in flight is of another kind")]
pub(super) struct Unknown;

impl Track {
    /// Opens the notes of ring `index`, of whose used ring the index is `used`. Returns also the
    /// requests in flight, in the order in which they came.
    ///
    /// # Errors
    /// [`Unknown`].
    pub(super) fn open(notes: Notes, index: usize, used: u16) -> Result<(Self, Vec<u16>), Unknown> {
        let size = notes.size;
        let start = index.checked_mul(ring_bytes(size)).ok_or(Unknown)?;
        let end = start.checked_add(ring_bytes(size)).ok_or(Unknown)?;
        if end > notes.region.size() {
            return Err(Unknown);
        }
        let mut track = Self { notes, start, counter: 0 };
        match track.load::<u16>(at::VERSION) {
            0 => {
                track.store(at::COUNT, size);
                track.store(at::USED, used);
                track.store(at::VERSION, VERSION);
            }
            VERSION if track.load::<u16>(at::COUNT) == size => {}
            _ => return Err(Unknown),
        }
        track.settle(used);
        let mut found: Vec<(u64, u16)> = (0..size)
            .filter(|head| track.load::<u8>(Self::place(*head) + at::IN_FLIGHT) == 1)
            .map(|head| (track.load(Self::place(head) + at::COUNTER), head))
            .collect();
        found.sort_unstable();
        track.counter = found.last().map_or(0, |(counter, _)| counter.wrapping_add(1));
        Ok((track, found.into_iter().map(|(_, head)| head).collect()))
    }

    /// Clears the marks of requests in the used ring, also where the clearing was interrupted.
    fn settle(&self, used: u16) {
        let noted: u16 = self.load(at::USED);
        let mut head: u16 = self.load(at::LAST_BATCH);
        for _ in 0..used.wrapping_sub(noted).min(self.notes.size) {
            if head >= self.notes.size {
                break;
            }
            self.store(Self::place(head) + at::IN_FLIGHT, 0u8);
            head = self.load(Self::place(head) + at::NEXT);
        }
        self.store(at::USED, used);
    }

    /// A request is taken.
    pub(super) fn begin(&mut self, head: u16) {
        let place = Self::place(head);
        self.store(place + at::COUNTER, self.counter);
        self.store(place + at::IN_FLIGHT, 1u8);
        self.counter = self.counter.wrapping_add(1);
    }

    /// Notes that a request is about to be put into the used ring.
    pub(super) fn ending(&self, head: u16) {
        self.store(Self::place(head) + at::NEXT, self.load::<u16>(at::LAST_BATCH));
        self.store(at::LAST_BATCH, head);
    }

    /// Notes that a request was put into the used ring, whose index is now `used`.
    pub(super) fn ended(&self, head: u16, used: u16) {
        self.store(Self::place(head) + at::IN_FLIGHT, 0u8);
        self.store(at::USED, used);
    }

    const fn place(head: u16) -> usize {
        HEADER_BYTES + head as usize * DESCRIPTOR_BYTES
    }

    fn load<T: vm_memory::AtomicAccess>(&self, at: usize) -> T {
        let slice = self.notes.region.as_volatile_slice();
        slice.load(self.start + at, Ordering::Acquire).expect("the region is long enough")
    }

    fn store<T: vm_memory::AtomicAccess>(&self, at: usize, value: T) {
        let slice = self.notes.region.as_volatile_slice();
        let stored = slice.store(value, self.start + at, Ordering::Release);
        stored.expect("the region is long enough");
    }
}
