//! One module for each command: from low arguments to high ones, then to deeds.

use std::path::Path;

use crate::args::{Cli, Command, NodeCommand, VolumeCommand};
use crate::failure::Failure;

mod assemble;
mod bare;
mod bench;
mod cat;
mod config;
mod contents;
mod create;
mod detail;
mod down;
mod entry;
mod examine;
mod export;
mod families;
mod found;
mod given;
mod grow;
mod halfway;
mod identify;
mod inside;
mod integrity;
mod key;
mod launch;
mod layout;
mod manage;
mod manual;
mod maps;
mod monitor;
mod node;
mod node_admin;
mod nodes;
mod recover;
mod rename;
mod running;
mod scrub;
mod shape;
mod shell;
mod status;
mod stranger;
mod successor;
mod sync;
mod up;
mod update;
mod upgrade;
mod volumes;
mod writes;
mod zero;

pub use assemble::open_nodes;
pub use bench::beside_this;
pub use nodes::fabric;
pub use shape::{Typed, family};
pub use shell::{completions, man_pages};

/// Runs the command.
pub(crate) fn run(cli: &Cli) -> Result<(), Failure> {
    let run_dir = braid_host::control::run_dir(cli.run_dir.as_deref());
    let run_dir = run_dir.as_path();
    if cli.run_dir.is_some() {
        check_run_dir(run_dir, &cli.command)?;
    }
    match &cli.command {
        Command::Create(args) => create::run(run_dir, args),
        Command::Stop(args) => manage::stop(run_dir, args),
        Command::Up(args) => up::run(run_dir, args),
        Command::Down(args) => down::run(run_dir, args),
        Command::Config(args) => config::run(run_dir, args),
        Command::Status(args) => status::run(run_dir, args),
        Command::Detail(args) => detail::run(run_dir, args),
        Command::Examine(args) => examine::run(args),
        Command::Recover(args) => recover::run(args),
        Command::Update(args) => update::run(args),
        Command::Upgrade(args) => upgrade::run(run_dir, args),
        Command::Rename(args) => rename::run(run_dir, args),
        Command::ZeroSuperblock(args) => zero::run(args),
        Command::Fail(args) => manage::fail(run_dir, args),
        Command::Remove(args) => manage::remove(run_dir, args),
        Command::Add(args) => manage::add(run_dir, args),
        Command::ReAdd(args) => manage::re_add(run_dir, args),
        Command::Replace(args) => manage::replace(run_dir, args),
        Command::Grow(args) => grow::run(run_dir, args),
        Command::Identify(args) => identify::run(run_dir, args),
        Command::Check(args) => scrub::run(run_dir, args, scrub::ScrubKind::Check),
        Command::Repair(args) => scrub::run(run_dir, args, scrub::ScrubKind::Repair),
        Command::Integrity(args) => integrity::run(run_dir, args),
        Command::Export(args) => export::run(run_dir, args),
        Command::Limit(args) => sync::run(run_dir, args),
        Command::Monitor(args) => monitor::run(run_dir, args),
        Command::Top => monitor::top::run(run_dir),
        Command::Cat(args) => cat::run(run_dir, args),
        Command::Layout(args) => layout::run(args),
        Command::Node(args) => match &args.command {
            None => node::run(run_dir, args),
            Some(NodeCommand::Status(args)) => node_admin::status(args),
            Some(NodeCommand::Delete(args)) => node_admin::delete(args),
            Some(NodeCommand::Forget(args)) => node_admin::forget(args),
            Some(NodeCommand::Stop(args)) => node_admin::stop(args),
        },
        Command::Nodes(args) => node_admin::status(args),
        Command::Volume(VolumeCommand::Delete(args)) => node_admin::delete(args),
        Command::Key(args) => key::run(args),
        Command::Bench(args) => bench::run(run_dir, args),
        Command::Completions(args) => match args.shell {
            Some(shell) => shell::with_names::<Cli>(shell),
            None => shell::names(run_dir),
        },
        Command::Man(args) => {
            man_pages::<Cli>(&args.dir, &["bench"])?;
            manual::write(&args.dir)
        }
        Command::Assemble(args) => assemble::run(run_dir, args),
    }
}

/// Refuses commands to running arrays if the given run directory does not exist.
fn check_run_dir(run_dir: &Path, command: &Command) -> Result<(), Failure> {
    let asks_arrays = matches!(
        command,
        Command::Stop(_)
            | Command::Status(_)
            | Command::Detail(_)
            | Command::Fail(_)
            | Command::Remove(_)
            | Command::Add(_)
            | Command::ReAdd(_)
            | Command::Replace(_)
            | Command::Grow(_)
            | Command::Identify(_)
            | Command::Check(_)
            | Command::Repair(_)
            | Command::Limit(_)
            | Command::Export(_)
            | Command::Upgrade(_)
            | Command::Top
    );
    if !asks_arrays || run_dir.exists() {
        return Ok(());
    }
    let next = "name the directory that the array was started with, or leave --run-dir out";
    let failure = Failure::refused("--run-dir", run_dir.display(), "does not exist", next);
    match command {
        Command::Detail(args) if args.test => Err(failure.with_code(detail::NO_SUCH_ARRAY)),
        _ => Err(failure),
    }
}
