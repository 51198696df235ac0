//! Members in images of other kinds and at NBD servers: read, and changed in overlays alone.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::export::{ask, connect, noise};
use crate::support::filled::filled;
use crate::support::{Lab, fingerprint, until};

/// A disk at an NBD server of QEMU's, which ends with it.
struct Server(Child);

impl Server {
    fn of(image: &Path, format: &str, socket: &Path) -> Self {
        let mut server = Command::new("qemu-nbd");
        server.args(["--read-only", "--persistent", "--shared=0", "-f", format, "-k"]);
        server.arg(socket).arg(image).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Self(server.spawn().expect("qemu-nbd"));
        until("a server", || std::os::unix::net::UnixStream::connect(socket).is_ok());
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(program: &str, words: &str, paths: &[&Path]) {
    let mut command = Command::new(program);
    command.args(words.split_whitespace()).args(paths);
    let done = command.output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

fn uri(socket: &Path) -> PathBuf {
    format!("nbd+unix:///?socket={}", socket.display()).into()
}

/// The members of an array as a compressed qcow2, an image at a server, a flat VMDK, and as it is.
fn of_all_kinds(lab: &Lab, members: &[PathBuf]) -> (Vec<PathBuf>, Server) {
    let qcow2 = lab.path("m0.qcow2");
    run("qemu-img", "convert -f raw -O qcow2 -c", &[&members[0], &qcow2]);
    let served = lab.path("m1.qcow2");
    run("qemu-img", "convert -f raw -O qcow2", &[&members[1], &served]);
    let socket = lab.path("m1.sock");
    let server = Server::of(&served, "qcow2", &socket);
    let vmdk = lab.path("m2.vmdk");
    let flat = "convert -f raw -O vmdk -o subformat=monolithicFlat";
    run("qemu-img", flat, &[&members[2], &vmdk]);
    (vec![qcow2, uri(&socket), vmdk, members[3].clone()], server)
}

#[test]
fn images_and_disks_at_servers_are_members() {
    let lab = Lab::new();
    let (raw, mut content) = filled(&lab, "--level 5 --chunk 16K", 4);
    let (members, server) = of_all_kinds(&lab, &raw);
    let files = [&members[0], &lab.path("m1.qcow2"), &lab.path("m2-flat.vmdk"), &members[3]];
    let before: Vec<u64> = files.iter().map(|file| fingerprint(file)).collect();
    assert!(lab.ok("cat", &members) == content);
    let explained = lab.ok_text("assemble --explain", &members);
    assert!(explained.contains("nbd+unix:///?socket="), "{explained}");

    let socket = lab.path("s");
    let export = format!("--export nbd:unix:{}", socket.display());
    let refused = lab.refused(1, &format!("assemble x {export}"), &members, &[]);
    assert!(refused.contains("is for reading") && refused.contains("--overlay"), "{refused}");
    assert!(refused.contains("--readonly"), "{refused}");

    lab.ok(&format!("assemble x --readonly {export}"), &members);
    assert!(lab.ok("cat x", &[]) == content, "by the process that serves it");
    lab.ok("upgrade x", &[]);
    assert!(lab.ok("cat x", &[]) == content, "by the next one");
    lab.ok("stop x", &[]);

    let overlaid = format!("assemble x --overlay changes {export}");
    lab.ok(&overlaid, &members);
    let mut stream = connect(&socket, "x", content.len());
    let news = noise(40_960);
    content[8192..8192 + news.len()].copy_from_slice(&news);
    ask(&mut stream, 1, 8192, &news).unwrap();
    ask(&mut stream, 3, 0, &[]).unwrap();
    drop(stream);
    assert!(lab.ok("cat x", &[]) == content);
    lab.ok("check x --wait", &[]);
    // The server goes away: its member fails, and the others have all there is.
    drop(server);
    assert!(lab.ok("cat x", &[]) == content, "without the disk at the server");
    lab.ok("stop x", &[]);
    let after: Vec<u64> = files.iter().map(|file| fingerprint(file)).collect();
    assert_eq!(before, after, "nothing is written to an image");
}

#[test]
fn a_partition_of_an_image_is_a_member() {
    let lab = Lab::new();
    let (raw, content) = filled(&lab, "--level 1", 2);
    let disk = lab.path("disk");
    std::fs::File::create(&disk).and_then(|file| file.set_len(20 << 20)).unwrap();
    let mut table = Command::new("sfdisk").arg(&disk).stdin(Stdio::piped()).spawn().unwrap();
    let lines = b"label: gpt\nstart=2048, size=32768\n";
    std::io::Write::write_all(&mut table.stdin.take().unwrap(), lines).unwrap();
    assert!(table.wait().unwrap().success());
    let bytes = std::fs::read(&raw[0]).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&disk).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 1 << 20).unwrap();
    let image = lab.path("disk.qcow2");
    run("qemu-img", "convert -f raw -O qcow2", &[&disk, &image]);
    let named = |rest: &str| PathBuf::from(format!("{}{rest}", image.display()));
    for name in ["#1", "@1M+16M", ""] {
        assert!(lab.ok("cat", &[named(name)]) == content, "{name}");
    }
    let socket = lab.path("s");
    let _server = Server::of(&image, "qcow2", &socket);
    let named = format!("{}#1", uri(&socket).display());
    assert!(lab.ok("cat", &[named.into()]) == content, "at a server");
}

#[test]
fn what_cannot_be_read_says_what_can() {
    let lab = Lab::new();
    let (raw, content) = filled(&lab, "--level 1", 2);
    let based = lab.path("based.qcow2");
    run("qemu-img", "create -q -f qcow2 -F raw -b", &[&raw[0], &based]);
    let sparse = lab.path("sparse.vmdk");
    run("qemu-img", "convert -f raw -O vmdk", &[&raw[0], &sparse]);
    let split = lab.path("split.vmdk");
    let in_files = "convert -f raw -O vmdk -o subformat=twoGbMaxExtentSparse";
    run("qemu-img", in_files, &[&raw[0], &split]);
    for (image, what) in [(&based, "denied"), (&sparse, "sparse"), (&split, "sparse")] {
        let line = lab.refused(1, "cat", std::slice::from_ref(image), &[]);
        assert!(line.contains("qemu-nbd --read-only") && line.contains(what), "{line}");
    }
    // As it says.
    let socket = lab.path("s");
    let _server = Server::of(&sparse, "vmdk", &socket);
    assert!(lab.ok("cat", &[uri(&socket)]) == content);
    for (name, reason) in [
        ("nbd://127.0.0.1:1/x", "refused"),
        ("nbd+unix:///?socket=/nowhere", "no such file"),
        ("nbd+unix:///x", "names no socket"),
        ("nbds://nas/x", "not read over tls"),
    ] {
        let line = lab.refused(1, "cat", &[name.into()], &[]).to_lowercase();
        assert!(line.contains(name) && line.contains(reason), "{line}");
    }
    // A raw member whose content begins like an image is no image.
    let members = lab.members("r", 1, 4);
    lab.ok("create y -l 1 -n 2 --metadata 1.0 missing", &members);
    let mut content = std::fs::read(&members[0]).unwrap();
    content[..8].copy_from_slice(b"QFI\xfb\0\0\0\x03");
    std::fs::write(&members[0], &content).unwrap();
    assert!(lab.ok("cat", &members)[..8] == content[..8]);
}

/// Writes the descriptor of a VMDK with its data in a file of this name.
fn descriptor(lab: &Lab, data: &str) -> PathBuf {
    let path = lab.path("d.vmdk");
    let text = "# Disk DescriptorFile\nversion=1\nCID=1\nparentCID=ffffffff\n\
                createType=\"monolithicFlat\"\n\n# Extent description\n";
    std::fs::write(&path, format!("{text}RW 32768 FLAT \"{data}\" 0\n")).unwrap();
    path
}

#[test]
fn the_data_of_a_vmdk_are_a_regular_file_beside_it() {
    let lab = Lab::new();
    let (raw, content) = filled(&lab, "--level 1", 2);
    // A descriptor may be shorter than a sector.
    assert!(lab.ok("cat", &[descriptor(&lab, "m0")]) == content);
    std::fs::create_dir(lab.path("else")).unwrap();
    std::fs::rename(&raw[1], lab.path("else/secret")).unwrap();
    std::os::unix::fs::symlink(lab.path("else/secret"), lab.path("link")).unwrap();
    run("mkfifo", "", &[&lab.path("fifo")]);
    for (data, why) in [
        ("link", "no regular file"),
        ("fifo", "no regular file"),
        ("else/secret", "does not lie beside it"),
        ("../secret", "does not lie beside it"),
        ("else", "no regular file"),
        ("nowhere", "No such file"),
    ] {
        let image = descriptor(&lab, data);
        let mut command = Command::new("timeout");
        command.arg("20").arg(crate::support::program()).arg("cat").arg(&image);
        let output = command.env("BRAID_RUN_DIR", lab.path("run")).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{data}: {said}");
        assert!(said.contains(why) && output.stdout.is_empty(), "{data}: {said}");
    }
}
