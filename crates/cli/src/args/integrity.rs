//! Arguments of `braid integrity`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

use super::examples;

/// Something to do with checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum IntegrityAction {
    /// Show how many blocks have checksums that are known, and how many did not fit
    Status,
    /// Read and verify all blocks; what fits and was not known becomes known, as by `braid check`
    Verify,
    /// The same
    Build,
    /// Have checksums from now on, of an array that runs: in the directory of --store
    On,
    /// Do without checksums from now on, of an array that is stopped
    Off,
}

#[derive(Debug, Args)]
#[command(after_help = examples::INTEGRITY)]
pub(crate) struct IntegrityArgs {
    /// Name of the running array; for `off`, the members of one that is stopped
    #[arg(required = true, num_args = 1.., value_name = "NAME|MEMBER")]
    pub(crate) names: Vec<String>,
    /// Action
    pub(crate) action: IntegrityAction,
    /// For `on`: the directory, on another disk, for a file of checksums for each member
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) store: Option<PathBuf>,
    /// For `verify` and `build`: return when it is finished; show progress
    #[arg(long, short)]
    pub(crate) wait: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
