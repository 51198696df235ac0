//! Encoding and decoding of the fields of messages.

use std::num::NonZeroU64;

use crate::family::Family;
use crate::ids::{Epoch, Generation, NodeId, Position, SetVersion, Slot, StripeNo};
use crate::pipeline::{Params, Slots};
use crate::schedule::Planner;
use crate::set::{Roles, Set, Touched, WriteStrategy};
use crate::view::{View, Witness};
use crate::wire::{JournalEntry, Leftover, PeerAddress, SessionInfo, VolumeInfo};
use braid_array::Role;

/// Bytes that are no message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The bytes end before the message does.
    #[error("a message that ends too early")]
    Short,
    /// The bytes go on after the message.
    #[error("a message with something after its end")]
    Long,
    /// Another kind of message.
    #[error("no message of kind {0} is known")]
    Kind(u8),
    /// A value that means nothing.
    #[error("a message with a {0} that means nothing")]
    Value(&'static str),
}

/// A field of a message.
pub(super) trait Field: Sized {
    /// Appends it.
    fn put(&self, out: &mut Vec<u8>);
    /// Takes it from the front of `input`.
    fn get(input: &mut &[u8]) -> Result<Self, WireError>;
}

fn take<'a>(input: &mut &'a [u8], len: usize) -> Result<&'a [u8], WireError> {
    let (taken, rest) = input.split_at_checked(len).ok_or(WireError::Short)?;
    *input = rest;
    Ok(taken)
}

macro_rules! number {
    ($($type:ty),*) => {$(
        impl Field for $type {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend(self.to_le_bytes());
            }
            fn get(input: &mut &[u8]) -> Result<Self, WireError> {
                let bytes = take(input, size_of::<Self>())?;
                Ok(Self::from_le_bytes(bytes.try_into().map_err(|_| WireError::Short)?))
            }
        }
    )*};
}
number!(u8, u16, u32, u64, i32);

/// Numbers with a type of their own.
macro_rules! wrapped {
    ($($type:ident),*) => {$(
        impl Field for $type {
            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }
            fn get(input: &mut &[u8]) -> Result<Self, WireError> {
                Field::get(input).map(Self)
            }
        }
    )*};
}
wrapped!(Position, Generation, Slot, StripeNo, Epoch, NodeId, Role, Roles);

/// Fields one after the other.
macro_rules! record {
    ($type:ident { $($field:ident),* $(,)? }) => {
        impl Field for $type {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }
            fn get(input: &mut &[u8]) -> Result<Self, WireError> {
                Ok(Self { $($field: Field::get(input)?),* })
            }
        }
    };
}
record!(Slots { count, bytes });
record!(SetVersion { epoch, number });
record!(PeerAddress { role, address, ring });
record!(Witness { node, address });
record!(VolumeInfo { name, bytes, written });
record!(SessionInfo { number, age_ms, connected, volume, grant, ring_bytes });
record!(JournalEntry { version, holders, void });
record!(Leftover { version, prepared, ok });
record!(Set {
    position,
    generation,
    number,
    stripe,
    offset,
    len,
    strategy,
    planner,
    fua,
    touched,
    missing,
    log,
    relay
});

impl<A: Field, B: Field> Field for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }
    fn get(input: &mut &[u8]) -> Result<Self, WireError> {
        Ok((A::get(input)?, B::get(input)?))
    }
}

/// Items that messages hold lists of: their number, then one after the other. (Bytes go as a
/// whole.)
trait Listed: Field {}
impl Listed for u64 {}
impl Listed for NodeId {}
impl Listed for [u8; 16] {}
impl Listed for (Position, Generation) {}
impl Listed for SetVersion {}
impl Listed for PeerAddress {}
impl Listed for Witness {}
impl Listed for VolumeInfo {}
impl Listed for SessionInfo {}
impl Listed for Leftover {}
impl Listed for JournalEntry {}

impl<T: Listed> Field for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        put_len(self.len(), out);
        self.iter().for_each(|item| item.put(out));
    }
    fn get(input: &mut &[u8]) -> Result<Self, WireError> {
        let len = u16::get(input)?;
        (0..len).map(|_| T::get(input)).collect()
    }
}

impl Field for bool {
    fn put(&self, out: &mut Vec<u8>) {
        u8::from(*self).put(out);
    }
    fn get(input: &mut &[u8]) -> Result<Self, WireError> {
        match u8::get(input)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(WireError::Value("flag")),
        }
    }
}

fn put_len(len: usize, out: &mut Vec<u8>) {
    u16::try_from(len).expect("messages are shorter than 64 KiB").put(out);
}

impl Field for Vec<u8> {
    fn put(&self, out: &mut Vec<u8>) {
        put_len(self.len(), out);
        out.extend(self);
    }
    fn get(input: &mut &[u8]) -> Result<Self, WireError> {
        let len = u16::get(input)?;
        Ok(take(input, usize::from(len))?.to_vec())
    }
}

impl Field for String {
    fn put(&self, out: &mut Vec<u8>) {
        put_len(self.len(), out);
        out.extend(self.as_bytes());
    }
    fn get(input: &mut &[u8]) -> Result<Self, WireError> {
        Self::from_utf8(Vec::get(input)?).map_err(|_| WireError::Value("text"))
    }
}

