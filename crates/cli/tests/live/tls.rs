//! NBD by TLS: only clients with a certificate are admitted.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::export::noise;
use crate::support::{Lab, skip};
use serde_json::Value;

const TOOLS: [&str; 4] = ["openssl", "nbdinfo", "nbdcopy", "qemu-img"];

fn missing() -> Option<&'static str> {
    TOOLS.into_iter().find(|tool| Command::new(tool).arg("--version").output().is_err())
}

fn openssl(dir: &Path, words: &str) {
    let output = Command::new("openssl").args(words.split(' ')).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "openssl {words}: {output:?}");
}

/// A directory with a CA, and a key and certificate for a server and for a client.
pub(crate) fn certificates(lab: &Lab, name: &str) -> PathBuf {
    let dir = lab.path(name);
    std::fs::create_dir(&dir).unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(
        &dir,
        &format!("req -x509 {key} -keyout ca-key.pem -out ca-cert.pem -days 2 -subj /CN={name}"),
    );
    for (whose, extensions) in [
        ("server", "subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth\n"),
        ("client", "extendedKeyUsage=clientAuth\n"),
    ] {
        std::fs::write(dir.join("extensions"), extensions).unwrap();
        let subject = format!("-keyout {whose}-key.pem -out request -subj /CN={whose}");
        openssl(&dir, &format!("req {key} {subject}"));
        let sign = "x509 -req -in request -CA ca-cert.pem -CAkey ca-key.pem -days 2";
        openssl(&dir, &format!("{sign} -extfile extensions -out {whose}-cert.pem"));
    }
    dir
}

/// A directory with some files of another one.
fn some_of(lab: &Lab, name: &str, dir: &Path, files: &[&str]) -> PathBuf {
    let some = lab.path(name);
    std::fs::create_dir(&some).unwrap();
    for file in files {
        std::fs::copy(dir.join(file), some.join(file)).unwrap();
    }
    some
}

fn run(tool: &str, args: &[&str]) -> Output {
    Command::new(tool).args(args).output().expect(tool)
}

