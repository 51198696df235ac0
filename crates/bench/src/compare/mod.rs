//! The comparisons, each in a file or folder of its own.

pub mod chunk;
pub mod cluster;
pub mod levels;
pub mod members;
pub mod rivals;
pub mod states;

use serde::de::DeserializeOwned;
use serde_json::Value;

use self::chunk::Chunk;
use self::cluster::Cluster;
use self::levels::Levels;
use self::members::Members;
use self::states::States;
use crate::failure::Failure;
use crate::model::Comparison;

/// Their names, in the order of the report.
pub const NAMES: [&str; 5] = ["levels", "states", "members", "cluster", "chunk"];

/// A comparison as a report's folder has it.
pub fn read(name: &str, options: Value) -> Result<Box<dyn Comparison>, Failure> {
    match name {
        "levels" => Ok(Box::new(Levels(from_folder(name, options)?))),
        "cluster" => Ok(Box::new(Cluster::new(from_folder(name, options)?))),
        "chunk" => Ok(Box::new(Chunk::new(from_folder(name, options)?))),
        "states" => Ok(Box::new(States(from_folder(name, options)?))),
        "members" => Ok(Box::new(Members(from_folder(name, options)?))),
        _ => Err(unknown(name)),
    }
}

/// The short form of a comparison, or the one at the published sizes.
pub fn standard(name: &str, quick: bool) -> Result<Box<dyn Comparison>, Failure> {
    match (name, quick) {
        ("levels", true) => Ok(Box::new(Levels(levels::Options::quick()))),
        ("levels", false) => Ok(Box::new(Levels(levels::Options::full()))),
        ("cluster", true) => Ok(Box::new(Cluster::new(cluster::Options::quick()))),
        ("cluster", false) => Ok(Box::new(Cluster::new(cluster::Options::full()))),
        ("chunk", true) => Ok(Box::new(Chunk::new(chunk::Options::quick()))),
        ("chunk", false) => Ok(Box::new(Chunk::new(chunk::Options::full()))),
        ("states", true) => Ok(Box::new(States(states::Options::quick()))),
        ("states", false) => Ok(Box::new(States(states::Options::full()))),
        ("members", true) => Ok(Box::new(Members(members::Options::quick()))),
        ("members", false) => Ok(Box::new(Members(members::Options::full()))),
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
