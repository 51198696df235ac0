//! Members of an array that may be lost together.

use crate::Role;
use crate::geometry::{Geometry, GeometryError, Shape};
use crate::level::{Layout, Level};

/// Chunks are counted here; the mapping asks for a size, and any will do.
const CHUNK_SECTORS: u32 = 8;

/// The losses after which everything can still be read. Every stripe of an array survives the same,
/// so none has to be decoded to tell.
#[derive(Clone, Debug)]
pub struct Losses {
    /// Sets of members, and how many of each may be lost.
    sets: Vec<(Vec<Role>, usize)>,
}

impl Losses {
    /// Any of the `members` may be lost, but no more than `most`.
    #[must_use]
    pub fn any(members: u16, most: usize) -> Self {
        Self { sets: vec![(Role::all(members).collect(), most)] }
    }

    /// Returns the losses that one of md's levels survives.
    ///
    /// # Errors
    /// For arrays that md refuses.
    pub fn of(level: Level, layout: Layout, members: u32) -> Result<Self, GeometryError> {
        let Layout::Raid10(copied) = layout else {
            let all = members.try_into().unwrap_or(u16::MAX);
            let most = if level == Level::Raid1 {
                members.saturating_sub(1)
            } else {
                level.parity_disks()
            };
            return Ok(Self::any(all, most as usize));
        };
        let shape = Shape {
            level,
            layout,
            raid_disks: members,
            chunk_sectors: CHUNK_SECTORS,
            size_sectors: u64::from(copied.copies() * CHUNK_SECTORS),
            member_data_sectors: &[],
        };
        let geometry = Geometry::new(&shape)?;
        // Where copies lie repeats after as many chunks as there are members.
        let holders = |chunk: u32| {
            let sector = u64::from(chunk * CHUNK_SECTORS);
            let copies = 0..geometry.copies();
            copies.map(|copy| geometry.copy(sector, copy).role).collect::<Vec<_>>()
        };
        let set = |chunk| {
            let holders = holders(chunk);
            let most = holders.len() - 1;
            (holders, most)
        };
        Ok(Self { sets: (0..members).map(set).collect() })
    }

    /// Returns whether everything can be read without the members that are `lost`.
    #[must_use]
    pub fn survives(&self, lost: impl Fn(Role) -> bool) -> bool {
        let within = |(members, most): &(Vec<Role>, usize)| {
            members.iter().filter(|member| lost(**member)).nth(*most).is_none()
        };
        self.sets.iter().all(within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::level::{FarSets, Raid10Layout};

    fn raid10(near: u8, far: u8, offset: bool, far_sets: FarSets, members: u32) -> Losses {
        let layout = Layout::Raid10(Raid10Layout { near, far, offset, far_sets });
        Losses::of(Level::Raid10, layout, members).expect("a layout of md's")
    }

    fn survives(losses: &Losses, lost: &[u16]) -> bool {
        losses.survives(|member| lost.contains(&member.0))
    }

    #[test]
    fn copies_may_be_lost_but_for_one_of_each() {
        let near = raid10(2, 1, false, FarSets::Original, 4);
        assert!(survives(&near, &[0, 3]) && survives(&near, &[1, 2]));
        assert!(!survives(&near, &[0, 1]) && !survives(&near, &[2, 3]));
        let odd = raid10(2, 1, false, FarSets::Original, 3);
        for lost in [[0, 1], [1, 2], [0, 2]] {
            assert!(!survives(&odd, &lost), "{lost:?}");
        }
        let far = raid10(1, 2, false, FarSets::Original, 4);
        assert!(survives(&far, &[0, 2]) && survives(&far, &[1, 3]));
        assert!(!survives(&far, &[0, 1]) && !survives(&far, &[3, 0]));
        let far_sets = raid10(1, 2, false, FarSets::Improved, 4);
        assert!(survives(&far_sets, &[1, 2]) && !survives(&far_sets, &[2, 3]));
        let three = raid10(3, 1, false, FarSets::Original, 4);
        assert!(survives(&three, &[0, 2]) && !survives(&three, &[0, 1, 3]));
    }

    #[test]
    fn other_levels_count() {
        let cases = [
            (Level::Linear, 0),
            (Level::Raid0, 0),
            (Level::Raid1, 5),
            (Level::Raid4, 1),
            (Level::Raid5, 1),
            (Level::Raid6, 2),
        ];
        for (level, most) in cases {
            let losses = Losses::of(level, Layout::default_for(level), 6).expect("6 members");
            assert!(losses.survives(|member| member.index() < most), "{level}");
            assert!(!losses.survives(|member| member.index() <= most), "{level}");
        }
    }

    #[test]
    fn layouts_that_lose_data_are_refused() {
        let layout = Raid10Layout { near: 4, far: 1, offset: false, far_sets: FarSets::Original };
        assert!(Losses::of(Level::Raid10, Layout::Raid10(layout), 3).is_err());
    }
}