fn text(tool: &str, args: &[&str]) -> String {
    let output = run(tool, args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{tool} {args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// A mirror that is served by TLS; the port.
fn serve(lab: &Lab, dir: &Path) -> String {
    let members = lab.members("m", 2, 64);
    lab.ok("create home --level 1 --raid-devices 2 --assume-clean", &members);
    let export = format!("--export nbd:tcp:0.0.0.0:0,tls={}", dir.display());
    lab.ok(&format!("assemble home {export}"), &members);
    let status: Value = serde_json::from_slice(&lab.ok("status home --json", &[])).unwrap();
    let shown = status["exports"][0].as_str().unwrap().to_owned();
    let (address, tls) = shown.split_once(',').expect("options");
    assert_eq!(tls, format!("tls={}", dir.display()));
    address.rsplit_once(':').unwrap().1.to_owned()
}

fn uri(port: &str, certificates: &Path) -> String {
    format!("nbds://localhost:{port}/home?tls-certificates={}", certificates.display())
}

#[test]
fn who_has_a_certificate_reads_what_was_written() {
    if let Some(tool) = missing() {
        return skip("who_has_a_certificate_reads_what_was_written", &format!("it needs {tool}"));
    }
    let lab = Lab::new();
    let dir = certificates(&lab, "ca");
    let port = serve(&lab, &dir);
    let uri = uri(&port, &dir);
    let info: Value = serde_json::from_str(&text("nbdinfo", &["--json", &uri])).unwrap();
    assert_eq!(info["TLS"], true, "{info}");
    assert_eq!(info["structured"], true, "{info}");
    let bytes = info["exports"][0]["export-size"].as_u64().unwrap() as usize;

    let content = noise(bytes);
    let source = lab.path("in");
    std::fs::write(&source, &content).unwrap();
    let source = source.to_str().unwrap();
    let back = lab.path("out");
    for request in ["--request-size=33554432", "--request-size=4096", "--request-size=262144"] {
        text("nbdcopy", &["-C4", "-R8", request, "--flush", source, &uri]);
        assert!(lab.ok("cat home", &[]) == content, "{request}");
        text("nbdcopy", &["-C4", request, &uri, back.to_str().unwrap()]);
        assert!(std::fs::read(&back).unwrap() == content, "{request}");
    }
    let credentials = format!("tls-creds-x509,id=t,endpoint=client,dir={}", dir.display());
    let image = format!("driver=nbd,host=localhost,port={port},export=home,tls-creds=t");
    std::fs::remove_file(&back).unwrap();
    let copy = ["--object", &credentials, "--image-opts", &image, "-O", "raw"];
    text("qemu-img", &[&["convert"][..], &copy, &[back.to_str().unwrap()]].concat());
    assert!(std::fs::read(&back).unwrap() == content, "QEMU reads the same");
    lab.ok("stop home", &[]);
}

#[test]
fn who_has_none_is_refused_and_told_nothing() {
    if let Some(tool) = missing() {
        return skip("who_has_none_is_refused_and_told_nothing", &format!("it needs {tool}"));
    }
    let lab = Lab::new();
    let dir = certificates(&lab, "ca");
    let other = certificates(&lab, "other");
    let port = serve(&lab, &dir);
    let nobody = some_of(&lab, "nobody", &dir, &["ca-cert.pem"]);
    let stranger = some_of(&lab, "stranger", &other, &["client-cert.pem", "client-key.pem"]);
    std::fs::copy(dir.join("ca-cert.pem"), stranger.join("ca-cert.pem")).unwrap();
    let plain = format!("nbd://localhost:{port}/home");
    for refused in [plain.as_str(), &uri(&port, &nobody), &uri(&port, &stranger)] {
        let output = run("nbdinfo", &["--size", refused]);
        assert!(!output.status.success() && output.stdout.is_empty(), "{refused}: {output:?}");
        let list = run("nbdinfo", &["--list", "--json", refused]);
        assert!(!String::from_utf8_lossy(&list.stdout).contains("home"), "{refused}: {list:?}");
    }
    // Whoever asks for the list in the clear is told that it takes TLS.
    let mut client = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    client.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x03\0\0\0\0").unwrap();
    let mut reply = [0; 18 + 20];
    client.read_exact(&mut reply).unwrap();
    assert_eq!(reply[30..34], 0x8000_0005_u32.to_be_bytes(), "TLS_REQD");
    // The old way to choose an export has no answer for that.
    client.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\x04home").unwrap();
    let mut said = Vec::new();
    let _ = client.read_to_end(&mut said);
    assert!(!said.windows(4).any(|word| word == b"home") && said.len() < 100, "{said:?}");

    // What is no TLS after the option, and what says nothing, harm nobody.
    for noise in [&b"IHAVEOPT\0\0\0\x03\0\0\0\0"[..], &[0x16, 3, 1, 0xff, 0xff], &[0; 70_000]] {
        let mut client = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
        client.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x05\0\0\0\0").unwrap();
        // The server may have hung up.
        let _ = client.write_all(noise);
        let _ = client.shutdown(std::net::Shutdown::Write);
        let mut said = Vec::new();
        let _ = client.read_to_end(&mut said);
        assert!(said.len() < 100, "{} bytes", said.len());
    }
    let log = std::fs::read_to_string(lab.path("run/home.log")).unwrap();
    assert!(log.contains("refused: TLS: "), "{log}");
    text("nbdinfo", &["--size", &uri(&port, &dir)]);
}

#[test]
fn certificates_that_will_not_do_are_refused_by_name() {
    if let Some(tool) = missing() {
        let test = "certificates_that_will_not_do_are_refused_by_name";
        return skip(test, &format!("it needs {tool}"));
    }
    let lab = Lab::new();
    let dir = certificates(&lab, "ca");
    let other = certificates(&lab, "other");
    let members = lab.members("m", 2, 32);
    lab.ok("create home --level 1 --raid-devices 2 --assume-clean", &members);
    lab.ok("assemble home", &members);
    some_of(&lab, "empty", &dir, &[]);
    let server = ["server-cert.pem", "server-key.pem"];
    some_of(&lab, "open", &dir, &server);
    some_of(&lab, "keyless", &dir, &server[..1]);
    let mixed = some_of(&lab, "mixed", &dir, &["server-cert.pem", "ca-cert.pem"]);
    std::fs::copy(other.join("server-key.pem"), mixed.join("server-key.pem")).unwrap();
    let noise = some_of(&lab, "noise", &dir, &["server-key.pem", "ca-cert.pem"]);
    std::fs::write(noise.join("server-cert.pem"), "none").unwrap();
    let revoked = some_of(&lab, "revoked", &dir, &["server-cert.pem", "server-key.pem"]);
    std::fs::write(revoked.join("ca-crl.pem"), "").unwrap();
    let table = [
        ("127.0.0.1:0,tls=gone", "gone/server-cert.pem: no such file", "tls=DIR needs"),
        ("127.0.0.1:0,tls=empty", "empty/server-cert.pem: no such file", "tls=DIR needs"),
        ("127.0.0.1:0,tls=keyless", "keyless/server-key.pem: no such file", "server-key.pem"),
        ("127.0.0.1:0,tls=noise", "noise/server-cert.pem: has no certificate", "tls=DIR needs"),
        ("127.0.0.1:0,tls=mixed", "mixed/server-cert.pem: ", "make key and certificates anew"),
        ("127.0.0.1:0,tls=revoked", "what is revoked", "take ca-crl.pem away"),
        ("127.0.0.1:0,tls=", "has no directory", "use tls=DIR"),
        ("0.0.0.0:0,tls=open", "has no ca-cert.pem", "--insecure"),
        ("0.0.0.0:0", "nothing is encrypted", "tls=DIR"),
    ];
    for (export, said, next) in table {
        let output = lab.run(&format!("export home add nbd:tcp:{export}"), &[]);
        let line = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{export}");
        let (reason, step) = line.split_once("; ").unwrap_or_else(|| panic!("{export}: {line}"));
        assert!(reason.contains(said) && step.contains(next), "{export}: {line}");
    }
    lab.ok("export home add nbd:tcp:127.0.0.1:0,tls=open,readonly", &[]);
    let added = lab.ok_text("export home add nbd:tcp:127.0.0.1:0,tls=ca,name=a,size=1M", &[]);
    // A second disk at the same address is behind the same certificates.
    let (address, _) = added.trim().strip_prefix("home: added ").unwrap().split_once(',').unwrap();
    let line = lab.refused(1, &format!("export home add {address},tls=open,name=b"), &[], &[]);
    assert!(line.contains("with other certificates"), "{line}");
    let said = lab.ok_text(&format!("export home add {address},name=b,offset=1M,size=1M"), &[]);
    assert!(said.contains("tls="), "{said}");
}
