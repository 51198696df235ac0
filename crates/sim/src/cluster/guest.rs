//! A second array on the same nodes, with a client of its own that has the key of that array alone
//! and writes a little at a time. What happens to the first client must not touch it.

use braid_array::action::{Command, CommandId, Event};
use braid_array::array::Scratch;
use braid_array::{Action, AnyMachine, Buf, Op, Request, RequestId};
use braid_cluster::client::{Client, ClientConfig, ClientMember};
use braid_cluster::pipeline::Params;

use super::content::{self, Layout};
use super::process::Process;
use super::world::World;
use crate::disk::Disk;
use crate::rng::Rng;

/// The name of its volume on every node.
pub const VOLUME: &str = "guest";

/// Its largest write.
const MAX_SECTORS: u64 = 64;

/// The client of a second array, and what it has written. [`start`](Self::start) starts it,
/// [`go_on`](Self::go_on) is called after each step of the world, [`hears`](Self::hears) with what
/// the client says; [`finish`](Self::finish) has it stop. Once it has [stopped](Self::stopped),
/// [`wrong`](Self::wrong) compares the volumes with what it has written.
#[derive(Debug)]
pub struct Guest {
    /// Its client.
    pub process: usize,
    layout: Layout,
    rng: Rng,
    /// What it has written.
    content: Vec<u8>,
    /// The write under way: its first sector and its bytes.
    writes: Option<(u64, Vec<u8>)>,
    left: u64,
    stopping: bool,
    stopped: bool,
}

impl Guest {
    /// Starts a client on fresh volumes, which the nodes have.
    ///
    /// # Errors
    /// When the client refuses the array.
    pub fn start(
        world: &mut World,
        disks: &[Disk],
        params: Params,
        rng: Rng,
    ) -> Result<Self, String> {
        let (mut members, mut limit) = (Vec::new(), None);
        for (role, disk) in disks.iter().enumerate() {
            let superblock = content::superblock(disk)?;
            limit = Some(superblock.set_uuid);
            let (address, volume) = (format!("n{role}"), VOLUME.to_owned());
            members.push(Some(ClientMember { address, volume, superblock }));
        }
        let config = ClientConfig::new(params, members);
        let (offset, bytes) = (MAX_SECTORS * 512, Client::scratch_bytes(&config));
        let client = Client::new(config, Scratch { offset, bytes })?;
        let arena = (offset + bytes) as usize;
        let client = AnyMachine::Block(Box::new(client));
        let process = Process::new("guest".to_owned(), client, arena, None).limited_to(limit);
        let layout = Layout::new(params);
        Ok(Self {
            process: world.start(process),
            content: vec![0; layout.sectors() as usize * 512],
            layout,
            rng,
            writes: None,
            left: 40,
            stopping: false,
            stopped: false,
        })
    }

    /// Writes next when it can, and stops when it is through.
    pub fn go_on(&mut self, world: &mut World) {
        if self.writes.is_some() || self.stopping {
            return;
        }
        if self.left == 0 {
            self.stopping = true;
            let event = Event::Command { id: CommandId(1), command: Command::Stop };
            return world.handle(self.process, event);
        }
        let blocks = self.layout.sectors() / 8;
        let start = self.rng.below(blocks);
        let count = self.rng.between(1, (blocks - start).min(MAX_SECTORS / 8));
        let (sector, sectors) = (start * 8, count * 8);
        let buf = Buf { offset: 0, len: sectors as u32 * 512 };
        let bytes: Vec<u8> =
            (0..sectors * 64).flat_map(|_| self.rng.next().to_le_bytes()).collect();
        let process = &mut world.processes[self.process];
        process.bytes(buf).copy_from_slice(&bytes);
        let op = Op::Write { fua: self.rng.percent(20) };
        let request = Request { id: RequestId(0), op, sector, sectors, buf };
        let now = world.now();
        if world.processes[self.process].client().submit(now, request).is_ok() {
            self.left -= 1;
            self.writes = Some((sector, bytes));
            world.drain(self.process);
        }
    }

    /// Hears from its client.
    ///
    /// # Errors
    /// When a write fails: nothing of this array's is broken.
    pub fn hears(&mut self, action: &Action) -> Result<(), String> {
        match action {
            Action::Complete { result, .. } => {
                result.map_err(|error| format!("a write of the guest failed: {error}"))?;
                let (sector, bytes) = self.writes.take().ok_or("a guest's write ends twice")?;
                let at = sector as usize * 512;
                self.content[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            Action::Reply { .. } => self.stopped = true,
            _ => {}
        }
        Ok(())
    }

    /// Writes no more.
    pub const fn finish(&mut self) {
        self.left = 0;
    }

    /// It has stopped.
    #[must_use]
    pub const fn stopped(&self) -> bool {
        self.stopped
    }

    /// What is wrong with what lies on its volumes.
    #[must_use]
    pub fn wrong(&self, disks: &[&Disk], stripes: u64) -> Option<String> {
        if let Some(misfit) = content::misfit(&self.layout, disks) {
            return Some(format!("the guest: {misfit}"));
        }
        let data = (0..stripes).flat_map(|stripe| content::data(&self.layout, disks, stripe, &[]));
        let byte = data.zip(&self.content).position(|(found, right)| found != *right)?;
        Some(format!("the guest: byte {byte} is not what was written"))
    }
}
