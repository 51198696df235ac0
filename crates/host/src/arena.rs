//! The arena: one aligned mapping in which all user bytes live. The front belongs to the machine
//! (its scratch). Behind it come zeroes to write from, request buffers, the clients' own blocks,
//! landings for requests of FUSE mounts, and at the end some memory for the fabric where there is
//! one. Behind it are addresses at which memory of others can be mapped.
//!
//! Every range has one holder at a time: the allocating part first, then the machine or the kernel
//! while a request or an I/O names it. All access goes through that rule; the borrow checker cannot
//! see it because the kernel is one of the holders.
//!
//! Memory is shared so that no client can take it from the others. Each client has a block of its
//! own, in which any request fits. The common pool gives a client more only while four times the
//! client's share stays free. So one client alone gets a fifth, many get less each, and some is
//! always left for a new client; with nothing left, each client still has its block.

mod memory;
mod pool;
mod reserve;
mod window;

use std::io;
use std::ops::Range;
use std::sync::Arc;

use braid_array::array::Scratch;
use braid_array::{Buf, IoId};

use memory::HUGE_PAGE_BYTES;
pub(crate) use memory::{ArenaPiece, Memory, PIECE_BYTES};
use pool::{BLOCK_BYTES, Pool};
pub(crate) use window::MappedWindow;

const FABRIC_BYTES: u32 = 4 << 20;
/// Memory of the fabric for as many connections as 200 arrays over as many nodes as suit have, and
/// more. Only used pages are resident.
const LEAN_FABRIC_BYTES: u32 = 32 << 20;

/// Clients that use the array at the same time.
pub(crate) const MAX_CLIENTS: u16 = 64;
/// Size of a connection's receive buffer. Larger ones would copy more of large writes, smaller ones
/// batch less.
pub(crate) const INPUT_BYTES: u32 = 64 << 10;
/// Number of receive buffers: enough for so many connections, those that come and go included, if
/// all have TLS, which needs one more.
const INPUTS: u64 = 192;
/// Number of receive buffers that a mount has for its requests, a MiB each. Writes in flight are
/// limited to that number, which includes those that may arrive at any moment.
pub(crate) const LANDINGS: u32 = 40;
/// All mounts together are so many clients, beside the others.
const MOUNTS_HOLDERS: u16 = 2;
/// The common pool serves a client only while this many times the client's share stays free.
const LEFT: u64 = 4;
/// The common pool is short when less than one part in so many is free.
const SHORT: u64 = 8;

/// The memory, and the holder of each range.
#[derive(Debug)]
pub struct Arena {
    memory: Arc<Memory>,
    scratch: Scratch,
    zeroes: Buf,
    common: Pool,
    homes: Vec<Pool>,
    free_homes: Vec<u16>,
    inputs: Pool,
    landings: Pool,
    /// An allocation got nothing of the common pool while that was short.
    missed: bool,
    fabric: Buf,
    /// Replacements for request buffers that abandoned I/O may still use.
    spare: Pool,
    /// Buffers that abandoned I/O may still use. `parked` lists those given back meanwhile, and
    /// `stand_ins` the buffer of the spare pool that replaces each.
    lent: Vec<(IoId, Buf)>,
    parked: Vec<Buf>,
    stand_ins: Vec<(Buf, Buf)>,
}

/// Sizes from which an arena is made.
struct ArenaSizes {
    scratch_bytes: u64,
    request_bytes: u64,
    clients: u16,
    landings: u32,
    fabric_bytes: u32,
    lean: bool,
}

/// A client's memory: a block of its own, and its share of the common pool.
#[derive(Debug)]
pub(crate) struct Holder {
    home: u16,
    common_bytes: u64,
}

impl Holder {
    /// Returns the bytes that it holds of the common pool.
    pub(crate) const fn common_bytes(&self) -> u64 {
        self.common_bytes
    }
}

impl Arena {
    /// An arena with `scratch_bytes` for a machine, at least `request_bytes` for requests, and room
    /// for clients.
    ///
    /// # Errors
    /// When the address space cannot be had.
    pub fn new(scratch_bytes: u64, request_bytes: u64) -> io::Result<Self> {
        Self::for_exports(scratch_bytes, request_bytes, 0, false)
    }

