//! `braid grow`: the shape of an array changes while it serves, and every byte stays.

mod refused;
mod served;
mod spilled;
mod suspended;

use std::fs::File;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::monitor::Monitor;
use crate::support::export::{fill, noise};
use crate::support::{skip, until};
use served::Served;

#[test]
fn disks_are_added_while_it_serves() {
    for (shape, members, added, to) in [
        ("-l 5 --chunk 64K", 3, 1, ("raid5", "left-symmetric", 4)),
        ("-l 6 --chunk 64K", 4, 2, ("raid6", "left-symmetric", 6)),
        ("-l 4 --chunk 16K", 3, 1, ("raid4", "", 4)),
        ("-l 10 --chunk 64K -b internal", 4, 2, ("raid10", "n2", 6)),
    ] {
        let mut x = Served::new(shape, members);
        let before = x.size();
        let devices: Vec<_> = (0..added).map(|n| x.device(&format!("d{n}"), 16)).collect();
        let count = members + added;
        let said = x.grow(&format!("--raid-devices {count}"), &devices);
        assert!(said.contains("all data move to the new shape, in the background: "), "{said}");
        let parity = match to.0 {
            "raid10" => 0,
            "raid6" => 2,
            _ => 1,
        };
        let data = |members: usize| members - parity;
        assert_eq!(said.contains("resync of what is new: "), parity == 0, "{said}");
        assert_eq!(x.size(), before / data(members) * data(count), "{shape}");
        x.is(to);
    }
}

#[test]
fn a_reshape_is_shown_told_paused_and_resumed() {
    let mut x = Served::new("-l 5 --chunk 64K", 3);
    x.rest();
    let line = x.lab.refused(1, "grow x --pause", &[], &x.members);
    assert!(line.contains("no reshape is under way; braid limit x pauses other work"), "{line}");
    x.lab.refused(2, "grow x --resume --size max", &[], &x.members);
    let device = x.device("d", 16);
    let monitor = Monitor::start(&x.lab, &["--test", "--program", "/bin/true"]);
    assert_eq!(monitor.says(), "TestMessage x");
    x.lab.ok("limit x --max 4M", &[]);
    x.lab.ok(&format!("grow x --raid-devices 4 --add {}", device.display()), &[]);
    x.members.push(device.clone());
    until("a part has moved", || x.status()["sync"]["position_bytes"].as_u64() > Some(1 << 20));
    x.lab.ok("grow x --pause", &[]);
    let until_told = |last: &str| {
        let told = std::iter::repeat_with(|| monitor.says());
        told.take_while(|line| line != last).collect::<Vec<String>>()
    };
    let told = until_told("ReshapeStarted x");
    assert_eq!(told, [format!("SpareActive x {}", device.display())]);
    let sync = x.status()["sync"].clone();
    assert_eq!((&sync["action"], &sync["paused"]), (&"reshape".into(), &true.into()), "{sync}");
    for (side, members) in [("from", 3), ("to", 4)] {
        let of = &sync[side];
        assert_eq!((&of["level"], &of["raid_devices"]), (&"raid5".into(), &members.into()));
        assert_eq!(of["layout"], "left-symmetric");
        assert_eq!(of["chunk_bytes"], 65536);
    }
    let text = x.lab.ok_text("status x", &[]);
    assert!(text.contains("% (old: raid5 of 3, new: raid5 of 4), paused"), "{text}");
    let detail = x.lab.ok_text("detail x", &[]);
    assert!(detail.contains("     Delta Devices : 1, (3->4)\n\n"), "{detail}");
    x.device("e", 16);
    x.lab.ok("add x e", &[]);
    assert_eq!(x.status()["members"][4]["state"][0], "spare");
    let stands = || x.status()["sync"]["position_bytes"].clone();
    let position = stands();
    x.lab.ok("limit x --max none", &[]);
    assert_eq!(stands(), position, "it is paused");
    x.lab.ok("grow x --resume", &[]);
    until("all has moved", || x.status()["sync"]["action"] == "idle");
    assert!(x.status()["sync"]["from"].is_null());
    let told = until_told("ReshapeFinished x");
    assert!(told.contains(&"ArrayGrown x".to_owned()), "{told:?}");
    monitor.stop();
    x.is(("raid5", "left-symmetric", 4));
}

