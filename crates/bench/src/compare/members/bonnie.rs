//! A run of bonnie++ that may be left alone while it rests: between its sequential part and the
//! seeks it sleeps for three seconds, in which another case can be measured.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::model::Note;
use crate::rig::process::Process;
use crate::tool::{Tool, bonnie};

/// Words on stderr when the sequential part is over.
const RESTS: &str = "Reading intelligently...done";
/// Time until a part of it is over.
const PATIENCE: Duration = Duration::from_secs(3600);
const POLL: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(super) struct Bonnie {
    process: Process,
    log: PathBuf,
    command: String,
}

impl Bonnie {
    /// Starts it; what it says on stderr goes into the file.
    pub(super) fn start(words: &[String], log: PathBuf) -> Result<Self, Failure> {
        let tool = Tool::find("bonnie++", "bonnie++")?;
        let mut command = tool.command();
        command.args(words);
        let process = Process::start(command, log.clone())
            .map_err(|error| Failure::system(tool.name(), &error, "check that it can be run"))?;
        Ok(Self { process, log, command: tool.typed(words) })
    }

    /// Waits until it rests, or has ended: how, is known later.
    pub(super) fn wait_until_it_rests(&mut self) {
        let until = Instant::now() + PATIENCE;
        let log = &self.log;
        let rests = || fs::read_to_string(log).is_ok_and(|said| said.contains(RESTS));
        while !rests() && !self.process.has_ended() && Instant::now() < until {
            thread::sleep(POLL);
        }
    }

    /// Waits until it has ended, and notes what it said.
    pub(super) fn finish(mut self, note: &mut Note) -> Result<(), Failure> {
        note.commands.push(self.command.clone());
        let mut said = String::new();
        while let Ok(line) = self.process.read_line(PATIENCE) {
            said.push_str(&line);
            said.push('\n');
        }
        let refused = |reason: String| Failure::refused("bonnie++", reason, "see what it works on");
        self.process.finish(PATIENCE).map_err(refused)?;
        bonnie::keep(&said, note)
    }
}

impl Drop for Bonnie {
    fn drop(&mut self) {
        // It is of no use without the process.
        let _ = fs::remove_file(&self.log);
    }
}
