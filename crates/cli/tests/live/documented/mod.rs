//! Typing of the commands in README, the book and the help texts. The output must match the page.

mod exceptions;
mod help;
mod json;
pub(crate) mod pages;
mod scenes;

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

use crate::support::{Lab, program, skip};
use exceptions::EXCEPTIONS;
use pages::{Block, Line};
use scenes::Scene;

const STAGE: &str = include_str!("stage.sh");

/// Paths of the pages lie in the directory of the test, and their nodes on this machine.
const SWAPS: &[(&str, &str)] = &[
    ("/dev/sd", "$LAB/dev/sd"),
    ("/dev/nvme", "$LAB/dev/nvme"),
    ("/run/", "$LAB/run/"),
    ("/etc/braid/", "$LAB/etc/braid/"),
    ("/srv/", "$LAB/srv/"),
    (":/mnt", ":$LAB/mnt"),
    (" /mnt", " $LAB/mnt"),
    ("10.0.0.", "$NET."),
    (":7000", ":$PORT"),
];

/// Each scene has loopback addresses of its own.
static SCENES: AtomicU16 = AtomicU16::new(0);

fn excepted(page: &str, line: &str) -> bool {
    let applies = |exception: &&exceptions::Exception| {
        (exception.page.is_empty() || exception.page == page) && line.starts_with(exception.line)
    };
    EXCEPTIONS.iter().any(|exception| applies(&exception))
}

fn missing(needed: &str) -> bool {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    let found = |name: &str| path.split(':').any(|dir| Path::new(dir).join(name).exists());
    if needed.starts_with('/') { !Path::new(needed).exists() } else { !found(needed) }
}

/// A scene as a bash script, with the expected output.
struct Script {
    text: String,
    printed: Vec<String>,
}

impl Script {
    fn of(scene: &Scene, blocks: &[Block]) -> Self {
        let mut script = Self { text: String::new(), printed: Vec::new() };
        let _ = writeln!(script.text, "{STAGE}\n{}", scene.before);
        for heading in scene.headings {
            let below =
                blocks.iter().filter(|block| block.page == scene.page && block.heading == *heading);
            let lines: Vec<&Line> = below.flat_map(|block| &block.lines).collect();
            assert!(!lines.is_empty(), "{}: nothing is typed below {heading}", scene.page);
            for line in lines {
                script.line(scene, line);
            }
        }
        script
    }

    fn line(&mut self, scene: &Scene, line: &Line) {
        let swapped = |line: &str| {
            let swaps = scene.swaps.iter().chain(SWAPS);
            swaps.fold(line.to_owned(), |line, (from, to)| line.replace(from, to))
        };
        let typed = match line {
            Line::Printed(printed) => return self.printed.push(swapped(printed)),
            Line::Typed(typed) if excepted(scene.page, typed) => return,
            Line::Typed(typed) => typed,
        };
        for (start, hook) in scene.hooks {
            if typed.starts_with(start) {
                let _ = writeln!(self.text, "{hook}");
            }
        }
        let line = swapped(typed);
        let refused = scene.refused.iter().any(|start| typed.starts_with(start));
        let _ = if refused {
            writeln!(self.text, "if {line}\nthen echo 'FAILED: that went well'; exit 1; fi")
        } else {
            writeln!(self.text, "{line}")
        };
    }

    /// Plays a scene; returns its failure.
    fn play(&self, scene: &Scene) -> Result<(), String> {
        let lab = Lab::new();
        let path = lab.path("script");
        std::fs::write(&path, &self.text).unwrap();
        let number = SCENES.fetch_add(1, Ordering::Relaxed);
        let net = format!("127.{}.{}", 1 + std::process::id() % 250, number);
        let programs = program().parent().unwrap().display().to_string();
        let mut bash = Command::new("timeout");
        bash.args(["120", "bash"]).arg(&path);
        bash.env("PATH", format!("{programs}:{}:/usr/sbin", std::env::var("PATH").unwrap()));
        bash.env("LAB", lab.path("").to_str().unwrap().trim_end_matches('/'));
        bash.env("NET", &net).env("PORT", "7010").env("BRAID_RUN_DIR", lab.path("run"));
        bash.env_remove("BRAID_KEY").stdin(Stdio::null());
        let output = std::fs::File::create(lab.path("output")).unwrap();
        bash.stdout(output.try_clone().unwrap()).stderr(output);
        let status = bash.status().unwrap();
        let text = std::fs::read_to_string(lab.path("output")).unwrap();
        let where_ = format!("{}: {}", scene.page, scene.headings.join(", "));
        if !status.success() {
            return Err(format!("{where_}: {status}\n{text}"));
        }
        self.compare(&lab, &net, &text)
            .map_err(|line| format!("{where_}: this is not printed, or not there: {line}\n{text}"))
    }

