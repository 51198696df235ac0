//! Alerts and metrics of running arrays.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::export::{fill, noise};
use crate::support::nodes::{all_in_sync, in_memory, members};
use crate::support::{Lab, install_script, until};

/// `braid monitor` in a process of its own, with its output.
pub(crate) struct Monitor {
    child: Child,
    lines: Receiver<String>,
}

impl Monitor {
    pub(crate) fn start(lab: &Lab, words: &[&str]) -> Self {
        let mut command = lab.braid();
        command.arg("monitor").args(words).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a monitor");
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let (to, lines) = channel();
        std::thread::spawn(move || {
            stdout.lines().map_while(Result::ok).all(|l| to.send(l).is_ok())
        });
        Self { child, lines }
    }

    /// The next line that it says.
    pub(crate) fn says(&self) -> String {
        self.lines.recv_timeout(Duration::from_secs(60)).expect("a line")
    }

    /// Ends it as a service manager does.
    pub(crate) fn stop(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("it runs");
        assert!(self.child.wait().expect("an end").success());
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

/// Creates a program that records its arguments, and a reader of the record.
fn noting(lab: &Lab) -> (String, impl Fn() -> Vec<String> + use<>) {
    noting_after(lab, "note", "")
}

/// Creates a recording program that first runs another command.
fn noting_after(lab: &Lab, name: &str, first: &str) -> (String, impl Fn() -> Vec<String> + use<>) {
    let program = lab.path(name);
    let notes = lab.path(&format!("{name}.notes"));
    let script = format!("#!/bin/sh\n{first}\nprintf '%s\\n' \"$*\" >> '{}'\n", notes.display());
    install_script(&script, &program);
    let noted = move || {
        let text = std::fs::read_to_string(&notes).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    };
    (program.display().to_string(), noted)
}

/// Starts a web server that fails once. Returns its address, and the posted objects.
fn hook() -> (String, Receiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/raid", listener.local_addr().expect("an address"));
    let (to, posted) = channel();
    std::thread::spawn(move || {
        let answers = ["503 Service Unavailable"].into_iter().chain(std::iter::repeat("200 OK"));
        for (stream, answer) in listener.incoming().zip(answers) {
            let mut stream = BufReader::new(stream.expect("a connection"));
            let head: Vec<String> = (&mut stream)
                .lines()
                .map(|line| line.expect("a head"))
                .take_while(|line| !line.is_empty())
                .collect();
            assert_eq!(head[0], "POST /raid HTTP/1.1");
            let length = head.iter().find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok()
            });
            let mut body = vec![0; length.expect("a length")];
            stream.read_exact(&mut body).expect("a body");
            let reply =
                format!("HTTP/1.1 {answer}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            stream.get_mut().write_all(reply.as_bytes()).expect("a client");
            if to.send(serde_json::from_slice(&body).expect("JSON")).is_err() {
                return;
            }
        }
    });
    (url, posted)
}

/// Returns the answer to a GET.
fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("a server");
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("a server");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

pub(crate) fn mirror(lab: &Lab) -> Vec<PathBuf> {
    let members = lab.members("m", 2, 16);
    lab.ok("create home --level 1 --raid-devices 2 --assume-clean", &members);
    lab.ok("assemble home", &members);
    members
}

fn has(noted: &[String], line: &str) -> bool {
    noted.iter().any(|noted| noted == line)
}

fn real(path: &Path) -> String {
    std::fs::canonicalize(path).expect("a member").display().to_string()
}

#[test]
fn a_lost_member_is_told_to_all_sinks_once() {
    let lab = Lab::new();
    let members = mirror(&lab);
    let (program, noted) = noting(&lab);
    let (url, posted) = hook();
    let words = ["--program", &program, "--webhook", &url, "--metrics", "127.0.0.1:0"];
    let monitor = Monitor::start(&lab, &words);
    let said = monitor.says();
    let address =
        said.strip_prefix("metrics at http://").and_then(|at| at.strip_suffix("/metrics"));
    let address = address.unwrap_or_else(|| panic!("{said}")).to_owned();
    let metric = |line: &str| get(&address, "/metrics").lines().any(|other| other == line);
    until("a whole array", || metric(r#"braid_array_members{array="home",state="active"} 2"#));
    assert!(metric(r#"braid_array_state{array="home",state="degraded"} 0"#));
    assert!(get(&address, "/").starts_with("HTTP/1.1 404 "));

    let lost = real(&members[1]);
    let fail = format!("Fail home {lost}");
    lab.ok("fail home", &members[1..]);
    until("Fail", || has(&noted(), &fail));
    assert_eq!(monitor.says(), fail);
    let [first, second] = [(); 2].map(|()| posted.recv_timeout(Duration::from_secs(60)).unwrap());
    assert_eq!(first, second, "it was refused at first, and came again");
    assert_eq!(
        (&first["event"], &first["array"], &first["member"]),
        (&json!("Fail"), &json!("home"), &json!(lost))
    );
    assert!(first["state"].as_array().unwrap().contains(&json!("degraded")), "{first}");
    let shown = |field: &str| first[field].as_str().is_some_and(|text| !text.is_empty());
    assert!(shown("uuid") && shown("host") && shown("time"), "{first}");
    until("a lost member", || metric(r#"braid_array_members{array="home",state="active"} 1"#));
    assert!(metric(r#"braid_array_members{array="home",state="failed"} 1"#));
    assert!(metric(r#"braid_array_state{array="home",state="degraded"} 1"#));
    assert!(metric(r#"braid_array_members_required{array="home"} 2"#));
    monitor.stop();

    let monitor = Monitor::start(&lab, &["--program", &program]);
    until("DegradedArray", || has(&noted(), "DegradedArray home"));
    monitor.stop();
    let monitor = Monitor::start(&lab, &["--program", &program, "--test"]);
    until("a test message", || has(&noted(), "TestMessage home"));
    lab.ok("remove home", &members[1..]);
    lab.ok("add home", &members[1..]);
    // Whatever was told at the start came before this.
    until("SpareActive", || has(&noted(), &format!("SpareActive home {lost}")));
    let noted = noted();
    for once in [&fail, "DegradedArray home"] {
        assert_eq!(noted.iter().filter(|line| *line == once).count(), 1, "{noted:?}");
    }
    monitor.stop();
}

#[test]
fn what_is_read_is_counted_for_the_array_and_its_members() {
    let lab = Lab::new();
    mirror(&lab);
    let monitor = Monitor::start(&lab, &["--metrics", "127.0.0.1:0"]);
    let said = monitor.says();
    let address = said.strip_prefix("metrics at http://").and_then(|at| at.split('/').next());
    let address = address.unwrap_or_else(|| panic!("{said}")).to_owned();
    // The sum of a metric's samples with this label.
    let sum = |name: &str, label: &str| -> f64 {
        let text = get(&address, "/metrics");
        let of = |line: &&str| line.starts_with(&format!("{name}{{")) && line.contains(label);
        let values = text.lines().filter(of).filter_map(|line| line.rsplit_once(' '));
        values.map(|(_, value)| value.parse::<f64>().expect("a number")).sum()
    };
    let bytes = lab.ok("cat home", &[]).len() as f64;
    until("reads", || sum("braid_array_read_bytes_total", "home") == bytes);
    let reads = sum("braid_requests_total", r#"op="read""#);
    assert!(reads > 0.0 && sum("braid_request_seconds_count", r#"op="read""#) == reads);
    // Superblocks were read and written, too.
    assert!(sum("braid_member_read_bytes_total", "home") >= bytes);
    let status: Value = serde_json::from_slice(&lab.ok("status home --json", &[])).expect("JSON");
    assert_eq!(status["io"]["read"]["bytes"].as_f64(), Some(bytes), "{status}");
    assert_eq!(status["io"]["in_flight"], 0, "{status}");
    let of_members = status["members"].as_array().expect("members").iter();
    let read: u64 = of_members.filter_map(|member| member["io"]["read"]["bytes"].as_u64()).sum();
    assert!(read as f64 >= bytes, "{status}");
    monitor.stop();
}

#[test]
fn arrays_that_come_and_go_are_told() {
    let lab = Lab::new();
    let members = mirror(&lab);
    let (program, _) = noting(&lab);
    let monitor = Monitor::start(&lab, &["--program", &program, "--test"]);
    assert_eq!(monitor.says(), "TestMessage home");
    lab.ok("stop home", &[]);
    assert_eq!(monitor.says(), "DeviceDisappeared home");
    lab.ok("assemble home", &members);
    assert_eq!(monitor.says(), "NewArray home");
    let line = lab.refused(1, &format!("monitor --program {program}"), &[], &[]);
    assert!(line.contains("another monitor"), "{line}");
    // What happens while there is no monitor is told by the next one.
    monitor.stop();
    lab.ok("stop home", &[]);
    let monitor = Monitor::start(&lab, &["--program", &program]);
    assert_eq!(monitor.says(), "DeviceDisappeared home");
}

/// Checks that messages left undelivered by a monitor are delivered by the next one.
#[test]
fn what_could_not_be_told_is_told_later() {
    let lab = Lab::new();
    mirror(&lab);
    let (program, noted) = noting(&lab);
    let away = lab.path("away");
    let monitor = Monitor::start(&lab, &["--program", &program, "--test"]);
    until("a test message", || has(&noted(), "TestMessage home"));
    assert_eq!(monitor.says(), "TestMessage home");
    std::fs::rename(&program, &away).expect("a program");
    lab.ok("stop home", &[]);
    assert_eq!(monitor.says(), "DeviceDisappeared home");
    monitor.stop();
    assert_eq!(noted(), ["TestMessage home"]);
    std::fs::rename(&away, &program).expect("a program");
    let monitor = Monitor::start(&lab, &["--program", &program]);
    until("what waited", || has(&noted(), "DeviceDisappeared home"));
    monitor.stop();
}

#[test]
fn a_program_that_hangs_holds_up_nobody() {
    let lab = Lab::new();
    let members = mirror(&lab);
    let wait = format!("while [ ! -e '{}' ]; do sleep 0.01; done", lab.path("go").display());
    let (hangs, late) = noting_after(&lab, "hangs", &wait);
    let (program, noted) = noting(&lab);
    let words = ["--program", &hangs, "--program", &program, "--test"];
    let monitor = Monitor::start(&lab, &words);
    assert_eq!(monitor.says(), "TestMessage home");
    lab.ok("fail home", &members[..1]);
    let fail = format!("Fail home {}", real(&members[0]));
    until("Fail", || has(&noted(), &fail));
    assert!(late().is_empty());
    std::fs::write(lab.path("go"), "").expect("room");
    until("what waited", || has(&late(), &fail));
    assert_eq!(late(), ["TestMessage home", &fail]);
    monitor.stop();
}

#[test]
fn once_tells_what_is_degraded_each_time() {
    let lab = Lab::new();
    let members = mirror(&lab);
    let (program, noted) = noting(&lab);
    let once = format!("monitor --oneshot --program {program}");
    assert_eq!(lab.ok_text(&once, &[]), "");
    lab.ok("fail home", &members[..1]);
    for _ in 0..2 {
        assert_eq!(lab.ok_text(&once, &[]), "DegradedArray home\n");
    }
    lab.ok(&format!("{once} --program {program}"), &[]);
    assert_eq!(noted(), ["DegradedArray home"; 3]);
    let line = lab.refused(2, "monitor --oneshot", &[], &[]);
    assert!(line.contains("nobody is told"), "{line}");
    let line = lab.refused(2, "monitor --webhook ftp://x/", &[], &[]);
    assert!(line.contains("no address of a web server"), "{line}");
    let line = lab.refused(1, "monitor --program", &[lab.path("none")], &[]);
    assert!(line.contains("no such file"), "{line}");
}

#[test]
fn what_nodes_do_is_counted_for_the_members_on_them() {
    let lab = Lab::new();
    let nodes = in_memory(&lab, 3);
    lab.ok(&format!("create x -l 5 -n 3 --size 4M{}", members(&nodes, "")), &[]);
    lab.ok(&format!("assemble x{} --export nbd:unix:x.sock", members(&nodes, "")), &[]);
    let of = |member: &Value, kind: &str, field: &str| {
        member["io"][kind][field].as_u64().unwrap_or_else(|| panic!("no {kind} in {member}"))
    };
    let known =
        || -> Value { serde_json::from_slice(&lab.ok("status x --json", &[])).expect("JSON") };
    let read = |status: &Value| {
        let all = status["members"].as_array().expect("members");
        all.iter().map(|member| of(member, "read", "bytes")).sum::<u64>()
    };
    // The export has looked at what lies on the array.
    let looked = read(&known());
    let content = noise(8 << 20);
    fill(&lab.path("x.sock"), "x", &content);
    assert!(lab.ok("cat x", &[]) == content);
    until("the end of all", || {
        let status = known();
        status["members"].as_array().expect("members").iter().all(|one| one["io"]["in_flight"] == 0)
    });
    let status = known();
    let all = status["members"].as_array().expect("members");
    let sum = |kind, field| all.iter().map(|member| of(member, kind, field)).sum::<u64>();
    assert_eq!(read(&status) - looked, 8 << 20);
    // With parity, and no more than once for each write, of 256 KiB.
    let written = sum("write", "bytes");
    assert!((12 << 20..=16 << 20).contains(&written), "{written} bytes");
    for member in all {
        assert!(of(member, "write", "operations") > 0 && of(member, "write", "total_ns") > 0);
        assert!(of(member, "flush", "operations") > 0, "{member}");
        assert_eq!(of(member, "read", "errors") + of(member, "write", "errors"), 0);
    }
    let monitor = Monitor::start(&lab, &["--metrics", "127.0.0.1:0"]);
    let said = monitor.says();
    let address = said.strip_prefix("metrics at http://").and_then(|at| at.split('/').next());
    let address = address.unwrap_or_else(|| panic!("{said}"));
    let counts = |text: &str| {
        let lines = text.lines().filter(|line| {
            line.starts_with("braid_member_latency_seconds_count{") && line.contains("op=\"write\"")
        });
        lines.count()
    };
    until("figures of all members", || counts(&get(address, "/metrics")) == nodes.len());
    monitor.stop();
}

#[test]
fn nodes_of_the_file_are_among_the_metrics() {
    let lab = Lab::new();
    let nodes = in_memory(&lab, 3);
    lab.ok(&format!("create x -l 5 -n 3 --size 1M{}", members(&nodes, "")), &[]);
    lab.ok(&format!("assemble x{}", members(&nodes, "")), &[]);
    let away = "127.0.0.1:1";
    let entry = |(at, listen): (usize, &str)| {
        format!("[node.n{at}]\nlisten = \"{listen}\"\nmemory = true\nno_key = true\n")
    };
    let listen = nodes.iter().map(|node| node.address.as_str()).chain([away]).enumerate();
    std::fs::write(lab.path("arrays.toml"), listen.map(entry).collect::<String>()).expect("a file");
    let monitor = Monitor::start(&lab, &["--metrics", "127.0.0.1:0", "--config", "arrays.toml"]);
    let said = monitor.says();
    let address = said.strip_prefix("metrics at http://").and_then(|at| at.split('/').next());
    let text = get(address.unwrap_or_else(|| panic!("{said}")), "/metrics");
    let node = &nodes[0].address;
    for line in [
        format!("braid_node_ready{{node=\"{node}\"}} 1"),
        format!("braid_node_ready{{node=\"{away}\"}} 0"),
        format!("braid_node_sessions{{node=\"{node}\",has=\"pipeline\"}} 1"),
        format!("braid_node_sessions{{node=\"{node}\",has=\"nothing\"}} 0"),
    ] {
        assert!(text.lines().any(|it| it == line), "{line} is not in {text}");
    }
    let epochs = text.lines().filter(|line| line.starts_with("braid_node_grant_epoch{"));
    assert_eq!(epochs.count(), nodes.len(), "{text}");
    monitor.stop();
}

#[test]
fn a_lost_node_is_told() {
    let lab = Lab::new();
    let mut nodes = in_memory(&lab, 3);
    let all = members(&nodes, "");
    lab.ok(&format!("create x --level 5 --raid-devices 3 --size 4M{all}"), &[]);
    lab.ok(&format!("assemble x{all} --node-timeout 1"), &[]);
    all_in_sync(&lab);
    let (program, _) = noting(&lab);
    let monitor = Monitor::start(&lab, &["--program", &program, "--test"]);
    let says = || std::iter::repeat_with(|| monitor.says()).find(|line| !line.starts_with("Reb"));
    assert_eq!(says().as_deref(), Some("TestMessage x"));
    let lost = nodes.pop().expect("three nodes");
    let address = lost.address.clone();
    lost.kill();
    let fail = says().expect("a line");
    assert!(fail.starts_with(&format!("Fail x node://{address}")), "{fail}");
    assert_eq!(says(), Some(format!("NodeLost x {address}")));
}
