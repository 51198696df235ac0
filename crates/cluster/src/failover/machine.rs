//! [`FailoverClient`] as a machine that serves requests.

use braid_array::action::{Action, Command, Event};
use braid_array::figures::MemberFigures;
use braid_array::grow::Grow;
use braid_array::request::Full;
use braid_array::status::{Status, Waiting};
use braid_array::{BlockMachine, Instant, Machine, MemberId, Request, RequestError};

use super::{FailoverClient, FailoverState};

impl Machine for FailoverClient {
    fn handle(&mut self, now: Instant, event: Event) {
        self.now = now;
        let tick = matches!(event, Event::Tick);
        if let Event::Command { id, .. } = &event {
            self.commands.push(*id);
        }
        match event {
            Event::Command { id, command: Command::Grow(Grow::Size(Some(sectors))) } => {
                self.grow(id, sectors);
            }
            event => self.client.handle(now, event),
        }
        if tick {
            self.tick();
        }
    }

    fn poll(&mut self) -> Option<Action> {
        loop {
            if let Some(action) = self.actions.pop_front() {
                return Some(action);
            }
            match self.client.poll() {
                Some(action) => {
                    if let Some(action) = self.pass_on(action) {
                        return Some(action);
                    }
                }
                None if self.advance() => {}
                None => return None,
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let look = match self.state {
            FailoverState::Looking(at) if !self.client.is_stopping() => Some(at),
            _ => None,
        };
        let fails = self.away.as_ref().filter(|away| !away.over).map(|away| away.until);
        [self.client.deadline(), look, fails].into_iter().flatten().min()
    }

    fn idle(&self) -> bool {
        self.is_serving() && self.held.is_empty() && self.client.idle()
    }

    fn invariants(&self) -> Result<(), String> {
        if self.is_serving() && self.away.is_some() {
            return Err("it serves, and nodes are said to be away".to_owned());
        }
        // What its client waits for ends.
        let waits = !self.idle() && self.client.idle() && !self.client.is_stopping();
        if waits && self.deadline().is_none() {
            return Err(format!("in {:?} it waits, and nothing is due", self.state));
        }
        self.client.invariants()
    }
}

impl BlockMachine for FailoverClient {
    fn submit(&mut self, now: Instant, request: Request) -> Result<(), Full> {
        self.now = now;
        let passes = self.held.is_empty() && !self.client.holds_requests();
        if self.is_serving() && passes {
            return self.pass_in(request, self.answered.count());
        }
        if self.has_waited_long() || self.client.is_stopping() {
            self.complete(request.id, Err(RequestError::Failed));
        } else {
            self.held.push_back((request, self.answered.count()));
        }
        Ok(())
    }

    fn expect_writes(&mut self, more: bool) {
        self.client.expect_writes(more);
    }

    fn status(&self) -> Status {
        let Some(away) = &self.away else { return self.client.status() };
        let left_ms = (away.until.0 - self.now.0.min(away.until.0)) / 1_000_000;
        let waiting = Waiting {
            requests: self.held.len() as u64,
            fail_in_ms: (!away.over).then_some(left_ms),
            why: away.why.clone(),
        };
        Status { waiting: Some(waiting), ..away.seen.clone() }
    }

    fn figures(&self) -> Vec<MemberFigures> {
        self.client.figures()
    }

    fn array_sectors(&self) -> u64 {
        self.client.array_sectors()
    }

    fn block_bytes(&self) -> u32 {
        self.client.block_bytes()
    }

    fn read_only(&self) -> bool {
        self.client.read_only()
    }

    fn free_member(&self) -> Option<MemberId> {
        self.client.free_member()
    }
}
