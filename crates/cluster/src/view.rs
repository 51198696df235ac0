//! Views: the holders of an array, and since when; and the vote file of a node, with the newest
//! view that it was told of, and the highest epoch that it has granted.
//!
//! ```text
//! UUID.vote: two slots of 4096 bytes, written in turn; the newest valid one counts
//!  0 magic "braidvot"   8 crc32c u32 of the rest   12 version u16   14 voters u16   16 uuid[16]
//! 32 sequence of the slot u64   40 granted u32   44 view: epoch u32   48 count u32
//! 52 flags u32 (1 torn)   56 members u16   58 those who voted before u16   60 witnesses u16
//! 62 zeroes   64 granted to: client u64
//! 72 per role: incarnation u64, then per voter, and who was one before: node u64
//!    then per witness: node u64, length u16 of its address, that; then zeroes
//! ```

use std::collections::BTreeSet;
use std::num::NonZeroU64;

use braid_array::Role;
use crc32c::crc32c;

use crate::ids::{Epoch, NodeId};

#[cfg(test)]
mod tests;

/// A slot of the vote file.
pub const SLOT_BYTES: usize = 4096;

const MAGIC: &[u8; 8] = b"braidvot";
const VERSION: u16 = 1;
const HEAD_BYTES: usize = 72;
const TORN: u32 = 1;

/// The longest address of a witness, in bytes.
pub const MAX_ADDRESS_BYTES: usize = 300;

/// A node that votes and has no member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Witness {
    /// As a voter.
    pub node: NodeId,
    /// Where it listens, `HOST:PORT`.
    pub address: String,
}

/// Members in sync. The newest view counts, by epoch and then by count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Epoch of the client that made it.
    pub epoch: Epoch,
    /// Number of this view among that client's views.
    pub count: u32,
    /// Stripes with writes under way when everything stopped may not fit: a resync is due.
    pub torn: bool,
    /// By role, the incarnation of the node with which the member was in sync, if it was.
    pub members: Vec<Option<NonZeroU64>>,
    /// The nodes that vote.
    pub voters: Vec<NodeId>,
    /// Former voters, while it is not certain that every client learns of the change of voters:
    /// until then a majority of either group is needed. Empty at other times.
    pub voted: Vec<NodeId>,
    /// Addresses of the voters without a member.
    pub witnesses: Vec<Witness>,
}

impl View {
    /// Returns the view of a message or vote file, where a view from before any client stands for
    /// none.
    #[must_use]
    pub fn told(self) -> Option<Self> {
        if self.epoch == Epoch::BEFORE_ANY { None } else { Some(self) }
    }

    /// Returns the order of the view among views.
    #[must_use]
    pub const fn order(&self) -> (Epoch, u32) {
        (self.epoch, self.count)
    }

    /// Returns whether this role holds all acknowledged writes.
    #[must_use]
    pub fn has(&self, role: Role) -> bool {
        self.members.get(role.index()).is_some_and(Option::is_some)
    }

    /// Returns the first group of voters without a majority `here`: the number here, and the number
    /// needed. Any two clients to which all groups agree have asked one node in common.
    #[must_use]
    pub fn lacks(&self, here: &BTreeSet<NodeId>) -> Option<(usize, usize)> {
        let groups = self.groups().map(|voters| (among(voters, here), majority(voters.len())));
        groups.into_iter().find(|(here, majority)| here < majority)
    }

    /// Returns whether enough voters have the view that every later client learns of it.
    #[must_use]
    pub fn holds(&self, has: &BTreeSet<NodeId>) -> bool {
        let less = usize::from(braid_array::broken("record-quorum"));
        let enough = |voters: &[NodeId]| among(voters, has) + less + majority(voters.len());
        self.groups().all(|voters| enough(voters) > voters.len())
    }

    fn groups(&self) -> impl Iterator<Item = &[NodeId]> {
        [&self.voters, &self.voted].into_iter().map(Vec::as_slice).filter(|group| !group.is_empty())
    }

    /// Returns whether the view fits into a vote file.
    #[must_use]
    pub fn fits(&self) -> bool {
        let named = self.members.len() + self.voters.len() + self.voted.len();
        let lengths = || self.witnesses.iter().map(|witness| witness.address.len());
        let bytes = HEAD_BYTES + 8 * named + lengths().map(|length| 10 + length).sum::<usize>();
        bytes <= SLOT_BYTES && lengths().all(|length| length <= MAX_ADDRESS_BYTES)
    }
}

/// Returns the number of voters that a client has to ask before it goes on: any two such groups
/// meet.
#[must_use]
pub const fn majority(voters: usize) -> usize {
    voters / 2 + 1
}

