//! Refusals by the system, as people are told; the time of day; and durable directories, which the
//! system does not sync by itself.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use braid_array::Refusal;
use rustix::io::Errno;

/// Returns the time of day; 0 where the clock is set before 1970.
pub(crate) fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The system refuses something that the command cannot do without.
pub(crate) fn refused_by_system(error: &io::Error) -> Refusal {
    Refusal::new(format!("the system refuses: {}", describe(error)), next_step(error))
}

/// Returns the next step for such an error.
fn next_step(error: &io::Error) -> &'static str {
    match Errno::from_io_error(error) {
        Some(Errno::MFILE | Errno::NFILE) => "allow more open files (ulimit -n)",
        Some(Errno::NOMEM | Errno::AGAIN | Errno::NOBUFS) => {
            "free some memory, or allow more locked memory and threads (ulimit -l, ulimit -u)"
        }
        Some(Errno::ACCESS | Errno::PERM) => {
            "be a user that may, or allow it to this one (a container may forbid io_uring, and so \
             does sysctl kernel.io_uring_disabled)"
        }
        Some(Errno::ROFS) => "name a directory that can be written to with --run-dir",
        Some(Errno::NOSPC | Errno::DQUOT) => "make room where the run directory is",
        Some(Errno::NOSYS) => "use a kernel that has io_uring",
        _ => "see what the kernel says of it (dmesg)",
    }
}

/// An error of the system without Rust's "(os error N)".
pub(crate) fn describe(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

/// Draws a random UUID (version 4).
pub(crate) fn random_uuid() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    let mut filled = 0;
    while filled < bytes.len() {
        let flags = rustix::rand::GetRandomFlags::empty();
        filled += rustix::rand::getrandom(&mut bytes[filled..], flags)?;
    }
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Ok(bytes)
}

/// Makes a directory, and those that it lies in, so that they are there after a loss of power, too.
pub(crate) fn make_durable_dirs(path: &Path) -> io::Result<()> {
    let path = std::path::absolute(path)?;
    let missing: Vec<&Path> = path.ancestors().take_while(|path| !path.is_dir()).collect();
    for dir in missing.into_iter().rev() {
        match std::fs::create_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
            made => made?,
        }
        sync_dir_of(dir)?;
    }
    Ok(())
}

/// Makes the name of a file durable.
pub(crate) fn sync_dir_of(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_made_with_those_that_they_lie_in() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/c");
        make_durable_dirs(&path).unwrap();
        assert!(path.is_dir());
        make_durable_dirs(&path).unwrap();
        std::fs::write(path.join("file"), "").unwrap();
        make_durable_dirs(&path.join("file/d")).unwrap_err();
    }

    #[test]
    fn a_refusal_names_what_helps_against_it() {
        let next = |errno: Errno| next_step(&errno.into());
        assert!(next(Errno::MFILE).contains("ulimit -n"));
        assert!(next(Errno::NOMEM).contains("ulimit -l"));
        assert!(next(Errno::PERM).contains("io_uring_disabled"));
        assert!(next(Errno::ROFS).contains("--run-dir"));
        assert!(next(Errno::IO).contains("dmesg"));
        let other = io::Error::other("odd");
        assert!(next_step(&other).contains("dmesg"));
    }
}
