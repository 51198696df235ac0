//! Outside NBD clients as judges: libnbd's tools, QEMU's, fio.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

use super::raw_client::{listen, serve};
use super::{MIB, Served, memory, mirror, noise};
use crate::export::nbd::{ClientPatience, Listener};
use crate::testing::skipped;

/// Runs a tool; `None` when it is not installed.
fn run(tool: &str, args: &[&str]) -> Option<Output> {
    // The system's directories only: nbdsh wants the Python that libnbd was built for.
    match Command::new(tool).args(args).env("PATH", "/usr/bin:/bin").output() {
        Ok(output) => Some(output),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            skipped(tool);
            None
        }
        Err(error) => panic!("{tool}: {error}"),
    }
}

/// Runs a tool that has to succeed.
fn succeed(tool: &str, args: &[&str]) -> Option<String> {
    let output = run(tool, args)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let out = text(&output.stdout);
    let err = text(&output.stderr);
    assert!(output.status.success(), "{tool} {args:?}:\n{out}{err}");
    Some(out)
}

fn uri(socket: &Path) -> String {
    format!("nbd+unix:///array?socket={}", socket.display())
}

#[test]
fn nbdinfo_sees_what_is_offered() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = memory(3 * MIB, 8 * MIB, |double| double.block_bytes(4096));
    let socket = listen(&mut engine, dir.path(), false);
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = tcp.local_addr().unwrap().port();
    serve(&mut engine, Listener::Tcp(tcp), ("over tcp", true), ClientPatience::default());
    let served = Served::start(engine, false);
    if let Some(text) = succeed("nbdinfo", &[&uri(&socket)]) {
        for line in [
            "using structured packets",
            "export-size: 3145728 (3M)",
            "base:allocation",
            "is_read_only: false",
            "can_df: true",
            "can_fast_zero: true",
            "can_flush: true",
            "can_fua: true",
            "can_multi_conn: true",
            "can_trim: true",
            "can_zero: true",
            "block_size_minimum: 4096",
            "block_size_maximum: 33554432",
        ] {
            assert!(text.contains(line), "no {line:?} in:\n{text}");
        }
        let list = succeed("nbdinfo", &["--list", &format!("nbd://127.0.0.1:{port}")]).unwrap();
        assert!(list.contains("export=\"over tcp\""), "{list}");
        assert!(list.contains("is_read_only: true"), "{list}");
        let map = succeed("nbdinfo", &["--map", &uri(&socket)]).unwrap();
        assert!(map.split_whitespace().eq(["0", "3145728", "0", "data"]), "{map}");
        let other = format!("nbd+unix:///other?socket={}", socket.display());
        assert!(!run("nbdinfo", &[&other]).unwrap().status.success());
    }
    served.stop();
}

#[test]
fn nbdcopy_and_qemu_read_back_what_was_written() {
    for threads in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let size = 48 * MIB;
        let mut engine = mirror(dir.path(), 2, size, 16 * MIB);
        let socket = listen(&mut engine, dir.path(), false);
        let served = Served::start(engine, threads);
        let source = dir.path().join("source");
        let back = dir.path().join("back");
        std::fs::write(&source, noise(11, size as usize)).unwrap();
        let [source, back] = [&source, &back].map(|path| path.to_str().unwrap());
        // Over four connections with requests of the largest size.
        let large = "--request-size=33554432";
        let copied = succeed("nbdcopy", &["-C4", "-R8", large, "--flush", source, &uri(&socket)]);
        if copied.is_some() {
            succeed("nbdcopy", &["-C4", &uri(&socket), back]);
            assert!(std::fs::read(source).unwrap() == std::fs::read(back).unwrap());
            succeed("nbdcopy", &["-C1", "-S0", large, &uri(&socket), back]);
            assert!(std::fs::read(source).unwrap() == std::fs::read(back).unwrap());
            succeed("qemu-img", &["compare", "-f", "raw", "-F", "raw", &uri(&socket), source]);
        }
        served.stop();
        let halves = ["0", "1"].map(|name| std::fs::read(dir.path().join(name)).unwrap());
        assert!(halves[0] == halves[1]);
    }
}

