//! Exports: permissions to open them, and exports added and removed while an array runs.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::export::{ask, connect, fill, noise};
use crate::support::nodes::{in_memory, members as on_nodes};
use crate::support::{Lab, install, skip, until};
use rustix::process::geteuid;
use serde_json::Value;

/// User without any permission.
const NOBODY: u32 = 65534;
/// Tells the test that plays a client where to connect.
const SOCKET: &str = "BRAID_TEST_SOCKET";

/// A mirror of 31 MiB that runs without exports.
fn mirror(lab: &Lab) -> Vec<PathBuf> {
    let members = lab.members("m", 2, 32);
    lab.ok("create home --level 1 --raid-devices 2 --assume-clean", &members);
    lab.ok("assemble home", &members);
    members
}

fn status(lab: &Lab) -> Value {
    serde_json::from_slice(&lab.ok("status home --json", &[])).unwrap()
}

fn exports(lab: &Lab) -> Vec<String> {
    let exports = status(lab)["exports"].as_array().unwrap().clone();
    exports.iter().map(|export| export.as_str().unwrap().to_owned()).collect()
}

fn size(lab: &Lab) -> usize {
    status(lab)["size_bytes"].as_u64().unwrap() as usize
}

/// Mode, owner and group.
fn access(path: &Path) -> (u32, u32, u32) {
    let file = std::fs::symlink_metadata(path).expect("an export");
    (file.mode() & 0o7777, file.uid(), file.gid())
}

