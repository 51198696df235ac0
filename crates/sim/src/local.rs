//! A local array of a seed, [`Local`]: a process with devices in a world, the requests in flight
//! and the allowed contents.
//!
//! A seed draws a [`scenario`], or one of arrays of arrays ([`nested`]). In [`run`] a new array
//! ([`create`]) is assembled ([`assembly`]), lives and meets [`troubles`], loses power, and is
//! assembled again. In the end all troubles are mended and every sector is compared
//! ([`final_check`]).

pub mod assembly;
mod commands;
pub mod create;
mod exempt;
pub mod final_check;
pub mod growth;
mod heard;
pub mod nested;
pub mod part;
pub mod past;
pub mod progress;
pub mod redundancy;
mod rot;
pub mod run;
pub mod scenario;
pub mod shape;
pub mod spill;
mod stores;
pub mod suspects;
pub mod troubles;

use std::collections::{BTreeMap, BTreeSet};

use braid_array::action::{Command, CommandId};
use braid_array::status::{MemberState, Status};
use braid_array::{BlockMachine, Buf, Instant, MemberId, Request, Role};

use self::commands::Commands;
use crate::device_io::written;
use crate::disk::Disk;
use crate::judge::{Flight, Judge};
use crate::local::part::{Part, Parts, arrays, holder};
use crate::local::past::Snapshot;
use crate::local::scenario::Scenario;
use crate::oracle::{LogicalTime, Range};
use crate::report::Failure;
use crate::rng::Rng;
use crate::workload::{Kind, Workload};
use crate::world::World;
use crate::world::process::Process;

/// Bytes of a request's buffer: the largest request of a workload.
pub const SLOT_BYTES: u32 = 64 << 10;

/// Buffers for each request in flight: some may have to be given up.
pub const BUFFERS: usize = 8;

/// The process of the array, the only client of the judge.
pub const CLIENT: usize = 0;

/// A device that answers nothing.
#[derive(Clone, Copy, Debug)]
pub struct Hang {
    /// The device.
    pub device: usize,
    /// End of the administrator's patience; if `over`, end of the hang.
    pub until: Instant,
    /// Set after the administrator's patience has ended.
    pub over: bool,
}

/// Findings about the checksums of an array's members.
#[derive(Debug, Default)]
pub struct LocalSums {
    /// Devices whose blocks have all been found to fit by the last check of this life.
    pub learned: Vec<(usize, Role)>,
    /// Devices whose stores have, or had, faults in this life.
    pub faulty: BTreeSet<usize>,
    /// Set if a store has just been given up.
    pub given_up: bool,
}

/// A seed's local array, or array of arrays, with what may be read of it and what is broken.
///
/// It owns a world with one process, the machine on its devices, the [`Judge`], and in `parts` the
/// state of each array. Order of calls: [`new`](Self::new) with a machine that was started; then
/// [`submit`](Self::submit) and [`ask`](Self::ask), a step of `world`, and after each of these
/// [`outputs`](Self::outputs), which judges what came out. [`power_cut`](Self::power_cut) takes the
/// devices out, and [`restart`](Self::restart) goes on with the next machine on them. `run` has the
/// lives of a seed one by one.
pub struct Local {
    /// Scenario of the seed.
    pub scenario: Scenario,
    /// Draws troubles.
    pub rng: Rng,
    /// Allowed contents, and the requests in flight.
    pub judge: Judge,
    /// The world of the running array.
    pub world: World,
    /// The arrays it is made of.
    pub parts: Parts,
    /// Set if more was broken than the level survives: errors are allowed.
    pub excess: bool,
    /// Set if a member was lost, or could not read, before a resync had made parity fit.
    pub lost_in_doubt: bool,
    /// Set if an inner array lost a copy before a resync had made its copies equal: the outer array
    /// may have compared that copy.
    pub copies_in_doubt: bool,
    /// Requests from before this moment may have met unreadable data while parity was in doubt,
    /// although a resync has ended since.
    pub doubt_ended: Option<LogicalTime>,
    /// Set if the array was started by force: parity counts, right or wrong.
    pub forced: bool,
    /// Devices with bad sectors, and the time from which they are rewritten.
    pub damaged: BTreeMap<usize, Option<(LogicalTime, Instant)>>,
    /// Devices that answer nothing.
    pub hangs: Vec<Hang>,
    /// Full devices, and the time at which they get space.
    pub tight: Vec<(usize, Instant)>,
    /// A device as it was at an earlier time.
    pub snapshot: Option<Snapshot>,
    /// Set if a device was full in this life: writes may be refused.
    pub was_tight: bool,
    /// Content of blocks that have rotted, by device and first sector.
    pub rotten: BTreeMap<(usize, u64), Vec<u8>>,
    /// Checksums of its members.
    pub sums: LocalSums,
    /// Set if a member has just failed or become in sync.
    pub members_changed: bool,
    /// The device that is saved to has faults, until then.
    pub spill_fails: Option<Instant>,
    /// Set if it had some in this life: requests may wait for it in vain.
    pub spill_failed: bool,
    /// How likely the power is to be cut soon, in a hundred: a change of the shape has just begun,
    /// or ended.
    pub cut_percent: u64,
    /// Used part of each member, as it was when the judge was told of the array's size.
    size_sectors: u64,
    commands: Commands,
    waiting: Option<(Kind, Range)>,
    full: bool,
}