    /// Creates an arena as `new` does, with room for the headers and messages of a fabric at the
    /// end.
    ///
    /// # Errors
    /// When the address space cannot be had.
    pub fn for_fabric(scratch_bytes: u64, request_bytes: u64) -> io::Result<Self> {
        Self::for_exports(scratch_bytes, request_bytes, 0, true)
    }

    /// Creates an arena as `new` does, or as `for_fabric` where there is one, with landings for so
    /// many mounts.
    ///
    /// # Errors
    /// When the address space cannot be had.
    pub fn for_exports(
        scratch_bytes: u64,
        request_bytes: u64,
        mounts: u32,
        fabric: bool,
    ) -> io::Result<Self> {
        let fabric_bytes = if fabric { FABRIC_BYTES } else { 0 };
        let landings = mounts.saturating_mul(LANDINGS);
        let clients = MAX_CLIENTS;
        let lean = false;
        Self::with(ArenaSizes {
            scratch_bytes,
            request_bytes,
            clients,
            landings,
            fabric_bytes,
            lean,
        })
    }

    /// Creates an arena as `for_fabric` does, where the only clients are the other ends of the
    /// fabric.
    ///
    /// # Errors
    /// When the address space cannot be had.
    pub fn for_node(scratch_bytes: u64, request_bytes: u64) -> io::Result<Self> {
        let fabric_bytes = FABRIC_BYTES;
        let lean = false;
        let clients = 0;
        let landings = 0;
        Self::with(ArenaSizes {
            scratch_bytes,
            request_bytes,
            clients,
            landings,
            fabric_bytes,
            lean,
        })
    }

    /// Creates an arena as `for_node` does, with more addresses for the machine than memory: only
    /// used pages are resident.
    ///
    /// # Errors
    /// When the address space cannot be had.
    pub(crate) fn lean(scratch_bytes: u64, request_bytes: u64) -> io::Result<Self> {
        let fabric_bytes = LEAN_FABRIC_BYTES;
        let lean = true;
        let clients = 0;
        let landings = 0;
        Self::with(ArenaSizes {
            scratch_bytes,
            request_bytes,
            clients,
            landings,
            fabric_bytes,
            lean,
        })
    }

    fn with(parts: ArenaSizes) -> io::Result<Self> {
        let ArenaSizes { scratch_bytes, request_bytes, clients, landings, fabric_bytes, lean } =
            parts;
        // Huge pages go up to here, and each is in one pool: so it can be given back in whole.
        let blocks = request_bytes.max(1).next_multiple_of(HUGE_PAGE_BYTES) / BLOCK_BYTES;
        let blocks = u32::try_from(blocks).map_err(|_| io::ErrorKind::InvalidInput)?;
        let scratch_end = scratch_bytes.next_multiple_of(BLOCK_BYTES);
        let zeroes = Buf { offset: scratch_end, len: 1 << 20 };
        let mut end = (scratch_end + BLOCK_BYTES).next_multiple_of(HUGE_PAGE_BYTES);
        let mut next = |bytes: u64| {
            end += bytes;
            end - bytes
        };
        let common = Pool::new(next(u64::from(blocks) * BLOCK_BYTES), blocks);
        let huge_bytes = next(0);
        // One more, for the submission queue, and what mounts have.
        let others = 1 + if landings > 0 { MOUNTS_HOLDERS } else { 0 };
        let homes = (0..clients + others).map(|_| Pool::new(next(BLOCK_BYTES), 1)).collect();
        let inputs = if clients > 0 { INPUTS * u64::from(INPUT_BYTES) / BLOCK_BYTES } else { 0 };
        let start = next(inputs * BLOCK_BYTES);
        let inputs = Pool::new(start, u32::try_from(inputs).expect("a few"));
        let landings = Pool::new(next(u64::from(landings) * BLOCK_BYTES), landings);
        let fabric = Buf { offset: next(fabric_bytes.into()), len: fabric_bytes };
        // Nobody gives I/O up where there is a fabric.
        let spares = if fabric_bytes == 0 { blocks + u32::from(clients + others) } else { 0 };
        let spare = Pool::new(next(u64::from(spares) * BLOCK_BYTES), spares);
        let [bytes, huge_bytes] = [end, huge_bytes].map(usize::try_from);
        let bytes = bytes.map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok(Self {
            memory: Arc::new(if lean {
                Memory::lean(bytes)?
            } else {
                // What comes over a fabric lands in the arena alone.
                let windows = clients > 0 && fabric_bytes == 0;
                Memory::with_windows(bytes, huge_bytes.unwrap_or(bytes), windows)?
            }),
            scratch: Scratch { offset: 0, bytes: scratch_bytes },
            zeroes,
            common,
            homes,
            free_homes: (0..clients + others).rev().collect(),
            inputs,
            landings,
            missed: false,
            fabric,
            spare,
            lent: Vec::new(),
            parked: Vec::new(),
            stand_ins: Vec::new(),
        })
    }

