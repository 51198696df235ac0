//! Actions that a machine asks of its executor, and the executor's answers.

use std::ops::Range;

use smallvec::SmallVec;

use crate::events::ArrayEvent;
use crate::fabric::{FabricEvent, FabricOp, NoteOp, Survey, Volume, VolumeOp};
use crate::format::MoveNote;
use crate::format::integrity::{BLOCK_BYTES, block_sum};
use crate::format::superblock::feature;
use crate::grow::Grow;
use crate::status::JournalMode;
use crate::{Buf, IoId, MemberId, Refusal, RequestError, RequestId};

/// One thing for the executor to do. Actions are independent of one another unless the machine
/// waits for an answer in between: it never emits a write before the reads it needs are done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// I/O on a member; answered by `Event::Done`.
    Io {
        /// Comes back with the answer.
        io: IoId,
        /// The member.
        member: MemberId,
        /// The operation.
        op: IoOp,
    },
    /// I/O on the store beside a member, which holds its checksums; answered by `Event::Done`.
    IoBeside {
        /// Comes back with the answer.
        io: IoId,
        /// The member.
        member: MemberId,
        /// The operation.
        op: IoOp,
    },
    /// Give up this I/O: its member has failed and may never answer. A late `Event::Done` is handed
    /// in as ever; until then nobody uses its buffer.
    Abandon {
        /// The I/O.
        io: IoId,
        /// Memory that the kernel may still read or write.
        buf: Option<Buf>,
    },
    /// A computation over buffers; answered by `Event::Done`. The executor may run it inline.
    Compute {
        /// Comes back with the answer.
        io: IoId,
        /// The computation.
        compute: Compute,
    },
    /// Copy metadata bytes into the arena now. No answer.
    Store {
        /// Destination; as long as `bytes`.
        buf: Buf,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Copy metadata bytes out of the arena; answered by `Event::Loaded`.
    Load {
        /// Comes back with the answer.
        io: IoId,
        /// Source.
        buf: Buf,
    },
    /// A request is finished; its buffer is the export's again.
    Complete {
        /// The request.
        id: RequestId,
        /// The result.
        result: Result<(), RequestError>,
    },
    /// A command is answered.
    Reply {
        /// The command.
        id: CommandId,
        /// The result.
        result: Result<(), Refusal>,
    },
    /// Something happened that people want to know.
    Notify(ArrayEvent),
    /// Prepare for the use of this part of the arena. The executor may do something for that.
    Use {
        /// First byte, and the one behind the last.
        range: Range<u64>,
    },
    /// Give back this part of the arena, of whose content nobody makes use: the executor may give
    /// the memory to the system. Content that is there before the part is written again means
    /// nothing.
    GiveBack {
        /// First byte, and the one behind the last.
        range: Range<u64>,
    },
    /// Something for the fabric to do. Machines of local arrays have no use for it.
    Fabric(FabricOp),
    /// Look where volumes are kept; answered by `Event::Survey`.
    Survey {
        /// Comes back with the answer.
        io: IoId,
        /// Volumes and notes with names behind this one.
        after: String,
        /// At most so many of both.
        most: usize,
    },
    /// Something to do with a volume; answered by `Event::Volume`.
    Volume {
        /// Comes back with the answer.
        io: IoId,
        /// The operation.
        op: VolumeOp,
    },
    /// Something to be noted, or looked up.
    Note {
        /// Comes back with the answer.
        io: IoId,
        /// The operation.
        op: NoteOp,
    },
}

/// I/O on one member. Sectors are absolute on the device (the data offset is already added).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoOp {
    /// Read `buf.len` bytes.
    Read {
        /// First sector.
        sector: u64,
        /// Destination.
        buf: Buf,
    },
    /// Write `buf.len` bytes.
    Write {
        /// First sector.
        sector: u64,
        /// Source.
        buf: Buf,
        /// Durable before it is answered.
        fua: bool,
        /// The write fills a member that is being rebuilt: where all of it is zero, and what lies
        /// there has no place on the device and so reads as zeroes, nothing has to be done.
        fill: bool,
    },
    /// Make a range read as zeroes.
    WriteZeroes {
        /// First sector.
        sector: u64,
        /// Number of sectors.
        sectors: u64,
        /// The space may be given back.
        unmap: bool,
        /// Durable before it is answered.
        fua: bool,
    },
    /// Contents no longer needed; may be ignored.
    Discard {
        /// First sector.
        sector: u64,
        /// Number of sectors.
        sectors: u64,
    },
    /// Everything answered so far is durable when this is answered.
    Flush,
}

impl IoOp {
    /// Returns the sector where it begins; a flush has no place.
    #[must_use]
    pub const fn sector(self) -> Option<u64> {
        match self {
            Self::Read { sector, .. }
            | Self::Write { sector, .. }
            | Self::WriteZeroes { sector, .. }
            | Self::Discard { sector, .. } => Some(sector),
            Self::Flush => None,
        }
    }
}

