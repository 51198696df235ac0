//! Data move to another shape while other programs take the array over.

use super::{User, another, status, upgraded, use_it};
use crate::support::export::connect;
use crate::support::{Lab, until};

#[test]
fn a_reshape_goes_on_in_the_next_program() {
    let lab = Lab::new();
    let members = lab.members("m", 4, 32);
    lab.ok("create home -l 5 -n 3 --chunk 64K --bitmap internal --assume-clean", &members[..3]);
    lab.ok("assemble home --export nbd:unix:home.sock", &members[..3]);
    let bytes = status(&lab)["size_bytes"].as_u64().unwrap() as usize;
    let client = connect(&lab.path("home.sock"), "home", bytes);
    let user = User::start(move |go_on, done| use_it(client, go_on, done));
    lab.ok("limit home --min 2M --max 2M", &[]);
    lab.ok("grow home --raid-devices 4 --add m3", &[]);
    let moved = || {
        let sync = &status(&lab)["sync"];
        assert_eq!(sync["action"], "reshape", "{sync}");
        sync["position_bytes"].as_u64().expect("a position")
    };
    let programs = [another(&lab, "braid-1"), another(&lab, "braid-2")];
    for round in 0..4 {
        let before = moved();
        until("more has moved", || moved() > before);
        upgraded(&lab, &programs[round % 2]);
        assert!(moved() > before, "round {round}");
        user.goes_on(1);
    }
    lab.ok("limit home --max none", &[]);
    until("all has moved", || status(&lab)["sync"]["action"] == "idle");
    user.goes_on(1);
    user.end();
    assert!(status(&lab)["size_bytes"].as_u64() > Some(bytes as u64));
    assert_eq!(status(&lab)["raid_devices"], 4);
    lab.ok("check home --wait", &[]);
    lab.ok("stop home", &[]);
}
