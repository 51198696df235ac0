//! State that outlives the monitor: the last reported state of each array, and the undelivered
//! messages of each sink. The file in the run directory is replaced as a whole.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use braid_host::control::make_run_dir;
use serde::{Deserialize, Serialize};

use super::events::Told;
use super::message::Message;
use super::smart::Warnings;

const FILE: &str = "monitor.json";
const LOCK: &str = "monitor.lock";

/// Content of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MonitorState {
    pub(super) told: Vec<Told>,
    /// By sink.
    pub(super) pending: BTreeMap<String, Vec<Message>>,
    /// Warnings of disks.
    #[serde(default)]
    pub(super) warned: Warnings,
}

/// The file, and the right to write it.
#[derive(Debug)]
pub(super) struct StateFile {
    path: PathBuf,
    written: Option<MonitorState>,
    _lock: File,
}

impl StateFile {
    /// Takes the file over from the monitor before this one.
    ///
    /// # Errors
    /// `WouldBlock` while another monitor runs; or as the system says.
    pub(super) fn open(run_dir: &Path) -> io::Result<Self> {
        make_run_dir(run_dir)?;
        let path = run_dir.join(LOCK);
        let mut options = File::options();
        // Who may open it could keep the lock.
        let lock = options.write(true).create(true).truncate(false).mode(0o600).open(path)?;
        lock.try_lock().map_err(|error| match error {
            std::fs::TryLockError::WouldBlock => io::ErrorKind::WouldBlock.into(),
            std::fs::TryLockError::Error(error) => error,
        })?;
        Ok(Self { path: run_dir.join(FILE), written: None, _lock: lock })
    }

    /// Reads the state that the previous monitor left; `None` if there is no file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read or decoded.
    pub(super) fn read(&self) -> io::Result<Option<MonitorState>> {
        match std::fs::read(&self.path) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes the state, if it has changed.
    ///
    /// # Errors
    /// Returns the error of the system; the old file is kept.
    pub(super) fn write(&mut self, state: MonitorState) -> io::Result<()> {
        if self.written.as_ref() == Some(&state) {
            return Ok(());
        }
        let new = self.path.with_extension("new");
        // The address of a webhook may be a secret.
        let mut options = File::options();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&serde_json::to_vec(&state)?)?;
        file.sync_all()?;
        std::fs::rename(&new, &self.path)?;
        self.written = Some(state);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_and_one_monitor_keeps_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut kept = StateFile::open(dir.path()).expect("nobody else");
        assert_eq!(kept.read().expect("no file"), None);
        let told = vec![Told { seen: Default::default(), degraded: true }];
        let state = MonitorState { told, ..MonitorState::default() };
        kept.write(state.clone()).expect("room");
        let second = StateFile::open(dir.path()).expect_err("a second monitor");
        assert_eq!(second.kind(), io::ErrorKind::WouldBlock);
        drop(kept);
        // A program that another test has just begun to start has the lock until it is started.
        let kept = std::iter::repeat_with(|| StateFile::open(dir.path())).find_map(Result::ok);
        let kept = kept.expect("nobody else");
        assert_eq!(kept.read().expect("a file"), Some(state));
    }
}
