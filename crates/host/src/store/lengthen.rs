//! Another length for a volume, all or nothing. What is to be done is written down first:
//!
//! ```text
//! note .NAME.longer, durable ─► file cut, file extended, tail written, durable ─► note removed
//!      0 magic "braidlen"   8 crc32c u32 of the rest   12 kept bytes u64   20 bytes u64   28 tail
//! ```
//! A note that is found when the volume is opened is carried out once more. So nobody sees a volume
//! that is half done.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use braid_array::Refusal;
use crc32c::crc32c;

use super::{check_volume, refused};

const MAGIC: &[u8; 8] = b"braidlen";
/// Longest tail.
const MAX_TAIL_BYTES: usize = 1 << 20;

/// The change of a volume's length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lengthening {
    kept_bytes: u64,
    pub(super) bytes: u64,
    tail: Vec<u8>,
}

/// Returns the path of the note about a volume. No volume is called so.
fn note(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!(".{name}.longer"))
}

impl Lengthening {
    /// Checks the change. The first `kept_bytes` stay, and the last bytes are `tail`.
    ///
    /// # Errors
    /// [`Refusal`].
    pub(super) fn new(kept_bytes: u64, bytes: u64, tail: Vec<u8>) -> Result<Self, Refusal> {
        check_volume("volume", Some(bytes))?;
        let between = bytes.checked_sub(tail.len() as u64);
        if tail.len() > MAX_TAIL_BYTES || between.is_none_or(|between| between < kept_bytes) {
            let reason = format!("{kept_bytes} bytes do not stay in a volume of {bytes}");
            return Err(Refusal::new(reason, "use a longer one"));
        }
        Ok(Self { kept_bytes, bytes, tail })
    }

    fn encode(&self) -> Vec<u8> {
        let mut rest = self.kept_bytes.to_le_bytes().to_vec();
        rest.extend(self.bytes.to_le_bytes());
        rest.extend(&self.tail);
        let mut out = MAGIC.to_vec();
        out.extend(crc32c(&rest).to_le_bytes());
        out.append(&mut rest);
        out
    }

    /// Returns the change; `None` for anything that `encode` does not make.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let (crc, rest) = rest.split_first_chunk()?;
        if u32::from_le_bytes(*crc) != crc32c(rest) {
            return None;
        }
        let (kept_bytes, rest) = rest.split_first_chunk()?;
        let (bytes, tail) = rest.split_first_chunk()?;
        Self::new(u64::from_le_bytes(*kept_bytes), u64::from_le_bytes(*bytes), tail.to_vec()).ok()
    }

    /// Carries the change out. `handle`: the directory, which is synced when names change.
    ///
    /// # Errors
    /// [`Refusal`]. The change is carried out once more when the volume is opened, unless the note
    /// could not be made.
    pub(super) fn carry_out(
        &self,
        directory: &Path,
        handle: &File,
        name: &str,
    ) -> Result<(), Refusal> {
        let noted = || {
            let path = note(directory, name);
            let new = path.with_extension("new");
            let mut options = OpenOptions::new();
            let file = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
            file.write_all_at(&self.encode(), 0)?;
            file.sync_all()?;
            std::fs::rename(&new, &path)?;
            handle.sync_all()
        };
        noted().map_err(|error| refused("lengthened", &error))?;
        self.apply(directory, handle, name).map_err(|error| refused("lengthened", &error))
    }

    /// Applies the change, which is noted.
    fn apply(&self, directory: &Path, handle: &File, name: &str) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(directory.join(name))?;
        file.set_len(self.kept_bytes)?;
        file.set_len(self.bytes)?;
        file.write_all_at(&self.tail, self.bytes - self.tail.len() as u64)?;
        file.sync_all()?;
        forget(directory, handle, name)
    }
}

/// Carries out the change of a volume that was interrupted, if there is one.
///
/// # Errors
/// [`Refusal`]; also when the note is damaged.
pub(super) fn complete(directory: &Path, handle: &File, name: &str) -> Result<(), Refusal> {
    let path = note(directory, name);
    let bytes = match std::fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        read => read.map_err(|error| refused("opened", &error))?,
    };
    let Some(change) = Lengthening::decode(&bytes) else {
        let reason = format!("{}: is damaged, and the volume may lack its end", path.display());
        return Err(Refusal::new(reason, "delete the volume, and add the node again"));
    };
    change.apply(directory, handle, name).map_err(|error| refused("lengthened", &error))
}

