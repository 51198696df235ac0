//! The machine against disks in memory that answer at once. What happens under faults, delays and
//! power cuts is the simulator's business.

use super::*;
use crate::action::{Checked, Command, Compute, IoError, Outcome};
use crate::assemble::{MemberConfig, Standing};
use crate::format::superblock::{Role, Version};
use crate::format::{BadBlocks, Superblock};
use crate::{Buf, IoOp, Op, RequestError, RequestId, SECTOR_BYTES};

const DATA_OFFSET: u64 = 64;
const MEMBER_SECTORS: u64 = 2048;

struct World {
    array: Box<dyn Machine>,
    arena: Vec<u8>,
    disks: Vec<Option<Vec<u8>>>,
    bad: Vec<(MemberId, u64)>,
    now: Instant,
    reads: usize,
    writes: usize,
    events: Vec<ArrayEvent>,
    next: u64,
    members_per_array: Option<usize>,
}

fn superblock(level: i32, layout: u32, disks: u32, chunk: u32, number: u32) -> Superblock {
    let plain = level <= 0;
    Superblock {
        version: Version::V1_2,
        feature_map: 0,
        set_uuid: [7; 16],
        set_name: [0; 32],
        ctime: 0,
        level,
        layout,
        size_sectors: if plain { 0 } else { MEMBER_SECTORS },
        chunk_sectors: if level == 1 { 0 } else { chunk },
        raid_disks: disks,
        bitmap_offset_sectors: 0,
        reshape: crate::format::superblock::Reshape { position: u64::MAX, ..Default::default() },
        data_offset: DATA_OFFSET,
        data_size: MEMBER_SECTORS,
        super_offset: 8,
        recovery_offset: 0,
        dev_number: number,
        corrected_reads: 0,
        device_uuid: [number as u8; 16],
        devflags: 0,
        bblog_shift: 0,
        bblog_size_sectors: 8,
        bblog_offset_sectors: 16,
        utime: 0,
        events: 10,
        resync_offset: MAX_SECTOR,
        roles: (0..disks as u16).map(Role::Active).collect(),
    }
}

fn config(level: i32, layout: u32, disks: u32, chunk: u32) -> Config {
    let members = (0..disks)
        .map(|number| MemberConfig {
            device: format!("disk{number}"),
            device_sectors: DATA_OFFSET + MEMBER_SECTORS,
            superblock: superblock(level, layout, disks, chunk, number),
            bad_blocks: BadBlocks::default(),
            standing: Standing::InSync { role: number as u16 },
        })
        .collect();
    Config {
        superblock: superblock(level, layout, disks, chunk, 0),
        members,
        bitmap: None,
        read_only: false,
        force: false,
        block_bytes: 512,
    }
}

impl World {
    fn new(level: i32, layout: u32, disks: u32, chunk: u32) -> Self {
        Self::with(level, layout, disks, chunk, |_| {})
    }

    fn with(level: i32, layout: u32, disks: u32, chunk: u32, change: impl Fn(&mut Config)) -> Self {
        let mut config = config(level, layout, disks, chunk);
        change(&mut config);
        let bytes = Array::scratch_bytes(&config);
        let array = Array::new(Instant(0), config, Scratch { offset: 0, bytes }).unwrap();
        Self::around(Box::new(array), disks as usize, bytes)
    }

    /// `outer` over arrays of shape `inner`, as many as `outer` has members.
    fn stack(outer: (i32, u32, u32, u32), inner: (i32, u32, u32, u32)) -> Self {
        let mut offset = 0;
        let mut start = |config: Config| {
            let bytes = Array::scratch_bytes(&config);
            offset += bytes;
            let scratch = Scratch { offset: offset - bytes, bytes };
            Array::new(Instant(0), config, scratch).unwrap()
        };
        let arrays: Vec<Array> =
            (0..outer.2).map(|_| start(config(inner.0, inner.1, inner.2, inner.3))).collect();
        let mut top = config(outer.0, outer.1, outer.2, outer.3);
        for member in &mut top.members {
            member.device_sectors = arrays[0].array_sectors();
            member.superblock.data_size = arrays[0].array_sectors() - DATA_OFFSET;
        }
        let top = start(top);
        let stack = crate::stack::Stack::new(top, arrays).unwrap();
        let mut world = Self::around(Box::new(stack), (inner.2 * outer.2) as usize, offset);
        world.members_per_array = Some(inner.2 as usize);
        world
    }

