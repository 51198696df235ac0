//! Scenario of a seed: the array, its devices, and its troubles.

use std::fmt;

use braid_array::format::integrity::{BLOCK_SECTORS, IntegrityArea};
use braid_array::format::{Superblock, Version};
use braid_array::level::Level;

use crate::fault::{FaultProfile, Mutation};
use crate::rng::Rng;

/// Creation of the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Birth {
    /// All members in sync.
    Clean,
    /// All members there, redundancy not yet computed.
    Resync,
    /// The last member is a spare under recovery, as mdadm creates a raid5.
    Recovery,
}

/// Policy against the write hole of an array with parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    /// Nothing.
    None,
    /// Partial parity logs of so many sectors.
    PartialParity(u16),
    /// A journal of so many sectors, on a device of its own.
    Journal(u64),
}

/// Array and troubles of a seed.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Level.
    pub level: Level,
    /// md's number of the layout.
    pub layout: u32,
    /// Roles.
    pub members: u16,
    /// Spares to begin with.
    pub spares: u16,
    /// Chunk; 0 for raid1.
    pub chunk_sectors: u32,
    /// Size of each role's data area; equal but for linear and raid0.
    pub data_sectors: Vec<u64>,
    /// Where the data areas begin.
    pub data_offset: u64,
    /// Sectors of a device beyond its data area.
    pub slack_sectors: u64,
    /// Sectors of these that superblocks count as room for data at first.
    pub unused_sectors: u64,
    /// Where the superblock is.
    pub version: Version,
    /// Bytes for each bit of the bitmap.
    pub bitmap_chunk_bytes: Option<u32>,
    /// Policy against the write hole.
    pub log: Log,
    /// Room for a bad-block log.
    pub bad_block_log: bool,
    /// Creation of the array.
    pub birth: Birth,
    /// Smallest I/O of the devices.
    pub block_bytes: u32,
    /// Behaviour of devices and executor.
    pub profile: FaultProfile,
    /// Times the array runs, each but the last ended by a power cut or a stop.
    pub lives: u32,
    /// Requests of a life.
    pub requests: u64,
    /// Requests in flight at once.
    pub depth: usize,
    /// Troubles of a life: member failures, commands, bad sectors.
    pub troubles: u64,
    /// More members may be lost than the level does without: errors are allowed then, garbage is
    /// not.
    pub excess: bool,
    /// The array is given other shapes.
    pub grows: bool,
    /// There is a device beside the members for what is moved in place.
    pub spills: bool,
    /// Members have checksums.
    pub sums: bool,
    /// Checksums are in stores beside the members.
    pub stores: bool,
}

/// Level, layout, members, chunk and used part of each member.
type Numbers = (Level, u32, u16, u32, u64);

/// The most that a superblock 0.90 and what belongs to it take of a device.
const OLD_SECTORS: u64 = 255;

/// Superblock, bitmap and bad-block log take so many sectors before the data.
const LEAST_OFFSET: u64 = 32;

/// Chunks that are drawn, in sectors.
pub const CHUNKS: [u32; 5] = [8, 16, 32, 64, 128];

impl Scenario {
    /// Draws a seed's scenario.
    pub fn draw(rng: &mut Rng, mutation: Option<Mutation>) -> Self {
        // The levels with most machinery come most often.
        let level = rng.pick(&[
            Level::Linear,
            Level::Raid0,
            Level::Raid1,
            Level::Raid1,
            Level::Raid4,
            Level::Raid5,
            Level::Raid5,
            Level::Raid5,
            Level::Raid6,
            Level::Raid6,
            Level::Raid6,
            Level::Raid10,
            Level::Raid10,
        ]);
        let mut scenario = Self::draw_of(level, u16::MAX, rng, mutation);
        scenario.draw_growth(&mut rng.aside(3));
        scenario
    }

