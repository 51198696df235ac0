//! The file of arrays and nodes: starts and stops by it, and messages about mistakes in it.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value, json};

use crate::support::{Lab, until};

/// Runs it with the file of this lab.
fn with_file(lab: &Lab, words: &str) -> Output {
    let mut command = lab.braid();
    command.env("BRAID_CONFIG", lab.path("arrays.toml")).args(words.split_whitespace());
    command.output().unwrap()
}

fn ok(lab: &Lab, words: &str) -> (String, String) {
    let Output { status, stdout, stderr } = with_file(lab, words);
    let stderr = String::from_utf8(stderr).unwrap();
    assert!(status.success(), "braid {words}: {stderr}");
    (String::from_utf8(stdout).unwrap(), stderr)
}

/// The lines that say why not.
fn refused(lab: &Lab, words: &str) -> String {
    let Output { status, stderr, .. } = with_file(lab, words);
    let stderr = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(1), "braid {words}: {stderr}");
    assert!(stderr.lines().all(|line| line.contains("; ")), "{stderr}");
    stderr
}

fn write(lab: &Lab, text: &str) {
    std::fs::write(lab.path("arrays.toml"), text).unwrap();
}

fn mirror(lab: &Lab, name: &str) -> Vec<PathBuf> {
    let members = lab.members(name, 2, 8);
    lab.ok(&format!("create {name} -l 1 -n 2 --assume-clean"), &members);
    members
}

fn listed(paths: &[PathBuf]) -> String {
    let quoted = paths.iter().map(|path| format!("\"{}\"", path.display()));
    format!("[{}]", quoted.collect::<Vec<_>>().join(", "))
}

fn status(lab: &Lab, name: &str) -> Value {
    serde_json::from_slice(&lab.ok(&format!("status {name} --json"), &[])).unwrap()
}

#[test]
fn what_the_file_says_is_started_and_stopped_again_and_again() {
    let lab = Lab::new();
    let members = mirror(&lab, "a");
    let socket = lab.path("a.nbd");
    // None of those that connections get.
    let port = 20000 + std::process::id() % 12000;
    write(
        &lab,
        &format!(
            "[array.a]\nmembers = {}\nexports = \"nbd:unix:{},mode=0660\"\nmin = \"2M\"\n\
             max = \"8M@00:00-12:00=9M,12:00-24:00=9M\"\n\
             [node.n]\nlisten = \"127.0.0.1:{port}\"\nmemory = true\nring = \"1M\"\n",
            listed(&members),
            socket.display()
        ),
    );
    assert!(ok(&lab, "config check").0.contains("1 array, 1 node, all well"));
    assert!(ok(&lab, "up").0.contains("a: started\n"));
    let sync = serde_json::from_slice::<Value>(&lab.ok("sync a --json", &[])).unwrap();
    assert_eq!(
        (&sync["min_bytes_per_s"], &sync["max_bytes_per_s"]),
        (&(2 << 20).into(), &(9 << 20).into())
    );
    assert_eq!(sync["max"], "8M@00:00-12:00=9M,12:00-24:00=9M");
    assert_eq!(status(&lab, "a")["exports"][0], format!("nbd:unix:{},mode=0660", socket.display()));
    lab.ok(&format!("nodes 127.0.0.1:{port}"), &[]);
    let pid = status(&lab, "a")["pid"].clone();

    // What runs is left as it is; what is set now does not last, and that is said.
    let (said, _) = ok(&lab, "up");
    assert!(said.contains("a: runs already") && said.contains("n: runs already"), "{said}");
    // A service would wait for an array of its own.
    for name in ["a", "n"] {
        let line = lab.refused(1, &format!("up {name} --foreground"), &[], &[]);
        assert!(
            line.contains(&format!(
                "runs already; to start it as a service, stop it first: braid down {name}"
            )),
            "{line}"
        );
    }
    assert_eq!(status(&lab, "a")["pid"], pid);
    let (_, said) = ok(&lab, "sync a --max 5M");
    assert!(said.contains("write max = \"5M\" below [array.a] in"), "{said}");
    assert!(ok(&lab, "sync a").0.contains("min 2M, max 5M"));

    assert!(ok(&lab, "down --all").0.contains("a: stopped\n"));
    assert_eq!(lab.run("detail a --test", &[]).status.code(), Some(4));
    until("the node is gone", || !lab.path(&format!("run/node-127.0.0.1:{port}.pid")).exists());
    let (said, _) = ok(&lab, "down a n");
    assert!(said.contains("a: does not run") && said.contains("n: does not run"), "{said}");
    ok(&lab, "up a");
    assert!(ok(&lab, "sync a").0.contains("max 9M"), "not as the file says");
}

