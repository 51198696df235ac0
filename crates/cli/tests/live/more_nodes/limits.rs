//! Limits of a move: from its begin, and as often as they are set.

use std::time::Instant;

use serde_json::{Value, json};

use super::{Served, in_the_middle};
use crate::support::nodes::{detail, members, server};
use crate::support::until;

/// A piece of a MiB of the array, half of which is of each member, takes eight seconds.
const SLOWLY: &str = "64K";
const PIECE_SECONDS: u64 = 8;

impl Served {
    /// The maximum in force.
    fn max(&self) -> Value {
        let limits = self.lab.ok("limit x --json", &[]);
        let limits: Value = serde_json::from_slice(&limits).expect("JSON");
        limits["max_bytes_per_s"].clone()
    }

    fn moved_mib(&self) -> u64 {
        detail(&self.lab, "x")["sync"]["done_bytes"].as_u64().expect("a number") >> 20
    }
}

#[test]
fn each_limit_holds_at_once_and_for_the_next_client_too() {
    let mut served = Served::with_nodes("-l 5 --chunk 64K --journal-size 16M", 3, 4, 16);
    served.lab.ok(&format!("limit x --max {SLOWLY}"), &[]);
    let begun = Instant::now();
    let last = &served.nodes[3].address;
    served.lab.ok(&format!("grow x --raid-devices 4 --add {last}"), &[]);
    in_the_middle(&served.lab, "a piece");
    for _ in 0..5 {
        served.lab.ok("limit x --max 65K", &[]);
        served.lab.ok(&format!("limit x --max {SLOWLY}"), &[]);
        served.lab.ok("grow x --pause", &[]);
        served.lab.ok("grow x --resume", &[]);
    }
    // One at the begin, and one that may be under way.
    let most = |clients: u64| clients * 2 + begun.elapsed().as_secs() / PIECE_SECONDS;
    let moved = served.moved_mib();
    assert!(moved <= most(1), "{moved} MiB have moved");

    served.server.kill().and_then(|()| served.server.wait()).expect("an end");
    let all = members(&served.nodes, "");
    let said = served.lab.refused(2, &format!("assemble x{all} --min 2M --max 1M"), &[], &[]);
    assert!(said.contains("--min 2M is more than --max 1M"), "{said}");
    served.server = server(&served.lab, &format!("{all} --max {SLOWLY}"));
    assert_eq!(served.max(), json!(64 << 10));
    let before = moved;
    until("another piece", || served.moved_mib() > before);
    let moved = served.moved_mib();
    assert!(moved <= most(2), "{moved} MiB have moved");
    assert_eq!(served.action(), "reshape");

    served.lab.ok("limit x --max none", &[]);
    assert_eq!(served.max(), Value::Null);
    served.all_moved("x.2", 4);
    served.compare("all has moved");
}
