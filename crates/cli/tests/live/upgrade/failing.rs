//! Programs that cannot take over: the one before serves on, wherever they fail.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::Value;

use super::{program_of, read, status, upgraded, writing_back};
use crate::support::export::{ask, connect, noise};
use crate::support::nodes::{in_memory, members as on_nodes};
use crate::support::{Lab, install_script, program};

#[test]
fn what_cannot_take_over_gives_back() {
    let lab = Lab::new();
    let members = lab.members("m", 2, 32);
    lab.ok("create home --level 1 --raid-devices 2 --assume-clean", &members);
    lab.ok("assemble home --export nbd:unix:home.sock", &members);
    let before = status(&lab);
    let bytes = before["size_bytes"].as_u64().unwrap() as usize;
    let mut client = connect(&lab.path("home.sock"), "home", bytes);
    ask(&mut client, 1, 4096, &[7; 4096]).unwrap();
    // One that begins and does not understand what it is told, as an older one might not.
    let odd = lab.path("odd");
    install_script(&taking_over(r#"exec braid "$@" --of-the-future"#), &odd);
    let answer = tell(&lab, &upgrade_to(&odd));
    assert_eq!(answer["ok"]["upgraded"]["returned"], true, "{answer}");
    let pid = before["pid"].as_u64().unwrap();
    assert_eq!(program_of(pid), program().canonicalize().unwrap());
    assert!(read(&mut client, 4096, 4096) == [7; 4096]);
    // One that takes no hand-over of this version is not begun at all.
    let verb = serde_json::json!({"version": 3, "verb": "upgrade", "program": odd, "takes": 0});
    let answer = tell(&lab, &verb);
    let reason = answer["error"]["reason"].as_str().unwrap();
    assert!(reason.contains("takes hand-overs up to version 0"), "{reason}");
    assert!(read(&mut client, 4096, 4096) == [7; 4096]);
    assert_eq!(status(&lab)["pid"], before["pid"]);
}

/// Says one line on the control socket, and hears one.
fn tell(lab: &Lab, verb: &Value) -> Value {
    let mut control = UnixStream::connect(lab.path("run/home.sock")).unwrap();
    writeln!(control, "{verb}").unwrap();
    let mut line = Vec::new();
    let mut byte = [0];
    while control.read(&mut byte).unwrap() == 1 && byte != *b"\n" {
        line.extend(byte);
    }
    serde_json::from_slice(&line).unwrap()
}

fn upgrade_to(program: &Path) -> Value {
    serde_json::json!({"version": 3, "verb": "upgrade", "program": program, "takes": 1})
}

/// A script that says its version as the program does, and takes over as these lines say.
fn taking_over(lines: &str) -> String {
    let program = program().display().to_string();
    let says = format!("[ \"$1\" = --version ] && exec {program} --version");
    let lines = lines.replace("exec braid", &format!("exec {program}"));
    format!("#!/bin/sh\n{says}\n{lines}\n")
}

/// Returns a script that runs once, and deletes itself.
fn gone_once_tried() -> String {
    let program = program().display().to_string();
    format!("#!/bin/sh\nrm \"$0\" && exec {program} \"$@\"\n")
}

/// Programs that cannot serve the array: name, script, and the word in the reason.
const FAILING: [(&str, &str, &str); 9] = [
    ("garbage", "echo braid 9", "is no program"),
    ("another program", "#!/bin/sh\nexit 0\n", "is a program, but not braid"),
    ("words that it does not know", r#"exec braid "$@" --of-the-future"#, ""),
    ("a member that it does not find", r#"exec braid "$@" /nowhere"#, ""),
    ("a control socket that it cannot make", r#"shift 2; exec braid --run-dir FILE "$@""#, ""),
    ("an export that it cannot open", r#"exec braid "$@" --export nbd:unix:/nowhere/x.sock"#, ""),
    ("a mount that it cannot make", r#"exec braid "$@" --export fuse:/nowhere"#, ""),
    ("nothing any more, once it was tried", r#"exec braid "$@""#, ""),
    // By then its engine runs.
    ("a log that it cannot open", r#"shift 2; exec braid --run-dir OTHER "$@""#, ""),
];

#[test]
fn wherever_another_program_fails_the_one_before_serves_on() {
    let lab = Lab::new();
    let members = lab.members("m", 2, 32);
    lab.ok("create home --level 1 --raid-devices 2 --assume-clean", &members);
    let mut exports = "--export nbd:unix:home.sock --export nbd:tcp:127.0.0.1:0".to_owned();
    let mounted = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if mounted {
        std::fs::create_dir(lab.path("mnt")).unwrap();
        exports += " --export fuse:mnt";
    }
    lab.ok(&format!("assemble home {exports}"), &members);
    let other = lab.path("other");
    std::fs::create_dir_all(other.join("home.log")).unwrap();
    // What is set is set again, or nobody goes on with it.
    lab.ok("sync home --pause", &[]);
    let before = status(&lab);
    let pid = before["pid"].as_u64().unwrap();
    let bytes = before["size_bytes"].as_u64().unwrap() as usize;
    let mut client = connect(&lab.path("home.sock"), "home", bytes);
    let file = mounted.then(|| File::open(lab.path("mnt/home")).unwrap());
    for (round, (what, lines, refused)) in (1..).zip(FAILING) {
        ask(&mut client, 1, 4096, &[round; 4096]).unwrap();
        let odd = lab.path(&format!("odd-{round}"));
        let lines = lines.replace("OTHER", &other.display().to_string());
        let lines = lines.replace("FILE", &members[0].display().to_string());
        let script = match refused {
            "" if what.starts_with("nothing") => gone_once_tried(),
            "" => taking_over(&lines),
            _ => lines,
        };
        install_script(&script, &odd);
        let answer = tell(&lab, &upgrade_to(&odd));
        if refused.is_empty() {
            assert_eq!(answer["ok"]["upgraded"]["returned"], true, "{what}: {answer}");
        } else {
            let reason = answer["error"]["reason"].as_str().unwrap_or_default();
            assert!(reason.contains(refused), "{what}: {answer}");
        }
        assert_eq!(program_of(pid), program().canonicalize().unwrap(), "{what}");
        assert!(read(&mut client, 4096, 4096) == [round; 4096], "{what}");
        let mut new = connect(&lab.path("home.sock"), "home", bytes);
        assert!(read(&mut new, 4096, 4096) == [round; 4096], "{what}");
        let mut found = [0; 4096];
        if let Some(file) = &file {
            file.read_exact_at(&mut found, 4096).unwrap();
            assert!(found == [round; 4096], "{what}");
        }
        assert_eq!(status(&lab)["exports"], before["exports"], "{what}");
        assert_eq!(status(&lab)["sync"]["paused"], true, "{what}");
    }
    // A socket whose file somebody removed is listened on by its clients alone.
    std::fs::remove_file(lab.path("home.sock")).unwrap();
    upgraded(&lab, &program());
    assert!(read(&mut client, 4096, 4096) == [FAILING.len() as u8; 4096]);
    drop((client, file));
    lab.ok("stop home", &[]);
}

/// Checks that an array is assembled again after its next program was killed, or ended by itself,
/// as programs without the hand-over may.
#[test]
fn an_array_whose_next_program_ends_is_assembled_again_and_lacks_nothing() {
    let lab = Lab::new();
    let members = lab.members("m", 2, 32);
    lab.ok("create home --level 1 --raid-devices 2 --assume-clean", &members);
    lab.ok("assemble home --export nbd:unix:home.sock", &members);
    let odd = lab.path("odd");
    for (ending, fill) in [("kill -KILL $$", 7), ("exit 0", 8)] {
        let bytes = status(&lab)["size_bytes"].as_u64().unwrap() as usize;
        let mut client = connect(&lab.path("home.sock"), "home", bytes);
        ask(&mut client, 1, 4096, &[fill; 4096]).unwrap();
        install_script(&taking_over(ending), &odd);
        let mut control = UnixStream::connect(lab.path("run/home.sock")).unwrap();
        writeln!(control, "{}", upgrade_to(&odd)).unwrap();
        assert_eq!(control.read(&mut [0]).unwrap(), 0, "nobody is left to answer");
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
        // The array had stopped well before, and no client was heard since.
        let explained = lab.ok_text("assemble --explain", &members);
        assert!(explained.contains("clean and complete"), "{explained}");
        lab.ok("assemble home --export nbd:unix:home.sock", &members);
        let mut client = connect(&lab.path("home.sock"), "home", bytes);
        assert!(read(&mut client, 4096, 4096) == [fill; 4096]);
    }
    lab.ok("stop home", &[]);
}

#[test]
fn what_would_not_start_is_not_stopped() {
    let lab = Lab::new();
    let members = lab.members("m", 3, 32);
    let journals = lab.members("j", 2, 12);
    lab.ok("create home -l 5 -n 3 --assume-clean --write-journal j0", &members);
    let all = [&members[..], &journals[..1]].concat();
    lab.ok("assemble home --export nbd:unix:home.sock", &all);
    lab.ok("fail home", &journals[..1]);
    for words in ["upgrade home --check", "upgrade home"] {
        let line = lab.refused(1, words, &[], &[]);
        assert!(line.contains("its journal has failed"), "{line}");
    }
    lab.ok("add home --journal", &journals[1..]);
    upgraded(&lab, &program());
    lab.ok("fail home", &members[..1]);
    lab.ok("fail home --force", &members[1..2]);
    for words in ["upgrade home --check", "upgrade home"] {
        let line = lab.refused(1, words, &[], &[]);
        assert!(line.contains("it has failed"), "{line}");
    }
    assert!(lab.ok_text("status home", &[]).contains("FAILED"), "it is there as before");
}

#[test]
fn an_array_is_used_on_though_nodes_go_away_while_programs_change() {
    let lab = Lab::new();
    let nodes = in_memory(&lab, 4);
    let all = on_nodes(&nodes, "");
    lab.ok(&format!("create home -l 5 -n 4 --size 8M{all}"), &[]);
    lab.ok(&format!("assemble home{all} --export nbd:unix:home.sock"), &[]);
    let bytes = status(&lab)["size_bytes"].as_u64().unwrap() as usize;
    let mut client = connect(&lab.path("home.sock"), "home", bytes);
    let content = noise(1 << 20);
    ask(&mut client, 1, 0, &content).unwrap();
    let odd = lab.path("odd");
    // One that the array does without, by a program that serves and by one that does not.
    for (node, words) in [(&nodes[1], ""), (&nodes[1], " --of-the-future")] {
        let lines = format!("kill -KILL {} 2>&-\nexec braid \"$@\"{words}", node.pid());
        install_script(&taking_over(&lines), &odd);
        let answer = tell(&lab, &upgrade_to(&odd));
        assert_eq!(answer["ok"]["upgraded"]["returned"], !words.is_empty(), "{answer}");
        assert!(read(&mut client, 0, content.len()) == content, "{answer}");
        ask(&mut client, 1, 0, &content).unwrap();
    }
    assert_eq!(lab.run("detail home --test", &[]).status.code(), Some(1), "degraded");
    drop(client);
    lab.ok("stop home", &[]);
}

#[test]
fn a_program_that_cannot_set_what_was_set_gives_back() {
    let lab = Lab::new();
    writing_back(&lab);
    let odd = lab.path("odd");
    install_script(&taking_over(r#"exec braid "$@" --readonly"#), &odd);
    let answer = tell(&lab, &upgrade_to(&odd));
    assert_eq!(answer["ok"]["upgraded"]["returned"], true, "{answer}");
    assert_eq!(status(&lab)["journal"]["mode"], "write-back");
    lab.ok("stop home", &[]);
}
