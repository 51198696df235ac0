//! The journals of the nodes, as the client sees them: replayed before the array is served, and
//! trimmed when their records are stored durably everywhere.

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

/// Handling of the records that the journals held at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JournalStart {
    Nothing,
    Listing,
    /// Views exclude the lost nodes; then the records are replayed, or all of them are stored.
    Telling {
        stored: bool,
    },
    Replaying,
    Over,
}

/// Progress of a trim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trim {
    /// Stored data is made durable, and the event count advances.
    Checkpoint { complete: bool },
    /// The journals record the trim.
    Noting,
}

/// The client's knowledge of the nodes' journals: the size of each log, the bytes that may be in
/// use, the records made before this client, and the version up to which everything is trimmed.
///
/// ```text
/// prepared ─► Listing ─► Telling ─► Replaying ─► Telling ─► Over
///             then, at first and whenever they are half full: checkpoint ─► trim
/// ```
/// A slice-set of the predecessor is stored if every node that has a part in it and holds the array
/// has recorded it: only then can it have been answered. If a node is lost before it has listed its
/// records, a view first records that it no longer holds the array (*telling*). Only then do the
/// other nodes store. Otherwise a later client that finds that node again would decide differently.
/// If a node is lost while it stores, a view records that before the others drop these records. The
/// keeper makes a checkpoint before any record is dropped. The event count thereby marks an older
/// copy of a volume, which may lack recorded data, as stale.
#[derive(Debug)]
pub(in crate::client) struct Journals {
    /// By node, the size of its log, and whether the log is for parts of stripes alone.
    told: BTreeMap<SessionKey, (u64, bool)>,
    /// Usable size of every log; 0 without journals.
    bytes: u64,
    /// The superblocks say that slice-sets may be recorded and not stored.
    pub(in crate::client) live: bool,
    /// Slice-sets that are not recorded.
    pub(in crate::client) parts: PartialParityLog,
    start: JournalStart,
    /// Records of the last client that were stored: those above a version, without these.
    pub(in crate::client) decided: Option<Arc<(SetVersion, Vec<SetVersion>)>>,
    /// Records from before this client still exist. Nothing is written before they are gone.
    left: bool,
    /// Roles from which an answer is still to come.
    waiting: BTreeSet<Role>,
    /// By role, the records.
    lists: BTreeMap<Role, (SetVersion, Vec<JournalEntry>)>,
    /// By version, the most that a slice-set takes of a log.
    sizes: BTreeMap<u64, u64>,
    used: u64,
    /// Slice-sets up to this version are stored durably, and all nodes have noted that.
    trimmed: u64,
    /// The trim under way, and its version.
    trim: Option<(Trim, u64)>,
    /// Versions of past trims, each with the latest version at that time. Once that latest version
    /// is trimmed too, no later record can lie before the trimmed records in a log.
    trims: Vec<(u64, u64)>,
}

