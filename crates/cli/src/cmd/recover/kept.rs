//! Data read from members so far, kept in a file to resume an interrupted search.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use braid_array::SECTOR_BYTES;
use braid_host::member::MemberFile;
use braid_rescue::recover::Harvest;
use serde::{Deserialize, Serialize};

use super::OPERATION;
use crate::failure::{Failure, system_error};

/// The file, in the directory where the command runs.
pub(super) const FILE: &str = "braid-recover.state";
/// Shortest interval between two writes of the file.
const INTERVAL: Duration = Duration::from_secs(3);
/// More than that is no such file.
const MOST_BYTES: u64 = 1 << 30;

/// Progress of each member.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct MembersProgress {
    schema: u32,
    /// Number of file systems known: the findings count them.
    structures: usize,
    members: Vec<MemberState>,
}

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct MemberState {
    member: PathBuf,
    size_bytes: u64,
    /// Ranges that were read, of those that are.
    done: usize,
    found: String,
}

/// The state, and when that of each member was stored.
pub(super) struct StoredProgress {
    path: PathBuf,
    state: Mutex<(MembersProgress, Vec<Instant>)>,
}

impl StoredProgress {
    /// Loads the data kept by an earlier search of the same members, or starts without any.
    pub(super) fn of(devices: &[MemberFile], structures: usize) -> Result<Self, Failure> {
        let path = PathBuf::from(FILE);
        let members = devices.iter().map(|device| MemberState {
            member: device.path.clone(),
            size_bytes: device.sectors * SECTOR_BYTES,
            ..MemberState::default()
        });
        let fresh = MembersProgress { schema: 1, structures, members: members.collect() };
        let state = match load(&path)? {
            Some(old) if is_of(&old, &fresh) => old,
            Some(_) => {
                let reason = "is of a search among other members";
                let next = "delete it, or search among those again";
                return Err(Failure::refused(OPERATION, FILE, reason, next));
            }
            None => fresh,
        };
        let stored = vec![Instant::now(); devices.len()];
        Ok(Self { path, state: Mutex::new((state, stored)) })
    }

    /// Returns the number of ranges of a member that were read, with their findings.
    pub(super) fn so_far(&self, member: usize) -> (usize, Harvest) {
        let state = self.lock();
        let one = &state.0.members[member];
        match Harvest::from_text(&one.found, state.0.structures) {
            Some(found) => (one.done, found),
            None => (0, Harvest::default()),
        }
    }

    /// Stores the findings. If that fails, the search continues without.
    pub(super) fn note(&self, member: usize, done: usize, found: &Harvest, last: bool) {
        let mut state = self.lock();
        if !last && state.1[member].elapsed() < INTERVAL {
            return;
        }
        let one = &mut state.0.members[member];
        (one.done, one.found) = (done, found.to_text());
        state.1[member] = Instant::now();
        if let Ok(text) = serde_json::to_vec(&state.0) {
            let new = self.path.with_extension("state.new");
            let _ = fs::write(&new, text).and_then(|()| fs::rename(&new, &self.path));
        }
    }

    /// The search has come to its end.
    pub(super) fn done(self) {
        let _ = fs::remove_file(&self.path);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (MembersProgress, Vec<Instant>)> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

fn is_of(old: &MembersProgress, fresh: &MembersProgress) -> bool {
    let key = |state: &MembersProgress| -> Vec<(PathBuf, u64)> {
        state.members.iter().map(|one| (one.member.clone(), one.size_bytes)).collect()
    };
    (old.schema, old.structures, key(old)) == (fresh.schema, fresh.structures, key(fresh))
}

fn load(path: &Path) -> Result<Option<MembersProgress>, Failure> {
    let failed = |reason: String| {
        Failure::refused(OPERATION, path.display(), reason, "delete it, and begin again")
    };
    match fs::metadata(path) {
        Ok(data) if data.len() <= MOST_BYTES => {}
        Ok(_) => return Err(failed("is too large to be what was kept of a search".into())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(system_error(&error))),
    }
    let text = fs::read(path).map_err(|error| failed(system_error(&error)))?;
    let state = serde_json::from_slice(&text);
    state.map(Some).map_err(|error| failed(format!("is not what was kept of a search: {error}")))
}
