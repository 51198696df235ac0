use std::fs::File;
use std::io::{BufReader, Write};
use std::net::Shutdown;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};

use braid_array::action::Command;
use braid_array::grow::Grow;
use braid_array::{MemberId, Refusal};

use super::wire::{MAX_LINE_BYTES, Reply, Response, Verb};
use super::*;
use crate::disk::Disks;
use crate::limits::LimitKeeper;
use crate::lock::LockedFile;
use crate::testing::{FakeEngine, deafen};

struct Running {
    dir: tempfile::TempDir,
    fake: FakeEngine,
    stops: mpsc::Receiver<StopRequest>,
    _server: ControlServer,
}

const SIZE: usize = 5 << 20;

fn content() -> Vec<u8> {
    (0..SIZE).map(|i| (i / 512 % 251) as u8).collect()
}

/// A server named "a0" over a fake array whose members are `m0` and `m1` in its directory.
fn running() -> Running {
    let dir = tempfile::tempdir().unwrap();
    let members = ["m0", "m1"].map(|name| dir.path().join(name));
    for member in &members {
        std::fs::write(member, [0; 4096]).unwrap();
    }
    let bad = 3 << 20..(3 << 20) + 512;
    let fake = FakeEngine::start(content(), 512, bad, &[&members[0], &members[1]]);
    let (stop, stops) = mpsc::channel();
    let exports = Shown::default();
    exports.set(vec!["nbd:unix:/x".into()]);
    let served = Served {
        name: "a0".into(),
        submissions: fake.submissions.clone(),
        block_bytes: 512,
        network: None,
        exports,
        run_dir: dir.path().to_owned(),
        started_unix_s: 1,
        limits: LimitKeeper::start(fake.submissions.clone()).unwrap(),
        stop,
        news: Arc::default(),
        disks: Disks::default(),
        overlay: None,
    };
    let mut server = ControlServer::bind(dir.path(), "a0").unwrap();
    server.run(Arc::new(served)).unwrap();
    Running { dir, fake, stops, _server: server }
}

impl Running {
    fn client(&self) -> Client {
        Client::connect(self.dir.path(), "a0").unwrap()
    }

    fn path(&self, name: &str) -> String {
        member_path(&self.dir.path().join(name))
    }

    fn refused(&self, verb: Verb) -> String {
        self.client().call(verb).unwrap_err().to_string()
    }
}

#[test]
fn status_comes_through_whole() {
    let running = running();
    let status = running.client().status().unwrap();
    assert_eq!((status.name.as_str(), status.pid), ("a0", std::process::id()));
    assert_eq!(status.exports, ["nbd:unix:/x"]);
    let direct = running.fake.submissions.status().unwrap();
    assert_eq!(status.array.superblock, direct.superblock);
    assert_eq!(format!("{:?}", status.array), format!("{direct:?}"));
}

#[test]
fn commands_reach_the_member_that_was_named() {
    let running = running();
    let link = running.dir.path().join("link");
    std::os::unix::fs::symlink(running.dir.path().join("m1"), &link).unwrap();
    let mut client = running.client();
    let member = |name| running.path(name);
    client.call(Verb::Fail { member: member("m0"), force: false }).unwrap();
    client.call(Verb::Remove { member: link.display().to_string() }).unwrap();
    client.call(Verb::Repair).unwrap();
    client.call(Verb::Pause).unwrap();
    let limits = Verb::SyncLimits {
        min_bytes_s: None,
        max_bytes_s: Some(5),
        min_windows: Vec::new(),
        max_windows: Vec::new(),
    };
    client.call(limits).unwrap();
    let commands = format!("{:?}", running.fake.asked.lock().unwrap().commands);
    let expected = [
        Command::Fail(MemberId(0)),
        Command::Remove(MemberId(1)),
        Command::Scrub { repair: true },
        Command::Pause(true),
        Command::SpeedLimits { min_bytes_s: None, max_bytes_s: Some(5) },
    ];
    assert_eq!(commands, format!("{expected:?}"));
    assert_eq!(
        running.refused(Verb::Replace { member: member("m0"), with: None }),
        "no spare; add one"
    );
    assert!(
        running
            .refused(Verb::Fail { member: "/x".into(), force: false })
            .starts_with("/x is no member")
    );
}

