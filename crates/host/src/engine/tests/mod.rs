//! The engine with a machine that is simple enough to be trusted, on both drivers.

mod clients;
pub(crate) mod double;
mod figures;
mod grown;
mod hostile;
mod raw_client;

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;

use braid_array::action::{Command, NewMember};
use braid_array::events::ArrayEvent;
use braid_array::{AnyMachine, MemberId, Refusal, RequestError};
use tempfile::TempDir;

use self::double::{Double, Store};
use crate::arena::Arena;
use crate::driver::Driver;
use crate::engine::{Engine, REQUEST_BYTES};
use crate::member::MemberFile;
use crate::submission::{Message, SubmissionQueue};

pub(crate) const MIB: u64 = 1 << 20;

/// An engine on a thread of its own.
pub(crate) struct Served {
    pub(crate) submissions: SubmissionQueue,
    thread: JoinHandle<io::Result<()>>,
}

impl Served {
    pub(crate) fn start(engine: Engine, threads: bool) -> Self {
        let submissions = engine.submissions();
        let thread = std::thread::spawn(move || {
            engine.run_on(if threads { Driver::threads } else { Driver::new })
        });
        Self { submissions, thread }
    }

    pub(crate) fn stop(self) {
        command(&self.submissions, Command::Stop, None).unwrap();
        self.thread.join().unwrap().unwrap();
    }
}

fn member(path: &Path, bytes: u64) -> MemberFile {
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap();
    file.set_len(bytes).unwrap();
    MemberFile::plain(file, path.to_owned(), bytes)
}

/// Directories on a disk and in memory, where I/O on members is done at once; and for each, both
/// drivers.
fn places() -> impl Iterator<Item = (TempDir, bool)> {
    let disk = || tempfile::tempdir().unwrap();
    let memory = || tempfile::tempdir_in("/dev/shm").unwrap();
    [false, true].into_iter().flat_map(move |threads| [(disk(), threads), (memory(), threads)])
}

/// An engine over a mirror of files in a directory.
pub(crate) fn mirror(dir: &Path, members: u16, bytes: u64, request_bytes: u64) -> Engine {
    let files =
        (0..members).map(|i| (MemberId(i), member(&dir.join(i.to_string()), bytes))).collect();
    let machine = Double::new(Store::Members(members), bytes / 512);
    let machine = AnyMachine::Block(Box::new(machine));
    let arena = Arena::for_exports(0, request_bytes, 1, false).unwrap();
    Engine::new(machine, files, arena).unwrap()
}

/// An engine over memory; `change` sets the machine up.
pub(crate) fn memory(
    bytes: u64,
    request_bytes: u64,
    change: impl FnOnce(Double) -> Double,
) -> Engine {
    let arena = Arena::new(bytes, request_bytes).unwrap();
    let machine = change(Double::new(Store::Memory(arena.scratch()), bytes / 512));
    let machine = AnyMachine::Block(Box::new(machine));
    Engine::new(machine, Vec::new(), arena).unwrap()
}

/// Sends a message, and returns the channel of its answer.
fn ask<T: Send + 'static>(
    submissions: &SubmissionQueue,
    message: impl FnOnce(crate::submission::Done<T>) -> Message,
) -> Receiver<T> {
    let (sender, receiver) = channel();
    let done = Box::new(move |answer| {
        let _ = sender.send(answer);
    });
    assert!(submissions.send(message(done)), "the engine has ended");
    receiver
}

fn command(
    submissions: &SubmissionQueue,
    command: Command,
    device: Option<MemberFile>,
) -> Result<(), Refusal> {
    ask(submissions, |done| Message::Command { command, device, done }).recv().unwrap()
}

fn read(
    submissions: &SubmissionQueue,
    offset: u64,
    len: u32,
) -> Receiver<Result<Vec<u8>, RequestError>> {
    ask(submissions, |done| Message::Read { offset, len, done })
}

pub(crate) fn write(
    submissions: &SubmissionQueue,
    offset: u64,
    data: Vec<u8>,
) -> Receiver<Result<(), RequestError>> {
    ask(submissions, |done| Message::Write { offset, data, fua: false, done })
}

/// Bytes that look random and depend on `seed`.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

