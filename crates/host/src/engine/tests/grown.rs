//! An array that grows while clients use it.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use braid_array::action::Command;
use braid_array::{RequestError, SECTOR_BYTES};

use super::raw_client::{connect_to, listen, reply, request};
use super::{MIB, Served, command, memory, noise, read};

/// `ENOSPC` and `EINVAL`, as the protocol has them.
const NO_SPACE: u32 = 28;
const INVALID: u32 = 22;

#[test]
fn nbd_clients_that_come_later_have_the_new_size() {
    for threads in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let sectors = Arc::new(AtomicU64::new(2 * MIB / SECTOR_BYTES));
        let mut engine = memory(4 * MIB, 8 * MIB, |double| double.of(Arc::clone(&sectors)));
        let path = listen(&mut engine, dir.path(), false);
        let served = Served::start(engine, threads);
        let (mut before, size) = connect_to(&path);
        assert_eq!(size, 2 * MIB);
        let beyond = || read(&served.submissions, 3 * MIB, 4096).recv().unwrap();
        assert_eq!(beyond(), Err(RequestError::OutOfRange));

        sectors.store(4 * MIB / SECTOR_BYTES, Ordering::Relaxed);
        let (mut after, size) = connect_to(&path);
        assert_eq!(size, 4 * MIB);
        let data = noise(1, 4096);
        for (cookie, offset, error) in
            [(1, 2 * MIB, 0), (2, 4 * MIB - 4096, 0), (3, 4 * MIB - 512, NO_SPACE)]
        {
            after.write_all(&request(1, cookie, offset, 4096)).unwrap();
            after.write_all(&data).unwrap();
            assert_eq!(reply(&mut after), (error, cookie), "at {offset}");
        }
        after.write_all(&request(0, 4, 4 * MIB - 4096, 4096)).unwrap();
        assert_eq!(reply(&mut after), (0, 4));
        let mut found = vec![0; 4096];
        after.read_exact(&mut found).unwrap();
        assert!(found == data);
        assert_eq!(beyond().map(|read| read.len()), Ok(4096));

        // The first client goes on with what it was told.
        before.write_all(&request(1, 5, 2 * MIB - 4096, 4096)).unwrap();
        before.write_all(&data).unwrap();
        assert_eq!(reply(&mut before), (0, 5));
        before.write_all(&request(0, 6, 2 * MIB, 4096)).unwrap();
        assert_eq!(reply(&mut before), (INVALID, 6));
        served.stop();
    }
}

/// A command may be what made the array grow.
#[test]
fn the_answer_to_a_command_comes_after_the_new_size() {
    let sectors = Arc::new(AtomicU64::new(2 * MIB / SECTOR_BYTES));
    let engine = memory(4 * MIB, MIB, |double| double.of(Arc::clone(&sectors)));
    let size = engine.size();
    let served = Served::start(engine, false);
    for mib in [3, 4] {
        sectors.store(mib * MIB / SECTOR_BYTES, Ordering::Relaxed);
        command(&served.submissions, Command::Pause(true), None).unwrap_err();
        assert_eq!(size.bytes(), mib * MIB);
    }
    served.stop();
}