    fn around(array: Box<dyn Machine>, disks: usize, scratch_bytes: u64) -> Self {
        let disk_bytes = ((DATA_OFFSET + MEMBER_SECTORS) * SECTOR_BYTES) as usize;
        Self {
            array,
            arena: vec![0; scratch_bytes as usize + (4 << 20)],
            disks: vec![Some(vec![0; disk_bytes]); disks],
            bad: Vec::new(),
            now: Instant(0),
            reads: 0,
            writes: 0,
            events: Vec::new(),
            next: 1,
            members_per_array: None,
        }
    }

    /// The disk behind a member; leaf ids of a stack are far apart.
    fn disk(&self, member: MemberId) -> usize {
        match self.members_per_array {
            Some(count) => usize::from(member.0 / 1024) * count + usize::from(member.0 % 1024),
            None => usize::from(member.0),
        }
    }

    fn bytes(&mut self, buf: Buf) -> &mut [u8] {
        &mut self.arena[buf.offset as usize..][..buf.len as usize]
    }

    fn data_buf(&self, len: usize) -> Buf {
        Buf { offset: (self.arena.len() - (2 << 20)) as u64, len: len as u32 }
    }

    fn member_io(&mut self, member: MemberId, op: IoOp) -> Result<Outcome, IoError> {
        let index = self.disk(member);
        let disk = self.disks[index].as_mut().ok_or(IoError::Gone)?;
        let range = |sector: u64, bytes: u64| {
            let start = (sector * SECTOR_BYTES) as usize;
            start..start + bytes as usize
        };
        match op {
            IoOp::Read { sector, buf } => {
                self.reads += 1;
                let end = sector + u64::from(buf.len) / SECTOR_BYTES;
                if self.bad.iter().any(|(m, s)| *m == member && (sector..end).contains(s)) {
                    return Err(IoError::Medium);
                }
                let bytes = disk[range(sector, buf.len.into())].to_vec();
                self.bytes(buf).copy_from_slice(&bytes);
            }
            IoOp::Write { sector, buf, .. } => {
                self.writes += 1;
                let end = sector + u64::from(buf.len) / SECTOR_BYTES;
                self.bad.retain(|(m, s)| *m != member || !(sector..end).contains(s));
                let bytes = self.bytes(buf).to_vec();
                let disk = self.disks[index].as_mut().unwrap();
                disk[range(sector, bytes.len() as u64)].copy_from_slice(&bytes);
            }
            IoOp::WriteZeroes { sector, sectors, .. } => {
                disk[range(sector, sectors * SECTOR_BYTES)].fill(0);
            }
            IoOp::Discard { .. } | IoOp::Flush => {}
        }
        Ok(Outcome::Done)
    }

    fn compute(&mut self, compute: Compute) -> Outcome {
        match compute {
            Compute::Sum { inputs, coefs, outputs, accumulate } => {
                let inputs: Vec<Vec<u8>> =
                    inputs.into_iter().map(|buf| self.bytes(buf).to_vec()).collect();
                for (output, row) in outputs.into_iter().zip(coefs.chunks(inputs.len())) {
                    let mut sum = vec![0; output.len as usize];
                    if accumulate {
                        sum.copy_from_slice(self.bytes(output));
                    }
                    for (input, coef) in inputs.iter().zip(row) {
                        for (to, from) in sum.iter_mut().zip(input) {
                            *to ^= braid_parity::gf::mul(*coef, *from);
                        }
                    }
                    self.bytes(output).copy_from_slice(&sum);
                }
                Outcome::Done
            }
            Compute::Check { data, q_coefs, p, q } => {
                let data: Vec<Vec<u8>> =
                    data.into_iter().map(|buf| self.bytes(buf).to_vec()).collect();
                let p = self.bytes(p).to_vec();
                let q = q.map(|buf| self.bytes(buf).to_vec());
                let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
                let found = braid_parity::check(&data, &q_coefs, &p, q.as_deref());
                Outcome::Checked(Checked {
                    p_differs: found.p_differs,
                    q_differs: found.q_differs,
                    data_located: found.data_located,
                })
            }
            Compute::Compare { a, b } => {
                let (a, b) = (self.bytes(a).to_vec(), self.bytes(b).to_vec());
                let p_differs = braid_parity::equal_blocks(&a, &b);
                Outcome::Checked(Checked { p_differs, ..Checked::default() })
            }
        }
    }

