//! Braid on that member: the machines of the crate, a write at a time, and one list of steps at a
//! time, as a keeper carries them out.

use std::collections::{BTreeSet, VecDeque};

use super::world::{
    Broken, DATA, Disk, HEADER, Image, MARKS, PAGE, Rule, SUPER, World, superblock,
};
use crate::format::Superblock;
use crate::format::integrity::{
    IntegrityArea, IntegrityHeader, PageMarks, SuperblockDigest, TablePage, block_sum,
};
use crate::format::superblock::time_code;
use crate::integrity::{AcceptedSuperblocks, IntegrityStep, IntegrityWrite, MarkedPages, Trust};

const AREA: [u8; 16] = [3; 16];
const BLOCK: std::ops::Range<u64> = 0..8;

/// What the steps under way are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Nothing,
    Marking,
    Settling,
    Clearing,
    Superblock,
    TurningOff,
}

/// The write under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteStage {
    None,
    Waiting,
    Ready,
    Issued(u8),
}

#[derive(Clone, Debug)]
pub(super) struct Braid {
    accepted: AcceptedSuperblocks,
    marked: MarkedPages,
    /// The page of the table in memory.
    page: TablePage,
    steps: VecDeque<IntegrityStep>,
    purpose: Purpose,
    write: WriteStage,
    /// The superblock that is about to be written.
    image: Option<Image>,
    /// Data are written without marks.
    is_off: bool,
}

/// The moves that are left to it.
#[derive(Clone, Copy)]
pub(super) struct Moves {
    pub(super) writes: bool,
    pub(super) superblocks: bool,
    pub(super) turns_off: bool,
    /// The time of the next superblock.
    pub(super) seconds: u64,
}

type Next = (&'static str, Disk, Braid);
type Adds<'a> = dyn FnMut(&'static str, &dyn Fn(&mut Braid, &mut Disk)) + 'a;

impl Braid {
    /// Makes an area on a member that has none, and builds its table.
    pub(super) fn make(world: World, disk: &mut Disk) {
        let mut braid = Self::without_area(world, disk);
        braid.turn_on(world, disk);
        while braid.step(world, disk) {}
        braid.steps = braid.marked.nominate().into();
        while braid.step(world, disk) {}
        braid.steps = braid.marked.clear_nominated().into();
        while braid.step(world, disk) {}
        disk.flush();
    }

    /// Starts without checksums.
    fn without_area(world: World, disk: &Disk) -> Self {
        let bytes = disk.read(SUPER);
        let found = Superblock::decode(world.version, 64, bytes).expect("a superblock");
        let digest = world.digest(bytes);
        let area = IntegrityArea::new(found.data_size).expect("a size");
        let offset = found.data_offset;
        let header =
            IntegrityHeader::first(found.set_uuid, found.device_uuid, AREA, offset, area, digest);
        let marked = MarkedPages::new(area, PageMarks::all(AREA, area.pages()), 0);
        let accepted = AcceptedSuperblocks::new(header, digest);
        let mut braid = Self::with(accepted, marked, Vec::new(), Purpose::Nothing);
        braid.is_off = true;
        braid
    }

    /// Makes an area, in which all is marked, and the page of the table in memory.
    fn turn_on(&mut self, world: World, disk: &Disk) {
        let fresh = Self::without_area(world, disk);
        let digest = world.digest(disk.read(SUPER));
        let header = fresh.accepted.header().clone();
        let (accepted, steps) = AcceptedSuperblocks::made(header, digest, &fresh.marked);
        *self = Self::with(accepted, fresh.marked, steps, Purpose::Nothing);
        self.rebuild(disk);
    }

    fn with(
        accepted: AcceptedSuperblocks,
        marked: MarkedPages,
        steps: Vec<IntegrityStep>,
        purpose: Purpose,
    ) -> Self {
        Self {
            accepted,
            marked,
            page: TablePage::unknown(),
            steps: steps.into(),
            purpose,
            write: WriteStage::None,
            image: None,
            is_off: false,
        }
    }

