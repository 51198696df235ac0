//! The exports of an engine: those that it begins with, and those that come and go while it runs.
//!
//! A removed export closes as at the end of the engine: operations in flight are answered, clients
//! get a while to take the answers, and then are disconnected. Its id stays its own until nothing
//! of it is left, so its completions still reach it.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use braid_array::Instant;
use slab::Slab;

use super::FAREWELL;
use super::core::Core;
use super::export::Export;
use crate::execute::Executor;
use crate::handover::{self, Handover};
use crate::mailbox::Mailbox;
use crate::submission::Done;
use crate::token::ExportId;
use crate::users::User;

/// Requests of other threads.
enum ExportCommand {
    Add {
        export: Box<dyn Export>,
        done: Done<ExportId>,
    },
    Clients {
        of: ExportId,
        part: Option<String>,
        done: Done<Vec<User>>,
    },
    ClosePart {
        of: ExportId,
        part: String,
        done: Done<()>,
    },
    Remove {
        id: ExportId,
        done: Done<()>,
    },
    /// Takes nothing more. `done` is called when nothing is in flight.
    Hold {
        done: Done<()>,
    },
    GoOn,
    /// Clients are hung up on that are waited for.
    CutOff,
    HandOver {
        to: Handover,
        done: Done<io::Result<Handover>>,
    },
}

/// State of an export's life.
enum ExportStage {
    Serving,
    /// Takes nothing more. `done` is called when the export is gone; its clients are disconnected
    /// at `give_up_at`, unless they already have been.
    Leaving {
        give_up_at: Option<Instant>,
        done: Done<()>,
    },
}

struct ExportSlot {
    export: Box<dyn Export>,
    stage: ExportStage,
}

/// The exports, by their ids.
pub(super) struct Exports {
    places: Slab<ExportSlot>,
    asked: Receiver<ExportCommand>,
    /// All are to be held, and this one waits until they are.
    holding: Option<Done<()>>,
    /// Their clients are another process's.
    handed_over: bool,
}

/// Queue by which other threads add and remove exports.
#[derive(Clone, Debug)]
pub(crate) struct ExportQueue {
    mailbox: Mailbox<ExportCommand>,
}

impl Exports {
    /// Creates the empty list, and the queue by which exports are added to a running engine, which
    /// `wake` wakes.
    pub(super) fn new(wake: Arc<OwnedFd>) -> (Self, ExportQueue) {
        let (sender, asked) = mpsc::channel();
        let exports = Self { places: Slab::new(), asked, holding: None, handed_over: false };
        (exports, ExportQueue { mailbox: Mailbox::new(sender, wake) })
    }

    /// Adds one; it has to be started.
    pub(super) fn add(&mut self, export: Box<dyn Export>) -> ExportId {
        ExportId(self.places.insert(ExportSlot { export, stage: ExportStage::Serving }))
    }

