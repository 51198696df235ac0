//! The point at which a life ends.

use super::session::Session;
use crate::rng::Rng;

/// What somebody has just been told.
#[derive(Clone, Copy, Debug)]
enum Sign {
    /// A node, that something is durable.
    Durable,
    /// A program, that what it wrote is.
    Flushed,
    /// The client, that a node is lost; or it is about to be.
    Lost,
    /// The client, that a member is in sync again.
    Joined,
    /// Some node, a message of this kind from a client; or it is on its way.
    Sent(u8),
}

/// How often it was.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Signs {
    pub(super) flushed: u64,
    pub(super) lost: u64,
    pub(super) joined: u64,
}

/// When a life ends: after so many events, or so many events after a sign: somebody was told what
/// he relies on from then on. Made by one of the constructors for the kind of life;
/// [`is_now`](Self::is_now) is asked once for each event, and is true when the moment has come.
#[derive(Debug)]
pub(super) struct KillPoint {
    /// What has to happen first.
    wait: Option<Wait>,
    /// So many events later; never without.
    left: Option<u64>,
}

#[derive(Debug)]
struct Wait {
    sign: Sign,
    /// After so many requests, and how often that sign is passed over.
    requests: u64,
    skip: u64,
    /// How often it was there by then.
    before: Option<u64>,
}

impl KillPoint {
    /// Of a life that is cut off, within so many events.
    pub(super) fn of_a_cut(session: &mut Session, events: u64) -> Self {
        let left = Some(session.cluster.rng.between(1, events));
        let mut aside = aside(session);
        if aside.percent(50) {
            return Self { wait: None, left };
        }
        let sign = aside.pick(&[Sign::Durable, Sign::Durable, Sign::Flushed]);
        let most = if aside.percent(20) { 1 } else { session.cluster.scenario.requests };
        let requests = aside.below(most);
        let most = aside.pick(&[1, 8, 60]);
        let wait = Some(Wait { sign, requests, skip: aside.below(most), before: None });
        let most = aside.pick(&[1, 4, 30]);
        Self { wait, left: Some(aside.below(most)) }
    }

    /// Of a life in which nodes are lost: at times the client dies just then.
    pub(super) fn of_a_loss(session: &Session) -> Self {
        let mut aside = aside(session);
        if aside.percent(45) {
            return Self { wait: None, left: None };
        }
        let requests = 0;
        let skip = aside.pick(&[0, 1, 1, 2]);
        let wait = Some(Wait { sign: Sign::Lost, requests, skip, before: None });
        let most = aside.pick(&[1, 4, 30, 300]);
        Self { wait, left: Some(aside.below(most)) }
    }

    /// Of a client that comes for a short while: after it, or somebody, has made a few things
    /// durable.
    pub(super) fn of_a_short_lived_client(session: &mut Session) -> Self {
        let most = 7 * u64::from(session.cluster.scenario.params.nodes);
        let sign = Sign::Durable;
        let requests = 0;
        let wait =
            Some(Wait { sign, requests, skip: session.cluster.rng.below(most), before: None });
        let most = session.cluster.rng.pick(&[1, 1, 4, 30, 300]);
        Self { wait, left: Some(session.cluster.rng.below(most)) }
    }

    /// Of a client that comes for a short while: after a message of any kind that there was before,
    /// as likely as of any other, be it ever so rare.
    pub(super) fn after_a_message(session: &mut Session) -> Self {
        let kinds: Vec<u8> = session.cluster.world.sent.keys().copied().collect();
        if kinds.is_empty() {
            return Self::never();
        }
        let sign = Sign::Sent(session.cluster.rng.pick(&kinds));
        let most =
            session.cluster.rng.pick(&[1, 1, u64::from(session.cluster.scenario.params.nodes)]);
        let requests = 0;
        let skip = session.cluster.rng.below(most);
        let wait = Some(Wait { sign, requests, skip, before: None });
        let most = session.cluster.rng.pick(&[1, 4, 30]);
        Self { wait, left: Some(session.cluster.rng.below(most)) }
    }

    /// Of a client that lives until somebody has come back.
    pub(super) fn after_a_return(session: &mut Session) -> Self {
        let wait = Some(Wait { sign: Sign::Joined, requests: 0, skip: 0, before: None });
        let most = session.cluster.rng.pick(&[4, 100, 400]);
        Self { wait, left: Some(session.cluster.rng.below(most)) }
    }

    /// Of a life that goes on to its end.
    pub(super) const fn never() -> Self {
        Self { wait: None, left: None }
    }

    /// Has it come, with so many requests submitted? Asked once for each event.
    pub(super) fn is_now(&mut self, session: &Session, submitted: u64) -> bool {
        if let Some(wait) = &mut self.wait {
            let seen = match wait.sign {
                Sign::Durable => session.cluster.world.durable,
                Sign::Flushed => session.signs.flushed,
                Sign::Lost => session.signs.lost,
                Sign::Joined => session.signs.joined,
                Sign::Sent(kind) => session.cluster.world.sent.get(&kind).copied().unwrap_or(0),
            };
            if submitted < wait.requests || seen <= *wait.before.get_or_insert(seen) + wait.skip {
                return false;
            }
            self.wait = None;
        }
        match &mut self.left {
            Some(0) => true,
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        }
    }
}

/// Draws what seeds without it do not notice.
fn aside(session: &Session) -> Rng {
    Rng::new(session.cluster.rng.clone().next() ^ 0x6d6f_6d65)
}