    /// The machine's part.
    #[must_use]
    pub const fn scratch(&self) -> Scratch {
        self.scratch
    }

    pub(crate) const fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Returns zeroes to write from, which never change.
    pub(crate) const fn zeroes(&self) -> Buf {
        self.zeroes
    }

    /// Returns the memory that a fabric works with. The fabric's own range is empty if the arena
    /// was not made for one.
    pub(crate) fn place(&self) -> FabricMemory {
        FabricMemory { memory: Arc::clone(&self.memory), own: self.fabric }
    }

    /// A part for one more client, if there is one.
    pub(crate) fn admit(&mut self) -> Option<Holder> {
        self.free_homes.pop().map(|home| Holder { home, common_bytes: 0 })
    }

    /// Returns whether `admit` would succeed.
    pub(crate) const fn has_room(&self) -> bool {
        !self.free_homes.is_empty()
    }

    /// Takes back the part of a client that has released everything.
    pub(crate) fn release_holder(&mut self, holder: Holder) {
        debug_assert_eq!(holder.common_bytes, 0, "memory of a client that left is lost");
        self.free_homes.push(holder.home);
    }

    /// A buffer of exactly `len` bytes (1 to 1 MiB), 4096-aligned. `None` when the client has its
    /// share: then it has something to release.
    pub(crate) fn allocate(&mut self, holder: &mut Holder, len: u32) -> Option<Buf> {
        let occupied = Pool::occupied_bytes(len);
        let had = holder.common_bytes + occupied;
        if had * LEFT <= self.common.whole_bytes().saturating_sub(occupied)
            && let Some(buf) = self.common.allocate(len)
        {
            holder.common_bytes = had;
            return Some(buf);
        }
        self.missed |= self.common.whole_bytes() * SHORT < self.common.bytes();
        self.homes[usize::from(holder.home)].allocate(len)
    }

    /// Gives back a buffer from `allocate`; `buf` may also be a front part of it, of the same size
    /// of slot.
    pub(crate) fn release(&mut self, holder: &mut Holder, buf: Buf) {
        let is_stand_in = |(other, _): &(Buf, Buf)| other.offset == buf.offset;
        let buf = match self.stand_ins.iter().position(is_stand_in) {
            Some(at) => {
                let (other, buf) = self.stand_ins.swap_remove(at);
                self.give_back(other);
                buf
            }
            None => buf,
        };
        if self.common.contains(buf) {
            holder.common_bytes -= Pool::occupied_bytes(buf.len);
        }
        self.give_back(buf);
    }

    /// Another buffer in place of one that is still in use, until it is released. `None` when there
    /// is none.
    pub(crate) fn replace(&mut self, buf: Buf) -> Option<Buf> {
        let other = self.spare.allocate(buf.len)?;
        let known = self.stand_ins.iter_mut().find(|(before, _)| before.offset == buf.offset);
        let before = match known {
            // Again, and that was a stand-in already.
            Some((stand_in, _)) => Some(std::mem::replace(stand_in, other)),
            None => {
                self.stand_ins.push((other, buf));
                None
            }
        };
        before.into_iter().for_each(|before| self.give_back(before));
        Some(other)
    }

    /// Lends a buffer to abandoned I/O until that is answered.
    pub(crate) fn lend(&mut self, io: IoId, buf: Buf) {
        self.lent.push((io, buf));
    }

