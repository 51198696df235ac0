//! `braid config`: what is wrong with the file of arrays and nodes, and what others are to know of
//! it: systemd at boot, udev when a device appears.

use std::path::Path;

use braid_host::member;

use super::found::{self, is_called};
use crate::args::{ConfigAction, ConfigArgs};
use crate::config::{ArrayEntry, Config, uuid_digits};
use crate::failure::Failure;
use crate::output;

mod check;
mod units;

pub(super) fn run(args: &ConfigArgs) -> Result<(), Failure> {
    match &args.action {
        ConfigAction::Check { file } => check::run(file),
        ConfigAction::Units { dir, file } => units::run(&file.config, dir),
        ConfigAction::Probe { device, file } => probe(&file.config, device),
    }
}

/// Says nothing of a device that belongs to no array of the file.
fn probe(file: &Path, device: &Path) -> Result<(), Failure> {
    let Some(config) = Config::if_there(file) else { return Ok(()) };
    let Ok(opened) = member::peek(device) else { return Ok(()) };
    let Ok(superblock) = found::read(opened).candidate.superblock else { return Ok(()) };
    let uuid = uuid_digits(&superblock.uuid_text());
    let real = std::fs::canonicalize(device).ok();
    let is_named = |entry: &ArrayEntry| {
        let named = |path: &String| real.is_some() && std::fs::canonicalize(path).ok() == real;
        entry.members.iter().any(|member| named(&member.value))
    };
    let owns = |entry: &&ArrayEntry| match &entry.uuid {
        Some(wanted) => *wanted == uuid,
        None => is_named(entry) || is_called(&superblock, &entry.name),
    };
    let Some(entry) = config.arrays.iter().find(owns) else { return Ok(()) };
    let boot = if entry.boot { "BRAID_BOOT=1\n" } else { "" };
    output::answer(&format!("BRAID_ARRAY={}\nBRAID_UUID={uuid}\n{boot}", entry.name))
}
