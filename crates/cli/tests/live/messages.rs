//! Ids of what is not well, and the sections that explain them.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::Lab;

/// Returns members of `home`, a RAID 5 that runs, the second of which has failed.
fn degraded(lab: &Lab) -> Vec<PathBuf> {
    let members = lab.members("m", 3, 16);
    lab.ok("create home -l 5 -n 3 --assume-clean", &members);
    lab.ok("assemble home", &members);
    lab.ok("fail home", &members[1..2]);
    members
}

#[test]
fn a_running_array_names_the_sections_about_it() {
    let lab = Lab::new();
    let members = degraded(&lab);
    let text = lab.ok_text("status home", &[]);
    assert!(text.contains("NEW-DEVICE\n  see: braid help BRAID-104\n"), "{text}");
    let text = lab.ok_text("detail home", &[]);
    assert!(text.ends_with("               See : braid help BRAID-104\n"), "{text}");
    let ids = || {
        let status: Value = serde_json::from_slice(&lab.ok("status home --json", &[])).unwrap();
        status["ids"].clone()
    };
    assert_eq!(ids(), json!(["BRAID-104"]));
    let section = lab.ok_text("help BRAID-104", &[]);
    assert!(section.starts_with("BRAID-104: a member failed\n"), "{section}");
    assert_eq!(lab.ok_text("braid-104", &[]), section);
    lab.refused(2, "help BRAID-999", &[], &[]);
    lab.ok("remove home", &members[1..2]);
    assert_eq!(ids(), json!(["BRAID-106"]));
    let spare = lab.members("s", 1, 16);
    lab.ok("add home", &spare);
    lab.ok("status home --watch", &[]);
    assert_eq!(ids(), json!([]));
    assert!(!lab.ok_text("status home", &[]).contains("see: "));
}

#[test]
fn an_array_that_does_not_start_names_the_section_about_that() {
    let lab = Lab::new();
    let members = degraded(&lab);
    lab.ok("stop home", &[]);
    let explained = |members: &[PathBuf]| {
        let text = lab.told("assemble --explain", members);
        let json = lab.told("assemble --explain --json", members);
        let json: Value = serde_json::from_str(&json).unwrap();
        (text, json["arrays"][0].clone())
    };
    let (text, array) = explained(&members);
    assert!(text.contains("\nsee: braid help BRAID-304\nnext: "), "{text}");
    let id = |at: usize| array["members"][at]["id"].clone();
    assert_eq!((id(0), id(1), &array["id"]), (json!(null), json!("BRAID-304"), &json!(null)));

    let (text, array) = explained(&members[..1]);
    assert!(text.contains("\nsee: braid help BRAID-301\nnext: "), "{text}");
    assert_eq!(array["id"], "BRAID-301");
    let line = lab.refused(1, "assemble home", &members[..1], &members);
    assert!(line.contains(" (BRAID-301); find the missing members"), "{line}");
}
