//! Slice-sets that have a position, to their end.
//!
//! ```text
//!  pieces put together ─► parities formed, slices sent ─► prepared by all ─► committing
//!                                                              │                ▼
//!                                                              │             finished
//!                                     content is missing: aborted ─► tried again, or failed
//! ```
//! Stores change only after every node with a part in a slice-set has its new content, and after
//! superblocks record the nodes that have been lost. So a stripe is old or new as a whole,
//! whichever nodes are lost.

mod answers;
mod commits;
mod outline;
mod pace;
mod slices;
mod stages;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use braid_array::{Buf, Instant, Role};

pub(in crate::client) use self::answers::{Prepared, StoreFault};
use self::commits::Commits;
use self::outline::{Outline, Outlines};
use self::pace::Pace;
use super::known::StoredSet;
use super::mix::Mix;
use super::pending::PendingSet;
use crate::client::Key;
use crate::ids::{Generation, Position};
use crate::pipeline::{Pipeline, PlacedSchedule};
use crate::set::{Roles, Set};

/// Number of tries of a slice-set that lacks content though no node is lost.
pub(super) const MAX_TRIES: u32 = 8;

/// Stage of a slice-set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SetStage {
    /// Nodes get its slices and make its new content.
    Preparing,
    /// All have the new content; it is committed once superblocks record the losses.
    Held,
    /// Being stored; its requests are answered, except for those that want it durable.
    Committing,
    /// Stored by no node.
    Aborted,
}

/// A slice-set that gets a position.
pub(super) struct NewSet {
    pub(super) job: PendingSet,
    pub(super) set: Set,
    /// Buffers of the slice-set.
    pub(super) staged: Vec<Buf>,
    /// Lost blocks that are brought back first, by data index.
    pub(super) fetched: Vec<u32>,
    /// Blocks whose content is unknown everywhere; their sums stay unknown.
    pub(super) unknown: Vec<u32>,
}

/// A slice-set that has a position.
#[derive(Debug)]
struct PositionedSet {
    set: Set,
    plan: Arc<PlacedSchedule>,
    job: PendingSet,
    /// The new content, by data index; or the difference that is sent in place of it.
    sources: BTreeMap<u32, Buf>,
    /// Old content of lost blocks whose difference is sent to the node that adds up.
    olds: BTreeMap<u32, Buf>,
    /// Buffers to give back.
    staged: Vec<Buf>,
    /// Copies and sums that have to be done before anything is sent of them.
    computing: u32,
    /// Lost blocks that are being brought back, before anything is sent.
    fetching: u32,
    /// Puts that are not answered.
    puts: u32,
    /// Outline shared by slice-sets of this kind, once slices are being sent.
    outline: Option<Arc<Outline>>,
    /// Nodes that have a part in it.
    parts: Roles,
    /// Nodes with a part whose answer is awaited.
    waits: Roles,
    /// The node that forwards `BeginSet` to the others, while it can be relied upon.
    relay: Option<Role>,
    stage: SetStage,
    /// Blocks whose content is unknown everywhere; their sums stay unknown.
    unknown: Vec<u32>,
    /// Answered only after bad-block logs no longer list the written blocks.
    clears: bool,
    /// The keeper was told of the stored content.
    noted: bool,
    ok: bool,
}

impl PositionedSet {
    /// Returns the bytes that the client sends.
    fn bytes(&self) -> u64 {
        u64::from(self.set.len) * u64::from(self.job.range.touched.count())
    }

    /// Returns the view of the slice-set as newly known content.
    fn stored(&self) -> StoredSet<'_> {
        let Self { set, plan, parts, unknown, .. } = self;
        StoredSet { set, code: &plan.code, parts: *parts, unknown }
    }

    /// Returns the bytes that a node stores.
    fn stored_bytes(&self, role: Role) -> u64 {
        let blocks = self.outline.as_ref().map_or(0, |outline| outline.stores[role.index()]);
        u64::from(self.set.len) * u64::from(blocks)
    }

    /// Returns whether nothing awaited is under way any more.
    fn is_due(&self) -> bool {
        self.puts == 0 && self.computing == 0 && self.fetching == 0 && self.waits.is_empty()
    }

    /// Returns whether only the record of losses in superblocks is awaited.
    fn waits_until_told(&self) -> bool {
        matches!(self.stage, SetStage::Held | SetStage::Committing) && self.is_due()
    }
}

/// The slice-sets that have a position, the free positions, and the versions of slice-sets. Takes
/// the nodes' answers on their parts, and decides when a slice-set is committed.
#[derive(Debug)]
pub(in crate::client) struct Sets {
    open: BTreeMap<Position, PositionedSet>,
    /// Free positions of either kind, wide and narrow, those longest free first.
    free: [VecDeque<Position>; 2],
    /// By position, how often it was used.
    generations: Vec<Generation>,
    /// Version of the latest slice-set.
    version: u64,
    /// Puts that have not been answered.
    unsent: usize,
    pub(in crate::client) mix: Mix,
    commits: Commits,
    outlines: Outlines,
    pace: Pace,
    /// Pairs of nodes that are not connected and should be.
    cut_off: BTreeSet<(Role, Role)>,
    /// One node of such a pair is to be failed.
    cut_off_due: bool,
    /// Slice-sets wait for a loss to be carried out.
    waits_for_losses: bool,
    /// Slice-sets may wait until superblocks record the losses.
    waits_until_told: bool,
    wide: u16,
}

