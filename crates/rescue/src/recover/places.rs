//! The place of a block in its structure, or two where nothing tells one from the other.

/// Where in a structure a block belongs, in sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Places {
    pub(super) first: u64,
    /// The same block lies there, too, and nothing tells one from the other.
    pub(super) copy: Option<u64>,
}

impl Places {
    pub(super) const fn only(first: u64) -> Self {
        Self { first, copy: None }
    }

    pub(super) fn contain(&self, place: u64) -> bool {
        self.first == place || self.copy == Some(place)
    }
}
