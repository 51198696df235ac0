//! `engine`: every level under load from within the process, without a socket or a mount between:
//! what the engine and the array cost by themselves.

mod array;
mod chapter;
mod load;
#[cfg(test)]
mod tests;

use std::time::Duration;

use braid_array::level::Level;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::array::Stand;
use self::load::Load;
use crate::failure::Failure;
use crate::model::{Chapter, Comparison, Found, Group, Job, Standing};
use crate::rig::Room;

const KIB: u32 = 1024;
const LEVELS: [Level; 5] = [Level::Raid0, Level::Raid1, Level::Raid5, Level::Raid6, Level::Raid10];
const REQUEST_BYTES: [u32; 3] = [4 * KIB, 64 * KIB, 1024 * KIB];
const DEPTHS: [usize; 2] = [1, 32];

/// What decides about the findings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Length of one measurement.
    pub run_ms: u64,
    /// Size of a member.
    pub member_bytes: u64,
    /// How often each.
    pub runs: u16,
}

impl Options {
    /// Each once, for a moment.
    #[must_use]
    pub const fn quick() -> Self {
        Self { run_ms: 50, member_bytes: 16 << 20, runs: 1 }
    }

    /// Each so long that percentiles mean something.
    #[must_use]
    pub const fn full() -> Self {
        Self { run_ms: 1000, member_bytes: 256 << 20, runs: 3 }
    }
}

/// The comparison `engine`, with its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine(pub Options);

/// Where members are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In memory of the process.
    Memory,
    /// In files, or on the devices that were named.
    Files,
}

/// A level on such members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Case {
    level: Level,
    place: Place,
}

impl Case {
    fn all() -> impl Iterator<Item = Self> {
        let of = |place| LEVELS.map(|level| Self { level, place });
        [Place::Memory, Place::Files].into_iter().flat_map(of)
    }

    fn name(self) -> String {
        let place = match self.place {
            Place::Memory => "memory",
            Place::Files => "files",
        };
        format!("{} on {place}", self.level.name())
    }

    /// A mirror of two, and otherwise as many as a small array has.
    const fn members(self) -> usize {
        if matches!(self.level, Level::Raid1) { 2 } else { 4 }
    }
}

/// All loads.
fn loads() -> impl Iterator<Item = Load> {
    [false, true].into_iter().flat_map(|writes| {
        REQUEST_BYTES.into_iter().flat_map(move |bytes| {
            DEPTHS.into_iter().map(move |depth| Load { writes, bytes, depth })
        })
    })
}

impl Comparison for Engine {
    fn name(&self) -> &'static str {
        "engine"
    }

    fn options(&self) -> Value {
        serde_json::to_value(&self.0).unwrap_or_default()
    }

    fn groups(&self) -> Vec<Group> {
        let job = |load: Load| Job {
            name: load.name(),
            takes: Duration::from_millis(self.0.run_ms + self.0.run_ms / 10),
        };
        let group = |place| Group {
            title: "engine".to_owned(),
            cases: Case::all().filter(|case| case.place == place).map(Case::name).collect(),
            jobs: loads().map(job).collect(),
            rounds: self.0.runs,
            set_up: Duration::from_millis(200),
        };
        [Place::Memory, Place::Files].map(group).to_vec()
    }

    fn set_up(&self, case: &str, room: &Room) -> Result<Box<dyn Standing>, Failure> {
        let Some(case) = Case::all().find(|other| other.name() == case) else {
            return Err(Failure::usage(case, "no case has this name", "see the names of engine"));
        };
        Ok(Box::new(Stand::set_up(&self.0, case, room)?))
    }

    fn chapter(&self, found: &Found) -> Chapter {
        chapter::chapter(&self.0, found)
    }
}
