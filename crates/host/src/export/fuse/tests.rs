use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use braid_array::{AnyMachine, Op, Request, SECTOR_BYTES};
use rustix::fs::{FallocateFlags, OFlags, fallocate};

use super::*;
use crate::arena::Arena;
use crate::engine::tests::double::{Double, Store};
use crate::engine::tests::{Served, mirror, noise, write};
use crate::engine::{Engine, REQUEST_BYTES};
use crate::testing::skipped;

mod grown;
mod loops;
mod mapping;

const MIB: usize = 1 << 20;

/// Requests to the machine since the last call of `asked`.
#[derive(Default)]
struct Asked {
    writes: Vec<Request>,
    flushes: usize,
    fua_writes: usize,
    zeroed: Vec<(std::ops::Range<u64>, bool)>,
}

struct Mounted {
    dir: tempfile::TempDir,
    served: Option<Served>,
    requests: Receiver<Request>,
    /// Range in which data to be written land.
    landings: std::ops::Range<u64>,
    /// Size of the array.
    sectors: Arc<AtomicU64>,
    mount: Option<Mount>,
}

fn usable() -> bool {
    let usable = Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root();
    if !usable {
        skipped("FUSE as root");
    }
    usable
}

fn mounted(size: usize, read_only: bool) -> Option<Mounted> {
    mounted_on(size, read_only, false)
}

/// Mounts an array that has room to grow to twice its size, with `threads` on the driver of systems
/// without io_uring.
fn mounted_on(size: usize, read_only: bool, threads: bool) -> Option<Mounted> {
    if !usable() {
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let arena = Arena::for_exports(2 * size as u64, REQUEST_BYTES, 1, false).unwrap();
    let landings = arena.landings();
    let (told, requests) = channel();
    let sectors = Arc::new(AtomicU64::new(size as u64 / SECTOR_BYTES));
    let machine = Double::new(Store::Memory(arena.scratch()), 0).of(Arc::clone(&sectors));
    let machine = AnyMachine::Block(Box::new(machine.block_bytes(4096).told(told)));
    let mut engine = Engine::new(machine, Vec::new(), arena).unwrap();
    let (mount, mounted) = mount_at(dir.path(), read_only).unwrap();
    let (server, mount_table) = FuseServer::new(engine.size(), 4096).unwrap();
    mount_table.add(0, mounted);
    engine.add_export(Box::new(server));
    let served = Served::start(engine, threads);
    let content = (0..size).map(|i| (i / 512 % 251) as u8).collect();
    write(&served.submissions, 0, content).recv().unwrap().unwrap();
    let mount = Some(mount);
    let served = Some(served);
    let mounted = Mounted { dir, served, requests, landings, sectors, mount };
    mounted.asked();
    Some(mounted)
}

fn mount_at(
    mountpoint: &Path,
    read_only: bool,
) -> Result<(Mount, mount_table::NewMount), MountError> {
    let access = &Access::default();
    let parts = PartFiles::default();
    let name = "a0";
    mount(&MountSetup { name, mountpoint, parts, read_only, access })
}

impl Mounted {
    fn path(&self) -> PathBuf {
        self.dir.path().join("a0")
    }

    fn open(&self, flags: OFlags) -> io::Result<File> {
        let flags = flags.bits().cast_signed();
        OpenOptions::new().read(true).write(true).custom_flags(flags).open(self.path())
    }

    /// Returns the requests since the last call.
    fn asked(&self) -> Asked {
        let mut asked = Asked::default();
        for request in self.requests.try_iter() {
            let start = request.sector * SECTOR_BYTES;
            let range = start..start + request.sectors * SECTOR_BYTES;
            match request.op {
                Op::Write { fua } => {
                    asked.fua_writes += usize::from(fua);
                    asked.writes.push(request);
                }
                Op::WriteZeroes { unmap, .. } => asked.zeroed.push((range, unmap)),
                Op::Flush => asked.flushes += 1,
                Op::Read | Op::Discard => {}
            }
        }
        asked
    }
}

/// Unmounts a mount that is no longer in use. Unmounting is tried again for a while: loop devices
/// go away some time after losetup returned, and a process that another test starts has our files
/// until it runs its program.
fn unmount(mut mount: Mount) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while let Err((busy, error)) = mount.unmount() {
        assert!(Instant::now() < deadline, "{error}");
        mount = *busy;
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Some(mount) = self.mount.take() {
            mount.detach();
        }
        if let Some(served) = self.served.take() {
            served.stop();
        }
    }
}