#[test]
fn an_array_waits_for_its_members_and_then_does_without() {
    let lab = Lab::new();
    let members = mirror(&lab, "a");
    let away = lab.path("away");
    std::fs::rename(&members[1], &away).unwrap();
    let text = |more: &str| format!("[array.a]\nmembers = {}\n{more}", listed(&members));
    write(&lab, &text("wait = 0\ndegraded = \"refuse\""));
    let said = refused(&lab, "up a");
    assert!(said.contains("it must not start without"), "{said}");
    assert!(said.contains("a1") && said.contains("--run"), "{said}");

    // It comes while it is waited for.
    write(&lab, &text("wait = 60"));
    let mut up = lab.braid();
    up.env("BRAID_CONFIG", lab.path("arrays.toml")).args(["up", "a"]);
    let mut up = up.spawn().unwrap();
    std::fs::rename(&away, &members[1]).unwrap();
    assert!(up.wait().unwrap().success());
    assert_eq!(lab.run("detail a --test", &[]).status.code(), Some(0));
    ok(&lab, "down a");

    std::fs::rename(&members[1], &away).unwrap();
    write(&lab, &text("wait = 0"));
    let (_, said) = ok(&lab, "up a");
    assert!(said.contains(&format!("missing after 0 s: {}", members[1].display())), "{said}");
    assert_eq!(lab.run("detail a --test", &[]).status.code(), Some(1));
}

#[test]
fn an_array_is_known_by_its_uuid_and_a_mistake_stops_its_own_entry_alone() {
    let lab = Lab::new();
    let members = mirror(&lab, "a");
    let uuid = status_of(&lab, &members[0]);
    let file = lab.path("arrays.toml");
    let text = |text: &str| text.replace("MEMBERS", &listed(&members)).replace("UUID", &uuid);
    // One that is not called as its entry is known by its UUID.
    write(&lab, &text("[array.x]\nmembers = MEMBERS\nuuid = \"UUID\""));
    ok(&lab, "config check");
    ok(&lab, "up x");
    assert_eq!(status(&lab, "x")["name"], "x");
    ok(&lab, "down x");
    // What is wrong with one does not stop another.
    write(&lab, &text("[array.x]\nnothing = 1\n[array.a]\nmembers = MEMBERS"));
    ok(&lab, "up a");
    assert!(refused(&lab, "up x").contains(":2: array.x.nothing: there is no such key"));
    assert!(refused(&lab, "up aa").contains("did you mean a? "));
    assert!(refused(&lab, "down aa").contains("did you mean a? "));
    std::fs::remove_file(file).unwrap();
    assert!(refused(&lab, "up a").contains("no such file"), "a file that is not there");
}

fn status_of(lab: &Lab, member: &Path) -> String {
    let examined = lab.ok_text("examine --export", &[member.to_owned()]);
    let line = examined.lines().find_map(|line| line.strip_prefix("MD_UUID="));
    line.unwrap().to_owned()
}

#[test]
fn entries_of_what_runs_are_written() {
    let lab = Lab::new();
    let members = mirror(&lab, "a");
    let socket = lab.path("a,b.nbd");
    let export = socket.display().to_string().replace(',', ",,");
    lab.ok(&format!("assemble a --export nbd:unix:{export}"), &members);
    lab.ok("sync a --max 7M@01:00-02:00=none", &[]);
    let text = lab.ok_text("detail --scan --toml", &[]);
    assert!(text.starts_with("[array.a]\nuuid = \""), "{text}");
    assert!(text.contains("max = \"7M@01:00-02:00=none\"\n"), "{text}");
    let (own, _) = text.split_once("\n\n").unwrap();
    lab.ok("stop a", &[]);
    write(&lab, own);
    ok(&lab, "config check");
    ok(&lab, "up");
    assert_eq!(status(&lab, "a")["exports"][0], format!("nbd:unix:{export}"));
}

/// `a` runs, of these; `more` words of its creation.
fn runs(lab: &Lab, members: &[PathBuf], more: &str) {
    lab.ok(&format!("create a -l 1 --assume-clean {more}"), members);
    write(lab, &format!("[array.a]\nmembers = {}\nwait = 0", listed(&members[..2])));
    ok(lab, "up");
}

fn join(lab: &Lab, device: &Path) -> String {
    ok(lab, &format!("config join {}", device.display())).0
}

fn states(lab: &Lab) -> Vec<String> {
    let status = status(lab, "a");
    let members = status["members"].as_array().expect("members").iter();
    members.map(|member| member["state"][0].as_str().expect("a state").to_owned()).collect()
}