#[test]
fn a_device_is_checked_before_it_is_added() {
    let running = running();
    let size = SIZE as u64 + (1 << 20);
    let make = |name: &str, bytes: u64| {
        let path = running.dir.path().join(name);
        File::create(&path).unwrap().set_len(bytes).unwrap();
        path
    };
    let add = |name, force| Verb::Add { member: running.path(name), force, within: None };
    let refused = |name| running.refused(add(name, false));
    assert!(refused("m0").contains("already a member of a0; fail and remove it first"));
    assert!(refused("none").starts_with("no such file or device; "));
    make("small", SIZE as u64);
    assert!(refused("small").starts_with("too small: 10240 sectors, at least 10248"));
    let held = make("held", size);
    let _holder = crate::member::open(&held, crate::member::Mode::ReadWrite, true).unwrap();
    assert!(refused("held").starts_with("in use by "), "{}", refused("held"));
    let ext = make("ext", size);
    let mut bytes = vec![0; SIZE + (1 << 20)];
    bytes[1080..1082].copy_from_slice(&[0x53, 0xef]);
    std::fs::write(&ext, &bytes).unwrap();
    assert!(refused("ext").starts_with("holds an ext2 file system (at byte 1080); use --force"));
    assert!(std::fs::read(&ext).unwrap() == bytes);
    assert!(running.refused(Verb::ReAdd { member: running.path("ext") }).contains("was no member"));
    // The same where it is only asked for.
    let check = |name, sectors| Verb::CheckAdd { member: running.path(name), sectors };
    for name in ["m0", "none", "ext"] {
        assert_eq!(running.refused(check(name, 0)), refused(name), "{name}");
    }
    // This process serves arrays of other tests too, and starts programs, which have its files for
    // a moment: who is named is by chance.
    assert!(running.refused(check("held", 0)).starts_with("in use by "));
    let needed = SIZE as u64 / 512;
    assert!(running.refused(check("small", needed)).starts_with("too small: 10240 sectors"));
    running.client().call(check("small", needed - 8)).unwrap();
    assert!(running.fake.asked.lock().unwrap().commands.is_empty());

    running.client().call(add("ext", true)).unwrap();
    make("blank", size);
    running.client().call(add("blank", false)).unwrap();
    let asked = running.fake.asked.lock().unwrap();
    let [Command::Add(first), Command::Add(second)] = asked.commands.as_slice() else { panic!() };
    assert_eq!(second.device, running.path("blank"));
    assert_eq!(second.device_sectors, size / 512);
    assert_ne!(first.device_uuid, second.device_uuid);
}

#[test]
fn a_superblock_of_another_array_is_respected() {
    let running = running();
    let mut superblock = running.fake.submissions.status().unwrap().superblock;
    let write = |superblock: &braid_array::format::Superblock| {
        let mut bytes = vec![0; SIZE + (1 << 20)];
        let encoded = superblock.encode();
        bytes[4096..4096 + encoded.len()].copy_from_slice(&encoded);
        std::fs::write(running.dir.path().join("old"), bytes).unwrap();
    };
    let member = || running.path("old");
    write(&superblock);
    running.client().call(Verb::ReAdd { member: member() }).unwrap();
    superblock.set_uuid = [9; 16];
    write(&superblock);
    let refusal = running.refused(Verb::Add { member: member(), force: false, within: None });
    assert!(refusal.starts_with("is a member of another array, 09090909:"), "{refusal}");
    running.client().call(Verb::Add { member: member(), force: true, within: None }).unwrap();
    let asked = running.fake.asked.lock().unwrap();
    let [Command::Add(ours), Command::Add(forced)] = asked.commands.as_slice() else { panic!() };
    assert!(ours.readd && ours.superblock.is_some());
    assert!(!forced.readd && forced.superblock.is_none());
}

#[test]
fn content_is_read_at_any_offset_and_errors_are_noticed() {
    let running = running();
    let content = content();
    for (offset, length) in [(0, 2 << 20), (1, 1), (511, 1026), ((1 << 20) - 3, 7)] {
        let mut bytes = Vec::new();
        running.client().read(offset as u64, length as u64, &mut bytes).unwrap();
        assert!(bytes == content[offset..offset + length], "{offset} {length}");
    }
    let mut tail = Vec::new();
    let from = SIZE - 1000;
    assert_eq!(running.client().read(from as u64, u64::MAX, &mut tail).unwrap(), 1000);
    assert_eq!(tail, content[from..]);
    let error = running.client().read(0, u64::MAX, &mut Vec::new()).unwrap_err().to_string();
    assert!(error.contains("the array cannot be read at about"), "{error}");
    running.client().read(SIZE as u64 + 1, 1, &mut Vec::new()).unwrap_err();
}

