//! The lab of network namespaces: as root, what goes over a shaped link takes its time and is
//! counted, and nothing stays when it is taken down.

use std::path::Path;
use std::time::Duration;

use braid_bench::compare::cluster::line;
use braid_bench::rig::lab::{self, Blueprint};
use braid_bench::rig::place::Site;
use braid_bench::rig::process::until;
use braid_bench::rig::spaces::{self, SpaceHost};
use braid_bench::tool::Tool;

use crate::spaces::can_be_made;
use crate::support::{Lab, program, skip};

#[test]
fn links_are_shaped_and_counted_and_nothing_stays() {
    if !can_be_made(&["ip"]) {
        return skip("links_are_shaped", "it needs root and iproute2");
    }
    let name = format!("test{}", std::process::id());
    let link_bit_s = Some(40_000_000);
    let blueprint = Blueprint { name: name.clone(), clients: 1, nodes: 2, link_bit_s };
    let up = lab::Lab::up(&blueprint).expect("a lab");
    let again = lab::Lab::up(&blueprint).expect_err("it is up already");
    assert!(again.why.reason.contains("up already"), "{again:?}");
    let site = Site { braid: Tool::at("braid", program()), lab: Some(up) };
    // 40 Mbit/s less headers are 4.8 MB/s; more can come only out of the burst.
    let rate = line::measure(&site, 1.0).expect("a line");
    assert!((1.0e6..5.5e6).contains(&rate), "{rate} bytes a second");
    let carried = Lab::new().ok_text(&format!("bench lab bytes {name}"), &[]);
    let bytes = |host: &str, word: usize| {
        let line = carried.lines().find(|line| line.split(' ').next() == Some(host));
        let word = line.and_then(|line| line.split(' ').nth(word)).expect("a number");
        word.parse::<f64>().expect("a number")
    };
    assert!(bytes("c0", 2) > rate && bytes("n0", 4) > rate, "{carried}");
    assert!(bytes("n1", 4) < 10_000.0, "the other node hears nothing of it: {carried}");

    // What runs inside ends with the lab.
    let mut sleep = site.command(SpaceHost::Node(0), "sleep");
    let mut sleeper = sleep.arg("600").spawn().expect("it runs");
    let is_inside = || !spaces::processes(&name, SpaceHost::Node(0)).is_empty();
    assert!(until(Duration::from_secs(60), is_inside), "nothing runs inside");
    drop(site);
    assert!(!sleeper.wait().expect("it ends").success());
    assert!(!Path::new("/run/netns").join(format!("{name}-sw")).exists());
}

#[test]
fn labs_that_cannot_be_are_refused() {
    let lab = Lab::new();
    for (words, expected) in [
        ("bench lab up a/b", "not a name"),
        ("bench lab up toomany --nodes 65", "hosts"),
        ("bench lab bytes nosuchlab", "bring it up"),
    ] {
        let line = lab.refused(1, words, &[], &[]);
        assert!(line.contains(expected), "{words}: {line}");
    }
    let line = lab.refused(2, "bench lab up few --link 10", &[], &[]);
    assert!(line.contains("not a rate"), "{line}");
}