    /// Runs until nothing is left to do; the answers that came.
    fn run(&mut self) -> Vec<(RequestId, Result<(), RequestError>)> {
        let mut done = Vec::new();
        loop {
            while let Some(action) = self.array.poll() {
                let (io, result) = match action {
                    Action::Io { io, member, op } => (io, self.member_io(member, op)),
                    Action::Compute { io, compute } => (io, Ok(self.compute(compute))),
                    Action::Store { buf, bytes } => {
                        self.bytes(buf).copy_from_slice(&bytes);
                        continue;
                    }
                    Action::Complete { id, result } => {
                        done.push((id, result));
                        continue;
                    }
                    Action::Reply { id, result } => {
                        result.unwrap();
                        done.push((RequestId(id.0), Ok(())));
                        continue;
                    }
                    Action::Notify(event) => {
                        self.events.push(event);
                        continue;
                    }
                };
                self.array.handle(self.now, Event::Done { io, result });
            }
            match self.array.deadline() {
                Some(at) if self.now < Instant(3_600_000_000_000) => {
                    self.now = self.now.max(at);
                    self.array.handle(self.now, Event::Tick);
                }
                _ => return done,
            }
        }
    }

    fn request(&mut self, op: Op, sector: u64, sectors: u64, buf: Buf) {
        let id = RequestId(self.next);
        self.next += 1;
        let request = Request { id, op, sector, sectors, buf };
        self.array.submit(self.now, request).unwrap();
    }

    fn write(&mut self, sector: u64, data: &[u8]) -> Result<(), RequestError> {
        let buf = self.data_buf(data.len());
        self.bytes(buf).copy_from_slice(data);
        self.request(Op::Write { fua: false }, sector, data.len() as u64 / SECTOR_BYTES, buf);
        let done = self.run();
        assert_eq!(done.len(), 1, "one answer to one write");
        done[0].1
    }

    fn read(&mut self, sector: u64, sectors: u64) -> Result<Vec<u8>, RequestError> {
        let buf = self.data_buf((sectors * SECTOR_BYTES) as usize);
        self.bytes(buf).fill(0xee);
        self.request(Op::Read, sector, sectors, buf);
        let done = self.run();
        assert_eq!(done.len(), 1, "one answer to one read");
        done[0].1.map(|()| self.bytes(buf).to_vec())
    }

    fn command(&mut self, command: Command) {
        let id = CommandId(self.next);
        self.next += 1;
        self.array.handle(self.now, Event::Command { id, command });
        let done = self.run();
        assert_eq!(done, [(RequestId(id.0), Ok(()))]);
    }

    fn check(&mut self) -> u64 {
        self.command(Command::Scrub { repair: false });
        self.array.status().mismatch_sectors.unwrap()
    }
}

/// Pseudo-random bytes.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        })
        .collect()
}

const SHAPES: &[(i32, u32, u32, u32)] = &[
    (-1, 0, 2, 16),
    (0, 2, 3, 16),
    (1, 0, 2, 0),
    (1, 0, 3, 0),
    (4, 0, 4, 32),
    (5, 2, 3, 16),
    (5, 0, 4, 256),
    (5, 3, 5, 32),
    (6, 2, 4, 16),
    (6, 0, 5, 32),
    (6, 8, 6, 128),
    (6, 10, 5, 16),
    (6, 18, 5, 16),
    (10, 0x102, 4, 16),
    (10, 0x102, 3, 16),
    (10, 0x201, 4, 32),
    (10, 0x10201, 5, 16),
    (10, 0x103, 5, 16),
];