/// Lets all users enter the directory.
fn let_in(lab: &Lab) {
    std::fs::set_permissions(lab.path(""), std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
#[ignore = "a part of another test, as another user"]
fn connects() {
    let socket = std::env::var_os(SOCKET).expect("a socket");
    UnixStream::connect(socket).unwrap();
}

/// Returns whether a user without any permission can connect.
fn nobody_connects(lab: &Lab, socket: &Path) -> bool {
    let program = lab.path("client");
    if !program.exists() {
        install(&std::env::current_exe().unwrap(), &program);
    }
    let mut client = Command::new(program);
    client.args(["--ignored", "--exact", "exports::connects"]).env(SOCKET, socket);
    let output = client.uid(NOBODY).gid(NOBODY).current_dir("/").output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("running 1 test"), "{said}");
    output.status.success()
}

#[test]
fn a_socket_is_for_whom_it_was_asked() {
    let lab = Lab::new();
    mirror(&lab);
    let us = access(&lab.path("m0"));
    for kind in ["nbd:unix", "vhost-user"] {
        let socket = lab.path("s");
        for (options, mode) in [("", 0o600), (",mode=0666", 0o666), (",mode=640", 0o640)] {
            lab.ok(&format!("export home add {kind}:{}{options}", socket.display()), &[]);
            assert_eq!(access(&socket), (mode, us.1, us.2), "{kind}{options}");
            lab.ok(&format!("export home remove {kind}:{}", socket.display()), &[]);
            assert!(!socket.exists());
        }
        let group = format!("{kind}:{},group={}", socket.display(), us.2);
        lab.ok(&format!("export home add {group}"), &[]);
        assert_eq!(access(&socket), (0o660, us.1, us.2), "who names a group lets it in");
        assert_eq!(exports(&lab), [group.as_str()]);
        lab.ok(&format!("export home remove {group}"), &[]);
    }
}

#[test]
fn other_users_connect_where_they_may() {
    if !geteuid().is_root() {
        return skip("other_users_connect_where_they_may", "it needs root");
    }
    let lab = Lab::new();
    let members = lab.members("m", 2, 32);
    lab.ok("create home --level 1 --raid-devices 2 --assume-clean", &members);
    let_in(&lab);
    let socket = |name: &str| lab.path(name);
    let options = [
        ("closed", "", 0o600, false),
        ("all", ",mode=0666", 0o666, true),
        ("owned", ",owner=65534", 0o600, true),
        ("grouped", ",group=65534", 0o660, true),
        ("others", ",mode=0660", 0o660, false),
    ];
    let exports = options.map(|(name, options, ..)| {
        format!("--export nbd:unix:{}{options}", socket(name).display())
    });
    lab.ok(&format!("assemble home {}", exports.join(" ")), &members);
    for (name, options, mode, connects) in options {
        assert_eq!(access(&socket(name)).0, mode, "{name}");
        assert_eq!(nobody_connects(&lab, &socket(name)), connects, "{name}{options}");
    }
    assert_eq!(access(&socket("owned")), (0o600, NOBODY, 0));
    assert_eq!(access(&socket("grouped")), (0o660, 0, NOBODY));
}

#[test]
fn what_cannot_be_meant_is_refused_before_anything_is_served() {
    let lab = Lab::new();
    let members = lab.members("m", 2, 32);
    lab.ok("create home --level 1 --raid-devices 2 --assume-clean", &members);
    let table = [
        ("nbd:unix:s,mode=999", "mode=999 is no mode", "octal"),
        ("nbd:unix:s,owner=no-such-user", "owner=no-such-user: there is no such user", "name a"),
        ("vhost-user:s,group=no-such-group", "there is no such group", "getent group"),
        ("nbd:tcp:127.0.0.1:0,mode=0600", "has no option mode", "leave it out"),
        ("fuse:mnt,queues=3", "has no option queues=3", "use mode=MODE"),
        ("ublk,owner=root", "has no option owner", "leave it out"),
    ];
    for (export, said, next) in table {
        for words in
            [format!("assemble home m0 m1 --export {export}"), format!("export home add {export}")]
        {
            let line = lab.refused(2, &words, &[], &members);
            assert!(line.contains(&format!("export {export}: ")), "{words}: {line}");
            let (reason, step) = line.split_once("; ").unwrap();
            assert!(reason.contains(said) && step.contains(next), "{words}: {line}");
        }
    }
    assert!(!lab.path("s").exists() && !lab.path("run/home.sock").exists());
}

#[test]
fn the_file_of_a_mount_is_for_whom_it_was_asked() {
    let test = "the_file_of_a_mount_is_for_whom_it_was_asked";
    if !Path::new("/dev/fuse").exists() || !geteuid().is_root() {
        return skip(test, "it needs FUSE and root");
    }
    let lab = Lab::new();
    mirror(&lab);
    let_in(&lab);
    let mountpoint = lab.path("mnt");
    std::fs::create_dir(&mountpoint).unwrap();
    let reads = || {
        let mut dd = Command::new("dd");
        dd.arg(format!("if={}", mountpoint.join("home").display()))
            .args(["of=/dev/null", "count=1"]);
        dd.uid(NOBODY).gid(NOBODY).current_dir("/").output().expect("dd").status.success()
    };
    let table = [
        ("", (0o600, 0, 0), false),
        (",mode=0644", (0o644, 0, 0), true),
        (",owner=65534", (0o600, NOBODY, 0), true),
        (",group=65534,mode=0640", (0o640, 0, NOBODY), true),
        (",group=1,mode=0640", (0o640, 0, 1), false),
    ];
    for (options, expected, readable) in table {
        let export = format!("fuse:{}{options}", mountpoint.display());
        lab.ok(&format!("export home add {export}"), &[]);
        assert_eq!(access(&mountpoint.join("home")), expected, "{options}");
        assert_eq!(reads(), readable, "{options}");
        lab.ok(&format!("export home remove {export}"), &[]);
        assert!(exports(&lab).is_empty() && !mountpoint.join("home").exists());
    }
}

#[test]
fn an_export_comes_and_goes_while_the_array_runs() {
    let lab = Lab::new();
    mirror(&lab);
    let first = lab.path("first");
    let second = lab.path("second");
    let spec = |socket: &Path| format!("nbd:unix:{}", socket.display());
    let said = lab.ok_text(&format!("export home add {}", spec(&first)), &[]);
    assert_eq!(said, format!("home: added {}\n", spec(&first)));
    let content = noise(size(&lab));
    fill(&first, "home", &content);
    lab.ok(&format!("export home add {},mode=0640", spec(&second)), &[]);
    assert_eq!(exports(&lab), [spec(&first), format!("{},mode=0640", spec(&second))]);
    assert!(lab.ok_text("detail home", &[]).contains(&spec(&second)));
    let line = lab.refused(1, &format!("export home add {}", spec(&second)), &[], &[]);
    assert!(line.contains("there is one named home already; choose another name="), "{line}");

    // Who uses one stands against its end, and not against that of the other.
    let mut client = connect(&second, "home", content.len());
    let remove = format!("export home remove {}", spec(&second));
    let line = lab.refused(1, &remove, &[], &[]);
    let us = format!("process {}", std::process::id());
    assert!(line.contains("in use by ") && line.contains(&us), "{line}");
    assert!(line.trim_end().ends_with("or insist with --force"), "{line}");
    lab.ok(&format!("export home remove {}", spec(&first)), &[]);
    assert!(!first.exists() && UnixStream::connect(&first).is_err());
    ask(&mut client, 1, 4096, &content[4096..8192]).unwrap();
    assert_eq!(exports(&lab).len(), 1);

    lab.ok(&format!("{remove} --force"), &[]);
    assert!(exports(&lab).is_empty() && !second.exists());
    ask(&mut client, 1, 0, &content[..4096]).expect_err("it was hung up on");
    let line = lab.refused(1, &remove, &[], &[]);
    assert!(line.contains("home has no such export; see those it has: braid status"), "{line}");
    // Nothing of what was there is in the way of the next one.
    lab.ok(&format!("export home add {}", spec(&second)), &[]);
    drop(connect(&second, "home", content.len()));
    assert!(lab.ok("cat home", &[]) == content);
    lab.ok("stop home", &[]);
    assert!(!second.exists());
}

#[test]
fn a_port_that_was_chosen_is_told() {
    let lab = Lab::new();
    mirror(&lab);
    let line = lab.refused(1, "export home add nbd:tcp:0.0.0.0:0", &[], &[]);
    assert!(line.contains("nothing is encrypted") && line.contains("--insecure"), "{line}");
    let said = lab.ok_text("export home add nbd:tcp:127.0.0.1:0", &[]);
    let export = said.trim_end().strip_prefix("home: added ").expect("which");
    assert_eq!(exports(&lab), [export]);
    let address = export.strip_prefix("nbd:tcp:").expect("an address").to_owned();
    std::net::TcpStream::connect(&address).unwrap();
    lab.ok(&format!("export home remove {export}"), &[]);
    assert!(std::net::TcpStream::connect(&address).is_err());
    let line = lab.refused(1, "export home add ublk", &[], &[]);
    assert!(line.contains("is made when the array starts; stop the array"), "{line}");
    assert!(exports(&lab).is_empty());
    let line = lab.refused(1, "export away add nbd:unix:s", &[], &[]);
    assert!(line.contains("export away: "), "{line}");
}

/// Checks that one socket serves several disks, each client the one it asks for.
#[test]
fn parts_of_an_array_are_disks_of_their_own() {
    let lab = Lab::new();
    mirror(&lab);
    let socket = lab.path("s");
    let at = format!("nbd:unix:{}", socket.display());
    const MIB: usize = 1 << 20;
    lab.ok(&format!("export home add {at},mode=0660,name=vm1,size=4MiB"), &[]);
    lab.ok(&format!("export home add {at},name=vm2,offset=4M,size=2048K"), &[]);
    lab.ok(&format!("export home add {at},name=rest,offset=6M"), &[]);
    lab.ok(&format!("export home add {at},readonly"), &[]);
    let rights = ["mode=0660,name=vm1,size=4M", "mode=0660,name=vm2,offset=4M,size=2M"];
    let more = ["mode=0660,name=rest,offset=6M", "mode=0660,readonly"];
    let expected = rights.iter().chain(&more).map(|options| format!("{at},{options}"));
    assert_eq!(exports(&lab), expected.collect::<Vec<_>>());
    assert!(lab.ok_text("status home", &[]).contains("name=vm2,offset=4M,size=2M"));

    let content = noise(size(&lab));
    let (first, rest) = content.split_at(4 * MIB);
    let (second, rest) = rest.split_at(2 * MIB);
    for (name, content) in [("vm1", first), ("vm2", second), ("rest", rest)] {
        fill(&socket, name, content);
    }
    assert!(lab.ok("cat home", &[]) == content, "each lies where it was asked for");

    // One goes in the middle of its use, and the others serve on.
    let mut stays = connect(&socket, "vm1", first.len());
    let mut goes = connect(&socket, "vm2", second.len());
    let line = lab.refused(1, &format!("export home remove {at},name=vm2"), &[], &[]);
    assert!(line.contains("in use by "), "{line}");
    let line = lab.refused(1, &format!("export home remove {at},name=vm9"), &[], &[]);
    assert!(line.contains("home has no such export"), "{line}");
    lab.ok(&format!("export home remove {at},name=vm2 --force"), &[]);
    ask(&mut goes, 3, 0, &[]).expect_err("it was hung up on");
    ask(&mut stays, 1, 0, &first[..4096]).unwrap();
    lab.ok(&format!("export home remove {at},name=rest"), &[]);
    lab.ok(&format!("export home remove {at}"), &[]);
    drop(stays);
    until("the last client has gone", || {
        lab.run(&format!("export home remove {at}"), &[]).status.success()
    });
    assert!(exports(&lab).is_empty() && !socket.exists());
    // The name is free again.
    lab.ok(&format!("export home add {at},name=vm2,offset=4M,size=2M"), &[]);
    drop(connect(&socket, "vm2", second.len()));
}

#[test]
fn parts_that_would_spoil_each_other_are_refused() {
    let lab = Lab::new();
    mirror(&lab);
    let first = format!("nbd:unix:{},name=vm1,offset=1M,size=1M", lab.path("s").display());
    lab.ok(&format!("export home add {first}"), &[]);
    let s = format!("nbd:unix:{}", lab.path("s").display());
    let t = format!("nbd:unix:{}", lab.path("t").display());
    let table = [
        (format!("{s},name=vm1,offset=2M,size=1M"), "one named vm1 already", "another name="),
        (
            format!("{s},name=b,offset=1536K,size=1M"),
            "can write bytes 1048576 to 2097151",
            "readonly",
        ),
        (format!("{t},size=1028K"), first.as_str(), "another offset and size"),
        (t.clone(), first.as_str(), "add readonly"),
        (format!("vhost-user:{}", lab.path("v").display()), first.as_str(), "add readonly"),
        (format!("{t},offset=1000"), "not a multiple of the array's blocks of 512", "offset=512"),
        (format!("{t},offset=31G"), "offset=31G is not inside the array", "the array has "),
        (format!("{t},offset=2M,size=1G"), "beyond the end of the array", "at most"),
        (format!("{s},mode=0666,name=b,size=1M"), "with other rights", "leave mode"),
        (format!("{s},name=a,name=b"), "name is there twice", "leave one out"),
        (format!("{s},size=ten"), "size=ten: not a size", "offset=1G"),
    ];
    for (export, said, next) in table {
        let output = lab.run(&format!("export home add {export}"), &[]);
        let line = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{export}");
        let (reason, step) = line.split_once("; ").unwrap_or_else(|| panic!("{export}: {line}"));
        assert!(reason.contains(said) && step.contains(next), "{export}: {line}");
    }
    assert_eq!(exports(&lab), [first.as_str()]);
    assert!(!lab.path("t").exists() && !lab.path("v").exists());
    // Who only reads is in nobody's way.
    lab.ok(&format!("export home add {t},readonly"), &[]);
    lab.ok(&format!("export home add {s},name=b,offset=1M,readonly"), &[]);
}

/// libnbd's and QEMU's tools see the same disks.
#[test]
fn outside_clients_find_the_parts() {
    let test = "outside_clients_find_the_parts";
    let is_there = |tool: &&str| Command::new(tool).arg("--version").output().is_ok();
    if !["nbdinfo", "nbdcopy", "qemu-io"].iter().all(is_there) {
        return skip(test, "it needs nbdinfo, nbdcopy and qemu-io");
    }
    let lab = Lab::new();
    mirror(&lab);
    let at = format!("nbd:unix:{}", lab.path("s").display());
    lab.ok(&format!("export home add {at},name=vm1,size=4M"), &[]);
    lab.ok(&format!("export home add {at},name=vm2,offset=4M,size=2M"), &[]);
    let uri = |name: &str| format!("nbd+unix:///{name}?socket={}", lab.path("s").display());
    let run = |tool: &str, args: &[&str]| Command::new(tool).args(args).output().expect(tool);
    let text = |tool: &str, args: &[&str]| {
        let output = run(tool, args);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{tool} {args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    let list: Value =
        serde_json::from_str(&text("nbdinfo", &["--list", "--json", &uri("")])).unwrap();
    let sizes = list["exports"].as_array().unwrap().iter();
    let sizes: Vec<_> =
        sizes.map(|e| (e["export-name"].as_str(), e["export-size"].as_u64())).collect();
    assert_eq!(sizes, [(Some("vm1"), Some(4 << 20)), (Some("vm2"), Some(2 << 20))]);
    assert!(!run("nbdinfo", &["--size", &uri("")]).status.success(), "none is meant by default");
    assert!(!run("nbdinfo", &["--size", &uri("vm3")]).status.success());

    let content = noise(2 << 20);
    std::fs::write(lab.path("in"), &content).unwrap();
    text("nbdcopy", &[lab.path("in").to_str().unwrap(), &uri("vm2")]);
    text("nbdcopy", &[&uri("vm2"), lab.path("out").to_str().unwrap()]);
    assert!(std::fs::read(lab.path("out")).unwrap() == content);
    let io = |command: &str| text("qemu-io", &["-f", "raw", "-c", command, &uri("vm1")]);
    io("write -P 7 3M 1M");
    assert!(!io("read -P 7 3M 1M").contains("failed"));
    let all = lab.ok("cat home", &[]);
    assert!(all[4 << 20..6 << 20] == content, "the neighbour is as it was");
    assert!(all[3 << 20..4 << 20].iter().all(|byte| *byte == 7));
    // nbdsh does not check the range itself.
    let beyond = "h.set_strict_mode(0)\ntry:\n h.pread(4096, 4 << 20)\nexcept nbd.Error as e: \
                  print('refused', e)\nelse: raise SystemExit('served the neighbour')";
    let mut nbdsh = Command::new("nbdsh");
    nbdsh.env("PATH", "/usr/bin:/bin").args(["-u", &uri("vm1"), "-c", beyond]);
    if let Ok(output) = nbdsh.output() {
        assert!(String::from_utf8_lossy(&output.stdout).contains("refused"), "{output:?}");
    }
}

/// Repeats the mount often enough to exhaust anything that is not given back.
#[test]
fn mounts_come_and_go_while_the_array_runs() {
    let test = "mounts_come_and_go_while_the_array_runs";
    if !Path::new("/dev/fuse").exists() || !geteuid().is_root() {
        return skip(test, "it needs FUSE and root");
    }
    let lab = Lab::new();
    mirror(&lab);
    let content = noise(size(&lab));
    let export = |name: &str| format!("fuse:{}", lab.path(name).display());
    for name in ["a", "b", "c"] {
        std::fs::create_dir(lab.path(name)).unwrap();
    }
    lab.ok(&format!("export home add {}", export("a")), &[]);
    std::fs::write(lab.path("a/home"), &content).unwrap();
    for _ in 0..20 {
        lab.ok(&format!("export home add {}", export("b")), &[]);
        assert!(std::fs::read(lab.path("b/home")).unwrap() == content);
        lab.ok(&format!("export home remove {}", export("b")), &[]);
        assert!(!lab.path("b/home").exists());
    }
    lab.ok(&format!("export home add {}", export("b")), &[]);
    let line = lab.refused(1, &format!("export home add {}", export("c")), &[], &[]);
    assert!(line.contains("there is memory for 2 mounts only; remove one"), "{line}");

    let file = std::fs::File::open(lab.path("b/home")).unwrap();
    let line = lab.refused(1, &format!("export home remove {}", export("b")), &[], &[]);
    let us = format!("process {}", std::process::id());
    assert!(line.contains("in use by ") && line.contains(&us), "{line}");
    lab.ok(&format!("export home remove {} --force", export("b")), &[]);
    let mut buffer = [0; 4096];
    std::os::unix::fs::FileExt::read_at(&file, &mut buffer, 0).expect_err("nobody serves it");
    assert!(std::fs::read(lab.path("a/home")).unwrap() == content, "the other one goes on");
    lab.ok("stop home", &[]);
}

#[test]
fn a_guest_stands_against_the_end_of_its_export() {
    let lab = Lab::new();
    mirror(&lab);
    let export = format!("vhost-user:{}", lab.path("guest").display());
    lab.ok(&format!("export home add {export}"), &[]);
    let guest = UnixStream::connect(lab.path("guest")).unwrap();
    let remove = format!("export home remove {export}");
    let log = || std::fs::read_to_string(lab.path("run/home.log")).unwrap();
    until("the guest is known", || log().contains("has connected"));
    let line = lab.refused(1, &remove, &[], &[]);
    assert!(line.contains(&format!("process {}", std::process::id())), "{line}");
    assert_eq!(exports(&lab), [export.as_str()]);
    lab.ok(&format!("{remove} --force"), &[]);
    assert_eq!(std::io::Read::read(&mut &guest, &mut [0]).unwrap_or(0), 0);
    assert!(exports(&lab).is_empty() && !lab.path("guest").exists());
    lab.ok(&format!("export home add {export}"), &[]);
    UnixStream::connect(lab.path("guest")).unwrap();
}

#[test]
fn an_array_over_nodes_has_exports_that_come_and_go() {
    let lab = Lab::new();
    let nodes = in_memory(&lab, 3);
    let members = on_nodes(&nodes, "/home");
    lab.ok(&format!("create home -l 5 -n 3 --size 8M --assume-clean{members}"), &[]);
    lab.ok(&format!("assemble home{members}"), &[]);
    let socket = lab.path("s");
    lab.ok(&format!("export home add nbd:unix:{}", socket.display()), &[]);
    let content = noise(size(&lab));
    fill(&socket, "home", &content);
    until("the client has gone", || {
        lab.run(&format!("export home remove nbd:unix:{}", socket.display()), &[]).status.success()
    });
    assert!(!socket.exists() && lab.ok("cat home", &[]) == content);
}
