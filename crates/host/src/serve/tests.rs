use braid_array::Role;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use braid_array::assemble::{MemberConfig, Standing, StartLog};
use braid_array::format::{BadBlocks, Superblock};

use super::*;
use crate::control::wire::Verb;
use crate::control::{Client, ControlError, list};
use crate::engine::tests::{self as engines, memory};
use crate::member::{Mode, open};
use crate::testing;

const DATA_SECTORS: u64 = 8 << 11;
const DATA_OFFSET: u64 = 2048;

/// A clean mirror of two files in `dir`, as assembly would find it.
fn mirror(dir: &Path) -> Serving {
    let paths = ["m0", "m1"].map(|name| dir.join(name));
    let base = testing::status(DATA_SECTORS * 512, &[&paths[0], &paths[1]]).superblock;
    let mut members = Vec::new();
    let mut configs = Vec::new();
    for (number, path) in (0..).zip(&paths) {
        let superblock =
            Superblock { dev_number: number, device_uuid: [number as u8 + 1; 16], ..base.clone() };
        let sectors = DATA_OFFSET + DATA_SECTORS;
        let file = std::fs::File::create(path).unwrap();
        file.set_len(sectors * 512).unwrap();
        file.write_all_at(&superblock.encode(), 4096).unwrap();
        members.push(open(path, Mode::ReadWrite, true).unwrap());
        configs.push(MemberConfig {
            device: path.display().to_string(),
            device_sectors: sectors,
            superblock,
            bad_blocks: BadBlocks::default(),
            standing: Standing::InSync { role: Role(number as u16) },
        });
    }
    let block_bytes = members.iter().map(|member| member.block_bytes).max().unwrap();
    Serving {
        name: "a0".into(),
        array: Assembled::Array {
            config: Config {
                superblock: base,
                members: configs,
                bitmap: None,
                log: StartLog::None,
                read_only: false,
                force: false,
                block_bytes,
                spill: None,
            },
            members,
        },
        integrity_store: None,
        exports: Vec::new(),
        limits: Limits::default(),
        run_dir: dir.join("run"),
        successor: None,
        leftovers: None,
    }
}

/// Serves on a thread of its own; returns when it is ready or has failed.
fn start(serving: Serving) -> JoinHandle<Result<(), Refusal>> {
    let (ready, is_ready) = mpsc::channel();
    let serving = thread::spawn(move || {
        serve(serving, move |_| {
            ready.send(()).unwrap();
            Ok(())
        })
    });
    // An error means that it ended before.
    let _ = is_ready.recv();
    serving
}

fn nbd_at(socket: &Path) -> ExportSpec {
    format!("nbd:unix:{}", socket.display()).parse().unwrap()
}

fn tempdir() -> tempfile::TempDir {
    tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap()
}

#[test]
fn an_array_is_served_from_start_to_stop() {
    let dir = tempdir();
    let mut serving = mirror(dir.path());
    let socket = dir.path().join("nbd.sock");
    serving.exports = vec![nbd_at(&socket), "nbd:tcp:127.0.0.1:0".parse().unwrap()];
    let run_dir = serving.run_dir.clone();
    let server = start(serving);
    assert_eq!(list(&run_dir).unwrap(), ["a0"]);
    let mut client = Client::connect(&run_dir, "a0").unwrap();
    let status = client.status().unwrap();
    assert_eq!(status.array.array_sectors, DATA_SECTORS);
    assert_eq!(status.exports[0], format!("nbd:unix:{}", socket.display()));
    assert!(!status.exports[1].ends_with(":0"), "{:?}", status.exports);
    UnixStream::connect(&socket).unwrap();
    std::net::TcpStream::connect(status.exports[1].strip_prefix("nbd:tcp:").unwrap()).unwrap();
    let mut bytes = Vec::new();
    assert_eq!(client.read(4096, 100_000, &mut bytes).unwrap(), 100_000);
    assert!(bytes.iter().all(|byte| *byte == 0));
    // The members are locked, and so is the name.
    assert!(open(&dir.path().join("m0"), Mode::ReadWrite, true).is_err());
    let mut second = mirror(tempdir().path());
    second.run_dir.clone_from(&run_dir);
    let error = start(second).join().unwrap().unwrap_err();
    assert_eq!(error.reason, "an array named a0 is already running");

    client
        .call(Verb::Fail { member: dir.path().join("m1").display().to_string(), force: false })
        .unwrap();
    let degraded = client.status().unwrap().array.degraded;
    assert_eq!(degraded, 1);
    client.stop(false).unwrap();
    // What the answer promises.
    open(&dir.path().join("m0"), Mode::ReadWrite, true).unwrap();
    assert!(!socket.exists());
    assert!(matches!(Client::connect(&run_dir, "a0"), Err(ControlError::NotRunning)));
    server.join().unwrap().unwrap();
}