    /// Draws room for other shapes, or none. The generator is one of its own: seeds without are
    /// unchanged.
    fn draw_growth(&mut self, aside: &mut Rng) {
        self.grows = self.level != Level::Linear && aside.percent(20) && !self.excess;
        if !self.grows {
            return;
        }
        self.lives = self.lives.max(2);
        let unit = u64::from(self.chunk_sectors.max(8));
        let moves = self.has_parity() || matches!(self.level, Level::Raid0 | Level::Raid10);
        if moves && self.version != Version::V1_0 {
            self.data_offset += unit * aside.pick(&[0, 1, 1, 2, 2, 3, 4, 5]);
        }
        if self.level != Level::Raid0 {
            self.unused_sectors = unit * aside.pick(&[0, 0, 1, 2, 3]);
            self.slack_sectors += self.unused_sectors;
        }
    }

    /// Has superblocks of version 0.90, behind the data: these begin with the devices, and their
    /// shape stays.
    pub fn make_old(&mut self) {
        if self.tolerance() == 0 {
            return;
        }
        self.version = Version::V0_90;
        self.data_offset = 0;
        self.unused_sectors = 0;
        self.slack_sectors += OLD_SECTORS;
        self.bad_block_log = false;
        self.grows = false;
    }

    /// Draws whether data move in place where there is no room for anything else, which is where
    /// superblocks lie behind them, and else where they begin. The generator is one of its own:
    /// seeds without are unchanged.
    pub fn draw_spill(&mut self, mut own: Rng) {
        let is_old = self.version == Version::V0_90;
        let percent = match self.version {
            Version::V0_90 => 30,
            Version::V1_0 => 80,
            Version::V1_1 | Version::V1_2 => 30,
        };
        self.spills =
            own.percent(percent) && self.has_parity() && (self.grows || is_old) && !self.excess;
        if !self.spills {
            return;
        }
        self.grows = true;
        self.lives = self.lives.max(2);
        if !self.version.is_behind_data() {
            let log_sectors = match self.log {
                Log::PartialParity(sectors) => sectors.into(),
                Log::None | Log::Journal(_) => 0,
            };
            self.data_offset = LEAST_OFFSET + log_sectors;
        }
    }

    /// Draws whether members have checksums: behind the data, where superblocks are not, or in
    /// stores. The generator is one of its own: seeds without are unchanged.
    pub fn draw_sums(&mut self, mut own: Rng) {
        let has_place = matches!(self.version, Version::V1_1 | Version::V1_2);
        let changes = self.grows || self.spills;
        let wanted = own.percent(35);
        self.stores = own.percent(40) && self.version != Version::V0_90;
        self.sums = wanted && (has_place || self.stores) && self.tolerance() > 0 && !changes;
        self.stores &= self.sums;
        if self.sums && !self.stores {
            let largest = self.data_sectors.iter().copied().max().unwrap_or(0);
            let area = IntegrityArea::new(largest).map_or(0, IntegrityArea::sectors);
            self.slack_sectors += area + BLOCK_SECTORS;
        }
    }

    /// Facts that decide where bytes lie. Stripes over members that use as much lie alike in all
    /// layouts, and superblocks that tell of a move of them name none.
    pub fn shape(&self) -> Numbers {
        let size = self.data_sectors[0];
        let is_even = self.data_sectors.iter().all(|sectors| *sectors == size);
        let layout = if self.level == Level::Raid0 && is_even { 0 } else { self.layout };
        (self.level, layout, self.members, self.chunk_sectors, size)
    }

    /// The array has this shape now; devices stay as large as they are.
    pub fn take(&mut self, level: Level, members: u16, superblock: &Superblock, data_offset: u64) {
        let Superblock { layout, chunk_sectors, size_sectors, .. } = *superblock;
        let largest = self.data_sectors.iter().copied().max().unwrap_or(0);
        let device_sectors = self.device_sectors(largest);
        self.level = level;
        self.layout = layout;
        self.members = members;
        self.chunk_sectors = chunk_sectors;
        self.data_sectors = vec![size_sectors; usize::from(members)];
        self.data_offset = data_offset;
        self.slack_sectors = device_sectors.saturating_sub(data_offset + size_sectors);
    }

