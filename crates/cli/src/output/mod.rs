//! The only place that prints. Commands make texts; this puts answers on stdout, errors on stderr,
//! and progress on a terminal.

use std::io::{self, IsTerminal, Write};

use braid_array::status::{Status, SyncStatus};
use braid_host::control::wire::Mismatch;
use braid_host::size;
use clap::builder::StyledStr;
use serde::Serialize;

use crate::failure::{Failure, one_line, system_error};

pub(crate) mod conditions;
pub(crate) mod contents;
pub(crate) mod detail;
pub(crate) mod entry;
pub(crate) mod examine;
mod examine_090;
pub(crate) mod examined;
pub(crate) mod explained;
pub(crate) mod growth;
pub(crate) mod human;
pub(crate) mod json;
pub(crate) mod last_scrub;
pub(crate) mod log;
pub(crate) mod mdstat;
mod names;
pub(crate) mod planned;
pub(crate) mod progress;
pub(crate) mod recovered;
pub(crate) mod redundancy;
pub(crate) mod shape;
pub(crate) mod status;
pub(crate) mod sums;
mod time;
pub(crate) mod unread;
pub(crate) mod work;

/// Returns the note of mdadm after the name of an array created on this machine.
fn local_note(name: &str) -> String {
    let host = host_name();
    match name.split_once(':') {
        Some((home, _)) if home == host => format!("  (local to host {host})"),
        _ => String::new(),
    }
}

/// The device of the member that is wrong, where that can be told.
pub(crate) fn wrong_member<'a>(status: &'a Status, found: &Mismatch) -> Option<&'a str> {
    Some(status.member(found.member?)?.device.as_str())
}

/// `, in stripe 3, block 1 of node://a/data is wrong`: all that is known of a mismatch.
pub(crate) fn what_is_wrong(status: &Status, found: &Mismatch) -> String {
    let stripe = found.block.map(|block| format!(", in stripe {}", block.stripe));
    let block = found.block.and_then(|block| block.row).map(|row| format!("block {row} of "));
    let wrong = wrong_member(status, found)
        .map(|device| format!(", {}{device} is wrong", block.unwrap_or_default()));
    stripe.unwrap_or_default() + &wrong.unwrap_or_default()
}

/// The name of the array within this one that a mismatch is in.
pub(crate) fn array_within(status: &Status, found: &Mismatch) -> Option<String> {
    status.array_within(found.within?).map(Status::short_name)
}

/// `min 10M, max none`: how fast background work may go, in the words of `braid limit`.
pub(crate) fn limits(sync: &SyncStatus) -> String {
    let max = sync.max_bytes_per_s.map_or_else(|| "none".to_owned(), size::typed);
    let paused = if sync.paused { ", paused" } else { "" };
    format!("min {}, max {max}{paused}", size::typed(sync.min_bytes_per_s))
}

/// The name of this machine.
pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Writes an answer to stdout.
///
/// # Errors
/// Returns the error of the system, or a silent failure if the reader has closed the output.
pub fn answer(text: &str) -> Result<(), Failure> {
    raw(text.as_bytes())
}

/// Writes one JSON value to stdout.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let mut text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::refused("write", "stdout", error, "report this as a bug"))?;
    text.push('\n');
    raw(text.as_bytes())
}

/// Writes bytes to stdout.
pub(crate) fn raw(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(|error| unwritten(&error))
}

fn unwritten(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::Silent(0),
        _ => Failure::refused("write", "stdout", system_error(error), "make room and try again"),
    }
}

/// An answer that is written piece by piece, in bounded memory.
pub(crate) struct Stream(io::BufWriter<io::StdoutLock<'static>>);

impl Stream {
    pub(crate) fn new() -> Self {
        Self(io::BufWriter::new(io::stdout().lock()))
    }

    /// The next part.
    pub(crate) fn write(&mut self, text: &str) -> Result<(), Failure> {
        self.0.write_all(text.as_bytes()).map_err(|error| unwritten(&error))
    }

    /// Flushes the output.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        self.0.flush().map_err(|error| unwritten(&error))
    }
}

/// Says why a command ended early.
pub(crate) fn failure(failure: &Failure) {
    if let Failure::Said(said) = failure {
        // With stderr gone there is nobody left to tell.
        let _ = writeln!(io::stderr(), "braid: {said}");
    }
}

/// Prints the command that follows this one: to a person after `next: `, to a program alone.
pub(crate) fn next_command(command: &str) -> Result<(), Failure> {
    let head = if is_read_by_a_program() { "" } else { "next: " };
    answer(&format!("{head}{command}\n"))
}

/// Prints help in the place of a message, where nothing was asked for.
pub(crate) fn help(text: &StyledStr) {
    let styled = io::stderr().is_terminal();
    let text = if styled { text.ansi().to_string() } else { text.to_string() };
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Says something that does not end the command.
pub fn warning(line: &str) {
    let _ = writeln!(io::stderr(), "warning: {}", one_line(line));
}

/// Prints an important message that does not end the command.
pub(crate) fn alert(line: &str) {
    // The journal knows the number as the level `alert`, where this is a service.
    let level = if std::env::var_os("JOURNAL_STREAM").is_some() { "<1>" } else { "" };
    let _ = writeln!(io::stderr(), "{level}braid: {}", one_line(line));
}

/// Returns whether stdout is a file or pipe.
pub(crate) fn is_read_by_a_program() -> bool {
    !io::stdout().is_terminal()
}

/// Returns whether progress may be shown.
#[must_use]
pub fn shows_progress() -> bool {
    io::stderr().is_terminal()
}
