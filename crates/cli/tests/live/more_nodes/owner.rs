//! Two machines that want another shape for an array at once: the client that has the array has its
//! way, and the other one's command makes nothing and removes nothing.

use rustix::process::{Pid, Signal, kill_process};

use super::at_once::{ended, is_volume, spawn};
use super::{Served, in_the_middle};
use crate::support::nodes::members;
use crate::support::{Lab, until};

/// The array is taken over, and grown, while a command on the first machine asks a node that does
/// not answer yet. `hangs`: so does the process that serves the array there.
fn the_second_machine_has_its_way(hangs: bool) {
    let mut served = Served::with_nodes("-l 5 --chunk 64K --journal-size 16M", 3, 5, 8);
    let old = members(&served.nodes[..3], "");
    let addresses = [3, 4].map(|node: usize| served.nodes[node].address.clone());
    let grow = |node: usize| format!("grow x -n 4 --add {}", addresses[node - 3]);
    served.nodes[3].signal(Signal::STOP);
    let asked = spawn(&served.lab, &grow(3));
    let lock = served.lab.path("run").join("x.shape");
    until("the command has begun", || lock.exists());
    let first = Pid::from_child(&served.server);
    if hangs {
        kill_process(first, Signal::STOP).expect("it runs");
    }
    let other = Lab::new();
    other.ok(&format!("assemble x{old} --take-over --export nbd:unix:x.sock"), &[]);
    other.ok("limit x --max 256K", &[]);
    other.ok(&grow(4), &[]);
    served.nodes[3].signal(Signal::CONT);
    kill_process(first, Signal::CONT).expect("nobody has waited for its end");
    let (well, said) = ended(asked);
    assert!(!well, "both have had their way");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("; ") && said.contains('x'), "{said}");
    assert_eq!(served.server.wait().expect("an end").code(), Some(1));
    let said = served.lab.refused(1, &grow(3), &[], &[]);
    assert!(said.contains("no array"), "{said}");
    in_the_middle(&other, "it moves");
    assert_eq!(served.others(), 4, "and nothing else was made");
    assert_eq!(served.stores[3].read_dir().expect("a store").filter(is_volume).count(), 0);
    // The nodes have their stores there.
    let _first = std::mem::replace(&mut served.lab, other);
    served.lab.ok("limit x --max none", &[]);
    served.all_moved("x.2", 4);
    served.compare("all has moved");
    served.lab.ok("stop x", &[]);
}

#[test]
fn a_command_of_the_machine_that_had_the_array_changes_nothing() {
    the_second_machine_has_its_way(false);
}

#[test]
fn nor_does_one_of_a_machine_that_has_not_heard_of_it() {
    the_second_machine_has_its_way(true);
}
