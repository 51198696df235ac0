//! The array as the block device of a virtual machine, played by a small front end.

mod guest;

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use crate::hang;
use crate::support::export::noise;
use crate::support::stopped::{Stopped, process_of};
use crate::support::{Lab, skip, until};
use guest::{DATA, DISCARD, FLUSH, GET_ID, Guest, READ, SLOTS, WRITE, ZEROES};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

const OK: u8 = 0;
const IO_ERROR: u8 = 1;
const UNSUPPORTED: u8 = 2;

/// Bits of features.
const RO: u64 = 1 << 5;
const DISCARDS: u64 = 1 << 13;

/// An array of this level that is served to guests; its members and its socket.
fn serve(lab: &Lab, level: &str, count: usize) -> (Vec<PathBuf>, PathBuf) {
    let members = lab.members("m", count, 16);
    lab.ok(&format!("create x -l {level} -n {count} --chunk 64K --assume-clean"), &members);
    let socket = lab.path("guest.sock");
    assemble(lab, &members, &socket);
    (members, socket)
}

fn assemble(lab: &Lab, members: &[PathBuf], socket: &Path) {
    lab.ok(&format!("assemble x --export vhost-user:{}", socket.display()), members);
}

fn status(lab: &Lab) -> Value {
    serde_json::from_slice(&lab.ok("status x --json", &[])).unwrap()
}

/// The process that serves the array.
fn process(lab: &Lab) -> Pid {
    process_of(lab, "x")
}

/// Ends it at once, and waits until it has gone.
fn kill(process: Pid) {
    kill_process(process, Signal::KILL).unwrap();
    until("it has ended", || test_kill_process(process).is_err());
}

#[test]
fn a_guest_reads_writes_and_gives_space_back() {
    let lab = Lab::new();
    let (members, socket) = serve(&lab, "5", 3);
    let mut guest = Guest::connect(&socket, 2);
    let size = status(&lab)["size_bytes"].as_u64().unwrap();
    assert_eq!(guest.config(0, 8), (size / 512).to_le_bytes());
    // Blocks of 512 bytes in units of 4 KiB; a chunk, and a stripe.
    assert_eq!(guest.config(20, 12), [0, 2, 0, 0, 3, 0, 128, 0, 0, 1, 0, 0]);
    assert!(guest.features & RO == 0 && guest.features & DISCARDS != 0);

    let content = noise(SLOTS as usize * DATA as usize);
    for indirect in [false, true] {
        guest.indirect = indirect;
        for (slot, part) in (0..SLOTS).zip(content.chunks(DATA as usize)) {
            let ring = usize::from(slot % 2);
            guest.set_data(ring, slot, part);
            guest.put(ring, slot, WRITE, u64::from(slot) * DATA / 512, DATA as u32);
        }
        for ring in 0..2 {
            guest.kick(ring);
            let mut answers = guest.answers(ring, usize::from(SLOTS) / 2);
            answers.sort_unstable();
            assert!(answers.iter().all(|(slot, status)| slot % 2 == ring as u16 && *status == OK));
            assert_eq!(answers.len(), usize::from(SLOTS) / 2);
        }
        assert_eq!(guest.ask(FLUSH, 0, 0), OK);
        for (slot, part) in (0..SLOTS).zip(content.chunks(DATA as usize)) {
            assert_eq!(guest.ask(READ, u64::from(slot) * DATA / 512, DATA as u32), OK);
            assert!(guest.data(0, 0, DATA as usize) == part, "slot {slot}");
        }
    }
    let segment = |sector: u64, sectors: u32, flags: u32| {
        [&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &flags.to_le_bytes()].concat()
    };
    let both = [segment(8, 16, 0), segment(64, 1, 1)].concat();
    guest.set_data(0, 0, &both);
    assert_eq!(guest.ask(ZEROES, 0, 32), OK);
    assert_eq!(guest.ask(DISCARD, 0, 32), UNSUPPORTED, "nothing to unmap in a discard");
    guest.set_data(0, 0, &segment(1024, 256, 0));
    assert_eq!(guest.ask(DISCARD, 0, 16), OK);
    let mut expected = content.clone();
    expected[4096..4096 + 8192].fill(0);
    expected[64 * 512..65 * 512].fill(0);
    assert_eq!(guest.ask(READ, 0, DATA as u32), OK);
    assert!(guest.data(0, 0, DATA as usize) == expected[..DATA as usize]);

    assert_eq!(guest.ask(GET_ID, 0, 20), OK);
    assert_eq!(guest.data(0, 0, 2), *b"x\0");
    assert_eq!(guest.ask(READ, size / 512 - 1, 1024), IO_ERROR, "beyond the end");
    assert_eq!(guest.ask(READ, u64::MAX, 512), IO_ERROR);
    assert_eq!(guest.ask(READ, 0, 100), IO_ERROR, "no whole sector");
    assert_eq!(guest.ask(99, 0, 512), UNSUPPORTED);

    let exports = status(&lab)["exports"].clone();
    assert_eq!(exports, serde_json::json!([format!("vhost-user:{}", socket.display())]));
    let line = lab.refused(1, "stop x", &[], &[]);
    assert!(line.contains("in use by "), "{line}");
    drop(guest);
    lab.ok("stop x", &[]);
    assert!(!socket.exists());
    lab.ok("assemble x", &members);
    let held = lab.ok(&format!("cat x --offset 0 --length {}", 512 << 10), &[]);
    assert!(held == expected[..512 << 10]);
    lab.ok("check x --wait", &[]);
}

