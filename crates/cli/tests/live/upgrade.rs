//! Another program takes over running arrays, while their clients stay.

use std::fs::File;
use std::io::{IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use crate::support::export::{ask, connect, fill, noise};
use crate::support::nodes::{in_memory, members as on_nodes};
use crate::support::{Lab, install, program, skip, until};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use serde_json::Value;

mod failing;
mod reshaping;

fn status(lab: &Lab) -> Value {
    serde_json::from_slice(&lab.ok("status home --json", &[])).unwrap()
}

/// The program of another version: the same one, elsewhere.
fn another(lab: &Lab, name: &str) -> PathBuf {
    let path = lab.path(name);
    install(&program(), &path);
    path
}

/// Returns the program that serves the array.
fn program_of(pid: u64) -> PathBuf {
    std::fs::read_link(format!("/proc/{pid}/exe")).unwrap()
}

fn upgraded(lab: &Lab, by: &Path) {
    let output = lab.braid_at(by).args(["upgrade", "home"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let failed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && told.contains("served by version"), "{told}{failed}");
}

const READ: u8 = 0;
const WRITE: u8 = 1;

/// The head of an NBD request.
fn request(kind: u8, offset: u64, len: u32) -> Vec<u8> {
    let mut request = vec![0x25, 0x60, 0x95, 0x13, 0, 0, 0, kind];
    request.extend([9; 8]);
    request.extend(offset.to_be_bytes());
    request.extend(len.to_be_bytes());
    request
}

/// Reads with a simple reply.
fn read(stream: &mut UnixStream, offset: u64, len: usize) -> Vec<u8> {
    stream.write_all(&request(READ, offset, len as u32)).unwrap();
    let mut reply = vec![0; 16 + len];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0]);
    reply.split_off(16)
}

/// Writes and reads back until it is told to stop, over one connection. Returns how often.
fn use_it(mut client: UnixStream, go_on: &AtomicBool, done: &AtomicUsize) {
    let content = noise(1 << 20);
    while go_on.load(Ordering::Relaxed) {
        let round = done.load(Ordering::Relaxed);
        let len = [512, 4096, 70_144, 262_144][round % 4];
        let from = (round * 512) % (content.len() - len);
        let offset = ((round * 331_776) % (28 << 20)) as u64;
        ask(&mut client, 1, offset, &content[from..from + len]).unwrap();
        assert!(read(&mut client, offset, len) == content[from..from + len], "round {round}");
        done.store(round + 1, Ordering::Relaxed);
    }
}

/// A user of an array who works until told to stop, with the number of successful operations.
struct User {
    go_on: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

impl User {
    fn start(use_it: impl FnOnce(&AtomicBool, &AtomicUsize) + Send + 'static) -> Self {
        let go_on = Arc::new(AtomicBool::new(true));
        let done = Arc::new(AtomicUsize::new(0));
        let told = Arc::clone(&go_on);
        let count = Arc::clone(&done);
        Self { go_on, done, thread: thread::spawn(move || use_it(&told, &count)) }
    }

    /// Waits until it has used the array so many times more, and once again.
    fn goes_on(&self, times: usize) {
        let now = self.done.load(Ordering::Relaxed);
        until("the array is used on", || self.done.load(Ordering::Relaxed) > now + times);
    }