impl Local {
    /// An array that was just assembled.
    pub fn new(scenario: Scenario, rng: Rng, judge: Judge, world: World, parts: Parts) -> Self {
        Self {
            size_sectors: scenario.data_sectors[0],
            scenario,
            rng,
            judge,
            world,
            parts,
            excess: false,
            lost_in_doubt: false,
            copies_in_doubt: false,
            doubt_ended: None,
            forced: false,
            damaged: BTreeMap::new(),
            hangs: Vec::new(),
            tight: Vec::new(),
            was_tight: false,
            rotten: BTreeMap::new(),
            sums: LocalSums::default(),
            members_changed: false,
            spill_fails: None,
            spill_failed: false,
            cut_percent: 0,
            snapshot: None,
            commands: Commands::default(),
            waiting: None,
            full: false,
        }
    }

    /// A new machine runs on the devices.
    ///
    /// # Errors
    /// Returns the reason why this cannot be the array of before.
    pub fn restart(&mut self, world: World) -> Result<(), Failure> {
        self.world = world;
        if self.scenario.grows {
            self.look_again()?;
        }
        self.judge.client_begins(CLIENT, self.scenario.depth, SLOT_BYTES.into());
        let devices = &self.world.processes[CLIENT].devices;
        self.damaged.retain(|device, _| devices[*device].disk.damaged());
        self.hangs.clear();
        self.sums.faulty = stores::faulty(&self.disks());
        self.relax();
        self.was_tight = false;
        spill::restarted(self);
        self.commands.power_cut();
        self.waiting = None;
        self.full = false;
        Ok(())
    }

    /// The process of the array.
    pub fn process(&self) -> &Process {
        &self.world.processes[CLIENT]
    }

    /// The process of the array.
    pub fn process_mut(&mut self) -> &mut Process {
        &mut self.world.processes[CLIENT]
    }

    /// The machine.
    pub fn machine(&mut self) -> &mut (dyn BlockMachine + Send) {
        self.process_mut().client()
    }

    /// The state of the array.
    pub fn status(&mut self) -> Status {
        self.machine().status()
    }

    /// A device.
    pub fn disk(&self, device: usize) -> &Disk {
        &self.process().devices[device].disk
    }

    /// A device.
    pub fn disk_mut(&mut self, device: usize) -> &mut Disk {
        &mut self.process_mut().devices[device].disk
    }

    /// All devices.
    pub fn disks(&self) -> Vec<&Disk> {
        self.process().devices.iter().map(|device| &device.disk).collect()
    }

    /// Returns whether the device is a member now.
    pub fn is_attached(&self, device: usize) -> bool {
        self.process().devices[device].open.is_some()
    }

    /// The device of a member.
    pub fn device(&self, member: MemberId) -> Option<usize> {
        self.process().device_of(member)
    }

