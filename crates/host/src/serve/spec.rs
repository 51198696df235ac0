//! Exports of an array, as they are written on the command line.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use braid_array::refusal::{Advised, Next};

use super::part::ExportPart;
use crate::access::{Access, Unmeant, split};
use crate::export::vhost_user::MAX_RINGS;

/// More devices of a kind the kernel does not have.
const MINORS: u32 = 1 << 20;

/// One export: its place and its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportSpec {
    /// Place at which programs find it. Only exports over NBD, of different names, are at the same
    /// place.
    pub place: ExportPlace,
    /// Users with access, for a socket or a file.
    pub access: Access,
    /// Part of the array, for NBD.
    pub part: ExportPart,
    /// Directory of its certificates, for NBD by TLS.
    pub tls: Option<PathBuf>,
    /// Number of rings that a guest may use, for vhost-user; without, as many as possible.
    pub queues: Option<u16>,
}

/// Place at which programs find an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExportPlace {
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

/// Error of a text that is no export: the text, the reason, the next step.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("export {text}: {reason}")]
pub struct SpecError {
    text: String,
    reason: String,
    next: &'static str,
}

const EXPORTS: &str = "use nbd:unix:PATH, nbd:tcp:HOST:PORT, fuse:MOUNTPOINT, vhost-user:PATH or \
                       ublk[:NUMBER]";
const OF_FILES: &str = "use mode=MODE, owner=USER or group=GROUP; a comma in a path is written as \
                        two";
const OF_GUESTS: &str = "use queues=N, mode=MODE, owner=USER or group=GROUP; a comma in a path is \
                         written as two";
const OF_NBD: &str = "use mode=MODE, owner=USER, group=GROUP, name=NAME, offset=SIZE, size=SIZE or \
                      readonly; a comma in a path is written as two";
const OF_TCP: &str = "leave it out, or use tls=DIR, name=NAME, offset=SIZE, size=SIZE or \
                      readonly";
const NO_OPTIONS: &str = "leave it out: block devices have no options";

impl Advised for SpecError {
    fn next(&self) -> Next {
        self.next.into()
    }
}

impl FromStr for ExportSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let error = |reason: String, next| SpecError { text: text.to_owned(), reason, next };
        let (place, options) = split(text);
        let place: ExportPlace =
            place.parse().map_err(|reason: &str| error(reason.into(), EXPORTS))?;
        let mut access = Access::default();
        let mut part = ExportPart::default();
        let mut tls = None;
        let mut queues = None;
        let has_access = place.path().is_some();
        for option in options {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            let unmeant = |Unmeant { reason, next }| error(reason, next);
            let of_file = has_access && access.set(key, value).map_err(unmeant)?;
            let mut taken = of_file || place.is_nbd() && part.set(key, value).map_err(unmeant)?;
            if key == "tls" && matches!(place, ExportPlace::NbdTcp(_)) {
                let dir = std::path::absolute(value);
                let dir = dir.map_err(|_| error("tls= has no directory".into(), OF_TCP))?;
                if tls.replace(dir).is_some() {
                    return Err(error("tls= is there twice".into(), "leave one out"));
                }
                taken = true;
            }
            if key == "queues" && matches!(place, ExportPlace::VhostUser(_)) {
                let number = value.parse().ok();
                let number = number.filter(|number| (1..=MAX_RINGS as u16).contains(number));
                let none = || error(format!("{option} is none from 1 to {MAX_RINGS}"), OF_GUESTS);
                queues = Some(number.ok_or_else(none)?);
                taken = true;
            }
            if !taken {
                return Err(error(format!("has no option {option}"), place.options()));
            }
        }
        Ok(Self { place, access, part, tls, queues })
    }
}

impl FromStr for ExportPlace {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        // The process that serves works in another directory.
        let path = |path: &str| std::path::absolute(path).map_err(|_| "has no path");
        if let Some(socket) = text.strip_prefix("nbd:unix:") {
            Ok(Self::NbdUnix(path(socket)?))
        } else if let Some(address) = text.strip_prefix("nbd:tcp:") {
            let (host, port) = address.rsplit_once(':').ok_or("has no port")?;
            if host.is_empty() {
                return Err("has no host");
            }
            port.parse::<u16>().map_err(|_| "has no port from 0 to 65535")?;
            Ok(Self::NbdTcp(address.to_owned()))
        } else if let Some(mountpoint) = text.strip_prefix("fuse:") {
            Ok(Self::Fuse(path(mountpoint)?))
        } else if let Some(socket) = text.strip_prefix("vhost-user:") {
            Ok(Self::VhostUser(path(socket)?))
        } else if text == "ublk" {
            Ok(Self::Ublk(None))
        } else if let Some(number) = text.strip_prefix("ublk:") {
            let number = number.parse().ok().filter(|number| *number < MINORS);
            number.map(|number| Self::Ublk(Some(number))).ok_or("has no number")
        } else {
            Err("is unknown")
        }
    }
}

impl ExportPlace {
    /// The socket or mountpoint.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::NbdUnix(path) | Self::Fuse(path) | Self::VhostUser(path) => Some(path),
            Self::NbdTcp(_) | Self::Ublk(_) => None,
        }
    }

    /// Parts of an array can be exported so.
    pub(super) const fn is_nbd(&self) -> bool {
        matches!(self, Self::NbdUnix(_) | Self::NbdTcp(_))
    }

    /// A port that is free is to be chosen.
    pub(super) fn leaves_port_open(&self) -> bool {
        let Self::NbdTcp(address) = self else { return false };
        address.rsplit_once(':').is_some_and(|(_, port)| port.parse() == Ok(0u16))
    }

    /// The options that there are.
    const fn options(&self) -> &'static str {
        match self {
            Self::Fuse(_) => OF_FILES,
            Self::VhostUser(_) => OF_GUESTS,
            Self::NbdUnix(_) => OF_NBD,
            Self::NbdTcp(_) => OF_TCP,
            Self::Ublk(_) => NO_OPTIONS,
        }
    }
}

