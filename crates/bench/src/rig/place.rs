//! Sites at which a measurement runs: in the hosts of a lab, or all on this machine.

use std::ffi::OsStr;
use std::io;
use std::net::Ipv4Addr;
use std::process::Command;

use super::lab::Lab;
use super::spaces::{self, SpaceHost};
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
        let tied = |program: &OsStr| Tool::at("a program of a host", program.into()).command();
        let Some(lab) = &self.lab else { return tied(program.as_ref()) };
        let mut command = tied("nsenter".as_ref());
        let space = spaces::file(&spaces::namespace(lab.name(), host));
        command.arg(format!("--net={}", space.display())).arg("--").arg(program);
        command
    }

    /// The command `braid` as such a command.
    pub fn braid(&self, host: SpaceHost) -> Command {
        self.command(host, self.braid.path())
    }

    /// Calls `act` on a host.
    pub fn within<T: Send>(
        &self,
        host: SpaceHost,
        act: impl FnOnce() -> io::Result<T> + Send,
    ) -> io::Result<T> {
        match &self.lab {
            Some(lab) => spaces::inside(&spaces::namespace(lab.name(), host), act),
            None => act(),
        }
    }
}