#[test]
fn hostile_input_gets_an_error() {
    let running = running();
    let ask = |bytes: &[u8]| {
        let mut stream = UnixStream::connect(socket_path(running.dir.path(), "a0")).unwrap();
        // The server may have hung up in the middle.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let line = read_line(&mut BufReader::new(stream)).unwrap()?;
        let response: Response = serde_json::from_slice(&line).unwrap();
        match response.result {
            Reply::Ok(_) => panic!("{bytes:?} was taken"),
            Reply::Error(refusal) => Some(refusal.reason),
        }
    };
    let reason = |bytes: &[u8]| ask(bytes).unwrap();
    assert!(reason(b"\n").starts_with("not a request"));
    assert!(reason(b"\xff\xfe{}\n").starts_with("not a request"));
    assert!(reason(b"{\"version\":3,\"verb\":\"explode\"}\n").starts_with("not a request"));
    assert!(reason(b"{\"version\":3,\"verb\":\"fail\"}\n").contains("missing field `member`"));
    assert!(reason(b"{\"version\":1,\"verb\":\"status\"}\n").contains("speaks version 3, not 1"));
    assert!(reason(b"{\"version\":3,\"verb\":\"read\",\"offset\":-1,\"length\":1}\n").len() > 5);
    assert_eq!(reason(b"{\"version\":3"), "a line without an end");
    assert_eq!(reason(&vec![b'['; MAX_LINE_BYTES + 2]), "a line without an end");
    assert!(reason(&[&[b'['; 1000][..], b"\n"].concat()).starts_with("not a request"));
    assert_eq!(ask(b""), None);
    running.client().status().unwrap();
}

#[test]
fn idle_connections_give_way_and_commands_get_in() {
    let running = running();
    let mut clients: Vec<_> = (0..40).map(|_| running.client()).collect();
    running.client().status().unwrap();
    // Tests of who holds a device connect here too, for a moment: each makes one more give way.
    for (number, client) in clients.iter_mut().enumerate().rev() {
        assert!(client.status().is_ok() != (number < 9) || (9..20).contains(&number), "{number}");
    }
}

#[test]
fn readers_who_take_nothing_leave_room_for_commands() {
    let running = running();
    // Their content does not fit into a socket's buffer.
    let readers: Vec<_> = (0..24)
        .map(|_| {
            let mut reader = UnixStream::connect(socket_path(running.dir.path(), "a0")).unwrap();
            let verb = Verb::Read { offset: 0, length: 2 << 20 };
            let request = super::wire::ControlRequest { version: super::wire::VERSION, verb };
            let ask = format!("{}\n", serde_json::to_string(&request).unwrap());
            reader.write_all(ask.as_bytes()).unwrap();
            let line = read_line(&mut BufReader::with_capacity(1, &reader)).unwrap().unwrap();
            assert!(
                line.windows(4).any(|part| part == b"\"ok\""),
                "{}",
                String::from_utf8_lossy(&line)
            );
            reader
        })
        .collect();
    let refused = running.refused(Verb::Read { offset: 0, length: 512 });
    assert!(refused.starts_with("its content is being read 24 times already; "), "{refused}");
    // The refused one may not have left its place yet, nor tests that ask who holds a device.
    let mut commands: Vec<_> = (0..4).map(|_| running.client()).collect();
    for client in &mut commands {
        client.status().unwrap();
    }
    drop(readers);
    // The server notices in its own time.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while running.client().read(0, 512, &mut Vec::new()).is_err() {
        assert!(std::time::Instant::now() < deadline, "no place became free");
        std::thread::yield_now();
    }
}

#[test]
fn stop_is_answered_by_who_stops() {
    let running = running();
    let client = running.client();
    let asker = std::thread::spawn(move || client.stop(false));
    let Ok(StopRequest::Asked { force: false, told }) = running.stops.recv() else { panic!() };
    told(Err(Refusal::new("busy", "unmount")));
    assert_eq!(asker.join().unwrap().unwrap_err().to_string(), "busy; unmount");
    // A request that nobody answers is no success.
    let client = running.client();
    let asker = std::thread::spawn(move || client.stop(false));
    drop(running.stops.recv().unwrap());
    let error = asker.join().unwrap().unwrap_err().to_string();
    assert_eq!(error, "a0 has stopped; assemble it again");
}

