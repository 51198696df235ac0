//! The journals of the nodes, as the client sees them: replayed before the array is served, and
//! trimmed when what they hold is stored durably everywhere.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use braid_array::format::Superblock;
use braid_array::format::superblock::feature;
use braid_array::keeper::LaneReport;
use braid_array::{Refusal, Role, SECTOR_BYTES};

use super::context::{Cx, Shared};
use super::partial::PartialParityLog;
use crate::client::out::RequestKind;
use crate::client::session_key::SessionKey;
use crate::ids::{Epoch, SetVersion, SliceKey};
use crate::journal::{HEADERS_BYTES, Kind, PAGE_BYTES, Record};
use crate::set::Set;
use crate::view::View;
use crate::wire::{JournalEntry, Message};

const STORAGE: &str = "look at the storage of that node";

/// What is done with what the journals held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Nothing,
    Listing,
    /// Views leave out the nodes that were lost, and then that is replayed, or all of it is stored.
    Telling {
        stored: bool,
    },
    Replaying,
    Over,
}

/// How far a trim is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trim {
    /// What was stored is made durable, and the event count moves on.
    Checkpoint { complete: bool },
    /// The journals take note of that.
    Noting,
}

/// What the client knows of the nodes' journals: how many bytes each log holds, how much of that
/// may be in use, what was recorded before this client came, and up to which version all is
/// trimmed.
///
/// ```text
/// prepared ─► Listing ─► Telling ─► Replaying ─► Telling ─► Over
///             then, at first and whenever they are half full: checkpoint ─► trim
/// ```
/// A slice-set of the predecessor is stored if every node that has a part in it and holds the array
/// has recorded it: only such a one may have been answered. If a node is lost before it has listed
/// its records, a view says first that it does not hold the array any more (*telling*), and only
/// then do the others store: otherwise a later client that finds that node again would decide
/// differently. If one is lost before it has stored what is to be stored, a view says so before the
/// others drop these records. Before they drop any the keeper makes a checkpoint: a copy of a
/// volume from before it, which may lack what was recorded, is stale by its event count.
#[derive(Debug)]
pub(in crate::client) struct Journals {
    /// How much the log of a node holds, and whether it is for parts of stripes alone.
    told: BTreeMap<SessionKey, (u64, bool)>,
    /// How much all of them hold; 0 without journals.
    bytes: u64,
    /// The superblocks say that slice-sets may be recorded and not stored.
    pub(in crate::client) live: bool,
    /// Which are not recorded.
    pub(in crate::client) parts: PartialParityLog,
    start: Start,
    /// Records of the last client that were stored: those above a version, without these.
    pub(in crate::client) decided: Option<Arc<(SetVersion, Vec<SetVersion>)>>,
    /// What was recorded before this client came is still there: nothing is written before it is
    /// gone.
    left: bool,
    /// Roles from which an answer is still to come.
    waiting: BTreeSet<Role>,
    /// By role, what was recorded.
    lists: BTreeMap<Role, (SetVersion, Vec<JournalEntry>)>,
    /// By version, the most that a slice-set takes of a log.
    sizes: BTreeMap<u64, u64>,
    used: u64,
    /// Slice-sets up to this version are stored durably, and everybody knows.
    trimmed: u64,
    /// What is being trimmed, and up to which version.
    trim: Option<(Trim, u64)>,
    /// Up to which versions they were trimmed, and what the latest was then: only when that is
    /// trimmed, too, is it certain that no later record lies before those in a log.
    trims: Vec<(u64, u64)>,
}

/// Which of the recorded slice-sets do not go, and up to which one all are stored.
fn decide(
    lists: &BTreeMap<Role, (SetVersion, Vec<JournalEntry>)>,
) -> (SetVersion, Vec<SetVersion>) {
    let mark = lists.values().map(|(mark, _)| *mark).max().unwrap_or_default();
    let mark = if braid_array::broken("trim-mark") { SetVersion::default() } else { mark };
    let mut found: BTreeMap<SetVersion, (BTreeSet<Role>, bool, u64)> = BTreeMap::new();
    for (&role, (_, items)) in lists {
        for item in items.iter().filter(|item| item.version > mark) {
            let (have, void, holders) = found.entry(item.version).or_default();
            have.insert(role);
            *void |= item.void;
            *holders |= item.holders.0;
        }
    }
    let dropped = |(_, (have, void, holders)): &(SetVersion, (BTreeSet<Role>, bool, u64))| {
        let lacks = |role: &Role| *holders >> role.0 & 1 == 1 && !have.contains(role);
        *void
            || if braid_array::broken("all-hold") {
                lists.keys().all(lacks)
            } else {
                lists.keys().any(lacks)
            }
    };
    (mark, found.into_iter().filter(dropped).map(|(version, _)| version).collect())
}

