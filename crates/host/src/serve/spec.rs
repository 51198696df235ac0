//! How an array is to be served, as it is written on the command line.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use braid_array::refusal::{Advised, Next};

/// More devices of a kind the kernel does not have.
const MINORS: u32 = 1 << 20;

/// One export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportSpec {
    /// NBD on a Unix socket.
    NbdUnix(PathBuf),
    /// NBD on TCP: `HOST:PORT`.
    NbdTcp(String),
    /// A file in this directory.
    Fuse(PathBuf),
    /// A block device of a virtual machine, on a Unix socket.
    VhostUser(PathBuf),
    /// The block device `/dev/ublkbN`; without a number, one that is free.
    Ublk(Option<u32>),
}

/// Why text is no export: the text, the reason, the next step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("export {text}: {reason}")]
pub struct SpecError {
    text: String,
    reason: &'static str,
}

impl Advised for SpecError {
    fn next(&self) -> Next {
        "use nbd:unix:PATH, nbd:tcp:HOST:PORT, fuse:MOUNTPOINT, vhost-user:PATH or ublk[:NUMBER]"
            .into()
    }
}

impl FromStr for ExportSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let error = |reason| SpecError { text: text.to_owned(), reason };
        // The process that serves works in another directory.
        let path = |path: &str| std::path::absolute(path).map_err(|_| error("has no path"));
        if let Some(socket) = text.strip_prefix("nbd:unix:") {
            Ok(Self::NbdUnix(path(socket)?))
        } else if let Some(address) = text.strip_prefix("nbd:tcp:") {
            let (host, port) = address.rsplit_once(':').ok_or_else(|| error("has no port"))?;
            if host.is_empty() {
                return Err(error("has no host"));
            }
            port.parse::<u16>().map_err(|_| error("has no port from 0 to 65535"))?;
            Ok(Self::NbdTcp(address.to_owned()))
        } else if let Some(mountpoint) = text.strip_prefix("fuse:") {
            Ok(Self::Fuse(path(mountpoint)?))
        } else if let Some(socket) = text.strip_prefix("vhost-user:") {
            Ok(Self::VhostUser(path(socket)?))
        } else if text == "ublk" {
            Ok(Self::Ublk(None))
        } else if let Some(number) = text.strip_prefix("ublk:") {
            let number = number.parse().ok().filter(|number| *number < MINORS);
            number.map(|number| Self::Ublk(Some(number))).ok_or_else(|| error("has no number"))
        } else {
            Err(error("is unknown"))
        }
    }
}

impl fmt::Display for ExportSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NbdUnix(path) => write!(f, "nbd:unix:{}", path.display()),
            Self::NbdTcp(address) => write!(f, "nbd:tcp:{address}"),
            Self::Fuse(path) => write!(f, "fuse:{}", path.display()),
            Self::VhostUser(path) => write!(f, "vhost-user:{}", path.display()),
            Self::Ublk(None) => f.write_str("ublk"),
            Self::Ublk(Some(number)) => write!(f, "ublk:{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use braid_array::Refusal;

    use super::*;

    #[test]
    fn specs_are_read_as_they_are_written() {
        let tcp = ["nbd:tcp:[::1]:10809", "nbd:tcp:h:0"];
        let paths = ["nbd:unix:/run/a b.sock", "fuse:/mnt", "vhost-user:/run/a b.sock"];
        for text in tcp.into_iter().chain(paths).chain(["ublk", "ublk:12"]) {
            assert_eq!(text.parse::<ExportSpec>().unwrap().to_string(), text);
        }
        let Ok(ExportSpec::Fuse(path)) = "fuse:mnt".parse() else { panic!() };
        assert_eq!(path, std::env::current_dir().unwrap().join("mnt"));
    }

    #[test]
    fn what_is_no_export_is_refused_with_the_ones_there_are() {
        let error = |text: &str| Refusal::from(text.parse::<ExportSpec>().unwrap_err()).to_string();
        let next = "use nbd:unix:PATH, nbd:tcp:HOST:PORT, fuse:MOUNTPOINT, vhost-user:PATH or \
                    ublk[:NUMBER]";
        assert_eq!(error("ublk:x"), format!("export ublk:x: has no number; {next}"));
        assert!(error("ublk:1048576").contains("has no number"));
        assert!(error("vhost-user:").contains("has no path"));
        assert!(error("vhost-user").contains("is unknown"));
        assert!(error("nbd").contains("is unknown"));
        assert!(error("nbd:unix:").contains("has no path"));
        assert!(error("nbd:tcp:host").contains("has no port"));
        assert!(error("nbd:tcp::1").contains("has no host"));
        assert!(error("nbd:tcp:h:70000").contains("has no port from"));
        assert!(error("fuse:").contains("has no path"));
    }
}
