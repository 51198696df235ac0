//! Data that move in place, saved to a file before they are overwritten.

use std::os::unix::fs::FileExt;
use std::path::Path;

use super::*;
use crate::support::until_moment;

/// Superblocks behind the data cannot tell that these begin elsewhere.
const SHAPE: &str = "-l 5 --chunk 64K --metadata 1.0 --size 15M";

/// The number of sectors that a file says that it holds.
fn holds(spill: &Path) -> u64 {
    let mut number = [0; 8];
    let read = File::open(spill).and_then(|file| file.read_exact_at(&mut number, 56));
    read.expect("a header");
    u64::from_le_bytes(number)
}

#[test]
fn data_move_in_place_where_a_file_takes_them_first() {
    for (change, added, to) in [
        ("--chunk 256K", 0, ("raid5", "left-symmetric", 3)),
        ("--layout right-asymmetric", 0, ("raid5", "right-asymmetric", 3)),
        ("--raid-devices 4", 1, ("raid5", "left-symmetric", 4)),
    ] {
        let mut x = Served::new(SHAPE, 3);
        let devices: Vec<_> = (0..added).map(|n| x.device(&format!("d{n}"), 16)).collect();
        let words = devices
            .iter()
            .fold(change.to_owned(), |words, device| format!("{words} --add {}", device.display()));
        let line = x.lab.refused(1, &format!("grow x {words}"), &[], &x.members);
        assert!(line.contains("superblocks behind the data cannot tell"), "{line}");
        assert!(line.contains("add --spill PATH: a file of 1"), "{line}");
        let spill = x.lab.path("spill");
        let said = x.grow(&format!("{change} --spill {}", spill.display()), &devices);
        let name = spill.display();
        assert!(said.contains(&format!("saved to {name}: 1")), "{said}");
        assert!(said.contains(&format!("{name}: it can be deleted")), "{said}");
        assert_eq!(holds(&spill), 0);
        std::fs::remove_file(&spill).expect("a file");
        x.is(to);
    }
}

#[test]
fn a_file_that_is_not_empty_is_not_taken_nor_one_that_is_not_needed() {
    let x = Served::new(SHAPE, 3);
    let file = x.device("file", 1);
    let refused = |path: &Path| {
        let words = format!("grow x --chunk 128K --spill {}", path.display());
        let output = x.lab.run(&words, &[]);
        assert_eq!(output.status.code(), Some(1), "{words}");
        String::from_utf8_lossy(&output.stderr).to_lowercase()
    };
    let line = refused(&file);
    assert!(line.contains("file exists"), "{line}");
    let line = refused(&x.members[0]);
    assert!(line.contains("is a member; name a file on another disk"), "{line}");
    let y = Served::new("-l 5 --chunk 64K", 3);
    let line = y.lab.refused(1, "grow x --chunk 128K --spill none", &[], &y.members);
    assert!(line.contains("nothing is overwritten that is yet to be moved"), "{line}");
    assert!(line.contains("leave --spill out"), "{line}");
}

/// Kills the process as soon as a part is saved.
fn kill_in_a_window(x: &Served, spill: &Path) {
    let pid = x.status()["pid"].as_i64().expect("a process");
    let pid = rustix::process::Pid::from_raw(pid as i32).expect("a process");
    until_moment("a part is saved", || (0..5000).any(|_| holds(spill) > 0));
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it runs");
    until("it is gone", || !x.lab.run("status x", &[]).status.success());
}

/// Writes a configuration with the array. Returns the command that starts it.
fn in_a_file(x: &Served) -> String {
    let file = x.lab.path("arrays.toml");
    let members: Vec<_> = x.members.iter().map(|path| path.display().to_string()).collect();
    let socket = x.socket.display();
    let text = format!("[array.x]\nmembers = {members:?}\nexports = \"nbd:unix:{socket}\"\n");
    std::fs::write(&file, text).expect("a file");
    format!("up x --config {}", file.display())
}

/// Killed again and again, and stopped.
#[test]
fn a_move_in_place_goes_on_by_its_file() {
    let x = Served::new(SHAPE, 3);
    let spill = x.lab.path("spill");
    let name = spill.display();
    let assemble = format!("assemble x --export nbd:unix:{}", x.socket.display());
    let mut restored = 0;
    for change in ["--chunk 128K", "--layout right-symmetric", "--chunk 64K", "--chunk 32K"] {
        let is_stopped = change == "--chunk 64K";
        x.lab.ok("limit x --max 2M", &[]);
        x.lab.ok(&format!("grow x {change} --spill {name}"), &[]);
        if is_stopped {
            let away = x.lab.path("away");
            std::fs::rename(&spill, &away).expect("a file");
            let line = x.lab.refused(1, "upgrade x", &[], &[]);
            assert!(line.contains("which data are saved to: no such file"), "{line}");
            std::fs::rename(&away, &spill).expect("a file");
            x.lab.ok("upgrade x", &[]);
            let from = &x.status()["sync"]["from"];
            assert!(!from.is_null(), "it goes on: {}", x.status());
            x.lab.ok("stop x", &[]);
            assert_eq!(holds(&spill), 0, "it was stopped cleanly");
        } else {
            kill_in_a_window(&x, &spill);
        }
        restored += usize::from(holds(&spill) > 0);
        let line = x.lab.refused(1, &assemble, &x.members, &x.members);
        assert!(line.contains("--backup-file"), "{line}");
        let held = x.lab.ok(&format!("cat --backup-file {name}"), &x.members);
        assert!(held == x.content, "{change}: read with what is saved");
        let output = if is_stopped {
            let up = in_a_file(&x);
            // Nothing is missing that could be waited for.
            let line = x.lab.refused(1, &up, &[], &x.members);
            assert!(line.contains("--backup-file"), "{line}");
            x.lab.run(&format!("{up} --backup-file {name}"), &[])
        } else {
            x.lab.run(&format!("{assemble} --backup-file {name}"), &x.members)
        };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("the reshape goes on from sector"), "{said}");
        assert!(said.contains(&format!("keep {name} until that is over")), "{said}");
        x.compare(change);
        until("it is over", || x.status()["sync"]["from"].is_null());
        std::fs::remove_file(&spill).expect("a file");
    }
    assert!(restored > 0, "it was never in the middle");
    x.is(("raid5", "right-symmetric", 3));
}