    /// Draws one of this level, with so many members at most (but no less than it takes).
    pub fn draw_of(
        level: Level,
        most_members: u16,
        rng: &mut Rng,
        mutation: Option<Mutation>,
    ) -> Self {
        let members = draw_members(level, most_members, rng);
        let layout = draw_layout(level, members, rng);
        let redundant = tolerance(level, layout, members) > 0;
        let chunk_sectors = if level == Level::Raid1 { 0 } else { rng.pick(&CHUNKS) };
        let version =
            rng.pick(&[Version::V1_2, Version::V1_2, Version::V1_2, Version::V1_1, Version::V1_0]);
        let birth = match rng.below(8) {
            0 | 1 if redundant => Birth::Resync,
            2 if redundant => Birth::Recovery,
            _ => Birth::Clean,
        };
        let block_bytes = rng.pick(&[512, 512, 4096]);
        Self {
            level,
            layout,
            members,
            spares: if redundant { rng.pick(&[0, 0, 0, 1, 2]) } else { 0 },
            chunk_sectors,
            data_sectors: draw_sizes(level, members, chunk_sectors, rng),
            data_offset: if version == Version::V1_0 {
                0
            } else {
                rng.pick(&[LEAST_OFFSET, 64, 128])
            },
            slack_sectors: rng.pick(&[32, 40, 64]),
            unused_sectors: 0,
            version,
            bitmap_chunk_bytes: (redundant && rng.percent(45))
                .then(|| 4096 << rng.between(0, 4) as u32),
            log: Log::None,
            bad_block_log: rng.percent(60),
            birth,
            block_bytes,
            profile: profile(block_bytes, mutation, rng),
            lives: rng.between(1, 3) as u32,
            requests: rng.between(10, 90),
            depth: rng.pick(&[1, 2, 4, 8, 12]),
            troubles: rng.pick(&[0, 1, 2, 4, 8]),
            excess: rng.percent(12),
            grows: false,
            spills: false,
            sums: false,
            stores: false,
        }
    }

    /// Draws a scenario with a closed write hole.
    pub fn draw_with_log(rng: &mut Rng, mutation: Option<Mutation>) -> Self {
        let level = rng.pick(&[Level::Raid4, Level::Raid5, Level::Raid5, Level::Raid6]);
        let mut scenario = Self::draw_of(level, u16::MAX, rng, mutation);
        scenario.bitmap_chunk_bytes = None;
        scenario.excess = false;
        scenario.lives = rng.between(2, 4) as u32;
        scenario.log = if level == Level::Raid5 && rng.percent(70) {
            // With room for one unit, or for a few.
            let sectors = rng.pick(&[272, 400, 560, 1000]);
            if scenario.version == Version::V1_0 {
                scenario.slack_sectors += u64::from(sectors);
            } else {
                scenario.data_offset += u64::from(sectors);
            }
            Log::PartialParity(sectors)
        } else {
            Log::Journal(rng.pick(&[2048, 3000, 8000]) & !7)
        };
        scenario.draw_growth(&mut rng.aside(5));
        scenario
    }

    /// Returns the number of members that the level can always do without.
    pub fn tolerance(&self) -> usize {
        tolerance(self.level, self.layout, self.members)
    }

    /// Parity ties a stripe's sectors together.
    pub const fn has_parity(&self) -> bool {
        matches!(self.level, Level::Raid4 | Level::Raid5 | Level::Raid6)
    }

    /// Returns whether writes are recorded in a log.
    pub fn has_log(&self) -> bool {
        self.log != Log::None
    }

    /// Returns whether the array has a journal device.
    pub const fn has_journal(&self) -> bool {
        matches!(self.log, Log::Journal(_))
    }

    /// Sectors of a device that has a data area of this size.
    pub const fn device_sectors(&self, data_sectors: u64) -> u64 {
        self.data_offset + data_sectors + self.slack_sectors
    }
}

