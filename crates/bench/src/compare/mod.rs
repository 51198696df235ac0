//! The comparisons, each in a file or folder of its own.

pub mod chunk;
pub mod cluster;
pub mod engine;
mod figures;
pub mod levels;
pub mod members;
pub mod policies;
pub mod rivals;
pub mod states;
mod under_fio;

use serde::de::DeserializeOwned;
use serde_json::Value;

use self::chunk::Chunk;
use self::cluster::Cluster;
use self::engine::Engine;
use self::levels::Levels;
use self::members::Members;
use self::policies::Policies;
use self::rivals::Rival;
use self::states::States;
use crate::failure::Failure;
use crate::model::Comparison;

/// Their names, in the order of the report.
pub const NAMES: [&str; 7] =
    ["levels", "states", "members", "cluster", "chunk", "engine", "policies"];
/// Those of them that others have published first.
pub const PUBLISHED: [&str; 5] = ["levels", "states", "members", "cluster", "chunk"];

/// A comparison as a report's folder has it.
pub fn read(name: &str, options: Value) -> Result<Box<dyn Comparison>, Failure> {
    match name {
        "levels" => Ok(Box::new(Levels(from_folder(name, options)?))),
        "cluster" => Ok(Box::new(Cluster::new(from_folder(name, options)?))),
        "chunk" => Ok(Box::new(Chunk::new(from_folder(name, options)?))),
        "states" => Ok(Box::new(States(from_folder(name, options)?))),
        "members" => Ok(Box::new(Members(from_folder(name, options)?))),
        "engine" => Ok(Box::new(Engine(from_folder(name, options)?))),
        "policies" => Ok(Box::new(Policies(from_folder(name, options)?))),
        _ => Err(unknown(name)),
    }
}

/// What may be asked of all comparisons.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// Short and small.
    pub quick: bool,
    /// How often each; `None`: as often as usual.
    pub runs: Option<u16>,
    /// What else is measured, by those that can.
    pub against: Vec<Rival>,
}

/// A comparison at its usual sizes.
pub fn standard(name: &str, wishes: &Wishes) -> Result<Box<dyn Comparison>, Failure> {
    let Wishes { quick, runs, against } = wishes;
    let known = |rivals: &[Rival]| {
        against.iter().copied().filter(|rival| rivals.contains(rival)).collect::<Vec<Rival>>()
    };
    macro_rules! usual {
        ($of:ident) => {
            if *quick { $of::Options::quick() } else { $of::Options::full() }
        };
    }
    match name {
        "levels" => {
            let usual = usual!(levels);
            let runs = runs.unwrap_or(usual.runs);
            let against = known(&levels::RIVALS);
            Ok(Box::new(Levels(levels::Options { runs, against, ..usual })))
        }
        "states" => {
            let usual = usual!(states);
            Ok(Box::new(States(states::Options { runs: runs.unwrap_or(usual.runs), ..usual })))
        }
        "members" => {
            let usual = usual!(members);
            Ok(Box::new(Members(members::Options { runs: runs.unwrap_or(usual.runs), ..usual })))
        }
        "engine" => {
            let usual = usual!(engine);
            Ok(Box::new(Engine(engine::Options { runs: runs.unwrap_or(usual.runs), ..usual })))
        }
        "policies" => {
            let usual = usual!(policies);
            Ok(Box::new(Policies(policies::Options { runs: runs.unwrap_or(usual.runs), ..usual })))
        }
        "cluster" => {
            let usual = usual!(cluster);
            let runs = runs.unwrap_or(usual.runs);
            Ok(Box::new(Cluster::new(cluster::Options { runs, ..usual })))
        }
        "chunk" => {
            let usual = usual!(chunk);
            let rounds = runs.unwrap_or(usual.rounds);
            let against = known(&chunk::RIVALS);
            Ok(Box::new(Chunk::new(chunk::Options { rounds, against, ..usual })))
        }
        _ => Err(unknown(name)),
    }
}

fn from_folder<T: DeserializeOwned>(name: &str, options: Value) -> Result<T, Failure> {
    serde_json::from_value(options).map_err(|error| {
        let reason = format!("its options in the report's folder cannot be read: {error}");
        Failure::usage(name, reason, "name a new folder")
    })
}

fn unknown(name: &str) -> Failure {
    Failure::usage(name, "no comparison has this name", "try all")
}
