//! Nodes that say nothing. While one hangs, others may wait for it, and owe answers just as it
//! does: so all are asked whether they are there, which waits for nobody. Who does not answer that
//! either is lost, and so is a node whose storage has not answered for as long. (Connections that
//! do not come about end by themselves.)
//!
//! All are asked, those too that owe nothing so far: else the second of two that hang would be
//! noticed only after the first was lost, and it would take twice as long. What counts for both is
//! the silence of the first.

use braid_array::{Instant, Refusal};

use super::presence::Presence;
use super::{Client, Link, Message, Phase, RequestKind};

/// After this part of the time that a node may say nothing, all are asked; and again after as long.
const PART: u64 = 4;

impl Client {
    /// Roles of nodes that owe something, and since when they have said nothing.
    fn silent(&self) -> impl Iterator<Item = (u16, Instant)> {
        let stopped = matches!(self.phase, Phase::Stopped);
        let owing = self.keeper.owing().filter(move |_| !stopped);
        owing.filter_map(|(member, since)| Some((self.role_of(member)?, since)))
    }

    /// When a node that owes something is given up.
    fn given_up_at(&self, role: u16, since: Instant) -> Instant {
        let Presence { asked_of, heard, .. } = self.links[usize::from(role)].presence;
        let since = asked_of.map_or(since, |first| first.max(heard).min(since));
        since.plus_millis(self.node_timeout_ms)
    }

    /// When each node is asked whether it is there, as others have said nothing since then.
    fn pings_due(&self, since: Instant) -> impl Iterator<Item = (u16, Instant)> {
        let asks = move |link: &Link| {
            let Presence { asked_of, answered, storage_due, .. } = link.presence;
            let again = since.max(answered).plus_millis(self.node_timeout_ms / PART);
            let due = storage_due.map_or(again, |due| due.min(again));
            (link.can_be_asked() && asked_of.is_none()).then_some(due)
        };
        let links = self.links.iter().take(usize::from(self.params().nodes));
        (0..).zip(links).filter_map(move |(role, link)| Some((role, asks(link)?)))
    }

    pub(super) fn silence_deadline(&self) -> Option<Instant> {
        let first = self.silent().map(|(_, since)| since).min()?;
        let given_up = self.silent().map(|(role, since)| self.given_up_at(role, since));
        given_up.chain(self.pings_due(first).map(|(_, due)| due)).min()
    }

    /// Loses nodes that do not say that they are there; asks all when one says nothing.
    pub(super) fn look_for_silence(&mut self) {
        let now = self.keeper.now();
        let over = |&(role, since): &(u16, Instant)| self.given_up_at(role, since) <= now;
        let over: Vec<(u16, Instant)> = self.silent().filter(over).collect();
        for (role, _) in over {
            self.give_up_silent(role, "has not answered");
        }
        let Some(first) = self.silent().map(|(_, since)| since).min() else { return };
        let due: Vec<(u16, Instant)> =
            self.pings_due(first).filter(|&(_, due)| due <= now).collect();
        for (role, _) in due {
            self.links[usize::from(role)].presence.asked_of = Some(first);
            self.ask(role, RequestKind::Ping, |tag| Message::Ping { tag });
        }
    }

    /// A node says that it is there, and how long its storage has not answered.
    pub(super) fn heard_of_storage(&mut self, role: u16, silent_ms: u32) {
        let (now, silent_ms) = (self.keeper.now(), u64::from(silent_ms));
        let left_ms = self.node_timeout_ms.saturating_sub(silent_ms);
        let presence = &mut self.links[usize::from(role)].presence;
        (presence.asked_of, presence.answered) = (None, now);
        presence.storage_due = (silent_ms > 0).then(|| now.plus_millis(left_ms));
        if left_ms == 0 {
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
        self.carry_out();
        if !self.alive(role) {
            self.await_return(role);
        }
    }
}
