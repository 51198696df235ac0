//! The server without a kernel that asks: a file has the descriptors at its beginning and the data
//! of requests where a device has them, and takes no commands.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use braid_array::action::Event;
use braid_array::request::Full;
use braid_array::status::Status;
use braid_array::{
    Action, BlockMachine, Instant, Machine, MemberId, Op, Request, RequestError, SECTOR_BYTES,
};

use super::proto::{DESCRIPTOR_BYTES, Shape, data_offset};
use super::server::UblkServer;
use super::table::DescriptorTable;
use crate::arena::Arena;
use crate::driver::{Completion, Driver};
use crate::engine::array_size::ArraySize;
use crate::engine::core::Core;
use crate::engine::export::Export;
use crate::engine::scattered::ScatteredRanges;
use crate::lock::LockedFile;
use crate::token::{ExportId, ExportToken, Owner};

const SIZE: u64 = 64 << 20;
const DEPTH: u16 = 64;

/// Takes requests, and keeps them.
struct Taken(Vec<Request>, u64);

impl Machine for Taken {
    fn handle(&mut self, _now: Instant, _event: Event) {}

    fn poll(&mut self) -> Option<Action> {
        None
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn idle(&self) -> bool {
        self.0.is_empty()
    }
}

impl BlockMachine for Taken {
    fn submit(&mut self, _now: Instant, request: Request) -> Result<(), Full> {
        request.fits(self.array_sectors(), 512).unwrap();
        self.0.push(request);
        Ok(())
    }

    fn status(&self) -> Status {
        Status::blank()
    }

    fn array_sectors(&self) -> u64 {
        self.1 / SECTOR_BYTES
    }

    fn block_bytes(&self) -> u32 {
        512
    }

    fn read_only(&self) -> bool {
        false
    }

    fn free_member(&self) -> Option<MemberId> {
        None
    }
}

struct World {
    core: Core,
    server: UblkServer,
    machine: Taken,
    device: File,
    failed: std::sync::Arc<std::os::fd::OwnedFd>,
}

impl World {
    fn new(request_bytes: u64) -> Self {
        let device = tempfile::tempfile().unwrap();
        device.set_len(data_offset(DEPTH)).unwrap();
        let table = DescriptorTable::of(&device, DEPTH).unwrap();
        let shape = Shape { size_bytes: SIZE, block_bytes: 512, most_bytes: Request::MAX_BYTES };
        let flags = rustix::event::EventfdFlags::NONBLOCK;
        let failed = std::sync::Arc::new(rustix::event::eventfd(0, flags).unwrap());
        let locked = LockedFile::from(device.try_clone().unwrap());
        let mut server = UblkServer::new(0, locked, table, shape, std::sync::Arc::clone(&failed));
        let arena = Arena::new(0, request_bytes).unwrap();
        let driver = Driver::threads(arena.memory()).unwrap();
        let mut core = Core::new(arena, driver, ScatteredRanges::default());
        server.start(&mut core, ExportId(0));
        Self { core, server, machine: Taken(Vec::new(), SIZE), device, failed }
    }

    /// The kernel asks something of this tag.
    fn ask(&mut self, tag: u16, op: u32, sectors: u32, first: u64) {
        let mut bytes = [0; DESCRIPTOR_BYTES];
        bytes[..4].copy_from_slice(&op.to_le_bytes());
        bytes[4..8].copy_from_slice(&sectors.to_le_bytes());
        bytes[8..16].copy_from_slice(&first.to_le_bytes());
        self.device.write_all_at(&bytes, u64::from(tag) * DESCRIPTOR_BYTES as u64).unwrap();
        let token = ExportToken { kind: 0, index: tag.into() };
        let completion = Completion { token, result: Ok(0), message: None, accepted: None };
        self.server.take_in(&mut self.core, completion);
        self.core.submit(&mut self.machine);
    }