#[test]
fn the_file_reads_and_writes_as_the_array() {
    let Some(mut mounted) = mounted(8 * MIB, false) else { return };
    assert_eq!(std::fs::read_dir(mounted.dir.path()).unwrap().count(), 1);
    assert_eq!(std::fs::metadata(mounted.path()).unwrap().len(), 8 * MIB as u64);
    std::fs::metadata(mounted.dir.path().join("other")).unwrap_err();

    let file = mounted.open(OFlags::empty()).unwrap();
    let mut expected = std::fs::read(mounted.path()).unwrap();
    assert!(expected.iter().enumerate().all(|(i, byte)| *byte == (i / 512 % 251) as u8));
    for (at, len) in [(0, 4096), (4096, 3 * MIB), (5000, 10), (MIB + 1, 2 * MIB)] {
        let bytes: Vec<u8> = (0..len).map(|i| (i * 7 % 255) as u8).collect();
        file.write_all_at(&bytes, at as u64).unwrap();
        expected[at..at + len].copy_from_slice(&bytes);
    }
    assert!(std::fs::read(mounted.path()).unwrap() == expected);

    let asked = mounted.asked();
    assert_eq!((asked.flushes, asked.fua_writes), (0, 0), "closing is no barrier");
    file.sync_all().unwrap();
    assert_eq!(mounted.asked().flushes, 1);
    for flags in [OFlags::DSYNC, OFlags::SYNC] {
        mounted.open(flags).unwrap().write_all_at(&expected[..4096], 0).unwrap();
        assert_eq!(mounted.asked().fua_writes, 1);
    }

    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 4095, 8194).unwrap();
    expected[4095..4095 + 8194].fill(0);
    fallocate(&file, FallocateFlags::ZERO_RANGE, 2 * MIB as u64, MIB as u64).unwrap();
    expected[2 * MIB..3 * MIB].fill(0);
    fallocate(&file, FallocateFlags::empty(), 0, 8 * MIB as u64).unwrap();
    let zeroed = mounted.asked().zeroed;
    let mib = MIB as u64;
    let none = 8 * MIB as u64 + 1;
    assert_eq!(zeroed, [(4096..12_288, true), (2 * mib..3 * mib, false)]);
    fallocate(&file, FallocateFlags::empty(), 0, none).unwrap_err();
    fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096).unwrap_err();
    assert!(std::fs::read(mounted.path()).unwrap() == expected);

    assert_eq!(
        file.write_at(&[0], none).unwrap_err().raw_os_error(),
        Some(Errno::NOSPC.raw_os_error())
    );
    assert_eq!(file.read_at(&mut [0], none).unwrap(), 0);
    file.set_len(4096).unwrap_err();
    drop(File::create(mounted.path()).unwrap());
    assert!(std::fs::read(mounted.path()).unwrap() == expected, "O_TRUNC is ignored");
    drop(file);
    unmount(mounted.mount.take().unwrap());
    assert!(!mounted.path().exists());
}

/// Writes of many lengths at a time, in the way of direct I/O.
#[test]
fn what_is_written_goes_to_the_machine_from_where_it_landed() {
    for threads in [false, true] {
        let Some(mut mounted) = mounted_on(16 * MIB, false, threads) else { return };
        let lens = [4096, 8192, 64 << 10, 256 << 10, MIB, 12_288, 4096, 700 << 10];
        std::thread::scope(|scope| {
            for (number, len) in lens.into_iter().enumerate() {
                let file = mounted.open(OFlags::empty()).unwrap();
                scope.spawn(move || {
                    let start = (number * 2 * MIB) as u64;
                    for round in 0..8 {
                        let data = noise(round * 8 + number as u64, len);
                        // The kernel cuts what lies in more pages than a request may have.
                        let mut memory = vec![0; len + 4096];
                        let at = memory.as_ptr().align_offset(4096);
                        memory[at..at + len].copy_from_slice(&data);
                        file.write_all_at(&memory[at..at + len], start + 4096 * round).unwrap();
                        let mut found = vec![0; len];
                        file.read_exact_at(&mut found, start + 4096 * round).unwrap();
                        assert!(found == data);
                    }
                });
            }
        });
        let writes = mounted.asked().writes;
        assert_eq!(writes.len(), 8 * lens.len(), "each is one request");
        for request in writes {
            let buf = request.buf;
            assert!(mounted.landings.contains(&buf.offset), "{buf:?} is a copy");
            assert_eq!(buf.offset % 4096, 0, "{buf:?} is not at the beginning of a page");
        }
        unmount(mounted.mount.take().unwrap());
    }
}