#[test]
fn what_goes_in_by_the_submission_queue_comes_out_again() {
    for (dir, threads) in places() {
        // Less memory than the requests in flight need: they have to take turns.
        let served = Served::start(mirror(dir.path(), 2, 64 * MIB, 3 * MIB), threads);
        let lens = [512, 4096, 66_048, MIB as usize, 5 * MIB as usize + 512, 20 * MIB as usize];
        let mut offset = 0;
        let mut written = Vec::new();
        for (seed, &len) in (1..).zip(&lens) {
            let data = noise(seed, len);
            written.push((offset, data.clone(), write(&served.submissions, offset, data)));
            offset += len as u64;
        }
        for (_, _, done) in &written {
            assert_eq!(done.recv().unwrap(), Ok(()));
        }
        ask(&served.submissions, |done| Message::Flush { done }).recv().unwrap().unwrap();
        let reads: Vec<_> = written
            .iter()
            .map(|(offset, data, _)| read(&served.submissions, *offset, data.len() as u32))
            .collect();
        for ((_, data, _), answer) in written.iter().zip(reads) {
            assert!(answer.recv().unwrap().unwrap() == *data, "{} bytes differ", data.len());
        }
        served.stop();
        let files = ["0", "1"].map(|name| std::fs::read(dir.path().join(name)).unwrap());
        assert!(files[0] == files[1], "the mirror's halves differ");
        assert!(files[0][..512] == written[0].1);
    }
}

#[test]
fn ranges_can_be_zeroed_and_discarded() {
    for (dir, threads) in places() {
        let served = Served::start(mirror(dir.path(), 2, 8 * MIB, 4 * MIB), threads);
        write(&served.submissions, 0, noise(7, 8 * MIB as usize)).recv().unwrap().unwrap();
        for (offset, unmap) in [(MIB + 512, false), (3 * MIB + 512, true)] {
            let len = MIB + 1024;
            let zeroed =
                ask(&served.submissions, |done| Message::WriteZeroes { offset, len, unmap, done });
            zeroed.recv().unwrap().unwrap();
        }
        let discarded =
            ask(&served.submissions, |done| Message::Discard { offset: 6 * MIB, len: MIB, done });
        discarded.recv().unwrap().unwrap();
        let mut expected = noise(7, 8 * MIB as usize);
        for start in [MIB as usize + 512, 3 * MIB as usize + 512] {
            expected[start..start + MIB as usize + 1024].fill(0);
        }
        let found = read(&served.submissions, 0, 8 << 20).recv().unwrap().unwrap();
        assert!(found[..6 << 20] == expected[..6 << 20]);
        assert!(found[7 << 20..] == expected[7 << 20..]);
        served.stop();
    }
}

#[test]
fn bad_requests_by_the_submission_queue_are_refused() {
    let served = Served::start(memory(MIB, MIB, |double| double.block_bytes(4096)), false);
    let submissions = &served.submissions;
    assert_eq!(read(submissions, 512, 4096).recv().unwrap(), Err(RequestError::Malformed));
    assert_eq!(write(submissions, 0, vec![0; 512]).recv().unwrap(), Err(RequestError::Malformed));
    assert_eq!(read(submissions, MIB - 4096, 8192).recv().unwrap(), Err(RequestError::OutOfRange));
    let beyond = u64::MAX - 4095;
    assert_eq!(read(submissions, beyond, 8192).recv().unwrap(), Err(RequestError::OutOfRange));
    assert_eq!(read(submissions, 0, 0).recv().unwrap(), Ok(Vec::new()));
    served.stop();
}

#[test]
fn a_member_that_ends_early_or_is_gone_is_worked_around() {
    for (dir, threads) in places() {
        let mut engine = mirror(dir.path(), 2, 8 * MIB, 4 * MIB);
        let (sender, events) = channel();
        engine.on_event(Box::new(move |event| sender.send(event.clone()).unwrap()));
        let served = Served::start(engine, threads);
        let data = noise(3, 8 * MIB as usize);
        write(&served.submissions, 0, data.clone()).recv().unwrap().unwrap();

        // The first half of the mirror now ends in the middle of a request.
        let first = OpenOptions::new().write(true).open(dir.path().join("0")).unwrap();
        first.set_len(4 * MIB + 512).unwrap();
        assert!(
            read(&served.submissions, 4 * MIB, 4096).recv().unwrap().unwrap()[..]
                == data[4 << 20..][..4096]
        );

        // A write behind its end does not make it grow: the gap would read as zeroes.
        let end = data[6 << 20..].to_vec();
        write(&served.submissions, 6 * MIB, end).recv().unwrap().unwrap();
        assert_eq!(first.metadata().unwrap().len(), 4 * MIB + 512);

        // Without it everything comes from the second half.
        command(&served.submissions, Command::Fail(MemberId(0)), None).unwrap();
        assert!(matches!(events.recv().unwrap(), ArrayEvent::MemberFailed { .. }));
        command(&served.submissions, Command::Remove(MemberId(0)), None).unwrap();
        assert!(read(&served.submissions, 0, 8 << 20).recv().unwrap().unwrap() == data);
        served.stop();
    }
}

