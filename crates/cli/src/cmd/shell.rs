//! Shell completions and man pages, from the definitions of the arguments. Completions of `braid`
//! know the names of arrays, which they ask it for.

use std::path::Path;

use braid_host::control::list;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use super::running::configured;
use crate::failure::{Failure, system_error};
use crate::output;

/// Commands whose first word is a new name, or the name of an array that is stopped.
const OTHER_NAMES: [&str; 3] = ["create", "rename", "update"];
/// The command by which scripts ask for names.
const ASK: &str = "braid completions --names 2>/dev/null";

/// Prints the completions of a program.
///
/// # Errors
/// Returns the error of [`output::answer`].
pub fn completions<C: CommandFactory>(shell: Shell) -> Result<(), Failure> {
    output::answer(&script(&mut C::command(), shell))
}

fn script(command: &mut Command, shell: Shell) -> String {
    let mut script = Vec::new();
    let name = command.get_name().to_owned();
    clap_complete::generate(shell, command, name, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Prints the completions of `braid`, with names of arrays.
pub(super) fn with_names<C: CommandFactory>(shell: Shell) -> Result<(), Failure> {
    let mut command = C::command();
    let script = script(&mut command, shell);
    let named = of_arrays(&command);
    output::answer(&match shell {
        Shell::Bash => script + &for_bash(&named),
        Shell::Fish => script + &for_fish(&named),
        Shell::Zsh => for_zsh(&script),
        _ => script,
    })
}

/// Prints the names of the arrays that run or are configured.
pub(super) fn names(run_dir: &Path) -> Result<(), Failure> {
    let mut names = list(run_dir).unwrap_or_default();
    names.extend(configured());
    names.sort_unstable();
    names.dedup();
    names.iter().try_for_each(|name| output::answer(&format!("{name}\n")))
}

/// Returns the commands, by all of their names, whose first word is an array.
fn of_arrays(command: &Command) -> Vec<String> {
    let is_named = |command: &&Command| {
        let first = command.get_positionals().next().map(|first| first.get_id().as_str());
        matches!(first, Some("name" | "names")) && !OTHER_NAMES.contains(&command.get_name())
    };
    let words = |command: &Command| {
        let aliases = command.get_visible_aliases().map(str::to_owned);
        std::iter::once(command.get_name().to_owned()).chain(aliases).collect::<Vec<_>>()
    };
    command.get_subcommands().filter(is_named).flat_map(words).collect()
}

/// Returns a function around clap's, which completes the word after the command.
fn for_bash(commands: &[String]) -> String {
    let commands = commands.join("|");
    format!(
        r#"
_braid_with_names() {{
    _braid "$@"
    [[ ${{COMP_CWORD}} -eq 2 && "$2" != -* ]] || return 0
    case "${{COMP_WORDS[1]}}" in
        {commands})
            local IFS=$'\n'
            COMPREPLY=( $(compgen -W "$({ASK})" -- "$2") )
            ;;
    esac
}}
complete -F _braid_with_names -o bashdefault -o default braid
"#
    )
}

fn for_fish(commands: &[String]) -> String {
    let line = |command: &String| {
        format!("complete -c braid -n \"__fish_braid_using_subcommand {command}\" -a \"({ASK})\"\n")
    };
    commands.iter().map(line).collect()
}

/// Returns clap's script with the names where it has files for want of something better.
fn for_zsh(script: &str) -> String {
    let function = format!(
        "_braid_names() {{\n    local -a names\n    names=(${{(f)\"$({ASK})\"}})\n    \
         compadd -a names\n}}\n\n"
    );
    let mut command = "";
    let mut text = String::new();
    for line in script.lines() {
        let head = line.trim_start().strip_prefix('(').and_then(|line| line.strip_suffix(')'));
        command = head.unwrap_or(command);
        let names = ["':name -- ", "'::name -- ", "'*::names -- "];
        let is_name = names.iter().any(|begin| line.starts_with(begin));
        let line = match line.strip_suffix(":_default' \\") {
            Some(spec) if is_name && !OTHER_NAMES.contains(&command) => {
                format!("{spec}:_braid_names' \\")
            }
            _ => line.to_owned(),
        };
        text.push_str(&line);
        text.push('\n');
        // The first line tells zsh which command the file is for.
        if text.ends_with("#compdef braid\n") {
            text.push_str(&format!("\n{function}"));
        }
    }
    text
}

/// Writes one page for a program and one for each of its commands. A command in `elsewhere` is a
/// program of its own, with a page of the same name.
///
/// # Errors
/// Returns the error of the system about the directory.
pub fn man_pages<C: CommandFactory>(dir: &Path, elsewhere: &[&str]) -> Result<(), Failure> {
    let mut command = C::command().disable_help_subcommand(true);
    command.build();
    let mut pending = vec![command];
    while let Some(command) = pending.pop() {
        let commands = command.get_subcommands().filter(|it| !it.is_hide_set());
        pending.extend(commands.filter(|it| !elsewhere.contains(&it.get_name())).cloned());
        Man::new(command).generate_to(dir).map_err(|error| {
            let reason = system_error(&error);
            Failure::refused("man", dir.display(), reason, "name a directory you may write to")
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;

    #[test]
    fn scripts_ask_for_names_where_a_name_is_an_array() {
        let zsh = for_zsh(&script(&mut Cli::command(), Shell::Zsh));
        let (_, create) = zsh.split_once("(create)").unwrap();
        let (create, others) = create.split_once("(assemble)").unwrap();
        assert!(!create.contains(":_braid_names'") && others.contains(":_braid_names'"));
        assert!(zsh.starts_with("#compdef braid\n") && zsh.contains("\n_braid_names() {\n"));
        let named = of_arrays(&Cli::command());
        for name in ["status", "list", "scrub", "stop", "up", "limit", "export"] {
            assert!(named.iter().any(|one| one == name), "{name}");
        }
        assert!(!named.iter().any(|one| ["create", "rename", "top"].contains(&one.as_str())));
        assert_eq!(for_fish(&named).lines().count(), named.len());
    }
}