    /// An I/O is answered.
    pub(crate) fn unlend(&mut self, io: IoId) {
        if self.lent.is_empty() {
            return;
        }
        self.lent.retain(|(lent, _)| *lent != io);
        for buf in std::mem::take(&mut self.parked) {
            self.give_back(buf);
        }
    }

    /// Returns whether abandoned I/O may still use a part of this.
    pub(crate) fn is_lent(&self, buf: Buf) -> bool {
        self.lent.iter().any(|(_, lent)| lent.overlaps(buf))
    }

    /// Returns whether abandoned I/O may still use any buffer.
    pub(crate) const fn has_lent(&self) -> bool {
        !self.lent.is_empty()
    }

    /// Puts a buffer back into its pool, unless it is still in use.
    fn give_back(&mut self, buf: Buf) {
        if self.memory.is_window(buf) {
            // It is its owner's.
            return;
        }
        let occupied = Pool::occupied_bytes(buf.len);
        let slot = Buf { len: u32::try_from(occupied).expect("at most a block"), ..buf };
        if self.lent.iter().any(|(_, lent)| lent.overlaps(slot)) {
            self.parked.push(buf);
            return;
        }
        let pools = [&mut self.common, &mut self.landings, &mut self.spare];
        let mut pools = pools.into_iter().chain(&mut self.homes);
        let pool = pools.find(|pool| pool.contains(buf));
        pool.expect("a buffer is from a pool").release(buf.offset);
    }

    /// Returns whether, since the last call, a client got nothing of the common pool while that was
    /// short.
    pub(crate) const fn was_short(&mut self) -> bool {
        std::mem::replace(&mut self.missed, false)
    }

    /// Calls `cold` with each piece that was not used since the last call, except the machine's.
    /// Returns true when there may be others next time.
    pub(crate) fn cool(&mut self, mut cold: impl FnMut(ArenaPiece)) -> bool {
        let Self { common, homes, inputs, landings, spare, .. } = self;
        let pools = [common, inputs, landings, spare].into_iter().chain(homes);
        pools.fold(false, |more, pool| pool.cool(&mut cold) | more)
    }

    /// Returns the range between the machine's part and the buffers that are handed out. It
    /// contains only zeroes.
    pub(crate) fn beyond_machine(&self) -> Range<u64> {
        self.scratch.bytes..self.zeroes.offset + u64::from(self.zeroes.len)
    }

    /// Allocates a connection's receive buffer; `None` when there are too many.
    pub(crate) fn allocate_input(&mut self) -> Option<Buf> {
        self.inputs.allocate(INPUT_BYTES)
    }

    /// Takes back a buffer of `allocate_input`.
    pub(crate) fn release_input(&mut self, input: Buf) {
        self.inputs.release(input.offset);
    }

    /// A MiB in which a request of a mount lands; `None` when all are in use.
    pub(crate) fn allocate_landing(&mut self) -> Option<Buf> {
        let len = PIECE_BYTES as u32;
        // Some may be in use by I/O that nobody waits for.
        self.landings.allocate(len).or_else(|| self.spare.allocate(len))
    }

    #[cfg(test)]
    pub(crate) const fn landings(&self) -> Range<u64> {
        self.landings.range()
    }

    /// Takes back a buffer of `allocate_landing`.
    pub(crate) fn release_landing(&mut self, landing: Buf) {
        self.give_back(landing);
    }
}

/// Memory in which a fabric works.
#[derive(Clone, Debug)]
pub(crate) struct FabricMemory {
    /// The arena. Puts come from below `own`, and peers may put there, where they are admitted.
    pub(crate) memory: Arc<Memory>,
    /// The end of the arena, which is the fabric's own (for headers and messages).
    pub(crate) own: Buf,
}