#[test]
fn an_added_device_takes_the_place_of_a_failed_one() {
    let dir = tempdir();
    let serving = mirror(dir.path());
    let content: Vec<u8> = (0..DATA_SECTORS * 512).map(|i| (i / 7 % 251) as u8).collect();
    let Assembled::Array { members, .. } = &serving.array else { unreachable!() };
    members[0].write_at(DATA_OFFSET * 512, &content).unwrap();
    let run_dir = serving.run_dir.clone();
    let server = start(serving);
    let mut client = Client::connect(&run_dir, "a0").unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    client.call(Verb::Fail { member: path("m1"), force: false }).unwrap();
    client.call(Verb::Remove { member: path("m1") }).unwrap();
    // Removed means free, at once.
    open(&dir.path().join("m1"), Mode::ReadWrite, true).unwrap();
    let fresh = std::fs::File::create(path("m2")).unwrap();
    fresh.set_len((DATA_OFFSET + DATA_SECTORS) * 512).unwrap();
    client.call(Verb::Add { member: path("m2"), force: false, within: None }).unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while client.status().unwrap().array.degraded > 0 {
        assert!(std::time::Instant::now() < deadline, "no recovery");
        thread::yield_now();
    }
    let members = client.status().unwrap().array.members;
    assert!(
        members.iter().any(|member| member.device == path("m2") && member.role == Some(Role(1)))
    );
    client.stop(false).unwrap();
    server.join().unwrap().unwrap();
    let found = crate::member::peek(&dir.path().join("m2")).unwrap();
    let offset = crate::member::probe(&found).superblock.unwrap().data_offset * 512;
    assert!(found.read_at(offset, content.len()).unwrap() == content);
}

#[test]
fn a_mount_in_use_refuses_the_stop_and_serves_on() {
    if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
        return testing::skipped("FUSE as root");
    }
    let dir = tempdir();
    let mut serving = mirror(dir.path());
    let mountpoint = dir.path().join("mnt");
    std::fs::create_dir(&mountpoint).unwrap();
    serving.exports = vec![format!("fuse:{}", mountpoint.display()).parse().unwrap()];
    let run_dir = serving.run_dir.clone();
    let server = start(serving);
    let file = std::fs::File::options().write(true).open(mountpoint.join("a0")).unwrap();
    let client = || Client::connect(&run_dir, "a0").unwrap();
    let error = client().stop(false).unwrap_err().to_string();
    let us = crate::users::Process::of(std::process::id());
    assert!(error.starts_with(&format!("in use by {us}")), "{error}");
    assert!(error.ends_with("or insist"), "{error}");
    let data: Vec<u8> = (0..1 << 20).map(|i| (i % 241) as u8).collect();
    file.write_all_at(&data, 12_345).unwrap();
    file.sync_all().unwrap();
    for member in ["m0", "m1"] {
        let bytes = std::fs::read(dir.path().join(member)).unwrap();
        let start = DATA_OFFSET as usize * 512 + 12_345;
        assert!(bytes[start..start + data.len()] == data, "{member}");
    }
    drop(file);
    // A process that another test starts has the file as well, until it runs its program.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while let Err(error) = client().stop(false) {
        assert!(std::time::Instant::now() < deadline, "{error}");
    }
    server.join().unwrap().unwrap();
    assert!(!mountpoint.join("a0").exists());
}