/// Fills the array with writes of odd sizes; what it holds then.
fn fill(world: &mut World) -> Vec<u8> {
    let sectors = world.array.array_sectors();
    let content = noise(sectors, (sectors * SECTOR_BYTES) as usize);
    let mut sector = 0;
    for step in 0.. {
        let len = [1, 7, 128, 513, 64, 1024, 333][step % 7].min(sectors - sector);
        if len == 0 {
            break;
        }
        let bytes = &content[(sector * SECTOR_BYTES) as usize..][..(len * SECTOR_BYTES) as usize];
        world.write(sector, bytes).unwrap();
        sector += len;
    }
    content
}

fn compare(world: &mut World, content: &[u8], what: &str) {
    let sectors = world.array.array_sectors();
    let mut sector = 0;
    while sector < sectors {
        let len = (sectors - sector).min(777);
        let read = world.read(sector, len).unwrap_or_else(|e| panic!("{what}: {sector}: {e}"));
        let start = (sector * SECTOR_BYTES) as usize;
        assert!(read == content[start..start + read.len()], "{what}: at sector {sector}");
        sector += len;
    }
}

#[test]
fn what_is_written_is_read_and_parity_fits() {
    for &(level, layout, disks, chunk) in SHAPES {
        let what = format!("level {level} layout {layout:#x} disks {disks} chunk {chunk}");
        let mut world = World::new(level, layout, disks, chunk);
        let content = fill(&mut world);
        compare(&mut world, &content, &what);
        if level > 0 {
            assert_eq!(world.check(), 0, "{what}");
        }
    }
}

#[test]
fn every_loss_the_level_survives_is_survived_and_rebuilt() {
    for &(level, layout, disks, chunk) in SHAPES.iter().filter(|shape| shape.0 > 0) {
        for lost in 0..disks as u16 {
            let what = format!("level {level} layout {layout:#x} disks {disks} lost {lost}");
            let mut world = World::new(level, layout, disks, chunk);
            let mut content = fill(&mut world);
            world.command(Command::Fail(MemberId(lost)));
            compare(&mut world, &content, &what);
            // Degraded writes, scattered.
            for step in 0..40u64 {
                let sectors = world.array.array_sectors();
                let sector = step * 7919 % (sectors - 64);
                let bytes = noise(step, ((1 + step % 64) * SECTOR_BYTES) as usize);
                world.write(sector, &bytes).unwrap();
                content[(sector * SECTOR_BYTES) as usize..][..bytes.len()].copy_from_slice(&bytes);
            }
            compare(&mut world, &content, &format!("{what}, written degraded"));
            world.command(Command::Remove(MemberId(lost)));
            let len = world.disks[0].as_ref().unwrap().len();
            world.disks[usize::from(lost)] = Some(vec![0x55; len]);
            world.command(Command::Add(Box::new(crate::action::NewMember {
                member: MemberId(lost),
                device: "new".into(),
                device_sectors: DATA_OFFSET + MEMBER_SECTORS,
                superblock: None,
                bad_blocks: BadBlocks::default(),
                readd: false,
                device_uuid: [9; 16],
            })));
            world.run();
            assert_eq!(world.array.status().degraded, 0, "{what}");
            compare(&mut world, &content, &format!("{what}, recovered"));
            assert_eq!(world.check(), 0, "{what}");
        }
    }
}

#[test]
fn a_read_error_is_answered_from_redundancy_and_rewritten() {
    for &(level, layout, disks, chunk) in SHAPES.iter().filter(|shape| shape.0 > 0) {
        let what = format!("level {level} layout {layout:#x} disks {disks}");
        let mut world = World::new(level, layout, disks, chunk);
        let content = fill(&mut world);
        world.bad.extend((0..disks as u16).map(|d| (MemberId(d), 100 + u64::from(d) * 256)));
        compare(&mut world, &content, &what);
        compare(&mut world, &content, &what);
        assert_eq!(world.check(), 0, "{what}");
        assert!(world.bad.is_empty(), "{what}: {:?} not rewritten", world.bad);
        assert_eq!(world.array.status().degraded, 0, "{what}");
    }
}

