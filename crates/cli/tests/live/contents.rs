//! Partitions and volumes on an array: listed, read and served one by one.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::export::{ask, connect, fill, noise};
use crate::support::{Lab, install, program, skip};

/// Runs a program with this input, which must succeed. Returns its output.
fn tool(program: &str, words: &[&str], input: &str) -> String {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let mut command = Command::new(program);
    command.args(words).env("PATH", path).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    // What wants no input may be gone already.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {words:?}: {said}{stderr}");
    said
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A disk of so many bytes with a GPT, an ext4 file system that holds a file, and noise.
fn disk(lab: &Lab, bytes: u64) -> Vec<u8> {
    let part = lab.path("part");
    File::create(&part).unwrap().set_len(8 << 20).unwrap();
    tool("mkfs.ext4", &["-q", "-L", "files", text(&part)], "");
    let letter = lab.path("letter");
    std::fs::write(&letter, "kept").unwrap();
    let write = format!("write {} letter", letter.display());
    tool("debugfs", &["-w", "-R", &write, text(&part)], "");
    let disk = lab.path("disk");
    File::create(&disk).unwrap().set_len(bytes).unwrap();
    let table = "label: gpt\nstart=2048, size=16384, name=data\nsize=+\n";
    tool("sfdisk", &["--quiet", "--no-tell-kernel", text(&disk)], table);
    let file = File::options().write(true).open(&disk).unwrap();
    file.write_all_at(&std::fs::read(&part).unwrap(), 1 << 20).unwrap();
    file.write_all_at(&noise(1 << 20), 9 << 20).unwrap();
    std::fs::read(&disk).unwrap()
}

fn size(lab: &Lab, name: &str) -> u64 {
    let status: Value =
        serde_json::from_slice(&lab.ok(&format!("status {name} --json"), &[])).unwrap();
    status["size_bytes"].as_u64().unwrap()
}

/// An array with a disk on it that is stopped; and the disk.
fn partitioned(lab: &Lab) -> (Vec<PathBuf>, Vec<u8>) {
    let members = lab.members("m", 3, 16);
    lab.ok("create x --level 5 --raid-devices 3 --chunk 64K --assume-clean", &members);
    let socket = lab.path("nbd");
    lab.ok(&format!("assemble x --export nbd:unix:{}", socket.display()), &members);
    let content = disk(lab, size(lab, "x"));
    fill(&socket, "x", &content);
    lab.ok("stop x", &[]);
    (members, content)
}

#[test]
fn partitions_are_listed_and_read_from_members_and_from_an_array_that_runs() {
    let lab = Lab::new();
    let (members, content) = partitioned(&lab);
    let check = |words: &str, paths: &[PathBuf]| {
        let list = lab.ok_text(&format!("cat --list {words}"), paths);
        assert!(list.starts_with("x  "), "{list}");
        assert!(list.contains("\n  p1  8.00 MiB, Linux filesystem \"data\": an ext4"), "{list}");
        assert!(list.contains("file system \"files\" ") && list.contains("\n  p2  "), "{list}");
        let json = lab.ok(&format!("cat --list --json {words}"), paths);
        let json: Value = serde_json::from_slice(&json).unwrap();
        let first = &json["contents"][0]["contents"][0];
        assert_eq!((&first["name"], &first["found"][0]["kind"]), (&"p1".into(), &"ext4".into()));
        assert_eq!(first["offset_bytes"], 1 << 20);
        let part = lab.ok(&format!("cat --part p1 {words}"), paths);
        assert!(part == content[1 << 20..9 << 20]);
        let piece = format!("cat --part p2 --offset 4K --length 5000 {words}");
        assert!(lab.ok(&piece, paths) == content[(9 << 20) + 4096..][..5000]);
    };
    check("", &members);
    check("x", &members[1..]);
    lab.ok("assemble x", &members);
    check("x", &[]);
    let line = lab.refused(1, "cat x --part p3", &[], &members);
    assert!(line.contains("p3: has no such part, but p1, p2; "), "{line}");
    lab.refused(2, "cat x --list --offset 1M", &[], &[]);
    lab.refused(2, "cat x --part p1 --offset 9M", &[], &[]);
}

#[test]
fn parts_are_disks_for_nbd_clients_and_files_of_mounts() {
    let lab = Lab::new();
    let (members, content) = partitioned(&lab);
    let socket = lab.path("nbd");
    lab.ok(&format!("assemble x --export nbd:unix:{}", socket.display()), &members);
    let uri = format!("nbd+unix:///?socket={}", socket.display());
    let list = tool("nbdinfo", &["--list", &uri], "");
    for name in ["\"x\"", "\"x.parts/p1\"", "\"x.parts/p2\""] {
        assert!(list.contains(name), "{name} in {list}");
    }
    let uri = format!("nbd+unix:///x.parts/p1?socket={}", socket.display());
    let copy = lab.path("copy");
    tool("qemu-img", &["convert", "-f", "raw", "-O", "raw", &uri, text(&copy)], "");
    assert!(std::fs::read(&copy).unwrap() == content[1 << 20..9 << 20]);
    // What is written to a part lies in its place, and not beyond.
    let json: Value = serde_json::from_slice(&lab.ok("cat x --list --json", &[])).unwrap();
    let bytes = json["contents"][0]["contents"][1]["size_bytes"].as_u64().unwrap();
    let mut client = connect(&socket, "x.parts/p2", bytes as usize);
    ask(&mut client, 1, 4096, &[7; 4096]).unwrap();
    ask(&mut client, 3, 0, &[]).unwrap();
    // Another program goes on with parts as clients know them.
    let other = lab.path("other");
    install(&program(), &other);
    let upgraded = lab.braid_at(&other).args(["upgrade", "x"]).output().unwrap();
    assert!(upgraded.status.success(), "{}", String::from_utf8_lossy(&upgraded.stderr));
    ask(&mut client, 1, 8192, &[8; 4096]).unwrap();
    ask(&mut client, 3, 0, &[]).unwrap();
    drop(client);
    let whole = lab.ok("cat x", &[]);
    let at = (9 << 20) + 4096;
    assert!(whole[at..at + 4096] == [7; 4096] && whole[at + 4096..at + 8192] == [8; 4096]);
    assert!(whole[..at] == content[..at] && whole[at + 8192..] == content[at + 8192..]);

    // The socket goes with its last disk that is no part, and comes with parts at once.
    let export = format!("nbd:unix:{}", socket.display());
    lab.ok(&format!("export x remove {export}"), &[]);
    assert!(!socket.exists(), "nothing is left on it");
    lab.ok(&format!("export x add {export}"), &[]);
    connect(&socket, "x.parts/p2", bytes as usize);
    lab.ok("stop x --force", &[]);

    if !Path::new("/dev/fuse").exists() {
        return skip("parts_are_disks_for_nbd_clients_and_files_of_mounts", "no /dev/fuse here");
    }
    mounted(&lab, &members, &content[1 << 20..9 << 20]);
}

/// The first partition as a file, in an array that can be written and in one that cannot.
fn mounted(lab: &Lab, members: &[PathBuf], content: &[u8]) {
    let mountpoint = lab.path("mnt");
    std::fs::create_dir(&mountpoint).unwrap();
    let export = format!("--export fuse:{}", mountpoint.display());
    lab.ok(&format!("assemble x {export}"), members);
    let names = |path: &Path| {
        let entries = std::fs::read_dir(path).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    };
    assert_eq!(names(&mountpoint), ["x", "x.parts"]);
    let parts = mountpoint.join("x.parts");
    assert_eq!(names(&parts), ["p1", "p2"]);
    let first = parts.join("p1");
    assert!(std::fs::read(&first).unwrap() == content);
    tool("e2fsck", &["-fn", text(&first)], "");
    assert_eq!(tool("debugfs", &["-R", "cat letter", text(&first)], ""), "kept");
    // Writes that are no whole blocks, through the file system.
    let letter = lab.path("letter");
    std::fs::write(&letter, "changed").unwrap();
    let write = format!("write {} second", letter.display());
    tool("debugfs", &["-w", "-R", &write, text(&first)], "");
    tool("e2fsck", &["-fn", text(&first)], "");
    lab.ok("stop x", &[]);
    assert_eq!(names(&mountpoint), [""; 0]);

    lab.ok(&format!("assemble x --readonly {export}"), members);
    assert_eq!(tool("debugfs", &["-R", "cat second", text(&first)], ""), "changed");
    let error = File::options().write(true).open(&first).unwrap_err();
    assert!(matches!(error.raw_os_error(), Some(30 | 13)), "{error}");
    lab.ok("stop x", &[]);
}

/// The three physical volumes that LVM2 made, as files.
fn physical_volumes(lab: &Lab) -> Vec<Vec<u8>> {
    let archive = concat!(env!("CARGO_MANIFEST_DIR"), "/../rescue/tests/lvm/volumes.tar.gz");
    tool("tar", &["xzf", archive, "-C", text(&lab.path(""))], "");
    (0..3).map(|n| std::fs::read(lab.path(&format!("pv{n}"))).unwrap()).collect()
}

/// Each 32 KiB of a volume begin with its number and their offset.
fn check_volume(content: &[u8], number: u64) {
    assert!(!content.is_empty());
    for (index, piece) in content.chunks(32 << 10).enumerate() {
        let field = |at: usize| u64::from_le_bytes(piece[at..at + 8].try_into().unwrap());
        assert_eq!((field(0), field(8)), (number, index as u64 * (32 << 10)));
    }
}

/// Three arrays, each with one of the physical volumes that LVM2 made: their members.
fn arrays_of_volumes(lab: &Lab) -> Vec<Vec<PathBuf>> {
    let volumes = physical_volumes(lab);
    let mut all = Vec::new();
    for (number, volume) in volumes.iter().enumerate() {
        let mib = (volume.len() as u64 >> 20) + 4;
        let members = lab.members(&format!("m{number}-"), 2, mib);
        let name = format!("md{number}");
        lab.ok(&format!("create {name} --level 1 --raid-devices 2 --assume-clean"), &members);
        let socket = lab.path(&format!("nbd{number}"));
        lab.ok(&format!("assemble {name} --export nbd:unix:{}", socket.display()), &members);
        let bytes = size(lab, &name) as usize;
        let mut content = volume.clone();
        content.resize(bytes, 0);
        fill(&socket, &name, &content);
        lab.ok(&format!("stop {name}"), &[]);
        all.push(members);
    }
    all
}

#[test]
fn logical_volumes_are_read_over_the_arrays_that_they_lie_on() {
    let lab = Lab::new();
    let all = arrays_of_volumes(&lab);
    let members = all.concat();
    let explained = lab.ok_text("assemble --explain", &members);
    let together = explained.lines().last().unwrap();
    let listed = members.iter().map(|member| member.display().to_string()).collect::<Vec<_>>();
    let command = format!("all of them: braid cat --list {}    # ", listed.join(" "));
    assert!(together.starts_with(&command), "{explained}");
    let list = lab.ok_text("cat --list", &members);
    assert!(list.contains("\n  vg  ") && list.contains(" a group of LVM2 on md0, md1, md2"));
    assert!(list.contains("\n    vg/striped  6.00 MiB, a volume of LVM2"), "{list}");
    assert!(list.contains("note: it is of type thin, which only LVM reads"), "{list}");
    check_volume(&lab.ok("cat --part vg/striped", &members), 2);
    check_volume(&lab.ok("cat --part vg/linear", &members), 1);
    let line = lab.refused(1, "cat --part vg/thin", &members, &members);
    assert!(line.contains("vg/thin: it is of type thin"), "{line}");

    // One array alone serves what lies on it in one piece, and reads all that lies on it.
    let pair = ["md0", "md1", "md2"].into_iter().zip(&all).find_map(|(name, members)| {
        let list = lab.ok("cat --list --json", members);
        let list: Value = serde_json::from_slice(&list).unwrap();
        let found = list["contents"][0]["contents"][0]["contents"].as_array()?.clone();
        let whole = |volume: &&Value| volume["offset_bytes"].is_u64();
        let volume = found.iter().find(whole)?["name"].as_str()?.to_owned();
        Some((name, members, volume))
    });
    let (name, members, volume) = pair.expect("a volume that lies on one of them");
    let content = lab.ok(&format!("cat --part {volume}"), members);
    let socket = lab.path("one");
    lab.ok(&format!("assemble {name} --export nbd:unix:{}", socket.display()), members);
    let served = format!("{name}.parts/{}", volume.replace('/', "-"));
    let uri = format!("nbd+unix:///{served}?socket={}", socket.display());
    let copy = lab.path("copy");
    tool("qemu-img", &["convert", "-f", "raw", "-O", "raw", &uri, text(&copy)], "");
    assert!(std::fs::read(&copy).unwrap() == content, "{served}");
}

#[test]
fn a_volume_over_several_arrays_is_served_by_itself() {
    let lab = Lab::new();
    let all = arrays_of_volumes(&lab);
    // One half of each mirror is enough.
    let members: Vec<PathBuf> = all.iter().map(|pair| pair[0].clone()).collect();
    let before: Vec<Vec<u8>> = members.iter().map(|one| std::fs::read(one).unwrap()).collect();
    let line = lab.refused(1, "assemble --part vg/striped --readonly", &members, &members);
    assert!(line.contains("more than 64 pieces") && line.contains("cat --part"), "{line}");
    let line = lab.refused(2, "assemble --part vg/linear", &members, &members);
    assert!(line.contains("add --readonly"), "{line}");
    let line = lab.refused(1, "assemble --part vg/liner --readonly", &members, &members);
    assert!(line.contains("no such part, but") && line.contains("vg/linear"), "{line}");
    // Of a volume that another array has a piece of, the message says so.
    let line = lab.refused(1, "assemble --part vg/linear --readonly", &members[..1], &members);
    assert!(line.contains("it needs the physical volume"), "{line}");

    let socket = lab.path("served");
    let export = format!("--export nbd:unix:{}", socket.display());
    lab.ok(&format!("assemble --part vg/linear --readonly {export}"), &members);
    let copied = |name: &str| {
        let uri = format!("nbd+unix:///{name}?socket={}", socket.display());
        let copy = lab.path("copy");
        tool("qemu-img", &["convert", "-f", "raw", "-O", "raw", &uri, text(&copy)], "");
        std::fs::read(&copy).unwrap()
    };
    let content = copied("vg-linear");
    check_volume(&content, 1);
    assert!(lab.ok_text("status vg-linear", &[]).contains("read-only"));
    lab.ok("stop vg-linear", &[]);
    assert!(content == lab.ok("cat --part vg/linear", &members));
    // Under a name of its own.
    lab.ok(&format!("assemble files --part vg/linear --readonly {export}"), &members);
    assert!(copied("files") == content);
    lab.ok("stop files", &[]);
    let after = members.iter().map(|one| std::fs::read(one).unwrap());
    assert!(after.eq(before), "members are as they were");
}

/// An array with a partition for each of the physical volumes that LVM2 made: its volumes lie there
/// in several pieces.
fn grouped(lab: &Lab) -> Vec<PathBuf> {
    let disk = lab.path("disk");
    let file = File::create(&disk).unwrap();
    let mut table = "label: gpt\n".to_owned();
    let mut at = 1 << 20;
    for volume in physical_volumes(lab) {
        table += &format!("start={}, size={}\n", at / 512, volume.len() / 512);
        file.write_all_at(&volume, at).unwrap();
        at += volume.len() as u64;
    }
    file.set_len(at + (1 << 20)).unwrap();
    tool("sfdisk", &["--quiet", "--no-tell-kernel", text(&disk)], &table);
    let mut content = std::fs::read(&disk).unwrap();
    let members = lab.members("m", 3, (at >> 21) + 4);
    lab.ok("create x --level 5 --raid-devices 3 --chunk 64K --assume-clean", &members);
    let socket = lab.path("nbd");
    lab.ok(&format!("assemble x --export nbd:unix:{}", socket.display()), &members);
    content.resize(size(lab, "x") as usize, 0);
    fill(&socket, "x", &content);
    lab.ok("stop x", &[]);
    members
}

#[test]
fn volumes_in_several_pieces_are_served() {
    let lab = Lab::new();
    let members = grouped(&lab);
    let socket = lab.path("nbd");
    lab.ok(&format!("assemble x --export nbd:unix:{}", socket.display()), &members);
    let copy = lab.path("copy");
    let copied = |volume: &str| {
        let uri = format!("nbd+unix:///x.parts/vg-{volume}?socket={}", socket.display());
        tool("qemu-img", &["convert", "-f", "raw", "-O", "raw", &uri, text(&copy)], "");
        std::fs::read(&copy).unwrap()
    };
    for (volume, number) in [("linear", 1), ("striped", 2)] {
        check_volume(&copied(volume), number);
    }
    // What is written over the end of a piece lies in both, and nowhere else.
    let before = copied("striped");
    let linear = copied("linear");
    let mut client = connect(&socket, "x.parts/vg-striped", before.len());
    let news = noise(200 << 10);
    ask(&mut client, 1, 20 << 10, &news).unwrap();
    // Another program goes on with the same volumes.
    lab.ok("upgrade x", &[]);
    ask(&mut client, 1, 400 << 10, &news).unwrap();
    ask(&mut client, 3, 0, &[]).unwrap();
    drop(client);
    let mut expected = before;
    expected[20 << 10..220 << 10].copy_from_slice(&news);
    expected[400 << 10..600 << 10].copy_from_slice(&news);
    assert!(copied("striped") == expected && copied("linear") == linear);
    lab.ok("check x --wait", &[]);
    lab.ok("stop x", &[]);
    assert!(lab.ok("cat --part vg/striped", &members) == expected);

    if !Path::new("/dev/fuse").exists() {
        return skip("volumes_in_several_pieces_are_served", "no /dev/fuse here");
    }
    let mountpoint = lab.path("mnt");
    std::fs::create_dir(&mountpoint).unwrap();
    lab.ok(&format!("assemble x --export fuse:{}", mountpoint.display()), &members);
    let volume = mountpoint.join("x.parts/vg-striped");
    assert!(std::fs::read(&volume).unwrap() == expected);
    // No whole blocks, and over the end of a piece.
    expected[100_001..300_003].fill(9);
    let file = File::options().write(true).open(&volume).unwrap();
    file.write_all_at(&vec![9; 200_002], 100_001).unwrap();
    file.sync_all().unwrap();
    drop(file);
    lab.ok("stop x", &[]);
    assert!(lab.ok("cat --part vg/striped", &members) == expected);
}

#[test]
fn hostile_tables_are_listed_and_served() {
    let lab = Lab::new();
    let members = lab.members("m", 2, 8);
    lab.ok("create x --level 1 --raid-devices 2 --assume-clean", &members);
    let socket = lab.path("nbd");
    lab.ok(&format!("assemble x --export nbd:unix:{}", socket.display()), &members);
    let mut content = noise(size(&lab, "x") as usize);
    // Entries that begin and end anywhere, one of them extended and pointing at itself.
    content[510..512].copy_from_slice(&[0x55, 0xaa]);
    for (index, kind) in [0x83, 0x05, 0x83, 0x83].into_iter().enumerate() {
        let entry = &mut content[446 + index * 16..][..16];
        (entry[0], entry[4]) = (0, kind);
        let (start, sectors) = [(1, u32::MAX), (0, 100), (u32::MAX, u32::MAX), (8, 0)][index];
        entry[8..12].copy_from_slice(&u32::to_le_bytes(start));
        entry[12..16].copy_from_slice(&u32::to_le_bytes(sectors));
    }
    fill(&socket, "x", &content);
    lab.ok("stop x", &[]);
    let list = lab.ok_text("cat --list", &members);
    assert!(list.contains("p1") && list.contains("beyond the end"), "{list}");
    assert!(lab.ok("cat --part p1", &members) == content[512..]);
    lab.ok(&format!("assemble x --export nbd:unix:{}", socket.display()), &members);
    connect(&socket, "x.parts/p1", content.len() - 512);
}
