//! `policies`: what each consistency policy of RAID 5 costs beside `resync`, which records nothing.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::numbers::Numbers;
use super::rates::{self, Compared, TIME, cells, every_number, of_fio};
use super::requests::{Requests, fill, job_file};
use super::words::{names, number};
use super::{Plan, Wishes, kept, named};
use crate::failure::Failure;
use crate::model::{
    Axis, Chapter, Comparison, Found, Group, Job, Measured, Plot, Point, Rule, Series, Standing,
    Table,
};
use crate::rig::process::until;
use crate::rig::{Array, ArraySpec, Room, Stack};
use crate::tool::{Tool, fio};

const CHUNK_BYTES: u32 = 512 << 10;
const MEMBERS: usize = 4;
/// Data of a stripe of RAID 5.
const STRIPE_BYTES: u32 = CHUNK_BYTES * (MEMBERS as u32 - 1);

names! {
    /// Policy about the write hole. A journal that is written back answers small writes, and brings
    /// them in place later.
    enum Policy {
        Resync = "resync",
        Bitmap = "bitmap",
        Ppl = "ppl",
        Journal = "journal",
        WrittenBack = "journal written back",
    }

    /// Place of members, and of the journal.
    enum PolicyPlace {
        Memory = "memory",
        Files = "files",
    }

    /// Load on an array.
    enum PolicyLoad {
        Writes = "write 4K x32",
        OneByOne = "write 4K x1",
        Mixed = "70% read 4K x32",
        Stripes = "whole stripes x8",
    }
}

/// An array with a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PolicyCase {
    policy: Policy,
    place: PolicyPlace,
}

impl Policy {
    const fn has_journal(self) -> bool {
        matches!(self, Self::Journal | Self::WrittenBack)
    }

    /// Word for `braid create --consistency-policy`.
    const fn word(self) -> &'static str {
        if self.has_journal() { "journal" } else { self.name() }
    }
}

impl PolicyPlace {
    fn cases(self) -> [PolicyCase; 5] {
        Policy::ALL.map(|policy| PolicyCase { policy, place: self })
    }
}

impl PolicyCase {
    fn all() -> impl Iterator<Item = Self> {
        PolicyPlace::ALL.into_iter().flat_map(PolicyPlace::cases)
    }
}

impl fmt::Display for PolicyCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.policy, self.place)
    }
}

impl PolicyLoad {
    /// Memory has no cache that would have to be flushed.
    fn requests(self, place: PolicyPlace) -> Requests {
        let (read_percent, bytes, depth) = match self {
            Self::Stripes => (0, STRIPE_BYTES, 8),
            Self::Writes => (0, 4096, 32),
            Self::OneByOne => (0, 4096, 1),
            Self::Mixed => (70, 4096, 32),
        };
        let writes_a_flush = (place == PolicyPlace::Files).then_some(depth);
        Requests { read_percent, bytes, depth, writes_a_flush }
    }
}

/// Time that fio takes to start and to end, and a journal to bring its content in place.
const BESIDE: Duration = Duration::from_millis(700);
const LEAST_BYTES: u64 = 32 << 20;
/// Time until what a journal has is in place.
const PATIENCE: Duration = Duration::from_secs(120);

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

    fn of(wishes: &Wishes) -> Self {
        let runs = wishes.runs();
        if wishes.quick {
            Self { run_ms: 500, member_bytes: 64 << 20, runs }
        } else {
            Self { run_ms: 3000, member_bytes: 128 << 20, runs }
        }
    }
}

impl Comparison for PolicyOptions {
    kept!();

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

    fn smaller(&self) -> Option<Box<dyn Comparison>> {
        let member_bytes = self.member_bytes / 2;
        (member_bytes >= LEAST_BYTES).then(|| Box::new(Self { member_bytes, ..self.clone() }) as _)
    }