impl ExportSpec {
    /// Returns the address that tells it from all others: the place, and the name if it has one.
    #[must_use]
    pub fn address(&self) -> String {
        let part = self.part.name().map(|name| format!(",name={name}"));
        format!("{}{}", self.place, part.unwrap_or_default())
    }
}

impl fmt::Display for ExportSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}{}", self.place, self.access, self.part)?;
        self.queues.map_or(Ok(()), |queues| write!(f, ",queues={queues}"))?;
        self.tls.as_ref().map_or(Ok(()), |dir| write!(f, ",tls={}", dir.display()))
    }
}

impl fmt::Display for ExportPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = |path: &Path| path.display().to_string().replace(',', ",,");
        match self {
            Self::NbdUnix(socket) => write!(f, "nbd:unix:{}", path(socket)),
            Self::NbdTcp(address) => write!(f, "nbd:tcp:{address}"),
            Self::Fuse(mountpoint) => write!(f, "fuse:{}", path(mountpoint)),
            Self::VhostUser(socket) => write!(f, "vhost-user:{}", path(socket)),
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
        let options = [
            "nbd:unix:/run/a,mode=0660,owner=root,group=0",
            "vhost-user:/run/a,group=root",
            "vhost-user:/run/a,mode=0660,queues=4",
            "fuse:/mnt/a,,b,mode=0644",
            "nbd:unix:/a,mode=0600,name=vm1,offset=1G,size=10G,readonly",
            "nbd:tcp:[::1]:10809,name=vm 2,size=512,tls=/etc/braid/tls",
        ];
        let texts = tcp.into_iter().chain(paths).chain(options).chain(["ublk", "ublk:12"]);
        for text in texts {
            assert_eq!(text.parse::<ExportSpec>().unwrap().to_string(), text);
        }
        let place = |text: &str| text.parse::<ExportSpec>().unwrap().place;
        assert_eq!(
            place("fuse:mnt"),
            ExportPlace::Fuse(std::env::current_dir().unwrap().join("mnt"))
        );
        assert_eq!(place("nbd:unix:/a,,b,mode=600"), ExportPlace::NbdUnix("/a,b".into()));
        assert_eq!(place("nbd:unix:/a,mode=600"), place("nbd:unix:/a"));
        let spec: ExportSpec = "nbd:unix:/a,size=1G,name=vm1,mode=600".parse().unwrap();
        assert_eq!(spec.address(), "nbd:unix:/a,name=vm1");
    }

    fn refusal(text: &str) -> String {
        Refusal::from(text.parse::<ExportSpec>().unwrap_err()).to_string()
    }

    #[test]
    fn what_is_no_export_is_refused_with_the_ones_there_are() {
        let next = "use nbd:unix:PATH, nbd:tcp:HOST:PORT, fuse:MOUNTPOINT, vhost-user:PATH or \
                    ublk[:NUMBER]";
        assert_eq!(refusal("ublk:x"), format!("export ublk:x: has no number; {next}"));
        assert!(refusal("ublk:1048576").contains("has no number"));
        assert!(refusal("vhost-user:").contains("has no path"));
        assert!(refusal("vhost-user").contains("is unknown"));
        assert!(refusal("nbd").contains("is unknown"));
        assert!(refusal("nbd:unix:").contains("has no path"));
        assert!(refusal("nbd:unix:,mode=0600").contains("has no path"));
        assert!(refusal("nbd:tcp:host").contains("has no port"));
        assert!(refusal("nbd:tcp::1").contains("has no host"));
        assert!(refusal("nbd:tcp:h:70000").contains("has no port from"));
        assert!(refusal("fuse:").contains("has no path"));
    }

    #[test]
    fn an_option_that_cannot_be_meant_is_named_with_the_way_out() {
        let line = refusal("nbd:unix:/a,mode=99");
        assert!(line.contains("/a,mode=99: mode=99 is no mode; give it in octal"), "{line}");
        let line = refusal("fuse:/a,owner=nobody there");
        assert!(line.contains("owner=nobody there: there is no such user; name"), "{line}");
        let line = refusal("nbd:unix:/a,offset=one");
        assert!(line.contains("offset=one: not a size; write bytes"), "{line}");
        for text in ["vhost-user:/a,size=1G", "fuse:/a,name=x", "fuse:/a,readonly"] {
            assert!(refusal(text).contains(": has no option "), "{text}");
        }
        let line = refusal("vhost-user:/a,b");
        assert!(line.contains("has no option b; use queues=N, mode=MODE"), "{line}");
        for queues in ["0", "65", "x", ""] {
            let line = refusal(&format!("vhost-user:/a,queues={queues}"));
            assert!(line.contains("is none from 1 to 64; use queues=N"), "{line}");
        }
        assert!(refusal("fuse:/a,queues=2").contains("has no option queues=2"));
        for text in ["nbd:tcp:h:1,mode=0600", "ublk,mode=0600", "ublk:3,owner=root"] {
            let line = refusal(text);
            assert!(line.contains(": has no option ") && line.contains("; leave it out"), "{line}");
        }
        assert!(refusal("nbd:unix:/a,").contains("has no option"));
    }
}
