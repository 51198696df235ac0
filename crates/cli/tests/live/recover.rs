//! `braid recover`: arrays without superblocks are found by their content.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::support::export::{fill, noise};
use crate::support::{Lab, fingerprint, skip};

/// Runs a program, which must succeed. Returns its output.
fn tool(program: &str, words: &[&str]) -> String {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let output = Command::new(program).args(words).env("PATH", path).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{program} {words:?}: {said}{output:?}");
    said
}

fn have(test: &str, program: &str) -> bool {
    let there = ["/usr/sbin", "/sbin", "/usr/bin"]
        .iter()
        .any(|dir| PathBuf::from(dir).join(program).exists());
    if !there {
        skip(test, &format!("no {program} here"));
    }
    there
}

/// An ext4 of so many bytes, with so many directories of so many files each, of so many KiB.
fn ext4(lab: &Lab, bytes: u64, (directories, files, kib): (usize, usize, usize)) -> Vec<u8> {
    let tree = lab.path("tree");
    let _ = fs::remove_dir_all(&tree);
    for directory in 0..directories {
        let path = tree.join(format!("d{directory}"));
        fs::create_dir_all(&path).unwrap();
        for file in 0..files {
            fs::write(path.join(format!("f{file}")), vec![file as u8; kib << 10]).unwrap();
        }
    }
    let image = lab.path("content");
    File::create(&image).unwrap().set_len(bytes).unwrap();
    let tree = tree.to_str().unwrap();
    let image_name = image.to_str().unwrap();
    let uuid = format!("{:08x}-1234-1234-1234-123456789abc", bytes >> 12);
    // Small groups, so that metadata lie all over it, as on large file systems.
    let features = "64bit,metadata_csum,^flex_bg";
    let words = ["-q", "-b", "4096", "-g", "2048", "-N", "4096", "-O", features, "-U", &uuid];
    tool("mkfs.ext4", &[&words[..], &["-d", tree, image_name]].concat());
    fs::read(image).unwrap()
}

fn json(lab: &Lab, words: &str, paths: &[PathBuf]) -> Value {
    serde_json::from_slice(&lab.ok(words, paths)).unwrap()
}

/// Writes the content of an array, which is stopped before and after.
fn write(lab: &Lab, members: &[PathBuf], content: &[u8]) {
    let socket = lab.path("nbd");
    lab.ok(&format!("assemble x --run --export nbd:unix:{}", socket.display()), members);
    fill(&socket, "x", content);
    lab.ok("stop x", &[]);
}

/// The size of an array that is stopped.
fn size(lab: &Lab, members: &[PathBuf]) -> u64 {
    lab.ok("assemble x --run", members);
    let bytes = json(lab, "status x --json", &[])["size_bytes"].as_u64().unwrap();
    lab.ok("stop x", &[]);
    bytes
}

fn wipe(members: &[PathBuf]) {
    for member in members {
        File::options().write(true).open(member).unwrap().write_all_at(&[0; 8192], 0).unwrap();
    }
}

/// An array of this shape with an ext4 on it, and that.
fn made(lab: &Lab, shape: &str, count: usize) -> (Vec<PathBuf>, Vec<u8>) {
    made_of(lab, shape, count, |mib| (mib * 16, 1, 7))
}

/// Makes an array with these files in an ext4 of this size in MiB.
fn made_of(
    lab: &Lab,
    shape: &str,
    count: usize,
    files: impl Fn(usize) -> (usize, usize, usize),
) -> (Vec<PathBuf>, Vec<u8>) {
    let members = lab.members("m", count, 32);
    lab.ok(&format!("create x {shape} --raid-devices {count} --assume-clean"), &members);
    let bytes = size(lab, &members);
    let content = ext4(lab, bytes / 4096 * 4096, files((bytes >> 20) as usize));
    write(lab, &members, &content);
    (members, content)
}

fn best(lab: &Lab, members: &[PathBuf]) -> Value {
    let before: Vec<u64> = members.iter().map(|member| fingerprint(member)).collect();
    let found = json(lab, "recover --json", members);
    let after: Vec<u64> = members.iter().map(|member| fingerprint(member)).collect();
    assert_eq!(before, after, "recover has changed a member");
    assert_eq!(found["schema"], 1);
    // Each can be typed as it is; what it reads is compared for the first.
    for one in found["hypotheses"].as_array().unwrap() {
        lab.type_all(&commands_of(one), &[]);
    }
    found["hypotheses"][0].clone()
}