    fn end(self) {
        self.go_on.store(false, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

/// Uses a file like an export, until told to stop.
fn use_file(file: &File, go_on: &AtomicBool, done: &AtomicUsize) {
    let content = noise(1 << 20);
    while go_on.load(Ordering::Relaxed) {
        let round = done.load(Ordering::Relaxed);
        let offset = ((round % 28) << 20) as u64;
        file.write_all_at(&content, offset).unwrap();
        let mut found = vec![0; content.len()];
        file.read_exact_at(&mut found, offset).unwrap();
        assert!(found == content, "round {round}");
        done.store(round + 1, Ordering::Relaxed);
    }
}

#[test]
fn clients_stay_through_ten_upgrades() {
    let lab = Lab::new();
    let members = lab.members("m", 3, 32);
    lab.ok("create home --level 5 --raid-devices 3 --assume-clean", &members);
    let exports = "--export nbd:unix:home.sock --export nbd:tcp:127.0.0.1:0";
    lab.ok(&format!("assemble home {exports}"), &members);
    lab.ok("sync home --max 200M@22:00-06:00=none", &[]);
    let before = status(&lab);
    let bytes = before["size_bytes"].as_u64().unwrap() as usize;
    let client = connect(&lab.path("home.sock"), "home", bytes);
    let user = User::start(move |go_on, done| use_it(client, go_on, done));
    let programs = [another(&lab, "braid-1"), another(&lab, "braid-2")];
    let pid = before["pid"].as_u64().unwrap();
    for round in 0..10 {
        let by = &programs[round % 2];
        upgraded(&lab, by);
        assert_eq!(program_of(pid), *by);
        user.goes_on(3);
    }
    user.end();
    let after = status(&lab);
    for field in ["pid", "exports", "limits", "level"] {
        assert_eq!(after[field], before[field], "{field}");
    }
    // Sockets are the same, and take new clients; all is as it was written.
    fill(&lab.path("home.sock"), "home", &noise(bytes));
    lab.ok("check home --wait", &[]);
    lab.ok("stop home", &[]);
    assert!(!lab.path("home.sock").exists(), "the socket goes with the array");
    let explained = lab.ok_text("assemble --explain", &members);
    assert!(explained.contains("clean and complete"), "{explained}");
}

#[test]
fn a_mounted_file_is_read_and_written_on() {
    if !Path::new("/dev/fuse").exists() {
        return skip("a_mounted_file_is_read_and_written_on", "there is no /dev/fuse");
    }
    let lab = Lab::new();
    let members = lab.members("m", 2, 32);
    lab.ok("create home --level 1 --raid-devices 2 --assume-clean", &members);
    std::fs::create_dir(lab.path("mnt")).unwrap();
    lab.ok("assemble home --export fuse:mnt", &members);
    let file = File::options().read(true).write(true).open(lab.path("mnt/home")).unwrap();
    let user = User::start(move |go_on, done| use_file(&file, go_on, done));
    for _ in 0..5 {
        upgraded(&lab, &program());
        user.goes_on(1);
    }
    user.end();
    lab.ok("stop home", &[]);
    assert!(std::fs::read_dir(lab.path("mnt")).unwrap().next().is_none(), "it is unmounted");
}

/// The descriptors that a service manager was told to keep, with their names.
fn kept(manager: &UnixDatagram) -> Vec<(String, OwnedFd)> {
    let mut kept = Vec::new();
    loop {
        let mut words = [0; 256];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let into = &mut [IoSliceMut::new(&mut words)];
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let Ok(received) = recvmsg(manager, into, &mut rights, flags) else { return kept };
        let said = String::from_utf8_lossy(&words[..received.bytes]).into_owned();
        let name = said.lines().find_map(|line| line.strip_prefix("FDNAME="));
        for message in rights.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                let name = name.expect("a name").to_owned();
                kept.extend(descriptors.map(|descriptor| (name.clone(), descriptor)));
            }
        }
    }
}

#[test]
fn a_mounted_file_outlives_a_process_that_dies_under_a_manager() {
    let test = "a_mounted_file_outlives_a_process_that_dies_under_a_manager";
    if !Path::new("/dev/fuse").exists() {
        return skip(test, "there is no /dev/fuse");
    }
    let lab = Lab::new();
    let members = lab.members("m", 2, 32);
    lab.ok("create home --level 1 --raid-devices 2 --assume-clean", &members);
    std::fs::create_dir(lab.path("mnt")).unwrap();
    let address = lab.path("notify");
    let manager = UnixDatagram::bind(&address).unwrap();
    // As a manager does it: the descriptor is number 3, and its name is in the environment.
    let begin = "exec 3<&0 0</dev/null; LISTEN_PID=$$ exec \"$@\"";
    let start = |stored: Option<(String, OwnedFd)>| {
        let mut command = Command::new("sh");
        command.args(["-c", begin, "sh"]).arg(program());
        command.args(["assemble", "home", "--foreground", "--export", "fuse:mnt"]);
        command.args(&members).current_dir(lab.path("")).env("NOTIFY_SOCKET", &address);
        command.env("BRAID_RUN_DIR", lab.path("run"));
        if let Some((name, descriptor)) = stored {
            command.env("LISTEN_FDS", "1").env("LISTEN_FDNAMES", name).stdin(descriptor);
        } else {
            command.stdin(Stdio::null());
        }
        command.spawn().unwrap()
    };
    let mut server = start(None);
    let serves = || lab.run("status home", &[]).status.success();
    until("it serves", serves);
    let mut stored = kept(&manager);
    assert_eq!(stored.len(), 1, "{stored:?}");
    let file = File::options().read(true).write(true).open(lab.path("mnt/home")).unwrap();
    let user = User::start(move |go_on, done| use_file(&file, go_on, done));
    for _ in 0..3 {
        user.goes_on(1);
        server.kill().unwrap();
        server.wait().unwrap();
        let (name, device) = stored.pop().expect("the manager has kept it");
        stored.push((name.clone(), device.try_clone().unwrap()));
        server = start(Some((name, device)));
        until("it serves again", serves);
    }
    user.goes_on(1);
    user.end();
    lab.ok("stop home", &[]);
    assert!(server.wait().unwrap().success());
    let mut said = [0; 4096];
    let mut forgotten = false;
    manager.set_nonblocking(true).unwrap();
    while let Ok(len) = manager.recv(&mut said) {
        let said = String::from_utf8_lossy(&said[..len]).into_owned();
        forgotten |= said.contains("FDSTOREREMOVE=1") && said.contains(&stored[0].0);
    }
    assert!(forgotten, "the manager is told to keep it no more");
}

#[test]
fn commands_that_meet_an_upgrade_are_carried_out() {
    let lab = Lab::new();
    let members = lab.members("m", 2, 32);
    lab.ok("create home --level 1 --raid-devices 2 --assume-clean", &members);
    lab.ok("assemble home --export nbd:unix:home.sock", &members);
    for _ in 0..4 {
        for change in ["export home add nbd:unix:b.sock", "export home remove nbd:unix:b.sock"] {
            thread::scope(|scope| {
                scope.spawn(|| lab.ok("upgrade home", &[]));
                scope.spawn(|| lab.ok("upgrade home", &[]));
                scope.spawn(|| lab.ok(change, &[]));
            });
            assert_eq!(lab.path("b.sock").exists(), change.contains("add"));
        }
    }
}

#[test]
fn half_a_request_is_waited_for_and_then_refused() {
    let lab = Lab::new();
    let members = lab.members("m", 2, 32);
    lab.ok("create home --level 1 --raid-devices 2 --assume-clean", &members);
    lab.ok("assemble home --export nbd:unix:home.sock", &members);
    let bytes = status(&lab)["size_bytes"].as_u64().unwrap() as usize;
    let mut client = connect(&lab.path("home.sock"), "home", bytes);
    let mut write = request(WRITE, 0, 8192);
    write.extend([5; 8192]);
    // A head that is cut off is handed over as it is; data that do not come stand against it.
    client.write_all(&write[..10]).unwrap();
    upgraded(&lab, &program());
    client.write_all(&write[10..]).unwrap();
    client.read_exact(&mut [0; 16]).unwrap();
    // What is sent together with a read has come when that is answered.
    let read_first = request(READ, 0, 512);
    client.write_all(&[&read_first[..], &write[..6000]].concat()).unwrap();
    client.read_exact(&mut [0; 16 + 512]).unwrap();
    let line = lab.refused(1, "upgrade home", &[], &[]);
    assert!(line.contains("still not answered after 5 s"), "{line}");
    client.write_all(&write[6000..]).unwrap();
    let mut reply = [0; 16];
    client.read_exact(&mut reply).unwrap();
    assert_eq!(reply[4..8], [0; 4]);
    upgraded(&lab, &program());
    assert!(read(&mut client, 0, 8192) == [5; 8192]);
    // Or it is hung up on, and the others go on.
    let mut other = connect(&lab.path("home.sock"), "home", bytes);
    client.write_all(&[&read_first[..], &write[..6000]].concat()).unwrap();
    client.read_exact(&mut [0; 16 + 512]).unwrap();
    lab.ok("upgrade home --force", &[]);
    assert!(read(&mut other, 0, 8192) == [5; 8192]);
    assert_eq!(client.read(&mut [0]).unwrap(), 0, "its client was cut off");
}

#[test]
fn a_degraded_array_of_arrays_is_rebuilt_on() {
    let lab = Lab::new();
    let members = lab.nested("0");
    lab.ok("assemble home --rename --export nbd:unix:home.sock", &members);
    let bytes = status(&lab)["size_bytes"].as_u64().unwrap() as usize;
    let content = noise(bytes);
    fill(&lab.path("home.sock"), "home", &content);
    let failed = &members[1];
    lab.ok("fail home", std::slice::from_ref(failed));
    // As that of a disk that was pulled.
    std::fs::rename(failed, lab.path("elsewhere")).unwrap();
    upgraded(&lab, &program());
    assert!(lab.ok("cat home", &[]) == content);
    assert_eq!(lab.run("detail home --test", &[]).status.code(), Some(1), "degraded as before");
    std::fs::rename(lab.path("elsewhere"), failed).unwrap();
    lab.ok("sync home --max 2M", &[]);
    lab.ok("remove home", std::slice::from_ref(failed));
    lab.ok("add home", std::slice::from_ref(failed));
    upgraded(&lab, &program());
    lab.ok("sync home --max none", &[]);
    lab.ok("status home --watch", &[]);
    assert!(lab.ok("cat home", &[]) == content);
    lab.ok("check home --wait", &[]);
    assert_eq!(lab.run("detail home --test", &[]).status.code(), Some(0));
}

#[test]
fn an_array_over_nodes_is_used_on() {
    let lab = Lab::new();
    let nodes = in_memory(&lab, 4);
    let all = on_nodes(&nodes, "");
    lab.ok(&format!("create home -l 5 -n 4 --size 8M{all}"), &[]);
    lab.ok(&format!("assemble home{all} --export nbd:unix:home.sock --node-timeout 9"), &[]);
    let bytes = status(&lab)["size_bytes"].as_u64().unwrap() as usize;
    let mut client = connect(&lab.path("home.sock"), "home", bytes);
    let content = noise(1 << 20);
    for round in 0..3 {
        let offset = round << 20;
        ask(&mut client, 1, offset, &content).unwrap();
        upgraded(&lab, &program());
        assert!(read(&mut client, offset, content.len()) == content);
    }
    let pid = status(&lab)["pid"].as_u64().unwrap();
    let words = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
    assert!(words.contains("--node-timeout\09\0"), "{words}");
    lab.ok("check home --wait", &[]);
}

/// Serves an array with a journal that writes back. Its members, of which the journal is the last.
fn writing_back(lab: &Lab) -> Vec<PathBuf> {
    let members = lab.members("m", 4, 32);
    let create = "create home -l 5 -n 3 --assume-clean --write-journal";
    lab.ok(create, &[&members[3..], &members[..3]].concat());
    lab.ok("assemble home", &members);
    lab.ok("sync home --journal-mode write-back", &[]);
    members
}

#[test]
fn a_pause_and_the_mode_of_a_journal_stay() {
    let lab = Lab::new();
    let members = writing_back(&lab);
    lab.ok("sync home --pause", &[]);
    upgraded(&lab, &program());
    let after = status(&lab);
    assert_eq!(after["journal"]["mode"], "write-back", "{after}");
    assert_eq!(after["sync"]["paused"], true, "{after}");
    assert_eq!(after["journal"]["device"], members[3].to_str().unwrap(), "{after}");
}

#[test]
fn what_would_be_lost_is_refused() {
    let lab = Lab::new();
    lab.ok("create home --level 1 --raid-devices 2 mem:8M mem:8M", &[]);
    let line = lab.refused(1, "upgrade home", &[], &[]);
    assert!(line.contains("memory of its process"), "{line}");
    lab.ok("stop home", &[]);
    let members = lab.members("m", 2, 64);
    lab.ok("create home --level 1 --raid-devices 2 --assume-clean", &members);
    lab.ok("assemble home", &members);
    lab.ok("sync home --max 1M", &[]);
    lab.ok("check home", &[]);
    let line = lab.refused(1, "upgrade home", &[], &[]);
    assert!(line.contains("a check or repair is under way"), "{line}");
    lab.refused(1, "upgrade --all --check", &[], &[]);
    lab.ok("check home --stop", &[]);
    assert_eq!(lab.ok_text("upgrade --all --check", &[]), "home: can be upgraded\n");
    lab.ok("upgrade --all", &[]);
}
