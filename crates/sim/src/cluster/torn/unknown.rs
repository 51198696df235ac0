//! Blocks that may be lost by the events so far, and thus be I/O errors.

use std::collections::{BTreeMap, BTreeSet};

use braid_array::Role;
use braid_array::code::Losses;

use crate::cluster::content::Layout;
use crate::cluster::suspects::{Map, Slice};
use crate::oracle::{LogicalTime, Range};

/// Sectors of a block.
const BLOCK_SECTORS: u64 = 8;

/// A write that is not durable yet.
#[derive(Debug)]
struct Write {
    /// When it was submitted.
    moment: LogicalTime,
    range: Range,
    /// When it was answered.
    done: Option<LogicalTime>,
}

/// Blocks that may be I/O errors. Wrong content is never excused.
///
/// After a loss of power under writes parities may not fit: the slice is *torn* until a resync with
/// all members has ended while all of its blocks are known, or one write to all of it is durable. A
/// block of a torn slice may be an error as long as its member is away. When the member comes back,
/// or a replacement takes its role, the block may stay an error: it is *unknown*. Exceptions are
/// blocks with a durable write since, and a member with a complete content that is the only one
/// away. A durable write makes a block known again. (Where records were stored when the client
/// began, an absent member may lack its part of them, so its content does not count.)
///
/// The object is told of writes ([`begins`](Self::begins), [`ends`](Self::ends),
/// [`flushed`](Self::flushed)), of a [loss](Self::power_lost), of clients that
/// [start](Self::starts), and of members that are [lost](Self::lost) and have
/// [joined](Self::joined).
#[derive(Debug)]
pub(super) struct Unknown {
    map: Map,
    losses: Losses,
    /// By block, on which member it lies.
    homes: Vec<Role>,
    /// Number of blocks of each slice.
    slices: BTreeMap<Slice, u64>,
    writes: Vec<Write>,
    /// Writes that may have become one with others, which were in flight to the same slices.
    met: BTreeSet<LogicalTime>,
    torn: BTreeSet<Slice>,
    /// Blocks that were written, durably, since power was last lost there.
    rewritten: BTreeSet<u64>,
    /// Blocks that could not be given to their member.
    unknown: BTreeSet<u64>,
    /// Members that may lack sums of these slices for good.
    sums: BTreeSet<(Slice, Role)>,
    /// Members that the client goes on without.
    away: BTreeSet<Role>,
    /// The only absent member, if it was complete when power was lost.
    alone: Option<Role>,
    /// Members that were in sync when power was lost.
    held: Vec<Role>,
}

impl Unknown {
    /// Creates the state without unknown blocks, for an array with this layout that survives these
    /// losses.
    pub(super) fn new(map: Map, layout: &Layout, losses: Losses) -> Self {
        let home = |block: u64| {
            let place = map.place(block * BLOCK_SECTORS);
            layout.code(place.slice.0).data()[place.index as usize].node
        };
        let homes: Vec<Role> = (0..layout.sectors() / BLOCK_SECTORS).map(home).collect();
        let mut slices = BTreeMap::new();
        for block in 0..homes.len() as u64 {
            *slices.entry(map.place(block * BLOCK_SECTORS).slice).or_default() += 1;
        }
        Self {
            map,
            losses,
            homes,
            slices,
            writes: Vec::new(),
            met: BTreeSet::new(),
            torn: BTreeSet::new(),
            rewritten: BTreeSet::new(),
            unknown: BTreeSet::new(),
            sums: BTreeSet::new(),
            away: BTreeSet::new(),
            alone: None,
            held: Vec::new(),
        }
    }

    fn slice(&self, block: u64) -> Slice {
        self.map.place(block * BLOCK_SECTORS).slice
    }

    fn blocks(&self) -> std::ops::Range<u64> {
        0..self.homes.len() as u64
    }

    /// Power is lost; in the slices that are `marked` sums may not fit. These members held all.
    pub(super) fn power_lost(&mut self, marked: impl Fn(u64) -> bool, held: Vec<Role>) {
        self.writes.clear();
        self.held = held;
        for block in self.blocks() {
            let slice = self.slice(block);
            if marked(slice.0) {
                self.torn.insert(slice);
                self.rewritten.remove(&block);
            }
        }
    }

