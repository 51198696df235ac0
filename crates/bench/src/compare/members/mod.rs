//! `members`: bonnie++ on XFS over a disk, two and four of them as RAID 0, on machines that let so
//! much through each disk and so much through all of them.

mod bonnie;
mod chapter;
mod class;
mod numbers;
mod says;
mod stand;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::class::{CLASSES, Class, MEMBERS};
use self::stand::Stand;
use crate::failure::Failure;
use crate::model::{Chapter, Comparison, Found, Group, Job, Standing};
use crate::rig::Room;

/// bonnie++ as a whole, or what is left of it.
const BONNIE: &str = "bonnie++";
/// Its sequential part: while it rests afterwards, other cases begin.
const BEGIN: &str = "bonnie++ begins";
/// A file read again and again: from memory.
const WARM: &str = "warm read";
/// A file read once after the file system was mounted anew: from the members.
const COLD: &str = "cold read";
/// What fio calls both.
const READS: &str = "reads";

/// What decides about the findings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// The file is as large as what the host lets through in so many milliseconds.
    pub write_ms: u64,
    /// The file that is read is as large as what a case lets through in so many, and is read from
    /// memory for so long.
    pub read_ms: u64,
    /// Characters one by one, and creating files, as the author ran it, too.
    pub whole: bool,
    /// How often the cases take turns.
    pub runs: u16,
}

impl Options {
    /// Blocks and seeks once, each for a moment: bonnie++ gives no number for what is over within
    /// half a second.
    #[must_use]
    pub fn quick() -> Self {
        Self { write_ms: 540, read_ms: 150, whole: false, runs: 1 }
    }

    /// All that the author ran. How large his files were he does not say; they fitted into memory.
    #[must_use]
    pub fn full() -> Self {
        Self { write_ms: 15_000, read_ms: 5000, whole: true, runs: 3 }
    }
}

/// The comparison `members`, with its options: they decide about cases, jobs and how often these
/// run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members(pub Options);

/// So many members on such a machine.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Case {
    class: &'static Class,
    members: u16,
}

impl Case {
    fn all() -> impl Iterator<Item = Self> {
        let of = |class| MEMBERS.map(|members| Self { class, members });
        CLASSES.iter().flat_map(of)
    }

    fn name(self) -> String {
        format!("{} x{}", self.class.name, self.members)
    }
}

impl Comparison for Members {
    fn name(&self) -> &'static str {
        "members"
    }

    fn options(&self) -> Value {
        serde_json::to_value(&self.0).unwrap_or_default()
    }

    fn groups(&self) -> Vec<Group> {
        let Options { write_ms, read_ms, whole, runs } = self.0;
        let job = |name: &str, takes_ms| Job {
            name: name.to_owned(),
            takes: Duration::from_millis(takes_ms),
        };
        // Writing and rewriting, on average over what binds; three seconds of rest and one of
        // seeks; then 20 MiB one character at a time, twice, and 16384 files made and removed.
        let blocks_ms = write_ms * 3;
        let bonnie = if whole {
            vec![job(BONNIE, blocks_ms + 4000 + 60_000)]
        } else {
            vec![job(BEGIN, blocks_ms), job(BONNIE, 1300)]
        };
        let reads = [job(WARM, read_ms + 400), job(COLD, 2 * read_ms + 500)];
        let jobs = [bonnie.as_slice(), &reads].concat();
        let group = |class: &Class| Group {
            title: format!("members, {}", class.name),
            cases: MEMBERS.map(|members| format!("{} x{members}", class.name)).to_vec(),
            jobs: jobs.clone(),
            rounds: runs,
            set_up: Duration::from_millis(700),
        };
        CLASSES.iter().map(group).collect()
    }

    fn set_up(&self, case: &str, room: &Room) -> Result<Box<dyn Standing>, Failure> {
        let Some(case) = Case::all().find(|other| other.name() == case) else {
            return Err(Failure::usage(case, "no case has this name", "see the names of members"));
        };
        Ok(Box::new(Stand::set_up(&self.0, case, room)?))
    }

    fn chapter(&self, found: &Found) -> Chapter {
        chapter::chapter(&self.0, found)
    }
}
