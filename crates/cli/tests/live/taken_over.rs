//! An array over nodes that another client takes over while the first one is there.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use crate::support::export::{ask, connect, fill, noise};
use crate::support::nodes::{in_memory, members};
use crate::support::{Lab, until};

const BYTES: usize = 3 << 20;

#[test]
fn a_client_whose_array_is_taken_over_says_so_and_ends() {
    // The other client is on another machine.
    let lab = Lab::new();
    let other = Lab::new();
    let nodes = in_memory(&lab, 4);
    let all = members(&nodes, "");
    lab.ok(&format!("create x -l 5 -n 4 --size 1M --assume-clean{all}"), &[]);
    let serve = format!("assemble x{all} --export nbd:unix:x.sock");
    let mut first = lab.braid();
    first.args(serve.split_whitespace()).arg("--foreground").stderr(Stdio::piped());
    let mut first = first.spawn().expect("a server");
    let socket = lab.path("x.sock");
    until("an array that is served", || lab.run("status x", &[]).status.success());
    until("an export", || UnixStream::connect(&socket).is_ok());
    let content = noise(BYTES);
    fill(&socket, "x", &content);
    let mut user = connect(&socket, "x", BYTES);

    let line = other.refused(1, &serve, &[], &[]);
    assert!(line.contains("in use by another client") && line.contains("--take-over"), "{line}");
    other.ok(&format!("{serve} --take-over"), &[]);
    let status = first.wait().expect("an end");
    let mut said = String::new();
    first.stderr.take().expect("a pipe").read_to_string(&mut said).unwrap();
    assert_eq!(status.code(), Some(1), "{said}");
    let why = "braid: assemble x: another client has taken the array over; use that one\n";
    assert!(said.ends_with(why), "{said}");
    assert!(ask(&mut user, 1, 0, &[1; 4096]).is_err(), "its export is over");
    assert!(!socket.exists());
    assert!(!lab.run("status x", &[]).status.success());

    assert!(other.ok("cat x", &[]) == content);
    other.ok("stop x", &[]);
}
