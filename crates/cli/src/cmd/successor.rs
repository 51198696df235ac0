//! The command line by which another program goes on with an array that runs.

use std::path::{Path, PathBuf};

use braid_host::serve::Successor;

use crate::args::AssembleArgs;
use crate::cmd::bare::MISSING;

/// The option that names the directory of checksums.
pub(super) const STORE: &str = "--integrity-store";

fn overlay(args: &AssembleArgs) -> Vec<String> {
    let dir = args.overlay.dir().map(|dir| dir.display().to_string());
    dir.map_or_else(Vec::new, |dir| vec!["--overlay".to_owned(), dir])
}

/// Arguments of the assembly of an array, as options.
#[derive(Debug)]
pub(super) struct HowAssembled {
    run_dir: PathBuf,
    options: Vec<String>,
    /// All members in the order of their roles, where no superblock tells of that.
    roles: Option<Vec<String>>,
    /// Directory of checksums, unless another one is named.
    store: Option<PathBuf>,
}

impl HowAssembled {
    /// With members on this machine.
    pub(super) fn of_devices(run_dir: &Path, args: &AssembleArgs) -> Self {
        // It may have lost members since it was started.
        let mut options = vec!["--run".to_owned()];
        options.extend(args.readonly.then(|| "--readonly".to_owned()));
        options.extend(args.maps.words());
        options.extend(overlay(args));
        let store = args.integrity_store();
        Self { run_dir: run_dir.to_owned(), options, roles: None, store }
    }

    /// By its geometry, with these members.
    pub(super) fn bare(run_dir: &Path, args: &AssembleArgs, roles: &[String]) -> Self {
        let absolute = |word: &String| match word.as_str() {
            MISSING => word.clone(),
            path => std::path::absolute(path).unwrap_or_default().display().to_string(),
        };
        let geometry = args.bare.geometry.iter();
        let geometry = geometry.flat_map(|typed| ["--geometry".to_owned(), typed.to_string()]);
        let options = ["--readonly".to_owned()].into_iter().chain(geometry);
        let options = options.chain(args.maps.words()).chain(overlay(args)).collect();
        let roles = Some(roles.iter().map(absolute).collect());
        Self { run_dir: run_dir.to_owned(), options, roles, store: None }
    }

    /// With members on nodes.
    pub(super) fn of_nodes(run_dir: &Path, args: &AssembleArgs) -> Self {
        let mut options = Vec::new();
        let mut option = |name: &str, value: String| options.extend([name.to_owned(), value]);
        option("--node-timeout", args.node_timeout.to_string());
        option("--fail-timeout", args.fail_timeout.to_string());
        args.witness.iter().for_each(|witness| option("--witness", witness.clone()));
        if let Some(fabric) = &args.network.fabric {
            option("--fabric", fabric.clone());
        }
        if let Some(key) = &args.network.key_file.key {
            // The process that serves works in another directory.
            let key = std::path::absolute(key).unwrap_or_else(|_| key.into());
            option("--key", key.display().to_string());
        }
        if let Some(schedule) = args.schedule.and_then(|s| clap::ValueEnum::to_possible_value(&s)) {
            option("--schedule", schedule.get_name().to_owned());
        }
        options.extend(args.readonly.then(|| "--readonly".to_owned()));
        Self { run_dir: run_dir.to_owned(), options, roles: None, store: None }
    }

    /// Returns the command line of a successor that serves the array under this name.
    pub(in crate::cmd) fn named(self, name: String) -> Successor {
        let Self { run_dir, options, roles, store } = self;
        let run_dir = run_dir.display().to_string();
        Successor::new(move |typed, exports| {
            let mut words = vec!["--run-dir", &run_dir, "assemble", "--foreground"];
            words.extend(roles.is_none().then_some("--rename"));
            words.push(&name);
            let members = roles.as_deref().unwrap_or(typed).iter().cloned();
            let words = words.into_iter().map(str::to_owned).chain(members);
            let is_named = typed.iter().any(|word| word == STORE);
            let store = if is_named { None } else { store.as_ref() };
            let store = store.map(|dir| [STORE.to_owned(), dir.display().to_string()]);
            let words = words.chain(options.iter().cloned()).chain(store.into_iter().flatten());
            let exports = exports.iter().flat_map(|export| ["--export".to_owned(), export.clone()]);
            // They are open, and were allowed when they were opened.
            let insecure = (exports.clone().next().is_some()).then(|| "--insecure".to_owned());
            words.chain(exports).chain(insecure).collect()
        })
    }
}
