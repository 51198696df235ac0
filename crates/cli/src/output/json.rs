//! The stable JSON of `status` and `detail`. Fields are only ever added.

use std::collections::BTreeMap;

use braid_array::Role;
use braid_array::SECTOR_BYTES;
use braid_array::events::SyncAction;
use braid_array::figures::{Figures, IoFigures};
use braid_array::format::Superblock;
use braid_array::format::superblock::devflag;
use braid_array::status::{
    AbsentStatus, ArrayState, BitmapStatus, MemberState, MemberStatus, Status, Waiting,
    WitnessStatus,
};
use braid_host::control::wire::{ControlStatus, LastScrub, Mismatch};
use braid_host::disk::Disk;
use serde::Serialize;

use super::sums::{IntegrityJson, integrity};
use super::{conditions, redundancy, shape, time, unread};
use crate::invocation::next_step;

/// Version of the schema.
pub(crate) const SCHEMA: u32 = 1;

/// One array.
#[derive(Debug, Serialize)]
pub(crate) struct ArrayJson {
    schema: u32,
    name: String,
    uuid: String,
    level: String,
    layout: Option<String>,
    chunk_bytes: u64,
    raid_devices: u32,
    size_bytes: u64,
    metadata: &'static str,
    state: Vec<&'static str>,
    /// Ids of the conditions that need a person.
    ids: Vec<String>,
    /// Members that may still fail, in words; `null` of an array that has failed.
    may_fail: Option<String>,
    /// Next step for an array that lacks members and does not recover them; `null` of one within.
    next: Option<String>,
    events: u64,
    consistency_policy: &'static str,
    /// Consistency policy.
    policy: &'static str,
    /// Epoch of the client that has the array. This and the next two fields are of arrays over
    /// nodes alone.
    epoch: Option<u32>,
    view: Option<ViewJson>,
    /// The nodes that vote: their addresses, where they are known.
    voters: Option<Vec<String>>,
    /// Protection of the connections to nodes.
    protection: Option<ProtectionJson>,
    /// Voters without a member.
    witnesses: Option<Vec<WitnessStatus>>,
    bitmap: Option<BitmapJson>,
    /// Journal of an array on disks, if any.
    journal: Option<JournalJson>,
    exports: Vec<String>,
    /// I/O of its users; `null` of an array within another.
    io: Option<IoFigures>,
    /// Number of clients of its exports, for kinds of exports that count them.
    clients: BTreeMap<String, u64>,
    /// The process that serves it; `null` of an array within another.
    pid: Option<u32>,
    members: Vec<MemberJson>,
    sync: SyncJson,
    mismatches: Option<u64>,
    /// The last check or repair that has ended; `null` of an array within another.
    last_check: Option<LastCheckJson>,
    /// The first of them.
    mismatch_ranges: Vec<MismatchJson>,
    /// Bytes that the last check could not compare, because members were missing.
    uncompared_bytes: u64,
    /// Bytes that the last background work could not read.
    unreadable_bytes: u64,
    /// The first of the places where that is.
    unreadable_ranges: Vec<UnreadableJson>,
    /// Unreadable bytes that the last repair rewrote from unverified parity.
    trusted_bytes: u64,
    /// The first of the places where that is.
    trusted_ranges: Vec<UnreadableJson>,
    /// Bytes of each member that a resync could not bring in line.
    unsynced_bytes: u64,
    /// Verification by checksums; `null` where no member has any.
    integrity: Option<IntegrityJson>,
    /// Fate of requests while more members are absent than the array can do without.
    waiting: Option<WaitingJson>,
    /// Reason that due background work does not continue.
    held_up: Option<String>,
    /// The arrays that are members of this one.
    children: Vec<Self>,
}

#[derive(Debug, Serialize)]
struct LastCheckJson {
    /// RFC 3339, of universal time.
    at: String,
    /// `check` or `repair`.
    kind: &'static str,
    mismatched_sectors: u64,
    /// Not stopped or interrupted.
    complete: bool,
}

#[derive(Debug, Serialize)]
struct WaitingJson {
    requests: u64,
    /// `null`: they have waited long enough, and fail.
    fail_in_s: Option<u64>,
    /// Reason that keeps the array from continuing, and the next step.
    reason: Option<String>,
    next: Option<String>,
}

#[derive(Debug, Serialize)]
struct ViewJson {
    epoch: u32,
    count: u32,
    /// Roles that hold everything.
    in_sync: Vec<Role>,
}

