//! Running arrays, through their control sockets.

use std::fmt::Display;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use braid_array::Refusal;
use braid_host::control::wire::{Answer, ControlStatus, Verb};
use braid_host::control::{ANSWER_WITHIN, Client, ControlError, beside, list, run_dir as own_dir};
use braid_host::run_dir::existing_log;
use braid_host::served_array::ServedArray;

use crate::args::{md_device, nearest, typed_with};
use crate::config::Config;
use crate::failure::{Failure, system_error};
use crate::invocation::shell_word;
use crate::output;
use crate::output::status::IdleArray;

/// Limit and interval of asking again while a process hands its array over to another program:
/// clients are disconnected during the hand-over.
const AGAIN_WITHIN: Duration = Duration::from_secs(10);
const AGAIN_EVERY: Duration = Duration::from_millis(20);

/// Connects to the array of this name. Its process must be alive and answer.
pub(crate) fn connect(operation: &str, run_dir: &Path, name: &str) -> Result<Client, Failure> {
    ask(operation, run_dir, name, |_| Ok(())).map(|(client, ())| client)
}

/// Connects to an array and asks it, again where another program has taken the place of the one
/// that was asked.
pub(super) fn ask<T>(
    operation: &str,
    run_dir: &Path,
    name: &str,
    question: impl Fn(&mut Client) -> Result<T, ControlError>,
) -> Result<(Client, T), Failure> {
    let once = || {
        let mut client = Client::connect(run_dir, name)?;
        // What comes next may take its time; this does not.
        client.status()?;
        let answer = question(&mut client)?;
        Ok((client, answer))
    };
    let deadline = Instant::now() + AGAIN_WITHIN;
    let mut asked = once();
    while matches!(&asked, Err(error) if ControlError::is_of_another_program(error))
        && Instant::now() < deadline
    {
        thread::sleep(AGAIN_EVERY);
        asked = once();
    }
    asked.map_err(|error| match (error, beside(run_dir)) {
        (ControlError::NotRunning, Some(dir)) if of_others(dir).iter().any(|of| of == name) => {
            Failure::explained(operation, dir.join(name).display(), ControlError::Denied)
        }
        (ControlError::NotRunning, _) => not_running(operation, run_dir, name),
        (error, _) => Failure::explained(operation, name, error),
    })
}

/// Returns the failure for an array that does not run, with the step that its name suggests.
pub(super) fn not_running(operation: &str, run_dir: &Path, name: &str) -> Failure {
    let Refusal { reason, mut next } = ControlError::NotRunning.into();
    if let Some(meant) = md_device(name) {
        let next = format!("use its name: {}", typed_with(name, meant));
        return Failure::refused(operation, name, reason, next);
    }
    let mut known = configured();
    if known.iter().any(|one| one == name) {
        if operation != "stop" {
            next = format!("start it: braid up {}", shell_word(name)).into();
        }
        return Failure::refused(operation, name, reason, next);
    }
    known.extend(list(run_dir).unwrap_or_default());
    known.sort_unstable();
    known.dedup();
    if let Some(meant) = nearest(name, known.iter().map(String::as_str)) {
        next.advice = format!("did you mean {meant}? {}", next.advice).into();
    }
    Failure::refused(operation, name, reason, next)
}

/// The names of the arrays of the file of this machine.
pub(super) fn configured() -> Vec<String> {
    let config = Config::of_machine();
    config.into_iter().flat_map(|it| it.arrays).map(|array| array.name).collect()
}

/// Returns the arrays that this user may not query; none if the directory cannot be read.
fn of_others(run_dir: &Path) -> Vec<String> {
    list(run_dir).unwrap_or_default()
}

/// The state of a running array.
pub(crate) fn status(
    operation: &str,
    run_dir: &Path,
    name: &str,
) -> Result<ControlStatus, Failure> {
    ask(operation, run_dir, name, Client::status).map(|(_, status)| status)
}

