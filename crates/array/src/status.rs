//! A copy of an array's state for people and scripts. The command prints it; nothing decides by it.

use crate::assemble::{Lineage, lineage};
use crate::events::SyncAction;
use crate::format::Superblock;
use crate::format::ppl;
use crate::format::superblock::feature;
use crate::format::suspended::journal_number;
use crate::{MemberId, Refusal, Role};

/// State of the array as a whole. `degraded` and the running sync are told apart from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ArrayState {
    /// No write since the superblocks say so.
    Clean,
    /// The superblocks say that writes may be in flight.
    Active,
    /// Serves reads only.
    ReadOnly,
    /// Too many members are gone.
    Failed,
}

/// State of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum MemberState {
    /// Holds its role's data completely.
    InSync,
    /// Being rebuilt.
    Rebuilding,
    /// Waits to be needed.
    Spare,
    /// Holds the journal.
    Journal,
    /// Failed; no I/O goes there.
    Faulty,
}

/// A member.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MemberStatus {
    /// Its id.
    pub member: MemberId,
    /// Path.
    pub device: String,
    /// Its role, when it has one.
    pub role: Option<Role>,
    /// md's device number (`Number` in `--detail`).
    pub number: u16,
    /// State.
    pub state: MemberState,
    /// Stands in for the role's holder, which is to be replaced.
    pub replacement: bool,
    /// The role's holder wants a replacement.
    pub want_replacement: bool,
    /// The array would fail without it.
    #[cfg_attr(feature = "serde", serde(default))]
    pub needed: bool,
    /// Event count last written to it.
    pub events: u64,
    /// I/O errors seen.
    pub errors: u64,
    /// Reads that failed and went well once what was lost was written again, as its superblock
    /// counts them.
    #[cfg_attr(feature = "serde", serde(default))]
    pub corrected_reads: u32,
    /// Sectors of it could not be read, and it stays because the array needs it.
    pub unreliable: bool,
    /// Time that its answers take of late, in milliseconds, where it is much slower than the
    /// others. For members on nodes.
    pub slow_ms: Option<u64>,
    /// The reason why it is not taken back, though its node is there. For members on nodes.
    pub refused: Option<Refusal>,
    /// The member is away, and is taken back when its node is there again. For members on nodes.
    #[cfg_attr(feature = "serde", serde(default))]
    pub awaited: bool,
    /// The rebuilt part, in device sectors.
    pub recovery_offset_sectors: Option<u64>,
    /// `devflags` of its superblock: [`devflag`](crate::format::superblock::devflag).
    pub devflags: u8,
    /// Sectors that its device has for data.
    #[cfg_attr(feature = "serde", serde(default))]
    pub data_sectors: u64,
    /// Sectors for data by its superblock: stripes without redundancy use all of them.
    #[cfg_attr(feature = "serde", serde(default))]
    pub told_sectors: u64,
    /// Sector of its device where the data begin.
    #[cfg_attr(feature = "serde", serde(default))]
    pub data_offset: u64,
    /// Sectors before its data that nothing uses.
    #[cfg_attr(feature = "serde", serde(default))]
    pub head_sectors: u64,
}

impl MemberStatus {
    /// Returns whether a storage node holds it.
    #[must_use]
    pub fn is_on_a_node(&self) -> bool {
        self.device.starts_with("node://")
    }

    /// Returns the status of a member without a role, of which nothing else is known.
    #[must_use]
    pub const fn new(member: MemberId, device: String, state: MemberState) -> Self {
        Self {
            member,
            device,
            role: None,
            number: member.0,
            state,
            replacement: false,
            want_replacement: false,
            needed: false,
            events: 0,
            errors: 0,
            corrected_reads: 0,
            unreliable: false,
            slow_ms: None,
            refused: None,
            awaited: false,
            recovery_offset_sectors: None,
            devflags: 0,
            data_sectors: 0,
            told_sectors: 0,
            data_offset: 0,
            head_sectors: 0,
        }
    }
}

/// Running background work.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SyncStatus {
    /// The action.
    pub action: SyncAction,
    /// A check or repair that was asked for and waits, for that or until the array has started.
    #[cfg_attr(feature = "serde", serde(default))]
    pub next: Option<SyncAction>,
    /// Asked to pause.
    pub paused: bool,
    /// Done so far, in sync sectors (device sectors; array sectors for a raid10 resync).
    pub done_sectors: u64,
    /// Sectors in all.
    pub total_sectors: u64,
    /// Sectors that the running recovery, or the latest one, has written to those it rebuilds, of
    /// all of them together.
    pub copied_sectors: u64,
    /// Current speed per member: 0 while paused.
    pub bytes_per_s: u64,
    /// Estimated remaining time; `None` when it does not move.
    pub finish_s: Option<u64>,
    /// Bytes per second and member that are kept up whatever else goes on.
    pub min_bytes_per_s: u64,
    /// Bytes per second and member that are never exceeded; `None`: no limit.
    pub max_bytes_per_s: Option<u64>,
}