fn add(path: &Path) -> Command {
    Command::Add(Box::new(NewMember {
        member: MemberId(99),
        device: path.display().to_string(),
        device_sectors: MIB / 512,
        superblock: None,
        bad_blocks: None,
        readd: false,
        device_uuid: [0; 16],
    }))
}

#[test]
fn an_added_member_is_written_to_and_a_refused_one_is_let_go() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(mirror(dir.path(), 1, MIB, MIB), false);
    let path = dir.path().join("added");
    let add = || add(&path);
    let error = command(&served.submissions, add(), None).unwrap_err();
    assert!(error.reason.contains("no device"), "{error}");
    command(&served.submissions, add(), Some(member(&path, MIB))).unwrap();
    write(&served.submissions, 4096, noise(5, 4096)).recv().unwrap().unwrap();
    served.stop();
    let mut found = vec![0; 4096];
    std::fs::File::open(&path).unwrap().read_exact_at(&mut found, 4096).unwrap();
    assert!(found == noise(5, 4096));
}

/// A place is given away as soon as nobody has it; the removal is answered when superblocks tell of
/// it.
#[test]
fn a_member_is_added_in_the_place_of_one_whose_removal_is_not_answered() {
    let dir = tempfile::tempdir().unwrap();
    let served = Served::start(mirror(dir.path(), 2, MIB, MIB), false);
    command(&served.submissions, Command::Fail(MemberId(0)), None).unwrap();
    let path = dir.path().join("added");
    let device = Some(member(&path, MIB));
    // The engine finds both when it goes on.
    let (go_on, waits) = channel::<()>();
    let hold = Box::new(move |_| waits.recv().unwrap());
    assert!(served.submissions.send(Message::Clients { done: hold }));
    let remove = Command::Remove(MemberId(0));
    let send = |command, device| {
        ask(&served.submissions, move |done| Message::Command { command, device, done })
    };
    let removed = send(remove, None);
    let added = send(add(&path), device);
    go_on.send(()).unwrap();
    removed.recv().unwrap().unwrap();
    added.recv().unwrap().unwrap();
    write(&served.submissions, 4096, noise(5, 4096)).recv().unwrap().unwrap();
    served.stop();
    let mut found = vec![0; 4096];
    std::fs::File::open(&path).unwrap().read_exact_at(&mut found, 4096).unwrap();
    assert!(found == noise(5, 4096));
}

#[test]
fn a_flush_that_waits_for_the_deadline_is_answered() {
    for threads in [false, true] {
        let engine = memory(MIB, MIB, |double| double.flush_millis(30));
        let served = Served::start(engine, threads);
        let begun = std::time::Instant::now();
        ask(&served.submissions, |done| Message::Flush { done }).recv().unwrap().unwrap();
        assert!(begun.elapsed().as_millis() >= 30, "answered before its time");
        served.stop();
    }
}

#[test]
fn a_stopped_engine_takes_no_messages() {
    let served = Served::start(memory(MIB, MIB, |double| double), false);
    let submissions = served.submissions.clone();
    served.stop();
    assert!(!submissions.send(Message::Flush { done: Box::new(|_| ()) }));
}

#[test]
fn an_arena_of_the_usual_size_is_registered_or_not_needed() {
    // Whatever the limits on locked memory are: the engine starts.
    let served = Served::start(memory(MIB, REQUEST_BYTES, |double| double.most(1)), false);
    let writes: Vec<_> =
        (0..64).map(|i| write(&served.submissions, i * 512, vec![1; 512])).collect();
    assert!(writes.iter().all(|done| done.recv().unwrap().is_ok()));
    served.stop();
}
