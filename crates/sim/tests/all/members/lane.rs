//! Operations of a test on a lane: an array of some code with accessible members.

use braid_array::action::NewMember;
use braid_array::level::{Layout, Level};
use braid_array::{Action, BlockMachine, Buf, MemberId};
use braid_cluster::Family;
use braid_sim::disk::Disk;
use braid_sim::world::World;

/// A code, with its properties.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Code {
    /// Family of the code.
    pub(crate) family: Family,
    /// Members.
    pub(crate) members: u16,
    /// Number of members that may be lost, in any combination.
    pub(crate) losses: usize,
    /// Set if the code can tell which block is wrong.
    pub(crate) tells: bool,
}

impl Code {
    /// Returns a code of md, with the layout of this number.
    pub(crate) fn md(level: Level, layout: u32, members: u16, losses: usize, tells: bool) -> Self {
        let layout = Layout::decode(level, layout, members.into()).expect("a layout of the level");
        Self { family: Family::Md { level, layout }, members, losses, tells }
    }

    /// Returns whether the array has copies of data, and no parity.
    pub(crate) fn copies(&self) -> bool {
        matches!(self.family.level(), Level::Raid1 | Level::Raid10)
    }
}

/// Properties of a new array.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Setup {
    /// Set if parities or copies do not fit in the beginning, without a mark.
    pub(crate) dirty: bool,
    /// Set for a write-intent bitmap.
    pub(crate) bitmap: bool,
    /// Spares.
    pub(crate) spares: u16,
}

/// Where data begins on every member.
pub(crate) const DATA_SECTOR: u64 = 64;
/// Data on every member.
pub(crate) const DATA_SECTORS: u64 = 8192;
/// Length of a block of a stripe.
pub(crate) const CHUNK_SECTORS: u64 = 32;
/// Buffers for requests, from the start of the arena.
pub(crate) const SLOTS: u64 = 4;
/// Length of each.
pub(crate) const SLOT_BYTES: u64 = 64 << 10;

/// A lane with one array, in a world. Devices and volumes are numbered like the members of the new
/// array, then the spares, then added devices.
pub(crate) trait Lane: Sized {
    /// Members of a new array, which does not run yet.
    fn create(code: Code, setup: Setup) -> Self;

    /// Starts the array from its members, after the death of its machine.
    fn assemble(&mut self, read_only: bool);

    /// Returns the world, and the process of the array's machine.
    fn world(&mut self) -> (&mut World, usize);

    /// Kills the machine of the array between two events.
    fn crash(&mut self) {
        let (world, array) = self.world();
        if world.processes.get(array).is_some_and(|array| array.alive) {
            world.kill(array);
        }
    }

    /// Returns the machine of the array.
    fn machine(&mut self) -> &mut (dyn BlockMachine + Send) {
        let (world, array) = self.world();
        world.processes[array].client()
    }

    /// Returns the outputs for exports and users.
    ///
    /// # Panics
    /// Panics if a machine broke its contract.
    fn outputs(&mut self) -> Vec<Action> {
        let (world, array) = self.world();
        assert_eq!(world.faults, [""; 0]);
        let outputs = std::mem::take(&mut world.outputs).into_iter();
        outputs.filter(|(process, _)| *process == array).map(|(_, action)| action).collect()
    }

    /// Bytes of a request's buffer.
    fn bytes(&mut self, buf: Buf) -> &mut [u8] {
        let (world, array) = self.world();
        world.processes[array].bytes(buf)
    }

    /// Returns the disk of a member.
    fn disk(&mut self, device: usize) -> &mut Disk;

    /// A member breaks, or works again.
    fn set_broken(&mut self, device: usize, broken: bool);

    /// Returns the first place where the members do not agree, by their content.
    fn misfit(&mut self) -> Option<String>;

    /// Returns a device for the array to add: a new one, or a former member.
    fn offer(&mut self, member: MemberId, device: Option<usize>) -> NewMember;
}
