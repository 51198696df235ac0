//! `braid config`: checks the file of arrays and nodes, and passes its entries on to systemd at
//! boot and to udev when a device appears.

use std::path::Path;

use braid_array::format::Superblock;
use braid_host::member;

use super::found::{self, is_called};
use crate::args::{ConfigAction, ConfigArgs};
use crate::config::{ArrayEntry, Config, uuid_digits};
use crate::failure::Failure;
use crate::output;

mod check;
mod join;
mod units;

pub(super) fn run(run_dir: &Path, args: &ConfigArgs) -> Result<(), Failure> {
    match &args.action {
        ConfigAction::Check { file, named, json } => {
            check::run(run_dir, named.as_ref().unwrap_or(&file.config), *json)
        }
        ConfigAction::Units { dir, file } => units::run(&file.config, dir),
        ConfigAction::Probe { device, file } => probe(&file.config, device),
        ConfigAction::Join { device, file } => join::run(run_dir, &file.config, device),
    }
}

/// Says nothing of a device that belongs to no array of the file.
fn probe(file: &Path, device: &Path) -> Result<(), Failure> {
    let Some(config) = Config::if_there(file) else { return Ok(()) };
    let Some((entry, superblock)) = owner(&config, device) else { return Ok(()) };
    let uuid = uuid_digits(&superblock.uuid_text());
    let boot = if entry.boot { "BRAID_BOOT=1\n" } else { "" };
    output::answer(&format!("BRAID_ARRAY={}\nBRAID_UUID={uuid}\n{boot}", entry.name))
}

/// The array of the file that a device belongs to, and its superblock.
fn owner<'a>(config: &'a Config, device: &Path) -> Option<(&'a ArrayEntry, Superblock)> {
    let superblock = found::read(member::peek(device).ok()?).candidate.superblock.ok()?;
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
    let entry = config.arrays.iter().find(owns)?;
    Some((entry, superblock))
}
