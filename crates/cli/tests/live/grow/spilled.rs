//! Data that move in place, saved to a file before they are overwritten.

use std::os::unix::fs::FileExt;
use std::path::Path;

use super::*;

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

/// Killed again and again, and stopped in between.
#[test]
fn a_move_in_place_goes_on_by_its_file() {
    let x = Served::new(SHAPE, 3);
    x.lab.ok("limit x --max 2M", &[]);
    let spill = x.lab.path("spill");
    let name = spill.display();
    x.lab.ok(&format!("grow x --chunk 128K --spill {name}"), &[]);
    let line = x.lab.refused(1, "upgrade x", &[], &[]);
    assert!(line.contains("data move in place, and are saved to"), "{line}");
    let assemble = format!("assemble x --export nbd:unix:{}", x.socket.display());
    let mut restored = 0;
    for round in 0..4 {
        until("a part is saved", || holds(&spill) > 0);
        if round == 2 {
            x.lab.ok("stop x", &[]);
            assert_eq!(holds(&spill), 0, "it was stopped cleanly");
        } else {
            kill(&x);
        }
        restored += usize::from(holds(&spill) > 0);
        let line = x.lab.refused(1, &assemble, &x.members, &x.members);
        assert!(line.contains("--backup-file"), "{line}");
        let held = x.lab.ok(&format!("cat --backup-file {name}"), &x.members);
        assert!(held == x.content, "read with what is saved");
        let output = x.lab.run(&format!("{assemble} --backup-file {name}"), &x.members);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("the reshape goes on from sector"), "{said}");
        assert!(said.contains(&format!("keep {name} until that is over")), "{said}");
        x.compare("assembled again");
        x.lab.ok("limit x --max 2M", &[]);
    }
    assert!(restored > 0, "it was never in the middle");
    x.lab.ok("limit x --max none", &[]);
    until("all has moved", || x.status()["sync"]["from"].is_null());
    until("it is over", || x.status()["sync"]["action"] == "idle");
    x.is(("raid5", "left-symmetric", 3));
}
