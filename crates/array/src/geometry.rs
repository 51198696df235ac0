//! Where bytes lie: array sectors to member sectors and back, for every level and layout.

/// A place on a member: a role and a sector of its data area (the data offset is not added).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Strip {
    /// Role.
    pub role: u16,
    /// Sector of the data area.
    pub sector: u64,
}