#[test]
fn a_spare_that_appears_is_added_to_the_array_that_runs() {
    let lab = Lab::new();
    let members = lab.members("m", 3, 8);
    runs(&lab, &members, "-n 2 --spare-devices 1");
    assert_eq!(states(&lab), ["in-sync", "in-sync"]);
    let said = join(&lab, &members[2]);
    assert_eq!(said, format!("a: {}: taken as a spare\n", members[2].display()));
    assert_eq!(states(&lab), ["in-sync", "in-sync", "spare"]);
    // Nothing is done about members, those of other arrays and what is none.
    let others = mirror(&lab, "b");
    let blank = lab.members("blank", 1, 8);
    for device in members.iter().chain(&others).chain(&blank) {
        assert_eq!(join(&lab, device), "");
    }
    assert_eq!(states(&lab), ["in-sync", "in-sync", "spare"]);
    // It takes the place of a member that is lost.
    lab.ok("fail a", &members[..1]);
    until("a rebuilt member", || lab.run("detail a --test", &[]).status.success());
}

#[test]
fn a_member_that_was_away_is_taken_back_under_whatever_name() {
    let lab = Lab::new();
    let members = lab.members("m", 2, 8);
    let away = lab.path("away");
    lab.ok("create a -l 1 -n 2 --assume-clean --bitmap internal", &members);
    std::fs::rename(&members[1], &away).unwrap();
    write(&lab, &format!("[array.a]\nmembers = {}\nwait = 0", listed(&members)));
    ok(&lab, "up");
    assert_eq!(join(&lab, &away), format!("a: {}: taken back\n", away.display()));
    until("a whole array", || lab.run("detail a --test", &[]).status.success());
    // It is unplugged, and the array has not noticed yet. A copy is what it was in one moment.
    until("nothing to be written", || {
        let examined = lab.ok("examine --json", std::slice::from_ref(&away));
        let examined: Value = serde_json::from_slice(&examined).expect("JSON");
        let status = status(&lab, "a");
        status["state"] == json!(["clean"]) && examined[0]["events"] == status["events"]
    });
    let again = lab.path("again");
    std::fs::copy(&away, &again).unwrap();
    std::fs::remove_file(&away).unwrap();
    assert_eq!(join(&lab, &again), format!("a: {}: taken back\n", again.display()));
    until("a whole array", || lab.run("detail a --test", &[]).status.success());
    let of = |number: usize| status(&lab, "a")["members"][number]["device"].clone();
    let devices = [of(0), of(1)].map(|device| device.as_str().unwrap().to_owned());
    assert!(devices.contains(&again.canonicalize().unwrap().display().to_string()), "{devices:?}");
    assert_eq!(states(&lab), ["in-sync", "in-sync"]);
}

#[test]
fn a_member_that_missed_what_nobody_knows_is_not_taken_back() {
    let lab = Lab::new();
    let members = lab.members("m", 2, 8);
    let away = lab.path("away");
    lab.ok("create a -l 1 -n 2 --assume-clean --bitmap none", &members);
    std::fs::rename(&members[1], &away).unwrap();
    write(&lab, &format!("[array.a]\nmembers = {}\nwait = 0", listed(&members)));
    ok(&lab, "up");
    let why = refused(&lab, &format!("config join {}", away.display()));
    assert!(why.contains("what changed is not known"), "{why}");
    assert_eq!(status(&lab, "a")["members"][0]["device"], json!(members[0]));
    let in_sync = states(&lab).into_iter().filter(|state| state == "in-sync");
    assert_eq!(in_sync.count(), 1);
}

/// A device that appears while nothing of its array runs, and nothing is to start that.
#[test]
fn what_belongs_to_an_array_that_does_not_run_is_left_alone() {
    let lab = Lab::new();
    let members = mirror(&lab, "a");
    write(&lab, &format!("[array.a]\nmembers = {}\nboot = false", listed(&members)));
    assert_eq!(join(&lab, &members[0]), "");
    assert!(lab.run("status a", &[]).status.code() != Some(0));
}

#[test]
fn a_device_is_told_to_belong_to_an_array_of_the_file() {
    let lab = Lab::new();
    let members = mirror(&lab, "a");
    let others = mirror(&lab, "b");
    write(&lab, "[array.a]\nscan = true\n");
    let probe = |path: &Path| ok(&lab, &format!("config probe {}", path.display())).0;
    let said = probe(&members[0]);
    assert!(
        said.starts_with("BRAID_ARRAY=a\nBRAID_UUID=") && said.contains("BRAID_BOOT=1"),
        "{said}"
    );
    assert_eq!(probe(&others[0]), "");
    write(&lab, &format!("[array.other]\nmembers = {}\nboot = false", listed(&others)));
    assert!(!probe(&others[1]).contains("BOOT"));
    assert!(probe(&others[1]).starts_with("BRAID_ARRAY=other\n"));
}