/// The commands of a hypothesis, those of its legs first.
fn commands_of(one: &Value) -> String {
    let legs = one["legs"].as_array().unwrap().iter().map(|leg| &leg["command"]);
    let all = legs.chain([&one["command"]]).map(|command| command.as_str().unwrap());
    all.collect::<Vec<_>>().join("\n")
}

#[test]
fn arrays_are_found_without_superblocks() {
    if !have("arrays_are_found_without_superblocks", "mkfs.ext4") {
        return;
    }
    for (shape, count, missing) in [
        ("--level 0 --chunk 64K", 3, false),
        ("--level 1", 2, false),
        ("--level 4 --chunk 64K", 3, false),
        ("--level 5 --chunk 4K", 3, true),
        ("--level 5 --chunk 512K --layout ra", 4, false),
        ("--level 6 --chunk 64K", 5, true),
        ("--level 10 --chunk 64K", 4, false),
        ("--level 10 --chunk 32K --layout f2", 3, false),
        ("--level 10 --chunk 64K --layout o2", 3, false),
    ] {
        let lab = Lab::new();
        let (mut members, content) = made(&lab, shape, count);
        wipe(&members);
        members.rotate_left(1);
        members.swap(0, 1);
        if missing {
            members.pop();
        }
        let found = best(&lab, &members);
        // With few chunks another geometry comes near.
        assert_ne!(found["confidence"], "guess", "{shape}: {found:#}");
        assert_eq!(lab.type_all(&commands_of(&found), &content), 1, "{shape}");
    }
}

#[test]
fn a_stale_member_and_a_foreign_one_are_left_out() {
    if !have("a_stale_member_and_a_foreign_one_are_left_out", "mkfs.ext4") {
        return;
    }
    let lab = Lab::new();
    let (mut members, _) = made_of(&lab, "--level 5 --chunk 64K", 4, |_| (75, 16, 28));
    let old = fs::read(&members[2]).unwrap();
    let image = lab.path("content");
    let commands = lab.path("commands");
    let line = |file| format!("mkdir n{file}\nwrite {} n{file}/f\n", commands.display());
    fs::write(&commands, (0..60).map(line).collect::<String>()).unwrap();
    tool("debugfs", &["-w", "-f", commands.to_str().unwrap(), image.to_str().unwrap()]);
    let content = fs::read(image).unwrap();
    write(&lab, &members, &content);
    fs::write(&members[2], old).unwrap();
    wipe(&members);
    let foreign = lab.path("foreign");
    fs::write(&foreign, noise(32 << 20)).unwrap();
    members.insert(1, foreign.clone());
    let found = best(&lab, &members);
    let evidence = found["evidence"].to_string();
    assert!(evidence.contains("m2 is stale by "), "{evidence}");
    assert!(evidence.contains("foreign is none of its members"), "{evidence}");
    assert_eq!(found["members"][2], "missing", "{found:#}");
    assert_eq!(lab.type_all(&commands_of(&found), &content), 1);
}

#[test]
fn superblocks_are_written_and_taken_back() {
    if !have("superblocks_are_written_and_taken_back", "mkfs.ext4") {
        return;
    }
    let lab = Lab::new();
    let (mut members, content) = made(&lab, "--level 5 --chunk 64K", 4);
    wipe(&members);
    members.swap(0, 3);
    let before: Vec<u64> = members.iter().map(|member| fingerprint(member)).collect();
    let said = lab.ok_text("recover --write-superblocks nas", &members);
    assert!(said.contains("--undo braid-recover-nas.saved"), "{said}");
    let read = lab.ok("cat", &members);
    assert!(read[..content.len()] == content);
    let examined = json(&lab, "examine --json", &members);
    assert_eq!(examined[0]["raid_level"], "raid5", "{examined:#}");
    if have("mdadm's opinion", "mdadm") {
        for (member, role) in members.iter().zip([3, 1, 2, 0]) {
            let said = tool("mdadm", &["--examine", member.to_str().unwrap()]);
            assert!(said.contains(&format!("Device Role : Active device {role}\n")), "{said}");
            assert!(said.contains("State : clean"), "{said}");
            assert!(said.contains("- correct"), "{said}");
        }
    }
    // A second time there is something to lose.
    let line = lab.refused(1, "recover --write-superblocks nas", &members, &members);
    assert!(line.contains("has a superblock"), "{line}");
    // It was in use meanwhile; that is undone with it.
    lab.ok("assemble nas", &members);
    lab.ok("stop nas", &[]);
    lab.ok("recover --undo braid-recover-nas.saved", &[]);
    let after: Vec<u64> = members.iter().map(|member| fingerprint(member)).collect();
    assert_eq!(before, after);
    // What is something else by now stays as it is.
    lab.ok("create other --level 1 --raid-devices 2 --assume-clean", &members[..2]);
    let line = lab.refused(1, "recover --undo braid-recover-nas.saved", &[], &members);
    assert!(line.contains("does not have the superblock"), "{line}");
}

