//! Two arrays between which data move, and that are only read.

use std::path::PathBuf;

use super::{Served, in_the_middle};
use crate::support::export::{ask, connect};
use crate::support::fingerprint;
use crate::support::nodes::{detail, members, names, server, size};

#[test]
fn what_has_moved_in_part_is_read_from_where_it_is() {
    let mut served = Served::with_nodes("-l 5 --chunk 64K --journal-size 16M", 3, 4, 8);
    served.grow();
    in_the_middle(&served.lab, "a window");
    served.lab.ok("stop x", &[]);
    served.server.wait().expect("an end");
    let volumes = |store: &PathBuf| {
        let volumes = names(store).filter(|name| name == "x" || name == "x.2");
        volumes.map(|name| store.join(name)).collect::<Vec<_>>()
    };
    let volumes: Vec<PathBuf> = served.stores.iter().flat_map(volumes).collect();
    assert_eq!(volumes.len(), 7, "three old ones and four new ones");
    let fingerprints = || volumes.iter().map(|volume| fingerprint(volume)).collect::<Vec<_>>();
    let before = fingerprints();

    let all = members(&served.nodes, "");
    let cat = |words: &str| served.lab.ok(&format!("cat x{words}"), &[]);
    assert!(cat(&all) == served.content);
    let middle = 4095..(5 << 20) + 1;
    let range = format!("{all} --offset {} --length {}", middle.start, middle.len());
    assert!(cat(&range) == served.content[middle]);
    for missing in 0..4 {
        let some: String = (0..4)
            .filter(|node| *node != missing)
            .map(|node| members(&served.nodes[node..=node], ""))
            .collect();
        assert!(cat(&some) == served.content, "without node {missing}");
    }
    let one = members(&served.nodes[..1], "");
    let said = served.lab.refused(1, &format!("cat x{one}"), &[], &volumes);
    assert!(
        said.contains("enough") || said.contains("missing") || said.contains("members"),
        "{said}"
    );

    served.server = server(&served.lab, &format!("{all} --readonly"));
    served.compare("read-only");
    let sync = detail(&served.lab, "x")["sync"].clone();
    assert_eq!(sync["action"], "idle", "{sync}");
    assert!(sync["position_bytes"].as_u64() > Some(0), "{sync}");
    assert_eq!(sync["to"]["raid_devices"], 4, "{sync}");
    let mut export = connect(&served.lab.path("x.sock"), "x", size(&served.lab));
    let write = std::thread::spawn(move || ask(&mut export, 1, 0, &[1; 4096]));
    assert!(!matches!(write.join(), Ok(Ok(()))), "it was written to");
    let said = served.lab.refused(1, "grow x --undo", &[], &volumes);
    assert!(said.contains("read-only"), "{said}");
    served.compare("still read-only");
    served.lab.ok("stop x", &[]);
    served.server.wait().expect("an end");
    assert!(before == fingerprints(), "a volume was written to");

    served.server = server(&served.lab, &all);
    served.all_moved("x.2", 4);
    served.compare("all has moved");
}