/// A client of the NBD export that has come to commands.
fn nbd_client(socket: &Path) -> UnixStream {
    let (client, size) = nbd_client_of(socket);
    assert_eq!(size, DATA_SECTORS * 512);
    client
}

/// A client, and the size that it is told.
fn nbd_client_of(socket: &Path) -> (UnixStream, u64) {
    let mut client = UnixStream::connect(socket).unwrap();
    client.read_exact(&mut [0; 18]).unwrap();
    // Fixed newstyle without zeroes; NBD_OPT_EXPORT_NAME with the default name.
    client.write_all(&3u32.to_be_bytes()).unwrap();
    client.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\0").unwrap();
    let mut size = [0; 10];
    client.read_exact(&mut size).unwrap();
    (client, u64::from_be_bytes(size[..8].try_into().unwrap()))
}

/// Reads the first sector.
fn nbd_read(mut client: &UnixStream) {
    client.write_all(b"\x25\x60\x95\x13\0\0\0\0cookie..\0\0\0\0\0\0\0\0\0\0\x02\0").unwrap();
    let mut reply = [0; 16 + 512];
    client.read_exact(&mut reply).unwrap();
    assert_eq!(reply[4..8], [0; 4], "an error");
}

/// Serves with an NBD export; signals are sent through the returned channel.
fn start_with_signals(
    dir: &Path,
    patience: Duration,
) -> (Sender<StopRequest>, PathBuf, JoinHandle<Result<(), Refusal>>) {
    let Serving { name, array, limits, run_dir, .. } = mirror(dir);
    let socket = dir.join("nbd.sock");
    let exports = vec![nbd_at(&socket)];
    let stops = Stops::new(patience);
    let signals = stops.sender.clone();
    let (ready, is_ready) = mpsc::channel();
    let server = thread::spawn(move || {
        let ready = move |_: &[String]| ready.send(()).map_err(io::Error::other);
        let machinery = Machinery::new(array, &exports, None)?;
        let how = How { name, exports, limits, run_dir, successor: None, leftovers: None };
        serve_machine(&how, machinery, stops, ready)
    });
    is_ready.recv().unwrap();
    (signals, socket, server)
}

fn is_clean(member: &Path) -> bool {
    let found = crate::member::probe(&crate::member::peek(member).unwrap());
    found.superblock.unwrap().resync_offset == braid_array::format::superblock::MAX_SECTOR
}

#[test]
fn a_connected_client_stands_against_a_stop() {
    let dir = tempdir();
    let (_signals, socket, server) = start_with_signals(dir.path(), Duration::ZERO);
    let run_dir = dir.path().join("run");
    let greeted = UnixStream::connect(&socket).unwrap();
    let client = nbd_client(&socket);
    let stop = |force| Client::connect(&run_dir, "a0").unwrap().stop(force);
    let error = stop(false).unwrap_err().to_string();
    let us = crate::users::Process::of(std::process::id());
    // The one that has said nothing yet uses nothing.
    assert!(error.starts_with(&format!("in use by {us}; ")), "{error}");
    nbd_read(&client);
    stop(true).unwrap();
    assert_eq!((&client).read(&mut [0]).unwrap(), 0);
    server.join().unwrap().unwrap();
    assert!(is_clean(&dir.path().join("m0")));
    drop(greeted);
}

#[test]
fn a_signal_waits_for_clients_and_no_longer() {
    let dir = tempdir();
    let (signals, socket, server) = start_with_signals(dir.path(), Duration::from_secs(3600));
    let client = nbd_client(&socket);
    signals.send(StopRequest::Signal).unwrap();
    signals.send(StopRequest::Signal).unwrap();
    // Answered after both: it still serves.
    let run_dir = dir.path().join("run");
    Client::connect(&run_dir, "a0").unwrap().stop(false).unwrap_err();
    nbd_read(&client);
    drop(client);
    server.join().unwrap().unwrap();
    assert!(is_clean(&dir.path().join("m0")));
}

#[test]
fn a_signal_does_not_wait_for_ever() {
    let dir = tempdir();
    let (signals, socket, server) = start_with_signals(dir.path(), Duration::from_millis(1));
    let client = nbd_client(&socket);
    signals.send(StopRequest::Signal).unwrap();
    server.join().unwrap().unwrap();
    assert_eq!((&client).read(&mut [0]).unwrap(), 0);
    assert!(is_clean(&dir.path().join("m1")));
}

