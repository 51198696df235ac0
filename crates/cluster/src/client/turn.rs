//! The order of one turn.
//!
//! Before anything else is done, [`drain`](Client::drain) carries out the requests of the machines
//! to each other: the keeper's commands, the losses of nodes, one at a time, and the events of
//! votes and sessions, each in order. No machine calls another one by itself, so none changes
//! during a call of another.
//!
//! In a turn, when the executor has taken all actions, the keeper and the engine do everything that
//! they can without waiting, until neither goes on. Then views record losses and members in sync;
//! joining nodes are told, wired and copied to; and members are told of commits and reads.

use braid_array::Refusal;
use braid_array::keeper::LaneReport;

use super::keeper_side::KeeperSide;
use super::lengthening::drive_growing;
use super::out::LossKind;
use super::ownership::OwnershipEvent;
use super::session_key::SessionKey;
use super::{Client, ClientPhase};

impl Client {
    /// Carries out all pending requests, before anything else is done: losses one at a time, each
    /// with the commands of the keeper that follow from it, in order.
    pub(super) fn drain(&mut self) {
        while self.drain_one() {
            self.parts.refresh();
        }
    }

    /// Carries one request out. Returns whether there was one.
    fn drain_one(&mut self) -> bool {
        let parts = &mut self.parts;
        parts.out.report_to(&mut parts.keeper);
        if let Some(command) = parts.keeper.next_command() {
            self.carry_out(command);
        } else if let Some(loss) = parts.out.next_loss() {
            self.carry_out_loss(loss);
        } else if let Some(event) = parts.ownership.next_event() {
            self.ownership_event(event);
        } else if let Some(event) = parts.sessions.next_event() {
            self.session_event(event);
        } else if parts.engine.sets.wait_for_losses() {
            let (engine, mut cx) = parts.engine();
            return engine.losses_carried_out(&mut cx);
        } else {
            return false;
        }
        true
    }

    /// Handles an event of votes and views.
    fn ownership_event(&mut self, event: OwnershipEvent) {
        match event {
            OwnershipEvent::Resolved { stale, fits } => {
                for role in stale {
                    let why = Refusal::new("has missed writes", "it is given them");
                    self.lose_now(role.into(), why, LossKind::Returns);
                }
                // Not before it is known who misses something: the bitmap still says what.
                if fits {
                    self.parts.keeper_mut().hear(LaneReport::NothingToResync);
                }
                self.parts.open_volumes();
            }
            OwnershipEvent::Answered => self.parts.start_journals(),
        }
    }

    /// Drives the keeper, and opens the slice-sets that wait for it. Returns whether any slice-set
    /// or flush went on, so that there may be more to do.
    fn advance_keeper(&mut self) -> bool {
        loop {
            self.parts.hear_reports();
            let updates = self.parts.keeper.view().updates();
            self.tell_members();
            self.parts.keeper_mut().drive_sync();
            self.drain();
            let (engine, mut cx) = self.parts.engine_as_is();
            engine.start_work(&mut cx);
            engine.open_sets(&mut cx);
            self.parts.keeper_mut().drive_meta();
            self.drain();
            self.parts.with_traffic(|keeper, traffic| keeper.drive_removals(traffic));
            self.drain();
            drive_growing(&mut self.parts);
            self.drain();
            self.parts.with_traffic(|keeper, traffic| keeper.drive_stop(traffic));
            self.drain();
            self.parts.keeper_mut().drive_meta();
            self.drain();
            let (engine, mut cx) = self.parts.engine_as_is();
            if engine.losses_told(&mut cx) {
                return true;
            }
            if self.parts.keeper.view().updates() == updates {
                return false;
            }
        }
    }

    /// Begins or abandons whatever is due at this time.
    pub(super) fn tick(&mut self) {
        let (sessions, mut net) = self.parts.sessions();
        sessions.tick(&mut net);
        self.drain();
        self.parts.look_for_nodes();
        let (ownership, mut cx, facts) = self.parts.ownership();
        ownership.tick(&mut cx, facts);
        let (sessions, net) = self.parts.sessions();
        sessions.lose_silent(&net);
        self.drain();
        let (sessions, mut net) = self.parts.sessions();
        sessions.look_for_silence(&mut net);
        if matches!(self.parts.phase, ClientPhase::Running) {
            self.parts.keeper_mut().tick();
        }
    }

    /// Executes everything that is possible without waiting: first the steps of the keeper and the
    /// engine, then the consequences for views and for joining and leaving nodes, and in the end
    /// messages to nodes on slice-sets and reads.
    pub(super) fn run_ready(&mut self) {
        if matches!(self.parts.phase, ClientPhase::Setup | ClientPhase::Stopped) {
            return;
        }
        self.drain();
        let (engine, mut cx) = self.parts.engine_as_is();
        engine.begin(&mut cx);
        loop {
            let (engine, mut cx) = self.parts.engine_as_is();
            engine.start_gathers(&mut cx);
            if self.advance_keeper() {
                continue;
            }
            let (engine, mut cx) = self.parts.engine_as_is();
            let went_on = engine.trim(&mut cx) || engine.start_decodes(&mut cx);
            self.drain();
            if !went_on {
                break;
            }
        }
        self.parts.forget_removed();
        let (ownership, mut cx, _) = self.parts.ownership();
        ownership.record_changes(&mut cx);
        self.drain();
        let members = self.parts.sessions.list.member_keys();
        self.parts.drop_leftovers(members.chain([SessionKey::DepartedVisit]));
        self.parts.say_who_is_slow();
        let (engine, mut cx) = self.parts.engine();
        engine.send_commits(&mut cx);
        self.parts.wire_next();
        if self.parts.advance_copy() {
            self.drain();
            self.parts.join(KeeperSide::exchange);
        }
        self.drain();
        let (engine, mut cx) = self.parts.engine();
        engine.send_reads(&mut cx);
        self.parts.hear_reports();
    }
}
