//! Arrays whose members are arrays: their scenario, creation and start.
//!
//! An inner array never loses more than it survives. The power is cut only while no write hole can
//! open in one: the hole could hit metadata of the outer array, which nothing rebuilds.

use std::fmt;

use braid_array::action::{Command, CommandId};
use braid_array::assemble::{Candidate, Config};
use braid_array::format::Version;
use braid_array::level::Level;
use braid_array::stack::Stack;
use braid_array::{Action, Buf, Op, Request, RequestId, SECTOR_BYTES};

use crate::disk::Disk;
use crate::fault::{FaultProfile, Mutation};
use crate::local::assembly::{self, Attached, How, Memory, Refusal};
use crate::local::create;
use crate::local::part::{Part, Parts};
use crate::local::scenario::Scenario;
use crate::report::Failure;
use crate::rng::Rng;
use crate::trace::Trace;
use crate::world::World;
use crate::world::process::Process;

/// Members of each array at most, but no less than its level takes.
const MEMBERS: u16 = 4;
/// Sectors at most that each array within gives the one above it for data.
const DATA_SECTORS: u64 = 512;
/// Sectors of an array within that are left for metadata behind the data.
const SLACK_SECTORS: u64 = 64;

/// The arrays of a seed.
#[derive(Clone, Debug)]
pub struct Nest {
    /// The outer array; its troubles apply to all.
    pub outer: Scenario,
    /// The inner arrays.
    pub inner: Scenario,
}

impl Nest {
    /// Draws a seed's arrays.
    pub fn draw(rng: &mut Rng, mutation: Option<Mutation>) -> Self {
        use Level::{Linear, Raid0, Raid1, Raid5, Raid6, Raid10};
        let within = rng.pick(&[Raid1, Raid1, Raid5, Raid5, Raid6, Raid10]);
        let above = rng.pick(&[Linear, Raid0, Raid0, Raid0, Raid1, Raid5, Raid6, Raid10]);
        let mut inner = Scenario::draw_of(within, MEMBERS, rng, mutation);
        inner.excess = false;
        if inner.version == Version::V1_0 {
            // Then both superblocks could be at the same place of a device.
            inner.version = Version::V1_2;
            inner.data_offset = 32;
        }
        let unit = u64::from(inner.chunk_sectors.max(8));
        let rows = (384 / unit).next_multiple_of(6);
        inner.data_sectors = vec![unit * rows; usize::from(inner.members)];
        let inner_sectors = create::geometry(&inner).map_or(0, |g| g.array_sectors());

        let mut outer = Scenario::draw_of(above, MEMBERS, rng, mutation);
        outer.excess = false;
        outer.spares = 0;
        outer.block_bytes = inner.block_bytes;
        outer.profile.block_bytes = inner.block_bytes;
        outer.chunk_sectors = outer.chunk_sectors.min(16);
        outer.data_offset = outer.data_offset.min(32);
        let unit = u64::from(outer.chunk_sectors.max(8));
        let room = inner_sectors.saturating_sub(outer.data_offset + SLACK_SECTORS);
        let rows = (room.min(DATA_SECTORS) / unit / 6 * 6).max(6);
        outer.data_sectors = vec![unit * rows; usize::from(outer.members)];
        outer.slack_sectors = inner_sectors - outer.data_offset - unit * rows;
        Self { outer, inner }
    }
}

impl fmt::Display for Nest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.outer, self.inner)
    }
}

/// The devices of a new array of arrays.
pub fn create(nest: &Nest, rng: &mut Rng) -> Result<(Parts, Vec<Disk>), String> {
    let images = create::create(&nest.outer, rng);
    let mut parts = Vec::new();
    let mut disks = Vec::new();
    for image in &images {
        let mut own = create::create(&nest.inner, rng);
        let part = Part::new(nest.inner.clone(), assembly::set_uuid(&own, 0))?;
        let block_bytes = nest.inner.block_bytes;
        let how = How { without: &[], read_only: false, force: false, block_bytes };
        let (config, attached) =
            assembly::assemble(&own, part.set_uuid, how).map_err(|refusal| refusal.reason)?;
        let mut driven = Driven::new(config, &attached, std::mem::take(&mut own))?;
        driven.copy(image)?;
        disks.extend(driven.stop()?);
        parts.push(part);
    }
    let over = Part::new(nest.outer.clone(), assembly::set_uuid(&images, 0))?;
    Ok((Parts { devices: parts, over: Some(over) }, disks))
}

