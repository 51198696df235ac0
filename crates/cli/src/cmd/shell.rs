//! Shell completions and man pages, from the definitions of the arguments.

use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::failure::{Failure, system_error};
use crate::output;

pub(super) fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "braid", &mut script);
    output::raw(&script)
}

/// One page for the command and one for each subcommand.
pub(super) fn man(args: &ManArgs) -> Result<(), Failure> {
    clap_mangen::generate_to(Cli::command(), &args.dir).map_err(|error| {
        let reason = system_error(&error);
        Failure::refused("man", args.dir.display(), reason, "name a directory you may write to")
    })
}
