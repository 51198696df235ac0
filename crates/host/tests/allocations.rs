//! Reads and writes cost no allocation, on any level, with few members. Counted by an allocator of
//! our own, hence here and not beside the machine.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use braid_array::action::Event;
use braid_array::array::Scratch;
use braid_array::assemble::{Config, MemberConfig, Standing, StartLog};
use braid_array::format::superblock::{DevRole, MAX_SECTOR, Reshape, Version};
use braid_array::format::{BadBlocks, Superblock};
use braid_array::{
    Action, Array, BlockMachine, Buf, Instant, Machine, Op, Outcome, Request, RequestId, Role,
    SECTOR_BYTES,
};

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller keeps the contract of `alloc`, which is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the memory came from the system's allocator, with this layout.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MEMBER_SECTORS: u64 = 1 << 16;

fn superblock(level: i32, layout: u32, number: u32) -> Superblock {
    Superblock {
        version: Version::V1_2,
        feature_map: 0,
        set_uuid: [1; 16],
        set_name: [0; 32],
        ctime: 0,
        level,
        layout,
        size_sectors: if level > 0 { MEMBER_SECTORS } else { 0 },
        chunk_sectors: if level == 1 { 0 } else { 128 },
        raid_disks: 4,
        bitmap_offset_sectors: 0,
        reshape: Reshape { position: MAX_SECTOR, ..Reshape::default() },
        data_offset: 2048,
        data_size: MEMBER_SECTORS,
        super_offset: 8,
        recovery_offset: 0,
        dev_number: number,
        corrected_reads: 0,
        device_uuid: [0; 16],
        devflags: 0,
        bblog_shift: 0,
        bblog_size_sectors: 0,
        bblog_offset_sectors: 0,
        utime: 0,
        events: 1,
        resync_offset: MAX_SECTOR,
        roles: Role::all(4).map(DevRole::Active).collect(),
        ..Superblock::blank()
    }
}

fn array(level: i32, layout: u32) -> Array {
    let members = (0..4)
        .map(|number| MemberConfig {
            device: String::new(),
            device_sectors: 2048 + MEMBER_SECTORS,
            superblock: superblock(level, layout, number),
            bad_blocks: BadBlocks::default(),
            standing: Standing::InSync { role: Role::at(number as usize) },
        })
        .collect();
    let config = Config {
        superblock: superblock(level, layout, 0),
        members,
        bitmap: None,
        log: StartLog::None,
        read_only: false,
        force: false,
        block_bytes: 512,
        spill: None,
    };
    let bytes = Array::scratch_bytes(&config);
    Array::new(Instant(0), config, Scratch { offset: 0, bytes }).unwrap()
}

/// Runs requests with everything answered at once; how many allocations that took.
fn allocations(array: &mut Array, op: Op, requests: u64) -> u64 {
    allocations_of(array, op, requests, (64, 8))
}

/// The same for requests of so many sectors, at multiples of so many.
fn allocations_of(array: &mut Array, op: Op, requests: u64, (sectors, at): (u64, u64)) -> u64 {
    let before = COUNT.with(Cell::get);
    for number in 0..requests {
        let sector = number * 7919 % (MEMBER_SECTORS - sectors) / at * at;
        let buf = Buf { offset: 0, len: (sectors * SECTOR_BYTES) as u32 };
        let request = Request { id: RequestId(number), op, sector, sectors, buf };
        array.submit(Instant(number), request).unwrap();
        let mut completed = false;
        while let Some(action) = array.poll() {
            match action {
                Action::Io { io, .. } | Action::Compute { io, .. } => {
                    let done = Event::Done { io, result: Ok(Outcome::Done) };
                    array.handle(Instant(number), done);
                }
                Action::Complete { result, .. } => {
                    result.unwrap();
                    completed = true;
                }
                _ => {}
            }
        }
        assert!(completed, "request {number} was not answered");
    }
    COUNT.with(Cell::get) - before
}

#[test]
fn plain_reads_and_writes_allocate_nothing() {
    let write = Op::Write { fua: false };
    for (level, layout, ops) in [
        (0, 0, [Op::Read, write]),
        (1, 0, [Op::Read, write]),
        (10, 0x102, [Op::Read, write]),
        (5, 2, [Op::Read, Op::Read]),
        (6, 2, [Op::Read, Op::Read]),
    ] {
        let mut array = array(level, layout);
        for op in ops {
            allocations(&mut array, op, 1000);
            let count = allocations(&mut array, op, 10_000);
            assert_eq!(count, 0, "level {level}, {op:?}: allocations in 10000 requests");
        }
    }
}

#[test]
fn writes_with_parity_allocate_nothing() {
    let write = Op::Write { fua: false };
    // Four members, chunks of 128 sectors: a part of a chunk, read and modified or made of the
    // others; two chunks; a stripe.
    for (level, sectors, at) in
        [(5, 8, 8), (5, 64, 64), (5, 256, 384), (5, 384, 384), (6, 8, 8), (6, 256, 256)]
    {
        let mut array = array(level, 2);
        allocations_of(&mut array, write, 1000, (sectors, at));
        let count = allocations_of(&mut array, write, 1000, (sectors, at));
        assert_eq!(count, 0, "level {level}, {sectors} sectors: allocations in 1000 writes");
    }
}