#[derive(Debug, Serialize)]
struct ProtectionJson {
    fabric: String,
    /// Both ends have proved the cluster key.
    authenticated: bool,
    /// The client's key opens this array alone.
    limited_to_array: bool,
    sealed_messages: bool,
    nodes: usize,
    /// Nodes with encrypted slices.
    nodes_with_encrypted_slices: usize,
}

#[derive(Debug, Serialize)]
struct MismatchJson {
    array_offset_bytes: u64,
    bytes: u64,
    /// The member that is wrong, where that can be told.
    device: Option<String>,
    /// The stripe it is in, of an array over nodes.
    stripe: Option<u64>,
    /// Wrong block of the device in that stripe, if it can be determined.
    row: Option<u16>,
    /// Inner array of the offset; `null` for this array.
    within: Option<String>,
}

#[derive(Debug, Serialize)]
struct UnreadableJson {
    array_offset_bytes: u64,
    bytes: u64,
    /// Devices that could not read the range.
    devices: Vec<String>,
    /// Inner array of the offset; `null` for this array.
    within: Option<String>,
}

#[derive(Debug, Serialize)]
struct BitmapJson {
    chunk_bytes: u64,
    bits: u64,
    dirty_bits: u64,
    /// In how many equal parts of it how many of them lie; empty where none is set.
    marks: Vec<u32>,
}

#[derive(Debug, Serialize)]
struct JournalJson {
    device: Option<String>,
    mode: &'static str,
    /// `null`: the array is read-only, and nothing is recorded.
    used_bytes: Option<u64>,
    size_bytes: u64,
    /// Answered, in the journal and in memory, and not in place yet.
    dirty_bytes: u64,
}

#[derive(Debug, Serialize)]
struct MemberJson {
    role: Option<Role>,
    number: Option<u16>,
    device: Option<String>,
    state: Vec<&'static str>,
    events: u64,
    errors: u64,
    /// Reads that succeeded after lost data were rewritten.
    corrected_reads: u32,
    /// I/O of the member, if it is on this machine.
    io: Option<IoFigures>,
    /// Reason for not taking the member (back), though its node is up.
    refused: Option<String>,
    /// Hardware of the member, if it is a disk or on a disk of this machine.
    disk: Option<Disk>,
}

#[derive(Debug, Serialize)]
struct SyncJson {
    action: &'static str,
    paused: bool,
    done_bytes: u64,
    total_bytes: u64,
    /// Bytes written to members by the running or latest recovery.
    copied_bytes: u64,
    bytes_per_s: u64,
    finish_s: Option<u64>,
    min_bytes_per_s: u64,
    /// `null`: no limit.
    max_bytes_per_s: Option<u64>,
    /// The shapes before and after a reshape, and how much of the array has the new one. `null`
    /// while there is none.
    from: Option<OutlineJson>,
    to: Option<OutlineJson>,
    position_bytes: Option<u64>,
}

#[derive(Debug, Serialize)]
struct OutlineJson {
    level: String,
    layout: Option<String>,
    raid_devices: u32,
    chunk_bytes: u64,
}

/// The JSON of one array.
pub(crate) fn array(array: &ControlStatus) -> ArrayJson {
    let mut json = ArrayJson {
        exports: array.exports.clone(),
        io: array.figures.as_ref().map(|figures| figures.requests.clone()),
        clients: array.figures.as_ref().map_or_else(BTreeMap::new, |it| it.clients.clone()),
        pid: Some(array.pid),
        protection: array.protection.as_ref().map(|how| ProtectionJson {
            fabric: how.fabric.clone(),
            authenticated: how.authenticated,
            limited_to_array: how.limited_to.is_some(),
            sealed_messages: how.messages_sealed,
            nodes: how.nodes,
            nodes_with_encrypted_slices: how.nodes_with_sealed_slices,
        }),
        ids: conditions::ids(&conditions::of_all(array)),
        next: redundancy::next(&array.name, &array.array),
        last_check: array.last_scrub.as_ref().map(last_check),
        mismatch_ranges: array.mismatches.iter().map(|it| mismatch(&array.array, it)).collect(),
        unreadable_ranges: places(&array.array, unread::places(&array.array)),
        trusted_ranges: places(&array.array, unread::trusted(&array.array)),
        ..described(array.name.clone(), &array.array, array.figures.as_ref())
    };
    name_disks(&mut json, &array.disks);
    json
}

/// Says which hardware members are.
fn name_disks(array: &mut ArrayJson, disks: &BTreeMap<String, Disk>) {
    for member in &mut array.members {
        member.disk = member.device.as_ref().and_then(|device| disks.get(device).cloned());
    }
    array.children.iter_mut().for_each(|child| name_disks(child, disks));
}