impl SyncStatus {
    /// The minimum where nobody has set another one; a lower maximum goes before it.
    pub const DEFAULT_MIN_BYTES_PER_S: u64 = 10 << 20;

    /// Returns whether there is nothing to do, now or next.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.action == SyncAction::Idle && self.next.is_none()
    }

    /// Returns whether it stands still until somebody allows it to go on.
    #[must_use]
    pub fn held(&self) -> bool {
        self.paused || self.max_bytes_per_s == Some(0)
    }
}

/// A place that background work, or what went before it, could not read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Unreadable {
    /// First array sector.
    pub array_sector: u64,
    /// Sectors of the array.
    pub sectors: u64,
    /// Members that could not read what they held there.
    pub members: Vec<MemberId>,
}

/// Write-intent bitmap.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct BitmapStatus {
    /// Bytes of sync space one bit stands for.
    pub chunk_bytes: u64,
    /// Bits in all.
    pub bits: u64,
    /// Bits set.
    pub dirty_bits: u64,
    /// Number of set bits in each of [`PARTS`](Self::PARTS) parts of the bitmap, as long as one
    /// another; empty where none is set.
    #[cfg_attr(feature = "serde", serde(default))]
    pub marks: Vec<u32>,
}

impl BitmapStatus {
    /// Parts in which set bits are counted; as many as there are bits, where those are less.
    pub const PARTS: u64 = 256;
}

/// The journal of an array on disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct JournalStatus {
    /// The member that holds it.
    pub member: MemberId,
    /// Its size in sectors.
    pub size_sectors: u64,
    /// Sectors of it that still count; `None` where nothing is recorded: the array is read only.
    pub used_sectors: Option<u64>,
    /// Mode of the journal.
    pub mode: JournalMode,
    /// Bytes that are in it and in memory and not in place.
    pub dirty_bytes: u64,
}

/// The modes in which writes go by a journal; md's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum JournalMode {
    /// A write is acknowledged when it is in place; before that it is in the journal with parity.
    #[default]
    WriteThrough,
    /// A write of less than a stripe is acknowledged when its data are in the journal. Its data
    /// stay in memory, and go in place with parity later, together with what was written near them.
    WriteBack,
}

impl JournalMode {
    /// md's word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::WriteThrough => "write-through",
            Self::WriteBack => "write-back",
        }
    }
}

/// A device beside the members that a move in place saves to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SpillStatus {
    /// The id under which I/O is done on it.
    pub member: MemberId,
    /// Path.
    pub device: String,
    /// Its size.
    pub sectors: u64,
    /// Nothing is saved to it any more.
    pub is_over: bool,
}

/// The holders of an array over nodes, as the nodes have recorded them last.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ViewStatus {
    /// Epoch of the client that has the array.
    pub epoch: u32,
    /// Number of views that client has recorded.
    pub count: u32,
    /// Roles that hold everything.
    pub in_sync: Vec<Role>,
    /// The nodes that vote: by address, where that is known, or by number.
    pub voters: Vec<String>,
    /// Voters that have no member.
    pub witnesses: Vec<WitnessStatus>,
    /// While a role has no member: those that might have it and could not be taken in.
    pub absent: Vec<AbsentStatus>,
}

/// A place where a member may lie, and could not be taken in.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct AbsentStatus {
    /// Name that the member would have.
    pub device: String,
    /// The reason.
    pub why: Refusal,
}

/// A node that votes and has no member.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WitnessStatus {
    /// Address at which it listens, `HOST:PORT`.
    pub address: String,
    /// The node is connected.
    pub reachable: bool,
}

/// Requests wait for members on nodes that are away.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Waiting {
    /// Number of requests.
    pub requests: u64,
    /// Time until they fail, in milliseconds; `None`: they have waited long enough, and fail.
    pub fail_in_ms: Option<u64>,
    /// The reason why the array does not go on, once that is known.
    pub why: Option<Refusal>,
}

/// Verification of members' data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct IntegrityStatus {
    /// The members that have checksums.
    pub members: Vec<MemberIntegrity>,
}

/// Checksums of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct MemberIntegrity {
    /// The member.
    pub member: MemberId,
    /// Blocks of its data.
    pub blocks: u64,
    /// Those whose checksums are known. `None`: they have not all been counted since a loss of
    /// power.
    pub known_blocks: Option<u64>,
    /// What it answers is verified, as far as checksums are known.
    pub is_verified: bool,
    /// Blocks that did not fit since the start.
    pub mismatches: u64,
    /// Those that were written again since.
    pub healed: u64,
}

