//! How an array is to be assembled: apart from who decides it, since next steps speak of it, too.

/// How to assemble.
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
