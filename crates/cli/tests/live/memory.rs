//! Memory of the process of an array: little while the array is idle, whatever it has served
//! before.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;

use crate::support::export::ask;
use crate::support::{Lab, skip, until};

const MIB: u64 = 1 << 20;

/// Memory of an idle array itself.
const OWN_KIB: u64 = 4 << 10;
/// The huge pages in which a few dirty pages lie.
const HELD_KIB: u64 = 4 << 10;
/// Memory that a load takes at least: without it there would be nothing to give back.
const LOADED_KIB: u64 = 16 << 10;

/// A field of `/proc/PID/FILE` in KiB.
fn kib(server: &Child, file: &str, field: &str) -> u64 {
    let path = format!("/proc/{}/{file}", server.id());
    let text = std::fs::read_to_string(path).expect("a running server");
    let line = text.lines().find_map(|line| line.strip_prefix(field)).expect("the field");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// Resident memory without the pages of the program's file: all arrays share those, the kernel
/// takes them back unasked, and how many of them it maps depends on what else the machine does.
fn own(server: &Child) -> u64 {
    let of = |field| kib(server, "smaps_rollup", field);
    of("Rss:").saturating_sub(of("Shared_Clean:") + of("Private_Clean:"))
}

/// Waits until an idle array has no more memory than it may have.
fn becomes_small(server: &Child) {
    until("memory given back", || own(server) <= OWN_KIB);
}

/// An array that is served.
fn served(lab: &Lab, level: u32, members: usize, export: &str) -> Child {
    let paths = lab.members("m", members, 300);
    lab.ok(&format!("create x -l {level} -n {members} --assume-clean"), &paths);
    assembled(lab, &format!("--export {export}"), &paths)
}

fn assembled(lab: &Lab, options: &str, members: &[PathBuf]) -> Child {
    let words = format!("assemble x --foreground {options}");
    let server = lab.braid().args(words.split_whitespace()).args(members).spawn();
    until("a running array", || lab.run("status x", &[]).status.success());
    server.expect("a server")
}

fn request(kind: u16, offset: u64, len: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
    bytes.extend([0, 0]);
    bytes.extend(kind.to_be_bytes());
    bytes.extend([7; 8]);
    bytes.extend(offset.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes
}

/// Reads 1 GiB, and writes some of it, as an NBD client that always has 32 requests under way.
fn gibibyte_over_nbd(socket: &Path, may_write: bool) -> UnixStream {
    let mut stream = UnixStream::connect(socket).expect("an export");
    stream.read_exact(&mut [0; 18]).unwrap();
    let hello = [&3u32.to_be_bytes(), b"IHAVEOPT".as_slice(), &1u32.to_be_bytes(), &[0; 4]];
    stream.write_all(&hello.concat()).unwrap();
    stream.read_exact(&mut [0; 10]).unwrap();
    let mut bytes = vec![0; MIB as usize];
    for round in 0..32 {
        for part in 0..32 {
            // Few are writes: what is written takes place on the disk.
            let writes = may_write && round % 8 == 0;
            let offset = (round % 8 * 32 + part) * MIB;
            stream.write_all(&request(writes.into(), offset, 1 << 20)).unwrap();
            if writes {
                stream.write_all(&bytes).unwrap();
            }
        }
        for _ in 0..32 {
            let mut head = [0; 16];
            stream.read_exact(&mut head).unwrap();
            assert_eq!(head[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0]);
            if round % 8 > 0 || !may_write {
                stream.read_exact(&mut bytes).unwrap();
            }
        }
    }
    stream
}

#[test]
fn an_idle_array_gives_memory_back() {
    for (level, members) in [(5, 3), (1, 2)] {
        let lab = Lab::new();
        let mut server = served(&lab, level, members, "nbd:unix:x.sock");
        becomes_small(&server);
        let client = gibibyte_over_nbd(&lab.path("x.sock"), true);
        let most = kib(&server, "status", "VmHWM:");
        assert!(most > LOADED_KIB, "level {level} never had more than {most} KiB");
        // The client stays, and asks for nothing.
        becomes_small(&server);
        drop(client);
        lab.ok("stop x", &[]);
        server.wait().expect("an end");
    }
}

/// Blocks that lie in no stripe as a whole.
fn blocks() -> impl Iterator<Item = (u64, Vec<u8>)> {
    (0..20).map(|number| (number * 36_864, vec![number as u8 + 1; 4096]))
}

/// Waits until memory was given back that was in use for requests; then all blocks are there.
fn blocks_outlive_a_rest(lab: &Lab, server: &Child, may_write: bool) {
    let mut client = gibibyte_over_nbd(&lab.path("x.sock"), may_write);
    if may_write {
        lab.ok("sync x --journal-mode write-back", &[]);
        for (offset, block) in blocks() {
            ask(&mut client, 1, offset, &block).unwrap();
        }
        ask(&mut client, 3, 0, &[]).unwrap();
    }
    let least = OWN_KIB + HELD_KIB;
    assert!(own(server) > 2 * least, "there is nothing to give back");
    until("memory given back", || own(server) <= least);
    for (offset, block) in blocks() {
        client.write_all(&request(0, offset, 4096)).unwrap();
        let mut reply = vec![0; 16 + 4096];
        client.read_exact(&mut reply).unwrap();
        assert!(reply[16..] == block, "the block at {offset} is lost");
    }
}

/// Data that only a write-back journal holds stay in memory until they are written back.
#[test]
fn what_only_a_journal_has_stays_when_memory_is_given_back() {
    let lab = Lab::new();
    let mut members = lab.members("m", 3, 300);
    members.extend(lab.members("j", 1, 12));
    lab.ok("create x -l 5 -n 3 --assume-clean --write-journal j0", &members[..3]);
    let mut server = assembled(&lab, "--export nbd:unix:x.sock", &members);
    blocks_outlive_a_rest(&lab, &server, true);
    let told = lab.ok_text("status x", &[]);
    assert!(told.contains("0.08 MiB not in place yet"), "{told}");
    server.kill().expect("it runs");
    server.wait().expect("its end");
    let mut server = assembled(&lab, "--readonly --export nbd:unix:x.sock", &members);
    blocks_outlive_a_rest(&lab, &server, false);
    lab.ok("stop x", &[]);
    server.wait().expect("its end");
}

#[test]
fn an_idle_array_with_a_mount_gives_memory_back() {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        return skip("an_idle_array_with_a_mount_gives_memory_back", "FUSE needs root here");
    }
    let lab = Lab::new();
    std::fs::create_dir(lab.path("mnt")).expect("a directory");
    let mut server = served(&lab, 1, 2, "fuse:mnt");
    let file = File::options().read(true).write(true).open(lab.path("mnt/x")).expect("the array");
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let file = &file;
            scope.spawn(move || {
                let mut bytes = vec![1; MIB as usize];
                for round in 0..128 {
                    let offset = (thread * 32 + round % 32) * MIB;
                    if round < 16 {
                        file.write_all_at(&bytes, offset).unwrap();
                    } else {
                        file.read_exact_at(&mut bytes, offset).unwrap();
                    }
                }
            });
        }
    });
    becomes_small(&server);
    drop(file);
    lab.ok("stop x", &[]);
    server.wait().expect("an end");
}
