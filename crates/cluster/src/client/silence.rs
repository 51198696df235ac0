//! Nodes that say nothing. While one hangs, others may wait for it, and owe answers just as it
//! does: so who owes one is asked whether it is there, which waits for nobody. Who does not answer
//! that either is lost, and so is a node whose storage has not answered for as long. (Connections
//! that do not come about end by themselves.)

use braid_array::{Instant, Refusal};

use super::{Client, Message, Phase, Question};

impl Client {
    /// Roles of nodes that owe something, and since when they have said nothing.
    fn silent(&self) -> impl Iterator<Item = (u16, Instant)> {
        let stopped = matches!(self.phase, Phase::Stopped);
        let owing = self.keeper.owing().filter(move |_| !stopped);
        owing.filter_map(|(member, since)| Some((self.role_of(member)?, since)))
    }

    /// When to ask whether a node is there, or to give it up.
    fn due(&self, role: u16, since: Instant) -> Instant {
        let asked = self.links[usize::from(role)].pinged == Some(since);
        since.plus_millis(if asked { self.node_timeout_ms } else { self.node_timeout_ms / 2 })
    }

    pub(super) fn silence_deadline(&self) -> Option<Instant> {
        self.silent().map(|(role, since)| self.due(role, since)).min()
    }

    /// Asks nodes that say nothing whether they are there; loses those that do not answer.
    pub(super) fn look_for_silence(&mut self) {
        let now = self.keeper.now();
        let due: Vec<(u16, Instant)> =
            self.silent().filter(|&(role, since)| self.due(role, since) <= now).collect();
        for (role, since) in due {
            if since.plus_millis(self.node_timeout_ms) <= now {
                self.give_up_silent(role, "has not answered");
            } else {
                self.links[usize::from(role)].pinged = Some(since);
                self.ask(role, Question::Ping, |tag| Message::Ping { tag });
            }
        }
    }

    /// A node says how long its storage has not answered.
    pub(super) fn heard_of_storage(&mut self, role: u16, silent_ms: u32) {
        if u64::from(silent_ms) >= self.node_timeout_ms {
            self.give_up_silent(role, "its storage has not answered");
        }
    }

    fn give_up_silent(&mut self, role: u16, what: &str) {
        let seconds = self.node_timeout_ms as f64 / 1000.0;
        let why = Refusal::new(
            format!("{what} for {seconds} s"),
            "see whether the node and its storage are well, and whether the network reaches it",
        );
        self.keeper.lose_member(self.member_id(role), why);
        self.obey();
        if !self.alive(role) {
            self.await_return(role);
        }
    }
}
