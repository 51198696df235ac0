//! Verification of members by checksums.

use std::fmt::Write as _;

use braid_array::format::integrity::BLOCK_BYTES;
use braid_array::status::{IntegrityStatus, MemberIntegrity, MemberState, Status};
use serde::Serialize;

#[derive(Debug, Serialize)]
pub(crate) struct IntegrityJson {
    algorithm: &'static str,
    block_bytes: u64,
    /// Blocks of the members whose checksums are known; null until all have been counted.
    known_blocks: Option<u64>,
    unknown_blocks: Option<u64>,
    /// Blocks that did not fit since the array was assembled.
    mismatches: u64,
    /// Those that were written again.
    healed: u64,
    /// Members that have checksums.
    members: Vec<MemberSumsJson>,
}

#[derive(Debug, Serialize)]
struct MemberSumsJson {
    device: Option<String>,
    verified: bool,
    known_blocks: Option<u64>,
    unknown_blocks: Option<u64>,
    mismatches: u64,
    healed: u64,
}

/// What is known of an array's checksums; `None` where it has none.
pub(crate) fn integrity(status: &Status) -> Option<IntegrityJson> {
    let IntegrityStatus { members } = status.integrity.as_ref()?;
    let device = |id| status.member(id).map(|member| member.device.clone());
    let member = |member: &MemberIntegrity| MemberSumsJson {
        device: device(member.member),
        verified: member.is_verified,
        known_blocks: member.known_blocks,
        unknown_blocks: unknown_blocks(member),
        mismatches: member.mismatches,
        healed: member.healed,
    };
    let sum = |of: fn(&MemberIntegrity) -> u64| members.iter().map(of).sum();
    let sum_of_known = |of: fn(&MemberIntegrity) -> Option<u64>| members.iter().map(of).sum();
    Some(IntegrityJson {
        algorithm: "crc32c",
        block_bytes: BLOCK_BYTES,
        known_blocks: sum_of_known(|member| member.known_blocks),
        unknown_blocks: sum_of_known(unknown_blocks),
        mismatches: sum(|member| member.mismatches),
        healed: sum(|member| member.healed),
        members: members.iter().map(member).collect(),
    })
}

/// Returns whether all members that hold data are verified.
pub(crate) fn are_complete(status: &Status) -> bool {
    let Some(IntegrityStatus { members }) = &status.integrity else { return false };
    let is_verified =
        |id| members.iter().any(|sums: &MemberIntegrity| sums.member == id && sums.is_verified);
    let arrays = match &status.children[..] {
        [] => std::slice::from_ref(status),
        children => children,
    };
    let mut holders = arrays.iter().flat_map(|array| &array.members);
    holders.all(|member| member.state == MemberState::Faulty || is_verified(member.member))
}

/// The same for people.
pub(crate) fn text(name: &str, integrity: &IntegrityJson) -> String {
    let IntegrityJson { known_blocks, unknown_blocks, mismatches, healed, members, .. } = integrity;
    let known = known(*known_blocks, *unknown_blocks);
    let mut text = format!("{name}: {known}, {}\n", misfits(*mismatches, *healed));
    for member in members {
        let device = member.device.as_deref().unwrap_or("a member that was removed");
        let known = if member.verified {
            self::known(member.known_blocks, member.unknown_blocks)
        } else {
            "not verified until the next start".to_owned()
        };
        let _ =
            writeln!(text, "  {device}: {known}, {}", misfits(member.mismatches, member.healed));
    }
    text
}

fn known(known: Option<u64>, unknown: Option<u64>) -> String {
    let (Some(known), Some(unknown)) = (known, unknown) else {
        return "blocks whose checksums are known: to be counted by a check".to_owned();
    };
    let all = known + unknown;
    let percent = if all == 0 { 100 } else { (u128::from(known) * 100 / u128::from(all)) as u64 };
    format!("checksums of {known} of {all} blocks are known ({percent} %)")
}

fn misfits(mismatches: u64, healed: u64) -> String {
    match mismatches {
        0 => "all that were read fit".to_owned(),
        n => format!("{n} did not fit, {healed} of them written again"),
    }
}

fn unknown_blocks(member: &MemberIntegrity) -> Option<u64> {
    member.known_blocks.map(|known| member.blocks - known)
}
