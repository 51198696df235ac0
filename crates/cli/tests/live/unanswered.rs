//! Arrays and devices that do not answer: commands report them, and wait for a limited time.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::support::stopped::{Stopped, process_of};
use crate::support::{Lab, skip, until};
use rustix::process::{Signal, geteuid, kill_process, test_kill_process};

fn mirror(lab: &Lab, name: &str, words: &str) -> Vec<PathBuf> {
    let members = lab.members(name, 2, 32);
    lab.ok(&format!("create {name} --level 1 --raid-devices 2 {words}"), &members);
    lab.ok(&format!("assemble {name}"), &members);
    members
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_stopped_process_keeps_nobody_waiting() {
    let lab = Lab::new();
    mirror(&lab, "good", "--assume-clean");
    let members = mirror(&lab, "still", "--assume-clean");
    let process = process_of(&lab, "still");
    let stopped = Stopped::new(process);
    let number = process.as_raw_nonzero();
    let said = format!("still: its process {number} is stopped; let it go on: kill -CONT {number}");
    let output = lab.run("status", &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("good: raid1"), "{}", text(&output.stdout));
    assert_eq!(text(&output.stderr), format!("braid: status {said}\n"));
    let line = lab.refused(1, "fail still", &members[..1], &[]);
    assert!(line.contains(&said[7..]), "{line}");
    let line = lab.refused(1, "assemble", &members, &members);
    let used = format!("in use by array still (process {number}, stopped)");
    let go_on = format!("let it go on: kill -CONT {number}\n");
    assert!(line.ends_with(&format!("{used}; {go_on}")), "{line}");
    let explained = lab.told("assemble --explain", &members);
    let cannot = format!("cannot start: {} is {used}\nnext: {go_on}", members[0].display());
    assert!(explained.ends_with(&cannot), "{explained}");
    let explained = lab.told("assemble --explain --json", &members);
    assert!(explained.contains("\"can_start\": false"), "{explained}");
    drop(stopped);
    lab.ok("status still", &[]);
}

/// Its control socket, or all of the run directory.
#[test]
fn an_array_that_cannot_be_reached_is_told_of_with_how_to_end_it() {
    let lab = Lab::new();
    for lost in ["run/home.sock", "run"] {
        let members = mirror(&lab, "home", "--assume-clean --force");
        let process = process_of(&lab, "home");
        let number = process.as_raw_nonzero();
        let path = lab.path(lost);
        if path.is_dir() { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }
            .expect("it was there");
        let end = format!("end it, which stops the array cleanly: kill {number}\n");
        let why = format!("its process {number} runs, but its control socket is gone; {end}");
        for words in ["status", "status home", "stop home"] {
            let line = lab.refused(1, words, &[], &members);
            let said = format!("home: {why}");
            assert!(line.ends_with(&said), "{line}");
        }
        let used = format!("in use by array home (process {number}, its control socket is gone)");
        let line = lab.refused(1, "assemble", &members, &members);
        assert!(line.ends_with(&format!("{used}; {end}")), "{line}");
        let explained = lab.told("assemble --explain", &members);
        let cannot = format!("cannot start: {} is {used}\nnext: {end}", members[0].display());
        assert!(explained.ends_with(&cannot), "{explained}");

        kill_process(process, Signal::TERM).unwrap();
        until("its process has ended", || test_kill_process(process).is_err());
        let explained = lab.ok_text("assemble --explain", &members);
        assert!(explained.contains("can start: clean"), "{explained}");
        assert_eq!(lab.type_all(&explained, &[]), 2, "{explained}");
        assert_eq!(lab.ok_text("status", &[]), "no arrays are running\n");
    }
}

/// An array takes the name of one that cannot be reached: that one is still told of.
#[test]
fn an_array_whose_name_was_taken_is_told_of() {
    let lab = Lab::new();
    let members = mirror(&lab, "home", "--assume-clean");
    let process = process_of(&lab, "home");
    std::fs::remove_file(lab.path("run/home.sock")).unwrap();
    let others = lab.members("other", 2, 32);
    lab.ok("create home --level 1 --raid-devices 2 --assume-clean", &others);
    lab.ok("assemble", &others);
    let end = format!("kill {}\n", process.as_raw_nonzero());
    let line = lab.refused(1, "assemble", &members, &members);
    assert!(line.ends_with(&end), "{line}");
    let output = lab.run("status", &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("home: raid1"), "{}", text(&output.stdout));
    assert!(text(&output.stderr).ends_with(&end), "{}", text(&output.stderr));
    kill_process(process, Signal::TERM).unwrap();
    until("its process has ended", || test_kill_process(process).is_err());
    lab.ok("status home", &[]);
}

/// Runs the command as a user without permissions.
fn as_nobody(lab: &Lab, words: &[&str]) -> Output {
    let mut command: Command = lab.braid();
    command.uid(65534).gid(65534).current_dir("/").args(words);
    command.output().expect("braid runs")
}

fn nobody_can_run(lab: &Lab, test: &str) -> bool {
    let usable = geteuid().is_root() && {
        let mut command = lab.braid();
        command.uid(65534).gid(65534).current_dir("/").arg("--version");
        command.output().is_ok_and(|output| output.status.success())
    };
    if !usable {
        skip(test, "it needs root, and the command where everybody can run it");
    }
    usable
}

#[test]
fn what_may_not_be_asked_is_not_called_empty() {
    let lab = Lab::new();
    if !nobody_can_run(&lab, "what_may_not_be_asked_is_not_called_empty") {
        return;
    }
    mirror(&lab, "home", "--assume-clean");
    let allow = |dir: &str, mode| {
        std::fs::set_permissions(lab.path(dir), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    allow("run", 0o700);
    let blind = as_nobody(&lab, &["status"]);
    let out = text(&blind.stdout);
    let err = text(&blind.stderr);
    assert_eq!((blind.status.code(), out.as_str()), (Some(1), ""), "{err}");
    assert!(err.contains("cannot be read: permission denied; "), "{err}");
    // As /run/braid is: everybody may look into it.
    allow(".", 0o755);
    allow("run", 0o755);
    for words in [&["status"][..], &["status", "--json"], &["detail", "--scan"]] {
        let denied = as_nobody(&lab, words);
        let out = text(&denied.stdout);
        let err = text(&denied.stderr);
        assert_eq!((denied.status.code(), out.as_str()), (Some(1), ""), "{err}");
        let said = "home: permission denied; use the user who started the array, or root\n";
        assert!(err.ends_with(said), "{err}");
    }

    let devices = std::fs::read_to_string("/proc/partitions").unwrap_or_default();
    if devices.lines().count() < 3 {
        return skip("what_may_not_be_asked_is_not_called_empty", "there are no block devices");
    }
    for words in [&["assemble", "--scan"][..], &["examine", "--scan"], &["assemble", "home"]] {
        let blind = as_nobody(&lab, words);
        let out = text(&blind.stdout);
        let err = text(&blind.stderr);
        assert_eq!((blind.status.code(), out.as_str()), (Some(1), ""), "{err}");
        assert!(err.contains("--scan: none of the ") && err.contains("permission denied"), "{err}");
    }
}

#[test]
fn who_uses_a_member_is_named() {
    let lab = Lab::new();
    let members = mirror(&lab, "home", "--assume-clean");
    let process = process_of(&lab, "home").as_raw_nonzero();
    let line = lab.refused(1, "assemble", &members, &members);
    let said = format!("in use by array home (process {process}); stop it: braid stop home\n");
    assert!(line.ends_with(&said), "{line}");
    lab.ok("stop home", &[]);
    let path: &Path = &members[0];
    let mut flock = Command::new("flock");
    let holder = flock.arg(path).args(["sh", "-c", "echo held; read _"]).stdin(Stdio::piped());
    let Ok(mut holder) = holder.stdout(Stdio::piped()).spawn() else {
        return skip("who_uses_a_member_is_named", "flock is not installed");
    };
    let mut held = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut held).unwrap();
    let line = lab.refused(1, "assemble", &members, &members);
    assert!(line.contains(&format!("in use by flock (process {})", holder.id())), "{line}");
    drop(holder.stdin.take());
    holder.wait().unwrap();
    lab.ok("assemble", &members);
}

#[test]
fn who_watches_is_told_of_progress_and_of_the_end() {
    let lab = Lab::new();
    mirror(&lab, "home", "--assume-clean");
    lab.ok("sync home --max 1", &[]);
    lab.ok("check home", &[]);
    let mut watch = lab.braid();
    watch.args(["status", "home", "--watch"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut watch = watch.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(watch.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("home: check ") && line.contains("%, "), "{line}");
    lab.ok("stop home", &[]);
    let mut said = String::new();
    watch.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "braid: status home: was stopped; see the arrays that run: braid status\n");
    assert_eq!(watch.wait().unwrap().code(), Some(1));
}
