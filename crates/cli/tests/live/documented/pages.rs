//! The pages that tell people what to type, and their lines. Unit tests of the parsers of `braid`
//! and `braid-bench` include this file, too.
#![allow(dead_code, reason = "each of them uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::Command;

/// Lines of a page that are typed one after the other, and their output.
#[derive(Debug)]
pub(crate) struct Block {
    /// `README.md`, `docs/start.md`; the help of commands is on `docs/commands.md`.
    pub(crate) page: String,
    /// The heading above it.
    pub(crate) heading: String,
    /// In order.
    pub(crate) lines: Vec<Line>,
}

/// A line of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A command line; a line that ends with a backslash is joined with the next one.
    Typed(String),
    /// A line of output.
    Printed(String),
}

impl Block {
    pub(crate) fn typed(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().filter_map(|line| match line {
            Line::Typed(typed) => Some(typed.as_str()),
            Line::Printed(_) => None,
        })
    }
}

/// The blocks in which `braid` is called.
pub(crate) fn blocks() -> Vec<Block> {
    let mut found = all_blocks();
    found.retain(|block| block.typed().any(calls_braid));
    assert!(found.len() > 60, "{} blocks", found.len());
    found
}

/// All of them.
pub(crate) fn all_blocks() -> Vec<Block> {
    let mut found = Vec::new();
    for page in pages() {
        let text = std::fs::read_to_string(root().join(&page)).expect("a page");
        found.extend(blocks_of(&page, &text));
    }
    found
}

/// Returns whether this line calls `braid`.
pub(crate) fn calls_braid(line: &str) -> bool {
    let starts = |at: &str| at.starts_with("braid ") || at.starts_with("braid-bench ");
    let after = ["; ", "&& ", "do ", "| ", "("];
    starts(line) || after.iter().any(|word| line.split(word).skip(1).any(starts))
}

/// The words of each call of `braid`, as bash makes them of a block.
pub(crate) fn calls(block: &Block) -> Vec<Vec<String>> {
    let recorder = tempfile::tempdir().expect("a directory");
    let to = recorder.path().join("calls");
    let braid = format!("braid() {{ printf '%s\\0' \"$@\" '\n' >>'{}'; }}", to.display());
    let script: Vec<&str> = std::iter::once(braid.as_str()).chain(block.typed()).collect();
    // Nothing else is found: what is typed beside `braid` is not done.
    let mut bash = Command::new("/bin/bash");
    bash.arg("-c").arg(script.join("\n")).env("PATH", recorder.path()).env("BRAID_CONFIG", "");
    bash.current_dir(recorder.path()).stdin(std::process::Stdio::null());
    bash.output().expect("bash runs");
    let words = std::fs::read_to_string(&to).unwrap_or_default();
    let calls = words.split("\n\0").filter(|call| !call.is_empty());
    calls.map(|call| call.trim_end_matches('\0').split('\0').map(str::to_owned).collect()).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn pages() -> Vec<String> {
    let docs = std::fs::read_dir(root().join("docs")).expect("the documentation");
    let names = docs.map(|entry| entry.expect("a page").file_name().into_string().expect("a name"));
    let pages = names.filter(|name| name.ends_with(".md")).map(|name| format!("docs/{name}"));
    let mut pages: Vec<String> = pages.chain(["README.md".to_owned()]).collect();
    pages.sort();
    pages
}

fn blocks_of(page: &str, text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut heading = String::new();
    let mut fence: Option<Vec<&str>> = None;
    let mut indented: Vec<&str> = Vec::new();
    for line in text.lines().chain([""]) {
        if let Some(inside) = &mut fence {
            if line == "```" {
                blocks.extend(block(page, &heading, inside));
                fence = None;
            } else {
                inside.push(line);
            }
        } else if line.starts_with("```") {
            fence = Some(Vec::new());
        } else if let Some(code) = line.strip_prefix("    ") {
            indented.push(code);
        } else {
            blocks.extend(block(page, &heading, &indented));
            indented.clear();
            if line.starts_with('#') {
                line.trim_start_matches(['#', ' ']).clone_into(&mut heading);
            }
        }
    }
    blocks
}

/// Returns the block, if anything in it is typed.
fn block(page: &str, heading: &str, code: &[&str]) -> Option<Block> {
    let lines = if page == "docs/commands.md" { examples(code) } else { lines(code) };
    let block = Block { page: page.to_owned(), heading: heading.to_owned(), lines };
    let is_empty = block.lines.is_empty();
    (!is_empty).then_some(block)
}

/// Reads lines. If some begin with `$`, the others are output; otherwise all are typed.
fn lines(code: &[&str]) -> Vec<Line> {
    let prompted = code.iter().any(|line| line.starts_with("$ "));
    let mut lines: Vec<Line> = Vec::new();
    for line in code {
        let typed = if prompted { line.strip_prefix("$ ") } else { Some(*line) };
        match (typed, lines.last_mut()) {
            (_, Some(Line::Typed(before))) if before.ends_with('\\') => {
                before.pop();
                before.push_str(line.trim_start());
            }
            (Some(typed), _) => lines.push(Line::Typed(typed.to_owned())),
            (None, _) => lines.push(Line::Printed((*line).to_owned())),
        }
    }
    lines
}

/// Returns the examples at the end of a command's help, without the notes after three spaces.
fn examples(help: &[&str]) -> Vec<Line> {
    let after = help.iter().skip_while(|line| !matches!(**line, "Example:" | "Examples:")).skip(1);
    let lines = after.map_while(|line| line.strip_prefix("  "));
    let command = |line: &str| line.split("   ").next().unwrap_or_default().to_owned();
    lines.map(|line| Line::Typed(command(line))).collect()
}
