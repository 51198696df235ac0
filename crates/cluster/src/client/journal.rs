//! The journals of the nodes, as the client sees them: replayed before the array is served, and
//! trimmed when what they hold is stored durably everywhere.

use std::collections::{BTreeMap, BTreeSet};

use braid_array::format::Superblock;
use braid_array::format::superblock::feature;
use braid_array::{Refusal, SECTOR_BYTES};

use super::parts::PartialParityLog;
use super::setup::LinkState;
use super::step::Step;
use super::{Client, Message, Phase, RequestKind};
use crate::journal::{HEADERS_BYTES, Kind, PAGE_BYTES, Record, Version};
use crate::wire::JournalEntry;

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
    Checkpoint(u64),
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
/// A slice-set of the predecessor is stored when all who have a part in it, and hold the array,
/// have it recorded: it may have been answered. No other was. A node that is lost before it has
/// listed what it recorded does not hold the array any more, and views say so before the others
/// store anything: otherwise a later client that finds it again would decide differently. The same
/// holds for one that is lost before it has stored what goes, before the others forget that. Before
/// they do the keeper makes a checkpoint: a copy of a volume from before it, which may lack what
/// they had recorded, is stale by its event count.
#[derive(Debug)]
pub(super) struct Journals {
    /// By role, how much its log holds, and whether it is for parts of stripes alone.
    told: Vec<(u64, bool)>,
    /// How much all of them hold; 0 without journals.
    bytes: u64,
    /// The superblocks say that slice-sets may be recorded and not stored.
    pub(super) live: bool,
    /// Which are not recorded.
    pub(super) parts: PartialParityLog,
    start: Start,
    /// What was recorded before this client came is still there: nothing is written before it is
    /// gone.
    left: bool,
    /// Roles from which an answer is still to come.
    waiting: BTreeSet<u16>,
    /// By role, what was recorded.
    lists: BTreeMap<u16, (Version, Vec<JournalEntry>)>,
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
fn decide(lists: &BTreeMap<u16, (Version, Vec<JournalEntry>)>) -> (Version, Vec<Version>) {
    let mark = lists.values().map(|(mark, _)| *mark).max().unwrap_or_default();
    let mark = if braid_array::broken("trim-mark") { (0, 0) } else { mark };
    let mut found: BTreeMap<Version, (BTreeSet<u16>, bool, u64)> = BTreeMap::new();
    for (&role, (_, items)) in lists {
        for item in items.iter().filter(|item| item.version > mark) {
            let (have, void, holders) = found.entry(item.version).or_default();
            have.insert(role);
            *void |= item.void;
            *holders |= item.holders.0;
        }
    }
    let dropped = |(_, (have, void, holders)): &(Version, (BTreeSet<u16>, bool, u64))| {
        let lacks = |role: &u16| *holders >> role & 1 == 1 && !have.contains(role);
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
    pub(super) fn new(nodes: u16, superblock: &Superblock) -> Self {
        Self {
            told: vec![(0, false); usize::from(nodes) + 1],
            bytes: 0,
            live: superblock.has(feature::NODE_JOURNALS),
            parts: PartialParityLog::new(superblock),
            start: Start::Nothing,
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
    pub(super) const fn are_used(&self) -> bool {
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
    pub(super) fn allow(&self, lost_at: u64) -> bool {
        !self.are_used()
            || braid_array::broken("join-after-trim")
            || self.trimmed >= lost_at && self.trim.is_none() && !self.left
    }

    /// Is anything there from before this client came, so that nothing may be written?
    pub(super) const fn hold_old_records(&self) -> bool {
        self.left
    }
}

impl Client {
    /// A node has told how much its log holds.
    pub(super) fn journal_told(&mut self, role: u16, bytes: u64, parts_only: bool) {
        self.journals.told[usize::from(role)] = (bytes, parts_only);
    }

    /// Has a node that comes back a journal that is as large as is needed?
    pub(super) fn journal_suffices(&self, role: u16) -> bool {
        self.journals.told[usize::from(role)].0 >= self.journals.bytes
    }

    /// What a volume of this size has for the data, and what comes before them.
    pub(super) fn sectors_before_journal(&self, volume_sectors: u64) -> u64 {
        let taken = |bytes: u64| (HEADERS_BYTES + bytes).div_ceil(SECTOR_BYTES);
        let taken = if self.journals.are_used() { taken(self.journals.bytes) } else { 0 };
        volume_sectors.saturating_sub(taken)
    }

    /// The most that a slice-set takes of a log, with what says that it is void.
    fn recorded_bytes(&self, len: u32) -> u64 {
        Record::bytes_of(Kind::Content, self.pipeline.rows().into(), len) + PAGE_BYTES
    }

    /// What a log may not have room for, though it is free: at its end, before it begins anew.
    fn journal_slack(&self) -> u64 {
        2 * self.recorded_bytes(self.params().wide.bytes)
    }

    /// Nodes are prepared: is what they had recorded where it belongs? Otherwise that is seen to.
    pub(super) fn journals_are_ready(&mut self) -> bool {
        if self.journals.live {
            self.lose_those_without();
        }
        if self.journals.start == Start::Nothing {
            let told = |role: u16| self.journals.told[usize::from(role)];
            let least = self.alive_roles().map(|role| told(role).0).min().unwrap_or(0);
            let parts_only = self.alive_roles().all(|role| told(role).1);
            let reads = self.keeper.is_read_only() && !self.journals.live;
            if reads || least < 3 * self.journal_slack() {
                self.journals.start = Start::Over;
            } else {
                self.journals.bytes = least;
                self.journals.parts.only = parts_only;
                self.keeper.records_elsewhere(least, parts_only);
                self.journals.start = Start::Listing;
                self.ask_journals(|tag| Message::ListJournal { tag, from: 0 });
            }
        }
        self.journals.start == Start::Over
    }

    /// What a node had recorded may be needed: one that cannot tell has lost it.
    fn lose_those_without(&mut self) {
        let without = |&role: &u16| self.journals.told[usize::from(role)].0 == 0;
        let without: Vec<u16> = self.alive_roles().filter(without).collect();
        for role in without {
            if self.journals.start == Start::Nothing {
                self.do_without(role, Refusal::new("its journal cannot be read", STORAGE));
            }
        }
    }

    fn ask_journals(&mut self, message: impl Fn(u32) -> Message) {
        let roles: Vec<u16> = self.alive_roles().collect();
        self.journals.waiting.extend(&roles);
        for role in roles {
            self.ask(role, RequestKind::Journal, &message);
        }
    }

    /// A node lists what it has recorded.
    pub(super) fn recorded(
        &mut self,
        role: u16,
        tag: u32,
        mark: Version,
        items: Vec<JournalEntry>,
        next: u32,
    ) {
        if !matches!(self.question(role, tag), Some(RequestKind::Journal)) {
            return self.part_with(role, "it lists what was not asked");
        }
        let (known, list) = self.journals.lists.entry(role).or_default();
        *known = mark;
        list.extend(items);
        if next > 0 && next as usize == list.len() {
            let message = |tag| Message::ListJournal { tag, from: next };
            return self.ask(role, RequestKind::Journal, message);
        }
        self.journals_without(role);
    }

    /// A journal has done what it was asked for, or cannot.
    pub(super) fn journal_answered(&mut self, role: u16, refused: Option<Refusal>) {
        // Nothing that was recorded is needed after a clean stop.
        let needed = self.journals.live || self.journals.start != Start::Listing;
        if let Some(why) = refused.filter(|_| needed) {
            self.do_without(role, why);
        }
        self.journals_without(role);
    }

    /// Nothing is waited for any more from this node.
    pub(super) fn journals_without(&mut self, role: u16) {
        self.journals.waiting.remove(&role);
        if matches!(self.phase, Phase::Setup) {
            self.start_journals();
        }
    }

    /// Goes on with what journals held when nothing is waited for.
    pub(super) fn start_journals(&mut self) {
        if !self.journals.waiting.is_empty() {
            return;
        }
        match self.journals.start {
            Start::Nothing | Start::Over => {}
            Start::Listing => {
                self.journals.start = Start::Telling { stored: false };
                self.start_journals();
            }
            Start::Telling { stored } => {
                if !self.lost_are_recorded() {
                    return;
                }
                if !stored {
                    return self.replay_journals();
                }
                self.journals.left = true;
                self.journals.start = Start::Over;
                self.setup_goes_on();
            }
            Start::Replaying => {
                self.journals.start = Start::Telling { stored: true };
                self.start_journals();
            }
        }
    }

    /// All have listed what they recorded: what goes of that is stored.
    fn replay_journals(&mut self) {
        self.journals.start = Start::Replaying;
        let mut lists = std::mem::take(&mut self.journals.lists);
        lists.retain(|&role, _| self.alive(role) && self.takeover.view.has(role));
        let (above, without) = decide(&lists);
        let live = self.journals.live;
        for role in lists.into_keys().filter(|_| live) {
            let without = without.clone();
            self.journals.waiting.insert(role);
            let message = |tag| Message::ReplayJournal { tag, above, without };
            self.ask(role, RequestKind::Journal, message);
        }
        self.start_journals();
    }

    /// Is there room to record one more slice-set? Then it is taken, for that of this version.
    pub(super) fn has_room_to_record(&self, len: u32) -> bool {
        let used = self.journals.used + self.recorded_bytes(len) + self.journal_slack();
        !self.journals.are_used() || used <= self.journals.bytes
    }

    pub(super) fn take_room_to_record(&mut self, version: u64, len: u32) {
        let bytes = self.recorded_bytes(len);
        self.journals.sizes.insert(version, bytes);
        self.journals.used += bytes;
    }

    /// Has journals trimmed that are half full, or that a node which comes back has no part in. Is
    /// there room again?
    pub(super) fn trim_journals(&mut self) -> bool {
        // Where too many are lost nobody will know of those who could not flush.
        let over = self.writes_over() || self.keeper.is_read_only();
        if !self.journals.are_used() || !self.journals.waiting.is_empty() || over {
            return false;
        }
        match self.journals.trim {
            None => self.begin_trim(),
            Some((Trim::Checkpoint(number), version)) => {
                // Who could not flush must not count any more.
                if self.keeper.checkpoint_is_complete(number) && self.losses_told() {
                    self.journals.trim = Some((Trim::Noting, version));
                    self.journals.flushed(Some(version));
                    let mark = (self.params().epoch, version);
                    let all = self.journals.left;
                    self.ask_journals(|tag| Message::TrimJournal { tag, mark, all });
                }
            }
            Some((Trim::Noting, version)) => {
                self.journals.trimmed_to(version);
                if self.journals.cover_all() {
                    self.keeper.nothing_is_unrecorded();
                }
                return true;
            }
        }
        false
    }

    fn begin_trim(&mut self) {
        let prepared = LinkState::Returning(Step::Prepared);
        let half = (self.journals.bytes - self.journal_slack()) / 2;
        let trimmed = self.journals.trimmed;
        let comes = |link: &super::Link| link.state == prepared && link.lost_at > trimmed;
        let due = self.journals.used > half
            || !braid_array::broken("join-after-trim") && self.links.iter().any(comes);
        let version = self.stored_up_to();
        let due = self.journals.left || due && version > trimmed;
        // Who is being wired would not hear of it.
        if due && self.wiring.is_none() {
            let checkpoint = if braid_array::broken("trim-together") {
                0
            } else {
                self.keeper.request_checkpoint()
            };
            self.journals.trim = Some((Trim::Checkpoint(checkpoint), version));
            self.journals.trims.push((version, self.version));
            self.keeper.drive_meta();
            self.carry_out();
        }
    }

    /// What a journal is told that a node has which comes back: nothing of it counts.
    pub(super) fn empty_journal(&self) -> impl FnOnce(u32) -> Message + use<> {
        let mark = (self.params().epoch, self.journals.trimmed);
        move |tag| Message::TrimJournal { tag, mark, all: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::set::Roles;

    #[test]
    fn what_all_have_goes_and_nothing_that_is_trimmed_or_void() {
        let noted = |version, holders, void| JournalEntry { version: (1, version), holders, void };
        let all = Roles(0b111);
        let list = |mark, items| ((1, mark), items);
        let lists = BTreeMap::from([
            (0, list(2, vec![noted(2, all, false), noted(3, all, false), noted(5, all, false)])),
            (1, list(1, vec![noted(2, all, false), noted(3, all, false), noted(4, all, false)])),
            (2, list(1, vec![noted(3, all, false), noted(5, all, false), noted(5, all, true)])),
        ]);
        assert_eq!(decide(&lists), ((1, 2), vec![(1, 4), (1, 5)]));
        // Role 3 holds the array no more.
        let lists = BTreeMap::from([(0, list(0, vec![noted(1, Roles(0b1001), false)]))]);
        assert_eq!(decide(&lists), ((1, 0), vec![]));
    }
}
