//! `engine`: every level under load from within the process, without a socket or a mount between,
//! and over each export under fio, beside servers without RAID: what the engine and the array cost
//! by themselves, and what an export adds.

mod case;
mod chapter;
mod inside;
mod load;
#[cfg(test)]
mod tests;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::case::{EXPORTS, EngineCase, EnginePlace, LEVELS, all, levels, members};
use self::inside::{ArrayShape, Inside, copy};
use self::load::Driver;
use self::load::{keep, loads};
use super::rates::Figures;
use super::requests::{Requests, fill, job_file};
use super::{Plan, Wishes, kept, member_bytes, named};
use crate::failure::Failure;
use crate::model::{Chapter, Comparison, Found, Group, Job, Standing};
use crate::rig::{Room, Stack, Target};
use crate::tool::{Tool, fio};

/// Time that fio takes to start and to end.
const FIO: Duration = Duration::from_millis(550);
/// Number of cases without RAID in memory.
const WITHOUT_RAID: u64 = 7;
const LEAST_BYTES: u64 = 16 << 20;

/// The options of the comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineOptions {
    /// Levels: `0`, `1`, `5`, `6`, `10`.
    pub levels: Vec<String>,
    /// Length of one measurement.
    pub run_ms: u64,
    /// Area of an array, a file or a server that is read and written.
    pub area_bytes: u64,
    /// Number of rounds.
    pub runs: u16,
}

impl EngineOptions {
    /// Returns what the members of so many arrays of each level take.
    fn members_bytes(&self, arrays: u64) -> u64 {
        let of =
            |level| members(level) as u64 * member_bytes(level, members(level), self.area_bytes);
        arrays * levels(self).map(of).sum::<u64>()
    }

    fn group(&self, place: EnginePlace) -> Group {
        let cases = place.cases(self);
        let within = cases.iter().filter(|case| case.is_within()).count();
        let share = within as f64 / cases.len() as f64;
        let run = Duration::from_millis(self.run_ms);
        // A load within the process warms up, and needs no program.
        let takes = run + run.mul_f64(share / 10.0) + FIO.mul_f64(1.0 - share);
        Group {
            title: format!("engine, {place}"),
            cases: cases.iter().map(EngineCase::to_string).collect(),
            jobs: loads().map(|load| Job::new(load.to_string(), takes)).collect(),
            rounds: self.runs,
            set_up: Duration::from_millis(700),
        }
    }

    /// Has something measure each load on what is set up.
    fn measured(
        &self,
        stack: Stack,
        mut drive: impl FnMut(Requests, Duration) -> Result<Figures, String> + 'static,
    ) -> Standing {
        let length = Duration::from_millis(self.run_ms);
        Standing::on(stack, move |_, job, note| keep(job, note, |load| drive(load, length)))
    }

    /// An array within the process, and what makes its requests.
    fn within(
        &self,
        stack: Stack,
        shape: ArrayShape,
        place: EnginePlace,
        room: &Room,
    ) -> Result<Standing, Failure> {
        let (inside, stack) = Inside::start(self, stack, shape, place, room)?;
        Ok(self.measured(stack, move |load, length| inside.drive(load, length)))
    }

    /// Sets up what is asked by a program, or as a virtual machine asks.
    fn served(&self, case: EngineCase, room: &Room) -> Result<Standing, Failure> {
        let area = (self.area_bytes, self.run_ms);
        let stack = case.serve(room, self.area_bytes)?;
        if let Target::VhostUser(_) = stack.top {
            let mut guest = Driver::on(&stack, self.area_bytes)?;
            return Ok(self.measured(stack, move |load, length| guest.drive(load, length)));
        }
        fill(room, &stack, self.area_bytes)?;
        let tool = Tool::find("fio", "fio")?;
        Ok(Standing::on(stack, move |stack, job, note| {
            let load = named(loads(), job)?;
            fio::run(&tool, &job_file(job, &stack.top, load, area), note)
        }))
    }
}

impl Plan for EngineOptions {
    const NAME: &'static str = "engine";

    fn of(wishes: &Wishes) -> Self {
        let runs = wishes.runs();
        let levels = if wishes.quick { &["0", "5"][..] } else { &LEVELS };
        let levels = levels.iter().map(|&level| level.to_owned()).collect();
        if wishes.quick {
            Self { levels, run_ms: 200, area_bytes: 64 << 20, runs }
        } else {
            // So long that percentiles mean something.
            Self { levels, run_ms: 500, area_bytes: 256 << 20, runs }
        }
    }
}

impl Comparison for EngineOptions {
    kept!();

    fn groups(&self) -> Vec<Group> {
        EnginePlace::ALL.map(|place| self.group(place)).to_vec()
    }

    fn needs_bytes(&self) -> u64 {
        self.members_bytes(1) + self.area_bytes
    }

    fn needs_memory_bytes(&self) -> u64 {
        let arrays = 1 + EXPORTS.len() as u64;
        let ArrayShape { members, level, .. } = ArrayShape::STRIPES;
        let stripes = members as u64 * member_bytes(level, members, self.area_bytes);
        self.members_bytes(arrays) + stripes + WITHOUT_RAID * self.area_bytes
    }

    fn smaller(&self) -> Option<Box<dyn Comparison>> {
        let area_bytes = self.area_bytes / 2;
        (area_bytes >= LEAST_BYTES).then(|| Box::new(Self { area_bytes, ..self.clone() }) as _)
    }

    fn set_up(&self, case: &str, room: &Room) -> Result<Standing, Failure> {
        let case = named(all(self), case)?;
        let stack = || Stack::new(room, &case.to_string());
        match case {
            EngineCase::Within(level, place) => {
                self.within(stack(), ArrayShape::usual(level), place, room)
            }
            EngineCase::Stripes => {
                self.within(stack(), ArrayShape::STRIPES, EnginePlace::Memory, room)
            }
            EngineCase::Over(..) => self.served(case, room),
            EngineCase::Beside(_) => {
                let mut stands = self.served(case, room).map_err(Failure::forgiven)?;
                stands.forgiven = true;
                Ok(stands)
            }
            EngineCase::Copies => {
                // All of it was written once.
                let mut area = vec![0xb7; usize::try_from(self.area_bytes).unwrap_or(0)];
                Ok(self.measured(stack(), move |load, length| Ok(copy(&mut area, load, length))))
            }
        }
    }

    fn chapter(&self, found: &Found) -> Chapter {
        chapter::chapter(self, found)
    }
}