/// Describes an array, or an array within another.
fn described(name: String, status: &Status, figures: Option<&Figures>) -> ArrayJson {
    let sb = &status.superblock;
    let child = |child: &Status| described(child.short_name(), child, figures);
    ArrayJson {
        schema: SCHEMA,
        name,
        uuid: sb.uuid_text(),
        level: shape::level_name(sb.level),
        layout: shape::layout_option(sb),
        chunk_bytes: u64::from(sb.chunk_sectors) * SECTOR_BYTES,
        raid_devices: sb.raid_disks,
        size_bytes: status.array_sectors * SECTOR_BYTES,
        metadata: shape::version_name(sb.version),
        state: state_words(status),
        ids: conditions::ids(&conditions::of(status)),
        events: sb.events,
        consistency_policy: shape::consistency_policy(sb),
        policy: shape::consistency_policy(sb),
        epoch: status.view.as_ref().map(|view| view.epoch),
        view: status.view.as_ref().map(|view| ViewJson {
            epoch: view.epoch,
            count: view.count,
            in_sync: view.in_sync.clone(),
        }),
        voters: status.view.as_ref().map(|view| view.voters.clone()),
        protection: None,
        witnesses: status.view.as_ref().map(|view| view.witnesses.clone()),
        bitmap: status.bitmap.as_ref().map(bitmap),
        journal: status.journal.map(|journal| JournalJson {
            device: status.member(journal.member).map(|member| member.device.clone()),
            mode: journal.mode.name(),
            used_bytes: journal.used_sectors.map(|sectors| sectors * SECTOR_BYTES),
            size_bytes: journal.size_sectors * SECTOR_BYTES,
            dirty_bytes: journal.dirty_bytes,
        }),
        exports: Vec::new(),
        io: None,
        clients: BTreeMap::new(),
        pid: None,
        members: members(status, figures),
        sync: sync(status),
        may_fail: redundancy::may_fail(status),
        next: None,
        mismatches: status.mismatch_sectors,
        last_check: None,
        mismatch_ranges: Vec::new(),
        uncompared_bytes: status.uncompared_sectors * SECTOR_BYTES,
        unreadable_bytes: status.unreadable_sectors * SECTOR_BYTES,
        unreadable_ranges: Vec::new(),
        trusted_bytes: status.trusted_sectors * SECTOR_BYTES,
        trusted_ranges: Vec::new(),
        unsynced_bytes: status.unsynced_sectors * SECTOR_BYTES,
        integrity: integrity(status),
        waiting: status.waiting.as_ref().map(waiting),
        held_up: status.held_up.clone(),
        children: status.children.iter().map(child).collect(),
    }
}

fn sync(status: &Status) -> SyncJson {
    let sync = &status.sync;
    let (from, to) = shape::of_reshape(&status.superblock).unzip();
    let position = to.as_ref().map(|to| to.reshape.position);
    SyncJson {
        action: sync.action.name(),
        paused: sync.paused,
        done_bytes: sync.done_sectors * SECTOR_BYTES,
        total_bytes: sync.total_sectors * SECTOR_BYTES,
        copied_bytes: sync.copied_sectors * SECTOR_BYTES,
        bytes_per_s: sync.bytes_per_s,
        finish_s: sync.finish_s,
        min_bytes_per_s: sync.min_bytes_per_s,
        max_bytes_per_s: sync.max_bytes_per_s,
        from: from.as_ref().map(outlined),
        to: to.as_ref().map(outlined),
        position_bytes: position.map(|sectors| sectors.saturating_mul(SECTOR_BYTES)),
    }
}

fn outlined(sb: &Superblock) -> OutlineJson {
    OutlineJson {
        level: shape::level_name(sb.level),
        layout: shape::layout_option(sb),
        raid_devices: sb.raid_disks,
        chunk_bytes: u64::from(sb.chunk_sectors) * SECTOR_BYTES,
    }
}

fn waiting(waiting: &Waiting) -> WaitingJson {
    WaitingJson {
        requests: waiting.requests,
        fail_in_s: waiting.fail_in_ms.map(|ms| ms / 1000),
        reason: waiting.why.as_ref().map(|why| why.reason.clone()),
        next: waiting.why.as_ref().map(|why| next_step(&why.next)),
    }
}

fn last_check(last: &LastScrub) -> LastCheckJson {
    LastCheckJson {
        at: time::rfc_3339(last.ended_unix_s),
        kind: last.action.name(),
        mismatched_sectors: last.mismatch_sectors,
        complete: last.complete,
    }
}

