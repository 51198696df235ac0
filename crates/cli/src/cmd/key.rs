//! `braid key`: makes cluster keys, and finds the one to use.

use std::path::{Path, PathBuf};

use braid_host::key::Key;

use crate::args::{KeyAction, KeyArgs, NetworkArgs};
use crate::failure::Failure;
use crate::output;

/// Where the key is when nothing else is said.
const DEFAULT: &str = "/etc/braid/cluster.key";

pub(super) fn run(args: &KeyArgs) -> Result<(), Failure> {
    let KeyAction::New { file } = &args.action;
    Key::make(file).map_err(|why| Failure::explained("key", file.display(), why))?;
    let text = format!("{} has the key: copy it to all nodes and clients\n", file.display());
    output::answer(&text)
}

/// The file that was named, or else the usual one. An empty name is none.
fn file(args: &NetworkArgs) -> Option<PathBuf> {
    match &args.key {
        Some(named) => Some(PathBuf::from(named)).filter(|_| !named.is_empty()),
        None => Some(PathBuf::from(DEFAULT)).filter(|usual| usual.exists()),
    }
}

/// The cluster key, if there is one.
pub(super) fn find(args: &NetworkArgs) -> Result<Option<Key>, Failure> {
    let load =
        |file: &Path| Key::load(file).map_err(|why| Failure::explained("key", file.display(), why));
    file(args).as_deref().map(load).transpose()
}
