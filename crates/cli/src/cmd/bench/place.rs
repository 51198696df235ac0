//! Where the processes of a measurement run: in the hosts of a lab, or all on this machine.

use std::ffi::OsStr;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::process::{Signal, set_parent_process_death_signal};

use super::lab::{self, Host, Lab};
use crate::args::ExecArgs;
use crate::failure::{Failure, system_error};

/// A lab, or this machine alone.
#[derive(Debug)]
pub(super) enum Site {
    /// Every host in its own namespace.
    Lab(Lab),
    /// All on loopback; nodes differ by port.
    Loopback,
}

impl Site {
    /// Where a host can be reached.
    pub(super) const fn ip(&self, host: Host) -> Ipv4Addr {
        match self {
            Self::Lab(_) => host.address(),
            Self::Loopback => Ipv4Addr::LOCALHOST,
        }
    }

    /// A command that runs on a host and ends with this process, whatever ends it. To be started
    /// from the main thread.
    pub(super) fn command(&self, host: Host, program: impl AsRef<OsStr>) -> io::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bench", "exec", "--tied"]);
        if let Self::Lab(lab) = self {
            command.args(["--lab", lab.name(), "--host", &host.to_string()]);
        }
        command.arg("--").arg(program).stdin(Stdio::null());
        Ok(command)
    }

    /// This program as such a command.
    pub(super) fn braid(&self, host: Host) -> io::Result<Command> {
        self.command(host, std::env::current_exe()?)
    }
}

/// `braid bench exec`: goes where it is told, then becomes the command.
pub(super) fn exec(args: &ExecArgs) -> Result<(), Failure> {
    let (program, words) = args.command.split_first().expect("clap wants a command");
    let refused = |reason: String| {
        let next = "check the names of lab, host and command";
        Failure::refused("exec", program.display(), reason, next)
    };
    let system = |error: &io::Error| refused(system_error(error));
    if args.tied {
        set_parent_process_death_signal(Some(Signal::KILL)).map_err(|e| system(&e.into()))?;
    }
    if let (Some(name), Some(host)) = (&args.lab, &args.host) {
        let host: Host = host.parse().map_err(refused)?;
        lab::enter(name, host).map_err(|error| system(&error))?;
    }
    Err(system(&Command::new(program).args(words).exec()))
}