/// Reads and writes that begin and end anywhere, against a plain file in memory.
#[test]
fn every_range_reads_and_writes_as_in_a_plain_file() {
    for threads in [false, true] {
        let Some(mut mounted) = mounted_on(4 * MIB, false, threads) else { return };
        let file = mounted.open(OFlags::empty()).unwrap();
        let mut expected = std::fs::read(mounted.path()).unwrap();
        let edges = [0, 1, 511, 4095, 4096, 4097, MIB - 1, MIB, MIB + 4097, 2 * MIB + 1, 4 * MIB];
        for (seed, start) in (0..).zip(edges) {
            for end in edges.into_iter().filter(|end| start < *end) {
                let data = noise(seed * 100 + end as u64, end - start);
                file.write_all_at(&data, start as u64).unwrap();
                expected[start..end].copy_from_slice(&data);
                let mut found = vec![0; end - start];
                file.read_exact_at(&mut found, start as u64).unwrap();
                assert!(found == data, "{start}..{end}");
            }
        }
        assert!(std::fs::read(mounted.path()).unwrap() == expected);
        drop(file);
        unmount(mounted.mount.take().unwrap());
    }
}

#[test]
fn who_is_not_root_mounts_with_the_help_of_fusermount3() {
    if !usable() {
        return;
    }
    if Command::new("fusermount3").arg("--version").output().is_err() {
        return skipped("fusermount3");
    }
    let dir = tempfile::tempdir().unwrap();
    let device = attach::mount_by_helper(dir.path(), users::OURS, false).unwrap();
    assert!(users::is_our_mount(dir.path()));
    let flags = rustix::fs::fcntl_getfl(&device).unwrap();
    assert!(flags.contains(OFlags::NONBLOCK), "the ring would wait in a thread");
    assert!(rustix::io::fcntl_getfd(&device).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
    drop(device);
    detach(dir.path()).unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let said =
        attach::mount_by_helper(&file.join("none"), users::OURS, false).unwrap_err().to_string();
    assert!(said.contains("fusermount3"), "{said}");
}

#[test]
fn a_read_only_array_is_not_opened_for_writing() {
    let Some(mounted) = mounted(MIB, true) else { return };
    let error = mounted.open(OFlags::empty()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(Errno::ROFS.raw_os_error()));
    let mut bytes = Vec::new();
    File::open(mounted.path()).unwrap().read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len(), MIB);
}

#[test]
fn names_stay_as_they_are() {
    let Some(mut mounted) = mounted(MIB, false) else { return };
    let file = mounted.path();
    let other = mounted.dir.path().join("other");
    let refused = |done: io::Result<()>| done.unwrap_err().raw_os_error();
    let not_permitted = Errno::PERM.raw_os_error();
    let busy = Errno::BUSY.raw_os_error();
    assert_eq!(refused(std::fs::remove_file(&file)), Some(not_permitted));
    assert_eq!(refused(std::fs::rename(&file, &other)), Some(busy));
    assert_eq!(refused(std::fs::create_dir(&other)), Some(not_permitted));
    assert_eq!(refused(File::create(&other).map(drop)), Some(not_permitted));
    assert_eq!(refused(std::os::unix::fs::symlink(&file, &other)), Some(not_permitted));
    assert_eq!(refused(std::fs::hard_link(&file, &other)), Some(not_permitted));
    assert_eq!(std::fs::read_dir(mounted.dir.path()).unwrap().count(), 1);
    unmount(mounted.mount.take().unwrap());
}

#[test]
fn a_mount_in_use_stays_until_it_is_free() {
    let Some(mut mounted) = mounted(MIB, false) else { return };
    let file = mounted.open(OFlags::empty()).unwrap();
    let (mount, error) = mounted.mount.take().unwrap().unmount().unwrap_err();
    let us = users::Process::of(std::process::id());
    assert!(error.reason.starts_with(&format!("is in use by {us}")), "{error}");
    file.write_all_at(&[1; 4096], 0).unwrap();
    drop(file);
    unmount(*mount);
}

#[test]
fn what_is_no_empty_directory_is_refused() {
    let Some(mounted) = mounted(MIB, false) else { return };
    let refused = |at: &Path| mount_at(at, false).unwrap_err().reason;
    assert_eq!(refused(mounted.dir.path()), "something is already mounted here");
    assert_eq!(refused(Path::new("/")), "something is already mounted here");
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(refused(&dir.path().join("none")), "no such directory");
    let file = dir.path().join("file");
    std::fs::write(&file, "x").unwrap();
    assert_eq!(refused(&file), "is not a directory");
    assert_eq!(refused(dir.path()), "is not an empty directory");
}