impl FabricMemory {
    /// Reduces a window to the part to which a peer may be admitted.
    pub(crate) fn window(&self, window: Range<u64>) -> Range<u64> {
        window.start.min(self.own.offset)..window.end.min(self.own.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_disjoint_and_writable() {
        let mut arena = Arena::new(5000, 32 << 20).unwrap();
        let mut holder = arena.admit().unwrap();
        let lens = [512, 4096, 4097, 65_536, 65_537, 262_144, 262_145, 1 << 20, 100];
        let mut bufs: Vec<Buf> =
            lens.iter().map(|&len| arena.allocate(&mut holder, len).unwrap()).collect();
        bufs.extend([arena.allocate_input().unwrap(), arena.allocate_input().unwrap()]);
        for (i, buf) in bufs.iter().enumerate() {
            assert_eq!(arena.memory.address(*buf) as usize % 4096, 0);
            assert!(buf.offset >= arena.scratch.bytes);
            // SAFETY: just allocated, so held by this test alone.
            unsafe { arena.memory.bytes_mut(*buf) }.fill(u8::try_from(i).unwrap() + 1);
        }
        for (i, buf) in bufs.iter().enumerate() {
            // SAFETY: as above.
            let bytes = unsafe { arena.memory.bytes(*buf) };
            assert!(bytes.iter().all(|&b| usize::from(b) == i + 1), "buffer {i} was overwritten");
        }
    }

    #[test]
    fn what_comes_has_somewhere_to_land_while_io_that_was_given_up_uses_all_of_it() {
        let mut arena = Arena::for_exports(0, 1 << 20, 1, false).unwrap();
        let take = |arena: &mut Arena| {
            (0..LANDINGS).map(|_| arena.allocate_landing().unwrap()).collect::<Vec<_>>()
        };
        let first = take(&mut arena);
        for (io, landing) in (0..).zip(&first) {
            arena.lend(IoId(io), *landing);
            arena.release_landing(*landing);
        }
        let second = take(&mut arena);
        assert!(first.iter().all(|one| second.iter().all(|other| !one.overlaps(*other))));
        (0..u64::from(LANDINGS)).for_each(|io| arena.unlend(IoId(io)));
        second.iter().for_each(|landing| arena.release_landing(*landing));
        let again = take(&mut arena);
        assert!(again.iter().all(|landing| arena.landings().contains(&landing.offset)));
    }

    /// Allocates all that a client can get in pieces of this length.
    fn take_all(arena: &mut Arena, holder: &mut Holder, len: u32) -> Vec<Buf> {
        std::iter::from_fn(|| arena.allocate(holder, len)).collect()
    }

    #[test]
    fn whatever_some_take_there_is_something_for_everyone() {
        let mut arena = Arena::new(0, 64 << 20).unwrap();
        let lens = [1 << 20, 4096, 256 << 10, 100_000, 512];
        let mut holders = Vec::new();
        while let Some(mut holder) = arena.admit() {
            let len = lens[holders.len() % lens.len()];
            let bufs = take_all(&mut arena, &mut holder, len);
            assert!(!bufs.is_empty(), "client {} gets nothing", holders.len());
            if holders.is_empty() {
                assert_eq!(bufs.len(), 12 + 1, "one alone gets a fifth, and its own");
                assert!(!arena.was_short());
            } else if holders.len() < 8 {
                assert!(holder.common_bytes >= 1 << 20, "client {}", holders.len());
            }
            holders.push((holder, bufs));
        }
        assert_eq!(holders.len(), usize::from(MAX_CLIENTS) + 1);
        assert!(arena.was_short() && !arena.was_short());
        for (mut holder, bufs) in holders {
            bufs.into_iter().for_each(|buf| arena.release(&mut holder, buf));
            arena.release_holder(holder);
        }
        assert_eq!(arena.common.whole_bytes(), 64 << 20);
        let mut again = arena.admit().unwrap();
        assert_eq!(take_all(&mut arena, &mut again, 1 << 20).len(), 12 + 1);
    }

    #[test]
    fn inputs_are_not_taken_from_what_clients_have() {
        let mut arena = Arena::new(0, 1 << 20).unwrap();
        let inputs: Vec<Buf> = std::iter::from_fn(|| arena.allocate_input()).collect();
        assert_eq!(inputs.len() as u64, INPUTS);
        let mut holder = arena.admit().unwrap();
        assert!(arena.allocate(&mut holder, 1 << 20).is_some());
        arena.release_input(inputs[3]);
        assert_eq!(arena.allocate_input(), Some(inputs[3]));
    }

    #[test]
    #[should_panic(expected = "outside the arena")]
    fn a_range_beyond_the_end_is_noticed() {
        let arena = Arena::new(0, 1 << 20).unwrap();
        arena.memory.address(Buf { offset: 2 << 40, len: 1 });
    }
}
