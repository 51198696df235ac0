//! Generation of `docs/commands.md` from the definitions of the arguments, so that the pages tell
//! people to type only words that the parser takes.

use std::fmt::Write as _;
use std::path::Path;

use clap::{Command, CommandFactory, Parser};

use super::Cli;

#[path = "../../tests/live/documented/pages.rs"]
mod pages;

const COLUMNS: usize = 96;

const HEAD: &str = "\
# Commands

This page is made of the definitions of the arguments by `make reference`; a test compares them.
Every command prints its part of it with `--help`, and has a man page.
";

/// One section for each command, with what its `--help` prints.
fn reference(command: &Command, name: &str, text: &mut String) {
    let help = command.clone().bin_name(name).term_width(COLUMNS).render_long_help().to_string();
    let _ = write!(text, "\n## {name}\n\n");
    let shown: Vec<&str> = command.get_visible_aliases().collect();
    let hidden = command.get_all_aliases().filter(|alias| !shown.contains(alias));
    let hidden: Vec<String> = hidden.map(|alias| format!("`{alias}`")).collect();
    if !hidden.is_empty() {
        let _ = write!(text, "Also taken as {}.\n\n", hidden.join(", "));
    }
    text.push_str("```text\n");
    for line in help.trim_end().lines() {
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text.push_str("```\n");
    for command in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        if command.get_name() != "help" {
            reference(command, &format!("{name} {}", command.get_name()), text);
        }
    }
}

#[test]
fn the_page_of_commands_is_what_the_definitions_say() {
    let mut command = Cli::command();
    command.build();
    let mut made = HEAD.to_owned();
    reference(&command, "braid", &mut made);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands.md");
    if std::env::var_os("BRAID_WRITE_REFERENCE").is_some() {
        std::fs::write(&path, &made).expect("the page is written");
    }
    let there = std::fs::read_to_string(&path).expect("the page");
    let lines = made.lines().zip(there.lines());
    let differing = lines.enumerate().find(|(_, (made, there))| made != there);
    assert_eq!(differing, None, "docs/commands.md is old: make reference");
    assert_eq!(made.lines().count(), there.lines().count(), "docs/commands.md: make reference");
}

#[test]
fn every_command_has_an_example() {
    fn missing(command: &Command, name: &str, found: &mut Vec<String>) {
        let commands = command.get_subcommands().filter(|it| !it.is_hide_set());
        let mut within = commands.filter(|it| it.get_name() != "help").peekable();
        let is_command = within.peek().is_none() || name == "braid";
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        if is_command && !help.lines().any(|line| line.starts_with("Example")) {
            found.push(name.to_owned());
        }
        for command in within {
            missing(command, &format!("{name} {}", command.get_name()), found);
        }
    }
    let mut found = Vec::new();
    missing(&Cli::command(), "braid", &mut found);
    assert_eq!(found, [""; 0], "no example in the help of these");
}

#[test]
fn what_pages_and_help_tell_people_to_type_is_understood() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for block in pages::blocks() {
        let calls = pages::calls(&block);
        let typed = block.typed().filter(|line| pages::calls_braid(line)).count();
        if calls.len() < typed {
            wrong.push(format!("{}: {}: bash does not get to the end", block.page, block.heading));
        }
        for words in calls {
            count += 1;
            let words = std::iter::once("braid").chain(words.iter().map(String::as_str));
            if let Err(error) = Cli::try_parse_from(words.clone()) {
                let words: Vec<&str> = words.collect();
                wrong.push(format!("{}: {}: {error}", block.page, words.join(" ")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 150, "{count} calls");
}
