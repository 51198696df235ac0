//! Asks all arrays how they are, over connections that stay open: an array that ends is noticed by
//! that, and one whose process hangs is asked once, not again and again.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use braid_array::Refusal;
use braid_host::control::wire::ControlStatus;
use braid_host::control::{Client, ControlError, sockets};

use crate::invocation::next_step;
use crate::output;

/// All of them together have so long: those that hang must not hold up the others.
const PATIENCE: Duration = Duration::from_secs(1);

/// Answers of all arrays.
#[derive(Debug, Default)]
pub(super) struct Answers {
    pub(super) arrays: Vec<ControlStatus>,
    /// Arrays that run, or may run, and did not answer.
    pub(super) silent: BTreeSet<String>,
}

/// The connections.
#[derive(Debug)]
pub(super) struct Asker {
    run_dir: PathBuf,
    open: BTreeMap<String, Conversation>,
    /// Why arrays did not answer, as it was said.
    said: BTreeMap<String, String>,
}

#[derive(Debug)]
struct Conversation {
    client: Client,
    /// The answer is due, maybe since long ago.
    asked: bool,
}

impl Asker {
    pub(super) fn new(run_dir: &Path) -> Self {
        Self { run_dir: run_dir.to_owned(), open: BTreeMap::new(), said: BTreeMap::new() }
    }

    /// Asks all of them.
    ///
    /// # Errors
    /// When the run directory cannot be read: nothing is known of any array then.
    pub(super) fn ask(&mut self) -> io::Result<Answers> {
        let mut names: BTreeSet<String> = sockets(&self.run_dir)?.into_iter().collect();
        names.extend(self.open.keys().cloned());
        // All are asked before the first has to answer.
        let asked: Vec<_> = names.into_iter().map(|name| (self.begin(&name), name)).collect();
        let deadline = Instant::now() + PATIENCE;
        let mut answers = Answers::default();
        for (begun, name) in asked {
            match begun.and_then(|()| self.take(&name, deadline)) {
                Ok(status) => {
                    self.said.remove(&name);
                    answers.arrays.push(status);
                }
                Err(ControlError::NotRunning | ControlError::Stopped | ControlError::Died) => {
                    self.open.remove(&name);
                    self.said.remove(&name);
                }
                Err(error) => {
                    self.complain(&name, error);
                    answers.silent.insert(name);
                }
            }
        }
        Ok(answers)
    }

    fn begin(&mut self, name: &str) -> Result<(), ControlError> {
        if let Some(open) = self.open.get_mut(name) {
            if open.asked || open.client.ask_status().is_ok() {
                open.asked = true;
                return Ok(());
            }
            // The array hangs up on who has had nothing to ask for long.
            self.open.remove(name);
        }
        let mut client = Client::connect(&self.run_dir, name)?;
        client.ask_status()?;
        self.open.insert(name.to_owned(), Conversation { client, asked: true });
        Ok(())
    }

    fn take(&mut self, name: &str, deadline: Instant) -> Result<ControlStatus, ControlError> {
        let Some(open) = self.open.get_mut(name) else { return Err(ControlError::Silent) };
        let answer = open.client.take_status(deadline);
        match answer {
            Ok(_) => open.asked = false,
            // It may come yet.
            Err(ControlError::Silent | ControlError::Suspended(_)) => {}
            Err(_) => {
                self.open.remove(name);
            }
        }
        answer
    }

    /// Says why an array does not answer, once.
    fn complain(&mut self, name: &str, error: ControlError) {
        let reason = error.to_string();
        if self.said.get(name) != Some(&reason) {
            let Refusal { reason, next } = error.into();
            output::warning(&format!("monitor {name}: {reason}; {}", next_step(&next)));
        }
        self.said.insert(name.to_owned(), reason);
    }
}
