//! Starting the process that serves an array, for the commands that do.

use std::io::ErrorKind;
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use braid_array::Refusal;
use braid_host::daemon::{self, Daemon, Started};
use braid_host::export::nbd::asks_clients;
use braid_host::limits::Limits;
use braid_host::notify;
use braid_host::run_dir::log_path;
use braid_host::serve::{Assembled, ExportPlace, ExportSpec, Leftovers, Serving, SpecError};

use super::successor::HowAssembled;
use crate::failure::{Failure, system_error};
use crate::output;

/// Said of an array that no program can use.
const NO_EXPORT: &str = "runs, and no program can read or write it, as there is no --export; to \
                         have it used add one: braid export NAME add nbd:unix:PATH, \
                         fuse:MOUNTPOINT or vhost-user:PATH";

/// Serves in this process, if it is to be in the foreground or was started for that; else starts
/// one that does.
pub(super) fn launch(
    operation: &str,
    object: &str,
    foreground: bool,
    daemon: Option<Daemon>,
    serve: impl FnOnce(Option<Daemon>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    if foreground || daemon.is_some() {
        return serve(daemon);
    }
    match daemon::start() {
        Ok(Started::Serving { .. }) => Ok(()),
        Ok(Started::Ended(status)) => Err(ended(operation, object, status)),
        Err(error) => {
            Err(Failure::refused(operation, object, system_error(&error), "try --foreground"))
        }
    }
}

/// The other process said why it ended, unless it was killed.
fn ended(operation: &str, object: &str, status: ExitStatus) -> Failure {
    match status.code().map(u8::try_from) {
        Some(Ok(code)) => Failure::Silent(code.max(1)),
        _ => {
            let reason = format!("the process that was to serve it ended: {status}");
            Failure::refused(operation, object, reason, "try --foreground")
        }
    }
}

/// Options for serving an array.
#[derive(Debug)]
pub(super) struct How {
    pub(super) exports: Vec<ExportSpec>,
    pub(super) limits: Limits,
    /// Arguments for a successor program that takes over the array; `None` where a takeover is
    /// impossible.
    pub(super) again: Option<HowAssembled>,
    /// Set if the array must not start degraded.
    pub(super) whole: bool,
    /// Volumes to be removed once their data have all moved.
    pub(super) leftovers: Option<Leftovers>,
    /// Directory of checksums of members that have none behind their data.
    pub(super) integrity_store: Option<PathBuf>,
}

impl From<Vec<ExportSpec>> for How {
    fn from(exports: Vec<ExportSpec>) -> Self {
        Self {
            exports,
            limits: Limits::default(),
            again: None,
            whole: false,
            leftovers: None,
            integrity_store: None,
        }
    }
}

/// Serves an array until it is stopped.
pub(super) fn serve(
    operation: &str,
    run_dir: &Path,
    name: String,
    array: Assembled,
    how: How,
    daemon: Option<Daemon>,
) -> Result<(), Failure> {
    let How { exports, limits, again, leftovers, integrity_store, .. } = how;
    let unused = exports.is_empty();
    let run_dir = run_dir.to_owned();
    let logs = run_dir.clone();
    let successor = again.map(|again| again.named(name.clone()));
    let said = name.clone();
    let serving = Serving {
        name: name.clone(),
        array,
        exports,
        limits,
        run_dir,
        successor,
        leftovers,
        integrity_store,
    };
    let ready = |lost: &[String]| {
        lost.iter().for_each(|lost| output::warning(&format!("{operation} {said}: {lost}")));
        if unused {
            output::warning(&format!("{operation} {said}: {NO_EXPORT}"));
        }
        notify::status(&format!("serves {said}"));
        notify::ready();
        daemon.map_or(Ok(()), |daemon| daemon.ready(&log_path(&logs, &said)))
    };
    braid_host::serve::serve(serving, ready).map_err(|why| Failure::explained(operation, name, why))
}

/// Parses the words after `--export`. Writable exports open to a whole network are refused unless
/// `insecure` is set.
pub(super) fn exports(
    operation: &str,
    typed: &[String],
    insecure: bool,
) -> Result<Vec<ExportSpec>, Failure> {
    let exports = typed.iter().map(|text| export(operation, "--export", text));
    let exports = exports.collect::<Result<Vec<ExportSpec>, _>>()?;
    exports.iter().try_for_each(|export| check_secure(operation, export, insecure))?;
    Ok(exports)
}

/// An export as it was typed.
pub(super) fn export(operation: &str, object: &str, typed: &str) -> Result<ExportSpec, Failure> {
    typed.parse().map_err(|error: SpecError| {
        Failure::explained(operation, object, error).with_code(Failure::USAGE)
    })
}

/// Refuses a writable export open to a whole network, unless `insecure` is set.
pub(super) fn check_secure(
    operation: &str,
    export: &ExportSpec,
    insecure: bool,
) -> Result<(), Failure> {
    if insecure {
        return Ok(());
    }
    is_secure(export).map_err(|Refusal { reason, next }| {
        let next = next.advice.into_owned() + " where everybody who can connect may do that";
        Failure::refused(operation, export, reason, next)
    })
}

/// Refuses a writable export open to a whole network.
pub(super) fn is_secure(export: &ExportSpec) -> Result<(), Refusal> {
    match (&export.place, &export.tls) {
        (ExportPlace::NbdTcp(address), _) if is_loopback(address) => Ok(()),
        (ExportPlace::NbdTcp(_), Some(dir)) if asks_clients(dir) => Ok(()),
        (ExportPlace::NbdTcp(_), Some(dir)) => {
            let reason = format!(
                "{} has no ca-cert.pem, so nobody would be asked for a certificate: whoever can \
                 connect could read and write the array",
                dir.display()
            );
            let next = "put the certificate there by which those of clients are signed, or say \
                        --insecure";
            Err(Refusal::new(reason, next))
        }
        (ExportPlace::NbdTcp(address), None) => {
            let reason = format!(
                "whoever can connect to {address} could read and write the array: nothing is \
                 encrypted, and nobody is asked who they are"
            );
            let next = "add tls=DIR for clients with a certificate, or use a loopback address or \
                        nbd:unix:PATH, with an ssh tunnel to it, or say --insecure";
            Err(Refusal::new(reason, next))
        }
        _ => Ok(()),
    }
}

/// Returns whether only this machine can connect to the address. An invalid address returns true
/// and is refused elsewhere; a name that nobody knows may be another machine's in a moment.
pub(super) fn is_loopback(address: &str) -> bool {
    match address.to_socket_addrs() {
        Ok(mut all) => all.all(|address| address.ip().is_loopback()),
        Err(error) => error.kind() == ErrorKind::InvalidInput,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_nobody_knows_is_not_this_machines() {
        for ours in ["127.0.0.1:1", "[::1]:1", "without a port", "127.0.0.1:99999"] {
            assert!(is_loopback(ours), "{ours}");
        }
        for others in ["0.0.0.0:1", "[::]:1", "a..b:1"] {
            assert!(!is_loopback(others), "{others}");
        }
    }
}
