//! An array with a policy, over NBD, and the loads on it.

use std::thread;
use std::time::{Duration, Instant};

use super::Options;
use super::case::{CHUNK_BYTES, Case, Load, MEMBERS, Place, Policy, STRIPE_BYTES};
use crate::compare::under_fio::{Served, Stands, Target, Under};
use crate::failure::Failure;
use crate::model::{Note, Standing};
use crate::rig::{Array, ArraySpec, Room};

/// Until what a journal has is in place.
const PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(20);

/// A case that stands.
pub(super) struct Stand {
    stands: Stands,
    policy: Policy,
}

impl Stand {
    pub(super) fn set_up(options: &Options, case: Case, room: &Room) -> Result<Self, Failure> {
        let Case { policy, place } = case;
        let room = match place {
            Place::Memory => room.in_memory()?,
            Place::Files => room.clone(),
        };
        let journals = usize::from(policy.has_journal());
        let files = room.member_files(&case.name(), MEMBERS + journals, options.member_bytes)?;
        let (members, journal) = files.paths.split_at(MEMBERS);
        let spec = ArraySpec {
            name: case.name(),
            level: "5".to_owned(),
            chunk_bytes: Some(CHUNK_BYTES),
            members: members.to_vec(),
            journal: journal.first().cloned(),
            create: vec!["--consistency-policy".to_owned(), policy.word().to_owned()],
            nbd: true,
            ..ArraySpec::default()
        };
        let array = Array::start(&room, &spec)?;
        let area_bytes = array.size_bytes() / STRIPE_BYTES * STRIPE_BYTES;
        let jobs = Load::ALL.map(|load| (load.name().to_owned(), load.requests(place)));
        let served = Served {
            target: Target::Nbd(array.nbd_uri().unwrap_or_default()),
            server: Some(array.pid()),
            commands: array.commands().to_vec(),
            under: Under { array: Some(array), files: Some(files), ..Under::default() },
        };
        let stands = Stands::filled(&room, served, area_bytes, options.run_ms, jobs.to_vec())?;
        Ok(Self { stands, policy })
    }

    /// Has all of it brought in place, so that the next case is measured by itself.
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
}

impl Standing for Stand {
    fn run(&mut self, job: &str, note: &mut Note) -> Result<(), Failure> {
        let back = self.policy == Policy::WrittenBack;
        if let Some(array) = self.stands.array()
            && back
        {
            array.braid(&["sync", "--journal-mode", "write-back"])?;
            note.commands.push("braid sync NAME --journal-mode write-back".to_owned());
        }
        self.stands.run(job, note)?;
        match self.stands.array() {
            Some(array) if back => Self::bring_in_place(array),
            _ => Ok(()),
        }
    }

    fn server(&self) -> Option<u32> {
        self.stands.server()
    }
}
