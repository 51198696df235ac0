//! The record of a run: commands, and what they said.

use std::path::PathBuf;

/// The record of a run of a job: the commands, and what they said, as files.
#[derive(Debug, Default)]
pub struct Note {
    /// Commands as they were typed.
    pub commands: Vec<String>,
    /// Name (`fio.json`, `dd.txt`: the same in every run of the job) and content.
    pub files: Vec<(String, Vec<u8>)>,
    /// Directory in which tools may write; gone afterwards.
    pub scratch: PathBuf,
}

impl Note {
    /// Notes what a tool said.
    pub fn file(&mut self, name: &str, content: impl Into<Vec<u8>>) {
        self.files.push((name.to_owned(), content.into()));
    }
}
