//! Partial parity logs that are off while the array changes.

use super::*;

const SHAPE: &str = "-l 5 --chunk 64K -k ppl";
const WITHOUT: &str = "partial parity logs are off until";

/// The policy as `detail` has it, and as the superblock of each member has.
fn policies(x: &Served) -> Vec<String> {
    let detail = x.lab.ok("detail x --json", &[]);
    let detail: Value = serde_json::from_slice(&detail).expect("JSON");
    let examined = x.lab.ok("examine --json", &x.members);
    let examined: Value = serde_json::from_slice(&examined).expect("JSON");
    let members = examined.as_array().expect("members").iter();
    let all = members.chain([&detail]).map(|one| one["consistency_policy"].to_string());
    all.collect()
}

fn has(x: &Served, policy: &str) -> bool {
    policies(x).iter().all(|one| *one == format!("\"{policy}\""))
}

/// Begins to move data to one disk more, slowly, and waits until a part of them has moved.
fn begin(x: &mut Served) {
    let device = x.device("d", 16);
    x.lab.ok("limit x --max 4M", &[]);
    let words = format!("grow x --raid-devices 4 --suspend-policy --add {}", device.display());
    x.lab.ok(&words, &[]);
    x.members.push(device);
    let done = |x: &Served| x.status()["sync"]["done_bytes"].as_u64();
    until("a part has moved", || done(x) > Some(2 << 20));
}

#[test]
fn logs_come_back_when_the_array_has_changed() {
    let mut x = Served::new(SHAPE, 3);
    let device = x.device("d", 16);
    let line = x.lab.refused(1, "grow x --raid-devices 4 --add d", &[], &x.members);
    assert!(line.contains("grow it with --suspend-policy"), "{line}");
    assert!(line.contains("the write hole is open meanwhile"), "{line}");
    let said = x.grow("--raid-devices 4 --suspend-policy", &[device]);
    let off = "  partial parity logs are off until it is over: the write hole is open meanwhile\n";
    assert!(said.contains(off), "{said}");
    assert!(has(&x, "ppl"), "--wait waits for the logs: {:?}", policies(&x));
    for words in ["--chunk 128K", "--size 8M --array-size 1M", "--size max"] {
        x.grow(&format!("{words} --suspend-policy"), &[]);
        assert!(has(&x, "ppl"), "{words}: {:?}", policies(&x));
    }
    x.content.truncate(20 << 20);
    x.is(("raid5", "left-symmetric", 4));
    let line = x.lab.refused(1, "grow x --level 6 --suspend-policy", &[], &x.members);
    assert!(line.contains("a raid6 cannot have the partial parity logs"), "{line}");
}

#[test]
fn logs_that_are_off_are_shown_and_survive_a_kill() {
    let mut x = Served::new(SHAPE, 3);
    begin(&mut x);
    assert!(has(&x, "resync"), "{:?}", policies(&x));
    let text = x.lab.ok_text("status x", &[]);
    assert!(
        text.contains(&format!("{WITHOUT} the reshape is over: the write hole is open")),
        "{text}"
    );
    kill(&x);
    x.assemble();
    x.compare("while data move again");
    assert!(x.lab.ok_text("status x", &[]).contains(WITHOUT));
    until("logs are on again", || has(&x, "ppl"));
    x.is(("raid5", "left-symmetric", 4));
    assert!(has(&x, "ppl"), "{:?}", policies(&x));
}

#[test]
fn logs_come_back_when_data_have_moved_back() {
    let mut x = Served::new(SHAPE, 3);
    begin(&mut x);
    let said = x.lab.ok_text("grow x --undo", &[]);
    assert!(said.contains(WITHOUT), "{said}");
    until("logs are on again", || has(&x, "ppl"));
    x.is(("raid5", "left-symmetric", 3));
}