    /// A client serves without these members. `unrecorded`: it has stored nothing of which they may
    /// lack their part.
    pub(super) fn starts(&mut self, away: &[Role], unrecorded: bool) {
        self.away = away.iter().copied().collect();
        self.alone = match away {
            [role] if unrecorded && self.held.contains(role) => Some(*role),
            _ => None,
        };
        // Whoever goes on later does so with another client.
        self.held.clear();
    }

    /// Handles the end of the running client: its unanswered writes may be stored or not.
    pub(super) fn client_gone(&mut self) {
        self.writes.retain(|write| write.done.is_some());
    }

    /// A member is lost.
    pub(super) fn lost(&mut self, role: Role) {
        self.away.insert(role);
        self.alone = None;
    }

    /// Another member is to have the role of one that is away.
    pub(super) fn replaced(&mut self) {
        self.alone = None;
    }

    /// Returns whether the only member away had its whole content when power was lost.
    pub(super) const fn is_alone(&self) -> bool {
        self.alone.is_some()
    }

    /// Returns the roles that are away.
    pub(super) fn away(&self) -> impl Iterator<Item = Role> {
        self.away.iter().copied()
    }

    /// A member that was away is in sync.
    pub(super) fn joined(&mut self, role: Role) {
        if !self.away.remove(&role) || self.alone.take() == Some(role) {
            return;
        }
        for block in self.blocks() {
            let slice = self.slice(block);
            if !self.torn.contains(&slice) {
                continue;
            }
            self.sums.insert((slice, role));
            if self.homes[block as usize] == role && !self.rewritten.contains(&block) {
                self.unknown.insert(block);
            }
        }
    }

    /// Handles the end of a complete resync. Slices with unknown blocks stay torn.
    pub(super) fn resynced(&mut self) {
        if self.away.is_empty() {
            let unknown: BTreeSet<_> =
                self.unknown.iter().map(|&block| self.slice(block)).collect();
            self.torn.retain(|slice| unknown.contains(slice));
        }
    }

    /// A write was submitted.
    pub(super) fn begins(&mut self, moment: LogicalTime, range: Range) {
        let slices = self.map.slices(range);
        for other in self.writes.iter().filter(|write| write.done.is_none()) {
            if self.map.slices(other.range).iter().any(|slice| slices.contains(slice)) {
                self.met.extend([other.moment, moment]);
            }
        }
        self.writes.push(Write { moment, range, done: None });
    }

    /// Records the answer of a write.
    pub(super) fn ends(&mut self, moment: LogicalTime, now: LogicalTime, ok: bool, fua: bool) {
        let Some(at) = self.writes.iter().position(|write| write.moment == moment) else { return };
        if !ok {
            self.writes.remove(at);
        } else if fua {
            let write = self.writes.remove(at);
            self.is_durable(write.range);
        } else {
            self.writes[at].done = Some(now);
        }
    }

    /// Records that writes answered before this moment are durable.
    pub(super) fn flushed(&mut self, moment: LogicalTime) {
        let durable = |write: &mut Write| write.done.is_some_and(|done| done <= moment);
        for write in self.writes.extract_if(.., durable).collect::<Vec<_>>() {
            self.is_durable(write.range);
        }
    }

    /// Records that answered writes that were not flushed may be lost.
    pub(super) fn forgotten(&mut self) {
        self.writes.retain(|write| write.done.is_none());
    }

    fn is_durable(&mut self, range: Range) {
        for block in blocks_of(range) {
            self.rewritten.insert(block);
            self.unknown.remove(&block);
        }
        for slice in self.map.slices(range) {
            let inside = |block: &u64| self.slice(*block) == slice;
            let covered = blocks_of(range).filter(inside).count() as u64;
            if covered == self.slices[&slice] {
                self.torn.remove(&slice);
                self.sums.retain(|(other, _)| *other != slice);
            }
        }
    }

    /// Returns whether this block may be an I/O error.
    pub(super) fn may_fail(&self, block: u64) -> bool {
        let home = self.homes[block as usize];
        if !self.away.contains(&home) {
            return self.unknown.contains(&block);
        }
        let slice = self.slice(block);
        self.torn.contains(&slice) || !self.survives(slice)
    }

