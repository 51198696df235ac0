//! Closing of a connection, after a hang-up or a failure, and detection of the peer's closing.
//!
//! Providers do not expect to be closed with anything in flight: completions that come in between
//! make ofi_rxm follow dangling pointers. So first the device finishes its operations; then we tell
//! the peer by closing our half of the TCP connection, and wait until the peer does the same; then
//! nothing moves any more, and the endpoint can be closed.

use std::io::{self, Read};
use std::mem;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::{Duration, Instant};

use braid_array::action::Event;
use braid_array::{IoError, Outcome};

use super::conversation::{Conversation, SHORT_TICK};
use super::endpoint::Happened;
use super::introduction::{WORD_BYTES, Word};
use super::outbox::Outbox;

/// Limit on the delay by a peer that is dead or does not listen.
const PATIENCE: Duration = Duration::from_secs(10);

/// The same, when the engine wants to end and nothing happens any more.
const HASTE: Duration = Duration::from_secs(1);

/// Number of looks in a row without an event after which nothing moves any more.
const QUIET: u32 = 5;

impl Conversation<'_> {
    /// Closes the endpoint, and answers all puts.
    pub(super) fn part(mut self, mut outbox: Outbox) {
        let begun = Instant::now();
        let mut quiet = 0;
        let mut told = false;
        let mut last = begun;
        loop {
            if self.happened.is_empty() {
                quiet += 1;
            } else {
                (quiet, last) = (0, Instant::now());
            }
            self.take_completions(&mut outbox);
            let hasty = self.link.is_cut() && last.elapsed() > HASTE;
            let late = hasty || begun.elapsed() > PATIENCE;
            let idle = outbox.has_nothing_under_way();
            if idle && !told {
                let _ = self.link.stream().shutdown(Shutdown::Write);
                told = true;
            }
            // What he still says does not matter.
            let deserted = self.look().is_err() || self.deserted;
            let still = idle && deserted && quiet >= QUIET;
            if still {
                break;
            }
            if late && self.link.is_cut() {
                // Closed in the middle of a put that comes in, ofi_rxm follows a null pointer. The
                // engine ends, so this may stay open, with its memory, until the process ends.
                mem::forget((Arc::clone(&self.endpoint), self.window.take()));
                break;
            }
            if late || self.endpoint.wait(SHORT_TICK, &mut self.happened).is_err() {
                break;
            }
        }
        let link = self.link;
        let owed = outbox.owed();
        // Both shares are gone now: the endpoint is closed, and nobody touches the buffers, unless
        // it was left open.
        drop(self);
        let gone = |io| Event::Done { io, result: Err(IoError::GONE) };
        link.tell(owed.into_iter().map(gone).collect());
    }

    /// Reads the peer's words from the TCP connection.
    pub(super) fn look(&mut self) -> Result<(), String> {
        self.looked = Instant::now();
        while !self.deserted {
            let mut bytes = [0; WORD_BYTES];
            let room = &mut bytes[..WORD_BYTES - self.word.len()];
            match self.link.stream().read(room) {
                Ok(0) => self.deserted = true,
                Ok(read) => self.word.extend(&bytes[..read]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.deserted = true,
            }
            if let Ok(word) = <[u8; WORD_BYTES]>::try_from(&self.word[..]) {
                self.word.clear();
                match Word::decode(&word) {
                    Some(Word::Admission(remote)) if self.farewell.is_none() => {
                        self.admission = Some(remote);
                    }
                    Some(Word::Farewell(counts)) if self.farewell.is_none() => {
                        self.farewell = Some(counts);
                    }
                    _ => return Err("it sent bytes that mean nothing".into()),
                }
            }
        }
        Ok(())
    }

    /// Takes in the results of puts. All other events are dropped, as the engine has ended its use.
    fn take_completions(&mut self, outbox: &mut Outbox) {
        let mut events = Vec::new();
        for happened in self.happened.drain(..) {
            let (number, result) = match happened {
                Happened::Gone { number } => (number, Ok(Outcome::Done)),
                Happened::Failed { number, sending: true, .. } => (number, Err(IoError::GONE)),
                _ => continue,
            };
            events.extend(outbox.gone(number).map(|io| Event::Done { io, result }));
        }
        self.link.tell(events);
    }
}