#[test]
fn superblocks_are_written_beside_the_members() {
    if !have("superblocks_are_written_beside_the_members", "mkfs.ext4") {
        return;
    }
    let lab = Lab::new();
    let (mut members, content) = made(&lab, "--level 5 --chunk 64K", 4);
    wipe(&members);
    members.swap(0, 3);
    let before: Vec<u64> = members.iter().map(|member| fingerprint(member)).collect();
    let said = lab.ok_text("recover --write-superblocks nas --overlay try", &members);
    assert!(said.contains("are as they were"), "{said}");
    assert!(!lab.path("braid-recover-nas.saved").exists(), "nothing was overwritten");
    let line = lab.refused(1, "recover --write-superblocks nas --overlay try", &members, &members);
    assert!(line.contains("has a superblock"), "{line}");
    lab.ok("assemble nas --overlay try", &members);
    let read = lab.ok("cat nas", &[]);
    lab.ok("stop nas", &[]);
    assert!(read[..content.len()] == content);
    let after: Vec<u64> = members.iter().map(|member| fingerprint(member)).collect();
    assert_eq!(before, after);
    lab.refused(2, "recover --undo x --overlay try", &[], &[]);
}

#[test]
fn a_search_goes_on_from_what_was_kept() {
    if !have("a_search_goes_on_from_what_was_kept", "mkfs.ext4") {
        return;
    }
    let lab = Lab::new();
    let (members, _) = made(&lab, "--level 5 --chunk 64K", 3);
    wipe(&members);
    let found = best(&lab, &members);
    assert_eq!(json(&lab, "recover --json --resume", &members)["hypotheses"][0], found);
    assert!(!lab.path("braid-recover.state").exists(), "it is not needed any more");
    // As if everything had been read, and nothing found: then nothing is read again.
    let state = members.iter().map(|member| {
        let bytes = fs::metadata(member).unwrap().len();
        serde_json::json!({"member": member, "size_bytes": bytes, "done": 1, "found": ""})
    });
    let members_state: Vec<Value> = state.collect();
    let state = serde_json::json!({"schema": 1, "structures": 2, "members": members_state});
    fs::write(lab.path("braid-recover.state"), state.to_string()).unwrap();
    let line = lab.refused(1, "recover --resume", &members[..2], &members);
    assert!(line.contains("is of a search among other members"), "{line}");
    let kept = json(&lab, "recover --json --resume", &members);
    assert_ne!(kept["hypotheses"][0], found);
    fs::write(lab.path("braid-recover.state"), "{").unwrap();
    let line = lab.refused(1, "recover --resume", &members, &members);
    assert!(line.contains("is not what was kept"), "{line}");
}

/// Checks that superblocks on some members supply the geometry, whatever the content.
#[test]
fn superblocks_that_are_left_tell_of_the_rest() {
    let lab = Lab::new();
    let members = lab.members("m", 3, 16);
    lab.ok("create x --level 5 --raid-devices 3 --chunk 64K --assume-clean", &members);
    let bytes = json(&lab, "examine --json", &members[..1]);
    let data_bytes = bytes[0]["data_offset_sectors"].as_u64().unwrap() * 512;
    let content = noise(size(&lab, &members) as usize);
    write(&lab, &members, &content);
    wipe(&members[1..2]);
    let order = [members[2].clone(), members[1].clone(), members[0].clone()];
    let found = best(&lab, &order);
    assert_eq!(found["confidence"], "high", "{found:#}");
    let names: Vec<&str> = members.iter().map(|member| member.to_str().unwrap()).collect();
    assert_eq!(found["members"], serde_json::json!(names), "{found:#}");
    assert_eq!(found["data_offset_bytes"][1], data_bytes);
    assert_eq!(lab.type_all(&commands_of(&found), &content), 1);
    // Of two, one order is as good as the other.
    wipe(&members[..1]);
    let found = json(&lab, "recover --json", &order);
    assert!(found["hypotheses"].as_array().unwrap().len() >= 2, "{found:#}");
    assert_ne!(found["hypotheses"][0]["confidence"], "high", "{found:#}");
}

