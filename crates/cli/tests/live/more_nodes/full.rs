//! Stores without room, at the begin of a move and in the middle of it.

use super::writer::Writer;
use super::{Served, in_the_middle};
use crate::room::Stores;
use crate::support::nodes::{detail, names};
use crate::support::{Lab, skip, until};

/// Room of each store: for two volumes, and not for three.
const MIB: u32 = 56;

#[test]
fn without_room_nothing_is_made_and_in_the_middle_all_waits() {
    let lab = Lab::new();
    let Some(stores) = Stores::mount(&lab, 4, MIB) else {
        return skip(
            "without_room_nothing_is_made_and_in_the_middle_all_waits",
            "tmpfs cannot be mounted",
        );
    };
    let mut served = Served::in_lab(lab, "-l 5 --chunk 64K --journal-size 16M", 3, 4, 8);
    let grow = format!("grow x -n 4 --add {}", served.nodes[3].address);
    // One that has a volume, and the new one.
    for (number, ballast_mib) in [(2, 20), (3, 40)] {
        let store = &served.stores[number];
        Stores::fill_one(store, ballast_mib);
        let said = served.lab.refused(1, &grow, &[], &[]);
        let node = &served.nodes[number].address;
        assert!(said.contains(node.as_str()) && said.contains("needs room"), "{said}");
        assert!(said.contains("make room"), "{said}");
        let made = served.stores.iter().any(|store| names(store).any(|name| name == "x.2"));
        assert!(!made, "a volume was made");
        Stores::make_room_in(store);
    }
    let writer = Writer::begin(&served.lab, served.content.len(), 0);
    served.grow();
    in_the_middle(&served.lab, "a window");
    stores.fill();
    until("all waits for room", || {
        let waiting = detail(&served.lab, "x")["waiting"].clone();
        waiting["reason"].to_string().contains("room")
    });
    // Who was left out for a moment may be given what it missed first.
    assert_ne!(served.action(), "idle", "it is not over");
    stores.make_room();
    until("it goes on", || detail(&served.lab, "x")["waiting"].is_null());
    writer.until_round();
    served.lab.ok("limit x --max none", &[]);
    served.all_moved("x.2", 4);
    writer.end(&mut served.content);
    served.compare("all has moved");
}
