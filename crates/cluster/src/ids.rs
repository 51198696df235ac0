//! Types for positions, counts and versions: one for each, so that none is taken for another. On
//! the wire and in journals each is its number.

use braid_array::Role;
use std::fmt;
use std::ops::Range;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident($number:ty);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $number);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

ids! {
    /// A place in every ring of a pipeline, which one slice-set at a time uses.
    Position(u16);
    /// Number of earlier uses of a position; tells late messages.
    Generation(u32);
    /// A slot for reads in the ring of a node.
    Slot(u16);
    /// A stripe of an array, from the first.
    StripeNo(u64);
    /// Number of a client's ownership of an array: of two clients the later one has the higher
    /// epoch.
    Epoch(u32);
    /// A node, as a voter and where its volumes are: a number that no other node has.
    NodeId(u64);
    /// A voter, as the client of an array counts them: the node of a member has the number of its
    /// role, and witnesses have those behind the roles. Another node that takes the role takes the
    /// number.
    VoterNo(u16);
}

/// A slice of a stripe: the same range of each of its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SliceKey {
    /// The stripe.
    pub stripe: StripeNo,
    /// Index of the slice in its blocks.
    pub slice: u32,
}

/// The version of a slice-set: of two over the same bytes the greater is written later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetVersion {
    /// Epoch of the client that writes it.
    pub epoch: Epoch,
    /// The client's own number for it; grows with every slice-set of the epoch.
    pub number: u64,
}

impl SetVersion {
    /// Creates the version of a client's slice-set of this number.
    #[must_use]
    pub const fn new(epoch: Epoch, number: u64) -> Self {
        Self { epoch, number }
    }
}

impl Position {
    /// Returns the positions with these numbers.
    pub fn all(numbers: Range<u16>) -> impl Iterator<Item = Self> {
        numbers.map(Self)
    }

    /// Returns the index in a list of all positions.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Returns the role of the node that adds up at this position, among this many nodes.
    #[must_use]
    pub const fn encoder(self, nodes: u16) -> Role {
        Role(self.0 % nodes)
    }
}

impl Slot {
    /// Returns all slots, of this many.
    pub fn all(count: u16) -> impl DoubleEndedIterator<Item = Self> {
        (0..count).map(Self)
    }

    /// Returns the index in a list of all slots.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl VoterNo {
    /// Returns the number of the first witness of an array with this many roles.
    #[must_use]
    pub const fn first_witness(roles: u16) -> Self {
        Self(roles)
    }

    /// Returns the number of the next witness.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// Returns the role of the member on the voter's node, in an array with this many roles; `None`
    /// for a witness.
    #[must_use]
    pub fn role(self, roles: u16) -> Option<Role> {
        (self < Self::first_witness(roles)).then_some(Role(self.0))
    }
}

impl From<Role> for VoterNo {
    fn from(role: Role) -> Self {
        Self(role.0)
    }
}

impl StripeNo {
    /// Returns the next stripe.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl SliceKey {
    /// Returns the same slice of the stripe before, if there is one.
    #[must_use]
    pub fn before(self) -> Option<Self> {
        let stripe = self.stripe.0.checked_sub(1)?;
        Some(Self { stripe: StripeNo(stripe), ..self })
    }

    /// Returns the same slice of the next stripe.
    #[must_use]
    pub const fn after(self) -> Self {
        Self { stripe: self.stripe.next(), ..self }
    }
}

impl Epoch {
    /// The epoch before any client had the array; no client has it.
    pub const BEFORE_ANY: Self = Self(0);

    /// Returns the next epoch; the last one has none and stays.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl Generation {
    /// Returns the generation of the next use of the position.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}
