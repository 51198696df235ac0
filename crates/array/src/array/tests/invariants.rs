//! Faults that the simulator looks for after every event are found when they are there.

use super::*;

/// An array of this level with a write under way, as far as it comes without an answer.
fn busy(level: i32, disks: u32) -> Array {
    let config = config(level, 2, disks, 16);
    let bytes = Array::scratch_bytes(&config);
    let mut array = Array::new(Instant(0), config, Scratch { offset: 0, bytes }).unwrap();
    let buf = Buf { offset: bytes, len: 4096 };
    let id = crate::RequestId(1);
    let write = Request { id, op: Op::Write { fua: false }, sector: 0, sectors: 8, buf };
    array.submit(Instant(1), write).unwrap();
    while array.poll().is_some() {}
    assert_eq!(array.invariants(), Ok(()));
    array
}

fn broken(how: impl Fn(&mut Array)) -> String {
    let mut array = busy(5, 3);
    how(&mut array);
    array.invariants().unwrap_err()
}

#[test]
fn what_is_broken_is_named() {
    assert!(broken(|array| array.lane.ios.in_flight += 1).contains("in flight"));
    assert!(broken(|array| drop(array.lane.pool.take(1))).contains("bytes of scratch"));
    assert!(broken(|array| array.jobs.meta_waiters.clear()).contains("in no other queue"));
    assert!(broken(|array| array.jobs.locks.release(0, &mut Vec::new())).contains("the lock"));
    let spare = crate::keeper::Unit { start: 0, sectors: 8 };
    assert!(broken(|array| array.mending.begin(MemberId(0), spare)).contains("mended"));
}