/// Puts a write into every slot: 4 KiB each, spread over the array, with content from `content`.
fn fill(guest: &mut Guest, round: u64, content: &[u8]) -> Vec<(u64, usize)> {
    let mut written = Vec::new();
    for ring in 0..2 {
        for slot in 0..SLOTS {
            let number = (round * 2 + ring as u64) * u64::from(SLOTS) + u64::from(slot);
            let sector = number * 7 % 1024 * 8;
            let from = (number as usize * 331) % 4096;
            guest.set_data(ring, slot, &content[from..from + 4096]);
            guest.put(ring, slot, WRITE, sector, 4096);
            written.push((sector, from));
        }
    }
    written
}

fn check(guest: &mut Guest, written: &[(u64, usize)], content: &[u8]) {
    for (sector, from) in written {
        assert_eq!(guest.ask(READ, *sector, 4096), OK);
        assert!(guest.data(0, 0, 4096) == content[*from..*from + 4096], "sector {sector}");
    }
}

/// Checks that this number of requests of a ring is answered successfully.
fn all_answered(guest: &mut Guest, ring: usize, count: usize) {
    let answers = guest.answers(ring, count);
    assert_eq!(answers.len(), count);
    assert!(answers.iter().all(|(_, status)| *status == OK), "{answers:?}");
}

#[test]
fn a_crash_is_not_seen_by_the_guest() {
    let lab = Lab::new();
    let (members, socket) = serve(&lab, "5", 4);
    let mut guest = Guest::connect(&socket, 2);
    let content = noise(8192);
    let mut written = Vec::new();
    for round in 0..3 {
        written.extend(fill(&mut guest, round, &content));
        (0..2).for_each(|ring| guest.kick(ring));
        let mut left = [usize::from(SLOTS); 2];
        let answers = guest.answers(0, 1 + round as usize * 9);
        left[0] -= answers.len();
        kill(process(&lab));
        guest.leave();
        assemble(&lab, &members, &socket);
        guest.come_back();
        for (ring, left) in left.into_iter().enumerate() {
            all_answered(&mut guest, ring, left);
        }
    }
    check(&mut guest, &written, &content);
    assert_eq!(guest.ask(FLUSH, 0, 0), OK);
}

#[test]
fn a_guest_comes_back_after_an_upgrade() {
    let lab = Lab::new();
    let (_, socket) = serve(&lab, "5", 4);
    let mut guest = Guest::connect(&socket, 2);
    let content = noise(8192);
    let before = process(&lab);
    let mut written = Vec::new();
    for round in 0..3 {
        written.extend(fill(&mut guest, round, &content));
        (0..2).for_each(|ring| guest.kick(ring));
        let told = lab.ok_text("upgrade x", &[]);
        assert!(told.contains("requests waited"), "{told}");
        guest.leave();
        guest.come_back();
        (0..2).for_each(|ring| all_answered(&mut guest, ring, SLOTS.into()));
    }
    check(&mut guest, &written, &content);
    assert_eq!(process(&lab), before);
}

