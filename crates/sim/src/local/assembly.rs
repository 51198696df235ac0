//! From the content of devices to a machine: decoding, deciding, starting.

use braid_array::array::Scratch;
use braid_array::assemble::{
    Assembly, Candidate, Config, Options, Start, StartLog, Verdict, decide,
};
use braid_array::verified::IntegrityMachine;
use braid_array::{Array, MemberId};

use crate::disk::Disk;
use crate::rng::Rng;
use crate::world::ground::START;

/// A machine cuts its scratch into strips of this size, and needs some pages.
const STRIP_BYTES: u64 = 64 << 10;
const PAGES_BYTES: u64 = 128 << 10;

/// The device of each member.
pub type Attached = Vec<(MemberId, usize)>;

/// Options of a start.
#[derive(Clone, Copy, Debug)]
pub struct How<'a> {
    /// Devices that are not there.
    pub without: &'a [usize],
    /// Serve reads only.
    pub read_only: bool,
    /// Start a degraded array that is not clean.
    pub force: bool,
    /// Smallest I/O of the devices.
    pub block_bytes: u32,
}

impl How<'_> {
    /// The same, as it is decided by.
    pub const fn options(self) -> Options {
        Options { force: self.force, run: true, read_only: self.read_only }
    }
}

/// Reason for refusing a start.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// For people.
    pub reason: String,
    /// Force would start it.
    pub could_force: bool,
}

impl Refusal {
    /// Creates a refusal that force does not overcome.
    pub fn flat(reason: &str) -> Self {
        Self { reason: reason.to_owned(), could_force: false }
    }
}

/// The arena as it is given out: behind the buffers of requests is the scratch of each array.
#[derive(Debug)]
pub struct Memory<'a> {
    /// Bytes given out.
    pub end: u64,
    /// Draws how much each gets.
    pub rng: &'a mut Rng,
    /// More than it takes as the array is: it is to be given another shape.
    pub grows: bool,
}

impl Memory<'_> {
    /// Scratch for one array, and the array in it: about as little as it takes, so that it has to
    /// wait for some now and then.
    pub fn start(&mut self, config: Config) -> Result<Array, Refusal> {
        let strips = u64::from(config.superblock.raid_disks) + 6 + self.rng.below(12);
        // As many as a move to some more members takes.
        let more = if self.grows { 2 * u64::from(config.superblock.raid_disks) + 6 } else { 0 };
        let bytes = (strips + more) * STRIP_BYTES + PAGES_BYTES;
        let bytes = match config.log {
            StartLog::None => bytes,
            _ => Array::least_scratch_bytes(&config) + bytes,
        };
        // A reshape that goes on may take more than what it began with, drawn anew.
        let least = Array::least_scratch_bytes(&config);
        let bytes = bytes.max(least).min(Array::scratch_bytes(&config));
        let scratch = Scratch { offset: self.end, bytes };
        self.end += bytes;
        Array::new(START, config, scratch).map_err(|reason| Refusal::flat(&reason))
    }

    /// Scratch for checksums.
    pub const fn take_for_sums(&mut self) -> Scratch {
        let bytes = IntegrityMachine::<Array>::SCRATCH_BYTES;
        let scratch = Scratch { offset: self.end, bytes };
        self.end += bytes;
        scratch
    }
}

/// Reads the metadata of a device.
pub fn candidate(device: usize, disk: &Disk) -> Candidate {
    let mut read = |sector, len| disk.bytes(sector, len);
    Candidate::read(format!("d{device}"), disk.sectors(), &mut read).with_log(&mut read)
}

/// The array that a device says it belongs to.
pub fn set_uuid(disks: &[Disk], device: usize) -> [u8; 16] {
    candidate(device, &disks[device])
        .superblock
        .map(|superblock| superblock.set_uuid)
        .unwrap_or_default()
}

/// Decides which devices are members of the array with this id. Returns the configuration, and the
/// device of each member.
pub fn assemble(
    disks: &[Disk],
    set_uuid: [u8; 16],
    how: How<'_>,
) -> Result<(Config, Attached), Refusal> {
    configure(candidates(disks, set_uuid, how), how)
}

/// The devices that are there and say that they belong to the array with this id.
pub fn candidates(disks: &[Disk], set_uuid: [u8; 16], how: How<'_>) -> Vec<Candidate> {
    let there = (0..disks.len()).filter(|device| !how.without.contains(device));
    let there = there.filter(|device| !disks[*device].gone());
    // Blank devices are not offered: an administrator names the members.
    let ours = |candidate: &Candidate| {
        candidate.superblock.as_ref().is_ok_and(|superblock| superblock.set_uuid == set_uuid)
    };
    there.map(|device| candidate(device, &disks[device])).filter(ours).collect()
}

/// Decides which of these candidates are in.
pub fn configure(candidates: Vec<Candidate>, how: How<'_>) -> Result<(Config, Attached), Refusal> {
    started(decide(candidates, how.options()), how)
}

/// The configuration of an array that can be started.
pub fn started(assembly: Assembly, how: How<'_>) -> Result<(Config, Attached), Refusal> {
    let verdicts = || {
        let lines: Vec<_> = assembly.verdicts.iter().map(|(d, v)| format!("{d} {v}")).collect();
        lines.join(", ")
    };
    if assembly.verdicts.iter().any(|(_, verdict)| matches!(verdict, Verdict::Forced { .. })) {
        return Err(Refusal::flat(&format!("stale members were needed: {}", verdicts())));
    }
    match assembly.start {
        Start::Refused { reason, next, could_force } => {
            let reason = format!("{}; ({})", braid_array::Refusal { reason, next }, verdicts());
            Err(Refusal { reason, could_force })
        }
        Start::Halfway(halfway) => Err(Refusal::flat(&halfway.description())),
        Start::Ready { mut config, .. } => {
            config.block_bytes = how.block_bytes;
            let device = |name: &str| name.strip_prefix('d').and_then(|number| number.parse().ok());
            let devices = config.members.iter().map(|member| device(&member.device));
            let attached = config.member_ids().zip(devices);
            let attached =
                attached.filter_map(|(member, device)| Some((member, device?))).collect();
            Ok((*config, attached))
        }
    }
}

/// Reads and judges the metadata of the devices: neither may panic, whatever the devices hold.
pub fn examine(disks: &[Disk]) {
    let candidates = disks.iter().enumerate();
    let candidates = candidates.map(|(device, disk)| candidate(device, disk)).collect();
    let _ = decide(candidates, Options::default());
}
