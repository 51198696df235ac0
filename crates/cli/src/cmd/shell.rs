//! Shell completions and man pages, from the definitions of the arguments.

use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::failure::{Failure, system_error};
use crate::output;

/// Prints the completions of a program.
///
/// # Errors
/// Returns the error of [`output::answer`].
pub fn completions<C: CommandFactory>(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    let mut command = C::command();
    let name = command.get_name().to_owned();
    clap_complete::generate(shell, &mut command, name, &mut script);
    output::raw(&script)
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
