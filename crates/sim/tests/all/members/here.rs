//! The lane *here*: devices of this process, under the executor.

use braid_array::action::{Event, NewMember};
use braid_array::format::Version;
use braid_array::format::superblock::Superblock;
use braid_array::level::Level;
use braid_array::{self as md, Action, BlockMachine, Buf, Instant, MemberId, Role};
use braid_sim::assembly::{self, How};
use braid_sim::create;
use braid_sim::disk::Disk;
use braid_sim::executor::{Executor, Output};
use braid_sim::fault::FaultProfile;
use braid_sim::redundancy::Stopped;
use braid_sim::rng::Rng;
use braid_sim::scenario::{Birth, Log, Scenario};
use braid_sim::subject::{Memory, START};
use braid_sim::trace::Trace;

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

/// A [`Lane`] of an array over pretend disks in one process, under the simulator's executor. While
/// no array runs the disks are in `disks`, otherwise the executor has them.
pub(crate) struct Here {
    scenario: Scenario,
    rng: Rng,
    trace: Trace,
    /// While no array runs.
    disks: Vec<Disk>,
    running: Option<Executor<md::Array>>,
}

impl Here {
    fn running(&mut self) -> &mut Executor<md::Array> {
        self.running.as_mut().expect("an array that runs")
    }

    /// By role: the device of the member in sync.
    fn holders(&mut self) -> Vec<Option<usize>> {
        let executor = self.running();
        let mut holders = Vec::new();
        let status = executor.machine.status();
        for member in &status.members {
            if member.state == md::status::MemberState::InSync
                && let Some(role) = member.role
            {
                let role = role.index();
                holders.resize(holders.len().max(role + 1), None);
                holders[role] = executor.device(member.member);
            }
        }
        holders
    }
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
            version: Version::V1_2,
            bitmap_chunk_bytes: setup.bitmap.then_some(64 << 10),
            log: Log::None,
            bad_block_log: true,
            birth: if setup.dirty { Birth::Resync } else { Birth::Clean },
            block_bytes: BLOCK_BYTES,
            profile: FaultProfile {
                compute_nanos: 100_000,
                block_bytes: BLOCK_BYTES,
                ..FaultProfile::CALM
            },
            lives: 1,
            requests: 0,
            depth: SLOTS as usize,
            troubles: 0,
            excess: false,
        };
        let mut rng = Rng::new(1);
        let mut disks = create::create(&scenario, &mut rng);
        if setup.dirty {
            spoil(&scenario, &mut disks);
        }
        Self { scenario, rng, trace: Trace::new(false), disks, running: None }
    }

    fn assemble(&mut self, read_only: bool) {
        if self.running.is_some() {
            self.crash();
        }
        let set_uuid = assembly::set_uuid(&self.disks, 0);
        let how = How { without: &[], read_only, force: false, block_bytes: BLOCK_BYTES };
        let (config, attached) = assembly::assemble(&self.disks, set_uuid, how)
            .unwrap_or_else(|refusal| panic!("no array: {}", refusal.reason));
        let mut memory = Memory { end: SLOTS * SLOT_BYTES, rng: &mut self.rng };
        let machine = memory.start(config).expect("an array");
        let end = memory.end as usize;
        let disks = std::mem::take(&mut self.disks);
        let rng = self.rng.fork();
        let profile = self.scenario.profile;
        let mut executor = Executor::new(machine, disks, attached, end, START, profile, rng);
        executor.drain(&mut self.trace);
        self.running = Some(executor);
    }

    fn crash(&mut self) {
        self.disks = self.running.take().expect("an array that runs").disks;
    }

    fn machine(&mut self) -> &mut dyn BlockMachine {
        &mut self.running().machine
    }

    fn drain(&mut self) {
        let executor = self.running.as_mut().expect("an array that runs");
        executor.drain(&mut self.trace);
    }

    fn handle(&mut self, event: Event) {
        let executor = self.running.as_mut().expect("an array that runs");
        if let Event::Command { command: md::action::Command::Add(new), .. } = &event {
            let device = new.device.strip_prefix('d').and_then(|number| number.parse().ok());
            executor.attach(new.member, device);
        }
        executor.handle(event, &mut self.trace);
    }

    fn step(&mut self) -> bool {
        let executor = self.running.as_mut().expect("an array that runs");
        executor.step(&mut self.trace)
    }

    fn now(&self) -> Instant {
        self.running.as_ref().expect("an array that runs").now()
    }

    fn outputs(&mut self) -> Vec<Action> {
        let outputs = std::mem::take(&mut self.running().outputs);
        let action = |output| match output {
            Output::Action(action) => action,
            Output::Fault(fault) => panic!("{fault}"),
        };
        outputs.into_iter().map(action).collect()
    }

    fn bytes(&mut self, buf: Buf) -> &mut [u8] {
        self.running().bytes(buf)
    }

    fn disk(&mut self, device: usize) -> &mut Disk {
        match &mut self.running {
            Some(executor) => &mut executor.disks[device],
            None => &mut self.disks[device],
        }
    }

    fn set_broken(&mut self, device: usize, broken: bool) {
        self.disk(device).set_gone(broken);
    }

    fn misfit(&mut self) -> Option<String> {
        let holders = self.holders();
        let geometry = create::geometry(&self.scenario).expect("a geometry");
        let disks = &self.running().disks.clone();
        Stopped::new(&self.scenario, &geometry, disks, &holders).difference()
    }

    fn offer(&mut self, member: MemberId, device: Option<usize>) -> NewMember {
        let fresh = create::fresh_disk(&self.scenario);
        let executor = self.running.as_mut().expect("an array that runs");
        let device = device.unwrap_or_else(|| {
            executor.disks.push(fresh);
            executor.disks.len() - 1
        });
        let found = assembly::candidate(&executor.disks, device);
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
