//! Entries of the configuration file, as commands take them.

use std::path::PathBuf;

use crate::args::{
    AssembleArgs, GeometryArgs, KeyFileArgs, MapArgs, NetworkArgs, NodeArgs, OverlayArgs,
    ReshapeArgs, Size, SpeedArgs,
};
use crate::config::{ArrayEntry, MdadmConf, NodeEntry};

/// Default ring memory of a node.
const RING: Size = Size(256 << 20);

/// Returns the UUID by which the array of an entry is looked for, where it is not by its name.
pub(in crate::cmd) fn uuid(entry: &ArrayEntry) -> Option<String> {
    entry.uuid.clone().or_else(|| {
        // Where mdadm knows it by this name, that array is meant.
        let looked_for = entry.members.is_empty();
        let called = || MdadmConf::read().called(&entry.name).map(str::to_owned);
        looked_for.then(called).flatten()
    })
}

/// The entry as `braid assemble` takes it.
pub(in crate::cmd) fn array_words(entry: &ArrayEntry) -> AssembleArgs {
    let uuid = uuid(entry);
    let nodes = &entry.of_nodes;
    AssembleArgs {
        names: vec![entry.name.clone()],
        rename: uuid.is_some(),
        scan: false,
        export: entry.exports.iter().map(|export| export.value.to_string()).collect(),
        insecure: entry.insecure,
        readonly: entry.readonly,
        integrity_store: entry.integrity_store.clone(),
        overlay: OverlayArgs::default(),
        maps: MapArgs::default(),
        bare: GeometryArgs::default(),
        reshape: ReshapeArgs::default(),
        part: None,
        run: false,
        force: false,
        explain: false,
        json: false,
        take_over: false,
        witness: nodes.witnesses.clone(),
        network: network(nodes.fabric.as_ref(), nodes.key.as_ref()),
        schedule: nodes.schedule,
        node_timeout: nodes.node_timeout_s.unwrap_or(AssembleArgs::NODE_TIMEOUT_S),
        fail_timeout: nodes.fail_timeout_s.unwrap_or(AssembleArgs::FAIL_TIMEOUT_S),
        foreground: true,
        uuid,
        speed: SpeedArgs { min: entry.limits.min.clone(), max: entry.limits.max.clone() },
    }
}

fn network(fabric: Option<&String>, key: Option<&PathBuf>) -> NetworkArgs {
    let key = key.map(|key| key.clone().into_os_string());
    NetworkArgs { fabric: fabric.cloned(), key_file: KeyFileArgs { key } }
}

/// The entry as `braid node` takes it.
pub(in crate::cmd) fn node_words(entry: &NodeEntry, foreground: bool) -> NodeArgs {
    NodeArgs {
        command: None,
        listen: Some(entry.listen.clone()),
        store: entry.store.clone(),
        memory: entry.store.is_none(),
        witness: entry.witness,
        ring: entry.ring.unwrap_or(RING),
        network: network(entry.fabric.as_ref(), entry.key.as_ref()),
        no_key: entry.no_key,
        encrypt: entry.encrypt,
        foreground,
    }
}
