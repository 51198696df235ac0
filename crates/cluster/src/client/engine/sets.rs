//! Slice-sets that have a position, to their end.
//!
//! ```text
//!  pieces put together ─► parities formed, slices sent ─► prepared by all ─► committing
//!                                                              │                ▼
//!                                                              │             finished
//!                                     content is missing: aborted ─► tried again, or failed
//! ```
//! Nothing in the stores changes before every node that has a part in a slice-set has its new
//! content, and the superblocks tell of the nodes that have been lost. So a stripe is old or new,
//! whoever is lost, and as a whole.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use braid_array::code::{Cell, Content};
use braid_array::fabric::FabricOp;
use braid_array::keeper::LaneReport;
use braid_array::{Action, Buf, Refusal, RequestError};

use super::context::{Cx, Note};
use super::decode::Decodes;
use super::extent::{Extent, Want, Whom};
use super::mix::Mix;
use super::queue::PendingSet;
use crate::client::Key;
use crate::client::latency::TimedOperation;
use crate::client::out::IoPurpose;
use crate::pipeline::{PlacedSchedule, brought_back};
use crate::schedule::Endpoint;
use crate::set::{Imm, Roles, Set, WriteStrategy};
use crate::wire::Message;

/// A slice-set that lacks content without anybody's being lost is tried so often.
pub(super) const MAX_TRIES: u32 = 8;

const SEE_ITS_LOG: &str = "see the log of its node";

/// A node's store fails what a slice-set needs of it.
#[derive(Clone, Copy, Debug)]
pub(in crate::client) struct StoreFault {
    /// It has no room.
    pub(in crate::client) no_room: bool,
}

/// What a node says of its part of a slice-set, when that is prepared or cannot be.
#[derive(Clone, Copy, Debug)]
pub(in crate::client) struct Prepared {
    pub(in crate::client) role: u16,
    pub(in crate::client) position: u16,
    pub(in crate::client) generation: u32,
    /// The node has the new content.
    pub(in crate::client) ok: bool,
    pub(in crate::client) fault: Option<StoreFault>,
    /// Nodes that this one is not connected to and should be.
    pub(in crate::client) cut_off: Roles,
}

/// How far a slice-set is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Nodes get its slices and make its new content.
    Preparing,
    /// All have it, and it is committed once superblocks tell of those who were lost.
    Held,
    /// It is being stored; its requests are answered, save those that want it durable.
    Committing,
    /// Nobody stores it.
    Aborted,
}

/// A slice-set that has a position.
#[derive(Debug)]
struct OpenSet {
    set: Set,
    plan: Arc<PlacedSchedule>,
    job: PendingSet,
    /// The new content, by data index; or what is put in place of it.
    sources: BTreeMap<u32, Buf>,
    /// Lost blocks of which the node that adds up is put what they differ by: their old content.
    olds: BTreeMap<u32, Buf>,
    /// Buffers to give back.
    staged: Vec<Buf>,
    /// Copies and sums that have to be done before anything is sent of them.
    computing: u32,
    /// Lost blocks that are being brought back, before anything is sent.
    fetching: u32,
    /// Puts that are not answered.
    puts: u32,
    /// Nodes that have a part in it.
    parts: BTreeSet<u16>,
    /// Those of them that have not said what is waited for.
    waits: BTreeSet<u16>,
    stage: Stage,
    ok: bool,
}

impl OpenSet {
    /// Nothing that it waits for is under way any more.
    fn is_due(&self) -> bool {
        self.puts == 0 && self.computing == 0 && self.fetching == 0 && self.waits.is_empty()
    }
}

/// The slice-sets that have a position, by position; the positions that are free, and the versions
/// of slice-sets. It hears what nodes say of their parts, and decides when one is committed.
#[derive(Debug)]
pub(in crate::client) struct Sets {
    open: BTreeMap<u16, OpenSet>,
    /// Free positions of either kind, wide and narrow, those longest free first.
    free: [VecDeque<u16>; 2],
    /// By position, how often it was used.
    generations: Vec<u32>,
    /// Of the latest slice-set.
    version: u64,
    /// Puts that have not been answered.
    unsent: usize,
    pub(in crate::client) mix: Mix,
    /// By role, positions and generations of slice-sets that are to be committed there.
    commits: Vec<Vec<(u16, u32)>>,
    /// Pairs of nodes that are not connected and should be.
    cut_off: BTreeSet<(u16, u16)>,
    /// One of such a pair is to be lost.
    cut_off_due: bool,
    /// Slice-sets wait for a loss to be carried out.
    waits_for_losses: bool,
    wide: u16,
}

