//! Which slice-sets are committed, until the nodes are told.
//!
//! What is committed is answered, and in the memory of all that have a part in it: that it is
//! stored is seldom waited for. So a node is told with the next slice-set that the client opens
//! there, and both are woken up once for the two.

use braid_array::{Instant, Role};

use super::Sets;
use crate::client::Key;
use crate::client::engine::context::Cx;
use crate::client::latency::TimedOperation;
use crate::ids::{Generation, Position};
use crate::set::Roles;
use crate::wire::Message;

/// So long a node is not told, if it is told of no slice-set.
const HOLD_MILLIS: u64 = 4;

/// What a node has not been told yet.
#[derive(Clone, Debug, Default)]
struct Waiting {
    sets: Vec<(Position, Generation)>,
    /// When the first of them was decided.
    since: Option<Instant>,
}

/// By role, what is to be committed there.
#[derive(Debug)]
pub(super) struct Commits {
    waiting: Vec<Waiting>,
    /// Roles that hear of a slice-set in this turn.
    told: Roles,
    /// Somebody waits for the end of one.
    pub(super) hurry: bool,
}

impl Commits {
    pub(super) fn new(nodes: u16) -> Self {
        let waiting = vec![Waiting::default(); usize::from(nodes)];
        Self { waiting, told: Roles::NONE, hurry: false }
    }

    /// A node is to store its part of a slice-set.
    pub(super) fn add(
        &mut self,
        role: Role,
        position: Position,
        generation: Generation,
        now: Instant,
    ) {
        let waiting = &mut self.waiting[role.index()];
        waiting.sets.push((position, generation));
        waiting.since.get_or_insert(now);
    }

    /// A node is told of a slice-set: what is committed goes with that.
    pub(super) fn go_with(&mut self, role: Role) {
        self.told.insert(role);
    }

    /// A node is lost.
    pub(super) fn forget(&mut self, role: Role) {
        if let Some(waiting) = self.waiting.get_mut(role.index()) {
            *waiting = Waiting::default();
        }
    }

    /// When the next node is told, if nothing else happens.
    pub(super) fn due(&self) -> Option<Instant> {
        let since = self.waiting.iter().filter_map(|waiting| waiting.since).min();
        since.map(|since| since.plus_millis(HOLD_MILLIS))
    }
}

impl Sets {
    /// Tells nodes which slice-sets are committed: all of them, or, while nobody waits for these to
    /// be stored and they `may_wait`, those that hear of another slice-set now, or have not for
    /// long.
    pub(in crate::client::engine) fn send_commits(&mut self, cx: &mut Cx<'_>, may_wait: bool) {
        let told = std::mem::take(&mut self.commits.told);
        let hurry = std::mem::take(&mut self.commits.hurry);
        if self.commits.due().is_none() {
            return;
        }
        let now = cx.now();
        let holds = may_wait && !hurry && !self.are_wanted(cx);
        for (role, waiting) in (0..).map(Role).zip(&mut self.commits.waiting) {
            let Some(since) = waiting.since else { continue };
            let due = told.contains(role) || now >= since.plus_millis(HOLD_MILLIS);
            if !cx.members.alive(role) || holds && !due {
                continue;
            }
            let Waiting { sets, .. } = std::mem::take(waiting);
            for &(position, _) in &sets {
                cx.out.latency.begin(role, TimedOperation::Store(position), now);
            }
            cx.send(role, &Message::Commit { sets });
        }
    }

    /// Does a read or a write wait for what is committed to be stored?
    fn are_wanted(&self, cx: &Cx<'_>) -> bool {
        let is_wanted = |key: Key| {
            let area = cx.shared.areas.get(key);
            area.is_some_and(|area| !area.late_reads.is_empty() || !area.gathers.is_empty())
        };
        self.committing_keys().any(is_wanted)
    }
}
