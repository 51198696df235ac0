//! Arrays with content that are stopped.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Lab;
use super::export::{fill, noise};

/// Makes the array `x` of these members, fills it and stops it. Returns the content.
pub(crate) fn fill_and_stop(lab: &Lab, shape: &str, members: &[PathBuf]) -> Vec<u8> {
    let count = members.len();
    lab.ok(&format!("create x {shape} --raid-devices {count} --assume-clean"), members);
    let socket = lab.path("nbd");
    lab.ok(&format!("assemble x --export nbd:unix:{}", socket.display()), members);
    let status: Value = serde_json::from_slice(&lab.ok("status x --json", &[])).expect("JSON");
    let content = noise(status["size_bytes"].as_u64().expect("a size") as usize);
    fill(&socket, "x", &content);
    lab.ok("stop x", &[]);
    content
}

/// Fills and stops an array of this number of files of 16 MiB.
pub(crate) fn filled(lab: &Lab, shape: &str, count: usize) -> (Vec<PathBuf>, Vec<u8>) {
    let members = lab.members("m", count, 16);
    let content = fill_and_stop(lab, shape, &members);
    (members, content)
}

/// Where the data begin on a member, in bytes, as its superblock says.
pub(crate) fn data_offset(lab: &Lab, member: &Path) -> u64 {
    let examined = lab.ok("examine --json", &[member.to_owned()]);
    let examined: Value = serde_json::from_slice(&examined).expect("JSON");
    examined[0]["data_offset_sectors"].as_u64().expect("an offset") * 512
}