    /// The array answers its first request.
    fn answer(&mut self, result: Result<(), RequestError>) {
        let id = self.machine.0.remove(0).id;
        let completed = self.core.completed(id, result);
        let (request, owner, result) = completed.expect("it lies in one piece");
        let Owner::Export(ExportId(0), job) = owner else { panic!("{owner:?}") };
        self.server.completed(&mut self.core, job, request, result);
        self.server.work(&mut self.core);
        self.core.submit(&mut self.machine);
    }
}

#[test]
fn data_go_between_the_kernel_and_the_array() {
    let mut world = World::new(4 << 20);
    let data: Vec<u8> = (0..8192u32).map(|i| (i % 251) as u8).collect();
    world.device.write_all_at(&data, data_offset(3)).unwrap();
    world.ask(3, 1, 16, 100);
    let request = world.machine.0[0];
    let expected = (Op::Write { fua: false }, 100, 16);
    assert_eq!((request.op, request.sector, request.sectors), expected);
    // SAFETY: the request's buffer, which nobody else looks at.
    let bytes = unsafe { world.core.arena.memory().bytes_mut(request.buf) };
    assert_eq!(bytes, data);
    world.answer(Ok(()));

    world.ask(4, 0, 16, 8);
    let request = world.machine.0[0];
    // SAFETY: as above.
    unsafe { world.core.arena.memory().bytes_mut(request.buf) }.fill(0x5a);
    world.answer(Ok(()));
    let mut read = vec![0; 8192 + 512];
    world.device.read_exact_at(&mut read, data_offset(4)).unwrap();
    assert!(read[..8192].iter().all(|byte| *byte == 0x5a) && read[8192..] == [0; 512]);

    // Of a read that failed nothing is given.
    world.ask(5, 0, 16, 8);
    world.answer(Err(RequestError::Medium));
    world.device.read_exact_at(&mut read, data_offset(5)).unwrap();
    assert!(read.iter().all(|byte| *byte == 0));
}

#[test]
fn what_does_not_fit_does_not_reach_the_array() {
    let mut world = World::new(4 << 20);
    world.ask(0, 1, 16, SIZE / SECTOR_BYTES - 8);
    world.ask(1, 0, u32::MAX, 0);
    world.ask(2, 9, 8, 0);
    world.ask(3, 3, 8, u64::MAX - 2);
    assert!(world.machine.0.is_empty(), "{:?}", world.machine.0);
    assert_eq!(world.core.requests(), 0);
}

#[test]
fn a_grown_array_is_asked_behind_its_old_end() {
    let mut world = World::new(4 << 20);
    let end = SIZE / SECTOR_BYTES;
    world.ask(0, 1, 8, end);
    assert!(world.machine.0.is_empty());
    world.machine.1 = 2 * SIZE;
    world.server.resized(&mut world.core, 2 * SIZE);
    world.ask(0, 1, 8, end);
    world.ask(1, 0, 8, 2 * end - 8);
    let asked: Vec<u64> = world.machine.0.iter().map(|request| request.sector).collect();
    assert_eq!(asked, [end, 2 * end - 8]);
    world.ask(2, 0, 8, 2 * end - 7);
    assert_eq!(world.machine.0.len(), 2, "one more would end behind the new end");
}

#[test]
fn requests_wait_for_memory_in_their_order() {
    let mut world = World::new(2 << 20);
    for tag in 0..DEPTH {
        world.ask(tag, 0, 2048, u64::from(tag) * 2048 % (SIZE / SECTOR_BYTES));
    }
    let first = world.machine.0.len();
    assert!(first > 0 && first < DEPTH.into(), "{first} have memory");
    // What needs none does not wait.
    world.ask(0, 2, 0, 0);
    assert_eq!(world.machine.0.pop().map(|request| request.op), Some(Op::Flush));
    let mut order = Vec::new();
    while let Some(request) = world.machine.0.first() {
        order.push(request.sector / 2048);
        world.answer(Ok(()));
    }
    let expected: Vec<u64> = (0..u64::from(DEPTH)).map(|tag| tag % (SIZE >> 20)).collect();
    assert_eq!(order, expected);
}

#[test]
fn who_waits_for_the_disk_hears_that_commands_are_not_taken() {
    let mut world = World::new(2 << 20);
    let mut completions = Vec::new();
    while completions.len() < DEPTH.into() {
        world.core.driver.wait(Some(Duration::from_secs(60)), &mut completions).unwrap();
    }
    let crate::token::Token::Export(_, token) = completions[0].token else { panic!() };
    let result = completions[0].result;
    assert!(result.is_err(), "a file takes no commands");
    let completion = Completion { token, result, message: None, accepted: None };
    world.server.take_in(&mut world.core, completion);
    assert_eq!(rustix::io::read(&*world.failed, &mut [0; 8]), Ok(8));
    // The end of the disk is no failure.
    let result = Err(rustix::io::Errno::NODEV);
    let completion = Completion { token, result, message: None, accepted: None };
    world.server.take_in(&mut world.core, completion);
    assert!(rustix::io::read(&*world.failed, &mut [0; 8]).is_err());
}

#[test]
fn without_the_driver_there_is_no_device() {
    if std::path::Path::new("/dev/ublk-control").exists() {
        // The judges have a guest without it.
        return;
    }
    let setup = super::UblkSetup {
        number: None,
        uuid: [1; 16],
        size: ArraySize::new(SIZE),
        block_bytes: 512,
        chunk_bytes: 0,
        stripe_bytes: 0,
        read_only: false,
    };
    let error = super::make(&setup).unwrap_err();
    assert!(error.reason.contains("no ublk"), "{error}");
    assert!(error.to_string().contains("modprobe ublk_drv"), "{error}");
}
