//! The report's folder: `raw/` with what the tools said, a journal of it, and what was asked for.
//! The report beside it is made of this alone.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::failure::{About, Failure};
use crate::machine::Machine;
use crate::model::{Found, Gap, Note, Run};
use crate::rig::file_name;

const JOURNAL: &str = "raw/journal.jsonl";
const LOCK: &str = "raw/lock";
const MACHINE: &str = "raw/machine.json";
const NEXT: &str = "name another directory: --report DIR";

/// The folder of one report. [`open`](Self::open) takes it for a run, and no other run can write
/// into it meanwhile; [`of_report`](Self::of_report) opens it to read. A run [begins](Self::begin)
/// each comparison, then keeps what each job, gap and the machine tell; the journal has one JSON
/// line for each. [`options`](Self::options), [`found`](Self::found) and [`machine`](Self::machine)
/// read that back, from which the report is made.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
    /// Held by who measures into it: a second one would throw away what the first has found.
    _lock: Option<Arc<File>>,
}

/// A line of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Line {
    comparison: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    run: Option<Run>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    gap: Option<Gap>,
}

impl Folder {
    /// A new folder, an empty one, or one that holds a report already.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let mut folder = Self { path: path.to_owned(), _lock: None };
        fs::create_dir_all(path).about(path.display(), NEXT)?;
        let mut entries = fs::read_dir(path).about(path.display(), NEXT)?;
        if entries.next().is_some() && !path.join("raw").is_dir() {
            let reason = "the directory holds something that is no report";
            return Err(Failure::usage(path.display(), reason, NEXT));
        }
        fs::create_dir_all(path.join("raw")).about(path.display(), NEXT)?;
        let lock = File::create(path.join(LOCK)).about(path.display(), NEXT)?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Err(Failure::usage(path.display(), "another run writes into it", NEXT));
        }
        folder._lock = Some(Arc::new(lock));
        Ok(folder)
    }

    /// One that holds a report.
    pub fn of_report(path: &Path) -> Result<Self, Failure> {
        if path.join(JOURNAL).is_file() {
            return Ok(Self { path: path.to_owned(), _lock: None });
        }
        let reason = "it holds no report with what the tools said";
        Err(Failure::usage(path.display(), reason, "name a directory that bench has made"))
    }

    /// Path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The lines of the journal that can be read: the last one may have been cut off.
    fn journal(&self) -> Vec<Line> {
        let text = fs::read_to_string(self.path.join(JOURNAL)).unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    fn replace(&self, name: &str, content: &[u8]) -> Result<(), Failure> {
        replace(&self.path.join(name), content).about(self.path.display(), NEXT)
    }

    fn append(&self, line: &Line) -> Result<(), Failure> {
        let file = OpenOptions::new().create(true).append(true).open(self.path.join(JOURNAL));
        let written = file.and_then(|mut file| file.write_all(line.text().as_bytes()));
        written.about(self.path.display(), NEXT)
    }

    /// Begins a comparison: anew, or where it was if it is resumed. One with other options cannot
    /// be resumed: its numbers would not belong together.
    pub fn begin(&self, name: &str, options: &Value, resume: bool) -> Result<(), Failure> {
        let before = self.options(name);
        if resume && before.as_ref().is_some_and(|before| before != options) {
            let reason = "it was begun with other options";
            return Err(Failure::usage(name, reason, "give the same, or leave out --resume"));
        }
        let raw = self.path.join("raw").join(name);
        let mut lines = self.journal();
        if !(resume && before.is_some()) {
            lines.retain(|line| line.comparison != name);
            if raw.exists() {
                fs::remove_dir_all(&raw).about(self.path.display(), NEXT)?;
            }
        }
        // What was missing may be there now.
        lines.retain(|line| line.comparison != name || line.gap.is_none());
        fs::create_dir_all(&raw).about(self.path.display(), NEXT)?;
        self.replace(JOURNAL, lines.iter().map(Line::text).collect::<String>().as_bytes())?;
        let text = serde_json::to_vec_pretty(options).unwrap_or_default();
        self.replace(&format!("raw/{name}/options.json"), &text)
    }

    /// Returns the options of a comparison.
    pub fn options(&self, name: &str) -> Option<Value> {
        let file = self.path.join("raw").join(name).join("options.json");
        serde_json::from_slice(&fs::read(file).ok()?).ok()
    }

    /// All that was found by a comparison.
    pub fn found(&self, name: &str) -> Found {
        let mut found = Found { folder: self.path.clone(), ..Found::default() };
        for line in self.journal().into_iter().filter(|line| line.comparison == name) {
            found.runs.extend(line.run);
            found.gaps.extend(line.gap);
        }
        found
    }

    /// Keeps a run of a job, and what it left.
    pub fn keep(&self, comparison: &str, mut run: Run, note: &Note) -> Result<(), Failure> {
        let directory = format!("raw/{comparison}/{}", file_name(&run.case));
        fs::create_dir_all(self.path.join(&directory)).about(self.path.display(), NEXT)?;
        for (file, content) in &note.files {
            let path = format!("{directory}/{}.{}.{file}", file_name(&run.job), run.round + 1);
            fs::write(self.path.join(&path), content).about(self.path.display(), NEXT)?;
            run.files.push(path);
        }
        run.commands.clone_from(&note.commands);
        self.append(&Line { comparison: comparison.to_owned(), run: Some(run), gap: None })
    }

    /// Keeps why something could not be measured.
    pub fn keep_gap(&self, comparison: &str, gap: Gap) -> Result<(), Failure> {
        self.append(&Line { comparison: comparison.to_owned(), run: None, gap: Some(gap) })
    }

    /// Keeps what machine it was.
    pub fn keep_machine(&self, machine: &Machine) -> Result<(), Failure> {
        self.replace(MACHINE, &serde_json::to_vec_pretty(machine).unwrap_or_default())
    }

    /// The machine on which it was measured.
    pub fn machine(&self) -> Machine {
        let text = fs::read(self.path.join(MACHINE)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }
}

/// Gives a file other content: a reader finds the old or the new, whatever happens meanwhile.
pub(crate) fn replace(file: &Path, content: &[u8]) -> io::Result<()> {
    let new = file.with_extension("new");
    fs::write(&new, content).and_then(|()| fs::rename(new, file))
}

impl Line {
    fn text(&self) -> String {
        serde_json::to_string(self).map_or_else(|_| String::new(), |text| text + "\n")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn note(text: &str) -> Note {
        let mut note = Note::default();
        note.commands.push("dd if=/dev/zero".to_owned());
        note.file("dd.txt", text);
        note
    }

    fn run(round: u16) -> Run {
        Run { server_cpu_s: Some(0.5), ..Run::new("UU", "write 4 MB", round) }
    }

    #[test]
    fn what_is_kept_is_found_again_and_a_line_that_was_cut_off_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let folder = Folder::open(&directory.path().join("report")).expect("a folder");
        let options = json!({ "runs": 2 });
        folder.begin("states", &options, false).expect("begun");
        folder.keep("states", run(0), &note("5.0 MB/s")).expect("kept");
        folder.keep("states", run(1), &note("7.0 MB/s")).expect("kept");
        let gap = Gap { case: None, job: None, reason: "no dd".into(), next: "get it".into() };
        folder.keep_gap("states", gap).expect("kept");
        let journal = folder.path().join(JOURNAL);
        let mut file = OpenOptions::new().append(true).open(journal).expect("a journal");
        file.write_all(b"{\"comparison\":\"states\",\"ru").expect("written");
        let found = folder.found("states");
        assert_eq!((found.runs.len(), found.gaps.len()), (2, 1));
        assert_eq!(found.runs[1].file("dd.txt"), Some("raw/states/uu/write-4-mb.2.dd.txt"));
        assert_eq!(found.text(&found.runs[1], "dd.txt").as_deref(), Some("7.0 MB/s"));
        assert_eq!((found.runs[1].server_cpu_s, found.runs[1].round), (Some(0.5), 1));
    }

    #[test]
    fn a_comparison_goes_on_where_it_was_only_with_the_same_options() {
        let directory = tempfile::tempdir().expect("a directory");
        let folder = Folder::open(directory.path()).expect("a folder");
        folder.begin("states", &json!({ "runs": 2 }), false).expect("begun");
        folder.keep("states", run(0), &note("5.0 MB/s")).expect("kept");
        folder.begin("states", &json!({ "runs": 2 }), true).expect("resumed");
        assert_eq!(folder.found("states").runs.len(), 1);
        let other = folder.begin("states", &json!({ "runs": 3 }), true).expect_err("another");
        assert_eq!(other.ends, crate::Ends::Usage);
        folder.begin("states", &json!({ "runs": 3 }), false).expect("begun anew");
        assert!(folder.found("states").runs.is_empty());
        assert!(!directory.path().join("raw/states/uu").exists());
    }

    #[test]
    fn two_runs_do_not_write_into_one_folder() {
        let directory = tempfile::tempdir().expect("a directory");
        let first = Folder::open(directory.path()).expect("a folder");
        let refused = Folder::open(directory.path()).expect_err("it is in use");
        assert!(refused.why.reason.contains("another run"), "{refused:?}");
        drop(first);
        Folder::open(directory.path()).expect("nobody uses it any more");
    }

    #[test]
    fn a_directory_with_something_else_in_it_is_left_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("thesis.txt"), "years of work").expect("written");
        let refused = Folder::open(directory.path()).expect_err("not ours");
        assert!(refused.why.reason.contains("no report"), "{refused:?}");
    }
}