impl Field for Planner {
    fn put(&self, out: &mut Vec<u8>) {
        let (kind, node): (u8, u16) = match *self {
            Self::Client => (0, 0),
            Self::Chain => (1, 0),
            Self::Encoder { node } => (2, node.0),
            Self::Static => (3, 0),
        };
        kind.put(out);
        node.put(out);
    }
    fn get(input: &mut &[u8]) -> Result<Self, WireError> {
        match (u8::get(input)?, u16::get(input)?) {
            (0, 0) => Ok(Self::Client),
            (1, 0) => Ok(Self::Chain),
            (2, node) => Ok(Self::Encoder { node: Role(node) }),
            (3, 0) => Ok(Self::Static),
            _ => Err(WireError::Value("planner")),
        }
    }
}

impl Field for Params {
    fn put(&self, out: &mut Vec<u8>) {
        let (level, layout) = self.family.encode();
        self.session.put(out);
        self.epoch.put(out);
        self.nodes.put(out);
        level.put(out);
        layout.put(out);
        self.chunk_bytes.put(out);
        self.stripes.put(out);
        self.planner.put(out);
        for slots in [self.wide, self.narrow, self.reads] {
            slots.put(out);
        }
        self.silence_ms.put(out);
    }
    fn get(input: &mut &[u8]) -> Result<Self, WireError> {
        let session = u64::get(input)?;
        let epoch = Epoch::get(input)?;
        let nodes = u16::get(input)?;
        let level = i32::get(input)?;
        let layout = u32::get(input)?;
        let family = Family::decode(level, layout, u32::from(nodes)).ok();
        let family = family.filter(|family| family.encode() == (level, layout));
        Ok(Self {
            session,
            epoch,
            nodes,
            family: family.ok_or(WireError::Value("level or layout"))?,
            chunk_bytes: u32::get(input)?,
            stripes: u64::get(input)?,
            planner: Planner::get(input)?,
            wide: Slots::get(input)?,
            narrow: Slots::get(input)?,
            reads: Slots::get(input)?,
            silence_ms: u32::get(input)?,
        })
    }
}

impl Field for WriteStrategy {
    fn put(&self, out: &mut Vec<u8>) {
        let number: u8 = match self {
            Self::FullStripe => 0,
            Self::Reconstruct => 1,
            Self::ReadModifyWrite => 2,
            Self::Restore(_) => 3,
            Self::Zero => 4,
        };
        number.put(out);
        if let Self::Restore(role) = self {
            role.put(out);
        }
    }
    fn get(input: &mut &[u8]) -> Result<Self, WireError> {
        match u8::get(input)? {
            0 => Ok(Self::FullStripe),
            1 => Ok(Self::Reconstruct),
            2 => Ok(Self::ReadModifyWrite),
            3 => Ok(Self::Restore(Role::get(input)?)),
            4 => Ok(Self::Zero),
            _ => Err(WireError::Value("strategy")),
        }
    }
}

impl Field for [u8; 16] {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend(self);
    }
    fn get(input: &mut &[u8]) -> Result<Self, WireError> {
        take(input, 16)?.try_into().map_err(|_| WireError::Short)
    }
}

impl<T: Field> Field for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(field) = self {
            field.put(out);
        }
    }
    fn get(input: &mut &[u8]) -> Result<Self, WireError> {
        bool::get(input)?.then(|| T::get(input)).transpose()
    }
}

impl Field for View {
    fn put(&self, out: &mut Vec<u8>) {
        self.epoch.put(out);
        self.count.put(out);
        self.torn.put(out);
        let members = self.members.iter().map(|member| member.map_or(0, NonZeroU64::get));
        members.collect::<Vec<u64>>().put(out);
        self.voters.put(out);
        self.voted.put(out);
        self.witnesses.put(out);
    }
    fn get(input: &mut &[u8]) -> Result<Self, WireError> {
        let view = Self {
            epoch: Epoch::get(input)?,
            count: u32::get(input)?,
            torn: bool::get(input)?,
            members: Vec::get(input)?.into_iter().map(NonZeroU64::new).collect(),
            voters: Vec::get(input)?,
            voted: Vec::get(input)?,
            witnesses: Vec::get(input)?,
        };
        view.fits().then_some(view).ok_or(WireError::Value("view"))
    }
}

/// More blocks than any stripe has.
const MAX_BLOCKS: u32 = 1 << 16;

/// The number of blocks; then whether all are touched, or else a bit for each.
impl Field for Touched {
    fn put(&self, out: &mut Vec<u8>) {
        self.blocks().put(out);
        self.is_all().put(out);
        if !self.is_all() {
            let bit = |index| u8::from(self.contains(index)) << (index % 8);
            let bits = |byte: u32| (8 * byte..8 * byte + 8).map(bit).fold(0, |a, b| a | b);
            out.extend((0..self.blocks().div_ceil(8)).map(bits));
        }
    }
    fn get(input: &mut &[u8]) -> Result<Self, WireError> {
        let blocks = u32::get(input)?;
        let all = bool::get(input)?;
        if blocks > MAX_BLOCKS {
            return Err(WireError::Value("number of blocks"));
        }
        if all {
            return Ok(Self::all(blocks));
        }
        let bytes = take(input, blocks.div_ceil(8) as usize)?;
        let set = |index: u32| bytes[index as usize / 8] >> (index % 8) & 1 == 1;
        if (blocks..8 * bytes.len() as u32).any(set) {
            return Err(WireError::Value("block beyond the stripe"));
        }
        let mut touched = Self::none(blocks);
        (0..blocks).filter(|&index| set(index)).for_each(|index| touched.insert(index));
        if touched.is_all() {
            return Err(WireError::Value("list of all blocks"));
        }
        Ok(touched)
    }
}
