//! Places of the array: what background work could not read, what it took on trust.

use crate::MemberId;
use crate::status::Unreadable;

/// Places beyond these are counted and not listed.
const MAX_PLACES: usize = 1000;

/// All in all, and where.
#[derive(Clone, Debug, Default)]
pub(crate) struct UnreadPlaces {
    /// Sectors of the array.
    pub(crate) sectors: u64,
    places: Vec<Unreadable>,
}

impl UnreadPlaces {
    /// Counts sectors of the array that these members hold, or were to hold, and could not read.
    pub(super) fn add(&mut self, array_sector: u64, sectors: u64, members: &[MemberId]) {
        self.sectors += sectors;
        let adjoins = |place: &&mut Unreadable| {
            place.array_sector + place.sectors == array_sector && place.members == members
        };
        if let Some(place) = self.places.iter_mut().find(adjoins) {
            place.sectors += sectors;
        } else if self.places.len() < MAX_PLACES {
            self.places.push(Unreadable { array_sector, sectors, members: members.to_vec() });
        }
    }

    /// The places listed, in the order of the array.
    pub(crate) fn places(&self) -> Vec<Unreadable> {
        let mut places = self.places.clone();
        places.sort_by_key(|place| place.array_sector);
        places
    }
}
