//! NBD clients we did not write: libnbd's tools and Python, and qemu's; also with bad requests.

use crate::braid_to_md::{create, members};
use crate::served::Served;
use crate::support::{self, Run, program, skip};
use braid_judges::Content;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Requests beyond the end, for nbdsh: refused, and the connection serves on.
const OUT_OF_RANGE: &str = "
import errno
h.set_strict_mode(0)
size = h.get_size()
def refused(request):
    try:
        request()
    except nbd.Error as error:
        assert error.errnum in (errno.EINVAL, errno.ENOSPC), error
        return
    raise AssertionError('served a bad request')
refused(lambda: h.pread(4096, size))
refused(lambda: h.pread(4096, size - 512))
refused(lambda: h.pread(512, (1 << 63) - 512))
refused(lambda: h.pwrite(bytes(4096), size - 512))
refused(lambda: h.zero(1 << 31, size - 4096))
refused(lambda: h.trim(1 << 31, size - 4096))
assert len(h.pread(4096, 0)) == 4096
";

fn available() -> Result<(), String> {
    ["nbdcopy", "nbdinfo", "nbdsh", "qemu-img", "qemu-io"].into_iter().try_for_each(program)
}

fn raid5(test: &str) -> (Vec<PathBuf>, Served) {
    let members = members(test, 3, 16 << 20);
    create(test, "5", &members, &["--chunk", "64K"]);
    let served = Served::start(test, &members, &[]);
    (members, served)
}

#[test]
fn nbdinfo_and_nbdsh_see_what_we_offer() {
    if let Err(reason) = available() {
        return skip("nbdinfo_and_nbdsh_see_what_we_offer", &reason);
    }
    let (_, served) = raid5("offer");
    let info = Run::of(Command::new("nbdinfo").arg("--json").arg(served.uri()));
    let info: serde_json::Value =
        serde_json::from_str(&info.expect_success("nbdinfo").stdout).expect("JSON");
    assert_eq!(info["protocol"], "newstyle-fixed", "{info}");
    assert_eq!(info["structured"], true, "{info}");
    let export = &info["exports"][0];
    assert_eq!(export["export-size"], served.size_bytes(), "{info}");
    for can in ["can_flush", "can_fua", "can_multi_conn", "can_trim", "can_zero"] {
        assert_eq!(export[can], true, "{can}: {info}");
    }
    assert_eq!(export["is_read_only"], false, "{info}");
    let map = Run::of(Command::new("nbdinfo").arg("--map").arg(served.uri()));
    assert!(map.expect_success("block status").stdout.lines().count() > 0);
    served
        .nbdsh(
            "data = bytes(range(256)) * 16\n\
             h.pwrite(data, 8192, flags=nbd.CMD_FLAG_FUA)\n\
             assert h.pread(4096, 8192) == data\n\
             assert h.pread(1024, 7680) == bytes(512) + data[:512]\n\
             h.pwrite(data[1:513], 8704)\n\
             assert h.pread(1024, 8192) == data[:512] + data[1:513]\n\
             h.zero(4096, 8192)\n\
             assert h.pread(4096, 8192) == bytes(4096)\n\
             h.trim(65536, 131072)\n\
             h.flush()\n\
             many = [(nbd.Buffer(65536), i * 65536) for i in range(64)]\n\
             cookies = [h.aio_pread(buffer, at) for buffer, at in many]\n\
             while h.aio_in_flight() > 0: h.poll(-1)\n\
             assert all(h.aio_command_completed(cookie) for cookie in cookies)\n",
        )
        .expect_success("requests of every kind");
    served.stop();
}

#[test]
fn qemu_reads_what_it_wrote() {
    if let Err(reason) = available() {
        return skip("qemu_reads_what_it_wrote", &reason);
    }
    let (members, served) = raid5("qemu");
    let content = Content::of(31);
    served.fill(&content);
    let image = members[0].with_file_name("copy");
    let convert = |from: &str, to: &str, more: &[&str]| {
        let mut command = Command::new("qemu-img");
        command.args(["convert", "-f", "raw", "-O", "raw"]).args(more).args([from, to]);
        Run::of(&mut command).expect_success("qemu-img convert");
    };
    let uri = served.uri();
    let path = image.display().to_string();
    convert(&uri, &path, &["-W", "-m", "8"]);
    let mut file = std::fs::File::open(&image).expect("the copy");
    assert_eq!(content.check(&mut file, 0, served.size_bytes()), Ok(()));
    let io = Run::of(Command::new("qemu-io").args(["-f", "raw", &uri]).args([
        "-c",
        "write -P 0xa5 1000k 300k",
        "-c",
        "write -f -P 0x5a 1536 512",
        "-c",
        "write -z 2M 192k",
        "-c",
        "discard 4M 1M",
        "-c",
        "flush",
        "-c",
        "read -P 0xa5 1000k 300k",
        "-c",
        "read -P 0x5a 1536 512",
        "-c",
        "read -P 0 2M 192k",
    ]));
    let io = io.expect_success("qemu-io");
    assert!(!io.stdout.contains("Pattern verification failed"), "{io}");
    convert(&path, &uri, &["-n", "-W", "-m", "8"]);
    served.expect(&content, "after qemu-img wrote it back");
    let compare = Run::of(
        Command::new("qemu-img").args(["compare", "-f", "raw", "-F", "raw"]).args([&path, &uri]),
    );
    compare.expect_success("qemu-img compare");
    served.wait_until_whole();
    assert_eq!(served.check(), 0, "mismatches");
    served.stop();
}

