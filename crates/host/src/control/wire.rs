//! Protocol of the control socket: one JSON object on a line each way. The answer to `read` is
//! followed by raw bytes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use braid_array::events::{StripeBlock, SyncAction};
use braid_array::grow::Grow;
use braid_array::status::{JournalMode, Status};
use braid_array::{MemberId, Refusal};

use crate::disk::Disk;
use crate::fabric::Protection;
use crate::limits::{DailyWindow, Limits};
use braid_array::figures::Figures;

/// Version of the protocol. A server answers only its own.
pub const VERSION: u32 = 3;

/// The longest line either side takes.
pub const MAX_LINE_BYTES: usize = 1 << 20;

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlRequest {
    /// [`VERSION`].
    pub version: u32,
    /// Verb to be carried out.
    #[serde(flatten)]
    pub verb: Verb,
}

/// Fields that questions and answers of all versions have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Versioned {
    /// Version of the sender.
    pub version: u32,
}

/// Commands to an array. Members are named by path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case")]
pub enum Verb {
    /// Answered by `Answer::Status`.
    Status,
    /// Make a member faulty.
    Fail {
        /// Path.
        member: String,
        /// Even if data not yet brought in line by a resync cannot be read without the member.
        #[serde(default)]
        force: bool,
    },
    /// Detach a faulty member or a spare.
    Remove {
        /// Path.
        member: String,
    },
    /// Attach a device: back into its old role where that is safe, else as a spare.
    Add {
        /// Path, absolute.
        member: String,
        /// Even if it holds something.
        force: bool,
        /// Inner array that it goes to; without, the one that it belonged to, or that needs it
        /// most.
        #[serde(default)]
        within: Option<String>,
    },
    /// Attach a device that is to hold the journal, in the place of one that was lost.
    AddJournal {
        /// Path, absolute.
        member: String,
        /// Even if it holds something.
        force: bool,
    },
    /// Only say whether a device can be attached as a new member.
    CheckAdd {
        /// Path, absolute.
        member: String,
        /// Sectors of data that it is to have room for.
        sectors: u64,
    },
    /// Make a file that the change of the shape which is asked for next saves to, or take a device.
    Spill {
        /// Path, absolute.
        path: String,
        /// Size of the file.
        sectors: u64,
    },
    /// Only say how much each node has room for. Answered by `Answer::Rooms`.
    Rooms,
    /// Give the array another shape.
    Grow {
        /// The change.
        grow: Grow,
        /// Partial parity logs may be off until it is over.
        #[serde(default)]
        suspend_policy: bool,
    },
    /// Attach a device back into its old role, or refuse.
    ReAdd {
        /// Path, absolute.
        member: String,
    },
    /// Copy a member onto a spare while it still serves, then make it faulty.
    Replace {
        /// Path.
        member: String,
        /// Path of the spare; without, any spare.
        with: Option<String>,
    },
    /// Compare all redundancy.
    Check,
    /// Compare all redundancy, and rewrite differences.
    Repair,
    /// End a check or repair.
    StopScrub,
    /// Limit background work; `None` leaves a limit as it is.
    SyncLimits {
        /// Bytes per second per member.
        min_bytes_s: Option<u64>,
        /// Bytes per second per member.
        max_bytes_s: Option<u64>,
        /// Other minima at times of the day.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        min_windows: Vec<DailyWindow>,
        /// Other maxima.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        max_windows: Vec<DailyWindow>,
    },
    /// Set the mode of the journal.
    JournalMode(JournalMode),
    /// Pause background work.
    Pause,
    /// Resume background work.
    Resume,
    /// Serve the array in one more way.
    AddExport {
        /// The export, as for `assemble --export`, with an absolute path.
        export: String,
    },
    /// Serve it so no more.
    RemoveExport {
        /// The export, as it was added, or as it is shown.
        export: String,
        /// Even while programs use it.
        #[serde(default)]
        force: bool,
    },
    /// Flush, mark clean, end. Answered when the members are free again.
    Stop {
        /// Even while programs use it.
        #[serde(default)]
        force: bool,
    },
    /// Replace the program that serves the array by another one, in the same process; clients stay.
    /// The new program answers.
    Upgrade {
        /// Its path, absolute.
        program: PathBuf,
        /// The newest version of a hand-over that it takes.
        takes: u32,
        /// Only say whether that can be done; answered by `Answer::Done`.
        #[serde(default)]
        check: bool,
        /// Hang up on clients that neither take their data nor send the rest of it.
        #[serde(default)]
        force: bool,
        /// Members to name besides those that the array has.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        more: Vec<String>,
    },
    /// Answered by `Answer::Data` and the bytes.
    Read {
        /// First byte.
        offset: u64,
        /// Bytes to read; fewer are answered where the array ends.
        length: u64,
    },
}

/// An answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Response {
    /// [`VERSION`] of the server.
    pub version: u32,
    /// Result of the verb.
    #[serde(flatten)]
    pub result: Reply,
}

/// Result of a verb.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// Yes.
    Ok(Answer),
    /// No.
    Error(Refusal),
}

/// Content of a good answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// Done.
    Done,
    /// Another program serves the array now, or the one before does again.
    Upgraded {
        /// Time for which requests waited.
        pause_us: u64,
        /// The version that serves.
        version: String,
        /// The other program could not serve it; its log says why.
        returned: bool,
    },
    /// State.
    Status(Box<ControlStatus>),
    /// By member on a node, the most sectors of data that its store has room for.
    Rooms(BTreeMap<String, u64>),
    /// Answer followed by bytes behind the line. When fewer come than announced, reading failed
    /// there.
    Data {
        /// Number of bytes.
        length: u64,
    },
}

/// A running array and the process that serves it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ControlStatus {
    /// Its name.
    pub name: String,
    /// The serving process.
    pub pid: u32,
    /// Time at which that began: seconds since 1970.
    pub started_unix_s: u64,
    /// Its exports, as given to `assemble --export`.
    pub exports: Vec<String>,
    /// The first differences that the last check or repair found.
    pub mismatches: Vec<Mismatch>,
    /// The last check or repair that has ended since the array was started.
    #[serde(default)]
    pub last_scrub: Option<LastScrub>,
    /// Protection of the connections to its nodes; `None` when its members are local.
    #[serde(default)]
    pub protection: Option<Protection>,
    /// The limits of background work that were set.
    #[serde(default)]
    pub limits: Limits,
    /// Hardware of members by path, for those that are disks or on disks of this machine.
    #[serde(default)]
    pub disks: BTreeMap<String, Disk>,
    /// Counters of requests to the array and its members; `None` from a version that does not
    /// count.
    #[serde(default)]
    pub figures: Option<Figures>,
    /// The state of the array.
    pub array: Status,
}

/// A check or repair that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastScrub {
    /// Check or repair.
    pub action: SyncAction,
    /// Time at which it ended: seconds since 1970.
    pub ended_unix_s: u64,
    /// Sectors that differed, md's way of counting, of all arrays within.
    pub mismatch_sectors: u64,
    /// The end was that of the array; otherwise it was stopped or interrupted.
    pub complete: bool,
}

/// A stripe or block whose redundancy does not fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mismatch {
    /// First array sector of the stripe or block.
    pub array_sector: u64,
    /// Sectors that differ, md's way of counting.
    pub sectors: u32,
    /// The member that is wrong, where that can be told.
    pub member: Option<MemberId>,
    /// Position of that in stripes, for an array over nodes.
    pub block: Option<StripeBlock>,
    /// The member whose array this is about, where it is an array within the one asked.
    pub within: Option<MemberId>,
}
