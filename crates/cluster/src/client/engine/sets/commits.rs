//! Committed slice-sets, until the nodes are told.
//!
//! A committed slice-set is answered, and in the memory of all nodes with a part in it. Its end on
//! the stores is seldom awaited. So a node is told together with the next slice-set that the client
//! opens there, and both wake up once for the two.

use braid_array::{Instant, Role};

use super::Sets;
use crate::client::Key;
use crate::client::engine::context::Cx;
use crate::client::latency::TimedOperation;
use crate::ids::{Generation, Position};
use crate::set::Roles;
use crate::wire::Message;

/// Time for which `Commit` is held back when no new slice-set goes to a node.
const HOLD_MILLIS: u64 = 4;

/// Commits that a node has not been told of yet.
#[derive(Clone, Debug, Default)]
struct Waiting {
    sets: Vec<(Position, Generation)>,
    /// When the first of them was decided.
    since: Option<Instant>,
}

/// By role, the commits that are to be sent.
#[derive(Debug)]
pub(super) struct Commits {
    waiting: Vec<Waiting>,
    /// Roles that are told of a new slice-set in this turn.
    told: Roles,
    /// A request waits for the end of a slice-set.
    pub(super) hurry: bool,
}

impl Commits {
    pub(super) fn new(nodes: u16) -> Self {
        let waiting = vec![Waiting::default(); usize::from(nodes)];
        Self { waiting, told: Roles::NONE, hurry: false }
    }

    /// Adds a commit for a node.
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

    /// Notes that a node is told of a slice-set: its commits go along.
    pub(super) fn go_with(&mut self, role: Role) {
        self.told.insert(role);
    }

    /// Forgets the commits of a lost node.
    pub(super) fn forget(&mut self, role: Role) {
        if let Some(waiting) = self.waiting.get_mut(role.index()) {
            *waiting = Waiting::default();
        }
    }

    /// Returns the time when the next node is told, if nothing else happens.
    pub(super) fn due(&self) -> Option<Instant> {
        let since = self.waiting.iter().filter_map(|waiting| waiting.since).min();
        since.map(|since| since.plus_millis(HOLD_MILLIS))
    }
}

impl Sets {
    /// Sends nodes their commits. All of them are sent, unless they `may_wait` and no request waits
    /// for the end of one: then only to nodes that are told of another slice-set now, or whose
    /// commits have waited long enough.
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

    /// Returns whether a read or a write waits for a committed slice-set to be stored.
    fn are_wanted(&self, cx: &Cx<'_>) -> bool {
        let is_wanted = |key: Key| {
            let area = cx.shared.areas.get(key);
            area.is_some_and(|area| !area.late_reads.is_empty() || !area.gathers.is_empty())
        };
        self.committing_keys().any(is_wanted)
    }
}
