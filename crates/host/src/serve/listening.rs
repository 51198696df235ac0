//! Sockets on which exports are found.

use std::io;
use std::os::unix::net::UnixListener;
use std::path::Path;

use braid_array::Refusal;

use super::ExportSpec;
use super::check::check_socket;
use crate::control::{self, ListenError, SocketFile};
use crate::engine::export::Export;
use crate::system::describe;
use crate::token::ExportId;

/// Callback that adds an export to the engine.
pub(super) type Enter<'a> = &'a mut dyn FnMut(Box<dyn Export>) -> Result<ExportId, Refusal>;

/// Listens on the socket of an export.
pub(super) fn listen_on(
    spec: &ExportSpec,
    run_dir: &Path,
) -> Result<(UnixListener, SocketFile), Refusal> {
    let path = spec.place.path().expect("a socket has a path");
    control::listen(run_dir, path, &spec.access).map_err(|error| match error {
        ListenError::Socket(error) => {
            let known = check_socket(spec, path, run_dir).err();
            known.unwrap_or_else(|| not_there(spec, &error))
        }
        ListenError::Owner(error) => {
            let why = describe(&error);
            let reason = format!("{spec}: cannot be given its owner or group: {why}");
            Refusal::new(reason, "run as root, or name a group that you are in, and no owner")
        }
    })
}

/// Returns the refusal of an address that cannot be listened on.
pub(super) fn not_there(spec: &ExportSpec, error: &io::Error) -> Refusal {
    let reason = match error.kind() {
        io::ErrorKind::AddrInUse => "somebody listens there already".to_owned(),
        _ => format!("cannot listen there: {}", describe(error)),
    };
    Refusal::new(format!("{spec}: {reason}"), "name another address")
}
