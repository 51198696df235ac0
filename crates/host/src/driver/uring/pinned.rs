//! The parts of the arena that are registered with a ring.

use io_uring::{IoUring, cqueue, squeue};

use braid_array::Buf;

use crate::arena::{ArenaPiece, Memory, PIECE_BYTES};

/// Limit of the kernel on registered buffers; pieces beyond are used unregistered.
const MAX_PIECES: u64 = 1 << 14;

/// Registration state of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PinState {
    /// Must not be registered: a part of it must have no pages.
    Barred,
    Free,
    Pinned,
}

/// Pieces of the arena that are registered with a ring, as buffers of the same numbers. I/O on them
/// costs the kernel less, but they are pinned: all their pages are there. So a piece is registered
/// when [`index_of`](Self::index_of) is first asked for it, and no longer after
/// [`let_go`](Self::let_go), which the driver calls when the arena gives the piece back. A piece
/// with a part that must not be there is barred ([`bar`](Self::bar)) until [`allow`](Self::allow).
/// Where the kernel refuses, I/O goes on without registered buffers.
#[derive(Debug)]
pub(super) struct Pinned {
    pieces: Vec<PinState>,
    /// The kernel has refused one (a limit on locked memory): it is not asked until one is free.
    refused: bool,
}

type PinnedRing = IoUring<squeue::Entry, cqueue::Entry>;

impl Pinned {
    /// Creates the table without registered pieces. Kernels before 5.19 refuse to register any.
    pub(super) fn new(ring: &PinnedRing, memory: &Memory) -> Self {
        let pieces = (memory.len_bytes() as u64).div_ceil(PIECE_BYTES).min(MAX_PIECES);
        let count = u32::try_from(pieces).unwrap_or(0);
        let refused = ring.submitter().register_buffers_sparse(count).is_err();
        let state = if memory.is_lean() { PinState::Barred } else { PinState::Free };
        Self { pieces: vec![state; count as usize], refused }
    }

    /// The registered buffer in which a range lies, if it lies in one.
    pub(super) fn index_of(
        &mut self,
        ring: &PinnedRing,
        memory: &Memory,
        range: Buf,
    ) -> Option<u16> {
        let (first, last) = ArenaPiece::around(range);
        let pinned = self.pieces.get_mut(first.0 as usize)?;
        if first != last || *pinned == PinState::Barred {
            return None;
        }
        if *pinned == PinState::Free && !self.refused {
            let whole = memory.piece(first);
            let address = memory.address(whole).cast();
            let piece = libc::iovec { iov_base: address, iov_len: whole.len as usize };
            self.refused = !update(ring, first, piece);
            *pinned = if self.refused { PinState::Free } else { PinState::Pinned };
        }
        if *pinned == PinState::Pinned { u16::try_from(first.0).ok() } else { None }
    }

    /// Lets go of a piece on which there is no I/O.
    pub(super) fn release(&mut self, ring: &PinnedRing, piece: ArenaPiece) {
        let Some(state) = self.pieces.get_mut(piece.0 as usize) else { return };
        if *state == PinState::Pinned {
            *state = PinState::Free;
            let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
            let gone = update(ring, piece, nothing);
            debug_assert!(gone, "the kernel keeps a piece of the arena");
            self.refused = false;
        }
    }

    /// A piece may be registered.
    pub(super) fn allow(&mut self, piece: ArenaPiece) {
        if let Some(state) = self.pieces.get_mut(piece.0 as usize)
            && *state == PinState::Barred
        {
            *state = PinState::Free;
        }
    }

    /// A piece may not be registered any more.
    pub(super) fn bar(&mut self, ring: &PinnedRing, piece: ArenaPiece) {
        self.release(ring, piece);
        if let Some(state) = self.pieces.get_mut(piece.0 as usize) {
            *state = PinState::Barred;
        }
    }
}

/// Registers something as this piece.
fn update(ring: &PinnedRing, piece: ArenaPiece, what: libc::iovec) -> bool {
    // SAFETY: the range is the arena's, which lives as long as the ring, or nothing.
    unsafe { ring.submitter().register_buffers_update(piece.0, &[what], None) }.is_ok()
}