/// Removes the note about a volume, if there is one.
///
/// # Errors
/// Those of the system.
pub(super) fn forget(directory: &Path, handle: &File, name: &str) -> io::Result<()> {
    match std::fs::remove_file(note(directory, name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed.and_then(|()| handle.sync_all()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;

    /// A volume `v` of 16 KiB of noise.
    fn volume() -> (tempfile::TempDir, File) {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("v"), vec![7; 16 << 10]).unwrap();
        let handle = File::open(directory.path()).unwrap();
        (directory, handle)
    }

    fn expected(kept: usize, bytes: usize, tail: &[u8]) -> Vec<u8> {
        let mut content = vec![7; kept];
        content.resize(bytes - tail.len(), 0);
        content.extend(tail);
        content
    }

    #[test]
    fn behind_what_stays_all_reads_as_zeroes_but_the_tail() {
        let (directory, handle) = volume();
        // Once more, longer, and shorter again.
        for bytes in [64, 64, 128, 32] {
            let tail = vec![bytes as u8; 8192];
            let change = Lengthening::new(8 * KIB, bytes * KIB, tail.clone()).unwrap();
            change.carry_out(directory.path(), &handle, "v").unwrap();
            let content = std::fs::read(directory.path().join("v")).unwrap();
            assert!(content == expected(8 << 10, (bytes * KIB) as usize, &tail), "{bytes}");
            assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        }
    }

    #[test]
    fn a_change_that_was_interrupted_anywhere_is_completed_when_the_volume_is_opened() {
        let tail = vec![9; 8192];
        let change = Lengthening::new(8 * KIB, 64 * KIB, tail.clone()).unwrap();
        let lengths = [8, 64];
        for done in 0..=lengths.len() {
            let (directory, handle) = volume();
            std::fs::write(note(directory.path(), "v"), change.encode()).unwrap();
            let file = OpenOptions::new().write(true).open(directory.path().join("v")).unwrap();
            lengths[..done].iter().for_each(|kib| file.set_len(kib * KIB).unwrap());
            complete(directory.path(), &handle, "v").unwrap();
            let content = std::fs::read(directory.path().join("v")).unwrap();
            assert!(content == expected(8 << 10, 64 << 10, &tail), "{done} steps");
            assert!(!note(directory.path(), "v").exists());
        }
    }

    #[test]
    fn a_note_that_is_not_durable_does_not_count_and_a_damaged_one_is_named() {
        let (directory, handle) = volume();
        let change = Lengthening::new(8 * KIB, 64 * KIB, vec![9; 512]).unwrap();
        let path = note(directory.path(), "v");
        std::fs::write(path.with_extension("new"), &change.encode()[..20]).unwrap();
        complete(directory.path(), &handle, "v").unwrap();
        assert_eq!(std::fs::metadata(directory.path().join("v")).unwrap().len(), 16 * KIB);
        let mut damaged = change.encode();
        damaged[30] ^= 1;
        for bytes in [&damaged[..], &change.encode()[..40], &[]] {
            std::fs::write(&path, bytes).unwrap();
            let why = complete(directory.path(), &handle, "v").unwrap_err();
            assert!(why.reason.ends_with("may lack its end"), "{why}");
        }
        forget(directory.path(), &handle, "v").unwrap();
        complete(directory.path(), &handle, "v").unwrap();
    }

    #[test]
    fn what_stays_and_the_tail_fit_into_the_volume() {
        assert!(Lengthening::new(8 * KIB, 16 * KIB, vec![0; 8192]).is_ok());
        for (kept, bytes, tail) in [(9, 16, 8192), (0, 4, 8192), (u64::MAX / KIB, 16, 0), (0, 0, 0)]
        {
            let change = Lengthening::new(kept * KIB, bytes * KIB, vec![0; tail]);
            assert!(change.is_err(), "{kept} {bytes} {tail}");
        }
    }
}
