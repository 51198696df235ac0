//! Members that the array cannot do without: as holders of their roles, or because others have
//! sectors that cannot be read.

use super::core::Core;
use super::members::{Member, State};
use crate::MemberId;

impl Member {
    /// Returns whether all these sectors of the device are known not to be readable.
    fn lacks(&self, sector: u64, sectors: u64) -> bool {
        let end = sector.saturating_add(sectors);
        let mut known = self.doubts.unreadable.clone();
        let bad = self.bad_blocks.ranges();
        if !bad.iter().all(|(at, len)| known.insert(*at, *len)) {
            return false;
        }
        let covers = |(at, len): &(u64, u64)| *at <= sector && end <= at.saturating_add(*len);
        known.ranges().iter().any(covers)
    }
}

impl Core {
    /// Returns whether the array would fail without this member.
    pub(super) fn needs(&self, id: MemberId) -> bool {
        let Some(member) = self.members.get(id) else { return false };
        let State::InSync { role } = member.state else { return false };
        self.members.retiring(role).is_none() && !self.enough_without(&[role])
    }

    /// A member with sectors known not to be readable, which could not be made up for without
    /// this one.
    pub(crate) fn made_up_for(&self, id: MemberId) -> Option<MemberId> {
        let own = self.members.get(id)?;
        let State::InSync { role } = own.state else { return None };
        let others = || self.members.iter_live().filter(|(other, _)| *other != id);
        others()
            .find(|(other, member)| {
                let State::InSync { role: doubtful } = member.state else { return false };
                let ranges =
                    || member.bad_blocks.ranges().iter().chain(member.doubts.unreadable.ranges());
                let survives = |start: u64, sectors: u64| {
                    let mut lost = vec![role, doubtful];
                    let row = start.saturating_sub(member.superblock.data_offset);
                    // What this one cannot read itself does not go with it.
                    if own.lacks(own.absolute(row), sectors) {
                        return true;
                    }
                    for (_, third) in others().filter(|(third, _)| third != other) {
                        let at = third.absolute(row);
                        let bad = third.bad_blocks.overlaps(at, sectors)
                            || third.doubts.unreadable.overlaps(at, sectors);
                        if bad {
                            lost.extend(third.state.role());
                        }
                    }
                    self.enough_without(&lost)
                };
                member.doubts.everywhere && !self.enough_without(&[role, doubtful])
                    || ranges().any(|(start, sectors)| !survives(*start, *sectors))
            })
            .map(|(other, _)| other)
    }
}