    fn survives(&self, slice: Slice) -> bool {
        let lacks = |role: Role| {
            let unknown =
                |block: &u64| self.homes[*block as usize] == role && self.slice(*block) == slice;
            self.away.contains(&role)
                || self.sums.contains(&(slice, role))
                || self.unknown.iter().any(unknown)
        };
        self.losses.survives(lacks)
    }

    /// Returns whether a write to these sectors may fail. A write fails if it covers some unknown
    /// blocks of a slice and needs other unknown blocks of it, or is merged with such a write. A
    /// single lost member is no reason to fail: no two of its blocks share a parity.
    pub(super) fn write_may_fail(&self, moment: LogicalTime, range: Range) -> bool {
        let met = self.met.contains(&moment);
        self.map.slices(range).into_iter().any(|slice| {
            let is_lost = |block: &u64| self.slice(*block) == slice && self.may_fail(*block);
            let lost: Vec<u64> = self.blocks().filter(is_lost).collect();
            let homes = lost.iter().map(|&block| self.homes[block as usize]);
            let roles: BTreeSet<Role> = homes.chain(self.away.iter().copied()).collect();
            let written = blocks_of(range).filter(is_lost).count();
            roles.len() > 1 && (met && !lost.is_empty() || written > 0 && lost.len() > written)
        })
    }

    /// Returns whether a member is away and parities may not fit in this range.
    pub(super) fn is_in_doubt(&self, range: Range) -> bool {
        let torn = || self.map.slices(range).into_iter().any(|slice| self.torn.contains(&slice));
        !self.away.is_empty() && torn()
    }

    /// Returns whether everything is known, except blocks that are being written.
    pub(super) fn is_none(&self) -> bool {
        self.torn.is_empty() && self.unknown.is_empty() && self.sums.is_empty()
    }

    /// Returns the numbers of torn slices and of unknown blocks.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.torn.len(), self.unknown.len())
    }
}

fn blocks_of(range: Range) -> std::ops::Range<u64> {
    range.sector / BLOCK_SECTORS..(range.sector + range.sectors) / BLOCK_SECTORS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::scenario::params;
    use crate::judge::Judge;
    use crate::rng::Rng;
    use braid_array::level::{Layout as MdLayout, Level};
    use braid_cluster::Family;

    const FAMILY: Family =
        Family::Md { level: Level::Raid5, layout: MdLayout::default_for(Level::Raid5) };

    /// A raid5 over three nodes that has lost power everywhere, and a stripe of it.
    fn lost() -> (Unknown, Range) {
        let params = params(&mut Rng::new(1), FAMILY, 3);
        let layout = Layout::new(params);
        let map = Map::new(&params, layout.data_blocks());
        let losses = FAMILY.losses(3).unwrap();
        let mut unknown = Unknown::new(map, &layout, losses);
        unknown.power_lost(|_| true, Role::all(3).collect());
        (unknown, Range { sector: 0, sectors: layout.sectors() / params.stripes })
    }

    fn write(unknown: &mut Unknown, range: Range) {
        let mut judge = Judge::new(8);
        let write = judge.moment();
        unknown.begins(write, range);
        unknown.ends(write, judge.moment(), true, false);
        assert!(unknown.torn.contains(&(0, 0)), "not durable yet");
        unknown.flushed(judge.moment());
    }

    #[test]
    fn a_whole_stripe_that_is_durable_ends_what_is_excused() {
        let (mut unknown, stripe) = lost();
        let home = unknown.homes[0];
        unknown.starts(&[home], true);
        assert!(unknown.may_fail(0));
        write(&mut unknown, stripe);
        assert!(!unknown.may_fail(0));
        unknown.replaced();
        unknown.joined(home);
        assert!(!unknown.may_fail(0));
    }

    #[test]
    fn a_member_that_comes_back_to_its_client_knows_what_another_one_does_not() {
        for replaced in [false, true] {
            let (mut unknown, _) = lost();
            let home = unknown.homes[0];
            unknown.starts(&[home], true);
            if replaced {
                unknown.replaced();
            }
            unknown.joined(home);
            unknown.resynced();
            assert_eq!(unknown.may_fail(0), replaced);
            let block = Range { sector: 0, sectors: BLOCK_SECTORS };
            unknown.power_lost(|_| true, Vec::new());
            write(&mut unknown, block);
            assert!(!unknown.may_fail(0));
        }
    }
}
