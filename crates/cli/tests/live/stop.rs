//! Arrays in use are not stopped.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::support::stopped::process_of;
use crate::support::{Lab, skip, until};
use rustix::process::{Signal, kill_process, test_kill_process};
use serde_json::Value;

fn log(lab: &Lab, name: &str) -> String {
    std::fs::read_to_string(lab.path("run").join(format!("{name}.log"))).unwrap_or_default()
}

fn mirror(lab: &Lab, export: &str) -> Vec<PathBuf> {
    let members = lab.members("m", 2, 32);
    lab.ok("create home --level 1 --raid-devices 2 --assume-clean", &members);
    lab.ok(&format!("assemble home --export {export}"), &members);
    members
}

/// Runs a command. Returns its output, or the error.
fn tool(words: &[&str], path: &Path) -> Result<String, String> {
    let (program, words) = words.split_first().expect("a program");
    let output = Command::new(program).args(words).arg(path).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// A file system on a loop device on the array's file; gone when this is.
struct Above {
    device: String,
    mountpoint: PathBuf,
}

impl Above {
    fn new(lab: &Lab) -> Result<Self, String> {
        let file = lab.path("mnt").join("home");
        let device = tool(&["losetup", "--find", "--show", "--direct-io=on"], &file)?;
        let above = Self { device, mountpoint: lab.path("fs") };
        std::fs::create_dir_all(&above.mountpoint).expect("a directory");
        tool(&["mkfs.ext4", "-q", "-F"], Path::new(&above.device))?;
        above.mount()?;
        Ok(above)
    }

    fn mount(&self) -> Result<String, String> {
        tool(&["mount", &self.device], &self.mountpoint)
    }
}

impl Drop for Above {
    fn drop(&mut self) {
        // Left lying where they fail; the test has said why.
        let _ = tool(&["umount", "-l"], &self.mountpoint);
        let _ = tool(&["losetup", "-d"], Path::new(&self.device));
    }
}

fn fuse_as_root(test: &str) -> bool {
    let usable = Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root();
    if !usable {
        skip(test, "it needs FUSE and root");
    }
    usable
}

#[test]
fn a_mounted_array_is_not_dropped_and_keeps_what_was_written() {
    let test = "a_mounted_array_is_not_dropped_and_keeps_what_was_written";
    if !fuse_as_root(test) {
        return;
    }
    let lab = Lab::new();
    std::fs::create_dir(lab.path("mnt")).unwrap();
    let export = format!("fuse:{}", lab.path("mnt").display());
    let members = mirror(&lab, &export);
    let above = match Above::new(&lab) {
        Ok(above) => above,
        Err(reason) => return skip(test, &reason),
    };
    let file = above.mountpoint.join("file");
    let content: Vec<u8> = (0..5 << 20).map(|i: u32| (i % 251) as u8).collect();
    // In the memory of the kernel, and not on the array.
    std::fs::write(&file, &content).unwrap();

    let line = lab.refused(1, "stop home", &[], &[]);
    let on = above.mountpoint.display();
    let used = format!("in use by {} (a file system mounted on {on})", above.device);
    assert!(line.contains(&used), "{line}");
    assert!(line.trim_end().ends_with("or insist: braid stop --force home"), "{line}");
    let process = process_of(&lab, "home");
    kill_process(process, Signal::TERM).unwrap();
    until("the log tells who is waited for", || log(&lab, "home").contains(&used));
    assert_eq!(std::fs::read(&file).unwrap(), content);
    std::fs::write(above.mountpoint.join("second"), "written after the signal").unwrap();

    lab.ok("stop home --force", &[]);
    until("its process has ended", || test_kill_process(process).is_err());
    drop(above);
    lab.ok(&format!("assemble home --export {export}"), &members);
    let status: Value = serde_json::from_slice(&lab.ok("status home --json", &[])).unwrap();
    assert_eq!(status["state"], serde_json::json!(["clean"]));
    let file = lab.path("mnt").join("home");
    let device = tool(&["losetup", "--find", "--show", "--direct-io=on"], &file).unwrap();
    let above = Above { device, mountpoint: lab.path("fs") };
    above.mount().unwrap();
    assert_eq!(std::fs::read(above.mountpoint.join("file")).unwrap(), content);
    let second = std::fs::read_to_string(above.mountpoint.join("second")).unwrap();
    assert_eq!(second, "written after the signal");

    // A signal waits, and not a moment longer than it has to.
    let process = process_of(&lab, "home");
    kill_process(process, Signal::TERM).unwrap();
    until("the log tells who is waited for", || log(&lab, "home").matches(&used).count() > 1);
    drop(above);
    until("its process has ended", || test_kill_process(process).is_err());
}

#[test]
fn the_mount_of_a_process_that_died_is_taken_away() {
    if !fuse_as_root("the_mount_of_a_process_that_died_is_taken_away") {
        return;
    }
    let lab = Lab::new();
    std::fs::create_dir(lab.path("mnt")).unwrap();
    let export = format!("fuse:{}", lab.path("mnt").display());
    let members = mirror(&lab, &export);
    // Once with nobody left in it, once with somebody.
    for used in [false, true] {
        let file = used.then(|| std::fs::File::open(lab.path("mnt/home")).unwrap());
        let process = process_of(&lab, "home");
        kill_process(process, Signal::KILL).unwrap();
        until("the process is dead", || test_kill_process(process).is_err());
        until("the mount is dead", || rustix::fs::statfs(lab.path("mnt")).is_err());
        lab.ok(&format!("assemble home --export {export}"), &members);
        assert_eq!(std::fs::metadata(lab.path("mnt/home")).unwrap().len() >> 20, 31);
        drop(file);
    }
    lab.ok("stop home", &[]);
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(&lab.path("mnt").display().to_string()), "{mounts}");
}
