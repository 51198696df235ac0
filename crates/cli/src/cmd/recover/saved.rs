//! A file with the data that superblocks have overwritten, and its restore.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use braid_array::SECTOR_BYTES;
use braid_array::format::{Superblock, Version};
use braid_host::member::MemberFile;
use serde::{Deserialize, Serialize};

use super::{OPERATION, open_as};
use crate::cmd::found::Use;
use crate::failure::{Failure, system_error};
use crate::output;

/// More than that is no such file.
const MOST_BYTES: u64 = 64 << 20;

/// The file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Saved {
    pub(super) schema: u32,
    pub(super) name: String,
    pub(super) members: Vec<SavedMember>,
}

/// Overwritten data of a member.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedMember {
    pub(super) member: String,
    pub(super) size_bytes: u64,
    pub(super) offset_bytes: u64,
    pub(super) old: Hex,
    pub(super) new: Hex,
}

/// Bytes, as digits in the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct Hex(pub(super) Vec<u8>);

impl From<Vec<u8>> for Hex {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl From<Hex> for String {
    fn from(hex: Hex) -> Self {
        hex.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl TryFrom<String> for Hex {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let byte = |&[high, low]: &[u8; 2]| Some(digit(high)? << 4 | digit(low)?);
        let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
        let bytes = if rest.is_empty() { bytes } else { None };
        bytes.map(Self).ok_or("no hexadecimal digits")
    }
}

impl Saved {
    /// Writes a file that must not exist yet, and makes it durable.
    pub(super) fn store(&self, path: &Path) -> Result<(), Failure> {
        let failed = |error: std::io::Error| {
            let next = "move it away, or use another directory or NAME; no member was changed";
            Failure::refused(OPERATION, path.display(), system_error(&error), next)
        };
        let text = serde_json::to_string_pretty(self)
            .map_err(|error| failed(std::io::Error::other(error)))?;
        let store = || {
            let mut file = File::create_new(path)?;
            file.write_all(text.as_bytes())?;
            file.write_all(b"\n")?;
            file.sync_all()?;
            File::open(".")?.sync_all()
        };
        store().map_err(failed)
    }

    fn load(path: &Path) -> Result<Self, Failure> {
        let failed = |reason: String| {
            let next = "name a file that braid recover --write-superblocks has written";
            Failure::refused(OPERATION, path.display(), reason, next)
        };
        let size = fs::metadata(path).map_err(|error| failed(system_error(&error)))?.len();
        if size > MOST_BYTES {
            return Err(failed("is no such file, but a larger one".into()));
        }
        let text = fs::read(path).map_err(|error| failed(system_error(&error)))?;
        let saved: Self = serde_json::from_slice(&text)
            .map_err(|error| failed(format!("is no such file: {error}")))?;
        let right = |one: &SavedMember| {
            one.old.0.len() == one.new.0.len()
                && one.old.0.len() <= 4096
                && one.offset_bytes.is_multiple_of(SECTOR_BYTES)
                && one.offset_bytes.checked_add(4096).is_some_and(|end| end <= one.size_bytes)
        };
        if saved.schema != 1 || !saved.members.iter().all(right) {
            return Err(failed("is of another version, or damaged".into()));
        }
        Ok(saved)
    }
}

/// Restores the overwritten data, after checking all members.
pub(super) fn undo(path: &Path) -> Result<(), Failure> {
    let saved = Saved::load(path)?;
    let paths: Vec<PathBuf> = saved.members.iter().map(|one| (&one.member).into()).collect();
    let devices = open_as(&paths, Use::Serve)?;
    for (device, one) in devices.iter().zip(&saved.members) {
        check(device, one)?;
    }
    for (device, one) in devices.iter().zip(&saved.members) {
        write(device, one.offset_bytes, &one.old.0)?;
    }
    let names: Vec<String> = saved.members.into_iter().map(|one| one.member).collect();
    output::answer(&format!("put back on {}\n", names.join(", ")))
}

/// Checks that this is the member that was written to.
fn check(device: &MemberFile, one: &SavedMember) -> Result<(), Failure> {
    let refused = |reason: &str| {
        let next = "nothing was put back on any; see braid examine for what it is now";
        Err(Failure::refused(OPERATION, device.path.display(), reason, next))
    };
    if device.sectors * SECTOR_BYTES != one.size_bytes {
        return refused("has another size than the member that was written to");
    }
    let now = device.read_at(one.offset_bytes, one.new.0.len()).map_err(|error| {
        let reason = format!("cannot be read: {}", system_error(&error));
        Failure::refused(OPERATION, device.path.display(), reason, "check the device")
    })?;
    let written = identity(&one.new.0, one.offset_bytes);
    let is_it = written.is_some() && identity(&now, one.offset_bytes) == written;
    if is_it || now == one.old.0 {
        return Ok(());
    }
    refused("does not have the superblock that was written to it")
}

/// Returns the array UUID and device UUID of a superblock: updates do not change them.
fn identity(bytes: &[u8], offset_bytes: u64) -> Option<([u8; 16], [u8; 16])> {
    let sector = offset_bytes / SECTOR_BYTES;
    let version = match sector {
        0 => Version::V1_1,
        8 => Version::V1_2,
        _ => Version::V1_0,
    };
    let superblock = Superblock::decode(version, sector, bytes).ok()?;
    Some((superblock.set_uuid, superblock.device_uuid))
}

/// Writes to a member, durably.
pub(super) fn write(device: &MemberFile, offset_bytes: u64, bytes: &[u8]) -> Result<(), Failure> {
    let written = device.write_at(offset_bytes, bytes).and_then(|()| device.sync());
    written.map_err(|error| {
        let reason = format!("cannot be written to: {}", system_error(&error));
        let next = "put back what was written with braid recover --undo";
        Failure::refused(OPERATION, device.path.display(), reason, next)
    })
}