    /// Compares the output with the page: the lines must appear in order; figures may differ.
    /// Returns the first line that is missing.
    fn compare(&self, lab: &Lab, net: &str, text: &str) -> Result<(), String> {
        let here = lab.path("").display().to_string();
        let plain = |line: &str| {
            let line = line.replace("$LAB/", "").replace(&here, "").replace("$NET", net);
            let line = line.replace("$PORT", "7010");
            let figure = |c: char| if c.is_ascii_digit() { '#' } else { c };
            let mut line: String = line.trim().chars().map(figure).collect();
            while line.contains("##") {
                line = line.replace("##", "#");
            }
            line
        };
        let mut lines = text.lines().map(plain);
        for expected in &self.printed {
            let expected = plain(expected);
            if !lines.any(|line| line.starts_with(&expected)) {
                return Err(expected);
            }
        }
        Ok(())
    }
}

fn play(test: &str, scenes: &[Scene]) {
    let blocks = pages::blocks();
    let mut failed = Vec::new();
    for scene in scenes {
        if let Some(needed) = scene.needs.iter().find(|needed| missing(needed)) {
            skip(test, &format!("{needed} is needed"));
            continue;
        }
        failed.extend(Script::of(scene, &blocks).play(scene).err());
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn readme() {
    play("readme", scenes::README);
}

#[test]
fn start() {
    play("start", scenes::START);
}

#[test]
fn local_arrays() {
    play("local_arrays", scenes::LOCAL);
}

#[test]
fn growing() {
    play("growing", scenes::GROWING);
}

#[test]
fn exports() {
    play("exports", scenes::EXPORTS);
}

#[test]
fn operating() {
    play("operating", scenes::OPERATING);
}

#[test]
fn rescue() {
    play("rescue", scenes::RESCUE);
}

#[test]
fn at_3_am() {
    play("at_3_am", scenes::AT_3_AM);
}

#[test]
fn nodes() {
    play("nodes", scenes::NODES);
}

#[test]
fn help_of_commands_about_stopped_arrays() {
    play("help_of_commands_about_stopped_arrays", help::STORED);
}

#[test]
fn help_of_commands_about_running_arrays() {
    play("help_of_commands_about_running_arrays", help::RUNNING);
}

#[test]
fn help_of_commands_about_members() {
    play("help_of_commands_about_members", help::MEMBERS);
}

#[test]
fn help_of_commands_about_nodes() {
    play("help_of_commands_about_nodes", help::NODES);
}

/// Checks that exactly the commands that are not typed are among the exceptions.
#[test]
fn every_command_on_a_page_is_typed_or_an_exception() {
    let blocks = pages::blocks();
    let scenes = [
        scenes::README,
        scenes::START,
        scenes::LOCAL,
        scenes::GROWING,
        scenes::EXPORTS,
        scenes::OPERATING,
        scenes::RESCUE,
        scenes::AT_3_AM,
        scenes::NODES,
        help::STORED,
        help::RUNNING,
        help::MEMBERS,
        help::NODES,
    ];
    let played = |block: &Block| {
        scenes.iter().copied().flatten().any(|scene| {
            scene.page == block.page && scene.headings.contains(&block.heading.as_str())
        })
    };
    let mut findings = Vec::new();
    for block in blocks.iter().filter(|block| !played(block)) {
        let commands = block.typed().filter(|line| pages::calls_braid(line));
        let untyped = commands.filter(|line| !excepted(&block.page, line));
        findings.extend(untyped.map(|line| format!("{}: {}: {line}", block.page, block.heading)));
    }
    for exception in EXCEPTIONS {
        assert!(exception.reason.len() > 10, "no reason: {exception:?}");
        let meant = |block: &Block| {
            let page = exception.page.is_empty() || exception.page == block.page;
            page && block.typed().any(|line| line.starts_with(exception.line))
        };
        if !blocks.iter().any(meant) {
            findings.push(format!("stands nowhere: {exception:?}"));
        }
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}
