//! Choice of the members of the array, [`KeeperSide`].

mod absent;
mod command;
mod copy;
mod departed;
mod recovery;
mod spare;
#[cfg(test)]
mod tests;
mod visits;

use std::collections::VecDeque;

use braid_array::{Instant, Refusal};

use super::session_key::SessionKey;
use absent::Absents;
pub(super) use command::{JoinCommand, JoinFacts, Origin, Recovery, Vacancy};
pub(super) use copy::too_few_votes;
use departed::MAX_TRIES;
pub(super) use recovery::moved;
use spare::Spares;
use visits::Visits;

/// Decides which nodes are added, replace another, are copied to or are told that they have left,
/// by commands and by itself. The role of a lost, removed or absent member is given to a node
/// ([`recovery`]): one that an administrator adds, an [`absent`] member, or a [`spare`]. A serving
/// member is exchanged for a [`copy`]. [`departed`] nodes are told to drop their slice-sets.
///
/// No other machine is seen from here. Each call is an event, with the facts that it depends on,
/// and leaves [`JoinCommand`]s, which the client carries out in order before anything else; it
/// answers some of them by a call. No other part of the client has the keeper take in a member,
/// other than one that returns.
///
/// Order of calls: `tick` at `deadline`; `next_command` after each event, until there is none.
#[derive(Debug)]
pub(super) struct KeeperSide {
    /// Time of the call.
    pub(super) now: Instant,
    /// Node that is being added.
    recovery: Option<Recovery>,
    absents: Absents,
    /// Nodes whose members have left the array.
    pub(super) departed: Visits,
    spares: Spares,
    commands: VecDeque<JoinCommand>,
}

impl KeeperSide {
    /// Creates it. `absent`: addresses of members that could not be reached; `not_in`: reasons why
    /// members are not in.
    pub(super) fn new(
        absent: Vec<(String, String)>,
        not_in: Vec<(String, Refusal)>,
        spare_patience_ms: u64,
    ) -> Self {
        Self {
            now: Instant(0),
            recovery: None,
            absents: Absents::new(absent, not_in),
            departed: Visits::new(Some(MAX_TRIES)),
            spares: Spares::new(spare_patience_ms),
            commands: VecDeque::new(),
        }
    }

    /// Returns whether a node is being added or copied to.
    pub(super) const fn is_busy(&self) -> bool {
        self.recovery.is_some()
    }

    pub(super) fn next_command(&mut self) -> Option<JoinCommand> {
        self.commands.pop_front()
    }

    /// Returns the time of the next attempt.
    pub(super) fn deadline(&self, facts: &JoinFacts) -> Option<Instant> {
        let spare = self.next_for_spare(facts).map(|(due, _)| due);
        let looks = self.may_look_for_absent(facts);
        let absent = if looks { self.absents.visits.deadline() } else { None };
        let departed = if facts.may_return { self.departed.deadline() } else { None };
        [spare, absent, departed].into_iter().flatten().min()
    }

    /// Begins the attempts whose time has come. `members`: their sessions and addresses, and
    /// whether they are there or are to return.
    pub(super) fn tick(&mut self, facts: &JoinFacts, members: &[(SessionKey, String, bool)]) {
        self.look_for_absent(facts);
        self.look_for_departed(facts, members);
        self.use_spares(facts);
    }

    /// Notes that the node that was added is a member, in the place of one at the address `before`.
    pub(super) fn taken_in(&mut self, facts: &JoinFacts, before: Option<String>) {
        self.recovery = None;
        if let Some(address) = before {
            self.departs(address);
        }
        self.absent_depart(facts);
    }

    /// Ends the addition of a node: no member may come any more.
    pub(super) fn stop(&mut self) {
        if let Some(key) = self.recovery.as_ref().map(Recovery::key) {
            self.fail(key, Some(Refusal::new("the array changes no more", "see its state")));
        }
    }
}
