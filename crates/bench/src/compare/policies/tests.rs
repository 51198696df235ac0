//! What is told, of what fio might have said; `tests/live/policies.rs` runs it.

use serde_json::json;

use super::*;
use crate::folder::{self, Folder};
use crate::model::Note;
use crate::tool::fio;

#[test]
fn names_are_known_again_and_both_forms_keep_to_their_time() {
    for (options, minutes) in [(Options::quick(), 4), (Options::full(), 25)] {
        let policies = Policies(options);
        let groups = policies.groups();
        let takes: Duration = groups.iter().map(Group::takes).sum();
        assert!(takes < Duration::from_secs(minutes * 60), "{takes:?}");
        for name in groups.iter().flat_map(|group| &group.cases) {
            assert_eq!(Case::named(name).map(Case::name).as_ref(), Some(name));
        }
        let again: Options = serde_json::from_value(policies.options()).expect("options");
        assert_eq!(again, policies.0);
    }
}

/// Two rounds on a machine that is twice as fast in the second one.
#[test]
fn a_policy_costs_what_it_takes_beside_resync_in_the_same_round() {
    let place = tempfile::tempdir().expect("a directory");
    let folder = Folder::open(place.path()).expect("a folder");
    for (round, drift) in [(0, 1.0), (1, 2.0)] {
        for (case, rate) in [("resync on memory", 100.0), ("ppl on memory", 80.0)] {
            let side = |iops: f64| {
                json!({"io_bytes": 4096.0 * iops, "total_ios": iops, "iops": iops,
                    "lat_ns": {"percentile": {"50.000000": 1000}}})
            };
            let job = json!({"jobname": "x", "read": side(0.0), "write": side(rate * drift)});
            let mut note = Note::default();
            note.file(fio::OUTPUT, json!({ "jobs": [job] }).to_string());
            let job = Load::OneByOne.name();
            let place = folder::Place { comparison: "policies", case, job, round };
            folder.keep(place, &note, 1.0, Some(0.01)).expect("kept");
        }
    }
    let chapter = Policies(Options::full()).chapter(&folder.found("policies"));
    let costs = &chapter.tables[0];
    let row = costs.rows.iter().find(|row| row[0] == "write 4K x1").expect("a row");
    assert_eq!(row[1..], ["-", "1.25 (1.25-1.25)", "-", "-"]);
    assert_eq!(costs.rows[0][1..], ["-", "-", "-", "-"]);
    assert_eq!(chapter.plots.len(), 1, "nothing was measured on files");
    let said = "A request takes by ppl on memory that of resync: 1.25 times (write 4K x1).";
    assert_eq!(chapter.says, [said]);
}
