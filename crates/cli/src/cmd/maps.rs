//! Maps of ddrescue: unreadable ranges of images.

use std::fs;
use std::path::{Path, PathBuf};

use braid_host::member::{MemberFile, MemberName};

use super::found::{self, Found};
use crate::args::{MapArgs, MapOf};
use crate::failure::{Failure, system_error};
use crate::invocation::shell_word;

/// Marks as unreadable the ranges that were not rescued, of images that are members or contain
/// them.
pub(super) fn apply(
    operation: &str,
    maps: &MapArgs,
    found: Vec<Found>,
) -> Result<Vec<Found>, Failure> {
    let lose = |Found { mut device, candidate }: Found| {
        Ok(if apply_to(operation, maps, &mut device)? {
            found::read(device)
        } else {
            Found { device, candidate }
        })
    };
    found.into_iter().map(lose).collect()
}

/// Checks that every map belongs to a named image.
pub(super) fn check<'a>(
    operation: &str,
    maps: &MapArgs,
    named: impl Iterator<Item = &'a Path>,
) -> Result<(), Failure> {
    let files: Vec<_> = named.map(file_of).collect();
    match maps.all().iter().find(|map| !files.contains(&file_of(&map.image))) {
        None => Ok(()),
        Some(MapOf { image, .. }) => {
            let next = "write MEMBER=FILE for a MEMBER that is named, or the disk that it lies on";
            Err(Failure::usage(operation, image.display(), "is none of the members", next))
        }
    }
}

/// Tells whether the member has a map.
pub(super) fn apply_to(
    operation: &str,
    maps: &MapArgs,
    member: &mut MemberFile,
) -> Result<bool, Failure> {
    let file = file_of(&member.path);
    let Some(MapOf { map, .. }) = maps.all().iter().find(|map| file_of(&map.image) == file) else {
        return Ok(false);
    };
    let refused = |reason: String, next: &'static str| {
        Failure::refused(operation, map.display(), reason, next)
    };
    let text = fs::read(map).map_err(|error| refused(system_error(&error), "check the path"))?;
    let next = "name the map file that ddrescue kept of this image";
    member.lose(&text).map_err(|error| refused(error.to_string(), next))?;
    Ok(true)
}

/// The options for the maps of these members, each with a space in front.
pub(super) fn words(maps: &MapArgs, members: &[&Path]) -> String {
    let files: Vec<PathBuf> = members.iter().map(|member| file_of(member)).collect();
    let named = maps.all().iter().filter(|map| files.contains(&file_of(&map.image)));
    named.map(|map| format!(" --mapfile {}", shell_word(&map.word()))).collect()
}

fn file_of(member: &Path) -> PathBuf {
    let file = MemberName::of(member).file;
    fs::canonicalize(&file).unwrap_or(file)
}
