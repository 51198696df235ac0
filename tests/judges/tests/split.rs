//! Two halves of a mirror, each run alone by a real md kernel: mdadm and Braid say the same of the
//! older one, and it comes back by a full recovery.

use crate::braid_to_md::{available, members};
use crate::handoff::{Left, to_md_and_back};
use crate::served::Served;
use crate::support::{self, Run, guest, skip};
use braid_judges::Content;

/// Each half writes elsewhere; the first one is started once more.
const APART: &str = r#"
    attach m0.img m1.img
    md --create /dev/md0 --run -l1 -n2 --bitmap=internal --assume-clean "${LOOPS[@]}"
    "$PATTERN" write /dev/md0 1 || fail "the first write"
    idle md0
    md --stop /dev/md0
    alone() {
        md --assemble --run /dev/md0 "$1"
        "$PATTERN" write /dev/md0 "$2" "$3" 65536 || fail "a write to one half"
        md --stop /dev/md0
    }
    alone "${LOOPS[0]}" 2 4194304
    alone "${LOOPS[0]}" 3 6291456
    alone "${LOOPS[1]}" 4 8388608
    mdadm --assemble --run /dev/md0 "${LOOPS[@]}" 2>&1
    mdadm --stop /dev/md0
    detach
"#;

#[test]
fn a_half_that_ran_alone_comes_back_by_a_full_recovery() {
    let test = "a_half_that_ran_alone_comes_back_by_a_full_recovery";
    if let Err(reason) = available() {
        return skip(test, &reason);
    }
    let members = members("split", 2, 32 << 20);
    let directory = members[0].parent().expect("a directory").display();
    let script = format!("PATTERN={}\ncd {directory}\n{APART}", env!("CARGO_BIN_EXE_pattern"));
    let run = guest::run(test, &script).expect_success("the halves run alone");
    // mdadm: "ignoring ... as it reports ... as failed".
    assert!(run.stdout.contains("as failed"), "{run}");

    let mut explain = support::braid();
    let run = Run::of(explain.args(["assemble", "--rename", "split", "--explain"]).args(&members));
    assert!(run.stdout.contains("m1.img: split from"), "{run}");

    let served = Served::start("split", &members, &[]);
    let content = Content::of(1).then(2, 4 << 20, 65536).then(3, 6 << 20, 65536);
    served.expect(&content, "the newer half");
    let before = support::fingerprint(&members[1]);
    let run = Run::of(served.braid("re-add").arg(&members[1])).expect_status(1, "re-add");
    assert!(run.stderr.contains("split from the array"), "{run}");
    let run = Run::of(served.braid("add").arg(&members[1])).expect_status(1, "add");
    assert!(run.stderr.contains("nowhere else") && run.stderr.contains("--force"), "{run}");
    let after = support::fingerprint(&members[1]);
    assert_eq!(after, before, "what was refused was written to");
    Run::of(served.braid("add").arg(&members[1]).arg("--force")).expect_success("add --force");
    served.wait_until_whole();
    assert_eq!(served.check(), 0, "mismatches after the full recovery");
    served.expect(&content, "whole");
    let size_bytes = served.size_bytes();
    served.stop();
    let left = Left { name: "split".into(), members, content, size_bytes };
    to_md_and_back(test, vec![left]);
}
