//! Descriptor chains, read once (virtio 1.2, 2.7.5). The guest that writes them is not trusted: a
//! chain that goes in a circle, leaves its table or is too long is rejected.

use virtio_queue::desc::split::Descriptor;
use vm_memory::{Address, Bytes, GuestAddress};

use super::memory::MappedGuest;

/// Descriptors of a chain at most, in an indirect table. In the ring's own there are at most as
/// many as the ring has.
pub(super) const MAX_DESCRIPTORS: u32 = 1024;
/// A descriptor: u64 address, u32 length, u16 flags, u16 next, little-endian.
const DESCRIPTOR_BYTES: u32 = 16;

/// A range of guest memory that a descriptor names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Area {
    pub(super) address: GuestAddress,
    pub(super) len: u32,
}

/// A chain: areas to be read by us, then areas to be written by us. Their addresses are not checked
/// yet.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Chain {
    pub(super) readable: Vec<Area>,
    pub(super) writable: Vec<Area>,
}

/// Reason for which a chain cannot be answered. The ring is unusable from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BrokenChain {
    #[error("a descriptor beyond the end of its table")]
    Index,
    #[error("a chain in a circle, or one that is too long")]
    TooLong,
    #[error("descriptors outside the guest's memory")]
    Table,
    #[error("an indirect table that is none")]
    Indirect,
    #[error("something to be read behind something to be written")]
    Order,
    #[error("no byte of the guest's memory for the status")]
    NoStatus,
    #[error("a request that is under way already")]
    Twice,
    #[error("rings outside the guest's memory, or with more in them than fits")]
    Rings,
}

/// The table that a chain is in.
struct ChainTable {
    address: GuestAddress,
    len: u32,
    indirect: bool,
}

impl Chain {
    /// Reads the chain that begins with descriptor `head` of a table of `size`.
    ///
    /// # Errors
    /// [`BrokenChain`]
    pub(super) fn read(
        guest: &MappedGuest,
        table: GuestAddress,
        size: u16,
        head: u16,
    ) -> Result<Self, BrokenChain> {
        let mut chain = Self::default();
        let mut table = ChainTable { address: table, len: size.into(), indirect: false };
        let mut index = u32::from(head);
        let mut seen = 0;
        let mut bytes = 0u32;
        loop {
            if index >= table.len {
                return Err(BrokenChain::Index);
            }
            // One that comes twice would come for ever.
            if seen == table.len {
                return Err(BrokenChain::TooLong);
            }
            seen += 1;
            let descriptor = table.descriptor(guest, index)?;
            if descriptor.refers_to_indirect_table() {
                table = table.indirect(&descriptor)?;
                index = 0;
                seen = 0;
                continue;
            }
            bytes = bytes.checked_add(descriptor.len()).ok_or(BrokenChain::TooLong)?;
            chain.add(&descriptor)?;
            if !descriptor.has_next() {
                return Ok(chain);
            }
            index = descriptor.next().into();
        }
    }

    fn add(&mut self, descriptor: &Descriptor) -> Result<(), BrokenChain> {
        let area = Area { address: descriptor.addr(), len: descriptor.len() };
        if descriptor.is_write_only() {
            self.writable.push(area);
        } else if self.writable.is_empty() {
            self.readable.push(area);
        } else {
            return Err(BrokenChain::Order);
        }
        Ok(())
    }
}

impl ChainTable {
    fn descriptor(&self, guest: &MappedGuest, index: u32) -> Result<Descriptor, BrokenChain> {
        let offset = u64::from(index) * u64::from(DESCRIPTOR_BYTES);
        let address = self.address.checked_add(offset).ok_or(BrokenChain::Table)?;
        guest.read_obj(address).map_err(|_| BrokenChain::Table)
    }

    /// The table that a descriptor of this one stands for; it is the last of the chain here.
    fn indirect(&self, descriptor: &Descriptor) -> Result<Self, BrokenChain> {
        let len = descriptor.len() / DESCRIPTOR_BYTES;
        let whole = descriptor.len().is_multiple_of(DESCRIPTOR_BYTES);
        if self.indirect || descriptor.has_next() || !whole || len == 0 {
            return Err(BrokenChain::Indirect);
        }
        if len > MAX_DESCRIPTORS {
            return Err(BrokenChain::TooLong);
        }
        Ok(Self { address: descriptor.addr(), len, indirect: true })
    }
}

/// Bytes of all areas.
pub(super) fn bytes(areas: &[Area]) -> u64 {
    areas.iter().map(|area| u64::from(area.len)).sum()
}

/// The areas without their first bytes, fewer than there are.
pub(super) fn skip(areas: &mut Vec<Area>, bytes: u32) {
    let mut left = bytes;
    areas.retain_mut(|area| {
        let gone = left.min(area.len);
        left -= gone;
        area.address = GuestAddress(area.address.0.wrapping_add(gone.into()));
        area.len -= gone;
        area.len > 0
    });
}
