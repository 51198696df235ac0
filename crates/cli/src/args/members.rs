//! A member as it is named on the command line.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use braid_array::Refusal;
use braid_cluster::wire::{MAX_NAME_BYTES, valid_volume_name};

use super::{Size, parse_size};

/// A member as typed on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberArg {
    /// A file or block device.
    Path(PathBuf),
    /// A volume on a storage node.
    Node(NodeArg),
    /// Memory of this size, which lives as long as the array runs.
    Memory(Size),
    /// Nothing: the array begins without this member.
    Missing,
}

/// A volume on a storage node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeArg {
    /// `HOST:PORT`.
    pub address: String,
    /// Its name, if one was given.
    pub volume: Option<String>,
}

const NODE: &str = "node://";

impl MemberArg {
    /// One that must be there: `missing` is a file of this name.
    pub(crate) fn existing(text: &str) -> Result<Self, Refusal> {
        match text.parse()? {
            Self::Missing => Ok(Self::Path(PathBuf::from(text))),
            member => Ok(member),
        }
    }
}

impl FromStr for MemberArg {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        if text == "missing" {
            Ok(Self::Missing)
        } else if let Some(rest) = text.strip_prefix(NODE) {
            parse_node(rest).map(Self::Node)
        } else if let Some(size) = text.strip_prefix("mem:") {
            parse_size(size).map(Self::Memory)
        } else {
            Ok(Self::Path(PathBuf::from(text)))
        }
    }
}

fn parse_node(text: &str) -> Result<NodeArg, Refusal> {
    let (address, volume) = match text.split_once('/') {
        Some((address, volume)) => (address, Some(volume).filter(|name| !name.is_empty())),
        None => (text, None),
    };
    let port = check_address(address);
    let port =
        port.and_then(|port| if port == 0 { Err("no node has port 0".into()) } else { Ok(()) });
    port.map_err(|reason| Refusal::new(reason, "write node://HOST:PORT/VOLUME"))?;
    if let Some(volume) = volume.filter(|name| !valid_volume_name(name)) {
        let reason = format!("'{volume}' cannot be the name of a volume");
        let next = format!(
            "use up to {MAX_NAME_BYTES} letters, digits, '.', '_' and '-', no dot in front"
        );
        return Err(Refusal::new(reason, next));
    }
    Ok(NodeArg { address: address.to_owned(), volume: volume.map(str::to_owned) })
}

/// A volume on a node where nothing else can be meant: `HOST:PORT`, or as a member is named.
pub(crate) fn parse_node_member(text: &str) -> Result<NodeArg, Refusal> {
    parse_node(text.strip_prefix(NODE).unwrap_or(text))
}

/// The address of a node of which no volume is meant: `HOST:PORT`, or as a member is named.
pub(crate) fn parse_node_address(text: &str) -> Result<String, Refusal> {
    let address = text.strip_prefix(NODE).unwrap_or(text);
    let address = address.strip_suffix('/').unwrap_or(address);
    if address.contains('/') {
        return Err(Refusal::new("a node is meant here, no volume of it", "write HOST:PORT"));
    }
    let port = check_address(address).map_err(|reason| Refusal::new(reason, "write HOST:PORT"))?;
    match port {
        0 => Err(Refusal::new("no node has port 0", "write HOST:PORT")),
        _ => Ok(address.to_owned()),
    }
}

/// Returns the port of `HOST:PORT`, with a numeric IPv6 address in brackets.
pub(crate) fn check_address(address: &str) -> Result<u16, String> {
    let (host, port) = address.rsplit_once(':').ok_or("a node needs a port")?;
    let inner = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let fits = match inner {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.contains([':', '[', ']', '@', '?', '#']) && !host.contains(char::is_control),
    };
    if host.is_empty() || !fits || host.contains(char::is_whitespace) {
        return Err(format!("'{host}' is no host (an IPv6 address stands in brackets)"));
    }
    port.parse().map_err(|_| "a port is a number up to 65535".to_owned())
}

impl NodeArg {
    /// The volume that is meant, when one of this name is meant unless another was given.
    pub(crate) fn volume_or(&self, name: &str) -> String {
        self.volume.clone().unwrap_or_else(|| name.to_owned())
    }
}

impl fmt::Display for NodeArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NODE}{}", self.address)?;
        self.volume.as_ref().map_or(Ok(()), |volume| write!(f, "/{volume}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(address: &str, volume: Option<&str>) -> Result<MemberArg, Refusal> {
        let volume = volume.map(str::to_owned);
        Ok(MemberArg::Node(NodeArg { address: address.to_owned(), volume }))
    }

    #[test]
    fn members_are_told_apart_by_how_they_begin() {
        assert_eq!("missing".parse(), Ok(MemberArg::Missing));
        assert_eq!("./missing".parse(), Ok(MemberArg::Path("./missing".into())));
        assert_eq!("mem:64K".parse(), Ok(MemberArg::Memory(Size(65536))));
        assert_eq!("./mem:64K".parse(), Ok(MemberArg::Path("./mem:64K".into())));
        assert_eq!("node://host:1".parse(), node("host:1", None));
        assert_eq!("node://host:1/".parse(), node("host:1", None));
        assert_eq!("node://[::1]:7000/vol.2".parse(), node("[::1]:7000", Some("vol.2")));
        let Ok(MemberArg::Node(arg)) = "node://[::1]:7000/v".parse() else { panic!("no node") };
        assert_eq!(arg.to_string(), "node://[::1]:7000/v");
        assert_eq!((arg.volume_or("w"), arg.address), ("v".into(), "[::1]:7000".into()));
    }

    #[test]
    fn what_is_no_node_is_refused_with_what_would_be_one() {
        let wrong =
            ["", "host", "host:", ":1", "host:x", "host:0", "host:65536", "::1:7000", "[::1]"];
        let names = ["h:1/.x", "h:1/a/b", "h:1/a b", "a b:1", "[h]:1", "u@h:1"];
        for text in wrong.iter().chain(&names) {
            let error = format!("node://{text}").parse::<MemberArg>().unwrap_err();
            assert!(!error.next.advice.is_empty(), "{text}: {error}");
        }
        assert!("mem:".parse::<MemberArg>().unwrap_err().reason.contains("size"));
        assert!("mem:64Kb".parse::<MemberArg>().unwrap_err().reason.contains("size"));
    }
}
