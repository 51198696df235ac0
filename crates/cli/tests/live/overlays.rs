//! `--overlay`: arrays are written, and their members stay as they are.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use serde_json::Value;

use crate::support::export::{ask, connect, noise};
use crate::support::filled::filled;
use crate::support::{Lab, fingerprint, until};

fn prints(members: &[PathBuf]) -> Vec<u64> {
    members.iter().map(|member| fingerprint(member)).collect()
}

fn status(lab: &Lab) -> Value {
    serde_json::from_slice(&lab.ok("status x --json", &[])).unwrap()
}

#[test]
fn what_is_written_goes_to_the_overlay_and_is_found_there_again() {
    for (shape, count) in [("--level 5 --chunk 16K", 3), ("--level 6 --chunk 16K", 4), ("-l 1", 2)]
    {
        let lab = Lab::new();
        let (members, mut content) = filled(&lab, shape, count);
        let before = prints(&members);
        let socket = lab.path("nbd");
        let assemble =
            format!("assemble x --overlay changes --export nbd:unix:{}", socket.display());
        lab.ok(&assemble, &members);
        let mut stream = connect(&socket, "x", content.len());
        let news = noise(70_000);
        for (at, len) in [(0, 70_000), (100_352, 512), (1 << 20, 65536), ((1 << 20) + 5120, 4096)] {
            let len = len / 512 * 512;
            content[at..at + len].copy_from_slice(&news[..len]);
            ask(&mut stream, 1, at as u64, &news[..len]).unwrap();
        }
        let zeroed = 3 << 20..(3 << 20) + 40_960;
        content[zeroed.clone()].fill(0);
        crate::support::export::trim(&mut stream, zeroed.start as u64, 40_960);
        ask(&mut stream, 1, zeroed.start as u64, &content[zeroed.clone()]).unwrap();
        ask(&mut stream, 3, 0, &[]).unwrap();
        drop(stream);
        assert!(lab.ok("cat x", &[]) == content, "{shape}: while it runs");
        lab.ok("check x --wait", &[]);
        assert_eq!(status(&lab)["mismatches"], 0, "{shape}: parity fits, too");
        lab.ok("stop x", &[]);
        assert_eq!(before, prints(&members), "{shape}: the members");

        lab.ok(&assemble, &members);
        assert!(lab.ok("cat x", &[]) == content, "{shape}: found again");
        // A member fails and is rebuilt, in the overlay alone.
        lab.ok("fail x", &members[..1]);
        lab.ok("remove x", &members[..1]);
        lab.ok("add x --force", &members[..1]);
        until("the rebuild", || !status(&lab)["state"].to_string().contains("degraded"));
        assert!(lab.ok("cat x", &[]) == content, "{shape}: rebuilt");
        lab.ok("stop x", &[]);
        assert_eq!(before, prints(&members), "{shape}: the members");
        let file = lab.path("changes").join(overlay_of(&members[1]));
        let used = std::fs::metadata(&file).unwrap().blocks() * 512;
        assert!(used < 8 << 20, "{shape}: sparse, {used} bytes");
        // Without the changes the array is as it was.
        std::fs::remove_dir_all(lab.path("changes")).unwrap();
        assert!(lab.ok("cat x", &members) != content, "{shape}");
    }
}

fn overlay_of(member: &std::path::Path) -> String {
    format!("{}.overlay", member.display().to_string()[1..].replace('/', "!"))
}

#[test]
fn what_was_flushed_survives_the_end_of_the_process() {
    let lab = Lab::new();
    let (members, mut content) = filled(&lab, "--level 5 --chunk 16K", 3);
    let before = prints(&members);
    let socket = lab.path("nbd");
    let assemble = format!("assemble x --overlay changes --export nbd:unix:{}", socket.display());
    lab.ok(&assemble, &members);
    let mut stream = connect(&socket, "x", content.len());
    let news = noise(32_768);
    content[65_536..98_304].copy_from_slice(&news);
    ask(&mut stream, 1, 65_536, &news).unwrap();
    ask(&mut stream, 3, 0, &[]).unwrap();
    let pid = status(&lab)["pid"].as_i64().unwrap() as i32;
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    until("its end", || !lab.run("status x", &[]).status.success());
    drop(stream);
    lab.ok(&assemble, &members);
    assert!(lab.ok("cat x", &[]) == content);
    lab.ok("upgrade x", &[]);
    assert!(lab.ok("cat x", &[]) == content, "by the next program");
    let mut stream = connect(&socket, "x", content.len());
    content[..512].fill(7);
    ask(&mut stream, 1, 0, &content[..512]).unwrap();
    drop(stream);
    lab.ok("stop x", &[]);
    assert_eq!(before, prints(&members));
    lab.ok(&assemble, &members);
    assert!(lab.ok("cat x", &[]) == content, "what the next program wrote");
    lab.ok("stop x", &[]);
}

#[test]
fn commands_on_stopped_arrays_take_it_too() {
    let lab = Lab::new();
    let members = lab.members("m", 3, 16);
    let before = prints(&members);
    let shape = "--level 5 --raid-devices 3 --chunk 16K --assume-clean";
    let next = lab.ok_text(&format!("create x {shape} --overlay changes"), &members);
    let changes = lab.path("changes");
    let begins = format!("braid assemble --overlay {} x ", changes.display());
    assert!(next.starts_with(&begins), "{next}");
    let option = format!("--overlay {}", changes.display());
    lab.ok(&format!("update x --consistency-policy ppl {option}"), &members);
    lab.ok(&format!("rename x y {option}"), &members);
    lab.ok(&format!("assemble y {option}"), &members);
    let text = lab.ok_text("detail y", &[]);
    assert!(text.contains("ppl"), "{text}");
    lab.ok("stop y", &[]);
    lab.ok(&format!("zero-superblock {option}"), &members[..1]);
    assert_eq!(before, prints(&members));
    assert!(lab.refused(1, "examine", &members[..1], &members).contains("no md superblock"));
}

#[test]
fn changes_to_another_member_or_to_an_older_one_are_refused() {
    let lab = Lab::new();
    let (members, _) = filled(&lab, "-l 1", 2);
    lab.ok("assemble x --overlay changes", &members);
    let held = lab.refused(1, "assemble z --rename --overlay changes", &members, &members);
    assert!(held.contains("in use"), "{held}");
    lab.ok("stop x", &[]);
    lab.ok("assemble x", &members);
    lab.ok("stop x", &[]);
    let line = lab.refused(1, "assemble x --overlay changes", &members, &members);
    assert!(line.contains("holds changes to the member as it was at event count"), "{line}");
    let names = [overlay_of(&members[0]), overlay_of(&members[1])];
    let at = |name: &str| lab.path("changes").join(name);
    std::fs::rename(at(&names[1]), at(&names[0])).unwrap();
    let line = lab.refused(1, "assemble x --overlay changes", &members, &members);
    assert!(line.contains("holds changes to another member"), "{line}");
    std::fs::write(at(&names[0]), "notes").unwrap();
    let line = lab.refused(1, "assemble x --overlay changes", &members, &members);
    assert!(line.contains(".overlay: "), "{line}");
    let line = lab.refused(2, "create z -l 1 -n 2 --overlay changes mem:1M mem:1M", &[], &members);
    assert!(line.contains("--overlay is for files and block devices"), "{line}");
}