    /// Starts. Checks what is trusted. `alone`: only Braid was here. `was_off`: for a while without
    /// checksums.
    pub(super) fn assemble(
        world: World,
        disk: &Disk,
        alone: bool,
        was_off: bool,
    ) -> Result<Self, Broken> {
        let bytes = disk.read(SUPER).clone();
        let found = Superblock::decode(world.version, 64, &bytes).expect("a superblock");
        let copies: [Image; 2] = [disk.read(HEADER).clone(), disk.read(HEADER + 1).clone()];
        let known = world.known(&found, &bytes);
        let digest = world.digest(&bytes);
        let trust = Trust::of(&found, &known, [&copies[0], &copies[1]]);
        let marks = |header: &IntegrityHeader| {
            PageMarks::decode(AREA, header.area.pages(), disk.read(MARKS)).expect("a page of marks")
        };
        match trust {
            Trust::Trusted(header) => {
                let marked = MarkedPages::new(header.area, marks(&header), 0);
                let accepted = AcceptedSuperblocks::new(header, digest);
                let mut braid = Self::with(accepted, marked, Vec::new(), Purpose::Nothing);
                let page = TablePage::decode(AREA, 0, disk.read(PAGE));
                braid.page = page.unwrap_or_else(TablePage::unknown);
                if braid.marked.proves(0) || world.is_without(Rule::RebuildMarked) {
                    let sum = block_sum(disk.read(DATA));
                    if braid.page.get(0).is_some_and(|known| known != sum) {
                        return Err(Broken::FalseAlarm);
                    }
                    braid.marked.made_anew(0);
                } else {
                    braid.rebuild(disk);
                }
                Ok(braid)
            }
            Trust::Foreign(_) if alone => Err(Broken::Distrust),
            Trust::Foreign(header) => {
                let all = PageMarks::all(AREA, header.area.pages());
                let marked = MarkedPages::new(header.area, all, 0);
                let (accepted, mut steps) =
                    AcceptedSuperblocks::taken_over(&header, digest, &marked);
                if world.is_without(Rule::MarkAllFirst) {
                    steps.remove(1);
                }
                let mut braid = Self::with(accepted, marked, steps, Purpose::Nothing);
                braid.rebuild(disk);
                Ok(braid)
            }
            Trust::Absent if was_off => Ok(Self::without_area(world, disk)),
            Trust::Absent | Trust::Unwitnessed(_) | Trust::Damaged(_) => Err(Broken::Distrust),
        }
    }

    /// Makes the page anew, from what redundancy confirms.
    fn rebuild(&mut self, disk: &Disk) {
        self.page.set(0, Some(block_sum(disk.read(DATA))));
        self.marked.made_anew(0);
    }

    /// Carries the next step out.
    fn step(&mut self, world: World, disk: &mut Disk) -> bool {
        match self.steps.pop_front() {
            None => return false,
            Some(IntegrityStep::Flush) if world.is_without(Rule::DataBeforeClear) => {
                disk.flush_but(DATA);
            }
            Some(IntegrityStep::Flush) => disk.flush(),
            Some(IntegrityStep::Write(IntegrityWrite::Header { copy, bytes })) => {
                disk.put(HEADER + copy, bytes);
            }
            Some(IntegrityStep::Write(IntegrityWrite::Marks(page))) => {
                disk.put(MARKS, self.marked.marks().encode(page));
            }
            Some(IntegrityStep::Write(IntegrityWrite::Page(page))) => {
                disk.put(PAGE, self.page.encode(AREA, page as u64));
            }
            Some(IntegrityStep::Write(IntegrityWrite::Superblock)) => {
                disk.put(SUPER, self.image.take().expect("an image"));
            }
        }
        true
    }

    /// Lets go on what waited for the steps.
    fn completed(&mut self) {
        if !self.steps.is_empty() {
            return;
        }
        match std::mem::replace(&mut self.purpose, Purpose::Nothing) {
            Purpose::Nothing | Purpose::Clearing => {}
            Purpose::Marking => {
                self.marked.told(1);
                self.write = WriteStage::Ready;
            }
            Purpose::Settling => {
                self.steps = self.marked.clear_nominated().into();
                self.purpose = Purpose::Clearing;
            }
            Purpose::Superblock => self.accepted.superblock_written(),
            Purpose::TurningOff => self.is_off = true,
        }
    }

    /// All that it may do next.
    pub(super) fn goes_on(&self, world: World, disk: &Disk, may: Moves) -> Vec<Next> {
        let mut nexts = Vec::new();
        let mut add = |label, act: &dyn Fn(&mut Self, &mut Disk)| {
            let mut next = self.clone();
            let mut disk = disk.clone();
            act(&mut next, &mut disk);
            nexts.push((label, disk, next));
        };
        if !self.steps.is_empty() {
            add("step", &|braid, disk| {
                braid.step(world, disk);
                braid.completed();
            });
        }
        match self.write {
            WriteStage::None if may.writes && self.is_off => {
                add("write", &|_, disk| disk.put(DATA, vec![disk.read(DATA)[0] + 1]));
            }
            WriteStage::None if may.writes => {
                let mut probe = self.marked.clone();
                let needs_update = probe.begin(BLOCK, 1, &mut BTreeSet::new()) > 0;
                if !needs_update || self.steps.is_empty() {
                    add("begin", &|braid, _| braid.begin(world));
                }
            }
            WriteStage::Ready => add("write", &|braid, disk| {
                let value = disk.read(DATA)[0] + 1;
                disk.put(DATA, vec![value]);
                braid.write = WriteStage::Issued(value);
            }),
            WriteStage::Issued(value) => add("end", &|braid, _| {
                braid.page.set(0, Some(block_sum(&[value])));
                braid.marked.end(BLOCK, false);
                braid.write = WriteStage::None;
            }),
            WriteStage::None | WriteStage::Waiting => {}
        }
        if self.steps.is_empty() {
            self.begins_steps(world, may, &mut add);
        }
        nexts
    }

