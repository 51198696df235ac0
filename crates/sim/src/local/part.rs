//! An array of the machine: its scenario, and the state of its redundancy. A local array is the
//! only part of its machine. A nested array consists of several parts: the arrays of devices, and
//! the outer array.

use braid_array::events::{ArrayEvent, SyncAction, SyncEnd};
use braid_array::format::reshaped::is_backwards;
use braid_array::format::superblock::{MAX_SECTOR, feature};
use braid_array::level::Level;
use braid_array::status::{MemberState, MemberStatus, Status};
use braid_array::{MemberId, Role};

use crate::local::create;
use crate::local::scenario::{Birth, Scenario};
use crate::local::shape::{OldShape, Shape};
use crate::local::suspects::Suspects;

/// Largest height of a reconstructed unit.
const UNIT_SECTORS: u32 = 128;

/// An array of the machine.
#[derive(Debug)]
pub struct Part {
    /// Scenario of the array; where that has another shape now, as if it had been created with it.
    pub scenario: Scenario,
    /// UUID by which its devices are found.
    pub set_uuid: [u8; 16],
    /// Place of the data, for the extent of a write hole.
    pub shape: Shape,
    /// The device that what is moved in place is saved to, once there was one.
    pub spill: Option<usize>,
    /// The stores of checksums are not named when it is started.
    pub forgets_stores: bool,
    /// The device that the journal was made on.
    pub journal: Option<usize>,
    /// The scenario that it was created by.
    first: Scenario,
    /// Members that it can do without in the shape that was asked for, until that is answered.
    pub asked: Option<usize>,
    /// Columns of stripes whose parity may not fit.
    pub suspects: Suspects,
    /// Set if all copies are known to be equal: the content read stays.
    pub synced: bool,
    /// Set if a member was rebuilt except for ranges unreadable elsewhere: it has bad blocks there.
    pub rebuilt_with_gaps: bool,
    /// The last background work that ended.
    pub sync_finished: Option<(SyncAction, SyncEnd)>,
}

impl Part {
    /// An array as it was created.
    pub fn new(scenario: Scenario, set_uuid: [u8; 16]) -> Result<Self, String> {
        Ok(Self {
            set_uuid,
            shape: Shape::of(&scenario)?,
            asked: None,
            spill: None,
            forgets_stores: false,
            journal: scenario
                .has_journal()
                .then_some(usize::from(scenario.members + scenario.spares)),
            first: scenario.clone(),
            suspects: Suspects::new(&scenario),
            synced: scenario.birth != Birth::Resync,
            rebuilt_with_gaps: false,
            sync_finished: None,
            scenario,
        })
    }

    /// Background work has ended in it, or something else that is of no matter here.
    pub fn notified(&mut self, event: &ArrayEvent) {
        let ArrayEvent::SyncFinished { action, end, .. } = event else { return };
        self.sync_finished = Some((*action, end.clone()));
        let unread = matches!(end, SyncEnd::Unread { .. });
        self.rebuilt_with_gaps |= *action == SyncAction::Recovery && unread;
        if *action == SyncAction::Resync && *end == SyncEnd::Complete {
            self.suspects.clear();
            self.synced = true;
        }
    }

    /// Handles a power cut with unknown writes in flight in this array.
    pub fn cut_blindly(&mut self, status: &Status) {
        if status.superblock.resync_offset != MAX_SECTOR {
            self.suspects.doubt_all();
        }
    }

    /// Takes the shape that the array has.
    pub fn look(&mut self, status: &Status) {
        let superblock = &status.superblock;
        let level = Level::from_md(superblock.level);
        let level = level.unwrap_or(self.first.level);
        let is_first = level == Level::Raid0 && superblock.size_sectors == 0;
        if level == Level::Linear || is_first {
            // It is as it was, even where another level was asked for.
            self.scenario = self.first.clone();
            self.suspects.reshape(self.data(), false, self.scenario.members);
            return;
        }
        let before = (self.scenario.shape(), self.scenario.data_offset);
        let old = self.shape.old.take();
        let moves = superblock.has(feature::RESHAPE_ACTIVE);
        let by = if moves { i64::from(superblock.reshape.new_offset) } else { 0 };
        let begin = status.members.first().map(|member| member.data_offset);
        let begin = begin.unwrap_or(self.shape.data_offset);
        let number = |disks: u32| u16::try_from(disks).unwrap_or_default();
        let mut new = superblock.clone();
        if moves {
            let reshape = &superblock.reshape;
            new.layout = reshape.new_layout;
            new.chunk_sectors = reshape.new_chunk_sectors;
            let disks = superblock.raid_disks.saturating_add_signed(-reshape.delta_disks);
            self.scenario.take(level, number(disks), superblock, begin);
            self.shape.old = create::geometry(&self.scenario).ok().map(|geometry| OldShape {
                geometry,
                data_offset: begin,
                position: reshape.position,
                backwards: is_backwards(superblock),
            });
        }
        let begin = begin.saturating_add_signed(by);
        self.scenario.take(level, number(new.raid_disks), &new, begin);
        if let Ok(geometry) = create::geometry(&self.scenario) {
            self.shape.geometry = geometry;
        }
        self.shape.data_offset = begin;
        if before != (self.scenario.shape(), begin) || moves != old.is_some() {
            self.suspects.reshape(self.data(), self.scenario.has_parity(), self.roles());
            let redundant = !matches!(before.0.0, Level::Linear | Level::Raid0);
            if redundant && self.scenario.data_sectors[0] > before.0.4 {
                // What is new has yet to be brought in line.
                self.synced = false;
            }
        }
    }

