//! `braid assemble --geometry`: an array without superblocks, served to readers.

use std::path::Path;

use braid_host::daemon::Daemon;
use braid_host::serve::Assembled;

use crate::args::{AssembleArgs, GeometryArg};
use crate::cmd::bare::{self, Bare};
use crate::cmd::found::Use;
use crate::cmd::launch::{self, How, launch};
use crate::cmd::successor::HowAssembled;
use crate::failure::Failure;

pub(super) fn start(
    run_dir: &Path,
    args: &AssembleArgs,
    geometry: &GeometryArg,
    daemon: Option<Daemon>,
) -> Result<(), Failure> {
    let object = args.names.first().map_or("--geometry", String::as_str);
    let usage =
        |reason: &str, next: &'static str| Err(Failure::usage("assemble", object, reason, next));
    if !args.readonly {
        return usage("an array without superblocks can only be read", "add --readonly");
    }
    if args.scan || args.explain || args.rename || args.names.is_empty() {
        return usage("--geometry takes a NAME and all MEMBERs", "name them in order of roles");
    }
    let exports = launch::exports("assemble", &args.export, args.insecure)?;
    let purpose = Use::serve_read_only(args.overlay.dir());
    launch("assemble", object, args.foreground, daemon, |daemon| {
        let Bare { name, config, members } =
            bare::open("assemble", geometry, &args.names, &args.maps, purpose)?;
        let (_, roles) = bare::named(&args.names);
        let again = Some(HowAssembled::bare(run_dir, args, roles));
        let how = How { limits: args.limits(), again, ..exports.into() };
        let array = Assembled::Array { config, members };
        launch::serve("assemble", run_dir, name, array, how, daemon)
    })
}
