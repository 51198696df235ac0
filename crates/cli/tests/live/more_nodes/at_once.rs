//! Commands for an array that is being grown already: one of two has its way, and the other one
//! makes nothing and removes nothing.

use std::process::{Child, Stdio};

use super::{Served, in_the_middle};
use crate::support::nodes::{detail, names};
use crate::support::{Lab, until};

pub(super) fn spawn(lab: &Lab, words: &str) -> Child {
    let mut command = lab.braid();
    command.args(words.split_whitespace()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().expect("braid runs")
}

/// Returns whether it succeeded, and what it said.
pub(super) fn ended(child: Child) -> (bool, String) {
    let output = child.wait_with_output().expect("an end");
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

impl Served {
    /// Returns the number of nodes that have a volume of the array to which data move.
    pub(super) fn others(&self) -> usize {
        self.stores.iter().filter(|store| names(store).any(|name| name == "x.2")).count()
    }
}

#[test]
fn of_two_commands_at_once_one_makes_its_array() {
    let served = Served::with_nodes("-l 5 --chunk 64K --journal-size 16M", 3, 5, 8);
    served.lab.ok("limit x --max 1M", &[]);
    let of = |node: usize| {
        spawn(&served.lab, &format!("grow x -n 4 --add {}", served.nodes[node].address))
    };
    let both = [of(3), of(4)].map(ended);
    let won = both.iter().position(|(well, _)| *well).expect("one of both has its way");
    let (well, said) = &both[1 - won];
    assert!(!well, "both have had their way");
    assert_eq!(said.lines().count(), 1, "{said}");
    let known =
        ["another command changes its shape", "reshape is under way", "are not connected yet"];
    assert!(known.iter().any(|reason| said.contains(reason)) && said.contains("; "), "{said}");
    in_the_middle(&served.lab, "it moves");
    assert_eq!(served.others(), 4, "and nothing else was made");
    assert_eq!(served.stores[4 - won].read_dir().expect("a store").filter(is_volume).count(), 0);
    served.lab.ok("limit x --max none", &[]);
    served.all_moved("x.2", 4);
    served.compare("all has moved");
}

pub(super) fn is_volume(entry: &std::io::Result<std::fs::DirEntry>) -> bool {
    entry.as_ref().is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with('x'))
}

#[test]
fn while_data_move_no_other_change_of_the_shape_begins() {
    let mut served = Served::with_nodes("-l 5 --chunk 64K --journal-size 16M", 3, 5, 8);
    let last = served.nodes.remove(4);
    served.grow();
    in_the_middle(&served.lab, "a window");
    let grow = format!("grow x -n 5 --add {}", last.address);
    for words in [&grow, &format!("{grow} --dry-run"), "grow x --size 16M", "grow x --size max"] {
        let said = served.lab.refused(1, words, &[], &[]);
        assert!(said.contains("reshape is under way") && said.contains("--watch"), "{said}");
    }
    served.lab.ok("grow x --pause", &[]);
    let said = served.lab.refused(1, &grow, &[], &[]);
    assert!(said.contains("reshape is under way"), "{said}");
    served.lab.ok("grow x --undo", &[]);
    let said = served.lab.refused(1, "grow x --undo", &[], &[]);
    assert!(said.contains("go back already"), "{said}");
    assert_eq!(served.others(), 4);
    served.lab.ok("grow x --resume", &[]);
    served.lab.ok("limit x --max none", &[]);
    served.all_moved("x", 3);
    served.compare("all is back");
    assert_eq!(served.stores[4].read_dir().expect("a store").filter(is_volume).count(), 0);
    // Of one that was refused nothing stands against another one.
    served.nodes.push(last);
    let last = &served.nodes[4].address;
    served.lab.ok(&format!("grow x -n 4 --add {last} --wait"), &[]);
    assert_eq!(detail(&served.lab, "x")["raid_devices"], 4);
    until("the volumes of before are removed", || served.others() == 4 && !served.has_old());
    served.compare("all has moved");
}