#[test]
fn a_name_is_taken_once_and_dead_sockets_are_replaced() {
    let running = running();
    let dir = running.dir.path();
    let error = ControlServer::bind(dir, "a0").unwrap_err();
    assert_eq!(error.reason, "an array named a0 is already running");
    // A process that died leaves its socket file behind.
    deafen(UnixListener::bind(socket_path(dir, "dead")).unwrap());
    std::fs::write(socket_path(dir, "file"), "not a socket").unwrap();
    Client::connect(dir, "dead").unwrap_err();
    assert_eq!(list(dir).unwrap(), ["a0"]);
    assert!(!socket_path(dir, "dead").exists());
    deafen(UnixListener::bind(socket_path(dir, "dead")).unwrap());
    let server = ControlServer::bind(dir, "dead").unwrap();
    assert_eq!(list(dir).unwrap(), ["a0", "dead"]);
    let mode = std::fs::metadata(socket_path(dir, "dead")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(server);
    assert!(!socket_path(dir, "dead").exists());
    assert_eq!(std::fs::read(socket_path(dir, "file")).unwrap(), b"not a socket");
    assert!(matches!(Client::connect(dir, "../a0"), Err(ControlError::NotRunning)));
}

#[test]
fn an_engine_that_ended_is_said_so() {
    let running = running();
    running.fake.submissions.call(|done| crate::submission::Message::Command {
        command: Command::Stop,
        device: None,
        done,
    });
    assert!(running.refused(Verb::Status).starts_with("a0 has stopped"));
    assert!(matches!(running.client().call(Verb::Check), Err(ControlError::Refused(_))));
}

#[test]
fn a_lock_that_is_not_given_back_hangs_nobody() {
    let running = running();
    let dir = running.dir.path();
    // What anybody who can look into the directory can do.
    let everybody = LockedFile::from(File::open(dir).unwrap());
    everybody.lock(true).unwrap();
    deafen(UnixListener::bind(socket_path(dir, "dead")).unwrap());
    assert_eq!(list(dir).unwrap(), ["a0"]);
    assert!(!socket_path(dir, "dead").exists());
    drop(ControlServer::bind(dir, "b").unwrap());
    let mode = std::fs::metadata(dir.join(".lock")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o600);

    // What only this user can do.
    let _held = run_dir::lock(dir).unwrap();
    deafen(UnixListener::bind(socket_path(dir, "dead")).unwrap());
    assert_eq!(list(dir).unwrap(), ["a0"]);
    let error = run_dir::lock_within(dir, MOMENT).unwrap_err();
    let us = crate::users::Process::of(std::process::id());
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert!(error.to_string().ends_with(&format!("/.lock is locked by {us}")), "{error}");
}

#[test]
fn a_run_directory_of_everybody_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o1777)).unwrap();
    let error = ControlServer::bind(dir.path(), "a0").unwrap_err();
    assert!(error.reason.ends_with("everybody may write to it"), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", dir.path().join(".lock")).unwrap();
    ControlServer::bind(dir.path(), "a0").unwrap_err();
    std::fs::remove_file(dir.path().join(".lock")).unwrap();
    std::fs::write(dir.path().join(".lock"), "").unwrap();
    let error = ControlServer::bind(dir.path(), "a0").unwrap_err();
    assert!(error.reason.contains("others may have "), "{error}");
}

#[test]
fn a_server_of_another_version_is_said_to_be_that() {
    let dir = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(socket_path(dir.path(), "old")).unwrap();
    let server = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        read_line(&mut BufReader::new(&stream)).unwrap();
        // As the first version refused.
        let line = r#"{"version":1,"error":{"reason":"it speaks version 1","next":"use it"}}"#;
        writeln!(stream, "{line}").unwrap();
    });
    let error = Client::connect(dir.path(), "old").unwrap().status().unwrap_err();
    assert!(matches!(error, ControlError::OtherVersion(1)), "{error}");
    server.join().unwrap();
}

#[test]
fn a_server_that_does_not_know_a_verb_is_said_to_be_older() {
    let dir = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(socket_path(dir.path(), "old")).unwrap();
    let server = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        read_line(&mut BufReader::new(&stream)).unwrap();
        // Of the same protocol, before it had the verb.
        let line = r#"{"version":3,"error":{"reason":"not a request: unknown variant `grow`, ex","#;
        let next = r#""next":{"advice":"send one JSON object on a line","invocation":null}}}"#;
        writeln!(stream, "{line}{next}").unwrap();
    });
    let verb = Verb::Grow { grow: Grow::RaidDisks(3), suspend_policy: false };
    let error = Client::connect(dir.path(), "old").unwrap().call(verb).unwrap_err();
    assert!(matches!(error, ControlError::UnknownVerb), "{error}");
    server.join().unwrap();
}
