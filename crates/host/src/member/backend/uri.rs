//! NBD URIs, as the NBD project's `doc/uri.md` has them: `nbd://HOST[:PORT]/EXPORT` and
//! `nbd+unix:///EXPORT?socket=PATH`.

use std::path::{Path, PathBuf};

use percent_encoding::percent_decode_str;
use url::Url;

use super::super::error::OpenError;

const DEFAULT_PORT: u16 = 10_809;

/// A disk at an NBD server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Uri {
    pub(super) server: ServerAddress,
    pub(super) export: String,
}

/// Address of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ServerAddress {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// Returns whether this names a disk at an NBD server, rather than a file.
pub(crate) fn is_nbd(name: &Path) -> bool {
    const SCHEMES: [&str; 4] = ["nbd://", "nbd+unix://", "nbds://", "nbds+unix://"];
    name.to_str().is_some_and(|name| SCHEMES.iter().any(|scheme| name.starts_with(scheme)))
}

/// Reads a URI.
///
/// # Errors
/// When it is none, or one of a kind that is not supported.
pub(super) fn parse(name: &Path) -> Result<Uri, OpenError> {
    const FORMS: &str = "write nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH";
    let none = |reason: &str| OpenError::new(name, reason, FORMS);
    let url = name.to_str().and_then(|name| Url::parse(name).ok());
    let url = url.ok_or_else(|| none("is no URI"))?;
    let decoded = |text: &str| percent_decode_str(text).decode_utf8().ok().map(String::from);
    let export = url.path().strip_prefix('/').unwrap_or_default();
    let export = decoded(export).ok_or_else(|| none("names an export that is not UTF-8"))?;
    let socket = url.query_pairs().find(|(key, _)| key == "socket").map(|(_, path)| path);
    let server = match (url.scheme(), url.host_str().filter(|host| !host.is_empty()), socket) {
        ("nbd", Some(host), None) => {
            let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
            ServerAddress::Tcp { host, port: url.port().unwrap_or(DEFAULT_PORT) }
        }
        ("nbd+unix", None, Some(path)) => ServerAddress::Unix(PathBuf::from(&*path)),
        ("nbds" | "nbds+unix", _, _) => {
            let next = "serve it to a local socket with `nbdkit nbd uri=...`, and name that one";
            return Err(OpenError::new(name, "disks are not read over TLS", next));
        }
        ("nbd", None, _) => return Err(none("names no host")),
        _ => return Err(none("names no socket")),
    };
    Ok(Uri { server, export })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_and_exports_are_read() {
        let tcp = |host: &str, port| ServerAddress::Tcp { host: host.into(), port };
        let unix = |path: &str| ServerAddress::Unix(path.into());
        for (text, server, export) in [
            ("nbd://nas", tcp("nas", 10_809), ""),
            ("nbd://10.0.0.7:99/disk%201", tcp("10.0.0.7", 99), "disk 1"),
            ("nbd://[::1]/a/b", tcp("::1", 10_809), "a/b"),
            ("nbd+unix:///?socket=/tmp/s", unix("/tmp/s"), ""),
            ("nbd+unix:///x?socket=/a%20b", unix("/a b"), "x"),
        ] {
            let export = export.to_owned();
            assert_eq!(parse(Path::new(text)), Ok(Uri { server, export }), "{text}");
        }
    }

    #[test]
    fn what_is_none_is_refused_by_what_it_lacks() {
        let reason = |text: &str| parse(Path::new(text)).unwrap_err().reason;
        assert_eq!(reason("nbd:///x"), "names no host");
        assert_eq!(reason("nbd+unix:///x"), "names no socket");
        assert_eq!(reason("nbds://nas/x"), "disks are not read over TLS");
        assert_eq!(reason("nbd://nas:x/"), "is no URI");
        assert_eq!(reason("nbd://nas/%ff"), "names an export that is not UTF-8");
    }

    #[test]
    fn files_are_told_from_uris() {
        assert!(is_nbd(Path::new("nbd://nas/x")) && is_nbd(Path::new("nbd+unix:///?socket=s")));
        assert!(!is_nbd(Path::new("nbd/x")) && !is_nbd(Path::new("/dev/nbd0")));
    }
}
