//! Shell completions and man pages, from the definitions of the arguments.

use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::failure::{Failure, system_error};
use crate::output;

/// Prints the completions of a program.
///
/// # Errors
/// As [`output::answer`].
pub fn completions<C: CommandFactory>(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    let mut command = C::command();
    let name = command.get_name().to_owned();
    clap_complete::generate(shell, &mut command, name, &mut script);
    output::raw(&script)
}

/// Writes one page for a program and one for each of its commands.
///
/// # Errors
/// As the system says of the directory.
pub fn man_pages<C: CommandFactory>(dir: &Path) -> Result<(), Failure> {
    clap_mangen::generate_to(C::command(), dir).map_err(|error| {
        let reason = system_error(&error);
        Failure::refused("man", dir.display(), reason, "name a directory you may write to")
    })
}
