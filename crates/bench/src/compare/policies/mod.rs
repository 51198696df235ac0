//! `policies`: what each consistency policy of RAID 5 costs beside `resync`, which records nothing.

mod case;
mod chapter;

use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use self::case::{CHUNK_BYTES, MEMBERS, Policy, PolicyCase, PolicyLoad, PolicyPlace, STRIPE_BYTES};
use super::prepared::{Prepared, fill, job_file};
use super::{Plan, named};
use crate::failure::Failure;
use crate::model::{Chapter, Found, Group, Job, Note, Standing};
use crate::rig::{Array, ArraySpec, Room, Stack};
use crate::tool::{Tool, fio};

/// Time that fio takes to start and to end, and a journal to bring its content in place.
const BESIDE: Duration = Duration::from_millis(700);
const LEAST_BYTES: u64 = 32 << 20;
/// Time until what a journal has is in place.
const PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(20);

/// The options of the comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyOptions {
    /// Length of one measurement.
    pub run_ms: u64,
    /// Size of a member and of a journal.
    pub member_bytes: u64,
    /// Number of rounds.
    pub runs: u16,
}

impl PolicyOptions {
    /// Returns what the members and journals on one medium take.
    fn place_bytes(&self) -> u64 {
        let journals = Policy::ALL.iter().filter(|policy| policy.has_journal()).count();
        (Policy::ALL.len() * MEMBERS + journals) as u64 * self.member_bytes
    }
}

impl Plan for PolicyOptions {
    const NAME: &'static str = "policies";

    fn usual(quick: bool) -> Self {
        if quick {
            Self { run_ms: 500, member_bytes: 64 << 20, runs: 1 }
        } else {
            Self { run_ms: 3000, member_bytes: 128 << 20, runs: 3 }
        }
    }

    fn runs(&mut self) -> &mut u16 {
        &mut self.runs
    }

    fn groups(&self) -> Vec<Group> {
        let takes = Duration::from_millis(self.run_ms) + BESIDE;
        let group = |place: PolicyPlace| Group {
            title: format!("policies, {place}"),
            cases: place.cases().map(|case| case.to_string()).into(),
            jobs: PolicyLoad::ALL.map(|load| Job::new(load.name(), takes)).into(),
            rounds: self.runs,
            set_up: Duration::from_millis(1500),
        };
        PolicyPlace::ALL.map(group).to_vec()
    }

    fn needs_bytes(&self) -> u64 {
        self.place_bytes()
    }

    fn needs_memory_bytes(&self) -> u64 {
        self.place_bytes()
    }

    fn smaller(&self) -> Option<Self> {
        let member_bytes = self.member_bytes / 2;
        (member_bytes >= LEAST_BYTES).then(|| Self { member_bytes, ..self.clone() })
    }

    fn set_up(&self, case: &str, room: &Room) -> Result<Box<dyn Standing>, Failure> {
        let PolicyCase { policy, place } = named(PolicyCase::all(), case)?;
        let room = match place {
            PolicyPlace::Memory => room.in_memory()?,
            PolicyPlace::Files => room.clone(),
        };
        let files = MEMBERS + usize::from(policy.has_journal());
        let mut stack = Stack::new(&room, case).files(files, self.member_bytes)?;
        let journal = stack.members.split_off(MEMBERS).pop();
        let spec = ArraySpec {
            level: "5".to_owned(),
            chunk_bytes: Some(CHUNK_BYTES),
            journal,
            create: vec!["--consistency-policy".to_owned(), policy.word().to_owned()],
            nbd: true,
            ..ArraySpec::default()
        };
        let stack = stack.array(spec)?;
        let bytes = stack.running_array().map_or(0, Array::size_bytes);
        let area_bytes = bytes / STRIPE_BYTES * STRIPE_BYTES;
        fill(&stack, area_bytes, &mut Note { scratch: room.scratch.clone(), ..Note::default() })?;
        let tool = Tool::find("fio", "fio")?;
        let run_ms = self.run_ms;
        Ok(Prepared::on(stack, move |stack, job, note| {
            let load = named(PolicyLoad::ALL, job)?;
            let text = job_file(job, &stack.top, load.requests(place), (area_bytes, run_ms));
            if policy != Policy::WrittenBack {
                return fio::run(&tool, &text, note);
            }
            let Some(array) = stack.running_array() else { return Ok(()) };
            array.braid(&["sync", "--journal-mode", "write-back"])?;
            note.commands.push("braid sync NAME --journal-mode write-back".to_owned());
            fio::run(&tool, &text, note)?;
            bring_in_place(array)
        }))
    }

    fn chapter(&self, found: &Found) -> Chapter {
        chapter::chapter(self, found)
    }
}

/// Writes back the whole journal, so that the next case starts with an empty one.
fn bring_in_place(array: &Array) -> Result<(), Failure> {
    array.braid(&["sync", "--journal-mode", "write-through"])?;
    let until = Instant::now() + PATIENCE;
    while array.status()?["journal"]["dirty_bytes"] != 0 {
        if Instant::now() > until {
            let reason = format!("not in place after {} s", PATIENCE.as_secs());
            return Err(Failure::refused("journal", reason, "see what braid status says"));
        }
        thread::sleep(POLL);
    }
    Ok(())
}