impl Sets {
    pub(in crate::client) fn new(positions: u16, wide: u16, nodes: u16, mix: Mix) -> Self {
        let (wides, narrows) = (0..positions).partition(|&position| position < wide);
        Self {
            open: BTreeMap::new(),
            free: [wides, narrows],
            generations: vec![0; usize::from(positions)],
            version: 0,
            unsent: 0,
            mix,
            commits: vec![Vec::new(); usize::from(nodes)],
            cut_off: BTreeSet::new(),
            cut_off_due: false,
            waits_for_losses: false,
            wide,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// The positions in use.
    pub(super) fn positions(&self) -> impl Iterator<Item = u16> {
        self.open.keys().copied()
    }

    /// The free positions of a kind, those longest free first.
    pub(super) fn free(&self, kind: usize) -> impl Iterator<Item = u16> {
        self.free[kind].iter().copied()
    }

    /// Uses a free position: of this kind, the one at this place among those that are free. The
    /// position, its generation, and the version of the slice-set.
    pub(super) fn use_position(&mut self, kind: usize, at: usize) -> Option<(u16, u32, u64)> {
        let position = self.free[kind].remove(at)?;
        let generation = &mut self.generations[usize::from(position)];
        let current = *generation;
        *generation = current.wrapping_add(1);
        self.version += 1;
        Some((position, current, self.version))
    }

    /// The version of the latest slice-set.
    pub(in crate::client) const fn version(&self) -> u64 {
        self.version
    }

    /// All slice-sets up to this version are stored.
    pub(in crate::client) fn stored_up_to(&self) -> u64 {
        self.oldest().map_or(self.version, |oldest| oldest - 1)
    }

    /// The version of the oldest slice-set that is open.
    pub(in crate::client) fn oldest(&self) -> Option<u64> {
        self.open.values().map(|open| open.set.version).min()
    }

    /// Slices are on their way out of the client's link.
    pub(super) const fn is_sending(&self) -> bool {
        self.unsent > 0
    }

    /// No slice-set is open whose requests are not answered yet.
    pub(super) fn all_answered(&self) -> bool {
        self.open.values().all(|open| open.stage == Stage::Committing)
    }

    /// Positions of slice-sets that may be on their way into the stores.
    pub(super) fn committing(&self) -> impl Iterator<Item = u16> {
        let committing = self.open.iter().filter(|(_, open)| open.stage == Stage::Committing);
        committing.map(|(&position, _)| position)
    }

    /// How many slice-sets hold buffers while lost blocks are brought back.
    pub(super) fn fetching(&self) -> usize {
        self.open.values().filter(|open| open.fetching > 0).count()
    }

    /// Opens a slice-set at its position, with buffers for what it needs.
    pub(super) fn open(
        &mut self,
        cx: &mut Cx<'_>,
        decodes: &mut Decodes,
        job: PendingSet,
        set: Set,
        mut staged: Vec<Buf>,
    ) {
        let position = set.position;
        let Some(plan) = cx.shared.pipeline.plan_of(&set) else {
            unreachable!("the client opens what it may: {set:?}")
        };
        let kept = staged.clone();
        let mut sources = BTreeMap::new();
        let mut computing = 0;
        for (&index, pieces) in &job.range.pieces {
            if let [only] = pieces[..] {
                sources.insert(index, only);
                continue;
            }
            let whole = staged.pop().expect("a buffer for every scattered slice");
            let mut at = 0;
            for &piece in pieces {
                let to = whole.slice(at, piece.len);
                cx.out.sum(IoPurpose::Copy { position }, vec![piece], vec![1], to);
                at += piece.len;
                computing += 1;
            }
            sources.insert(index, whole);
        }
        let put = (set.strategy, &set.touched);
        let mut wanted = Vec::new();
        let mut olds = BTreeMap::new();
        for index in brought_back(&plan.code, put, &job.range.touched, set.missing) {
            let into = staged.pop().expect("a buffer for every block that is brought back");
            wanted.push(Want { index, into, whom: Whom::Set(position) });
            let reads_old = set.strategy == WriteStrategy::ReadModifyWrite;
            let contents = if reads_old { &mut olds } else { &mut sources };
            contents.insert(index, into);
        }
        let range = Extent { stripe: set.stripe, index: 0, at: set.offset, len: set.len };
        decodes.forget_kept(cx, set.stripe, set.offset, set.len);
        let open = OpenSet {
            plan,
            job,
            sources,
            olds,
            staged: kept,
            computing,
            puts: 0,
            fetching: wanted.len() as u32,
            waits: BTreeSet::new(),
            parts: BTreeSet::new(),
            stage: Stage::Preparing,
            ok: true,
            set,
        };
        self.open.insert(position, open);
        if wanted.is_empty() {
            self.flow(cx, position);
        } else {
            decodes.decode_for_set(range, wanted);
        }
    }

    /// A lost block is back, or cannot be had.
    pub(super) fn fetched(
        &mut self,
        cx: &mut Cx<'_>,
        position: u16,
        result: Result<(), RequestError>,
    ) {
        let Some(open) = self.open.get_mut(&position) else { return };
        open.fetching -= 1;
        open.ok &= result.is_ok();
        if open.ok {
            return self.flow(cx, position);
        }
        open.job.tries = MAX_TRIES;
        self.advance(cx, position);
    }

    pub(super) fn copy_done(&mut self, cx: &mut Cx<'_>, position: u16) {
        let Some(open) = self.open.get_mut(&position) else { return };
        open.computing -= 1;
        if open.ok {
            self.flow(cx, position);
        } else {
            self.advance(cx, position);
        }
    }

    /// When all new content is in one piece, data go out, and parities of ours are formed.
    fn flow(&mut self, cx: &mut Cx<'_>, position: u16) {
        let Some(open) = self.open.get_mut(&position) else { return };
        if open.computing > 0 || open.fetching > 0 {
            return;
        }
        if !open.olds.is_empty() {
            return self.differ(cx, position);
        }
        let plan = Arc::clone(&open.plan);
        let involved = plan.involved(open.set.strategy, &open.set.touched);
        open.parts = involved.into_iter().filter(|&role| cx.members.alive(role)).collect();
        open.waits = open.parts.clone();
        for &role in &open.parts {
            cx.send(role, &Message::BeginSet { set: open.set.clone() });
            cx.owes(role);
        }
        let sent: Vec<(usize, Content)> =
            plan.sent_by_client(open.set.strategy, &open.set.touched).collect();
        let mut sums = Vec::new();
        for (transfer, content) in sent {
            match content {
                Content::Data(index) => {
                    let from = self.open[&position].sources[&index];
                    self.put(cx, position, transfer, from);
                }
                Content::Sum(equation) => sums.push(equation),
            }
        }
        self.form(cx, position, &sums);
        self.advance(cx, position);
    }

    /// Forms what lost blocks differ by, which goes into sums in place of what they are to hold.
    fn differ(&mut self, cx: &mut Cx<'_>, position: u16) {
        let Some(open) = self.open.get_mut(&position) else { return };
        let olds = std::mem::take(&mut open.olds);
        open.computing = olds.len() as u32;
        for (index, old) in olds {
            if let Some(new) = open.sources.insert(index, old) {
                cx.out.sum_into(IoPurpose::Copy { position }, new, old);
            }
        }
    }

    /// Forms the parities that the client makes.
    fn form(&mut self, cx: &mut Cx<'_>, position: u16, sums: &[usize]) {
        let Some(open) = self.open.get_mut(&position) else { return };
        open.computing = sums.len() as u32;
        for &equation in sums {
            let terms = &open.plan.code.equations()[equation].terms;
            let source = |cell: Cell| match open.plan.code.content(cell) {
                Content::Data(index) => open.sources[&index],
                Content::Sum(_) => unreachable!("terms are data"),
            };
            let inputs = terms.iter().map(|term| source(term.cell)).collect();
            let coefs = terms.iter().map(|term| term.coef).collect();
            let purpose = IoPurpose::Sum { position, equation };
            cx.out.sum(purpose, inputs, coefs, open.staged[equation]);
        }
    }

    pub(super) fn parity_done(&mut self, cx: &mut Cx<'_>, position: u16, equation: usize) {
        let Some(open) = self.open.get_mut(&position) else { return };
        open.computing -= 1;
        let buf = open.staged[equation];
        let transfer = open.plan.schedule.sums()[equation][0].transfer;
        self.put(cx, position, transfer, buf);
        self.advance(cx, position);
    }

    /// Sends a slice, if the node that gets it is there.
    fn put(&mut self, cx: &mut Cx<'_>, position: u16, transfer: usize, from: Buf) {
        let Some(open) = self.open.get_mut(&position) else { return };
        debug_assert_eq!(open.plan.schedule.transfers()[transfer].from, Endpoint::Client);
        let role = open.plan.schedule.transfers()[transfer].to;
        // One that was lost since has no part in it any more, even when it is back.
        if !open.parts.contains(&role) {
            return;
        }
        let entry = cx.members.entry(role);
        let arrival = cx.shared.pipeline.arrival(&open.plan, &open.set, transfer);
        let to = entry.ring + arrival.offset;
        let imm = Imm::of(&open.set, transfer).encode();
        let io = cx.out.io(IoPurpose::Put { position });
        open.puts += 1;
        self.unsent += 1;
        self.mix.sent(from.len);
        cx.out.push(Action::Fabric(FabricOp::Put { io, peer: entry.peer, from, to, imm }));
    }

    /// What did not arrive is told by the node, or by its loss.
    pub(super) fn put_done(&mut self, cx: &mut Cx<'_>, position: u16) {
        self.unsent -= 1;
        let Some(open) = self.open.get_mut(&position) else { return };
        open.puts -= 1;
        self.advance(cx, position);
    }

    /// A node has the new content of its part of a slice-set, or cannot have it.
    pub(in crate::client) fn prepared(&mut self, cx: &mut Cx<'_>, prepared: Prepared) {
        let Prepared { role, position, generation, ok, fault, cut_off } = prepared;
        if !self.said(cx, role, (position, generation), Stage::Preparing) {
            return cx.out.violates(role, "it has prepared what is not open");
        }
        if let Some(open) = self.open.get_mut(&position) {
            open.ok &= ok;
        }
        if let Some(fault) = fault {
            self.has_a_fault(cx, role, position, fault);
        }
        let nodes = cx.members.nodes();
        for other in cut_off.iter().filter(|&other| other < nodes) {
            self.cut_off.insert((role.min(other), role.max(other)));
        }
        self.advance(cx, position);
    }

    /// A node's store fails what a slice-set needs of it. The node goes. If the array could not do
    /// without it, that is so where it has no room alone: then the array waits for that, as for a
    /// node that is away. What cannot be read stays so, and that write alone fails.
    fn has_a_fault(&mut self, cx: &mut Cx<'_>, role: u16, position: u16, fault: StoreFault) {
        if cx.keeper.needs(cx.members.id(role)) && !fault.no_room {
            if let Some(open) = self.open.get_mut(&position) {
                open.job.tries = MAX_TRIES;
            }
            return;
        }
        let why = if fault.no_room {
            Refusal::new("its store has no room", "make room there")
        } else {
            Refusal::new("its store fails what is to be changed", SEE_ITS_LOG)
        };
        cx.out.lose_store(role, why);
    }

    /// Some nodes that are there are not connected to each other. The one is lost that most others
    /// do not see, so that the rest all see each other, and of two rather one that is being
    /// rebuilt; unless the array could not do without it. One at a time: who is next depends on
    /// what the array can do without then.
    pub(super) fn lose_cut_off(&mut self, cx: &mut Cx<'_>) {
        if !self.cut_off_due {
            return;
        }
        self.cut_off.retain(|&(a, b)| cx.members.alive(a) && cx.members.alive(b));
        let ends = || self.cut_off.iter().flat_map(|&(a, b)| [a, b]);
        let complaints = |role: u16| ends().filter(|&other| other == role).count();
        let spared = |role: &u16| !cx.keeper.needs(cx.members.id(*role));
        let lacks = |role: u16| !cx.keeper.is_in_sync(role);
        let worst = ends().filter(spared).max_by_key(|&role| (complaints(role), lacks(role), role));
        self.cut_off_due = worst.is_some();
        if let Some(worst) = worst {
            let reason = "it is not connected to another node";
            let why = Refusal::new(reason, "look at the network between the nodes");
            cx.out.lose_for_now(worst, why);
        }
    }

    /// A node is wired anew: of the one before it nobody complains any more.
    pub(in crate::client) fn is_connected(&mut self, role: u16) {
        self.cut_off.retain(|&(a, b)| a != role && b != role);
    }

    /// A node has finished its part.
    pub(in crate::client) fn finished(
        &mut self,
        cx: &mut Cx<'_>,
        role: u16,
        (position, generation): (u16, u32),
        ok: bool,
    ) {
        let set = (position, generation);
        let committing = self.said(cx, role, set, Stage::Committing);
        if !committing && !self.said(cx, role, set, Stage::Aborted) {
            return cx.out.violates(role, "it finishes what is not open");
        }
        let now = cx.now();
        cx.out.latency.end(role, TimedOperation::Store(position), now);
        if !ok && committing {
            let why = Refusal::new("what was written cannot be stored", SEE_ITS_LOG);
            cx.out.lose_store(role, why);
        }
        self.advance(cx, position);
    }

    /// Takes note that a node has said what was waited for at this stage; was it?
    fn said(
        &mut self,
        cx: &mut Cx<'_>,
        role: u16,
        (position, generation): (u16, u32),
        stage: Stage,
    ) -> bool {
        let Some(open) = self.open.get_mut(&position) else { return false };
        let current = open.set.generation == generation && open.stage == stage;
        let said = current && open.waits.remove(&role);
        if said {
            cx.answered(role);
        }
        said
    }

    /// Nothing is waited for any more from a node that is lost.
    pub(super) fn without(&mut self, cx: &mut Cx<'_>, role: u16) {
        if let Some(commits) = self.commits.get_mut(usize::from(role)) {
            commits.clear();
        }
        let positions: Vec<u16> = self.positions().collect();
        for position in positions {
            if let Some(open) = self.open.get_mut(&position) {
                open.parts.remove(&role);
                if open.waits.remove(&role) {
                    cx.answered(role);
                }
            }
            self.advance(cx, position);
        }
    }

    /// Does anything wait until all losses are carried out?
    pub(in crate::client) const fn wait_for_losses(&self) -> bool {
        self.waits_for_losses || self.cut_off_due
    }

    /// All losses are carried out: goes on with what waited for that. Was there any?
    pub(super) fn losses_carried_out(&mut self, cx: &mut Cx<'_>) -> bool {
        if !std::mem::take(&mut self.waits_for_losses) {
            return false;
        }
        let positions: Vec<u16> = self.positions().collect();
        positions.into_iter().for_each(|position| self.advance(cx, position));
        true
    }

    /// What waited for the superblocks is committed or ends, now that they tell of those who were
    /// lost. Is there any?
    pub(super) fn losses_told(&mut self, cx: &mut Cx<'_>) -> bool {
        let waits = |open: &OpenSet| matches!(open.stage, Stage::Held | Stage::Committing);
        let held = self.open.iter().filter(|(_, open)| waits(open) && open.is_due());
        let held: Vec<u16> = held.map(|(&position, _)| position).collect();
        held.iter().for_each(|&position| self.advance(cx, position));
        !held.is_empty()
    }

    /// Does the next thing with a slice-set when nothing is under way that has to be over before.
    fn advance(&mut self, cx: &mut Cx<'_>, position: u16) {
        if cx.out.has_losses() {
            self.waits_for_losses = true;
            return;
        }
        let over = cx.writes_over();
        let told = cx.losses_told();
        let Some(open) = self.open.get_mut(&position) else { return };
        if !open.is_due() {
            return;
        }
        match open.stage {
            Stage::Preparing | Stage::Held if !open.ok || open.parts.is_empty() || over => {
                self.abort(cx, position);
            }
            Stage::Preparing | Stage::Held => {
                open.stage = Stage::Held;
                if told || braid_array::broken("go-needs-view") {
                    self.commit(cx, position, told);
                } else if braid_array::broken("view-before-ack") && !open.set.fua {
                    let answered = std::mem::take(&mut open.job.range.requests);
                    answered.into_iter().for_each(|id| cx.part_over(id, Ok(())));
                }
            }
            // Who was lost meanwhile may lack it.
            Stage::Committing if !told => {}
            Stage::Committing | Stage::Aborted => self.end(cx, position),
        }
    }

    /// All have the new content: it takes the place of the old.
    fn commit(&mut self, cx: &mut Cx<'_>, position: u16, told: bool) {
        let Some(open) = self.open.get_mut(&position) else { return };
        open.stage = Stage::Committing;
        open.waits = open.parts.clone();
        let now = cx.now();
        let key = open.job.key;
        let fua = open.set.fua;
        for &role in &open.parts {
            self.commits[usize::from(role)].push((position, open.set.generation));
            cx.owes(role);
            cx.out.latency.begin(role, TimedOperation::Store(position), now);
        }
        if let Some(area) = cx.shared.areas.get_mut(key) {
            area.committing += 1;
        }
        if !fua {
            cx.shared.areas.answered(key, now);
        }
        if fua || !told {
            return;
        }
        let lasts = open.job.range.fua && !braid_array::broken("flush-waits");
        for id in std::mem::take(&mut open.job.range.requests) {
            if lasts {
                // It is recorded, and what it lies upon may be neither that nor durable.
                cx.note(Note::Flush(id));
            } else {
                cx.part_over(id, Ok(()));
            }
        }
    }

    /// Tells the nodes which slice-sets are committed.
    pub(super) fn send_commits(&mut self, cx: &mut Cx<'_>) {
        for (role, commits) in (0..).zip(&mut self.commits) {
            if !commits.is_empty() && cx.members.alive(role) {
                cx.send(role, &Message::Commit { sets: std::mem::take(commits) });
            }
        }
    }

    fn abort(&mut self, cx: &mut Cx<'_>, position: u16) {
        let Some(open) = self.open.get_mut(&position) else { return };
        open.stage = Stage::Aborted;
        open.waits = open.parts.clone();
        let generation = open.set.generation;
        for &role in &open.parts {
            // One that is just being given up is taken out of it next.
            if cx.members.alive(role) {
                cx.send(role, &Message::Abort { position, generation });
            }
            cx.owes(role);
        }
        if open.parts.is_empty() {
            self.end(cx, position);
        }
    }

    /// Ends a slice-set that all have finished.
    fn end(&mut self, cx: &mut Cx<'_>, position: u16) {
        let Some(open) = self.open.remove(&position) else { return };
        let wide = position < self.wide;
        self.free[usize::from(!wide)].push_back(position);
        let OpenSet { set, mut job, staged, stage, .. } = open;
        cx.shared.staging.give(staged);
        if stage == Stage::Aborted {
            job.tries += 1;
            self.cut_off_due = true;
            return cx.note(Note::Again { job, wide });
        }
        let key = job.key;
        let ok = !cx.keeper.has_failed();
        if ok && job.goes_on_after(set.strategy) {
            cx.note(Note::Stored { key, position });
            return cx.note(Note::Again { job, wide });
        }
        if job.background {
            cx.note(Note::WorkSetOver { key, ok });
        } else {
            let (start, end) = cx.shared.space.range(key);
            cx.report(LaneReport::EndWrite { start, end, failed: !ok });
        }
        cx.note(Note::Stored { key, position });
        let now = cx.now();
        cx.shared.areas.set_over(key, now);
        let result = if ok { Ok(()) } else { Err(RequestError::Failed) };
        job.range.requests.into_iter().for_each(|id| cx.part_over(id, result));
    }

    /// What is under way for slice-sets is counted where it is: `puts` and `computing` by position,
    /// from the operations in flight.
    pub(super) fn check(&self, in_flight: &BTreeMap<u16, (u32, u32)>) -> Result<(), String> {
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
        let key =
            |open: &OpenSet| (open.job.key, open.stage == Stage::Committing, open.job.background);
        self.open.values().map(key)
    }

    /// How many buffers slice-sets hold.
    pub(super) fn buffers(&self) -> usize {
        self.open.values().map(|open| open.staged.len()).sum()
    }

    /// Slice-sets of which a node owes an answer.
    pub(super) fn owed_by(&self, role: u16) -> usize {
        self.open.values().filter(|open| open.waits.contains(&role)).count()
    }
}
