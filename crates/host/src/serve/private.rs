//! An array for this process alone: no exports, no control socket, no name.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;

use braid_array::{AnyMachine, Refusal};
use rustix::event::EventfdFlags;

use super::{Assembled, Facts, Machinery, OpenExports, Running, report_events};
use crate::driver;
use crate::engine::Engine;
use crate::engine::array_size::ArraySize;
use crate::export::load::{Generator, Load};
use crate::submission::SubmissionQueue;
use crate::system::refused_by_system;

/// A running array that only the owner of this can use.
pub struct Private {
    running: Running,
    size: ArraySize,
    loads: mpsc::Sender<Load>,
    /// Makes the engine look for a load.
    wake: Arc<OwnedFd>,
}

impl Private {
    /// Starts it; returns when it takes requests.
    ///
    /// # Errors
    /// [`Refusal`], a line for people.
    pub fn start(array: Assembled) -> Result<Self, Refusal> {
        let system = |error: io::Error| refused_by_system(&error);
        let array = Machinery::new(array, &[], None)?;
        let facts = Facts::of(array.machine.as_ref());
        let machine = AnyMachine::Block(array.machine);
        let mut engine = Engine::new(machine, array.members, array.arena).map_err(system)?;
        if let Some(nodes) = array.nodes {
            engine.set_fabric(nodes.network(), None)?;
        }
        let size = engine.size();
        let open_exports = OpenExports::new("", Path::new(""), facts, 0, None, &engine);
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake =
            Arc::new(rustix::event::eventfd(0, flags).map_err(|error| system(error.into()))?);
        let (loads, coming) = mpsc::channel();
        engine.add_export(Box::new(Generator::new(coming, Arc::clone(&wake))));
        let submissions = engine.submissions();
        let exports = engine.export_queue();
        let (stop, stops) = mpsc::channel();
        let (news, _) = report_events(&mut engine, stop.clone());
        let (end, engine_end) = mpsc::channel();
        // Nobody hears it when the array is not used any more.
        let run = move || drop(end.send(engine.run()));
        thread::Builder::new().name("engine".into()).spawn(run).map_err(system)?;
        let name = String::new();
        let mut running = Running::new(name, submissions, open_exports, exports, engine_end);
        let connected = array.nodes.map_or(Ok(Vec::new()), |nodes| {
            nodes.connected(&running.submissions, &news, stop, &stops).map_err(|not| not.why)
        });
        let connected = connected.and_then(|lost| match lost.into_iter().next() {
            None => Ok(()),
            Some(lost) => Err(Refusal::new(lost, "see the log of the node")),
        });
        if let Err(error) = connected {
            // Why it cannot be used is what has to be said.
            let _ = running.stop(true);
            return Err(error);
        }
        Ok(Self { running, size, loads, wake })
    }

    /// The way in.
    #[must_use]
    pub const fn submissions(&self) -> &SubmissionQueue {
        &self.running.submissions
    }

    /// Makes the engine's own thread send requests; `load.done` is told when that is over.
    pub fn load(&self, load: Load) {
        // An engine that has ended drops it, and `done` with it.
        let _ = self.loads.send(load);
        driver::signal(&self.wake);
    }

    /// Size of the array.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size.bytes()
    }

    /// Stops it: acknowledged data are durable, and its members are free.
    ///
    /// # Errors
    /// [`Refusal`] when it could not be stopped cleanly.
    pub fn stop(mut self) -> Result<(), Refusal> {
        self.running.stop(true)?;
        self.running.join()
    }
}