    fn set_up(&self, case: &str, room: &Room) -> Result<Standing, Failure> {
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
            chunk_bytes: Some(CHUNK_BYTES.into()),
            journal,
            create: vec!["--consistency-policy".to_owned(), policy.word().to_owned()],
            nbd: true,
            ..ArraySpec::default()
        };
        let stack = stack.array(spec)?;
        let bytes = stack.running_array().map_or(0, Array::size_bytes);
        let area_bytes = bytes - bytes % u64::from(STRIPE_BYTES);
        fill(&room, &stack, area_bytes)?;
        let tool = Tool::find("fio", "fio")?;
        let run_ms = self.run_ms;
        Ok(Standing::on(stack, move |stack, job, note| {
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
        chapter(self, found)
    }
}

/// Writes back the whole journal, so that the next case starts with an empty one.
fn bring_in_place(array: &Array) -> Result<(), Failure> {
    array.braid(&["sync", "--journal-mode", "write-through"])?;
    // An array that does not answer is found out by the runner.
    let is_empty = || array.status().map_or(true, |said| said["journal"]["dirty_bytes"] == 0);
    if until(PATIENCE, is_empty) {
        return Ok(());
    }
    let reason = format!("not in place after {} s", PATIENCE.as_secs());
    Err(Failure::refused("journal", reason, "see what braid status says"))
}

fn chapter(options: &PolicyOptions, found: &Found) -> Chapter {
    let numbers = of_fio(found);
    let mut cases: Vec<PolicyCase> = PolicyCase::all().collect();
    cases.retain(|case| numbers.has(case));
    let row = |case: &PolicyCase, load: PolicyLoad| Compared {
        case: case.to_string(),
        to: baseline(case.place),
        load: load.to_string(),
    };
    let rows: Vec<Compared> =
        cases.iter().flat_map(|case| PolicyLoad::ALL.map(|load| row(case, load))).collect();
    let places =
        || PolicyPlace::ALL.into_iter().filter(|place| cases.iter().any(|c| c.place == *place));
    let mut tables: Vec<Table> = places().map(|place| costs(&numbers, place)).collect();
    let words = ("Policies and loads", "policy and load", &["rate by that of resync"][..]);
    let note = "Medians of all rounds; ~ marks those whose rounds lie far apart. Latencies of \
                reads and writes are those of writes.";
    tables.extend(every_number(&numbers, words, &rows, note).unless_empty());
    Chapter {
        title: "What consistency policies cost".to_owned(),
        about: about(options),
        says: places().flat_map(|place| says(&numbers, place)).collect(),
        cells: rows.iter().flat_map(|row| cells(&numbers, row)).collect(),
        tables,
        plots: places().map(|place| plot(&numbers, place)).collect(),
        ..Chapter::default()
    }
}

fn about(options: &PolicyOptions) -> Vec<String> {
    let PolicyOptions { run_ms, member_bytes, .. } = options;
    vec![format!(
        "RAID 5 on four members of {} MiB, chunk 512K, over NBD by fio at random places of all \
         that the array holds, for {run_ms} ms each; the journal is as large as a member and lies \
         where members lie. Members of memory: no flushes. Files: a flush after as many writes as \
         are under way at once. A journal that writes back brings all that it has in place after \
         each run, before the next policy is measured: that counts in its CPU time, not in its \
         rate.",
        member_bytes >> 20
    )]
}

/// The cases that cost something.
fn others(place: PolicyPlace) -> impl Iterator<Item = PolicyCase> {
    place.cases().into_iter().filter(|case| case.policy != Policy::Resync)
}

/// The name of what the others are compared with.
fn baseline(place: PolicyPlace) -> String {
    PolicyCase { policy: Policy::Resync, place }.to_string()
}

fn cost(numbers: &Numbers, case: PolicyCase, load: PolicyLoad) -> Option<Measured> {
    numbers.ratio((case, load, TIME), baseline(case.place))
}

fn costs(numbers: &Numbers, place: PolicyPlace) -> Table {
    let title = format!("Time per request by that of resync, members of {place}");
    let cases = others(place).map(|case| (case.policy.to_string(), case.to_string()));
    let note = "Medians of the ratios of all rounds, in brackets the least and the most; above 1 \
                is slower than resync.";
    rates::ratios(numbers, (title, TIME, &baseline(place)), PolicyLoad::ALL, cases, note)
}

fn says(numbers: &Numbers, place: PolicyPlace) -> Vec<String> {
    let sentence = |case: PolicyCase| {
        let cost = |load: PolicyLoad| {
            let times = number(cost(numbers, case, load)?.spread.median);
            Some(format!("{times} times ({load})"))
        };
        let costs: Vec<String> = PolicyLoad::ALL.into_iter().filter_map(cost).collect();
        let costs = (!costs.is_empty()).then(|| costs.join(", "))?;
        Some(format!("A request takes by {case} that of resync: {costs}."))
    };
    others(place).filter_map(sentence).collect()
}

fn plot(numbers: &Numbers, place: PolicyPlace) -> Plot {
    let bars = |case: PolicyCase| {
        let point = |(at, load)| Some(Point::of(at as f64, cost(numbers, case, load)?.spread));
        let points = PolicyLoad::ALL.into_iter().enumerate().filter_map(point);
        Series::measured(case.policy.name(), points)
    };
    let loads = Axis::names("", PolicyLoad::ALL.map(PolicyLoad::name));
    let axes = [loads, Axis::linear("time per request by that of resync")];
    let title = format!("Policies, members of {place}");
    Plot::new(format!("policies-{place}"), title, axes, others(place).map(bars))
        .with_rules([Rule::new("resync", 1.0)])
}