#[test]
fn what_is_not_certain_is_not_written() {
    let lab = Lab::new();
    let members = lab.members("m", 3, 16);
    let line = lab.refused(1, "recover", &members, &members);
    assert!(line.contains("nothing was found on the members"), "{line}");
    let line = lab.refused(1, "recover --write-superblocks nas", &members, &members);
    assert!(line.contains("nothing was found on the members"), "{line}");
    lab.refused(2, "recover", &[], &[]);
    fs::write(lab.path("odd"), "{}").unwrap();
    let line = lab.refused(1, "recover --undo odd", &[], &[]);
    assert!(line.contains("is no such file"), "{line}");
}

#[test]
fn members_in_partitions_are_named_by_them() {
    if !have("members_in_partitions_are_named_by_them", "mkfs.ext4") {
        return;
    }
    let lab = Lab::new();
    let (members, content) = made(&lab, "--level 5 --chunk 64K", 3);
    wipe(&members);
    let mut disks = Vec::new();
    for (index, member) in members.iter().enumerate() {
        let disk = lab.path(&format!("disk{index}"));
        let bytes = fs::read(member).unwrap();
        let file = File::create(&disk).unwrap();
        file.set_len(bytes.len() as u64 + (4 << 20)).unwrap();
        file.write_all_at(&bytes, 2 << 20).unwrap();
        let table = lab.path("table");
        fs::write(&table, format!("label: gpt\nstart=4096, size={}\n", bytes.len() / 512)).unwrap();
        let line =
            format!("sfdisk --quiet --no-tell-kernel {} < {}", disk.display(), table.display());
        tool("sh", &["-c", &line]);
        disks.push(disk);
    }
    disks.rotate_left(1);
    let found = best(&lab, &disks);
    assert_ne!(found["confidence"], "guess", "{found:#}");
    assert!(found["members"][0].as_str().unwrap().ends_with("disk0#1"), "{found:#}");
    assert_eq!(found["data_offset_bytes"][0], 1 << 20, "{found:#}");
    assert_eq!(lab.type_all(&commands_of(&found), &content), 1);
}

#[test]
fn what_was_not_rescued_is_in_the_command_that_is_printed() {
    if !have("what_was_not_rescued_is_in_the_command_that_is_printed", "mkfs.ext4") {
        return;
    }
    let lab = Lab::new();
    let (members, content) = made(&lab, "--level 5 --chunk 64K", 3);
    wipe(&members);
    let map = crate::maps::lose(&members[1], &[(6 << 20, 8 << 20)]);
    let found = json(&lab, &format!("recover --json {map}"), &members);
    assert_eq!(lab.type_all(&commands_of(&found["hypotheses"][0]), &content), 1, "{found:#}");
}

#[test]
fn superblocks_that_are_left_keep_what_they_say() {
    if !have("superblocks_that_are_left_keep_what_they_say", "mkfs.ext4") {
        return;
    }
    for shape in ["--level 5 --chunk 64K", "--level 5 --chunk 64K --metadata 1.0 --bitmap internal"]
    {
        let lab = Lab::new();
        let (members, content) = made(&lab, shape, 4);
        let old = json(&lab, "examine --json", &members[1..2])[0].clone();
        lab.ok("zero-superblock", &[&members[..1], &members[2..]].concat());
        let before: Vec<u64> = members.iter().map(|member| fingerprint(member)).collect();
        lab.ok("recover --write-superblocks nas", &members);
        for (member, role) in members.iter().zip(0..) {
            let new = json(&lab, "examine --json", std::slice::from_ref(member))[0].clone();
            for field in ["array_uuid", "events", "creation_time", "used_dev_size_sectors"] {
                assert!(!old[field].is_null(), "{old:#}");
                assert_eq!(old[field], new[field], "{shape}: {field}");
            }
            assert_eq!(new["device_role"], role, "{new:#}");
        }
        assert!(lab.ok("cat", &members)[..content.len()] == content);
        lab.ok("assemble nas", &members);
        assert_eq!(lab.run("detail nas --test", &[]).status.code(), Some(0), "{shape}");
        lab.ok("stop nas", &[]);
        lab.ok("recover --undo braid-recover-nas.saved", &[]);
        let after: Vec<u64> = members.iter().map(|member| fingerprint(member)).collect();
        assert_eq!(before[0], after[0], "{shape}");
    }
}