impl Witness {
    /// Decodes a witness from the front of the rest of a slot.
    fn decode(rest: &mut &[u8]) -> Option<Self> {
        let (node, after) = rest.split_first_chunk()?;
        let (len, after) = after.split_first_chunk()?;
        let (address, after) = after.split_at_checked(u16::from_le_bytes(*len).into())?;
        *rest = after;
        if address.len() > MAX_ADDRESS_BYTES {
            return None;
        }
        let address = str::from_utf8(address).ok()?;
        let node = NodeId(u64::from_le_bytes(*node));
        Some(Self { node, address: address.to_owned() })
    }
}

fn number(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.first_chunk()?))
}

fn among(voters: &[NodeId], known: &BTreeSet<NodeId>) -> usize {
    voters.iter().filter(|voter| known.contains(voter)).count()
}

/// Vote of a node on an array: the state that it keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vote {
    /// The highest epoch granted.
    pub granted: Epoch,
    /// The client that was granted it. The same client may ask again, as for a node that was away.
    pub to: u64,
    /// The newest view recorded.
    pub view: Option<View>,
}

impl Vote {
    /// Returns the slot for the vote file of this array.
    ///
    /// # Panics
    /// On a view that does not fit.
    #[must_use]
    pub fn encode(&self, array: &[u8; 16], sequence: u64) -> Vec<u8> {
        let none = View::default();
        let view = self.view.as_ref().unwrap_or(&none);
        assert!(view.fits(), "a view of an array");
        let mut out = Vec::with_capacity(SLOT_BYTES);
        out.extend(VERSION.to_le_bytes());
        out.extend((view.voters.len() as u16).to_le_bytes());
        out.extend(array);
        out.extend(sequence.to_le_bytes());
        for number in [self.granted.0, view.epoch.0, view.count, u32::from(view.torn) * TORN] {
            out.extend(number.to_le_bytes());
        }
        out.extend((view.members.len() as u16).to_le_bytes());
        out.extend((view.voted.len() as u16).to_le_bytes());
        out.extend((view.witnesses.len() as u16).to_le_bytes());
        out.extend([0; 2]);
        out.extend(self.to.to_le_bytes());
        for incarnation in &view.members {
            out.extend(incarnation.map_or(0, NonZeroU64::get).to_le_bytes());
        }
        for voter in view.voters.iter().chain(&view.voted) {
            out.extend(voter.0.to_le_bytes());
        }
        for Witness { node, address } in &view.witnesses {
            out.extend(node.0.to_le_bytes());
            out.extend((address.len() as u16).to_le_bytes());
            out.extend(address.as_bytes());
        }
        out.resize(SLOT_BYTES - 12, 0);
        let mut slot = MAGIC.to_vec();
        slot.extend(crc32c(&out).to_le_bytes());
        slot.append(&mut out);
        slot
    }

    /// Decodes a slot, with its sequence. Returns `None` for anything that `encode` does not make.
    #[must_use]
    pub fn decode(array: &[u8; 16], slot: &[u8]) -> Option<(u64, Self)> {
        let slot = slot.first_chunk::<SLOT_BYTES>()?;
        let short = |at: usize| Some(u16::from_le_bytes(slot.get(at..at + 2)?.try_into().ok()?));
        let word = |at: usize| Some(u32::from_le_bytes(slot.get(at..at + 4)?.try_into().ok()?));
        let long = |at: usize| Some(u64::from_le_bytes(slot.get(at..at + 8)?.try_into().ok()?));
        let sound = slot.starts_with(MAGIC) && word(8)? == crc32c(&slot[12..]);
        if !sound || short(12)? != VERSION || slot[16..32] != array[..] || word(52)? & !TORN != 0 {
            return None;
        }
        let [members, voters, voted] = [short(56)?, short(14)?, short(58)?].map(usize::from);
        let end = HEAD_BYTES + 8 * (members + voters + voted);
        let mut numbers = slot.get(HEAD_BYTES..end)?.chunks_exact(8).filter_map(number);
        let mut rest = &slot[end..];
        let witnesses = (0..short(60)?).map(|_| Witness::decode(&mut rest));
        let view = View {
            epoch: Epoch(word(44)?),
            count: word(48)?,
            torn: word(52)? & TORN != 0,
            members: numbers.by_ref().take(members).map(NonZeroU64::new).collect(),
            voters: numbers.by_ref().take(voters).map(NodeId).collect(),
            voted: numbers.map(NodeId).collect(),
            witnesses: witnesses.collect::<Option<_>>()?,
        };
        Some((long(32)?, Self { granted: Epoch(word(40)?), to: long(64)?, view: view.told() }))
    }

    /// Returns the vote in a vote file: the newest of its valid slots, with its sequence.
    #[must_use]
    pub fn newest(array: &[u8; 16], file: &[u8]) -> Option<(u64, Self)> {
        let slots = file.chunks(SLOT_BYTES).take(2);
        slots.filter_map(|slot| Self::decode(array, slot)).max_by_key(|(sequence, _)| *sequence)
    }
}

/// Returns the place of the slot with this sequence.
#[must_use]
pub const fn slot_byte(sequence: u64) -> u64 {
    sequence % 2 * SLOT_BYTES as u64
}