/// Starts the machine of all arrays. Returns it, and the device of each member.
pub fn start(
    disks: &mut Vec<Disk>,
    parts: &Parts,
    how: How<'_>,
    memory: &mut Memory<'_>,
) -> Result<(Stack, Attached), Refusal> {
    let mut attached = Attached::new();
    let mut configs = Vec::new();
    let mut candidates = Vec::new();
    for (number, part) in (0..).zip(&parts.devices) {
        let (config, devices) = assembly::assemble(disks, part.set_uuid, how)?;
        let leaf = |&(member, device)| (Stack::leaf(number, member), device);
        attached.extend(devices.iter().map(leaf));
        candidates.push(look(number, &config, &devices, disks).map_err(|e| Refusal::flat(&e))?);
        configs.push(config);
    }
    let (outer, order) = assembly::configure(candidates, how)?;
    if !order.iter().map(|(_, number)| *number).eq(0..configs.len()) {
        return Err(Refusal::flat(&format!("the arrays within are {order:?}")));
    }
    let outer = memory.start(outer)?;
    let inner: Result<_, _> = configs.into_iter().map(|config| memory.start(config)).collect();
    let stack = Stack::new(outer, inner?).map_err(|reason| Refusal::flat(&reason))?;
    Ok((stack, attached))
}

/// Reads the metadata that the outer array has written to an inner array.
fn look(
    number: u16,
    config: &Config,
    attached: &Attached,
    disks: &mut Vec<Disk>,
) -> Result<Candidate, String> {
    let config = Config { read_only: true, block_bytes: 512, ..config.clone() };
    let mut driven = Driven::new(config, attached, std::mem::take(disks))?;
    let sectors = driven.process().client().array_sectors();
    let found = Candidate::read(format!("d{number}"), sectors, |sector, len| {
        driven.request(Op::Read, sector, len)?;
        Ok(driven.process().bytes(Buf { offset: 0, len }).to_vec())
    });
    *disks = driven.process().take_disks();
    Ok(found)
}

/// An array within, without the one above it, asked one thing at a time.
struct Driven(World);

impl Driven {
    fn new(config: Config, attached: &Attached, disks: Vec<Disk>) -> Result<Self, String> {
        let profile = FaultProfile {
            disk_nanos: 1,
            compute_nanos: 0,
            discard_zeroes: true,
            block_bytes: config.block_bytes,
            align_bytes: 512,
            ..FaultProfile::CALM
        };
        let mut rng = Rng::new(0);
        let end = u64::from(Request::MAX_BYTES);
        let mut memory = Memory { end, rng: &mut rng, grows: false };
        let machine = memory.start(config).map_err(|refusal| refusal.reason)?;
        let process = Process::of_array(Box::new(machine), memory.end, disks, attached);
        let mut world = World::new(rng, profile, Trace::new(false));
        world.processes.push(process);
        Ok(Self(world))
    }

    fn process(&mut self) -> &mut Process {
        &mut self.0.processes[0]
    }

    fn request(&mut self, op: Op, sector: u64, len: u32) -> Result<(), String> {
        let buf = Buf { offset: 0, len };
        let sectors = u64::from(len) / SECTOR_BYTES;
        let request = Request { id: RequestId(0), op, sector, sectors, buf };
        let now = self.0.now();
        self.process().client().submit(now, request).map_err(|_| "full with nothing in flight")?;
        self.0.drain(0);
        self.answer(|action| match action {
            Action::Complete { result, .. } => Some(result.map_err(|error| error.to_string())),
            _ => None,
        })
    }

    /// Steps until this is answered.
    fn answer(&mut self, is: impl Fn(Action) -> Option<Result<(), String>>) -> Result<(), String> {
        loop {
            self.0.faultless().map_err(|Failure(fault)| fault)?;
            for (_, action) in self.0.outputs.drain(..) {
                if let Some(result) = is(action) {
                    return result;
                }
            }
            if !self.0.step() {
                return Err("an array within hangs".to_owned());
            }
        }
    }

    /// Writes the non-zero parts of an image.
    fn copy(&mut self, image: &Disk) -> Result<(), String> {
        const STEP: usize = 64 << 10;
        for (at, bytes) in (0..).step_by(STEP).zip(image.image().chunks(STEP)) {
            if bytes.iter().any(|byte| *byte != 0) {
                let len = bytes.len() as u32;
                self.process().bytes(Buf { offset: 0, len }).copy_from_slice(bytes);
                self.request(Op::Write { fua: false }, at / SECTOR_BYTES, len)?;
            }
        }
        Ok(())
    }

    fn stop(mut self) -> Result<Vec<Disk>, String> {
        self.0.command(0, CommandId(0), Command::Stop);
        self.answer(|action| match action {
            Action::Reply { result, .. } => Some(result.map_err(|refusal| refusal.to_string())),
            _ => None,
        })?;
        Ok(self.0.power_cut(0))
    }
}