/// Sources of a sum. So many are had without an allocation.
pub type Inputs = SmallVec<[Buf; 8]>;

/// Its coefficients.
pub type Coefs = SmallVec<[u8; 16]>;

/// Destinations of sums.
pub type Outputs = SmallVec<[Buf; 2]>;

/// A computation. All buffers of one computation have the same length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compute {
    /// `outputs[o] (^)= sum over i of coefs[o * inputs.len() + i] * inputs[i]` in GF(2^8)/0x11d.
    /// Outputs never overlap inputs.
    Sum {
        /// Sources.
        inputs: Inputs,
        /// Row-major, one row of `inputs.len()` coefficients for each output.
        coefs: Coefs,
        /// Destinations, one or two.
        outputs: Outputs,
        /// Add to what the outputs hold instead of replacing it.
        accumulate: bool,
    },
    /// Compare a stripe's parity with its data. Answered by `Outcome::Checked`.
    Check {
        /// Data strips.
        data: Vec<Buf>,
        /// Coefficient of each data strip in Q; empty without Q.
        q_coefs: Vec<u8>,
        /// Stored P.
        p: Buf,
        /// Stored Q.
        q: Option<Buf>,
    },
    /// Compare two buffers. Answered by `Outcome::Checked`.
    Compare {
        /// One.
        a: Buf,
        /// The other.
        b: Buf,
    },
    /// The CRC-32C of bytes. Answered by `Outcome::Crc`.
    Crc {
        /// CRC of the bytes before these; 0 when there are none.
        before: u32,
        /// One after the other.
        inputs: Vec<Buf>,
    },
    /// The CRC-32C of each block of 4096 bytes, the last of which may be shorter: at most
    /// [`SUMMED_BLOCKS`]. Answered by `Outcome::BlockSums`.
    SumBlocks {
        /// The blocks.
        buf: Buf,
    },
}

/// The most blocks of which checksums are formed at once.
pub const SUMMED_BLOCKS: usize = 16;

/// The result of an I/O or computation that went well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done.
    Done,
    /// The answer to `Check` and `Compare`.
    Checked(Checked),
    /// The answer to `Crc`.
    Crc(u32),
    /// The answer to `SumBlocks`: zeroes behind the last block.
    BlockSums([u32; SUMMED_BLOCKS]),
}

impl Outcome {
    /// Forms the checksums of the blocks in these bytes.
    ///
    /// # Panics
    /// When there are more than [`SUMMED_BLOCKS`].
    #[must_use]
    pub fn block_sums(bytes: &[u8]) -> Self {
        let mut sums = [0; SUMMED_BLOCKS];
        for (number, block) in bytes.chunks(BLOCK_BYTES as usize).enumerate() {
            sums[number] = block_sum(block);
        }
        Self::BlockSums(sums)
    }
}

/// The findings of a comparison. Bit `i` of a mask stands for the 4096 bytes at `4096 * i`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Blocks in which P (or the other copy) differs.
    pub p_differs: u64,
    /// Blocks in which Q differs.
    pub q_differs: u64,
    /// With P and Q both differing: the one data strip (index into `data`) whose change alone
    /// explains every difference, when there is exactly one such.
    pub data_located: Option<u16>,
}

impl Checked {
    /// Bytes that a bit stands for.
    pub const BLOCK_BYTES: u32 = 4096;

    /// Blocks in which anything differs.
    #[must_use]
    pub const fn differs(self) -> u64 {
        self.p_differs | self.q_differs
    }
}

/// The reason why an I/O failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoError {
    /// State of the device, as far as that tells it.
    pub kind: IoErrorKind,
    /// The system's number for it, where it gave one.
    pub errno: Option<i32>,
}

/// State of a device, as far as a failed I/O tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoErrorKind {
    /// These sectors cannot be read or written; the rest of the device works.
    Medium,
    /// The device ends before these sectors: it has become smaller, and what lay behind its end is
    /// lost. Nothing is written there, which could make a file grow again, with holes.
    Shrunk,
    /// The device does not answer or is gone.
    Gone,
    /// No room for what was to be written, on a file system that others fill as well. The device
    /// still serves what it holds, and it may have room again.
    Full,
    /// The I/O was given up: that says nothing of the device, and its buffer is in use.
    Abandoned,
}

impl IoError {
    /// Sectors that cannot be read or written, without a number.
    pub const MEDIUM: Self = Self { kind: IoErrorKind::Medium, errno: None };
    /// A device that ends too early, without a number.
    pub const SHRUNK: Self = Self { kind: IoErrorKind::Shrunk, errno: None };
    /// An I/O that was given up.
    pub const ABANDONED: Self = Self { kind: IoErrorKind::Abandoned, errno: None };
    /// A device that is gone, without a number.
    pub const GONE: Self = Self { kind: IoErrorKind::Gone, errno: None };
}

