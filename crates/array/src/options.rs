//! Options for assembling an array. Next steps speak of them, too, so they lie below the code that
//! decides.

/// Options for assembling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Options {
    /// Take stale members where there are too few current ones, and start a degraded parity array
    /// that is not clean.
    pub force: bool,
    /// Start with fewer members than the array had when it last ran.
    pub run: bool,
    /// Write nothing; implies `run`.
    pub read_only: bool,
}
