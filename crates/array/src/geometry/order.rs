//! The order in which an array's sectors fill the rows of its members, as far as a move of all data
//! goes by it: what is moved must not lie upon what is still needed.
//!
//! A chunk of raid10 takes as many places of a row as there are near copies, and rows go together
//! as many as there are far copies. A stripe with parity is a row of chunks, each in one place.
//! `first_dev_address` and `last_dev_address` in the kernel's `raid10.c` go by the same numbers.

use super::Geometry;
use crate::level::Layout;

/// The order of one shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowOrder {
    chunk: u64,
    /// Places that a chunk takes.
    near: u64,
    /// Places in a row.
    places: u64,
    /// Sectors of a member that one row takes.
    pub(crate) height: u64,
}

impl RowOrder {
    /// The orders of two shapes that data move between. A front is at the begin of a stripe with
    /// parity in both: there the larger chunk counts.
    pub(crate) fn of_both(old: &Geometry, new: &Geometry) -> (Self, Self) {
        let larger = old.chunk_sectors().max(new.chunk_sectors());
        (Self::of(old, larger), Self::of(new, larger))
    }

    fn of(geometry: &Geometry, larger: u32) -> Self {
        let places = geometry.data_disks().into();
        match geometry.layout() {
            Layout::Raid10(layout) => {
                let chunk = u64::from(geometry.chunk_sectors());
                let height = chunk * u64::from(layout.far);
                Self { chunk, near: layout.near.into(), places, height }
            }
            _ => Self { chunk: larger.into(), near: 1, places, height: larger.into() },
        }
    }

    /// The first row in which anything may lie from this array sector on.
    pub(crate) const fn first_row(self, sector: u64) -> u64 {
        sector / self.chunk * self.near / self.places * self.height
    }

    /// The first row behind all that lies before this array sector.
    pub(crate) const fn end_row(self, sector: u64) -> u64 {
        (sector.div_ceil(self.chunk) * self.near).div_ceil(self.places) * self.height
    }

    /// The array sector up to which all lies before this row.
    pub(crate) const fn sector_before(self, row: u64) -> u64 {
        row / self.height * self.places / self.near * self.chunk
    }

    /// The array sector from which on nothing lies before this row.
    pub(crate) const fn sector_from(self, row: u64) -> u64 {
        (row.div_ceil(self.height) * self.places).div_ceil(self.near) * self.chunk
    }

    /// Returns whether some chunks lie in more than one row.
    const fn straddles(self) -> bool {
        !self.places.is_multiple_of(self.near)
    }

    /// Returns the least distance of the rows of two shapes with which data move on from anywhere,
    /// both ways. md asks for that of shapes where no chunk lies in two rows, and goes by members
    /// instead of rows for others.
    pub(crate) fn least_shift(self, other: Self) -> u64 {
        let higher = self.height.max(other.height);
        let as_wide = Self { places: other.places, ..self } == other;
        let steps = as_wide && self.near <= 2 && self.places != other.places;
        if steps || !self.straddles() && !other.straddles() {
            return higher;
        }
        2 * higher + self.height.min(other.height)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::Shape;
    use crate::level::{FarSets, Level, Raid10Layout};

    fn mirrors(near: u8, far: u8, raid_disks: u32, chunk_sectors: u32) -> Option<Geometry> {
        let layout = Raid10Layout { near, far, offset: far > 1, far_sets: FarSets::Original };
        let shape = Shape {
            level: Level::Raid10,
            layout: Layout::Raid10(layout),
            raid_disks,
            chunk_sectors,
            size_sectors: 64 * 6,
            member_data_sectors: &[],
        };
        Geometry::new(&shape).ok()
    }

    /// Pairs of shapes that data may move between, whose places are as many or more.
    fn pairs() -> Vec<(Geometry, Geometry)> {
        let copies = [(2, 1), (3, 1), (4, 1), (1, 2), (1, 3), (2, 2)];
        let mut pairs = Vec::new();
        for (disks, (near, far), chunk) in (2..=9).flat_map(|disks| {
            copies
                .into_iter()
                .flat_map(move |copies| [8, 16, 64].map(|chunk| (disks, copies, chunk)))
        }) {
            let Some(old) = mirrors(near, far, disks, chunk) else { continue };
            let more = [1, 2, 3].map(|more| mirrors(near, far, disks + more, chunk));
            let chunks = [8, 32, 64].map(|chunk| mirrors(near, far, disks, chunk));
            let layouts = [(near * far, 1), (1, near * far)];
            let layouts = layouts.map(|(near, far)| mirrors(near, far, disks, chunk));
            let others = more.into_iter().chain(chunks).chain(layouts).flatten();
            pairs.extend(others.map(|new| (old.clone(), new)));
        }
        pairs
    }

    /// Wherever the front is, the next step that a move takes lies upon nothing that is needed.
    #[test]
    fn data_move_on_from_anywhere_by_the_least_shift() {
        for (old, new) in pairs() {
            let what = format!("{old:?} {new:?}");
            let align = u64::from(old.chunk_sectors().max(new.chunk_sectors()));
            let size = old.array_sectors().min(new.array_sectors());
            let (old, new) = RowOrder::of_both(&old, &new);
            let shift = old.least_shift(new);
            assert_eq!(shift, new.least_shift(old), "{what}");
            for front in (0..size).step_by(8) {
                let next = (front / align + 1) * align;
                let safe = new.sector_before(old.first_row(front) + shift);
                assert!(next <= safe, "{what}: {next} is behind {safe} at {front}");
                let safe = old.sector_from(new.end_row(front + 8).saturating_sub(shift));
                assert!(safe <= front / align * align, "{what}: {safe} back from {front}");
            }
        }
    }

    /// The numbers are those of where chunks lie.
    #[test]
    fn rows_are_those_of_the_map() {
        for (map, _) in pairs() {
            let (order, _) = RowOrder::of_both(&map, &map);
            let chunk = u64::from(map.chunk_sectors());
            let rows = |sector: u64| (0..map.copies()).map(move |copy| (sector, copy));
            let row = |(sector, copy)| map.copy(sector, copy).sector;
            for at in (0..map.array_sectors()).step_by(map.chunk_sectors() as usize) {
                let first =
                    (at..map.array_sectors()).step_by(chunk as usize).flat_map(rows).map(row);
                assert!(order.first_row(at) <= first.min().expect("a chunk"), "{map:?} at {at}");
                let last = (0..=at).step_by(chunk as usize).flat_map(rows).map(row).max();
                let end = last.expect("a chunk") + chunk;
                assert!(end <= order.end_row(at + 1), "{map:?} at {at}");
                assert!(order.sector_before(order.end_row(at + 1)) > at, "{map:?} at {at}");
                assert!(order.sector_from(order.first_row(at)) <= at, "{map:?} at {at}");
            }
        }
    }
}