#[test]
fn what_was_under_way_at_a_crash_is_done_after_it() {
    let test = "what_was_under_way_at_a_crash_is_done_after_it";
    if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
        return skip(test, "it needs FUSE and root");
    }
    // A member on a mount whose process is stopped answers nothing.
    let lab = Lab::new();
    let below = lab.members("b", 2, 32);
    let mountpoint = lab.path("mnt");
    std::fs::create_dir(&mountpoint).unwrap();
    lab.ok("create below -l 1 -n 2 --assume-clean", &below);
    lab.ok(&format!("assemble below --export fuse:{}", mountpoint.display()), &below);
    let members = [lab.members("m", 1, 32).remove(0), mountpoint.join("below")];
    lab.ok("create x -l 1 -n 2 --assume-clean", &members);
    let socket = lab.path("guest.sock");
    assemble(&lab, &members, &socket);
    let mut guest = Guest::connect(&socket, 2);
    let content = noise(8192);
    assert_eq!(guest.ask(READ, 0, 4096), OK);

    let stopped = Stopped::serving(&lab, "below");
    let written = fill(&mut guest, 0, &content);
    (0..2).for_each(|ring| guest.kick(ring));
    until("all are under way", || guest.under_way() == usize::from(SLOTS) * 2);
    let killed = process(&lab);
    kill_process(killed, Signal::KILL).unwrap();
    // It ends when what it has asked for has ended.
    drop(stopped);
    until("it has ended", || test_kill_process(killed).is_err());
    assert_eq!(guest.under_way(), usize::from(SLOTS) * 2, "nothing was answered");
    guest.leave();
    assemble(&lab, &members, &socket);
    guest.come_back();
    for ring in 0..2 {
        let answers = guest.answers(ring, SLOTS.into());
        assert!(answers.iter().all(|(_, status)| *status == OK), "{answers:?}");
    }
    assert_eq!(guest.under_way(), 0);
    check(&mut guest, &written, &content);
    drop(guest);
    lab.ok("stop x", &[]);
    lab.ok("stop below", &[]);
}

#[test]
fn a_connection_that_is_lost_loses_nothing_and_one_guest_is_enough() {
    let lab = Lab::new();
    let (_, socket) = serve(&lab, "0", 2);
    let mut guest = Guest::connect(&socket, 2);
    let content = noise(8192);
    let mut written = Vec::new();
    for round in 0..8 {
        written.extend(fill(&mut guest, round, &content));
        (0..2).for_each(|ring| guest.kick(ring));
        guest.leave();
        guest.come_back();
        (0..2).for_each(|ring| all_answered(&mut guest, ring, SLOTS.into()));
    }
    check(&mut guest, &written, &content);
    // A second one is hung up on.
    let mut second = UnixStream::connect(&socket).unwrap();
    assert_eq!(std::io::Read::read(&mut second, &mut [0]).unwrap(), 0);
    check(&mut guest, &written[..1], &content);
    // A ring that is stopped has nothing under way.
    fill(&mut guest, 9, &content);
    (0..2).for_each(|ring| guest.kick(ring));
    for ring in 0..2 {
        let base = guest.base(ring);
        let answered = guest.answered(ring).len();
        guest.kick(ring);
        assert_eq!(guest.under_way_of(ring), 0, "of ring {ring} {answered}, up to {base}");
        assert!(guest.answered(ring).is_empty());
    }
}

#[test]
fn a_ring_that_makes_no_sense_is_given_up_alone() {
    let lab = Lab::new();
    let (_, socket) = serve(&lab, "0", 2);
    let mut guest = Guest::connect(&socket, 2);
    guest.put_circle(1);
    guest.kick(1);
    until("it is told of", || guest.is_told_of_trouble(1));
    assert_eq!(guest.ask(WRITE, 0, 4096), OK, "the other one is served");
    guest.leave();
    let mut next = Guest::connect(&socket, 2);
    assert_eq!(next.ask(READ, 0, 4096), OK);
}

