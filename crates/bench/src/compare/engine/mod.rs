//! `engine`: every level under load from within the process, without a socket or a mount between,
//! and over each export under fio, beside servers without RAID: what the engine and the array cost
//! by themselves, and what an export adds.

mod anchors;
mod array;
mod case;
mod chapter;
mod copies;
mod exports;
mod guest;
mod load;
mod plots;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::anchors::Anchor;
use self::case::{Case, Place, Shape, levels, member_bytes, members};
use self::exports::Export;
use self::load::loads;
use super::under_fio::{Stands, forgive};
use crate::failure::Failure;
use crate::model::{Chapter, Comparison, Found, Group, Job, Standing};
use crate::rig::Room;

/// What fio takes to start and to end.
const FIO: Duration = Duration::from_millis(550);
/// What has no RAID and is in memory.
const WITHOUT_RAID: u64 = 7;
const LEAST_BYTES: u64 = 16 << 20;

/// What decides about the findings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Options {
    /// Which: `0`, `1`, `5`, `6`, `10`.
    pub levels: Vec<String>,
    /// Length of one measurement.
    pub run_ms: u64,
    /// How much of an array, a file or a server is read and written.
    pub area_bytes: u64,
    /// How often each.
    pub runs: u16,
}

impl Options {
    /// Two levels once, for a moment.
    #[must_use]
    pub fn quick() -> Self {
        let levels = ["0", "5"].map(str::to_owned).into();
        Self { levels, run_ms: 200, area_bytes: 64 << 20, runs: 1 }
    }

    /// Each so long that percentiles mean something.
    #[must_use]
    pub fn full() -> Self {
        let levels = ["0", "1", "5", "6", "10"].map(str::to_owned).into();
        Self { levels, run_ms: 500, area_bytes: 256 << 20, runs: 3 }
    }

    /// What the members of so many arrays of each level take.
    fn members_bytes(&self, arrays: u64) -> u64 {
        let of = |level| members(level) as u64 * member_bytes(level, self.area_bytes);
        arrays * levels(self).map(of).sum::<u64>()
    }

    /// What the members take of the array that is written in whole stripes.
    fn stripes_bytes(&self) -> u64 {
        Shape::STRIPES.members as u64 * member_bytes(Shape::STRIPES.level, self.area_bytes)
    }
}

/// The comparison `engine`, with its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine(pub Options);

impl Comparison for Engine {
    fn name(&self) -> &'static str {
        "engine"
    }

    fn options(&self) -> Value {
        serde_json::to_value(&self.0).unwrap_or_default()
    }

    fn groups(&self) -> Vec<Group> {
        let group = |place: Place| {
            let cases = place.cases(&self.0);
            let within = cases.iter().filter(|case| case.is_within()).count();
            let share = within as f64 / cases.len() as f64;
            let run = Duration::from_millis(self.0.run_ms);
            // A load within the process warms up, and needs no program.
            let takes = run + run.mul_f64(share / 10.0) + FIO.mul_f64(1.0 - share);
            Group {
                title: format!("engine, {}", place.name()),
                cases: cases.into_iter().map(Case::name).collect(),
                jobs: loads().map(|load| Job { name: load.name(), takes }).collect(),
                rounds: self.0.runs,
                set_up: Duration::from_millis(700),
            }
        };
        Place::ALL.map(group).to_vec()
    }

    fn needs_bytes(&self) -> u64 {
        self.0.members_bytes(1) + self.0.area_bytes
    }

    fn needs_memory_bytes(&self) -> u64 {
        let arrays = 1 + Export::ALL.len() as u64;
        self.0.members_bytes(arrays) + self.0.stripes_bytes() + WITHOUT_RAID * self.0.area_bytes
    }

    fn smaller(&self) -> Option<Box<dyn Comparison>> {
        let area_bytes = self.0.area_bytes / 2;
        let smaller = || Box::new(Self(Options { area_bytes, ..self.0.clone() })) as _;
        (area_bytes >= LEAST_BYTES).then(smaller)
    }

    fn set_up(&self, case: &str, room: &Room) -> Result<Box<dyn Standing>, Failure> {
        let Options { area_bytes, run_ms, .. } = self.0;
        let run = Duration::from_millis(run_ms);
        let jobs = loads().map(|load| (load.name(), load.requests())).collect();
        let fill = |served| Stands::filled(room, served, area_bytes, run_ms, jobs);
        match Case::named(&self.0, case) {
            Some(within @ Case::Within(level, place)) => {
                let shape = Shape::usual(level);
                Ok(Box::new(array::Stand::set_up(&self.0, within.name(), shape, place, room)?))
            }
            Some(Case::Stripes) => {
                let name = Case::Stripes.name();
                let shape = Shape::STRIPES;
                Ok(Box::new(array::Stand::set_up(&self.0, name, shape, Place::Memory, room)?))
            }
            Some(Case::Over(level, Export::VhostUser)) => {
                let served = Export::VhostUser.serve(level, room, area_bytes)?;
                Ok(Box::new(guest::Guest::filled(served, area_bytes, run)?))
            }
            Some(Case::Over(level, export)) => {
                Ok(Box::new(fill(export.serve(level, room, area_bytes)?)?))
            }
            Some(Case::Beside(Anchor::DaemonVhostUser)) => {
                let served = Anchor::DaemonVhostUser.serve(room, area_bytes);
                let guest = served.and_then(|it| guest::Guest::filled(it, area_bytes, run));
                Ok(Box::new(guest.map_err(forgive)?.forgiven()))
            }
            Some(Case::Beside(anchor)) => {
                let served = anchor.serve(room, area_bytes).and_then(fill);
                Ok(Box::new(served.map_err(forgive)?.forgiven()))
            }
            Some(Case::Copies) => Ok(Box::new(copies::Copies::new(area_bytes, run))),
            None => Err(Failure::usage(case, "no case has this name", "begin the report anew")),
        }
    }

    fn chapter(&self, found: &Found) -> Chapter {
        chapter::chapter(&self.0, found)
    }
}