#[test]
fn qemu_io_patterns_hold() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = mirror(dir.path(), 2, 16 * MIB, 8 * MIB);
    let socket = listen(&mut engine, dir.path(), false);
    let read_only = listen(&mut engine, dir.path(), true);
    let served = Served::start(engine, false);
    let commands = [
        "write -P 1 0 16M",
        "write -f -P 2 1M 4M",
        "write -z 2M 1M",
        "write -z -u 4M 512k",
        "read -P 1 0 1M",
        "read -P 2 1M 1M",
        "read -P 0 2M 1M",
        "read -P 2 3M 1M",
        "read -P 0 4M 512k",
        "read -P 1 5M 11M",
        "discard 8M 1M",
        "flush",
    ];
    let mut args = vec!["-f", "raw"];
    commands.iter().for_each(|command| args.extend(["-c", command]));
    let location = uri(&socket);
    args.push(&location);
    if let Some(text) = succeed("qemu-io", &args) {
        assert!(!text.contains("failed"), "{text}");
        let location = uri(&read_only);
        let refused = run("qemu-io", &["-f", "raw", "-c", "write 0 4k", &location]).unwrap();
        assert!(!refused.status.success());
    }
    served.stop();
}

#[test]
fn nbdsh_gets_the_errors_of_the_protocol() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = memory(MIB, 8 * MIB, |double| double);
    let socket = listen(&mut engine, dir.path(), false);
    let read_only = listen(&mut engine, dir.path(), true);
    let served = Served::start(engine, false);
    let script = format!(
        r#"
import errno
h.set_strict_mode(0)
h.add_meta_context("base:allocation")
h.connect_uri("{}")
def refused(error, call):
    try:
        call()
    except nbd.Error as e:
        assert e.errnum == error, (e.errnum, error)
    else:
        assert False, "not refused"
for round in range(3):
    refused(errno.EINVAL, lambda: h.pread(512, 1 << 20))
    refused(errno.ENOSPC, lambda: h.pwrite(b"x" * 1024, (1 << 20) - 512))
    refused(errno.ENOSPC, lambda: h.zero(1024, (1 << 20) - 512))
    refused(errno.EINVAL, lambda: h.trim(1024, (1 << 20) - 512))
    refused(errno.EINVAL, lambda: h.pread(512, 1))
    refused(errno.EINVAL, lambda: h.pwrite(b"x" * 100, 0))
    refused(errno.EINVAL, lambda: h.pread(512, 0, flags=1 << 9))
    refused(errno.EINVAL, lambda: h.cache(512, 0))
    refused(errno.ENOTSUP, lambda: h.zero(512, 0, nbd.CMD_FLAG_FAST_ZERO))
    h.pwrite(b"%d" % round * 512, 512, nbd.CMD_FLAG_FUA)
    assert h.pread(1024, 0) == b"\0" * 512 + b"%d" % round * 512
    h.zero(512, 512, nbd.CMD_FLAG_NO_HOLE | nbd.CMD_FLAG_FUA)
    h.trim(512, 512, nbd.CMD_FLAG_FUA)
    h.flush()
    assert h.pread_structured(1 << 20, 0, lambda *a: 0, nbd.CMD_FLAG_DF)[512:1024] == b"\0" * 512
    extents = []
    h.block_status(65536, 512, lambda c, o, e, err: extents.append((c, o, e)))
    assert extents == [("base:allocation", 512, [65536, 0])], extents
h.shutdown()
r = nbd.NBD()
r.set_strict_mode(0)
r.connect_uri("{}")
refused(errno.EPERM, lambda: r.pwrite(b"x" * 512, 0))
refused(errno.EPERM, lambda: r.trim(512, 0))
refused(errno.EPERM, lambda: r.zero(512, 0))
assert r.pread(512, 0) == b"\0" * 512
r.flush()
s = nbd.NBD()
s.set_request_structured_replies(False)
s.set_strict_mode(0)
s.connect_uri("{}")
refused(errno.EINVAL, lambda: s.pread(512, 1 << 20))
refused(errno.EINVAL, lambda: s.pread(512, 0, flags=nbd.CMD_FLAG_DF))
s.pwrite(b"s" * 512, 0)
assert s.pread(1 << 20, 0)[:512] == b"s" * 512
print("all is well")
"#,
        uri(&socket),
        uri(&read_only),
        uri(&socket)
    );
    if let Some(text) = succeed("nbdsh", &["-c", &script]) {
        assert!(text.contains("all is well"), "{text}");
    }
    served.stop();
}

#[test]
fn fio_verifies_with_several_clients_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let mut engine = mirror(dir.path(), 2, 64 * MIB, 8 * MIB);
    let socket = listen(&mut engine, dir.path(), false);
    let served = Served::start(engine, false);
    let location = format!("--uri={}", uri(&socket));
    let job = [
        "--ioengine=nbd",
        &location,
        "--rw=randwrite",
        "--iodepth=16",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--verify_state_save=0",
        "--size=16m",
        "--offset_increment=16m",
        "--group_reporting",
    ];
    let mut args = vec!["--name=small", "--bs=4k", "--numjobs=2"];
    args.extend(job);
    args.extend(["--name=large", "--bs=256k", "--numjobs=1", "--offset=32m"]);
    args.extend(job);
    succeed("fio", &args);
    served.stop();
}
