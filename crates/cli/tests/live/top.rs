//! `braid top` in a terminal.

use std::io::{Read, Write};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use crate::support::terminal::terminal;
use crate::support::{Lab, until};

#[test]
fn a_terminal_shows_what_happens_and_is_left_as_it_was() {
    let lab = Lab::new();
    let members = lab.members("m", 2, 16);
    lab.ok("create home --level 1 --raid-devices 2 --assume-clean", &members);
    lab.ok("assemble home", &members);
    let (mut screen, terminal) = terminal();
    let mut command = lab.braid();
    command.arg("top").env("TERM", "xterm-256color");
    command.stdin(terminal.try_clone().unwrap()).stdout(terminal).stderr(Stdio::piped());
    let mut child = command.spawn().expect("braid");
    // Its ends of the terminal go with it.
    drop(command);
    let shown = Arc::new(Mutex::new(String::new()));
    let mut reader = screen.try_clone().unwrap();
    let to = Arc::clone(&shown);
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(len @ 1..) = reader.read(&mut buffer) {
            to.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..len]));
        }
    });
    let has = |word: &str| shown.lock().unwrap().contains(word);
    // Where nothing stands it moves on, so that words are told one by one.
    until("the array", || has("home") && has("Members") && has("raid1"));
    assert!(!has("faulty"));
    lab.ok("fail home", &members[..1]);
    until("what has happened", || has("faulty") && has("degraded") && has("Fail"));
    screen.write_all(b"q").unwrap();
    assert!(child.wait().unwrap().success());
    until("the other screen", || has("\u{1b}[?1049l"));

    let line = lab.refused(1, "top", &[], &[]);
    assert!(line.contains("stdout is no terminal; run it in a terminal"), "{line}");
}