    /// Returns whether a device is for something else than data.
    pub fn is_set_apart(&self, device: usize) -> bool {
        [self.spill, self.journal].contains(&Some(device))
    }

    /// Number of roles; while data move, in the larger of both shapes.
    pub fn roles(&self) -> u16 {
        let old = self.shape.old.as_ref().map_or(0, |old| old.geometry.raid_disks() as u16);
        self.scenario.members.max(old)
    }

    /// Device sectors between which every member has data.
    pub fn data(&self) -> std::ops::Range<u64> {
        let least = self.scenario.data_sectors.iter().copied().min().unwrap_or(1);
        self.shape.data(least)
    }

    /// Returns the number of members that it can always do without, in the shape that was asked for
    /// as well.
    pub fn tolerance(&self) -> usize {
        let now = self.scenario.tolerance();
        self.asked.map_or(now, |asked| asked.min(now))
    }

    /// Survives the loss of some member.
    pub fn redundant(&self) -> bool {
        self.scenario.tolerance() > 0
    }

    /// The last background work was a check that came to the end.
    pub const fn checked(&self) -> bool {
        matches!(self.sync_finished, Some((SyncAction::Check, SyncEnd::Complete)))
    }

    /// Returns the height of a reconstructed unit.
    pub fn unit_sectors(&self) -> u64 {
        u64::from(self.scenario.chunk_sectors.clamp(1, UNIT_SECTORS))
    }

    /// Returns whether parity is in doubt in the unit of this device sector.
    pub fn in_doubt(&self, device_sector: u64) -> bool {
        let height = self.unit_sectors();
        // While data move, it may lie before where they begin.
        let column = device_sector + height - self.scenario.data_offset % height;
        let unit = device_sector.saturating_sub(column % height);
        (unit..unit + height).any(|sector| self.suspects.contains(sector))
    }
}

/// All arrays of the machine.
#[derive(Debug)]
pub struct Parts {
    /// Arrays of devices.
    pub devices: Vec<Part>,
    /// The one above them, which is the machine's then.
    pub over: Option<Part>,
}

impl Parts {
    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Part> {
        self.devices.iter().chain(&self.over)
    }

    /// All of them.
    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Part> {
        self.devices.iter_mut().chain(&mut self.over)
    }

    /// The one that serves requests.
    pub fn top(&self) -> &Part {
        self.over.as_ref().unwrap_or(&self.devices[0])
    }

    /// The one that serves requests.
    pub fn top_mut(&mut self) -> &mut Part {
        self.over.as_mut().unwrap_or(&mut self.devices[0])
    }
}

/// The arrays of devices: the array itself, or those it is made of.
pub fn arrays(status: &Status) -> &[Status] {
    if status.children.is_empty() { std::slice::from_ref(status) } else { &status.children }
}

/// The members that are devices.
pub fn devices(status: &Status) -> impl Iterator<Item = &MemberStatus> {
    arrays(status).iter().flat_map(|array| &array.members)
}

/// The array of devices that this one belongs to.
pub fn part_of(status: &Status, member: MemberId) -> usize {
    let within = |array: &Status| array.members.iter().any(|m| m.member == member);
    arrays(status).iter().position(within).unwrap_or(0)
}

/// The members of one array that hold a role completely.
pub fn holders(status: &Status, role: Role) -> impl Iterator<Item = MemberId> {
    let held = move |m: &&MemberStatus| m.role == Some(role) && m.state == MemberState::InSync;
    status.members.iter().filter(held).map(|m| m.member)
}

/// Returns a holder of the role.
pub fn holder(status: &Status, role: Role) -> Option<MemberId> {
    holders(status, role).next()
}
