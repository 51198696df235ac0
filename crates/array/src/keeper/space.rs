//! The layout of an array's bytes, as far as its keeper knows it.

use crate::Role;
use std::fmt::Debug;

pub use crate::units::UNIT_SECTORS;

/// Flag of a row that copies have moved to, while others are still where they were: both shapes use
/// the same rows.
pub const MOVED: u64 = 1 << 63;

/// The smallest part that is judged and rewritten by itself: 4096 bytes, as in md.
pub const BLOCK_SECTORS: u64 = 8;

/// Redundancy of a level: it makes up for members that are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redundancy {
    /// Nothing.
    None,
    /// Copies.
    Copies,
    /// So many parities.
    Parity(u32),
}

/// The strips of a stripe at a place of the space, or a part of their height.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Strips {
    /// Places of the space that they take.
    pub places: u64,
    /// Height of each, in sectors of a member.
    pub sectors: u64,
    /// Holders of data, and the first row of each.
    pub data: Vec<(Role, u64)>,
    /// Holders of sums, and the first row of each.
    pub sums: Vec<(Role, u64)>,
    /// Indexes of the sums that each strip of data is in. When there are none at all, every strip
    /// is in all sums.
    pub involved: Vec<Vec<usize>>,
}

impl Strips {
    /// The sums that a strip of data is in, which has this place among those.
    pub(crate) fn sums_of(&self, data: usize) -> impl Iterator<Item = (Role, u64)> {
        let of = self.involved.get(data);
        let sums = self.sums.iter().enumerate();
        let is_of = move |place: usize| of.is_none_or(|places| places.contains(&place));
        sums.filter(move |(place, _)| is_of(*place)).map(|(_, &sum)| sum)
    }
}

/// The space in which resync, bitmap and locks count, and how members share it. As in md, these are
/// rows of the members (sectors of their data areas), or sectors of the array for raid10.
pub trait SyncSpace: Debug + Send + Sync {
    /// Returns the level's name for people.
    fn level_name(&self) -> String;

    /// Number of roles.
    fn roles(&self) -> u16;

    /// Returns what makes up for members that are gone.
    fn redundancy(&self) -> Redundancy;

    /// Size of the array.
    fn array_sectors(&self) -> u64;

    /// The part of each member that is used; 0 where members differ.
    fn member_sectors(&self) -> u64;

    /// Size of the space.
    fn sync_sectors(&self) -> u64;

    /// Size of the space that a bitmap is for: while data move, of the larger shape.
    fn marked_sectors(&self) -> u64 {
        self.sync_sectors()
    }

    /// Returns the height of a unit of background work on each member; it divides the chunk.
    fn unit_sectors(&self) -> u64;

    /// Returns how much of the space is left, from here on, of the unit that this is in.
    fn unit_left(&self, sector: u64) -> u64 {
        let unit = self.unit_sectors();
        unit - sector % unit
    }

    /// The same for rows, where those lie elsewhere for each role.
    fn rows_left(&self, row: u64) -> u64 {
        self.unit_left(row)
    }

    /// Returns how far superblocks may say that work has come when all units below `sector` are
    /// done.
    fn done_below(&self, sector: u64) -> u64 {
        sector
    }

    /// The same for rows, where those lie elsewhere for each role.
    fn rows_done_below(&self, row: u64) -> u64 {
        self.done_below(row)
    }

    /// Returns whether everything is still there when these roles are lost.
    fn survives(&self, lost: &dyn Fn(Role) -> bool) -> bool;

    /// In a reshape, what is before this place lies by the new shape; backwards, what is from it
    /// on.
    fn set_front(&mut self, _place: u64) {}

    /// A reshape is over: all lies by the new shape.
    fn settle(&mut self) {}

    /// Returns whether the members' rows lie elsewhere in the space for each role.
    fn is_by_role(&self) -> bool {
        false
    }

    /// Returns where in the space a row of a role lies, and how many sectors the space has from
    /// there on; called where rows lie elsewhere for each role.
    fn of_row(&self, _role: Role, _row: u64) -> Option<(u64, u64)> {
        None
    }

    /// The row at which a role holds a place of the space.
    fn row_of(&self, _role: Role, sector: u64) -> Option<u64> {
        Some(sector)
    }

    /// The strips of the stripe at a place, from there on up to another place at most; asked where
    /// there are sums.
    fn strips_at(&self, place: u64, end: u64) -> Strips {
        Strips { places: end - place, ..Strips::default() }
    }

    /// The strips of all stripes between two places of a unit.
    fn all_strips(&self, start: u64, end: u64) -> Vec<Strips> {
        let mut place = start;
        std::iter::from_fn(|| {
            let strips = (place < end).then(|| self.strips_at(place, end))?;
            place += strips.places;
            Some(strips)
        })
        .collect()
    }

    /// The rows of a role that lie between two places of one unit: first rows and heights.
    fn rows_of(&self, role: Role, start: u64, end: u64) -> Vec<(u64, u64)> {
        self.row_of(role, start).map(|row| (row, end - start)).into_iter().collect()
    }

    /// The lowest row at which any member holds a place of the space.
    fn first_row(&self, sector: u64) -> u64 {
        sector
    }
}
