//! Behaviour of the simulated world in a run: durations, legal differences of executors and
//! devices, and one deliberate fault.

use crate::rng::Rng;

/// Behaviour of devices, network and executors in a run. Drawn with the scenario; a test may change
/// it at any moment.
#[derive(Clone, Copy, Debug)]
pub struct FaultProfile {
    /// Longest ordinary time of an I/O.
    pub disk_nanos: u64,
    /// Longest ordinary time of anything on the network.
    pub net_nanos: u64,
    /// Longest ordinary time of a computation; 0: done at once.
    pub compute_nanos: u64,
    /// Number of these in a thousand that take a hundred times longer.
    pub slow_permille: u64,
    /// Discarded ranges read as zeroes; otherwise discards do nothing.
    pub discard_zeroes: bool,
    /// Smallest I/O that devices take.
    pub block_bytes: u32,
    /// Buffers of I/O begin at multiples of this.
    pub align_bytes: u64,
    /// Time after which unused memory of a machine is taken back, if it ever is.
    pub cooling_millis: Option<u64>,
    /// A deliberate fault of the world, which the checks have to notice.
    pub mutation: Option<Mutation>,
}

impl FaultProfile {
    /// No delays and no faults.
    pub const CALM: Self = Self {
        disk_nanos: 100_000,
        net_nanos: 20_000,
        compute_nanos: 1000,
        slow_permille: 0,
        discard_zeroes: false,
        block_bytes: 512,
        align_bytes: 4096,
        cooling_millis: None,
        mutation: None,
    };

    /// Draws a duration from the longest ordinary one.
    pub fn delay(&self, longest: u64, rng: &mut Rng) -> u64 {
        let nanos = 1 + rng.below(longest);
        if rng.below(1000) < self.slow_permille { nanos * 100 } else { nanos }
    }
}

/// Deliberate faults of the world. Tests show that each of them is detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Flushes are answered but not done.
    DropFlush,
    /// FUA is ignored.
    IgnoreFua,
    /// One computation in fifty is answered but not done.
    SkipCompute,
    /// One write in two hundred is answered but not done.
    LoseWrite,
    /// One write in two hundred lands a sector further on.
    Misdirect,
    /// One sum in five that is added to another leaves a term out.
    ShortSum,
    /// One put in a hundred is announced but not done.
    LosePut,
    /// Notes of nodes are answered but not kept.
    DropNote,
    /// Ranges that are to read as zeroes stay as they are.
    DropZeroes,
    /// Comparisons find no difference.
    SeeNoDifference,
    /// All digests are zeroes.
    ZeroDigests,
    /// Clients that take over resolve no leftovers.
    ForgetLeft,
    /// Puts land although their receiver has hung up.
    LandLate,
    /// Clients are not told of nodes that they cannot reach.
    ForgetAbsent,
    /// Records are not durable when they are reported durable.
    LateRecords,
    /// Data in place are not durable when records of them are trimmed.
    EarlyTrim,
    /// Contents of records are not stored in a replay.
    LoseReplay,
    /// The contents of every record are claimed to be present.
    BelieveRecords,
    /// Whole stripes are not recorded, though an older record may be replayed over them.
    UnrecordedOver,
    /// Flushes that a client asks for are answered at once.
    EarlyFlush,
    /// Witnesses keep no views but the first.
    ForgetViews,
    /// Clients are told that they may use refused memory.
    PretendGrant,
}

/// Mutations with their names on the command line.
type Named = &'static [(Mutation, &'static str)];

impl Mutation {
    /// Mutations of local arrays.
    pub const LOCAL: Named = &[
        (Self::DropFlush, "drop-flush"),
        (Self::IgnoreFua, "ignore-fua"),
        (Self::SkipCompute, "skip-compute"),
        (Self::LoseWrite, "lose-write"),
        (Self::Misdirect, "misdirect"),
    ];

    /// Mutations of arrays over nodes.
    pub const OVER_NODES: Named = &[
        (Self::DropFlush, "drop-flush"),
        (Self::IgnoreFua, "ignore-fua"),
        (Self::SkipCompute, "skip-compute"),
        (Self::ShortSum, "short-sum"),
        (Self::LosePut, "lose-put"),
        (Self::DropNote, "drop-note"),
        (Self::DropZeroes, "drop-zeroes"),
        (Self::SeeNoDifference, "see-no-difference"),
        (Self::ZeroDigests, "zero-digests"),
        (Self::ForgetLeft, "forget-left"),
        (Self::LandLate, "land-late"),
        (Self::ForgetAbsent, "forget-absent"),
        (Self::LateRecords, "late-records"),
        (Self::EarlyTrim, "early-trim"),
        (Self::LoseReplay, "lose-replay"),
        (Self::BelieveRecords, "believe-records"),
        (Self::UnrecordedOver, "unrecorded-over"),
        (Self::EarlyFlush, "early-flush"),
        (Self::ForgetViews, "forget-views"),
        (Self::PretendGrant, "pretend-grant"),
    ];

    /// The one of these with this name.
    pub fn named(all: Named, name: &str) -> Option<Self> {
        all.iter().find(|(_, known)| *known == name).map(|(mutation, _)| *mutation)
    }

    /// Returns whether the mutation shows only where power is lost and journals make up for that.
    pub const fn is_of_journals(self) -> bool {
        self.is_of_whole_stripes()
            || matches!(
                self,
                Self::BelieveRecords | Self::EarlyTrim | Self::LateRecords | Self::LoseReplay
            )
    }

    /// Returns whether the mutation shows only where whole stripes are not recorded.
    pub const fn is_of_whole_stripes(self) -> bool {
        matches!(self, Self::UnrecordedOver | Self::EarlyFlush)
    }
}
