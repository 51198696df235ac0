//! The comparisons. Each is data, its [`Plan`]: cases, jobs, what was published and what is
//! compared with what. Setting up, running and reading numbers are the same for all.

pub mod chunk;
pub mod cluster;
pub mod engine;
pub mod levels;
pub mod members;
mod numbers;
pub mod policies;
mod rates;
mod requests;
pub mod states;
#[cfg(test)]
mod tests;
mod words;

use std::fmt::Display;

use braid_array::level::Level;
use serde::de::DeserializeOwned;
use serde_json::Value;

use self::words::names;
use crate::failure::Failure;
use crate::model::Comparison;

names! {
    /// Something to be measured beside Braid.
    pub enum Rival {
        /// The RAID profiles of btrfs, in the kernel.
        Btrfs = "btrfs",
        /// The kernel's own software RAID.
        Md = "md",
        /// The file or disk below, with nothing between.
        File = "file",
        /// nbdkit's file plugin: another server in user space, without RAID.
        Nbdkit = "nbdkit",
        /// A dispersed volume of GlusterFS, over nodes.
        Gluster = "gluster",
    }
}

/// Plan of a comparison. Its fields are the options that decide about the findings, as the report's
/// folder keeps them.
pub trait Plan: Comparison + DeserializeOwned + 'static {
    /// See [`Comparison::name`].
    const NAME: &'static str;

    /// Returns the plan as it is wished for, beside those of the rivals that it can be compared
    /// with.
    fn of(wishes: &Wishes) -> Self;

    /// Returns the plan at its usual sizes, or short and small.
    fn usual(quick: bool) -> Self {
        Self::of(&Wishes { quick, ..Wishes::default() })
    }
}

/// Writes the name and the options of a [`Comparison`] that is a [`Plan`].
macro_rules! kept {
    () => {
        fn name(&self) -> &'static str {
            <Self as crate::compare::Plan>::NAME
        }

        fn options(&self) -> serde_json::Value {
            serde_json::to_value(self).unwrap_or_default()
        }
    };
}

use kept;

/// Wishes that all comparisons understand.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// Short and small.
    pub quick: bool,
    /// Number of rounds; `None`: as often as usual.
    pub runs: Option<u16>,
    /// Rivals, measured where that makes sense.
    pub against: Vec<Rival>,
}

impl Wishes {
    /// Number of rounds.
    fn runs(&self) -> u16 {
        self.runs.unwrap_or(if self.quick { 1 } else { 3 })
    }

    /// The rivals, of those that can be compared with.
    fn rivals(&self, known: &[Rival]) -> Vec<Rival> {
        self.against.iter().copied().filter(|rival| known.contains(rival)).collect()
    }
}

/// A comparison by its name, and how it comes to be.
struct Entry {
    name: &'static str,
    read: fn(Value) -> Result<Box<dyn Comparison>, serde_json::Error>,
    plan: fn(&Wishes) -> Box<dyn Comparison>,
}

const fn entry<P: Plan>() -> Entry {
    Entry {
        name: P::NAME,
        read: |options| Ok(Box::new(serde_json::from_value::<P>(options)?)),
        plan: |wishes| Box::new(P::of(wishes)),
    }
}

/// Comparisons in the order of the report: those that others have published first, then ours.
const ALL: [Entry; 7] = [
    entry::<levels::LevelOptions>(),
    entry::<states::StateOptions>(),
    entry::<members::MembersOptions>(),
    entry::<cluster::Cluster>(),
    entry::<chunk::ChunkOptions>(),
    entry::<engine::EngineOptions>(),
    entry::<policies::PolicyOptions>(),
];
const PUBLISHED: usize = 5;

/// The names of all comparisons, in the order of the report.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|entry| entry.name)
}

/// A comparison as a report's folder has it.
pub fn read(name: &str, options: Value) -> Result<Box<dyn Comparison>, Failure> {
    let Some(entry) = ALL.iter().find(|entry| entry.name == name) else {
        return Err(Failure::usage(name, "no comparison has this name", "try all"));
    };
    (entry.read)(options).map_err(|error| {
        let reason = format!("its options in the report's folder cannot be read: {error}");
        Failure::usage(name, reason, "name a new folder")
    })
}

/// All comparisons that others have published first.
pub fn published(wishes: &Wishes) -> Vec<Box<dyn Comparison>> {
    ALL[..PUBLISHED].iter().map(|entry| (entry.plan)(wishes)).collect()
}

/// The one of these that shows this name. Names of cases and jobs stand in the journal of a report.
fn named<T: Display>(all: impl IntoIterator<Item = T>, wanted: &str) -> Result<T, Failure> {
    all.into_iter().find(|one| one.to_string() == wanted).ok_or_else(|| {
        Failure::usage(wanted, "no case or job has this name", "begin the report anew")
    })
}

/// Bytes that a member keeps for itself, and that a chunk leaves over.
const MEMBER_OWN_BYTES: u64 = 16 << 20;

/// Returns the length of `count` members of an array that holds so much.
fn member_bytes(level: Level, count: usize, bytes: u64) -> u64 {
    let data = match level {
        Level::Raid1 => 1,
        Level::Raid10 => count / 2,
        _ => count.saturating_sub(level.parity_disks() as usize),
    };
    bytes.div_ceil(data.max(1) as u64).next_multiple_of(1 << 20) + MEMBER_OWN_BYTES
}

/// A number without relation to its neighbours (the finalizer of `SplitMix64`).
const fn scramble(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
