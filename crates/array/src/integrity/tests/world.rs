//! A member with one block of data, one page of table and a volatile cache. All that may happen to
//! it is tried, breadth first.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use super::braid::{Braid, Moves};
use crate::Role;
use crate::format::Superblock;
use crate::format::superblock::{DevRole, Version, time_code};

/// How far is explored.
const BOOTS: u8 = 3;
const CLOCK: u64 = 3;

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// The mark is durable before the first write to a page's blocks.
    MarkFirst,
    /// Checksums are durable before the mark is cleared.
    TableBeforeClear,
    /// So are the data.
    DataBeforeClear,
    /// The header accepts a superblock before that is written.
    HeaderFirst,
    /// The header accepts the old superblock beside the new one.
    Both,
    /// A superblock is known by all of it, not by its event count.
    WholeSuperblock,
    /// A superblock is known by each of its sectors.
    EachSector,
    /// All is marked, durably, before the header accepts a superblock of somebody else.
    MarkAllFirst,
    /// A page that was found marked is made anew, and not believed.
    RebuildMarked,
    /// A write takes its page out of those whose marks are about to be cleared.
    WriteTakesOut,
    /// The header is gone before data are written without marks.
    WipeFirst,
}

/// A promise that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// A checksum that is trusted does not fit its block.
    FalseAlarm,
    /// The table is lost although only Braid was here.
    Distrust,
}

/// Cells of the disk.
pub(super) const DATA: usize = 0;
pub(super) const PAGE: usize = 1;
pub(super) const MARKS: usize = 2;
pub(super) const HEADER: usize = 3;
pub(super) const SUPER: usize = 5;

/// Contents of a cell, with a number that stands for them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Image {
    pub(super) number: u64,
    bytes: Rc<[u8]>,
}

impl From<Vec<u8>> for Image {
    fn from(bytes: Vec<u8>) -> Self {
        // With its own checksum behind it, each content has the same checksum.
        let (words, rest) = bytes.as_chunks();
        let words = words.iter().map(|word| u64::from_le_bytes(*word));
        let words = words.chain(rest.iter().map(|byte| u64::from(*byte)));
        let number = words.fold(7, |sum: u64, word| {
            sum.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ word
        });
        Self { number, bytes: bytes.into() }
    }
}

impl std::ops::Deref for Image {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// What is durable, and later writes in their order.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    durable: [Image; 6],
    pending: Vec<(usize, Image)>,
}

impl Disk {
    pub(super) fn put(&mut self, cell: usize, image: impl Into<Image>) {
        self.pending.push((cell, image.into()));
    }

    pub(super) fn flush(&mut self) {
        for (cell, image) in std::mem::take(&mut self.pending) {
            self.durable[cell] = image;
        }
    }

    /// Makes all durable but writes to this cell.
    pub(super) fn flush_but(&mut self, kept: usize) {
        let (kept, rest) = std::mem::take(&mut self.pending).into_iter().partition(|p| p.0 == kept);
        self.pending = rest;
        self.flush();
        self.pending = kept;
    }

    pub(super) fn read(&self, cell: usize) -> &Image {
        let newest = self.pending.iter().rfind(|(at, _)| *at == cell);
        newest.map_or(&self.durable[cell], |(_, image)| image)
    }

    /// All that may be left by a power cut: of each cell the old content or any later one. Of a
    /// superblock 0.90 some sectors may be old and others new.
    fn cuts(&self, version: Version) -> Vec<[Image; 6]> {
        let mut left = vec![self.durable.clone()];
        for cell in 0..6 {
            let mut images: BTreeSet<Image> = BTreeSet::new();
            images.insert(self.durable[cell].clone());
            images.extend(self.pending.iter().filter(|p| p.0 == cell).map(|p| p.1.clone()));
            if cell == SUPER && version == Version::V0_90 {
                let whole: Vec<Image> = images.iter().cloned().collect();
                for first in &whole {
                    let torn = |rest: &Image| [&first[..512], &rest[512..]].concat().into();
                    images.extend(whole.iter().map(torn));
                }
            }
            let with = |disk: &[Image; 6], image: &Image| {
                let mut disk = disk.clone();
                disk[cell] = image.clone();
                disk
            };
            left = left.iter().flat_map(|disk| images.iter().map(|i| with(disk, i))).collect();
        }
        left
    }
}

/// Who runs the array.
#[derive(Clone, Debug)]
enum Owner {
    Nobody,
    Md,
    Braid(Box<Braid>),
}

#[derive(Clone, Debug)]
struct WorldState {
    disk: Disk,
    owner: Owner,
    writes: u8,
    boots: u8,
    clock: u64,
    md_was_here: bool,
    was_off: bool,
}

/// The outcome.
pub(super) struct Explored {
    pub(super) broken: Option<Broken>,
    pub(super) states: usize,
    pub(super) trail: Vec<String>,
}

/// What is explored.
#[derive(Clone, Copy)]
pub(super) struct World {
    pub(super) version: Version,
    pub(super) without: Option<Rule>,
    writes: u8,
}

/// A superblock of the member.
pub(super) fn superblock(version: Version, events: u64, seconds: u64) -> Superblock {
    let last = if seconds.is_multiple_of(2) { DevRole::Active(Role(1)) } else { DevRole::Faulty };
    Superblock {
        version,
        level: 1,
        raid_disks: 2,
        size_sectors: 8,
        data_size: 64,
        super_offset: 64,
        device_uuid: if version == Version::V0_90 { [0; 16] } else { [2; 16] },
        set_uuid: [1; 16],
        events,
        utime: time_code(seconds, 0),
        roles: vec![DevRole::Active(Role(0)), last],
        ..Superblock::blank()
    }
}

