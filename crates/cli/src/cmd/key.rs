//! `braid key`: makes cluster keys and keys of one array, and finds the one to use.

use std::path::{Path, PathBuf};

use braid_host::key::{Key, text_of_uuid, uuid_of_text};

use crate::args::{KeyAction, KeyArgs, KeyFileArgs};
use crate::failure::Failure;
use crate::output;

/// Where the key is when nothing else is said.
const DEFAULT: &str = "/etc/braid/cluster.key";

pub(super) fn run(args: &KeyArgs) -> Result<(), Failure> {
    let failed = |file: &Path, why| Failure::explained("key", file.display(), why);
    let (file, use_it) = match &args.action {
        KeyAction::New { file } => {
            Key::make(file).map_err(|why| failed(file, why))?;
            (file, "copy it to all nodes and clients".to_owned())
        }
        KeyAction::Derive { array, file, key_file } => {
            let limited = derive(array, key_file)?;
            limited.write(file).map_err(|why| failed(file, why))?;
            (file, format!("give it to clients of array {array}, with --key"))
        }
    };
    output::answer(&format!("{} has the key: {use_it}\n", file.display()))
}

/// The key of one array, from the cluster key.
fn derive(array: &str, key_file: &KeyFileArgs) -> Result<Key, Failure> {
    let uuid = uuid("key derive", array)?;
    let cluster = find(key_file)?.ok_or_else(|| {
        let reason = "there is no cluster key to derive it from";
        Failure::refused("key derive", array, reason, "give its file with --key FILE")
    })?;
    whole("key derive", array, cluster)?;
    Ok(cluster.limited_to(uuid))
}

/// The array that was typed.
pub(super) fn uuid(operation: &str, array: &str) -> Result<[u8; 16], Failure> {
    uuid_of_text(array).ok_or_else(|| {
        let next = "give what `braid detail NAME` or `braid examine MEMBER` prints";
        Failure::usage(operation, array, "is no UUID of an array", next)
    })
}

/// Refuses a key that is limited to one array.
pub(super) fn whole(operation: &str, object: &str, key: Key) -> Result<(), Failure> {
    let Some(array) = key.array() else { return Ok(()) };
    let reason = format!("this key is limited to array {}", text_of_uuid(array));
    Err(Failure::refused(operation, object, reason, "use the cluster key"))
}

/// The file that was named, or else the usual one. An empty name is none.
fn file(args: &KeyFileArgs) -> Option<PathBuf> {
    match &args.key {
        Some(named) => (!named.is_empty()).then(|| PathBuf::from(named)),
        None => Some(PathBuf::from(DEFAULT)).filter(|usual| usual.exists()),
    }
}

/// The key, if there is one.
pub(super) fn find(args: &KeyFileArgs) -> Result<Option<Key>, Failure> {
    let load =
        |file: &Path| Key::load(file).map_err(|why| Failure::explained("key", file.display(), why));
    file(args).as_deref().map(load).transpose()
}
