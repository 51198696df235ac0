//! I/O on members in memory, which is done at once, within a budget.

use std::path::PathBuf;
use std::time::Duration;

use super::*;
use crate::arena::Arena;
use crate::member;

const MEMBER: MemberId = MemberId(0);
const BYTES: u64 = 64 << 20;

fn eventfd() -> Arc<OwnedFd> {
    rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap().into()
}

/// An executor with a member of memory, its arena and a driver.
fn rig() -> (Executor, Arena, Driver<Token>) {
    let arena = Arena::new(BYTES, 1 << 20).unwrap();
    let member = member::memory(PathBuf::from("memory"), BYTES).unwrap();
    let executor = Executor::new(vec![(MEMBER, member)], arena.zeroes(), eventfd());
    let driver = Driver::threads(arena.memory()).unwrap();
    (executor, arena, driver)
}

fn read(sector: u64, buf: Buf) -> IoOp {
    IoOp::Read { sector, buf }
}

fn write(sector: u64, buf: Buf) -> IoOp {
    IoOp::Write { sector, buf, fua: true, fill: false }
}

/// Its node lies on a file system in memory, as that of a device in /dev does.
#[test]
fn a_block_device_is_left_to_the_driver() {
    let arena = Arena::new(BYTES, 1 << 20).unwrap();
    let memory = member::memory(PathBuf::from("memory"), BYTES).unwrap();
    let device = MemberFile { block_device: true, ..memory };
    let mut executor = Executor::new(vec![(MEMBER, device)], arena.zeroes(), eventfd());
    let mut driver = Driver::threads(arena.memory()).unwrap();
    let op = read(8, Buf { offset: 0, len: 4096 });
    assert_eq!(executor.start(&mut driver, IoId(1), MEMBER, op), None);
    assert_eq!(executor.next_done(&mut driver, Instant(0)), None);
    assert_eq!(driver.in_flight(), 1);
}

#[test]
fn what_is_in_memory_is_answered_without_the_driver() {
    let (mut executor, arena, mut driver) = rig();
    let from = Buf { offset: 0, len: 4096 };
    let to = Buf { offset: 8192, len: 4096 };
    store(arena.memory(), from, &[7; 4096]);
    let now = Instant(0);
    for (id, op) in [(1, write(8, from)), (2, read(8, to)), (3, IoOp::Flush)] {
        let io = IoId(id);
        assert_eq!(executor.start(&mut driver, io, MEMBER, op), None);
        let answer = executor.next_done(&mut driver, now);
        assert_eq!(answer, Some((io, Ok(Outcome::Done))), "{op:?}");
    }
    assert_eq!(executor.next_done(&mut driver, now), None);
    assert_eq!(driver.in_flight(), 0);
    assert_eq!(load(arena.memory(), to), [7; 4096]);
}

#[test]
fn what_was_given_up_before_it_began_is_not_done() {
    let (mut executor, arena, mut driver) = rig();
    let buf = Buf { offset: 0, len: 4096 };
    store(arena.memory(), buf, &[7; 4096]);
    executor.start(&mut driver, IoId(1), MEMBER, write(0, buf));
    executor.start(&mut driver, IoId(2), MEMBER, read(0, buf));
    executor.abandon(IoId(1));
    let first = executor.next_done(&mut driver, Instant(0));
    assert_eq!(first, Some((IoId(1), Err(IoError::GONE))));
    assert!(executor.next_done(&mut driver, Instant(0)).is_some());
    assert_eq!(load(arena.memory(), buf), [0; 4096], "it was written");
}

#[test]
fn what_a_turn_has_no_time_for_is_left_to_the_driver() {
    let (mut executor, _arena, mut driver) = rig();
    let mut answered = 0;
    for id in 0..1000u64 {
        let buf = Buf { offset: id * 16_384, len: 16_384 };
        executor.start(&mut driver, IoId(id), MEMBER, read(buf.offset / SECTOR_BYTES, buf));
    }
    while executor.next_done(&mut driver, Instant(0)).is_some() {
        answered += 1;
    }
    assert!((1..1000).contains(&answered), "{answered} answers at once");
    let mut completions = Vec::new();
    while driver.in_flight() > 0 {
        driver.wait(Some(Duration::from_secs(10)), &mut completions).unwrap();
        for completion in completions.drain(..) {
            let Token::Io(index) = completion.token else { panic!("{completion:?}") };
            let result = completion.result;
            assert!(executor.flight_step_done(&mut driver, index, result, Instant(0)).is_some());
            answered += 1;
        }
    }
    assert_eq!(answered, 1000);
    // In the next turn it goes on by itself.
    executor.begin_turn(Instant(0));
    executor.start(&mut driver, IoId(0), MEMBER, IoOp::Flush);
    assert!(executor.next_done(&mut driver, Instant(0)).is_some());
}
