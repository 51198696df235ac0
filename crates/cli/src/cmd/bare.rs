//! Arrays without superblocks, by a geometry that was typed.

use std::path::PathBuf;

use braid_array::SECTOR_BYTES;
use braid_array::assemble::{Config, Described, DescribedMember};
use braid_array::level::{Layout, Level};
use braid_array::name::check_name;
use braid_array::refusal::Advised;
use braid_host::member::MemberFile;

use super::found::{self, Use, is_member};
use super::maps;
use super::shape::{ArrayShape, Typed};
use crate::args::{GeometryArg, MapArgs, Size};
use crate::failure::Failure;
use crate::output;

/// Word for an absent member.
pub(super) const MISSING: &str = "missing";
/// Name of an array without a typed name.
const UNNAMED: &str = "rescued";

/// An array without superblocks, opened to be read.
pub(super) struct Bare {
    pub(super) name: String,
    pub(super) config: Config,
    pub(super) members: Vec<MemberFile>,
}

/// Opens the members of the array that was described, in the order that they were typed in.
pub(super) fn open(
    operation: &'static str,
    geometry: &GeometryArg,
    words: &[String],
    maps: &MapArgs,
    purpose: Use<'_>,
) -> Result<Bare, Failure> {
    let (name, words) = named(words);
    check_name(name).map_err(|error| Failure::usage(operation, name, error, error.next()))?;
    let shape = ArrayShape::parse(&Typed {
        operation,
        object: name,
        level: &geometry.level,
        layout: geometry.layout.as_deref(),
        raid_devices: u32::try_from(words.len()).unwrap_or(u32::MAX),
        chunk: geometry.chunk,
    })?;
    let offsets = offsets(operation, name, &geometry.offsets, words.len())?;
    let there: Vec<PathBuf> =
        words.iter().filter(|word| *word != MISSING).map(PathBuf::from).collect();
    maps::check(operation, maps, there.iter().map(PathBuf::as_path))?;
    let found = found::open_all(operation, &there, purpose)?;
    let mut found = maps::apply(operation, maps, found)?.into_iter();
    let mut members = Vec::new();
    let roles = words.iter().zip(offsets).map(|(word, data_offset)| {
        let one = if word == MISSING { None } else { found.next() }?;
        let device_sectors = one.device.sectors;
        members.push(one.device);
        Some(DescribedMember { device: one.candidate.device, device_sectors, data_offset })
    });
    let described = Described {
        name: name.to_owned(),
        level: shape.level,
        // There are two for members of different sizes, and nothing tells which.
        layout: match (shape.level, &geometry.layout) {
            (Level::Raid0, None) => Layout::None,
            _ => shape.layout,
        },
        chunk_sectors: shape.chunk_sectors,
        members: roles.collect(),
    };
    if described.leaves_some_out() {
        let line = "the members are not of one size; only what both layouts have in the same place \
                    is read: say layout=original or layout=alternate for all";
        output::warning(&format!("{operation} {name}: {line}"));
    }
    let mut config = described.config().map_err(|why| Failure::explained(operation, name, why))?;
    let blocks = members.iter().map(|member| member.block_bytes);
    config.block_bytes = blocks.fold(config.block_bytes, u32::max);
    Ok(Bare { name: name.to_owned(), config, members })
}

/// The name of the array, and its members.
pub(super) fn named(words: &[String]) -> (&str, &[String]) {
    match words.split_first() {
        Some((first, rest)) if !is_member(first) && first != MISSING => (first, rest),
        _ => (UNNAMED, words),
    }
}

/// Where the data begin on each member, in sectors.
fn offsets(
    operation: &str,
    name: &str,
    typed: &[Size],
    members: usize,
) -> Result<Vec<u64>, Failure> {
    let usage = |reason: String| {
        let next = "give one offset, or one for each member, in their order";
        Failure::usage(operation, name, reason, next)
    };
    if let Some(odd) = typed.iter().find(|offset| !offset.0.is_multiple_of(SECTOR_BYTES)) {
        return Err(usage(format!("an offset of {} bytes is no multiple of 512", odd.0)));
    }
    match typed {
        [] => Ok(vec![0; members]),
        [one] => Ok(vec![one.0 / SECTOR_BYTES; members]),
        all if all.len() == members => Ok(all.iter().map(|one| one.0 / SECTOR_BYTES).collect()),
        all => Err(usage(format!("there are {} offsets for {members} members", all.len()))),
    }
}