/// Returns the states of all running arrays, by name. An array that ends meanwhile is left out.
///
/// # Errors
/// Returns an error if the run directory cannot be read. Arrays without an answer are recorded in
/// the result.
pub(crate) fn all(operation: &str, run_dir: &Path) -> Result<All, Failure> {
    let mut all = All::default();
    let asked = names(operation, run_dir)?.into_iter().map(|name| {
        let asked = Client::connect(run_dir, &name).and_then(|mut client| {
            client.ask_status()?;
            Ok(client)
        });
        (name, asked)
    });
    // All are asked before the first has to answer, so that they take their time together.
    let asked: Vec<_> = asked.collect();
    let deadline = Instant::now() + ANSWER_WITHIN;
    for (name, client) in asked {
        match client.and_then(|mut client| client.take_status(deadline)) {
            Ok(status) => all.found.push(status),
            Err(ControlError::NotRunning | ControlError::Stopped) => {}
            Err(error) if error.is_of_another_program() => {
                all.found.push(status(operation, run_dir, &name)?);
            }
            Err(error) => all.fail(operation, &name, error),
        }
    }
    for array in ServedArray::lost(run_dir) {
        all.fail(operation, array.name().to_owned(), ControlError::Lost(array));
    }
    // Whoever finds nothing of their own may be looking for what root has started.
    if all.found.is_empty()
        && let Some(dir) = beside(run_dir)
    {
        for name in of_others(dir) {
            all.fail(operation, dir.join(name).display(), ControlError::Denied);
        }
    }
    Ok(all)
}

/// The names of all running arrays.
pub(crate) fn names(operation: &str, run_dir: &Path) -> Result<Vec<String>, Failure> {
    list(run_dir).map_err(|error| {
        let reason = format!("cannot be read: {}", system_error(&error));
        let next = "use its owner or root, or name another with --run-dir";
        Failure::refused(operation, run_dir.display(), reason, next)
    })
}

/// States of all running arrays.
#[derive(Debug, Default)]
pub(crate) struct All {
    /// Arrays that answered.
    pub(crate) found: Vec<ControlStatus>,
    /// Arrays that refused this user.
    denied: Vec<Failure>,
    /// Arrays that did not answer.
    silent: Vec<Failure>,
    /// Names of those that did not answer or refused.
    failed: Vec<String>,
}

impl All {
    fn fail(&mut self, operation: &str, array: impl Display, why: ControlError) {
        self.failed.push(array.to_string());
        let list = match why {
            ControlError::Denied => &mut self.denied,
            _ => &mut self.silent,
        };
        list.push(Failure::explained(operation, array, why));
    }

    /// Returns the arrays of the file of this machine that do not run. Another run directory than
    /// the user's own tells nothing of them.
    pub(crate) fn idle(&self, run_dir: &Path) -> Vec<IdleArray> {
        if run_dir != own_dir(None) {
            return Vec::new();
        }
        let beside = beside(run_dir).map(of_others).unwrap_or_default();
        let found = self.found.iter().map(|array| &array.name);
        let running: Vec<&String> = found.chain(&self.failed).chain(&beside).collect();
        let mut names = configured();
        names.retain(|name| !running.contains(&name));
        let idle = |name: String| IdleArray { log: existing_log(run_dir, &name), name };
        names.into_iter().map(idle).collect()
    }

    /// Returns whether arrays exist but none answered.
    pub(crate) fn is_blind(&self) -> bool {
        self.found.is_empty() && !(self.denied.is_empty() && self.silent.is_empty())
    }

    /// Reports arrays that are missing from the result; to be called after the found ones were
    /// printed. Fails if an array did not answer or none was found.
    pub(crate) fn conclude(self) -> Result<(), Failure> {
        let failed = self.is_blind() || !self.silent.is_empty();
        let mut missing = self.denied;
        missing.extend(self.silent);
        missing.iter().for_each(output::failure);
        if failed { Err(Failure::Silent(Failure::REFUSED)) } else { Ok(()) }
    }
}

/// Sends a request to a running array.
pub(crate) fn call(
    operation: &str,
    run_dir: &Path,
    name: &str,
    verb: Verb,
) -> Result<Answer, Failure> {
    ask(operation, run_dir, name, |client| client.call(verb.clone())).map(|(_, answer)| answer)
}