#[test]
fn a_linear_array_gets_longer() {
    let mut x = Served::new("-l linear", 2);
    let before = x.size();
    let added = [x.device("d", 24), x.device("e", 16)];
    let line = x.lab.refused(1, "add x d", &[], &added);
    assert!(
        line.ends_with("no use for a spare; braid grow x --raid-devices 3 --add d\n"),
        "{line}"
    );
    let said = x.grow("--raid-devices 4", &added);
    assert_eq!(x.size(), 2 * before + (8 << 20), "{said}");
    assert!(said.contains(&format!("capacity 68.00 MiB ({} bytes)", x.size())), "{said}");
    for what in ["longer", "assembled again"] {
        x.compare(what);
        assert_eq!(x.shape(), ("linear".to_owned(), String::new(), 4), "{what}");
        x.lab.ok("stop x", &[]);
        x.assemble();
    }
    x.content = noise(x.size());
    fill(&x.socket, "x", &x.content);
    x.lab.ok("stop x", &[]);
    x.assemble();
    x.compare("all of it written anew");
}

/// Level 0 gets more disks: also by a kill and a start in the middle.
#[test]
fn stripes_get_more_members() {
    let mut x = Served::new("-l 0 --chunk 64K", 2);
    let before = x.size();
    let added = [x.device("d", 24), x.device("e", 16)];
    let line = x.lab.refused(1, "add x d", &[], &added);
    let next = "raid0 has no use for a spare; braid grow x --raid-devices 3 --add d\n";
    assert!(line.ends_with(next), "{line}");
    let line = x.lab.refused(1, "grow x --raid-devices 3 --add d --add e", &[], &added);
    assert!(line.contains("e would be a spare, which raid0 has not"), "{line}");
    assert_eq!(x.status()["members"].as_array().map(Vec::len), Some(2), "nothing was added");
    x.lab.ok("limit x --max 4M", &[]);
    let names: Vec<String> = added.iter().map(|it| it.display().to_string()).collect();
    let words = format!("grow x --raid-devices 4 --add {}", names.join(" --add "));
    let said = x.lab.ok_text(&words, &[]);
    assert!(said.contains("meanwhile and afterwards no member may fail"), "{said}");
    x.members.extend(added);
    let moves = |x: &Served| {
        let sync = &x.status()["sync"];
        sync["action"] == "reshape" && sync["done_bytes"].as_u64() > Some(2 << 20)
    };
    until("a part has moved", || moves(&x));
    let text = x.lab.ok_text("status x", &[]);
    assert!(text.contains("(old: raid0 of 2, new: raid0 of 4)"), "{text}");
    let said = x.lab.ok_text("grow x --undo --wait", &[]);
    assert!(said.contains(&format!("3. {} is no member any more", names[1])), "{said}");
    assert_eq!((x.shape().2, x.size()), (2, before));
    x.compare("moved back");
    x.lab.ok("grow x --raid-devices 4", &[]);
    until("a part has moved again", || moves(&x));
    x.compare("while data move");
    kill(&x);
    x.assemble();
    x.compare("while data move again");
    until("all has moved", || x.status()["sync"]["from"].is_null());
    for what in ["grown", "assembled again"] {
        assert_eq!(x.shape(), ("raid0".to_owned(), String::new(), 4), "{what}");
        assert_eq!(x.size(), 2 * before, "{what}");
        x.compare(what);
        x.lab.ok("stop x", &[]);
        x.assemble();
    }
    x.content = noise(x.size());
    fill(&x.socket, "x", &x.content);
    x.lab.ok("stop x", &[]);
    x.assemble();
    x.compare("all of it written anew");
}

fn kill(x: &Served) {
    let pid = x.status()["pid"].as_i64().expect("a process");
    let pid = rustix::process::Pid::from_raw(pid as i32).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it runs");
    until("it is gone", || !x.lab.run("status x", &[]).status.success());
}