    fn begins_steps(&self, world: World, may: Moves, add: &mut Adds<'_>) {
        if self.is_off {
            return add("on", &|braid, disk| braid.turn_on(world, disk));
        }
        if self.marked.clearable() {
            add("settle", &|braid, _| braid.settle(world));
        }
        if may.superblocks {
            add("superblock", &|braid, disk| braid.tell(world, disk, may.seconds));
        }
        if may.turns_off && self.write == WriteStage::None {
            add("off", &|braid, _| {
                braid.steps = braid.accepted.wiped().into();
                braid.purpose = Purpose::TurningOff;
                if world.is_without(Rule::WipeFirst) {
                    braid.steps.pop_back();
                }
            });
        }
    }

    fn begin(&mut self, world: World) {
        let before = self.marked.clone();
        let mut pages = BTreeSet::new();
        let ticket = self.marked.begin(BLOCK, 1, &mut pages);
        if ticket == 0 {
            self.write = WriteStage::Ready;
            if world.is_without(Rule::WriteTakesOut) && self.purpose == Purpose::Settling {
                // The write is not counted before the marks are cleared.
                self.marked = before;
            }
            return;
        }
        self.write = WriteStage::Waiting;
        self.purpose = Purpose::Marking;
        self.steps = MarkedPages::marking(pages).into();
        if world.is_without(Rule::MarkFirst) {
            self.steps.retain(|step| *step != IntegrityStep::Flush);
        }
    }

    fn settle(&mut self, world: World) {
        let mut steps = self.marked.nominate();
        if world.is_without(Rule::TableBeforeClear) {
            steps.reverse();
        }
        self.steps = steps.into();
        if !self.steps.is_empty() {
            self.purpose = Purpose::Settling;
        }
    }

    /// Another superblock is due.
    fn tell(&mut self, world: World, disk: &Disk, seconds: u64) {
        let found = Superblock::decode(world.version, 64, disk.read(SUPER)).expect("a superblock");
        let next = superblock(world.version, found.events + 1, seconds).encode();
        let digest = world.digest(&next);
        self.image = Some(next.into());
        let before = self.accepted.clone();
        let mut steps = self.accepted.before_superblock(digest);
        if world.is_without(Rule::Both) {
            self.accepted = before;
            let header = self.accepted.header().next([digest, digest]);
            let bytes = header.encode();
            let step = IntegrityWrite::Header { copy: header.copy(), bytes };
            self.accepted = AcceptedSuperblocks::new(header, digest);
            steps[0] = IntegrityStep::Write(step);
        }
        if world.is_without(Rule::HeaderFirst) {
            steps.remove(1);
        }
        self.steps = steps.into();
        self.purpose = Purpose::Superblock;
    }

    /// All that makes a difference.
    pub(super) fn key(&self) -> Vec<u8> {
        let header = self.accepted.header().encode();
        let mut key = vec![2];
        key.extend(Image::from(header).number.to_le_bytes());
        key.push(self.is_off.into());
        key.extend(self.page.get(0).unwrap_or(7).to_le_bytes());
        let image = self.image.as_ref().map(|image| image.number);
        let rest = (self.purpose, self.write, image, self.steps.len(), &self.marked);
        key.extend(format!("{rest:?}").into_bytes());
        key
    }
}

impl World {
    /// The superblock as far as it is looked at.
    fn known(self, found: &Superblock, bytes: &Image) -> Image {
        if self.is_without(Rule::WholeSuperblock) {
            let roles = Vec::new();
            let without = Superblock { utime: time_code(0, 0), roles, ..found.clone() };
            return without.encode().into();
        }
        if self.is_without(Rule::EachSector) {
            let mut bytes = bytes.to_vec();
            let sum = block_sum(&bytes).to_le_bytes();
            bytes.chunks_mut(512).for_each(|sector| sector[..4].copy_from_slice(&sum));
            return bytes.into();
        }
        bytes.clone()
    }

    fn digest(self, bytes: &[u8]) -> SuperblockDigest {
        let bytes: Image = bytes.to_vec().into();
        let found = Superblock::decode(self.version, 64, &bytes).expect("a superblock");
        SuperblockDigest::of(self.version, &self.known(&found, &bytes)).expect("a superblock")
    }
}
