//! Arrays that a real md kernel makes, as tables list them: once for each recipe, then used by all
//! tests and by later runs.

use crate::support;
use braid_judges::Content;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// An array that a guest makes in a directory of its own.
pub(crate) trait Made: Sync {
    /// What the guest runs before the call.
    const GUEST: &str;

    /// Where all of its files lie, and nothing else.
    fn directory(&self) -> &Path;

    /// The members, and their sizes in bytes.
    fn members(&self) -> Vec<(&Path, u64)>;

    /// The guest's call that makes it.
    fn call(&self) -> String;

    /// All that its making depends on.
    fn recipe(&self) -> String {
        let sizes: Vec<u64> = self.members().iter().map(|(_, bytes)| *bytes).collect();
        format!("{sizes:?}\n{}\n{}", self.call(), Self::GUEST)
    }

    /// Has a former run made it by this recipe?
    fn is_made(&self) -> bool {
        fs::read_to_string(self.directory().join("recipe")).ok() == Some(self.recipe())
    }

    /// Empty members, and nothing else.
    fn begin(&self) {
        let _ = fs::remove_dir_all(self.directory());
        fs::create_dir_all(self.directory()).expect("a directory");
        for (path, bytes) in self.members() {
            support::sparse_file(path, bytes);
        }
    }

    /// Notes that it is made.
    fn finish(&self) {
        fs::write(self.directory().join("recipe"), self.recipe()).expect("a writable directory");
    }

    /// What the guest noted as the size of the array.
    fn size_bytes(&self) -> u64 {
        support::read(&self.directory().join("size.txt")).trim().parse().expect("a size")
    }
}

/// Members of these names in a directory: `m0.img` ...
pub(crate) fn members_in(directory: &Path, count: usize) -> Vec<PathBuf> {
    (0..count).map(|number| directory.join(format!("m{number}.img"))).collect()
}

/// Content that is an array's own.
pub(crate) fn content_of(name: &str) -> Content {
    Content::of(name.bytes().fold(0, |sum, byte| (sum * 31 + u64::from(byte)) % 1_000_000))
}

/// The beginning of a guest's script.
pub(crate) fn guest<A: Made>() -> String {
    format!("PATTERN={}\n{}\n", env!("CARGO_BIN_EXE_pattern"), A::GUEST)
}

/// Makes those that are not made yet, in two guests side by side.
pub(crate) fn make_all<A: Made>(name: &str, arrays: &[A]) -> Result<(), String> {
    let old: Vec<&A> = arrays.iter().filter(|array| !array.is_made()).collect();
    let halves = [0, 1].map(|half| old.iter().copied().skip(half).step_by(2).collect::<Vec<_>>());
    std::thread::scope(|scope| {
        let [first, second] = &halves;
        let other = scope.spawn(|| make_in_one_boot(&format!("{name}-1"), second));
        make_in_one_boot(&format!("{name}-0"), first).and(other.join().expect("a guest"))
    })
}

/// Makes all of these in one guest.
pub(crate) fn make_in_one_boot<A: Made>(name: &str, arrays: &[&A]) -> Result<(), String> {
    if arrays.is_empty() {
        return Ok(());
    }
    let run = support::guest::run_patiently(name, |_| {
        let mut script = guest::<A>();
        for array in arrays {
            array.begin();
            let _ = writeln!(script, "{}", array.call());
        }
        script
    });
    if !run.status.success() {
        return Err(format!("making arrays: {run}"));
    }
    arrays.iter().for_each(|array| array.finish());
    Ok(())
}

/// What a `braid cat` gives: the content, and what it says beside that; or it is refused with this
/// line, or wrong.
pub(crate) fn content_by(
    cat: &mut Command,
    content: &Content,
    size_bytes: u64,
) -> Result<String, String> {
    cat.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = cat.spawn().expect("braid starts");
    let mut stdout = child.stdout.take().expect("a pipe");
    let checked = content.check(&mut stdout, 0, size_bytes);
    drop(stdout);
    let output = child.wait_with_output().expect("braid ends");
    let said = String::from_utf8_lossy(&output.stderr).trim().to_string();
    match (output.status.code(), checked) {
        (Some(0), Ok(())) => Ok(said),
        (Some(1), Err(why)) if why.starts_with("0 of") => Err(format!("refused: {said}")),
        (status, checked) => Err(format!("status {status:?}, {checked:?}: {said}")),
    }
}
