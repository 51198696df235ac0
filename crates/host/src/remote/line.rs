//! A connection to a node outside of any engine.

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use braid_array::Refusal;
use braid_array::action::Event;
use braid_array::fabric::{FabricEvent, FabricOp, PeerId};

use crate::arena::Arena;
use crate::driver::Driver;
use crate::fabric::{self, Fabric, Network};
use crate::system::refused_by_system;
use crate::token::Token;

/// Limit on sending the rest at the end.
pub(super) const FAREWELL: Duration = Duration::from_secs(2);

const PEER: PeerId = PeerId(0);

/// Size of the arena. Nodes put no slices here.
const ARENA_BYTES: u64 = 4096;

/// A connection to one node, over any fabric, for a process without an engine: it has a driver and
/// a small arena of its own, and works only inside its calls. [`open`](Self::open) dials, the first
/// [`event`](Self::event) tells how that went; then [`send`](Self::send) a message and wait for the
/// next `event`. Dropped, it sends the rest, for a while, and hangs up.
pub(super) struct Line {
    fabric: Box<dyn Fabric>,
    driver: Driver<Token>,
    /// Nothing was heard within the patience of a call: nothing is sent any more either.
    silent: bool,
    _arena: Arena,
}

impl Line {
    /// Asks for a connection; its first event tells how that went.
    ///
    /// # Errors
    /// When the system is out of descriptors or memory, or has no such fabric.
    pub(super) fn open(address: &str, network: Network) -> Result<Self, Refusal> {
        let system = |error| refused_by_system(&error);
        let arena = Arena::for_node(ARENA_BYTES, ARENA_BYTES).map_err(system)?;
        let mut driver = Driver::new(arena.memory()).map_err(system)?;
        let mut fabric = fabric::new(network, arena.place(), None)?;
        fabric.begin(&mut driver).map_err(system)?;
        fabric.start(&mut driver, FabricOp::Connect { peer: PEER, address: address.to_owned() });
        Ok(Self { fabric, driver, silent: false, _arena: arena })
    }

    pub(super) fn send(&mut self, bytes: Vec<u8>) {
        self.fabric.start(&mut self.driver, FabricOp::Send { peer: PEER, bytes });
    }

    /// The next thing that happens.
    ///
    /// # Errors
    /// `TimedOut`, or when the kernel refuses to wait.
    pub(super) fn event(&mut self, patience: Duration) -> io::Result<FabricEvent> {
        let deadline = Instant::now() + patience;
        loop {
            while let Some(event) = self.fabric.poll() {
                if let Event::Fabric(event) = event {
                    return Ok(event);
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.silent = true;
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.generation(left)?;
        }
    }

    fn generation(&mut self, limit: Duration) -> io::Result<()> {
        self.fabric.flush(&mut self.driver);
        let mut completions = Vec::new();
        self.driver.wait(Some(limit), &mut completions)?;
        for done in completions {
            if let Token::Fabric(token) = done.token {
                self.fabric.completed(&mut self.driver, token, done.result, done.message);
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").finish_non_exhaustive()
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.fabric.close(&mut self.driver);
        let begun = Instant::now();
        while self.driver.in_flight() > 0 && begun.elapsed() < 2 * FAREWELL {
            if self.silent || begun.elapsed() > FAREWELL {
                self.fabric.disconnect();
            }
            if self.generation(FAREWELL / 8).is_err() {
                return;
            }
        }
    }
}
