//! Arrays that Braid leaves, for a real md kernel to take: many in one boot, then back to Braid.

use crate::support::{braid, guest};
use braid_judges::Content;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Stdio;

const GUEST: &str = include_str!("handoff.sh");
/// What md writes, as `take` does: seed, offset, length.
const BY_MD: (u64, u64, u64) = (77, 3 << 20, 128 << 10);

/// An array that no process of ours serves any more.
#[derive(Clone, Debug)]
pub(crate) struct Left {
    /// For messages.
    pub(crate) name: String,
    /// All in one directory.
    pub(crate) members: Vec<PathBuf>,
    /// What it holds.
    pub(crate) content: Content,
    /// Its size.
    pub(crate) size_bytes: u64,
}

impl Left {
    /// `braid cat` gives the content, which may be followed by more.
    pub(crate) fn expect_by_cat(&self, when: &str) {
        let mut command = braid();
        let length = self.size_bytes.to_string();
        command.args(["cat", "--length", &length]).args(&self.members).stdout(Stdio::piped());
        let mut child = command.spawn().expect("braid starts");
        let mut stdout = child.stdout.take().expect("a pipe");
        let checked = self.content.check(&mut stdout, 0, self.size_bytes);
        drop(stdout);
        let status = child.wait().expect("braid ends");
        assert_eq!(checked, Ok(()), "{}, {when}: braid cat: {status}", self.name);
    }

    /// Does the guest say of this array here that it took it?
    fn is_named_by(&self, line: &str) -> bool {
        line.strip_prefix(&self.name).is_some_and(|rest| rest.starts_with(": "))
    }

    fn call(&self) -> String {
        let directory = self.members[0].parent().expect("a directory").display();
        let names = self.members.iter().map(|path| path.file_name().expect("a name"));
        let names: Vec<_> = names.map(|name| name.to_string_lossy()).collect();
        let Self { name, content, size_bytes, .. } = self;
        let names = names.join(" ");
        format!("take {name} {content} {size_bytes} {} {directory} {names}", BY_MD.0)
    }
}

/// md assembles each array, finds the content and no mismatch, and writes some; Braid reads it.
/// Returns the arrays as they are then, and what was said of each: `NAME: POLICY, SECONDS s`.
pub(crate) fn to_md_and_back(test: &str, arrays: Vec<Left>) -> (Vec<Left>, String) {
    to_md_and_back_with(test, arrays, "")
}

/// The same, and this script in the same guest.
pub(crate) fn to_md_and_back_with(
    test: &str,
    mut arrays: Vec<Left>,
    more: &str,
) -> (Vec<Left>, String) {
    let run = guest::run_patiently(test, |taken| {
        let mut script = format!("PATTERN={}\n{GUEST}\n", env!("CARGO_BIN_EXE_pattern"));
        let is_taken = |array: &&Left| taken.lines().any(|line| array.is_named_by(line));
        for array in arrays.iter().filter(|array| !is_taken(array)) {
            let _ = writeln!(script, "{}", array.call());
        }
        script + more
    });
    let run = run.expect_success("md takes what Braid left");
    for array in &mut arrays {
        array.content = array.content.clone().then(BY_MD.0, BY_MD.1, BY_MD.2);
        array.expect_by_cat("after md wrote");
    }
    (arrays, run.stdout)
}
