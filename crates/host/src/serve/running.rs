//! An array that is served, until there is a reason to stop.

use std::io;
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;

use braid_array::action::Command;

use super::ServeError;
use super::doors::Doors;
use crate::control::wire::Refusal;
use crate::control::{StopRequest, Told};
use crate::door::{Door, Message};
use crate::member::describe;

/// Everything that has to end.
pub(super) struct Running {
    pub(super) door: Door,
    pub(super) doors: Doors,
    pub(super) engine: Option<JoinHandle<io::Result<()>>>,
}

impl Running {
    /// Waits for a reason to stop, and stops.
    pub(super) fn supervise(
        &mut self,
        stops: &Receiver<StopRequest>,
    ) -> Result<Option<Told>, ServeError> {
        loop {
            match stops.recv() {
                Ok(StopRequest::Asked(told)) => match self.stop(false) {
                    Ok(()) => return self.join().map(|()| Some(told)),
                    Err(refusal) => told(Err(refusal)),
                },
                Ok(StopRequest::Signal) => match self.stop(true) {
                    Ok(()) => return self.join().map(|()| None),
                    Err(refusal) => eprintln!("braid: cannot stop: {refusal}"),
                },
                Ok(StopRequest::EngineEnded) | Err(_) => {
                    let _ = self.doors.unmount(true);
                    self.join()?;
                    let reason = "the engine has ended by itself";
                    return Err(ServeError::new(reason, "assemble the array again"));
                }
            }
        }
    }

    /// Takes the mounts away and stops the array. Its members are free after that.
    pub(super) fn stop(&mut self, force: bool) -> Result<(), Refusal> {
        self.doors.unmount(force)?;
        let stop = |done| Message::Command { command: Command::Stop, device: None, done };
        // No answer means that the engine has ended already; `join` knows why.
        self.door.call(stop).unwrap_or(Ok(())).map_err(Refusal::from)
    }

    pub(super) fn join(&mut self) -> Result<(), ServeError> {
        let Some(engine) = self.engine.take() else { return Ok(()) };
        let next = "see braid examine for the state of its members, then assemble it again";
        match engine.join() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => {
                Err(ServeError::new(format!("the engine failed: {}", describe(&error)), next))
            }
            Err(_) => Err(ServeError::new("the engine panicked", next)),
        }
    }
}
