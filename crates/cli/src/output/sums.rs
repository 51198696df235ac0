//! Verification of members by checksums, for scripts.

use braid_array::format::integrity::BLOCK_BYTES;
use braid_array::status::Status;
use serde::Serialize;

#[derive(Debug, Serialize)]
pub(super) struct IntegrityJson {
    algorithm: &'static str,
    block_bytes: u64,
    /// Number of times that a block did not fit since the array was assembled.
    mismatches: u64,
    /// Members that have checksums.
    members: Vec<MemberSumsJson>,
}

#[derive(Debug, Serialize)]
struct MemberSumsJson {
    device: Option<String>,
    mismatches: u64,
}

/// What is known of an array's checksums; `None` where it has none.
pub(super) fn integrity(status: &Status) -> Option<IntegrityJson> {
    let found = &status.integrity.as_ref()?.mismatches;
    let device = |id| status.member(id).map(|member| member.device.clone());
    let member = |&(id, mismatches)| MemberSumsJson { device: device(id), mismatches };
    Some(IntegrityJson {
        algorithm: "crc32c",
        block_bytes: BLOCK_BYTES,
        mismatches: found.iter().map(|(_, mismatches)| mismatches).sum(),
        members: found.iter().map(member).collect(),
    })
}