fn bitmap(bitmap: &BitmapStatus) -> BitmapJson {
    BitmapJson {
        chunk_bytes: bitmap.chunk_bytes,
        bits: bitmap.bits,
        dirty_bits: bitmap.dirty_bits,
        marks: bitmap.marks.clone(),
    }
}

fn mismatch(status: &Status, found: &Mismatch) -> MismatchJson {
    MismatchJson {
        array_offset_bytes: found.array_sector * SECTOR_BYTES,
        bytes: u64::from(found.sectors) * SECTOR_BYTES,
        device: super::wrong_member(status, found).map(str::to_owned),
        stripe: found.block.map(|block| block.stripe),
        row: found.block.and_then(|block| block.row),
        within: super::array_within(status, found),
    }
}

fn places(status: &Status, places: Vec<unread::ArrayPlace<'_>>) -> Vec<UnreadableJson> {
    let json = |(place, within): unread::ArrayPlace<'_>| UnreadableJson {
        array_offset_bytes: place.array_sector * SECTOR_BYTES,
        bytes: place.sectors * SECTOR_BYTES,
        devices: unread::devices(status, place).into_iter().map(str::to_owned).collect(),
        within,
    };
    places.into_iter().map(json).collect()
}

/// The state of an array in words.
pub(crate) fn state_words(status: &Status) -> Vec<&'static str> {
    let mut words = vec![match status.state {
        ArrayState::Clean => "clean",
        ArrayState::Active => "active",
        ArrayState::ReadOnly => "read-only",
        ArrayState::Failed => "failed",
    }];
    if status.degraded > 0 && status.state != ArrayState::Failed {
        words.push("degraded");
    }
    match status.sync.action {
        SyncAction::Idle => {}
        SyncAction::Resync => words.push("resyncing"),
        SyncAction::Recovery => words.push("recovering"),
        SyncAction::Check => words.push("checking"),
        SyncAction::Repair => words.push("repairing"),
        SyncAction::Reshape => words.push("reshaping"),
    }
    words
}

/// Returns all members, an entry for each role without a member, and the members that are not
/// attached.
fn members(status: &Status, figures: Option<&Figures>) -> Vec<MemberJson> {
    let described = status.members.iter().map(|one| member(one, figures));
    let mut members: Vec<MemberJson> = described.collect();
    let roles = u16::try_from(status.superblock.raid_disks).unwrap_or(u16::MAX);
    for role in Role::all(roles) {
        let held = status.members.iter().any(|member| {
            member.role == Some(role) && member.state != MemberState::Faulty && !member.replacement
        });
        if !held {
            let state = vec!["missing"];
            members.push(MemberJson {
                role: Some(role),
                number: None,
                device: None,
                state,
                events: 0,
                errors: 0,
                corrected_reads: 0,
                io: None,
                refused: None,
                disk: None,
            });
        }
    }
    members.extend(status.view.iter().flat_map(|view| &view.absent).map(absent));
    members.sort_by_key(|member| (member.role.is_none(), member.role, member.number));
    members
}

fn absent(absent: &AbsentStatus) -> MemberJson {
    MemberJson {
        role: None,
        number: None,
        device: Some(absent.device.clone()),
        state: vec!["absent"],
        events: 0,
        errors: 0,
        corrected_reads: 0,
        io: None,
        refused: Some(absent.why.to_string()),
        disk: None,
    }
}

/// The state of a member in a word.
pub(crate) const fn member_word(state: MemberState) -> &'static str {
    match state {
        MemberState::InSync => "in-sync",
        MemberState::Rebuilding => "rebuilding",
        MemberState::Spare => "spare",
        MemberState::Journal => "journal",
        MemberState::Faulty => "faulty",
    }
}

fn member(member: &MemberStatus, figures: Option<&Figures>) -> MemberJson {
    let mut state = vec![member_word(member.state)];
    let flags = [
        (member.devflags & devflag::WRITE_MOSTLY != 0, "write-mostly"),
        (member.devflags & devflag::FAILFAST != 0, "failfast"),
        (member.replacement, "replacement"),
        (member.want_replacement, "want-replacement"),
        (member.unreliable, "unreliable"),
        (member.slow_ms.is_some(), "slow"),
    ];
    state.extend(flags.iter().filter(|(set, _)| *set).map(|(_, word)| word));
    MemberJson {
        // A faulty member holds its role no more.
        role: if member.state == MemberState::Faulty { None } else { member.role },
        number: Some(member.number),
        device: Some(member.device.clone()),
        state,
        events: member.events,
        errors: member.errors,
        corrected_reads: member.corrected_reads,
        io: figures.and_then(|figures| figures.of(member.member).cloned()),
        refused: member.refused.as_ref().map(ToString::to_string),
        disk: None,
    }
}
