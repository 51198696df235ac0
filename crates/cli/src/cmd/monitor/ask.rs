//! Queries the status of all arrays over connections that stay open. The end of an array closes its
//! connection. A process that hangs is asked once, and not again and again.

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
    /// Last warning about each array that does not answer.
    said: BTreeMap<String, String>,
    /// Set to suppress these warnings.
    quiet: bool,
}

#[derive(Debug)]
struct Conversation {
    client: Client,
    /// The answer is due, maybe since long ago.
    asked: bool,
    /// There was an answer before.
    answered: bool,
}

impl Asker {
    pub(super) fn new(run_dir: &Path) -> Self {
        let run_dir = run_dir.to_owned();
        Self { run_dir, open: BTreeMap::new(), said: BTreeMap::new(), quiet: false }
    }

    /// Creates an asker that prints no warnings about silent arrays.
    pub(super) fn quiet(run_dir: &Path) -> Self {
        Self { quiet: true, ..Self::new(run_dir) }
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
            self.open.remove(name);
        }
        let mut client = Client::connect(&self.run_dir, name)?;
        client.ask_status()?;
        self.open.insert(name.to_owned(), Conversation { client, asked: true, answered: false });
        Ok(())
    }

    fn take(&mut self, name: &str, deadline: Instant) -> Result<ControlStatus, ControlError> {
        let Some(open) = self.open.get_mut(name) else { return Err(ControlError::Silent) };
        let answered = open.answered;
        let answer = open.client.take_status(deadline);
        match answer {
            Ok(_) => {
                open.asked = false;
                open.answered = true;
            }
            // It may come yet.
            Err(ControlError::Silent | ControlError::Suspended(_)) => {}
            // It hangs up on who has had nothing to ask for long; or another process has it now.
            Err(ControlError::Broken(_)) if answered => {
                self.open.remove(name);
                self.begin(name)?;
                return self.take(name, deadline);
            }
            Err(_) => {
                self.open.remove(name);
            }
        }
        answer
    }

    /// Says why an array does not answer, once.
    fn complain(&mut self, name: &str, error: ControlError) {
        let reason = error.to_string();
        if !self.quiet && self.said.get(name) != Some(&reason) {
            let Refusal { reason, next } = error.into();
            output::warning(&format!("monitor {name}: {reason}; {}", next_step(&next)));
        }
        self.said.insert(name.to_owned(), reason);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::{UnixListener, UnixStream};

    use braid_array::MemberId;
    use braid_array::figures::{Figures, IoFigures, MemberFigures};
    use braid_array::status::Status;
    use braid_host::control::socket_path;
    use braid_host::control::wire::{Answer, Reply, Response, VERSION};

    use super::*;
    use crate::cmd::monitor::seen::testing::served;

    /// The array's end of a connection.
    struct End(BufReader<UnixStream>);

    impl End {
        /// Accepts the next client with a question. A client that was disconnected reconnects
        /// first, without a question, to see whether the socket is served.
        fn accept(listener: &UnixListener) -> Self {
            loop {
                let mut end = Self(BufReader::new(listener.accept().expect("a client").0));
                if end.asked() {
                    return end;
                }
            }
        }

        /// Waits for a question; there is none when the client has hung up.
        fn asked(&mut self) -> bool {
            let mut line = String::new();
            self.0.read_line(&mut line).expect("a client");
            line.contains("status")
        }

        fn answer(&mut self) {
            let of_member = MemberFigures { member: MemberId(0), io: IoFigures::default() };
            let figures = Figures { members: vec![of_member], ..Figures::default() };
            let array = served("home", Status::blank());
            let array = ControlStatus { figures: Some(figures), ..array };
            let status = Answer::Status(Box::new(array));
            let response = Response { version: VERSION, result: Reply::Ok(status) };
            let mut line = serde_json::to_vec(&response).expect("JSON");
            line.push(b'\n');
            self.0.get_mut().write_all(&line).expect("a client");
        }
    }

    fn found(answers: &Answers) -> (usize, usize) {
        (answers.arrays.len(), answers.silent.len())
    }

    #[test]
    fn who_hangs_up_is_asked_anew_and_who_hangs_is_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let listener = UnixListener::bind(socket_path(dir.path(), "home")).expect("a socket");
        let (go_on, gone_on) = std::sync::mpsc::channel();
        let array = std::thread::spawn(move || {
            let mut first = End::accept(&listener);
            first.answer();
            drop(first);
            let mut second = End::accept(&listener);
            second.answer();
            assert!(second.asked());
            gone_on.recv().expect("the test");
            second.answer();
            // No other question came meanwhile.
            assert!(second.asked());
            second.answer();
        });
        let mut asker = Asker::new(dir.path());
        for _ in 0..2 {
            assert_eq!(found(&asker.ask().expect("a directory")), (1, 0));
        }
        for _ in 0..2 {
            assert_eq!(found(&asker.ask().expect("a directory")), (0, 1), "it hangs");
        }
        go_on.send(()).expect("the array");
        for _ in 0..2 {
            assert_eq!(found(&asker.ask().expect("a directory")), (1, 0));
        }
        array.join().expect("no other question");
        std::fs::remove_file(socket_path(dir.path(), "home")).expect("a socket");
        assert_eq!(found(&asker.ask().expect("a directory")), (0, 0), "it has ended");
    }
}
