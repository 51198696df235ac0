//! `braid bench`: measurements, side by side in one run, beside the bound computed first.

use braid_bench::compare::{members, states};
use braid_bench::rig::{lab, leftovers, spaces};

use braid_cli::{Failure, output, parse_as, system_error};

use args::{BenchArgs, BenchCommand, LabCommand};

mod args;
mod cluster;
mod compare;
#[cfg(test)]
#[path = "../../../cli/tests/live/documented/pages.rs"]
mod pages;

/// Runs the command of the command line.
pub(crate) fn run() -> Result<(), Failure> {
    match &parse_as::<BenchArgs>(Some("bench"))?.what {
        BenchCommand::Levels(args) => compare::levels(args),
        BenchCommand::Cluster(args) => cluster::run(args),
        BenchCommand::Chunk(args) => compare::chunk(args),
        BenchCommand::States(args) => compare::usual::<states::StateOptions>(args),
        BenchCommand::Members(args) => compare::usual::<members::MembersOptions>(args),
        BenchCommand::Engine(args) => compare::engine(args),
        BenchCommand::Policies(args) => compare::policies(args),
        BenchCommand::All(args) => compare::all(args),
        BenchCommand::Report(args) => compare::report(args),
        BenchCommand::Load(args) => cluster::load(args),
        BenchCommand::Lab(command) => lab_command(command),
        BenchCommand::Completions { shell } => braid_cli::completions::<BenchArgs>(*shell),
        BenchCommand::Man { dir } => braid_cli::man_pages::<BenchArgs>(dir, &[]),
    }
}

/// `braid bench lab`: for scripts and tests that want a lab of their own.
fn lab_command(command: &LabCommand) -> Result<(), Failure> {
    match command {
        LabCommand::Up(blueprint) => {
            leftovers::watch_signals(|| ())?;
            let lab = lab::Lab::up(blueprint)?;
            let hosts = blueprint.hosts();
            let line = |host: &spaces::SpaceHost| format!("{host} {}\n", host.address());
            output::answer(&hosts.iter().map(line).collect::<String>())?;
            lab.keep();
            Ok(())
        }
        LabCommand::Down { name } => {
            if spaces::take_down(name) {
                return Ok(());
            }
            let object = format!("lab {name}");
            let next = "become root, and try again";
            Err(Failure::refused("bench", object, "it could not be removed", next))
        }
        LabCommand::Bytes { name } => {
            let traffic = lab::traffic(name).map_err(|error| {
                let object = format!("lab {name}");
                Failure::refused("bench", object, system_error(&error), "bring it up first")
            })?;
            let line = |(host, carried): &(spaces::SpaceHost, lab::Traffic)| {
                format!("{host} sent {} received {}\n", carried.sent, carried.received)
            };
            output::answer(&traffic.iter().map(line).collect::<String>())
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::args::BenchArgs;
    use super::pages;

    #[test]
    fn what_pages_and_help_tell_people_to_measure_is_understood() {
        let calls = pages::blocks();
        let calls = calls.iter().flat_map(pages::calls).filter(|words| words[0] == "bench");
        let calls: Vec<Vec<String>> = calls.collect();
        assert!(calls.len() >= 5, "{calls:?}");
        for words in calls {
            if let Err(error) = BenchArgs::try_parse_from(&words) {
                panic!("braid {}: {error}", words.join(" "));
            }
        }
    }
}