/// News that an executor tells a machine.
#[derive(Clone, Debug)]
pub enum Event {
    /// An I/O or computation is answered.
    Done {
        /// The I/O.
        io: IoId,
        /// The result.
        result: Result<Outcome, IoError>,
    },
    /// The answer to `Action::Load`.
    Loaded {
        /// The I/O.
        io: IoId,
        /// The bytes of the buffer.
        bytes: Vec<u8>,
    },
    /// An administrator's command; answered by `Action::Reply`.
    Command {
        /// Comes back with the answer.
        id: CommandId,
        /// The command.
        command: Command,
    },
    /// The deadline has passed.
    Tick,
    /// News from the fabric.
    Fabric(FabricEvent),
    /// The answer to `Action::Survey`.
    Survey {
        /// The I/O.
        io: IoId,
        /// The volumes and notes.
        result: Result<Survey, Refusal>,
    },
    /// A volume operation is answered: the volume, which means nothing after `Close` and `Delete`.
    Volume {
        /// The I/O.
        io: IoId,
        /// The result.
        result: Result<Volume, Refusal>,
    },
}

/// Names a command in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandId(pub u64);

/// Requests of an administrator to a running array.
#[derive(Clone, Debug)]
pub enum Command {
    /// Make a member faulty.
    Fail(MemberId),
    /// The same, even if what a resync has not brought in line yet cannot be read without it, or
    /// the array fails; over nodes it does not fail for that.
    ForceFail(MemberId),
    /// Detach a faulty member or a spare.
    Remove(MemberId),
    /// Attach a device the executor has opened and validated (see `Array::attach`): as a spare,
    /// or back into its old role when its superblock and the bitmap allow that (`readd`).
    Add(Box<NewMember>),
    /// Attach a device that is to hold the journal, in the place of one that was lost.
    AddJournal(Box<NewMember>),
    /// Attach a device beside the members: the change of the shape that is asked for next saves to
    /// it what it overwrites.
    Spill(Box<NewMember>),
    /// Change the mode in which writes go by md's journal. The mode is kept nowhere: an array
    /// starts with write-through.
    JournalMode(JournalMode),
    /// Copy this member to a spare while it still serves, then make it faulty.
    Replace(MemberId),
    /// The same, to this spare.
    ReplaceWith {
        /// The member.
        old: MemberId,
        /// The spare.
        spare: MemberId,
    },
    /// Write superblocks, to the array that has this member, that are other ones than it has.
    RenewSuperblocks(MemberId),
    /// Start `check` or `repair`.
    Scrub {
        /// Rewrite what differs.
        repair: bool,
    },
    /// Interrupt check or repair (md: `idle`).
    StopScrub,
    /// Speed limits of background work, bytes per second per member.
    SpeedLimits {
        /// Kept up even under foreground load.
        min_bytes_s: Option<u64>,
        /// Never exceeded.
        max_bytes_s: Option<u64>,
    },
    /// Pause or resume background work.
    Pause(bool),
    /// Give the array another shape: see [`grow`](crate::grow).
    Grow(Grow),
    /// The same, with partial parity logs off until it is over: the write hole is open meanwhile.
    GrowSuspending(Grow),
    /// Note in the superblocks, over nodes, how far data have moved between two arrays; answered
    /// when that is durable, and all that was written before.
    NoteMove(MoveNote),
    /// Flush, finish what is in flight, checkpoint, mark clean. Requests after it are refused.
    Stop,
}

/// A device to add.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMember {
    /// The id under which the executor will do I/O on it. Must be free: see `Array::free_member`.
    pub member: MemberId,
    /// Path, for messages and status.
    pub device: String,
    /// Usable size of the whole device.
    pub device_sectors: u64,
    /// The superblock found on it, when it is one of this array's.
    pub superblock: Option<Box<crate::format::Superblock>>,
    /// The bad blocks found with that superblock; `None` when its list was not read.
    pub bad_blocks: Option<crate::format::BadBlocks>,
    /// Take it back into its old role only if the bitmap makes that safe; refuse otherwise.
    pub readd: bool,
    /// Random, for the device UUID of a fresh superblock.
    pub device_uuid: [u8; 16],
}

impl NewMember {
    /// Tells whether its superblock speaks of a list of bad blocks that was not read.
    pub(crate) fn has_unread_bad_blocks(&self) -> bool {
        let speaks = |own: &crate::format::Superblock| own.has(feature::BAD_BLOCKS);
        self.bad_blocks.is_none() && self.superblock.as_deref().is_some_and(speaks)
    }
}
