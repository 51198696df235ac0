//! `braid bench`: measurements, side by side in one run, beside the bound computed first.

use crate::args::{BenchArgs, BenchCommand, LabCommand};
use crate::failure::{Failure, system_error};
use crate::output;

mod bounds;
mod cluster;
mod gluster;
mod lab;
mod leftovers;
mod line;
mod load;
mod measure;
mod place;
mod plots;
mod report;
mod results;
mod rig;
mod svg;
mod table;
mod talk;

pub(super) fn run(args: &BenchArgs) -> Result<(), Failure> {
    match &args.what {
        BenchCommand::Cluster(args) => cluster::run(args),
        BenchCommand::Load(args) => load::run(args),
        BenchCommand::Lab(command) => lab_command(command),
        BenchCommand::Exec(args) => place::exec(args),
        BenchCommand::Line(args) => line::run(args),
    }
}

/// `braid bench lab`: for scripts and tests that want a lab of their own.
fn lab_command(command: &LabCommand) -> Result<(), Failure> {
    match command {
        LabCommand::Up { name, nodes, clients, link } => {
            leftovers::watch_signals()?;
            let (name, link_bit_s) = (name.clone(), *link);
            let blueprint = lab::Blueprint { name, clients: *clients, nodes: *nodes, link_bit_s };
            let lab = lab::Lab::up(&blueprint)?;
            let hosts = blueprint.hosts();
            let line = |host: &lab::Host| format!("{host} {}\n", host.address());
            output::answer(&hosts.iter().map(line).collect::<String>())?;
            lab.keep();
            Ok(())
        }
        LabCommand::Down { name } => {
            lab::take_down(name);
            Ok(())
        }
        LabCommand::Bytes { name } => {
            let traffic = lab::traffic(name).map_err(|error| {
                Failure::refused("lab", name, system_error(&error), "bring it up first")
            })?;
            let line = |(host, carried): &(lab::Host, lab::Traffic)| {
                format!("{host} sent {} received {}\n", carried.sent, carried.received)
            };
            output::answer(&traffic.iter().map(line).collect::<String>())
        }
    }
}
