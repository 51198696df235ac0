//! Sites at which the processes of a measurement run: in the hosts of a lab, or all on this
//! machine.

use std::convert::Infallible;
use std::ffi::{OsStr, OsString};
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Signal, set_parent_process_death_signal};

use super::lab::Lab;
use super::spaces::{self, SpaceHost};
use crate::failure::{Failure, system_error};
use crate::tool::Tool;

/// A lab, or this machine alone.
#[derive(Debug)]
pub struct Site {
    /// The command `braid` itself.
    pub braid: Tool,
    /// Every host in its own namespace; `None`: all on loopback, where nodes differ by port.
    pub lab: Option<Lab>,
}

impl Site {
    /// Address of a host.
    pub const fn ip(&self, host: SpaceHost) -> Ipv4Addr {
        match self.lab {
            Some(_) => host.address(),
            None => Ipv4Addr::LOCALHOST,
        }
    }

    /// A command that runs on a host and ends with this process, whatever ends it. To be started
    /// from the main thread.
    pub fn command(&self, host: SpaceHost, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.braid.command();
        command.args(["bench", "exec", "--tied"]);
        if let Some(lab) = &self.lab {
            command.args(["--lab", lab.name(), "--host", &host.to_string()]);
        }
        command.arg("--").arg(program);
        command
    }

    /// The command `braid` as such a command.
    pub fn braid(&self, host: SpaceHost) -> Command {
        self.command(host, self.braid.path())
    }
}

/// Ends this process with the one that started it (`tied`), takes it to a host of a lab, and makes
/// it a command. Returns only to say why not.
pub fn become_command(
    lab_host: Option<(&str, &str)>,
    tied: bool,
    command: &[OsString],
) -> Result<Infallible, Failure> {
    let (program, words) = command
        .split_first()
        .ok_or_else(|| Failure::usage("exec", "there is no command", "name a command behind --"))?;
    let refused = |reason: String| {
        let next = "check the names of lab, host and command";
        Failure::refused(format_args!("exec {}", program.display()), reason, next)
    };
    let system = |error: &std::io::Error| refused(system_error(error));
    if tied {
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(|e| system(&e.into()))?;
    }
    if let Some((name, host)) = lab_host {
        let host: SpaceHost = host.parse().map_err(refused)?;
        spaces::enter(name, host).map_err(|error| system(&error))?;
    }
    Err(system(&Command::new(program).args(words).exec()))
}