#[test]
fn a_read_only_array_takes_no_writes() {
    let lab = Lab::new();
    let members = lab.members("m", 2, 16);
    lab.ok("create x -l 1 -n 2 --assume-clean", &members);
    let socket = lab.path("guest.sock");
    let export = format!("assemble x --readonly --export vhost-user:{}", socket.display());
    lab.ok(&export, &members);
    let mut guest = Guest::connect(&socket, 1);
    assert!(guest.features & RO != 0 && guest.features & DISCARDS == 0);
    assert_eq!(guest.ask(READ, 0, 4096), OK);
    assert_eq!(guest.ask(WRITE, 0, 4096), IO_ERROR);
    assert_eq!(guest.ask(ZEROES, 0, 16), IO_ERROR);
}

#[test]
fn a_guest_keeps_its_memory_until_a_member_that_was_failed_has_answered() {
    let lab = Lab::new();
    let below = hang::serve(&lab, "below", &lab.members("b", 2, 32));
    let members = [lab.members("m", 1, 32).remove(0), below];
    let socket = lab.path("guest.sock");
    lab.ok("create x -l 1 -n 2 --assume-clean", &members);
    assemble(&lab, &members, &socket);
    let mut guest = Guest::connect(&socket, 1);
    let content = noise((usize::from(SLOTS) - 1) * DATA as usize);
    for (slot, part) in (0..).zip(content.chunks(DATA as usize)) {
        guest.set_data(0, slot, part);
        guest.put(0, slot, WRITE, u64::from(slot) * DATA / 512, DATA as u32);
    }
    guest.kick(0);
    assert_eq!(guest.answers(0, usize::from(SLOTS) - 1).len(), usize::from(SLOTS) - 1);

    let stopped = Stopped::serving(&lab, "below");
    for slot in 0..SLOTS - 1 {
        guest.set_data(0, slot, &[0; DATA as usize]);
        guest.put(0, slot, READ, u64::from(slot) * DATA / 512, DATA as u32);
    }
    guest.kick(0);
    // Both members are asked.
    let mut answers = guest.answers(0, 1);
    lab.ok("fail x", &members[1..]);
    // A short read is copied, so it waits for nobody.
    guest.put(0, SLOTS - 1, READ, 0, 4096);
    guest.kick(0);
    while answers.iter().all(|(slot, _)| *slot != SLOTS - 1) {
        answers.extend(guest.answers(0, 1));
    }
    let told = answers.len();
    assert!(told < usize::from(SLOTS), "all were told, but a member may still fill their memory");
    drop(stopped);
    answers.extend(guest.answers(0, usize::from(SLOTS) - told));
    assert!(answers.iter().all(|(_, status)| *status == OK), "{answers:?}");
    for (slot, part) in (0..).zip(content.chunks(DATA as usize)) {
        assert!(guest.data(0, slot, DATA as usize) == part, "slot {slot}");
    }
    drop(guest);
    lab.ok("stop x", &[]);
    until("nobody has the file below any more", || lab.run("stop below", &[]).status.success());
}

#[test]
fn a_guest_is_answered_beside_a_member_that_has_never_answered() {
    let lab = Lab::new();
    let below = hang::serve(&lab, "below", &lab.members("b", 2, 32));
    let members = [lab.members("m", 1, 32).remove(0), below];
    let socket = lab.path("guest.sock");
    lab.ok("create x -l 1 -n 2 --assume-clean", &members);
    // Nothing is written to a member before the guest asks.
    let export = format!("assemble x --readonly --export vhost-user:{}", socket.display());
    lab.ok(&export, &members);
    let mut guest = Guest::connect(&socket, 1);
    let stopped = Stopped::serving(&lab, "below");
    for slot in 0..SLOTS {
        guest.put(0, slot, READ, u64::from(slot) * DATA / 512, DATA as u32);
    }
    guest.kick(0);
    let answers = guest.answers(0, 1);
    assert!(answers.len() < usize::from(SLOTS), "both members were asked");
    lab.ok("status x", &[]);
    drop(stopped);
    guest.answers(0, usize::from(SLOTS) - answers.len());
    drop(guest);
    lab.ok("stop x", &[]);
    until("nobody has the file below any more", || lab.run("stop below", &[]).status.success());
}