impl Journals {
    pub(in crate::client) fn new(superblock: &Superblock) -> Self {
        Self {
            told: BTreeMap::new(),
            bytes: 0,
            live: superblock.has(feature::NODE_JOURNALS),
            parts: PartialParityLog::new(superblock),
            start: Start::Nothing,
            decided: None,
            left: false,
            waiting: BTreeSet::new(),
            lists: BTreeMap::new(),
            sizes: BTreeMap::new(),
            used: 0,
            trimmed: 0,
            trim: None,
            trims: Vec::new(),
        }
    }

    /// All have noted that slice-sets up to this version need not be recorded.
    fn trimmed_to(&mut self, version: u64) {
        (self.trimmed, self.trim, self.left) = (version, None, false);
        let over = self.trims.extract_if(.., |&mut (_, latest)| latest <= version);
        self.parts.trimmed(version);
        let Some(free) = over.map(|(trimmed, _)| trimmed).max() else { return };
        let left = self.sizes.split_off(&(free + 1));
        let gone = std::mem::replace(&mut self.sizes, left);
        self.used -= gone.values().sum::<u64>();
    }

    /// Is what is answered in journals?
    pub(in crate::client) const fn are_used(&self) -> bool {
        self.bytes > 0
    }

    /// Is what is answered recorded durably, all of it?
    pub(super) fn cover_all(&self) -> bool {
        self.are_used() && self.parts.all_is_durable()
    }

    /// All nodes have made durable what they had stored of slice-sets up to this version.
    pub(super) fn flushed(&mut self, version: Option<u64>) {
        self.parts.flushed = self.parts.flushed.max(version);
    }

    /// May a node have a part in the array that was lost when this was the latest version?
    pub(in crate::client) fn allow(&self, lost_at: u64) -> bool {
        !self.are_used()
            || braid_array::broken("join-after-trim")
            || self.trimmed >= lost_at && self.trim.is_none() && !self.left
    }

    /// Is anything there from before this client came, so that nothing may be written?
    pub(super) const fn hold_old_records(&self) -> bool {
        self.left
    }

    /// A node has told how much its log holds.
    pub(in crate::client) fn told(&mut self, key: SessionKey, bytes: u64, parts_only: bool) {
        self.told.insert(key, (bytes, parts_only));
    }

    fn told_by(&self, key: impl Into<SessionKey>) -> (u64, bool) {
        self.told.get(&key.into()).copied().unwrap_or_default()
    }

    /// Has a node that comes back a journal that is as large as is needed?
    pub(in crate::client) fn suffices(&self, key: SessionKey) -> bool {
        self.told_by(key).0 >= self.bytes
    }

    /// What a volume of this size has for the data, and what comes before them.
    pub(in crate::client) fn sectors_before(&self, volume_sectors: u64) -> u64 {
        if !self.are_used() {
            return volume_sectors;
        }
        let taken = (HEADERS_BYTES + self.bytes).div_ceil(SECTOR_BYTES);
        volume_sectors.saturating_sub(taken)
    }

    /// Do journals hold whatever members may have lost?
    pub(in crate::client) const fn all_is_recorded(&self) -> bool {
        self.live && !self.parts.left
    }

    /// Nodes are prepared: is what they had recorded where it belongs? Otherwise that is seen to.
    pub(in crate::client) fn are_ready(&mut self, cx: &mut Cx<'_>) -> bool {
        if self.start == Start::Nothing {
            if self.live && self.lose_those_without(cx) {
                return false;
            }
            let told = || cx.members.alive_roles().map(|role| self.told_by(role));
            let least = told().map(|(bytes, _)| bytes).min().unwrap_or(0);
            let parts_only = told().all(|(_, parts_only)| parts_only);
            let reads = cx.keeper.is_read_only() && !self.live;
            if reads || least < 3 * slack(cx.shared) {
                self.start = Start::Over;
            } else {
                self.bytes = least;
                self.parts.only = parts_only;
                cx.report(LaneReport::RecordsElsewhere { journal_bytes: least, parts_only });
                self.start = Start::Listing;
                self.request_all(cx, |tag| Message::ListJournal { tag, from: 0 });
            }
        }
        self.start == Start::Over
    }