impl World {
    pub(super) const fn new(version: Version, without: Option<Rule>) -> Self {
        // Superblocks that are torn have more states.
        let writes = if version as u8 == Version::V0_90 as u8 { 1 } else { 2 };
        Self { version, without, writes }
    }

    pub(super) fn is_without(self, rule: Rule) -> bool {
        self.without == Some(rule)
    }

    fn start(self) -> WorldState {
        let first = superblock(self.version, 1, 1);
        let empty: Image = vec![0; 4096].into();
        let mut durable: [Image; 6] = std::array::from_fn(|_| empty.clone());
        durable[DATA] = vec![0].into();
        durable[SUPER] = first.encode().into();
        let mut disk = Disk { durable, pending: Vec::new() };
        Braid::make(self, &mut disk);
        WorldState {
            disk,
            owner: Owner::Nobody,
            writes: 0,
            boots: 0,
            clock: 1,
            md_was_here: false,
            was_off: false,
        }
    }

    pub(super) fn explore(self) -> Explored {
        let mut seen: BTreeMap<StateKey, usize> = BTreeMap::new();
        let mut before: Vec<(usize, &'static str)> = vec![(0, "start")];
        let mut queue = VecDeque::from([(0, self.start())]);
        while let Some((number, state)) = queue.pop_front() {
            let nexts = match self.nexts(&state) {
                Ok(nexts) => nexts,
                Err(broken) => {
                    let mut trail = vec![format!("{broken:?}")];
                    let mut at = number;
                    while at > 0 {
                        trail.push(before[at].1.to_owned());
                        at = before[at].0;
                    }
                    trail.reverse();
                    return Explored { broken: Some(broken), states: before.len(), trail };
                }
            };
            for (label, next) in nexts {
                let fresh = before.len();
                if *seen.entry(key(&next)).or_insert(fresh) == fresh {
                    before.push((number, label));
                    queue.push_back((fresh, next));
                }
            }
        }
        Explored { broken: None, states: before.len(), trail: Vec::new() }
    }

    fn nexts(self, state: &WorldState) -> Result<Vec<(&'static str, WorldState)>, Broken> {
        let mut nexts = Vec::new();
        if !matches!(state.owner, Owner::Nobody) {
            for durable in state.disk.cuts(self.version) {
                let disk = Disk { durable, pending: Vec::new() };
                nexts.push(("cut", WorldState { disk, owner: Owner::Nobody, ..state.clone() }));
            }
        }
        match &state.owner {
            Owner::Nobody if state.boots < BOOTS => self.starts(state, &mut nexts)?,
            Owner::Nobody => drop(self.assemble(state)?),
            Owner::Md => self.md_goes_on(state, &mut nexts),
            Owner::Braid(braid) => {
                let may = Moves {
                    writes: state.writes < self.writes,
                    superblocks: state.clock < CLOCK,
                    turns_off: !state.was_off,
                    seconds: state.clock + 1,
                };
                for (label, disk, braid) in braid.goes_on(self, &state.disk, may) {
                    let mut next = state.clone();
                    next.disk = disk;
                    next.owner = Owner::Braid(Box::new(braid));
                    next.writes += u8::from(label == "write");
                    next.clock += u64::from(label == "superblock");
                    next.was_off |= label == "off";
                    nexts.push((label, next));
                }
            }
        }
        Ok(nexts)
    }

    fn assemble(self, state: &WorldState) -> Result<Braid, Broken> {
        Braid::assemble(self, &state.disk, !state.md_was_here, state.was_off)
    }

    /// Braid starts, or md, which writes a superblock first: its event count may stay the same, and
    /// its time moves.
    fn starts(
        self,
        state: &WorldState,
        nexts: &mut Vec<(&'static str, WorldState)>,
    ) -> Result<(), Broken> {
        let boots = state.boots + 1;
        let owner = Owner::Braid(Box::new(self.assemble(state)?));
        nexts.push(("braid", WorldState { owner, boots, ..state.clone() }));
        let found = Superblock::decode(self.version, 64, state.disk.read(SUPER));
        let found = found.expect("a superblock");
        let clock = state.clock + 1;
        for events in [found.events, found.events + 1] {
            let mut disk = state.disk.clone();
            disk.put(SUPER, superblock(self.version, events, clock).encode());
            disk.flush();
            let owner = Owner::Md;
            let md = WorldState { disk, owner, boots, clock, md_was_here: true, ..state.clone() };
            nexts.push(("md", md));
        }
        Ok(())
    }

    fn md_goes_on(self, state: &WorldState, nexts: &mut Vec<(&'static str, WorldState)>) {
        if state.writes < self.writes {
            let mut next = state.clone();
            next.writes += 1;
            next.disk.put(DATA, vec![next.writes]);
            nexts.push(("md writes", next));
        }
        let mut stopped = state.clone();
        stopped.disk.flush();
        if !state.disk.pending.is_empty() {
            nexts.push(("md flushes", stopped.clone()));
        }
        stopped.owner = Owner::Nobody;
        nexts.push(("md stops", stopped));
    }
}

type StateKey = (Vec<u64>, Vec<u8>);

fn key(state: &WorldState) -> StateKey {
    let pending = state.disk.pending.iter();
    let pending = pending.flat_map(|(cell, image)| [*cell as u64, image.number]);
    let contents = state.disk.durable.iter().map(|image| image.number).chain(pending);
    let flags = [state.md_was_here, state.was_off].map(u8::from);
    let mut rest = [&flags[..], &[state.writes, state.boots, state.clock as u8]].concat();
    match &state.owner {
        Owner::Nobody => rest.push(0),
        Owner::Md => rest.push(1),
        Owner::Braid(braid) => rest.extend(braid.key()),
    }
    (contents.collect(), rest)
}