impl Sets {
    /// `long_bytes`: length from which a write counts as long.
    pub(in crate::client) fn new(pipeline: &Pipeline, mix: Mix, long_bytes: u64) -> Self {
        let positions = pipeline.positions();
        let wide = pipeline.params().wide.count;
        let (wides, narrows) = Position::all(0..positions).partition(|position| position.0 < wide);
        Self {
            open: BTreeMap::new(),
            free: [wides, narrows],
            generations: vec![Generation(0); usize::from(positions)],
            version: 0,
            unsent: 0,
            mix,
            commits: Commits::new(pipeline.params().nodes),
            outlines: Outlines::default(),
            pace: Pace::new(long_bytes),
            cut_off: BTreeSet::new(),
            cut_off_due: false,
            waits_for_losses: false,
            waits_until_told: false,
            wide,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// The positions in use.
    pub(super) fn positions(&self) -> impl Iterator<Item = Position> {
        self.open.keys().copied()
    }

    /// The free positions of a kind, those longest free first.
    pub(super) fn free(&self, kind: usize) -> impl Iterator<Item = Position> {
        self.free[kind].iter().copied()
    }

    /// Takes a free position of this kind, by its index among the free ones. Returns the position,
    /// its generation, and the version of the slice-set.
    pub(super) fn use_position(&mut self, kind: usize, at: usize) -> (Position, Generation, u64) {
        let position = self.free[kind].remove(at).expect("an index among the free ones");
        let generation = &mut self.generations[position.index()];
        let current = *generation;
        *generation = current.next();
        self.version += 1;
        (position, current, self.version)
    }

    /// The version of the latest slice-set.
    pub(in crate::client) const fn version(&self) -> u64 {
        self.version
    }

    /// Returns the version up to which all slice-sets are stored.
    pub(in crate::client) fn stored_up_to(&self) -> u64 {
        self.oldest().map_or(self.version, |oldest| oldest - 1)
    }

    /// The version of the oldest slice-set that is open.
    pub(in crate::client) fn oldest(&self) -> Option<u64> {
        self.open.values().map(|open| open.set.number).min()
    }

    /// Returns whether slices are on their way out of the client.
    pub(super) const fn is_sending(&self) -> bool {
        self.unsent > 0
    }

    /// Returns whether the requests of all open slice-sets are answered.
    pub(super) fn all_answered(&self) -> bool {
        self.open.values().all(|open| open.stage == SetStage::Committing)
    }

    /// Data on their way to the nodes.
    fn preparing_bytes(&self) -> u64 {
        let preparing =
            |open: &&PositionedSet| matches!(open.stage, SetStage::Preparing | SetStage::Held);
        self.open.values().filter(preparing).map(PositionedSet::bytes).sum()
    }

    /// Returns the length of the parts of a slice-set whose writer waits.
    pub(super) fn part(&self, len: u32) -> u32 {
        self.pace.part(len)
    }

    /// Positions of slice-sets that may be on their way into the stores.
    pub(super) fn committing(&self) -> impl Iterator<Item = Position> {
        let committing = self.open.iter().filter(|(_, open)| open.stage == SetStage::Committing);
        committing.map(|(&position, _)| position)
    }

    /// Returns the time when nodes are told of commits, if no other message goes out before.
    pub(super) fn commits_due(&self) -> Option<Instant> {
        self.commits.due()
    }

    /// The slices of slice-sets that may be on their way into the stores.
    fn committing_keys(&self) -> impl Iterator<Item = Key> {
        let committing = self.open.values().filter(|open| open.stage == SetStage::Committing);
        committing.map(|open| open.job.key)
    }

    /// Returns the number of positions in use.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Returns the number of slice-sets that hold buffers while lost blocks are restored.
    pub(super) fn fetching(&self) -> usize {
        self.open.values().filter(|open| open.fetching > 0).count()
    }

    /// Checks the counters of slice-sets against the operations in flight: `puts` and `computing`
    /// by position.
    pub(super) fn check(&self, in_flight: &BTreeMap<Position, (u32, u32)>) -> Result<(), String> {
        let puts: u32 = in_flight.values().map(|(puts, _)| puts).sum();
        if puts as usize != self.unsent {
            return Err(format!("{puts} puts, counted {}", self.unsent));
        }
        for (position, open) in &self.open {
            let found = in_flight.get(position).copied().unwrap_or_default();
            let counted = (open.puts, open.computing);
            if found != counted {
                return Err(format!("{found:?} of the set at {position}, counted {counted:?}"));
            }
            if open.waits_until_told() && !self.waits_until_told {
                return Err(format!("the set at {position} is due, and nobody goes on with it"));
            }
            if self.free.iter().any(|free| free.contains(position)) {
                return Err(format!("position {position} is free and has a set"));
            }
        }
        let free: usize = self.free.iter().map(VecDeque::len).sum();
        let all = self.generations.len();
        if free + self.open.len() != all {
            return Err(format!("{free} free positions and {} sets of {all}", self.open.len()));
        }
        Ok(())
    }

    /// The slices of open slice-sets, and whether each is being stored and is background work.
    pub(super) fn keys(&self) -> impl Iterator<Item = (Key, bool, bool)> {
        let key = |open: &PositionedSet| {
            (open.job.key, open.stage == SetStage::Committing, open.job.background)
        };
        self.open.values().map(key)
    }

    /// Returns the number of buffers that slice-sets hold.
    pub(super) fn buffers(&self) -> usize {
        self.open.values().map(|open| open.staged.len()).sum()
    }

    /// Returns the number of slice-sets for which a node owes an answer.
    pub(super) fn owed_by(&self, role: Role) -> usize {
        self.open.values().filter(|open| open.waits.contains(role)).count()
    }
}