    /// What a node had recorded may be needed: one that cannot tell has lost it. Is there any?
    fn lose_those_without(&self, cx: &mut Cx<'_>) -> bool {
        let without = |role: &Role| self.told_by(*role).0 == 0;
        let without: Vec<Role> = cx.members.alive_roles().filter(without).collect();
        for &role in &without {
            cx.lose(role, Refusal::new("its journal cannot be read", STORAGE));
        }
        !without.is_empty()
    }

    fn request_all(&mut self, cx: &mut Cx<'_>, message: impl Fn(u32) -> Message) {
        let roles: Vec<Role> = cx.members.alive_roles().collect();
        self.waiting.extend(&roles);
        for role in roles {
            cx.request(role, RequestKind::Journal, &message);
        }
    }

    /// A node lists what it has recorded.
    pub(in crate::client) fn listed(
        &mut self,
        cx: &mut Cx<'_>,
        role: Role,
        mark: SetVersion,
        items: Vec<JournalEntry>,
        next: u32,
    ) {
        let (known, list) = self.lists.entry(role).or_default();
        *known = mark;
        list.extend(items);
        if next > 0 && next as usize == list.len() {
            let message = |tag| Message::ListJournal { tag, from: next };
            return cx.request(role, RequestKind::Journal, message);
        }
        self.waiting.remove(&role);
    }

    /// Does it matter that a journal cannot do what it was asked for? Nothing that was recorded is
    /// needed after a clean stop.
    pub(in crate::client) fn are_needed(&self) -> bool {
        self.live || self.start != Start::Listing
    }

    /// Nothing is waited for any more from this node.
    pub(in crate::client) fn without(&mut self, role: Role) {
        self.waiting.remove(&role);
    }

    /// Do views have to leave out all nodes that were lost, before the start goes on?
    pub(in crate::client) fn wants_views(&mut self) -> bool {
        if !self.waiting.is_empty() {
            return false;
        }
        match self.start {
            Start::Listing => self.start = Start::Telling { stored: false },
            Start::Replaying => self.start = Start::Telling { stored: true },
            Start::Nothing | Start::Over | Start::Telling { .. } => {}
        }
        matches!(self.start, Start::Telling { .. })
    }

    /// Views leave out all nodes that were lost: what goes of what was recorded is stored. Is that
    /// over?
    pub(in crate::client) fn views_told(&mut self, cx: &mut Cx<'_>, view: &View) -> bool {
        if matches!(self.start, Start::Telling { stored: true }) {
            self.left = true;
            self.start = Start::Over;
            return true;
        }
        self.start = Start::Replaying;
        let mut lists = std::mem::take(&mut self.lists);
        lists.retain(|&role, _| cx.members.alive(role) && view.has(role));
        let (above, without) = decide(&lists);
        if self.live {
            self.decided = Some(Arc::new((above, without.clone())));
            for role in lists.into_keys() {
                let without = without.clone();
                self.waiting.insert(role);
                let message = |tag| Message::ReplayJournal { tag, above, without };
                cx.request(role, RequestKind::Journal, message);
            }
        }
        false
    }

    /// Is there all that a slice-set needs, which is to be recorded or not?
    pub(super) fn may_open(&self, cx: &mut Cx<'_>, log: bool, len: u32) -> bool {
        if !log {
            let told = cx.keeper.may_store_unrecorded();
            if !told {
                cx.report(LaneReport::StoresUnrecorded);
            }
            return told;
        }
        let used = self.used + recorded_bytes(cx.shared, len) + slack(cx.shared);
        !self.are_used() || used <= self.bytes
    }

    /// A slice-set of a write is being opened.
    pub(super) fn note_opened(&mut self, shared: &Shared, set: &Set) {
        if !self.are_used() {
            return;
        }
        if !set.log {
            return self.parts.note_unrecorded(set.number);
        }
        let bytes = recorded_bytes(shared, set.len);
        self.sizes.insert(set.number, bytes);
        self.used += bytes;
        let slice = set.offset / shared.slice_bytes();
        self.parts.note_recorded(SliceKey { stripe: set.stripe, slice }, set.number);
    }