/// Returns the version up to which all slice-sets are stored, and the recorded slice-sets that are
/// dropped.
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
            start: JournalStart::Nothing,
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

    /// Notes that all nodes have recorded a trim up to this version.
    fn trimmed_to(&mut self, version: u64) {
        (self.trimmed, self.trim, self.left) = (version, None, false);
        let over = self.trims.extract_if(.., |&mut (_, latest)| latest <= version);
        self.parts.trimmed(version);
        let Some(free) = over.map(|(trimmed, _)| trimmed).max() else { return };
        let left = self.sizes.split_off(&(free + 1));
        let gone = std::mem::replace(&mut self.sizes, left);
        self.used -= gone.values().sum::<u64>();
    }

    /// Returns whether answered data is in journals.
    pub(in crate::client) const fn are_used(&self) -> bool {
        self.bytes > 0
    }

    /// Returns whether all answered data is recorded durably.
    pub(super) fn cover_all(&self) -> bool {
        self.are_used() && self.parts.all_is_durable()
    }

    /// Notes that all nodes have made slice-sets up to this version durable.
    pub(super) fn flushed(&mut self, version: Option<u64>) {
        self.parts.flushed = self.parts.flushed.max(version);
    }

    /// Returns whether a node may rejoin that was lost when this was the latest version.
    pub(in crate::client) fn allow(&self, lost_at: u64) -> bool {
        !self.are_used()
            || braid_array::broken("join-after-trim")
            || self.trimmed >= lost_at && self.trim.is_none() && !self.left
    }

    /// Returns whether no request to journals is under way, or about to be.
    pub(in crate::client) fn rest(&self) -> bool {
        self.trim.is_none() && self.waiting.is_empty()
    }

    /// Returns whether records from before this client exist, so that nothing may be written.
    pub(super) const fn hold_old_records(&self) -> bool {
        self.left
    }

    /// Notes the size of a node's log.
    pub(in crate::client) fn told(&mut self, key: SessionKey, bytes: u64, parts_only: bool) {
        self.told.insert(key, (bytes, parts_only));
    }

    fn told_by(&self, key: impl Into<SessionKey>) -> (u64, bool) {
        self.told.get(&key.into()).copied().unwrap_or_default()
    }

    /// Returns whether the journal of a returning node is large enough.
    pub(in crate::client) fn suffices(&self, key: SessionKey) -> bool {
        self.told_by(key).0 >= self.bytes
    }

    /// Returns the sectors of a volume of this size that remain for the data and for everything
    /// before it.
    pub(in crate::client) fn sectors_before(&self, volume_sectors: u64) -> u64 {
        if !self.are_used() {
            return volume_sectors;
        }
        let taken = (HEADERS_BYTES + self.bytes).div_ceil(SECTOR_BYTES);
        volume_sectors.saturating_sub(taken)
    }

    /// Returns whether journals hold all data that members may have lost.
    pub(in crate::client) const fn all_is_recorded(&self) -> bool {
        self.live && !self.parts.left
    }

    /// Advances the start once nodes are prepared. Returns whether all their records are resolved.
    pub(in crate::client) fn are_ready(&mut self, cx: &mut Cx<'_>) -> bool {
        if self.start == JournalStart::Nothing {
            if self.live && self.lose_those_without(cx) {
                return false;
            }
            let told = || cx.members.alive_roles().map(|role| self.told_by(role));
            let least = told().map(|(bytes, _)| bytes).min().unwrap_or(0);
            let parts_only = told().all(|(_, parts_only)| parts_only);
            let reads = cx.keeper.is_read_only() && !self.live;
            if reads || least < 3 * slack(cx.shared) {
                self.start = JournalStart::Over;
            } else {
                self.bytes = least;
                self.parts.only = parts_only;
                cx.report(LaneReport::RecordsElsewhere { journal_bytes: least, parts_only });
                self.start = JournalStart::Listing;
                self.request_all(cx, |tag| Message::ListJournal { tag, from: 0 });
            }
        }
        self.start == JournalStart::Over
    }

    /// Fails nodes without a readable journal, as their records may be needed. Returns whether
    /// there are any.
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

    /// Takes the records that a node lists.
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

    /// Returns whether a journal that fails a request matters. After a clean stop no record is
    /// needed.
    pub(in crate::client) fn are_needed(&self) -> bool {
        self.live || self.start != JournalStart::Listing
    }

    /// Stops waiting for this node.
    pub(in crate::client) fn without(&mut self, role: Role) {
        self.waiting.remove(&role);
    }

    /// Returns whether views have to exclude all lost nodes before the start continues.
    pub(in crate::client) fn wants_views(&mut self) -> bool {
        if !self.waiting.is_empty() {
            return false;
        }
        match self.start {
            JournalStart::Listing => self.start = JournalStart::Telling { stored: false },
            JournalStart::Replaying => self.start = JournalStart::Telling { stored: true },
            JournalStart::Nothing | JournalStart::Over | JournalStart::Telling { .. } => {}
        }
        matches!(self.start, JournalStart::Telling { .. })
    }

    /// Requests the replay of records, now that views exclude all lost nodes. Returns whether the
    /// replay has ended.
    pub(in crate::client) fn views_told(&mut self, cx: &mut Cx<'_>, view: &View) -> bool {
        if matches!(self.start, JournalStart::Telling { stored: true }) {
            self.left = true;
            self.start = JournalStart::Over;
            return true;
        }
        self.start = JournalStart::Replaying;
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

    /// Returns whether a slice-set may be opened: it is recorded and the journals have room, or it
    /// is not recorded and the superblocks say so.
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

    /// Notes that a slice-set of a write is being opened.
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

    /// Trims journals that are half full, or whose records concern a returning node without a part
    /// in them. All slice-sets up to `stored` are stored, and `latest` is the newest. Returns
    /// whether a trim has just ended, so that there is room again.
    pub(super) fn trim(&mut self, cx: &mut Cx<'_>, stored: u64, latest: u64) -> bool {
        // Where too many are lost nobody will know of those who could not flush.
        let over = cx.writes_over() || cx.keeper.is_read_only() || cx.shared.at_rest;
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

    /// Notes that the checkpoint of a trim is complete.
    pub(in crate::client) const fn checkpoint_done(&mut self) {
        if let Some((Trim::Checkpoint { complete }, _)) = &mut self.trim {
            *complete = true;
        }
    }

    /// Returns the version up to which journal records no longer count; for a joining node, all of
    /// its records.
    pub(in crate::client) const fn mark(&self, epoch: Epoch) -> SetVersion {
        SetVersion::new(epoch, self.trimmed)
    }
}

/// Returns the most bytes that a slice-set takes in a log, including a record that voids it.
fn recorded_bytes(shared: &Shared, len: u32) -> u64 {
    Record::bytes_of(Kind::Content, shared.pipeline.rows().into(), len) + PAGE_BYTES
}

/// Returns the bytes of a log that may be free but unusable: at its end, before it wraps around.
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