#[test]
fn an_ended_engine_gives_errors_and_no_hangs() {
    let Some(mut mounted) = mounted(MIB, false) else { return };
    let file = mounted.open(OFlags::empty()).unwrap();
    mounted.served.take().unwrap().stop();
    // The other end of the mount is closed.
    let gone = [Errno::NOTCONN, Errno::CONNABORTED].map(|errno| Some(errno.raw_os_error()));
    let refused = |error: io::Error| assert!(gone.contains(&error.raw_os_error()), "{error}");
    refused(file.read_at(&mut [0; 512], 0).unwrap_err());
    refused(file.write_at(&[0; 512], 0).unwrap_err());
    refused(file.sync_all().unwrap_err());
    drop(file);
    mounted.mount.take().unwrap().detach();
}

/// Variable with the place of the member of the array that [`serves_a_device`] serves, and whether
/// it follows another.
const SERVED: &str = "BRAID_TEST_SERVED";
const FOLLOWS: &str = "BRAID_TEST_FOLLOWS";

/// A process that serves a device which stays open here, killed in the middle of writes, and the
/// one after it.
#[test]
fn a_successor_answers_what_its_predecessor_was_asked() {
    if !usable() {
        return;
    }
    if kernel_before(6, 9) {
        return skipped("to be asked again (Linux 6.9)");
    }
    let dir = tempfile::tempdir().unwrap();
    let members = tempfile::tempdir().unwrap();
    let device = attach(dir.path(), users::OURS, false).unwrap();
    let serve = |follows: &str| {
        let mut program = Command::new(std::env::current_exe().unwrap());
        program.args(["--exact", "export::fuse::tests::serves_a_device", "--ignored"]);
        program.env(SERVED, members.path()).env(FOLLOWS, follows);
        program.stdin(device.try_clone().unwrap()).stdout(Stdio::null());
        program.spawn().unwrap()
    };
    let mut first = serve("no");
    let (done, events) = channel();
    let block = 64 << 10;
    let writers: Vec<_> = (0..4_u64)
        .map(|writer| {
            let path = dir.path().join("a0");
            let done = done.clone();
            std::thread::spawn(move || -> io::Result<()> {
                let file = OpenOptions::new().read(true).write(true).open(path)?;
                let offset = |round: u64| (writer * 32 + round % 32) * block;
                for round in 0..400 {
                    file.write_all_at(
                        &noise(writer * 1000 + round, block as usize),
                        offset(round),
                    )?;
                    // Nobody listens to all of it.
                    let _ = done.send(());
                }
                for round in 368..400 {
                    let mut found = vec![0; block as usize];
                    file.read_exact_at(&mut found, offset(round))?;
                    assert!(found == noise(writer * 1000 + round, block as usize), "{round}");
                }
                Ok(())
            })
        })
        .collect();
    drop(done);
    let long = Duration::from_secs(60);
    let mut written = (0..100).map(|_| events.recv_timeout(long));
    let begun = written.all(|event| event.is_ok());
    first.kill().unwrap();
    first.wait().unwrap();
    let mut second = serve("yes");
    // The last of them hangs up when all has been written and read.
    let end = loop {
        if let Err(end) = events.recv_timeout(long) {
            break end;
        }
    };
    detach(dir.path()).unwrap();
    second.kill().unwrap();
    second.wait().unwrap();
    // Without anybody who has it, those who wait hear of an error.
    drop(device);
    for writer in writers {
        writer.join().unwrap().unwrap();
    }
    assert!(begun && end == RecvTimeoutError::Disconnected, "somebody waited for an answer");
}

#[test]
#[ignore = "a part of another test, in a process of its own"]
fn serves_a_device() {
    use std::os::fd::AsFd;

    let dir = PathBuf::from(std::env::var_os(SERVED).expect("where the member is"));
    let device = io::stdin().as_fd().try_clone_to_owned().unwrap();
    if std::env::var(FOLLOWS).as_deref() == Ok("yes") {
        resume(&device).unwrap();
    }
    let size = 8 * MIB as u64;
    let mut engine = mirror(&dir, 1, size, REQUEST_BYTES);
    let (server, mount_table) = FuseServer::new(engine.size(), 512).unwrap();
    let tree = Tree::new(vec![("a0".into(), 0)], false);
    mount_table.add(0, mount_table::NewMount { device, tree, mountpoint: PathBuf::new() });
    engine.add_export(Box::new(server));
    engine.run().unwrap();
}

fn kernel_before(major: u32, minor: u32) -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-']).map(|word| word.parse().unwrap_or(0));
    (numbers.next(), numbers.next()) < (Some(major), Some(minor))
}