#[test]
fn several_clients_at_once() {
    if let Err(reason) = available() {
        return skip("several_clients_at_once", &reason);
    }
    let (members, served) = raid5("several");
    let first = Content::of(41);
    let second = Content::of(42);
    served.fill(&first);
    let half = served.size_bytes() / 2 / 4096 * 4096;
    std::thread::scope(|scope| {
        for quarter in [0, 1] {
            let served = &served;
            let content = &second;
            let at = quarter * half / 2;
            let file = members[0].with_file_name(format!("part-{quarter}"));
            scope.spawn(move || write_from(served, &file, content, at, half / 2));
        }
        scope.spawn(|| served.nbdsh(&format!("[h.pread(1 << 20, {half}) for i in range(50)]")));
    });
    served.expect(&first.then(42, 0, half / 2 * 2), "written by two at once");
    served.stop();
}

/// Writes a part with libnbd, by way of a file, and flushes.
fn write_from(served: &Served, file: &Path, content: &Content, offset: u64, length: u64) {
    let mut bytes = Vec::new();
    content.write(&mut bytes, offset, length).expect("memory");
    std::fs::write(file, bytes).expect("a file");
    let step = 1 << 20;
    let script = format!(
        "data = open('{}', 'rb').read()\n\
         for at in range(0, len(data), {step}):\n    \
             h.pwrite(data[at:at + {step}], {offset} + at)\n\
         h.flush()",
        file.display()
    );
    served.nbdsh(&script).expect_success("writing with nbdsh");
}

#[test]
fn bad_requests_are_refused_and_harm_nobody() {
    if let Err(reason) = available() {
        return skip("bad_requests_are_refused_and_harm_nobody", &reason);
    }
    let (_, served) = raid5("bad-requests");
    let content = Content::of(51);
    served.fill(&content);
    served.nbdsh(OUT_OF_RANGE).expect_success("requests out of range");
    for garbage in
        [&b""[..], b"GET / HTTP/1.1\r\n\r\n", &[0xff; 4096], &hostile_option(), &hostile_request()]
    {
        let mut stream = UnixStream::connect(served.socket()).expect("a connection");
        let _ = stream.write_all(garbage);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).expect("a timeout");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("the server closes the connection");
    }
    served.expect(&content, "after bad requests");
    served.stop();
}

/// An option whose length is nearly 4 GiB.
fn hostile_option() -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, 3];
    bytes.extend(b"IHAVEOPT");
    bytes.extend([0, 0, 0, 7, 0xff, 0xff, 0xff, 0xf0]);
    bytes
}

/// `NBD_OPT_EXPORT_NAME`, then a write of nearly 4 GiB of which nothing follows.
fn hostile_request() -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, 3];
    bytes.extend(b"IHAVEOPT");
    bytes.extend([0, 0, 0, 1, 0, 0, 0, 0]);
    bytes.extend([0x25, 0x60, 0x95, 0x13, 0, 0, 0, 1]);
    bytes.extend([0; 16]);
    bytes.extend([0xff, 0xff, 0xf0, 0]);
    bytes
}

#[test]
fn a_read_only_array_stays_as_it_is() {
    if let Err(reason) = available() {
        return skip("a_read_only_array_stays_as_it_is", &reason);
    }
    let (members, served) = raid5("read-only");
    let content = Content::of(61);
    served.fill(&content);
    served.stop();
    let before = support::fingerprints(&members);
    let served = Served::readonly("read-only", &members);
    served
        .nbdsh(
            "import errno\n\
             h.set_strict_mode(0)\n\
             assert h.is_read_only()\n\
             try:\n    h.pwrite(bytes(512), 0)\n    raise AssertionError('written')\n\
             except nbd.Error as error:\n    assert error.errnum == errno.EPERM, error\n",
        )
        .expect_success("a write to a read-only array");
    served.expect(&content, "read-only");
    served.stop();
    assert_eq!(support::fingerprints(&members), before, "a read-only array was written");
}
