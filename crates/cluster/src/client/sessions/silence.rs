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
use crate::client::out::LossKind;
use crate::client::{Client, Message, Phase, RequestKind, Session};

/// After this part of the time that a node may say nothing, all are asked; and again after as long.
const PART: u64 = 4;

impl Client {
    /// Roles of nodes that owe something, and since when they have said nothing.
    fn silent(&self) -> impl Iterator<Item = (u16, Instant)> {
        let stopped = matches!(self.phase, Phase::Stopped);
        let owing = (!stopped).then(|| self.keeper.view().owing()).into_iter().flatten();
        owing.filter_map(|(member, since)| Some((self.role_of(member)?, since)))
    }

    /// When a node that owes something is given up.
    fn given_up_at(&self, role: u16, since: Instant) -> Instant {
        let Presence { asked_of, heard, .. } = self.sessions[usize::from(role)].presence;
        let since = asked_of.map_or(since, |first| first.max(heard).min(since));
        since.plus_millis(self.node_timeout_ms)
    }

    /// When each node is asked whether it is there, as others have said nothing since then.
    fn pings_due(&self, since: Instant) -> impl Iterator<Item = (u16, Instant)> {
        let asks = move |session: &Session| {
            let Presence { asked_of, answered, storage_due, .. } = session.presence;
            let again = since.max(answered).plus_millis(self.node_timeout_ms / PART);
            let due = storage_due.map_or(again, |due| due.min(again));
            (session.can_be_asked() && asked_of.is_none()).then_some(due)
        };
        let sessions = self.sessions.iter().take(usize::from(self.shared.params().nodes));
        (0..).zip(sessions).filter_map(move |(role, session)| Some((role, asks(session)?)))
    }

    pub(in crate::client) fn silence_deadline(&self) -> Option<Instant> {
        let first = self.silent().map(|(_, since)| since).min()?;
        let given_up = self.silent().map(|(role, since)| self.given_up_at(role, since));
        given_up.chain(self.pings_due(first).map(|(_, due)| due)).min()
    }

    /// Loses nodes that do not say that they are there; asks all when one says nothing.
    pub(in crate::client) fn look_for_silence(&mut self) {
        let now = self.keeper.view().now();
        let over = |&(role, since): &(u16, Instant)| self.given_up_at(role, since) <= now;
        let over: Vec<(u16, Instant)> = self.silent().filter(over).collect();
        for (role, _) in over {
            self.give_up_silent(role, "has not answered");
        }
        let Some(first) = self.silent().map(|(_, since)| since).min() else { return };
        let due: Vec<(u16, Instant)> =
            self.pings_due(first).filter(|&(_, due)| due <= now).collect();
        for (role, _) in due {
            self.sessions[usize::from(role)].presence.asked_of = Some(first);
            self.request(role, RequestKind::Ping, |tag| Message::Ping { tag });
        }
    }

    /// A node says that it is there, and how long its storage has not answered.
    pub(in crate::client) fn heard_of_storage(&mut self, role: u16, silent_ms: u32) {
        let now = self.keeper.view().now();
        let silent_ms = u64::from(silent_ms);
        let left_ms = self.node_timeout_ms.saturating_sub(silent_ms);
        let presence = &mut self.sessions[usize::from(role)].presence;
        presence.asked_of = None;
        presence.answered = now;
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
        self.lose_now(role, why, LossKind::Returns);
    }
}
