//! The lane *here*: devices of this process, under the executor.

use braid_array::action::NewMember;
use braid_array::format::Version;
use braid_array::format::superblock::Superblock;
use braid_array::level::Level;
use braid_array::{MemberId, Role};
use braid_sim::disk::Disk;
use braid_sim::fault::FaultProfile;
use braid_sim::local::assembly::{self, How, Memory};
use braid_sim::local::create;
use braid_sim::local::part::holder;
use braid_sim::local::redundancy::Stopped;
use braid_sim::local::scenario::{Birth, Log, Scenario};
use braid_sim::local::shape::Shape;
use braid_sim::rng::Rng;
use braid_sim::trace::Trace;
use braid_sim::world::World;
use braid_sim::world::process::{Device, Process};

use crate::members::lane::{
    CHUNK_SECTORS, Code, DATA_SECTOR, DATA_SECTORS, Lane, SLOT_BYTES, SLOTS, Setup,
};

const BLOCK_BYTES: u32 = 4096;

/// The codes of this lane.
pub(crate) fn codes() -> Vec<Code> {
    vec![
        Code::md(Level::Raid1, 0, 2, 1, false),
        Code::md(Level::Raid1, 0, 3, 2, true),
        Code::md(Level::Raid5, 2, 4, 1, false),
        Code::md(Level::Raid6, 2, 5, 2, true),
        Code::md(Level::Raid10, 0x102, 4, 1, false),
    ]
}

/// Parities and all copies but the first of no data: anything.
fn spoil(scenario: &Scenario, disks: &mut [Disk]) {
    let geometry = create::geometry(scenario).expect("a geometry");
    let mut put = |role: Role, sector: u64, sectors: u64| {
        let garbage = vec![0x5a; sectors as usize * 512];
        disks[role.index()].put(DATA_SECTOR + sector, &garbage);
    };
    if scenario.has_parity() {
        for stripe in 0..DATA_SECTORS / CHUNK_SECTORS {
            let (p, q) = geometry.parity_roles(stripe);
            [Some(p), q]
                .into_iter()
                .flatten()
                .for_each(|role| put(role, stripe * CHUNK_SECTORS, CHUNK_SECTORS));
        }
    } else {
        for sector in 0..geometry.array_sectors() {
            for copy in 1..geometry.copies() {
                let strip = geometry.copy(sector, copy);
                put(strip.role, strip.sector, 1);
            }
        }
    }
}

/// A [`Lane`] of an array over pretend disks.
pub(crate) struct Here {
    scenario: Scenario,
    rng: Rng,
    /// Begins anew with each machine, as its only process.
    world: World,
    /// Before the array runs.
    disks: Vec<Disk>,
}

impl Lane for Here {
    fn create(code: Code, setup: Setup) -> Self {
        let (_, layout) = code.family.encode();
        let scenario = Scenario {
            level: code.family.level(),
            layout,
            members: code.members,
            spares: setup.spares,
            chunk_sectors: if code.family.has_chunk() { CHUNK_SECTORS as u32 } else { 0 },
            data_sectors: vec![DATA_SECTORS; code.members.into()],
            data_offset: DATA_SECTOR,
            slack_sectors: 64,
            unused_sectors: 0,
            version: Version::V1_2,
            bitmap_chunk_bytes: setup.bitmap.then_some(64 << 10),
            log: Log::None,
            bad_block_log: true,
            birth: if setup.dirty { Birth::Resync } else { Birth::Clean },
            block_bytes: BLOCK_BYTES,
            profile: FaultProfile {
                compute_nanos: 100_000,
                cooling_millis: Some(5000),
                block_bytes: BLOCK_BYTES,
                ..FaultProfile::CALM
            },
            lives: 1,
            requests: 0,
            depth: SLOTS as usize,
            troubles: 0,
            excess: false,
            grows: false,
            spills: false,
            sums: false,
            stores: false,
        };
        let mut rng = Rng::new(1);
        let mut disks = create::create(&scenario, &mut rng);
        if setup.dirty {
            spoil(&scenario, &mut disks);
        }
        let world = World::new(Rng::new(0), scenario.profile, Trace::new(false));
        Self { scenario, rng, world, disks }
    }

    fn assemble(&mut self, read_only: bool) {
        if let Some(before) = self.world.processes.first_mut() {
            self.disks = before.take_disks();
        }
        let set_uuid = assembly::set_uuid(&self.disks, 0);
        let how = How { without: &[], read_only, force: false, block_bytes: BLOCK_BYTES };
        let (config, attached) = assembly::assemble(&self.disks, set_uuid, how)
            .unwrap_or_else(|refusal| panic!("no array: {}", refusal.reason));
        let mut memory = Memory { end: SLOTS * SLOT_BYTES, rng: &mut self.rng, grows: false };
        let machine = Box::new(memory.start(config).expect("an array"));
        let disks = std::mem::take(&mut self.disks);
        let process = Process::of_array(machine, memory.end, disks, &attached);
        let profile = self.scenario.profile;
        self.world = World::new(self.rng.fork(), profile, Trace::new(false));
        self.world.start(process);
    }

    fn world(&mut self) -> (&mut World, usize) {
        (&mut self.world, 0)
    }

    fn disk(&mut self, device: usize) -> &mut Disk {
        &mut self.world.processes[0].devices[device].disk
    }

    fn set_broken(&mut self, device: usize, broken: bool) {
        self.disk(device).set_gone(broken);
    }

    fn misfit(&mut self) -> Option<String> {
        let process = &mut self.world.processes[0];
        let status = process.client().status();
        let device = |role| process.device_of(holder(&status, role)?);
        let holders: Vec<_> = Role::all(self.scenario.members).map(device).collect();
        let disks: Vec<Disk> = process.devices.iter().map(|device| device.disk.clone()).collect();
        let shape = Shape::of(&self.scenario).expect("a shape");
        Stopped::new(&self.scenario, &shape, &disks, &holders).difference()
    }

    fn offer(&mut self, member: MemberId, device: Option<usize>) -> NewMember {
        let process = &mut self.world.processes[0];
        let device = device.unwrap_or_else(|| {
            process.devices.push(Device::new(create::fresh_disk(&self.scenario)));
            process.devices.len() - 1
        });
        process.attach(member, Some(device));
        let found = assembly::candidate(device, &process.devices[device].disk);
        NewMember {
            member,
            device: found.device,
            device_sectors: found.device_sectors,
            superblock: found.superblock.ok().map(Box::<Superblock>::new),
            bad_blocks: found.bad_blocks.ok(),
            readd: false,
            device_uuid: create::uuid(&mut self.rng),
        }
    }
}