/// The process is killed in the middle; the next start goes on, and md's rule holds: nothing lost.
#[test]
fn a_kill_while_data_move_loses_nothing() {
    let mut x = Served::new("-l 5 --chunk 64K -b internal", 3);
    let device = x.device("d", 16);
    x.lab.ok("limit x --max 4M", &[]);
    x.lab.ok(&format!("grow x --raid-devices 4 --add {}", device.display()), &[]);
    x.members.push(device);
    let moves = |x: &Served| {
        let sync = &x.status()["sync"];
        sync["action"] == "reshape" && sync["done_bytes"].as_u64() > Some(2 << 20)
    };
    until("a part has moved", || moves(&x));
    let text = x.lab.ok_text("status x", &[]);
    assert!(text.contains("(old: raid5 of 3, new: raid5 of 4)"), "{text}");
    x.compare("while data move");
    kill(&x);
    x.assemble();
    x.compare("while data move again");
    until("all has moved", || x.status()["sync"]["action"] == "idle");
    x.is(("raid5", "left-symmetric", 4));
}

#[test]
fn chunks_and_layouts_change_while_it_serves() {
    let mut x = Served::new("-l 5 --chunk 64K", 3);
    let before = x.size();
    x.grow("--chunk 16K", &[]);
    assert_eq!(x.status()["chunk_bytes"], 16 << 10);
    x.grow("--layout right-asymmetric", &[]);
    assert_eq!(x.size(), before);
    x.is(("raid5", "right-asymmetric", 3));
    let mut x = Served::new("-l 6 --chunk 32K -b internal", 4);
    x.grow("--layout left-symmetric-6", &[]);
    x.is(("raid6", "left-symmetric-6", 4));
    let mut x = Served::new("-l 10 --chunk 32K", 3);
    x.grow("--chunk 16K", &[]);
    x.grow("--layout o2", &[]);
    x.is(("raid10", "o2", 3));
}