fn profile(block_bytes: u32, mutation: Option<Mutation>, rng: &mut Rng) -> FaultProfile {
    let disk_nanos = rng.pick(&[20_000, 200_000, 5_000_000]);
    FaultProfile {
        disk_nanos,
        slow_permille: rng.pick(&[0, 10, 50]),
        compute_nanos: if rng.percent(40) { disk_nanos } else { 0 },
        discard_zeroes: rng.percent(70),
        block_bytes,
        // As executors do; and at nearly any moment, which is the harder test.
        cooling_millis: Some(rng.aside(1).pick(&[5000, 5000, 5000, 50, 1])),
        align_bytes: 512,
        mutation,
        ..FaultProfile::CALM
    }
}

/// Members that an array of this shape can always do without.
pub fn tolerance(level: Level, layout: u32, members: u16) -> usize {
    match level {
        Level::Linear | Level::Raid0 => 0,
        Level::Raid1 => usize::from(members) - 1,
        Level::Raid4 | Level::Raid5 => 1,
        Level::Raid6 => 2,
        Level::Raid10 => ((layout & 0xff) * (layout >> 8 & 0xff)) as usize - 1,
    }
}

fn draw_members(level: Level, most: u16, rng: &mut Rng) -> u16 {
    let (low, high) = match level {
        Level::Linear | Level::Raid0 => (1, 5),
        Level::Raid1 => (2, 4),
        Level::Raid4 | Level::Raid5 => (2, 7),
        Level::Raid6 => (4, 7),
        Level::Raid10 => (2, 7),
    };
    rng.between(low, high.min(u64::from(most)).max(low)) as u16
}

/// Draws a layout that the level has.
pub fn draw_layout(level: Level, members: u16, rng: &mut Rng) -> u32 {
    const RAID6: [u32; 14] = [0, 1, 2, 3, 4, 5, 8, 9, 10, 16, 17, 18, 19, 20];
    match level {
        Level::Linear | Level::Raid1 | Level::Raid4 => 0,
        Level::Raid0 => rng.pick(&[1, 2]),
        Level::Raid5 => rng.below(6) as u32,
        Level::Raid6 => rng.pick(&RAID6),
        Level::Raid10 => {
            let most = u32::from(members.min(4));
            let copies = rng.between(2, u64::from(most)) as u32;
            let layout = match rng.below(3) {
                0 => copies | 1 << 8,
                1 => 1 | copies << 8,
                _ => 1 | copies << 8 | 1 << 16,
            };
            if members >= 4 && rng.percent(10) { 2 | 2 << 8 } else { layout }
        }
    }
}

fn draw_sizes(level: Level, members: u16, chunk_sectors: u32, rng: &mut Rng) -> Vec<u64> {
    let unit = u64::from(chunk_sectors.max(8));
    let largest = (256 / unit).max(2);
    // Far and offset layouts want whole sets of rows; 4 divides by every number of copies but 3.
    let rows = match level {
        Level::Raid10 => rng.between(1, largest.div_ceil(6)) * 6,
        _ => rng.between(2, largest),
    };
    let equal = !matches!(level, Level::Linear | Level::Raid0) || rng.percent(40);
    (0..members).map(|_| unit * if equal { rows } else { rng.between(2, largest) }).collect()
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { level, layout, members, chunk_sectors, .. } = self;
        write!(f, "{} layout {layout:#x} n={members}", level.name())?;
        write!(f, " chunk={}K", chunk_sectors / 2)?;
        if let Some(bytes) = self.bitmap_chunk_bytes {
            write!(f, " bitmap={}K", bytes / 1024)?;
        }
        match self.log {
            Log::None => {}
            Log::PartialParity(sectors) => write!(f, " ppl={}K", sectors / 2)?,
            Log::Journal(sectors) => write!(f, " journal={}K", sectors / 2)?,
        }
        if self.spares > 0 {
            write!(f, " spares={}", self.spares)?;
        }
        if self.excess {
            write!(f, " excess")?;
        }
        if self.grows {
            write!(f, " grows")?;
        }
        if self.spills {
            write!(f, " spills")?;
        }
        Ok(())
    }
}