    /// A note for the trace.
    pub fn note(&mut self, numbers: &[u64], words: impl FnOnce() -> String) {
        self.world.note(numbers, words);
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> usize {
        self.judge.in_flight(CLIENT)
    }

    /// Returns whether this device has bad sectors, or a request in flight may have met them.
    pub fn is_damaged(&mut self, device: usize) -> bool {
        let oldest = self.judge.flights(CLIENT).map(|flight| flight.moment).min();
        let patience = self.scenario.profile.disk_nanos * 1000;
        let Some(since) = self.damaged.get_mut(&device) else { return false };
        if self.world.processes[CLIENT].devices[device].disk.damaged() {
            *since = None;
        } else if let Some((moment, at)) = *since {
            let now = self.world.now().0;
            if oldest.is_none_or(|oldest| oldest > moment) && now > at.0 + patience {
                self.damaged.remove(&device);
                return false;
            }
        } else {
            *since = Some((self.judge.moment(), self.world.now()));
        }
        true
    }

    /// Returns whether this device is gone, hangs, is damaged, or has rotted.
    pub fn is_unsound(&mut self, device: usize) -> bool {
        let disk = self.disk(device);
        let rots = self.rotten.keys().any(|(rotten, _)| *rotten == device);
        disk.gone() || disk.hung() || rots || self.is_damaged(device)
    }

    /// Commands without a reply.
    pub fn asked(&self) -> usize {
        self.commands.asked()
    }

    /// Submits the next request if there is room. True when one was taken.
    pub fn submit(&mut self, workload: &mut Workload) -> Result<bool, Failure> {
        if self.full || self.judge.free_slot(CLIENT).is_none() {
            return Ok(false);
        }
        let (kind, range) = self.waiting.take().unwrap_or_else(|| workload.next_request());
        let taken = self.submit_one(kind, range);
        if !taken {
            if self.in_flight() == 0 {
                return Err(Failure("the machine is full with nothing in flight".to_owned()));
            }
            self.waiting = Some((kind, range));
            self.full = true;
        }
        Ok(taken)
    }

    fn submit_one(&mut self, kind: Kind, range: Range) -> bool {
        let draft = self.world.ask(&mut self.judge, CLIENT, kind, range);
        let Some(draft) = draft else { return false };
        let Range { sector, sectors } = range;
        let slot = draft.request.id.0;
        let serial = draft.serial;
        // Now and then the next write is announced, whether it comes or not.
        self.machine().expect_writes(serial.is_multiple_of(3));
        self.note(&[10, slot, sector, sectors, u64::from(serial)], || {
            format!("SUBMIT #{slot} {kind:?} {sector}+{sectors} serial {serial}")
        });
        let synced = self.parts.all().all(|part| part.synced);
        self.judge.submitted(CLIENT, draft, synced);
        self.world.drain(CLIENT);
        true
    }

    /// A read is asked for again with another buffer: the one it had is still in use.
    pub(super) fn ask_again(&mut self, flight: Flight) -> Result<(), Failure> {
        let slot = flight.request.id.0;
        if flight.kind != Kind::Read {
            return Err(Failure(format!("nobody writes into the buffer of request {slot}")));
        }
        let none = || Failure("no buffer is left".to_owned());
        self.judge.resubmitted(CLIENT, flight, flight.request.buf);
        let lent = |buf| self.world.lent(CLIENT, buf);
        let offset = self.judge.free_buffer(CLIENT, lent).ok_or_else(none)?;
        let buf = Buf { offset, ..flight.request.buf };
        self.note(&[12, slot], || format!("AGAIN #{slot}"));
        self.judge.resubmitted(CLIENT, flight, buf);
        let request = Request { buf, ..flight.request };
        let now = self.world.now();
        let taken = self.machine().submit(now, request);
        taken.map_err(|_| Failure("full right after a completion".to_owned()))?;
        self.world.drain(CLIENT);
        Ok(())
    }

    /// Gives the array a command; the reply comes later.
    pub fn ask(&mut self, command: Command) -> CommandId {
        let (id, name) = self.commands.ask(&command);
        self.note(&[20, id.0], || format!("COMMAND {} {name}", id.0));
        self.world.command(CLIENT, id, command);
        id
    }

    /// Returns whether this command waits for its reply.
    pub fn waits(&self, id: CommandId) -> bool {
        self.commands.waits(id)
    }

    /// All devices have room again.
    pub fn relax(&mut self) {
        self.tight.clear();
        self.process_mut().devices.iter_mut().for_each(|device| device.disk.set_full(false));
    }

    /// Returns the reason for refusing a command, if it was refused.
    pub fn refusal(&mut self, id: CommandId) -> Option<String> {
        self.commands.refusal(id)
    }

    /// Records that data are lost or unreadable: before the end of a resync, parity cannot vouch
    /// for them.
    pub fn note_lost(&mut self, lost: bool) {
        let doubtful = |part: &Part| part.scenario.has_parity() && !part.synced;
        self.lost_in_doubt |= lost && self.parts.all().any(doubtful);
        let copies = |part: &Part| part.redundant() && !part.scenario.has_parity() && !part.synced;
        let compared = self.parts.over.as_ref().is_some_and(Part::redundant);
        self.copies_in_doubt |= lost && compared && self.parts.devices.iter().any(copies);
    }

    /// The device that holds a role completely.
    pub fn holder_device(&self, status: &Status, role: Role) -> Option<usize> {
        self.device(holder(status, role)?)
    }

    /// By array of devices and role: the device that holds the role completely.
    pub fn holders(&self, status: &Status) -> Vec<Vec<Option<usize>>> {
        let of = |(array, part): (&Status, &Part)| {
            let roles = Role::all(part.roles());
            roles.map(|role| self.holder_device(array, role)).collect()
        };
        arrays(status).iter().zip(&self.parts.devices).map(of).collect()
    }

    /// Takes note of the shape that the array has now.
    pub fn look(&mut self, status: &Status) {
        if self.scenario.grows {
            self.parts.devices[0].look(status);
        }
    }

    /// A new machine says which shape the array has: the one of before, but where it was changing.
    fn look_again(&mut self) -> Result<(), Failure> {
        let status = self.status();
        let part = &mut self.parts.devices[0];
        let before = part.scenario.shape();
        let changed = part.asked.take().is_some() || part.shape.moves();
        part.look(&status);
        if !changed && part.scenario.shape() != before {
            let now = part.scenario.shape();
            return Err(Failure(format!("an array of shape {before:?} has shape {now:?}")));
        }
        self.grown()
    }

    /// The array may be larger than it was: moved data end with zeroes where there is parity.
    pub(super) fn grown(&mut self) -> Result<(), Failure> {
        let before = self.judge.oracle.sectors();
        let now = self.machine().array_sectors();
        if now < before {
            return Err(Failure(format!("an array of {before} sectors has {now}")));
        }
        let scenario = &self.parts.devices[0].scenario;
        let size_sectors = scenario.data_sectors[0];
        let has_parity = scenario.has_parity();
        let moved = std::mem::replace(&mut self.size_sectors, size_sectors) == size_sectors;
        // What was being written when it stopped took strips along that are lost, and by force it
        // went on with that: also where the array had no sectors yet.
        self.judge.oracle.grow(now, moved && has_parity && !self.forced);
        Ok(())
    }

    /// Cuts the power. Returns the devices.
    pub fn power_cut(&mut self) -> Vec<Disk> {
        let status = self.status();
        self.look(&status);
        self.note(&[40], || "POWER CUT".to_owned());
        let mut pending: Vec<Vec<(u64, u64)>> =
            self.disks().into_iter().map(|disk| disk.pending().collect()).collect();
        for (device, op) in self.world.io_of(CLIENT) {
            pending[device].extend(written(op));
        }
        // A member found faulty a moment ago may come back as if in sync. One that is being rebuilt
        // is not read where it is not finished.
        for (array, part) in arrays(&status).iter().zip(&mut self.parts.devices) {
            for member in array.members.iter().filter(|m| m.state != MemberState::Rebuilding) {
                if let Some(device) = self.world.processes[CLIENT].device_of(member.member) {
                    part.suspects.pending(&pending[device]);
                }
            }
            if self.parts.over.is_some() {
                part.cut_blindly(array);
                continue;
            }
            for flight in self.judge.flights(CLIENT) {
                if !matches!(flight.kind, Kind::Read | Kind::Flush) {
                    part.suspects.note_write(flight.range);
                    part.suspects.in_flight(flight.range, &part.shape);
                }
            }
        }
        if let Some(over) = &mut self.parts.over {
            over.cut_blindly(&status);
        }
        self.judge.oracle.power_cut();
        self.parts.all_mut().for_each(|part| part.synced = false);
        self.world.power_cut(CLIENT)
    }
}