#[test]
fn what_cannot_be_exported_is_refused_before_anything_is_written() {
    let dir = tempdir();
    let listener = std::os::unix::net::UnixListener::bind(dir.path().join("live")).unwrap();
    let refused = |export: &str| {
        let mut serving = mirror(dir.path());
        serving.exports = vec![export.parse().unwrap()];
        let before = ["m0", "m1"].map(|name| std::fs::read(dir.path().join(name)).unwrap());
        let error = start(serving).join().unwrap().unwrap_err();
        let after = ["m0", "m1"].map(|name| std::fs::read(dir.path().join(name)).unwrap());
        assert!(before == after);
        assert!(list(&dir.path().join("run")).unwrap().is_empty());
        error.to_string()
    };
    let live = format!("nbd:unix:{}", dir.path().join("live").display());
    assert_eq!(
        refused(&live),
        format!("{live}: somebody listens there already; name another address")
    );
    let gone = refused("nbd:unix:/none/of/this");
    assert!(
        gone.ends_with(": there is no directory /none/of; make it: mkdir -p /none/of"),
        "{gone}"
    );
    assert!(refused("fuse:/none/of/this").contains("no such directory; make it"));
    testing::deafen(listener);
    // Nobody listens any more: the file is in nobody's way.
    let mut serving = mirror(dir.path());
    serving.exports = vec![live.parse().unwrap()];
    let server = start(serving);
    Client::connect(&dir.path().join("run"), "a0").unwrap().stop(false).unwrap();
    server.join().unwrap().unwrap();
}

#[test]
fn exports_reach_to_the_end_of_an_array_that_has_grown() {
    const MIB: u64 = 1 << 20;
    let dir = tempdir();
    let sectors = Arc::new(AtomicU64::new(2 * MIB / SECTOR_BYTES));
    let engine = memory(4 * MIB, 8 * MIB, |double| double.of(Arc::clone(&sectors)));
    let facts = Facts {
        uuid: [1; 16],
        block_bytes: 512,
        chunk_bytes: 0,
        stripe_bytes: 0,
        read_only: false,
    };
    let mut open = OpenExports::new("a0", dir.path(), facts, 1, Some(Vec::new()), &engine);
    let exports = engine.export_queue();
    let served = engines::Served::start(engine, false);
    let mut add = |name: &str, part: &str| {
        let spec = format!("nbd:unix:{}{part}", dir.path().join(name).display());
        open.open(&spec.parse().unwrap(), &mut |export| Ok(exports.add(export).unwrap()))
    };
    let size = |name: &str| nbd_client_of(&dir.path().join(name)).1;
    add("whole", "").unwrap();
    add("rest", ",offset=1M,readonly").unwrap();
    add("first", ",size=1M,readonly").unwrap();
    add("beyond", ",offset=3M,readonly").unwrap_err();
    assert_eq!(["whole", "rest", "first"].map(size), [2 * MIB, MIB, MIB]);

    sectors.store(4 * MIB / SECTOR_BYTES, Ordering::Relaxed);
    // The size is noticed when the first is done.
    for _ in 0..2 {
        served.submissions.call(|done| Message::Flush { done }).unwrap().unwrap();
    }
    assert_eq!(["whole", "rest", "first"].map(size), [4 * MIB, 3 * MIB, MIB]);
    add("beyond", ",offset=3M,readonly").unwrap();
    // Several exports of the whole array may write.
    add("second", "").unwrap();
    assert_eq!(["beyond", "second"].map(size), [MIB, 4 * MIB]);
    served.stop();
}

#[test]
fn who_cannot_say_ready_stops_again() {
    let dir = tempdir();
    let error = serve(mirror(dir.path()), |_| Err(io::Error::other("nobody waits"))).unwrap_err();
    assert!(error.reason.contains("nobody waits"), "{error}");
    open(&dir.path().join("m0"), Mode::ReadWrite, true).unwrap();
    assert!(list(&dir.path().join("run")).unwrap().is_empty());
}
