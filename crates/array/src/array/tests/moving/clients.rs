//! Clients that read and write while data move, [`Clients`].

use std::collections::BTreeMap;

use super::super::world::World;
use super::super::*;
use crate::RequestId;
use crate::action::Command;

/// A random source for a test.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn below(&mut self, most: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// A request that is not answered: its kind, where it is, and its buffer.
pub(super) struct Asked {
    id: RequestId,
    /// What it writes; none for a read.
    bytes: Option<Vec<u8>>,
    sector: u64,
    sectors: u64,
    buf: Buf,
    slot: u64,
    /// What was there when the read began; a write over it meanwhile makes it any.
    expected: Option<Vec<u8>>,
}

const SLOTS: u64 = 24;
const SLOT_SECTORS: u64 = 64;

/// Clients that read and write while data move, and what they may find.
pub(super) struct Clients {
    pub(super) world: World,
    pub(super) dice: Dice,
    /// Acknowledged content.
    pub(super) content: Vec<u8>,
    /// What a sector held before it was written, where nothing was flushed since.
    pub(super) before: BTreeMap<u64, Vec<Vec<u8>>>,
    pub(super) asked: Vec<Asked>,
    free: Vec<u64>,
    pub(super) what: String,
}

pub(super) fn range(sector: u64, sectors: u64) -> std::ops::Range<usize> {
    (sector * SECTOR_BYTES) as usize..((sector + sectors) * SECTOR_BYTES) as usize
}

impl Clients {
    pub(super) fn new(world: World, content: Vec<u8>, seed: u64, what: String) -> Self {
        let dice = Dice(seed);
        let free = (0..SLOTS).collect();
        Self { world, dice, content, before: BTreeMap::new(), asked: Vec::new(), free, what }
    }

    fn ask(&mut self) {
        let all = self.content.len() as u64 / SECTOR_BYTES;
        let sectors = 1 + self.dice.below(SLOT_SECTORS);
        let sector = self.dice.below(all - sectors);
        let writes = self.dice.below(2) == 0;
        let overlaps = |other: &Asked| {
            other.sector < sector + sectors && sector < other.sector + other.sectors
        };
        if self.asked.iter().any(|other| overlaps(other) && (writes || other.bytes.is_some())) {
            return;
        }
        let Some(slot) = self.free.pop() else { return };
        let offset = self.world.arena.len() as u64 - (4 << 20) + slot * SLOT_SECTORS * SECTOR_BYTES;
        let buf = Buf { offset, len: (sectors * SECTOR_BYTES) as u32 };
        let bytes = writes.then(|| noise(self.dice.below(1 << 30), buf.len as usize));
        let op = match &bytes {
            Some(bytes) => {
                self.world.bytes(buf).copy_from_slice(bytes);
                Op::Write { fua: self.dice.below(4) == 0 }
            }
            None => Op::Read,
        };
        let id = self.world.ask(op, sector, sectors, buf);
        let expected = (!writes).then(|| self.content[range(sector, sectors)].to_vec());
        self.asked.push(Asked { id, bytes, sector, sectors, buf, slot, expected });
        self.world.run_until_idle();
    }

    pub(super) fn take_answers(&mut self) {
        for (id, result) in std::mem::take(&mut self.world.answers) {
            let Some(at) = self.asked.iter().position(|asked| asked.id == id) else { continue };
            let asked = self.asked.swap_remove(at);
            if result == Err(RequestError::BufferHeld) && asked.bytes.is_none() {
                // Who asked tries again with other memory.
                continue;
            }
            self.free.push(asked.slot);
            assert_eq!(result, Ok(()), "{}", self.what);
            let place = range(asked.sector, asked.sectors);
            if let Some(bytes) = asked.bytes {
                for number in asked.sector..asked.sector + asked.sectors {
                    let old = self.content[range(number, 1)].to_vec();
                    self.before.entry(number).or_default().push(old);
                }
                self.content[place].copy_from_slice(&bytes);
            } else if let Some(expected) = asked.expected {
                let read = self.world.bytes(asked.buf).to_vec();
                assert!(read == expected, "{}: a read at {}", self.what, asked.sector);
            }
        }
    }

    /// A member fails, any.
    pub(super) fn fail_one(&mut self) {
        let count = self.world.disks.len() as u64;
        let id = MemberId(self.dice.below(count) as u16);
        self.world.tell(Command::Fail(id));
        self.take_answers();
    }

    pub(super) fn step(&mut self) {
        match self.dice.below(8) {
            0 | 1 => self.ask(),
            2 => _ = self.world.pass_time(),
            _ if !self.world.held.is_empty() => {
                let one = self.dice.below(self.world.held.len() as u64) as usize;
                self.world.release_one(one);
            }
            _ => _ = self.world.pass_time(),
        }
        self.take_answers();
    }

    /// All that was acknowledged is there; what was not is there, or what was before it, sector by
    /// sector.
    pub(super) fn compare(&mut self) {
        let all = self.content.len() as u64 / SECTOR_BYTES;
        let mut now = self.content.clone();
        for sector in (0..all).step_by(512) {
            let sectors = (all - sector).min(512);
            let read = self.world.read(sector, sectors).unwrap();
            for (number, found) in (sector..).zip(read.chunks(SECTOR_BYTES as usize)) {
                let known = &self.content[range(number, 1)];
                let maybe = self.asked.iter().find_map(|asked| {
                    let at = number.checked_sub(asked.sector).filter(|at| *at < asked.sectors)?;
                    Some(&asked.bytes.as_ref()?[range(at, 1)])
                });
                let mut older = self.before.get(&number).into_iter().flatten();
                let fits = found == known || maybe == Some(found) || older.any(|old| old == found);
                assert!(fits, "{}: at sector {number}", self.what);
                now[range(number, 1)].copy_from_slice(found);
            }
        }
        self.content = now;
    }
}