#[test]
fn adjacent_writes_handed_in_together_are_one_full_stripe() {
    let mut world = World::new(5, 2, 3, 128);
    world.write(0, &noise(1, 512)).unwrap();
    world.reads = 0;
    world.writes = 0;
    for piece in 0..32 {
        let buf = Buf { len: 4096, ..world.data_buf(0) };
        let buf = Buf { offset: buf.offset + piece * 4096, ..buf };
        world.request(Op::Write { fua: false }, 256 + piece * 8, 8, buf);
    }
    let answered = world.run().len();
    assert_eq!((answered, world.reads), (32, 0), "a full stripe needs no reads");
}

#[test]
fn one_member_too_many_stops_writes_with_an_error() {
    let mut world = World::new(5, 2, 3, 16);
    let content = fill(&mut world);
    world.disks[0] = None;
    world.write(0, &content[..65536]).unwrap();
    world.disks[1] = None;
    assert_eq!(world.write(0, &content[..65536]), Err(RequestError::Failed));
    assert!(world.events.contains(&ArrayEvent::ArrayFailed));
}

#[test]
fn zeroes_read_as_zeroes_and_keep_parity() {
    for &(level, layout, disks, chunk) in SHAPES {
        let mut world = World::new(level, layout, disks, chunk);
        let mut content = fill(&mut world);
        let (from, to) = (13, world.array.array_sectors() - 29);
        world.request(Op::WriteZeroes { fua: true, unmap: true }, from, to - from, Buf::default());
        assert_eq!(world.run().len(), 1);
        content[(from * SECTOR_BYTES) as usize..(to * SECTOR_BYTES) as usize].fill(0);
        compare(&mut world, &content, &format!("level {level} layout {layout:#x}"));
        if level > 0 {
            assert_eq!(world.check(), 0, "level {level} layout {layout:#x}");
        }
    }
}

#[test]
fn arrays_of_arrays_lose_one_member_each_and_recover() {
    for (outer, inner) in [
        ((0, 2, 2, 16), (1, 0, 2, 0)),
        ((0, 2, 2, 16), (5, 2, 3, 16)),
        ((0, 2, 2, 32), (6, 2, 4, 16)),
        ((-1, 0, 2, 16), (10, 0x102, 3, 16)),
    ] {
        let what = format!("{outer:?} over {inner:?}");
        let mut world = World::stack(outer, inner);
        let content = fill(&mut world);
        compare(&mut world, &content, &what);
        for array in 0..outer.2 as u16 {
            let leaf = crate::stack::Stack::leaf(array, MemberId(1));
            world.command(Command::Fail(leaf));
            world.command(Command::Remove(leaf));
        }
        compare(&mut world, &content, &format!("{what}, degraded"));
        for number in 0..outer.2 {
            let member = world.array.free_member().unwrap();
            world.command(Command::Add(Box::new(crate::action::NewMember {
                member,
                device: format!("new{number}"),
                device_sectors: DATA_OFFSET + MEMBER_SECTORS,
                superblock: None,
                bad_blocks: BadBlocks::default(),
                readd: false,
                device_uuid: [9; 16],
            })));
            world.run();
        }
        let status = world.array.status();
        assert!(status.children.iter().all(|child| child.degraded == 0), "{what}");
        compare(&mut world, &content, &format!("{what}, recovered"));
        world.command(Command::Scrub { repair: false });
        for child in world.array.status().children {
            assert_eq!(child.mismatch_sectors, Some(0), "{what}");
        }
        world.command(Command::Stop);
    }
}

#[test]
fn one_unreadable_sector_costs_one_rewritten_block() {
    for (level, layout, disks, chunk) in [(1, 0, 2, 0), (5, 2, 3, 128), (10, 0x102, 4, 128)] {
        let mut world = World::new(level, layout, disks, chunk);
        let content = fill(&mut world);
        world.bad.push((MemberId(0), DATA_OFFSET + 21));
        world.writes = 0;
        let read = world.read(0, 128).unwrap();
        assert!(read == content[..read.len()], "level {level}");
        let corrected = |event: &ArrayEvent| matches!(event, ArrayEvent::ReadCorrected { .. });
        let count = world.events.iter().filter(|event| corrected(event)).count();
        assert_eq!((world.writes, count), (1, 1), "level {level}: {:?}", world.events);
    }
}