/// Makes an array of these members, writes the content to its beginning, and stops it.
fn make(lab: &Lab, shape: &str, members: &[PathBuf], content: &[u8]) {
    let count = members.len();
    lab.ok(&format!("create x {shape} --raid-devices {count} --assume-clean --force"), members);
    let mut all = content.to_vec();
    all.resize(size(lab, members) as usize, 0);
    write(lab, members, &all);
}

#[test]
fn an_array_of_arrays_is_found_with_the_commands_that_read_it() {
    if !have("an_array_of_arrays_is_found_with_the_commands_that_read_it", "mkfs.ext4") {
        return;
    }
    let lab = Lab::new();
    let content = ext4(&lab, 72 << 20, (40, 16, 28));
    // Each leg holds every other chunk, behind what the superblock of the outer array took up.
    let mut halves = [vec![0; 1 << 20], vec![0; 1 << 20]];
    for (index, chunk) in content.chunks(128 << 10).enumerate() {
        halves[index % 2].extend_from_slice(chunk);
    }
    let mut members = lab.members("m", 6, 24);
    for (leg, half) in members.chunks(3).zip(&halves) {
        make(&lab, "--level 5 --chunk 64K", leg, half);
    }
    wipe(&members);
    members.rotate_left(2);
    members.swap(0, 3);
    let text = lab.ok_text("recover", &members);
    assert!(text.starts_with("likely: raid0, chunk 128K\n"), "{text}");
    assert_eq!(lab.type_all(&text, &content), 3, "{text}");
    let found = best(&lab, &members);
    assert_eq!(found["legs"][1]["members"][0], lab.path("m3").to_str().unwrap(), "{found:#}");
    let line = lab.refused(1, "recover --write-superblocks nas", &members, &members);
    assert!(line.contains("the best hypothesis is likely: "), "{line}");
}

/// Puts the bytes of files into disks, beginning at so many MiB, with a table of partitions or
/// without.
fn disks(lab: &Lab, parts: &[(u64, &[PathBuf])], table: bool) -> Vec<PathBuf> {
    let count = parts[0].1.len();
    let disks = lab.members("disk", count, 0);
    for (index, disk) in disks.iter().enumerate() {
        let mut lines = "label: gpt\n".to_owned();
        let file = File::create(disk).unwrap();
        for (mib, members) in parts {
            let bytes = fs::read(&members[index]).unwrap();
            file.write_all_at(&bytes, mib << 20).unwrap();
            lines += &format!("start={}, size={}\n", mib << 11, bytes.len() / 512);
        }
        file.set_len(file.metadata().unwrap().len() + (1 << 20)).unwrap();
        if table {
            fs::write(lab.path("table"), lines).unwrap();
            let table = lab.path("table");
            let line =
                format!("sfdisk --quiet --no-tell-kernel {} < {}", disk.display(), table.display());
            tool("sh", &["-c", &line]);
        }
    }
    disks
}

#[test]
fn a_second_array_on_the_same_disks_is_found() {
    if !have("a_second_array_on_the_same_disks_is_found", "mkfs.ext4") {
        return;
    }
    let lab = Lab::new();
    let large = ext4(&lab, 60 << 20, (75, 16, 28));
    let small = ext4(&lab, 14 << 20, (4, 8, 7));
    let boot = lab.members("boot", 3, 16);
    make(&lab, "--level 1", &boot, &small);
    let data = lab.members("data", 3, 32);
    make(&lab, "--level 5 --chunk 64K", &data, &large);
    wipe(&boot);
    wipe(&data);
    for (table, before) in [(true, "#1"), (false, "@0+")] {
        let mut disks = disks(&lab, &[(1, &boot), (17, &data)], table);
        disks.rotate_left(1);
        let found = json(&lab, "recover --json", &disks);
        let all = found["hypotheses"].as_array().unwrap();
        let of = |array: u64| all.iter().find(|one| one["array"] == array);
        let [Some(first), Some(second)] = [of(1), of(2)] else { panic!("{found:#}") };
        assert_eq!(lab.type_all(&commands_of(first), &large), 1, "{found:#}");
        assert_eq!(second["level"], "raid1", "{found:#}");
        assert_eq!(lab.type_all(&commands_of(second), &small), 1, "{found:#}");
        assert!(second["members"][0].as_str().unwrap().contains(before), "{found:#}");
        let text = lab.ok_text("recover", &disks);
        assert!(text.contains("\nanother array:\nlikely: raid1\n"), "{text}");
    }
}