/// Everything.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Status {
    /// The array-wide fields as they would be written now.
    pub superblock: Superblock,
    /// Array size.
    pub array_sectors: u64,
    /// Part of each member that is used; 0 where members differ (linear, raid0).
    pub used_member_sectors: u64,
    /// State.
    pub state: ArrayState,
    /// The array was to take writes, and does not any more, for a member did not do its part.
    pub writes_over: bool,
    /// Roles without an in-sync member.
    pub degraded: u16,
    /// All attached members.
    pub members: Vec<MemberStatus>,
    /// Background work.
    pub sync: SyncStatus,
    /// Sectors that differed in the last check; `None` before the first.
    pub mismatch_sectors: Option<u64>,
    /// Array sectors that the last background work could not read.
    pub unreadable_sectors: u64,
    /// The first of the places where they are.
    pub unreadable: Vec<Unreadable>,
    /// Array sectors that could not be read, and that the last repair rewrote from parity which no
    /// resync had made fit: right or wrong.
    pub trusted_sectors: u64,
    /// The first of the places where they are.
    pub trusted: Vec<Unreadable>,
    /// Array sectors that the last check or repair had nothing to compare with, for want of
    /// members.
    pub uncompared_sectors: u64,
    /// Sync sectors that a resync could not bring in line: they stay marked as out of sync.
    pub unsynced_sectors: u64,
    /// The reason why background work that is due does not go on, for people.
    pub held_up: Option<String>,
    /// The bitmap.
    pub bitmap: Option<BitmapStatus>,
    /// The journal, of arrays on disks that have one.
    pub journal: Option<JournalStatus>,
    /// Mode in which a journal is used, also one that is off until the array has another shape.
    #[cfg_attr(feature = "serde", serde(default))]
    pub journal_mode: JournalMode,
    /// Verification by checksums, where any member has some.
    #[cfg_attr(feature = "serde", serde(default))]
    pub integrity: Option<IntegrityStatus>,
    /// Size of the journal of each member on a node; 0 without journals.
    pub journal_bytes: u64,
    /// The device that a move in place saves to.
    pub spill: Option<SpillStatus>,
    /// More members are away than it can do without.
    pub waiting: Option<Waiting>,
    /// The latest view, of arrays over nodes that are written.
    pub view: Option<ViewStatus>,
    /// The arrays that are members of this one.
    pub children: Vec<Self>,
}

impl Status {
    /// A member of it or of an array within it.
    #[must_use]
    pub fn member(&self, id: MemberId) -> Option<&MemberStatus> {
        let within = || self.children.iter().find_map(|child| child.member(id));
        self.members.iter().find(|member| member.member == id).or_else(within)
    }

    /// Returns whether the journal of the array is lost.
    #[must_use]
    pub fn lacks_journal(&self) -> bool {
        let is_journal = |member: &MemberStatus| member.state == MemberState::Journal;
        self.superblock.has(feature::JOURNAL) && !self.members.iter().any(is_journal)
    }

    /// Returns whether a log that is off for a time comes back by itself.
    #[must_use]
    pub fn log_comes_back(&self) -> bool {
        let is_journal = |member: &MemberStatus| member.state == MemberState::Journal;
        ppl::is_suspended(&self.superblock)
            || journal_number(&self.superblock).is_some() && self.members.iter().any(is_journal)
    }

    /// Returns whether the device with this superblock, which was a member, went on without all
    /// that are in sync.
    #[must_use]
    pub fn went_alone(&self, left: &Superblock) -> bool {
        let in_sync = self.members.iter().filter(|member| member.state == MemberState::InSync);
        let current = in_sync.filter_map(|member| Some((member.number.into(), member.role?)));
        lineage(left, current) == Lineage::WentAlone
    }

    /// The array that is this member of it.
    #[must_use]
    pub fn array_within(&self, member: MemberId) -> Option<&Self> {
        self.children.get(member.array_number()?)
    }

    /// The array within that is called so as a member: by its title, name or UUID.
    #[must_use]
    pub fn child_called(&self, word: &str) -> Option<(MemberId, &Self)> {
        let called = |child: &Self| {
            let superblock = &child.superblock;
            let names = [superblock.title(), superblock.name(), superblock.uuid_text()];
            names.iter().any(|name| name == word) || child.short_name() == word
        };
        let numbered = (0..).zip(&self.children).find(|(_, child)| called(child));
        numbered.map(|(number, child)| (MemberId::of_array(number), child))
    }

    /// Returns the name in the superblocks, without the host before it.
    #[must_use]
    pub fn short_name(&self) -> String {
        let name = self.superblock.name();
        name.split_once(':').map_or(name.as_str(), |(_, name)| name).to_owned()
    }

    /// Returns the status of a machine without an array.
    #[must_use]
    pub fn blank() -> Self {
        Self {
            superblock: Superblock::blank(),
            array_sectors: 0,
            used_member_sectors: 0,
            state: ArrayState::ReadOnly,
            writes_over: false,
            degraded: 0,
            members: Vec::new(),
            sync: SyncStatus::default(),
            mismatch_sectors: None,
            unreadable_sectors: 0,
            unreadable: Vec::new(),
            trusted_sectors: 0,
            trusted: Vec::new(),
            uncompared_sectors: 0,
            unsynced_sectors: 0,
            held_up: None,
            bitmap: None,
            journal: None,
            journal_mode: JournalMode::default(),
            integrity: None,
            journal_bytes: 0,
            spill: None,
            waiting: None,
            view: None,
            children: Vec::new(),
        }
    }
}
