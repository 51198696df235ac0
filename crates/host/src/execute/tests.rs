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

/// Carries out one operation, and waits for it.
fn carry_out(executor: &mut Executor, driver: &mut Driver<Token>, op: IoOp) {
    let now = Instant(0);
    let mut answer = executor.start(driver, IoId(1), MEMBER, op);
    let mut completions = Vec::new();
    while answer.is_none() {
        answer = executor.next_done(driver, now);
        if answer.is_some() {
            break;
        }
        driver.wait(Some(Duration::from_secs(10)), &mut completions).unwrap();
        for completion in completions.drain(..) {
            let step = match completion.token {
                Token::Io(index) => {
                    executor.flight_step_done(driver, index, completion.result, now)
                }
                Token::Range(index) => {
                    executor.range_step_done(driver, index, completion.result, now)
                }
                token => panic!("{token:?} was not asked for"),
            };
            // Of what was given up before nobody waits for an answer.
            answer = answer.or(step.filter(|(io, _)| *io == IoId(1)));
        }
    }
    assert_eq!(answer, Some((IoId(1), Ok(Outcome::Done))), "{op:?}");
}

/// Zeroes may be a long range, and the engine's thread serves others meanwhile.
#[test]
fn zeroes_in_an_overlay_are_left_to_the_driver_and_are_durable_with_fua() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("member");
    std::fs::write(&path, vec![7; 1 << 20]).unwrap();
    let open = || member::open(&path, member::Mode::Overlay(dir.path()), true).unwrap();
    let arena = Arena::new(BYTES, 1 << 20).unwrap();
    let mut executor = Executor::new(vec![(MEMBER, open())], arena.zeroes(), eventfd());
    let mut driver = Driver::threads(arena.memory()).unwrap();
    let zeroes = |sector, fua| IoOp::WriteZeroes { sector, sectors: 100, unmap: true, fua };
    let answer = executor.start(&mut driver, IoId(9), MEMBER, zeroes(700, false));
    assert_eq!(answer, None, "the engine's thread has done it");
    assert_eq!(driver.in_flight(), 1);
    executor.abandon(IoId(9));
    carry_out(&mut executor, &mut driver, zeroes(3, false));
    carry_out(&mut executor, &mut driver, zeroes(1000, true));
    let buf = Buf { offset: 0, len: 512 * 1200 };
    let look = |executor: &mut Executor, driver: &mut Driver<Token>| {
        carry_out(executor, driver, read(0, buf));
        let found = load(arena.memory(), buf);
        [2, 3, 102, 103, 999, 1000, 1099, 1100].map(|sector: usize| found[sector * 512])
    };
    let expected = [7, 0, 0, 7, 7, 0, 0, 7];
    assert_eq!(look(&mut executor, &mut driver), expected);
    assert!(std::fs::read(&path).unwrap().iter().all(|byte| *byte == 7), "the member is as it was");
    // What the map in the file says is what is found next time.
    drop(executor);
    let mut executor = Executor::new(vec![(MEMBER, open())], arena.zeroes(), eventfd());
    assert_eq!(look(&mut executor, &mut driver), expected);
}

#[test]
fn a_disk_that_was_pulled_is_gone_and_not_smaller() {
    let full = error_of(Errno::NOSPC);
    let kind =
        |error, block_device, bytes| corrected(error, Extent { block_device, bytes }, 8192).kind;
    for error in [full, IoError::SHRUNK] {
        assert_eq!(kind(error, true, 0), IoErrorKind::Gone);
        assert_eq!(kind(error, true, 4096), IoErrorKind::Shrunk);
        assert_eq!(kind(error, false, 0), IoErrorKind::Shrunk);
        assert_eq!(kind(error, true, 8192), error.kind);
    }
}