    pub(super) fn get(&mut self, id: ExportId) -> &mut dyn Export {
        &mut *self.places[id.0].export
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(dyn Export + 'static)> {
        self.places.iter().map(|(_, place)| &*place.export)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Box<dyn Export>> {
        self.places.iter_mut().map(|(_, place)| &mut place.export)
    }

    /// Starts all exports. As long as this program may have to give back what it inherited, they
    /// are held.
    pub(super) fn start(&mut self, core: &mut Core) {
        let held = handover::is_pending();
        for (id, place) in &mut self.places {
            if held {
                place.export.start_held(core, ExportId(id));
            } else {
                place.export.start(core, ExportId(id));
            }
        }
    }

    /// Returns the users of the array.
    pub(super) fn clients(&self) -> Vec<User> {
        self.iter().flat_map(|export| export.clients()).collect()
    }

    /// Returns the number of clients by kind of export.
    pub(super) fn client_counts(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for (kind, count) in self.iter().filter_map(Export::client_count) {
            *counts.entry(kind.to_owned()).or_default() += count as u64;
        }
        counts
    }

    /// Handles the requests of other threads.
    pub(super) fn drain(&mut self, core: &mut Core, executor: &Executor) {
        while let Ok(ask) = self.asked.try_recv() {
            match ask {
                ExportCommand::Add { export, done } => {
                    let id = self.add(export);
                    self.get(id).start(core, id);
                    done(id);
                }
                ExportCommand::Clients { of, part, done } => done(match part {
                    Some(part) => self.get(of).clients_of(&part),
                    None => self.get(of).clients(),
                }),
                ExportCommand::ClosePart { of, part, done } => {
                    self.get(of).close_part(core, &part, done)
                }
                ExportCommand::Remove { id, done } => {
                    let place = &mut self.places[id.0];
                    place.export.close(core);
                    let give_up_at = Some(core.now.plus_millis(FAREWELL.as_millis() as u64));
                    place.stage = ExportStage::Leaving { give_up_at, done };
                }
                ExportCommand::Hold { done } => {
                    self.iter_mut().for_each(|export| export.hold(core));
                    self.holding = Some(done);
                }
                ExportCommand::GoOn => {
                    self.holding = None;
                    self.iter_mut().for_each(|export| export.go_on(core));
                }
                ExportCommand::CutOff => self.iter_mut().for_each(|export| export.cut_off(core)),
                ExportCommand::HandOver { to, done } => done(self.hand_over(core, executor, to)),
            }
        }
    }

    /// Adds all clients and members; nothing has changed where that fails.
    fn hand_over(
        &mut self,
        core: &Core,
        executor: &Executor,
        mut to: Handover,
    ) -> io::Result<Handover> {
        executor.hand_over(&mut to)?;
        self.iter().try_for_each(|export| export.hand_over(core, &mut to))?;
        self.iter_mut().for_each(|export| export.leave());
        self.handed_over = true;
        Ok(to)
    }

    /// Reports to the waiting caller once nothing is in flight, abandoned operations included: the
    /// kernel ends no thread that waits for such an operation.
    pub(super) fn tell_if_held(&mut self, core: &Core, executor: &Executor) {
        let quiet = |of: &Self| of.iter().all(|export| export.is_held(core));
        if self.holding.is_some() && executor.given_up() == 0 && quiet(self) {
            self.holding.take().into_iter().for_each(|done| done(()));
        }
    }

    /// Returns whether the clients now belong to the next process.
    pub(super) const fn are_handed_over(&self) -> bool {
        self.handed_over
    }

    /// Returns the latest time for the next look.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let all = self.places.iter().map(|(_, place)| match place.stage {
            ExportStage::Leaving { give_up_at, .. } => [place.export.deadline(), give_up_at],
            ExportStage::Serving => [place.export.deadline(), None],
        });
        all.flatten().flatten().min()
    }

    /// Time has passed. Clients of those that leave are given up when they have had enough of it.
    pub(super) fn tick(&mut self, core: &mut Core) {
        for (_, ExportSlot { export, stage }) in &mut self.places {
            export.tick(core);
            if let ExportStage::Leaving { give_up_at, .. } = stage
                && give_up_at.take_if(|at| *at <= core.now).is_some()
            {
                export.disconnect(core);
            }
        }
    }

    /// Lets those go that leave, and of which nothing is left.
    pub(super) fn part(&mut self, core: &mut Core) {
        let leaving = |place: &ExportSlot| matches!(place.stage, ExportStage::Leaving { .. });
        if !self.places.iter().any(|(_, place)| leaving(place)) {
            return;
        }
        let over = |(id, place): (usize, &ExportSlot)| {
            let over = leaving(place) && place.export.is_over() && !core.serves(ExportId(id));
            over.then_some(id)
        };
        let over: Vec<usize> = self.places.iter().filter_map(over).collect();
        for id in over {
            let ExportSlot { mut export, stage } = self.places.remove(id);
            export.end(core);
            drop(export);
            if let ExportStage::Leaving { done, .. } = stage {
                done(());
            }
        }
    }

    /// Takes leave of all clients, at the end of the engine.
    pub(super) fn close(&mut self, core: &mut Core) {
        for (_, place) in &mut self.places {
            if matches!(place.stage, ExportStage::Serving) {
                place.export.close(core);
            }
        }
    }

    /// Gives all clients up that are left.
    pub(super) fn disconnect(&mut self, core: &mut Core) {
        self.iter_mut().for_each(|export| export.disconnect(core));
    }
}

impl ExportQueue {
    fn send(&self, ask: ExportCommand) {
        // An engine that has ended has no exports.
        let _ = self.mailbox.send(ask);
    }

    /// Sends the request that `make` builds around a `done`, and waits for the answer. `None` when
    /// the engine has ended, or has not answered within the limit.
    fn call<T: Send + 'static>(
        &self,
        limit: Duration,
        make: impl FnOnce(Done<T>) -> ExportCommand,
    ) -> Option<T> {
        self.mailbox.call(limit, make).ok()
    }

    /// Adds an export, which begins at once. `None` when the engine has ended.
    pub(crate) fn add(&self, export: Box<dyn Export>) -> Option<ExportId> {
        self.call(Duration::MAX, |done| ExportCommand::Add { export, done })
    }

    /// Returns the users of the array through an export, or through one part of it.
    pub(crate) fn clients(&self, of: ExportId, part: Option<&str>) -> Vec<User> {
        let part = part.map(str::to_owned);
        self.call(Duration::MAX, |done| ExportCommand::Clients { of, part, done })
            .unwrap_or_default()
    }

    /// Closes one of several parts of an export. As [`remove`](Self::remove).
    pub(crate) fn close_part(&self, of: ExportId, part: &str) {
        let part = part.to_owned();
        self.call(2 * FAREWELL, |done| ExportCommand::ClosePart { of, part, done });
    }

    /// Holds all exports until they [go on](Self::go_on). Returns false when requests of clients
    /// are still in flight after `limit`.
    pub(crate) fn hold(&self, limit: Duration) -> bool {
        self.call(limit, |done| ExportCommand::Hold { done }).is_some()
    }

    /// Hangs up on clients that neither take their data nor send the rest of it.
    pub(crate) fn cut_off(&self) {
        self.send(ExportCommand::CutOff);
    }

    /// Lets all held exports go on.
    pub(crate) fn go_on(&self) {
        self.send(ExportCommand::GoOn);
    }

    /// Adds members, and the clients of exports that are held, to a hand-over. The exports serve no
    /// clients any more then. `None` when the engine has ended.
    ///
    /// # Errors
    /// When the system is out of descriptors; nothing is handed over then.
    pub(crate) fn hand_over(&self, to: Handover) -> Option<io::Result<Handover>> {
        self.call(Duration::MAX, |done| ExportCommand::HandOver { to, done })
    }

    /// Closes an export. Returns when it is gone, or after a limit if a member does not answer
    /// requests of its clients; it then goes once they have ended.
    pub(crate) fn remove(&self, id: ExportId) {
        self.call(2 * FAREWELL, |done| ExportCommand::Remove { id, done });
    }
}