/// Runs a program on a file. Returns what it printed.
fn tool(line: &str, file: &Path) -> String {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let mut words = line.split_whitespace();
    let output = std::process::Command::new(words.next().expect("a program"))
        .args(words.map(|word| if word == "DEVICE" { file.as_os_str() } else { word.as_ref() }))
        .env("PATH", path)
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{line}: {said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

/// A real file system: refused as long as it is too large, whatever is typed; then every byte of it
/// stays.
#[test]
fn a_file_system_is_not_cut_off() {
    if !["mkfs.ext4", "resize2fs", "e2fsck"].iter().all(|program| {
        ["/usr/sbin", "/sbin"].iter().any(|folder| Path::new(folder).join(program).exists())
    }) {
        return skip("a_file_system_is_not_cut_off", "no e2fsprogs here");
    }
    for (shape, members, words, to) in [
        ("-l 5 --chunk 64K -b internal", 4, "--raid-devices 3", ("raid5", "left-symmetric", 3)),
        ("-l 6 --chunk 64K", 5, "--raid-devices 4", ("raid6", "left-symmetric", 4)),
        ("-l 10 --chunk 64K", 5, "--raid-devices 4", ("raid10", "n2", 4)),
        ("-l 1", 2, "--size 9M", ("raid1", "", 2)),
    ] {
        let mut x = Served::new(shape, members);
        let before = x.size();
        let image = x.lab.path("image");
        let files = x.lab.path("files");
        std::fs::create_dir(&files).expect("a folder");
        std::fs::write(files.join("kept"), noise(2 << 20)).expect("a file");
        let make = |kib: usize| {
            let line = format!("mkfs.ext4 -q -d {} DEVICE {kib}K", files.display());
            File::create(&image).and_then(|file| file.set_len(before as u64)).expect("an image");
            tool(&line, &image);
        };
        make(before >> 10);
        x.content = std::fs::read(&image).expect("an image");
        fill(&x.socket, "x", &x.content);
        x.rest();
        let line = x.lab.refused(1, &format!("grow x {words} --array-size 1M"), &[], &x.members);
        assert!(line.contains("an ext4 file system ends at "), "{shape}: {line}");
        let (_, advice) = line.trim_end().split_once("e2fsck -f DEVICE and ").expect("advice");
        tool("e2fsck -f -y DEVICE", &image);
        tool(advice, &image);
        let mut shrunk = std::fs::read(&image).expect("an image");
        shrunk.resize(before, 0);
        x.content = shrunk;
        fill(&x.socket, "x", &x.content);
        let said = x.grow(words, &[]);
        let after = x.size();
        assert!(after < before && said.contains("of the array is given up"), "{shape}: {said}");
        assert!(said.contains(": clients see the new size when they connect again"), "{said}");
        x.content.truncate(after);
        if to.0 != "raid1" {
            let last = &x.status()["members"][members - 1];
            assert_eq!(last["state"][0], "spare", "{shape}: {last}");
        }
        x.is(to);
        x.lab.ok("stop x", &[]);
        let served = x.lab.ok("cat", &x.members);
        assert!(served == x.content, "{shape}: by cat");
        std::fs::write(&image, served).expect("an image");
        tool("e2fsck -f -n DEVICE", &image);
    }
}

/// Nor what a client has as a disk of its own.
#[test]
fn an_export_is_not_cut_off() {
    let mut x = Served::new("-l 1 --size 8M", 2);
    let part = format!("nbd:unix:{},name=vm,offset=6M,size=1M,readonly", x.socket.display());
    x.lab.ok(&format!("export x add {part}"), &[]);
    let shrink = |mib| format!("grow x --size {mib}M --array-size {mib}M");
    let line = x.lab.refused(1, &shrink(6), &[], &x.members);
    assert!(line.contains("reaches to 7.00 MiB"), "{line}");
    let (_, step) = line.trim_end().split_once("; braid ").expect("a step");
    x.lab.ok(&shrink(7), &[]);
    x.lab.ok(step, &[]);
    x.lab.ok(&shrink(6), &[]);
    assert_eq!(x.size(), 6 << 20);
    x.content.truncate(6 << 20);
    x.compare("smaller");
}

/// Begun without a member: the plan says that no other may fail.
#[test]
fn data_move_without_a_member() {
    let mut x = Served::new("-l 5 --chunk 64K -b internal", 3);
    let lost = x.members.remove(2);
    x.lab.ok("fail x", std::slice::from_ref(&lost));
    x.lab.ok("remove x", &[lost]);
    let said = x.grow("--chunk 16K", &[]);
    assert!(said.contains("1 of 3 members missing"), "{said}");
    assert!(said.contains("meanwhile and afterwards no member may fail"), "{said}");
    x.compare("moved");
    let new = x.device("n", 16);
    let before = x.size();
    let said = x.grow("--raid-devices 4", &[new]);
    assert!(said.contains("1 of 3 members missing"), "{said}");
    assert_eq!(x.size(), before / 2 * 3);
    x.compare("on one disk more");
    let added = x.device("d", 16);
    x.lab.ok("add x", std::slice::from_ref(&added));
    x.members.push(added);
    x.lab.ok("status x --watch", &[]);
    assert_eq!(x.status()["chunk_bytes"], 16 << 10);
    x.is(("raid5", "left-symmetric", 4));
}

/// Killed in the middle of the way back, too.
#[test]
fn a_reshape_is_undone() {
    let mut x = Served::new("-l 5 --chunk 64K", 3);
    let before = x.size();
    let line = x.lab.refused(1, "grow x --undo", &[], &x.members);
    assert!(line.contains("no reshape is under way"), "{line}");
    let device = x.device("d", 16);
    x.lab.ok("limit x --max 4M", &[]);
    x.lab.ok(&format!("grow x --raid-devices 4 --add {}", device.display()), &[]);
    x.members.push(device.clone());
    let done = |x: &Served| x.status()["sync"]["done_bytes"].as_u64();
    until("a part has moved", || done(&x) > Some(4 << 20));
    let said = x.lab.ok_text("grow x --undo", &[]);
    for line in [
        "1. what has moved moves back, in the background: ".to_owned(),
        format!("2. {} becomes a spare", device.display()),
        "x: becomes raid5, left-symmetric, 3 members".to_owned(),
    ] {
        assert!(said.contains(&line), "{line}: {said}");
    }
    x.compare("on the way back");
    kill(&x);
    // The kernel ends the I/O of a process that was killed before it lets go of the devices.
    until("its members are free", || x.lab.run("assemble --explain", &x.members).status.success());
    let text = x.lab.ok_text("assemble --explain", &x.members);
    assert!(text.contains("a reshape from 4 to 3 members at "), "{text}");
    x.assemble();
    x.compare("on the way back again");
    until("all has moved", || x.status()["sync"]["action"] == "idle");
    assert_eq!(x.size(), before);
    assert_eq!(x.status()["members"][3]["state"][0], "spare");
    x.is(("raid5", "left-symmetric", 3));
}

#[test]
fn raid5_becomes_raid6_and_raid5_again() {
    let mut x = Served::new("-l 5 --chunk 64K", 3);
    let added = x.device("d", 16);
    let said = x.grow("--level 6 --layout preserve", std::slice::from_ref(&added));
    let device = added.display().to_string();
    for line in [
        format!("1. {device} is added"),
        "2. superblocks tell of the new shape; data stay where they are".to_owned(),
        format!("3. recovery of role 3 onto {device}: "),
        "meanwhile one member may fail, afterwards 2 members may fail".to_owned(),
        "x: now raid6, left-symmetric-6, 4 members".to_owned(),
    ] {
        assert!(said.contains(&line), "{line}: {said}");
    }
    let log = x.log();
    assert!(log.contains("was raid5 of 3 members, ") && log.contains(" now"), "{log}");
    x.is(("raid6", "left-symmetric-6", 4));
    let said = x.grow("--level 5", &[]);
    assert!(said.contains(&format!("2. {device} becomes a spare")), "{said}");
    x.is(("raid5", "left-symmetric", 3));
    let members = x.status()["members"].clone();
    assert_eq!(members[3]["state"][0], "spare", "{members}");
}

#[test]
fn stripes_get_redundancy() {
    let mut x = Served::new("-l 0 --chunk 64K", 3);
    let added = x.device("d", 16);
    x.grow("--level 5 --layout preserve", &[added]);
    x.is(("raid5", "parity-last", 4));
    let mut x = Served::new("-l 0 --chunk 64K", 2);
    let added = [x.device("d", 16), x.device("e", 16)];
    let said = x.grow("--level 10", &added);
    assert!(
        said.contains("meanwhile no member may fail, afterwards one member may fail"),
        "{said}"
    );
    x.is(("raid10", "n2", 4));
}

#[test]
fn redundancy_is_given_up_for_stripes() {
    for (shape, members, leave, chunk) in [
        ("-l 10 --chunk 64K -b internal", 4, vec![1, 3], 64),
        ("-l 5 --layout parity-last --chunk 64K", 3, vec![2], 64),
        ("-l 4 --chunk 64K", 3, vec![2], 64),
        ("-l 1", 3, vec![1, 2], 64),
    ] {
        let mut x = Served::new(shape, members);
        let gone: Vec<_> = leave.into_iter().rev().map(|at| x.members.remove(at)).collect();
        let said = x.grow("--level 0", &[]);
        for device in &gone {
            let line = format!(". {} leaves the array", device.display());
            assert!(said.contains(&line), "{shape}: {said}");
        }
        assert!(said.contains("meanwhile and afterwards no member may fail"), "{shape}: {said}");
        for what in ["grown", "assembled again"] {
            let status = x.status();
            assert_eq!(status["level"], "raid0", "{shape}: {what}");
            assert_eq!(status["chunk_bytes"], chunk << 10, "{shape}: {what}");
            assert_eq!(x.size(), x.content.len(), "{shape}: {what}");
            x.compare(what);
            x.lab.ok("stop x", &[]);
            x.assemble();
        }
    }
}

#[test]
fn mirrors_get_another_copy_and_another_level() {
    let mut x = Served::new("-l 1", 2);
    let added = x.device("d", 20);
    let monitor = Monitor::start(&x.lab, &["--test", "--program", "/bin/true"]);
    assert_eq!(monitor.says(), "TestMessage x");
    x.grow("--raid-devices 3", &[added]);
    while monitor.says() != "ArrayGrown x" {}
    monitor.stop();
    x.is(("raid1", "", 3));
    let mut x = Served::new("-l 1", 2);
    x.grow("--level 5 --raid-devices 2", &[]);
    x.is(("raid5", "left-symmetric", 2));
    x.lab.ok("fail x m0", &[]);
    x.compare("degraded");
}

#[test]
fn larger_members_are_used_when_all_of_them_are_there() {
    let mut x = Served::new("-l 5 --chunk 64K", 3);
    let before = x.size();
    for (number, old) in x.members.clone().into_iter().enumerate() {
        let line = x.lab.refused(1, "grow x --size max", &[], &[]);
        assert!(line.contains("which is all that "), "{line}");
        let new = x.device(&format!("n{number}"), 24);
        x.lab.ok("add x", std::slice::from_ref(&new));
        let words = format!("replace x {} --with", old.display());
        x.lab.ok(&words, std::slice::from_ref(&new));
        x.lab.ok("status x --watch", &[]);
        until("the copy is done", || {
            let status = x.status();
            let mut members = status["members"].as_array().unwrap().iter();
            let old = members.find(|member| member["device"] == old.display().to_string());
            old.is_some_and(|member| member["state"][0] == "faulty")
        });
        x.lab.ok("remove x", &[old]);
        x.members[number] = new;
    }
    let said = x.grow("--size max", &[]);
    assert!(said.contains("2. resync of what is new: 8.00 MiB of each member"), "{said}");
    assert!(said.contains(": clients see the new size when they connect again"), "{said}");
    assert!(said.contains("the file system there: resize2fs /dev/nbdN"), "{said}");
    assert_eq!(x.size(), before + (16 << 20));
    let log = x.log();
    assert!(log.contains("resync started") && log.contains("resync done"), "--wait: {log}");
    x.lab.ok("stop x", &[]);
    x.assemble();
    x.is(("raid5", "left-symmetric", 3));
    let size = x.size();
    x.content = noise(size);
    fill(&x.socket, "x", &x.content);
    x.compare("all of it written anew");
}

#[test]
fn only_part_of_larger_members_is_used_where_a_size_is_named() {
    let mut x = Served::new("-l 1 --size 8M", 2);
    x.grow("--size 10M", &[]);
    assert_eq!(x.size(), 10 << 20);
    let json = x.lab.ok("grow x --size max --dry-run --json", &[]);
    let plan: Value = serde_json::from_slice(&json).expect("JSON");
    assert_eq!(plan["from"]["size_bytes"], 10 << 20, "{plan}");
    assert_eq!(plan["to"]["size_bytes"], plan["to"]["member_bytes"], "{plan}");
    assert_eq!(plan["steps"][1]["action"], "resync", "{plan}");
    assert_eq!(plan["may_fail_meanwhile"], 1, "{plan}");
    assert_eq!(plan["exports"][0]["export"], format!("nbd:unix:{}", x.socket.display()));
}

#[test]
fn the_file_of_arrays_is_to_name_what_was_added() {
    let x = Served::new("-l 1", 2);
    let entry = |members: &[&Path]| {
        let quoted: Vec<String> = members.iter().map(|it| format!("{:?}", it.display())).collect();
        format!("[array.x]\nmembers = [{}]\n", quoted.join(", ").replace("\\\"", ""))
    };
    let paths: Vec<&Path> = x.members.iter().map(PathBuf::as_path).collect();
    let file = x.lab.path("arrays.toml");
    std::fs::write(&file, entry(&paths)).expect("a file");
    let added = x.device("d", 16);
    let output = x.lab.run("grow x --raid-devices 3 --wait --add d", &[]);
    assert!(output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    let expected = format!("{}:1: array.x.members lacks {}", file.display(), added.display());
    assert!(said.contains(&expected), "{said}");
    let spare = x.device("e", 16);
    let said = || String::from_utf8(x.lab.run("add x e", &[]).stderr).expect("text");
    assert!(said().contains("array.x.members lacks"));
    let all = [paths.as_slice(), &[added.as_path(), spare.as_path()]].concat();
    std::fs::write(&file, entry(&all)).expect("a file");
    x.lab.ok("remove x e", &[]);
    assert_eq!(said(), "");
}