    /// Has journals trimmed that are half full, or that a node which comes back has no part in. All
    /// slice-sets up to `stored` are stored, and `latest` is the newest. Is there room again?
    pub(super) fn trim(&mut self, cx: &mut Cx<'_>, stored: u64, latest: u64) -> bool {
        // Where too many are lost nobody will know of those who could not flush.
        let over = cx.writes_over() || cx.keeper.is_read_only();
        if !self.are_used() || !self.waiting.is_empty() || over {
            return false;
        }
        match self.trim {
            None => self.begin_trim(cx, stored, latest),
            Some((Trim::Checkpoint { complete }, version)) => {
                // Who could not flush must not count any more.
                if complete && cx.losses_told() {
                    self.trim = Some((Trim::Noting, version));
                    self.flushed(Some(version));
                    let mark = SetVersion::new(cx.shared.params().epoch, version);
                    let all = self.left;
                    self.request_all(cx, |tag| Message::TrimJournal { tag, mark, all });
                }
            }
            Some((Trim::Noting, version)) => {
                self.trimmed_to(version);
                if self.cover_all() {
                    cx.report(LaneReport::NothingIsUnrecorded);
                }
                return true;
            }
        }
        false
    }

    fn begin_trim(&mut self, cx: &mut Cx<'_>, stored: u64, latest: u64) {
        let half = (self.bytes - slack(cx.shared)) / 2;
        let trimmed = self.trimmed;
        let comes = cx.members.prepared_since.is_some_and(|lost_at| lost_at > trimmed);
        let due = self.used > half || !braid_array::broken("join-after-trim") && comes;
        let due = self.left || due && stored > trimmed;
        // Who is being wired would not hear of it.
        if due && !cx.members.wiring {
            let complete = braid_array::broken("trim-together");
            if !complete {
                cx.report(LaneReport::WantsCheckpoint);
            }
            self.trim = Some((Trim::Checkpoint { complete }, stored));
            self.trims.push((stored, latest));
        }
    }

    /// The checkpoint that a trim waits for is complete.
    pub(in crate::client) const fn checkpoint_done(&mut self) {
        if let Some((Trim::Checkpoint { complete }, _)) = &mut self.trim {
            *complete = true;
        }
    }

    /// Up to where a journal holds nothing any more that counts: all of that of a node that comes.
    pub(in crate::client) const fn mark(&self, epoch: Epoch) -> SetVersion {
        SetVersion::new(epoch, self.trimmed)
    }
}

/// The most that a slice-set takes of a log, with what says that it is void.
fn recorded_bytes(shared: &Shared, len: u32) -> u64 {
    Record::bytes_of(Kind::Content, shared.pipeline.rows().into(), len) + PAGE_BYTES
}

/// What a log may not have room for, though it is free: at its end, before it begins anew.
fn slack(shared: &Shared) -> u64 {
    2 * recorded_bytes(shared, shared.params().wide.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::set::Roles;

    #[test]
    fn what_all_have_goes_and_nothing_that_is_trimmed_or_void() {
        let noted = |version, holders, void| JournalEntry {
            version: SetVersion::new(Epoch(1), version),
            holders,
            void,
        };
        let all = Roles(0b111);
        let list = |mark, items| (SetVersion::new(Epoch(1), mark), items);
        let lists = BTreeMap::from([
            (
                Role(0),
                list(2, vec![noted(2, all, false), noted(3, all, false), noted(5, all, false)]),
            ),
            (
                Role(1),
                list(1, vec![noted(2, all, false), noted(3, all, false), noted(4, all, false)]),
            ),
            (
                Role(2),
                list(1, vec![noted(3, all, false), noted(5, all, false), noted(5, all, true)]),
            ),
        ]);
        assert_eq!(
            decide(&lists),
            (
                SetVersion::new(Epoch(1), 2),
                vec![SetVersion::new(Epoch(1), 4), SetVersion::new(Epoch(1), 5)]
            )
        );
        // Role 3 holds the array no more.
        let lists = BTreeMap::from([(Role(0), list(0, vec![noted(1, Roles(0b1001), false)]))]);
        assert_eq!(decide(&lists), (SetVersion::new(Epoch(1), 0), vec![]));
    }
}
