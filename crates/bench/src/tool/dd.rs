//! `dd`, under the shell's `time`: how much, how long, and with how much of a core.

use std::process::{Child, Stdio};

use super::{Note, Tool};
use crate::failure::{About, Failure};

/// Says what csh's `time` says first: seconds of user, system and clock, and a share.
const TIME_SCRIPT: &str = "TIMEFORMAT='%Uu %Ss %R %P%%'; time dd \"$@\"";

/// Last words of `dd`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Said {
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
}

impl Said {
    /// 10^6 bytes a second.
    pub(crate) fn mb_s(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.seconds
    }
}

/// Every `dd` that a text tells of, in its order, but those that copied nothing.
pub(crate) fn all(text: &str) -> impl Iterator<Item = Said> {
    text.lines().filter_map(said)
}

/// `64000000 bytes (64 MB, 61 MiB) copied, 0.224322 s, 285 MB/s`, and as it was worded before 2010.
fn said(line: &str) -> Option<Said> {
    let (bytes, rest) = line.split_once(" byte")?;
    let (_, rest) = rest.split_once(" copied, ")?;
    let bytes = bytes.trim().parse().ok()?;
    let seconds: f64 = rest.split(' ').next()?.parse().ok()?;
    (bytes > 0 && seconds > 0.0).then_some(Said { bytes, seconds })
}

/// All that the text tells of, as one: those that ran at once, from the first to the last.
pub(crate) fn at_once_mb_s(text: &str) -> Option<f64> {
    let bytes: u64 = all(text).map(|said| said.bytes).sum();
    let seconds = all(text).map(|said| said.seconds).fold(0.0, f64::max);
    (seconds > 0.0).then(|| Said { bytes, seconds }.mb_s())
}

/// Reads how much of a core the `dd`s used: `0.004u 7.900s 75.500 10.47%`.
pub(crate) fn cores(text: &str) -> Option<f64> {
    let percent = |line: &str| {
        let mut words = line.split_whitespace();
        words.next()?.strip_suffix('u')?.parse::<f64>().ok()?;
        words.nth(2)?.strip_suffix('%')?.parse::<f64>().ok()
    };
    text.lines().filter_map(percent).map(|percent| percent / 100.0).reduce(|a, b| a + b)
}

/// One that runs.
#[derive(Debug)]
pub(crate) struct Copying(Child);

/// `time dd WORDS`, begun. To be started from the main thread.
pub(crate) fn start(words: &[&str], note: &mut Note) -> Result<Copying, Failure> {
    let typed = words.iter().map(|&word| word.to_owned()).collect::<Vec<String>>();
    note.commands.push(format!("time {}", super::typed("dd", &typed)));
    let mut command = Tool::find("bash", "bash")?.command();
    command.args(["-c", TIME_SCRIPT, "dd"]).args(words);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    child.map(Copying).about("dd", "check that it can be run")
}

/// `time dd WORDS` to its end: what both said.
pub(crate) fn run(words: &[&str], note: &mut Note) -> Result<String, Failure> {
    start(words, note)?.end()
}

impl Copying {
    pub(crate) fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }

    /// Waits until it has ended: what it said.
    pub(crate) fn end(self) -> Result<String, Failure> {
        let output = self.0.wait_with_output().about("dd", "check that it can be run")?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() {
            return Ok(text);
        }
        // After its own last words come those of `time`.
        let words = text.lines().rfind(|line| line.starts_with("dd: ")).unwrap_or("it has failed");
        Err(Failure::refused("dd", format!("it says '{words}'"), "see what it works on"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "1+0 records in
1+0 records out
4000000 bytes (4.0 MB, 3.8 MiB) copied, 0.0138587 s, 289 MB/s
0.001u 0.010s 0.022 50.98%
1+0 records in
1+0 records out
64000000 bytes (64 MB, 61 MiB) copied, 0.224322 s, 285 MB/s
0.000u 0.217s 0.238 91.66%
0+0 records in
0+0 records out
0 bytes copied, 2.5678e-05 s, 0.0 kB/s
";

    #[test]
    fn every_dd_of_a_text_is_found_and_what_copied_nothing_is_not() {
        let found: Vec<Said> = all(TWO).collect();
        let small = Said { bytes: 4_000_000, seconds: 0.013_858_7 };
        assert_eq!(found, [small, Said { bytes: 64_000_000, seconds: 0.224_322 }]);
        assert!((found[1].mb_s() - 285.3).abs() < 0.1);
        assert!((at_once_mb_s(TWO).expect("two") - 68.0 / 0.224_322).abs() < 0.1);
        assert!((cores(TWO).expect("two") - 1.4264).abs() < 1e-9);
    }

    #[test]
    fn what_an_old_dd_says_is_understood_and_what_is_no_dd_is_not() {
        let old = "2048000000 bytes (2.0 GB) copied, 75.1807 seconds, 27.2 MB/s";
        assert!((all(old).next().expect("one").mb_s() - 27.24).abs() < 0.01);
        for text in ["", "0.0u", "bytes copied, 1 s", "1 byte copied, x s", "-1 bytes copied, 1 s"]
        {
            assert!(all(text).next().is_none() && cores(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_dd_that_fails_says_why_in_its_own_words() {
        let mut note = Note::default();
        let words = ["if=/dev/zero", "of=/no/such/place", "count=1"];
        let failure = run(&words, &mut note).expect_err("no such place");
        assert!(failure.why.reason.contains("/no/such/place"), "{}", failure.why.reason);
        assert_eq!(note.commands, ["time dd if=/dev/zero of=/no/such/place count=1"]);
        let said = run(&["if=/dev/zero", "of=/dev/null", "bs=4MB", "count=1"], &mut note);
        let said = said.expect("it runs");
        assert_eq!(all(&said).next().map(|said| said.bytes), Some(4_000_000), "{said}");
        assert!(cores(&said).is_some_and(|cores| cores <= 1.1), "{said}");
    }
}
