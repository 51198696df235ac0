//! Rules that keep data when nodes, clients or the power fail can be switched off, one at a time,
//! to see that the simulator notices: `BRAID_MUTANT=RULE`, in builds with debug assertions.

/// Tells whether this rule is switched off.
#[cfg(debug_assertions)]
#[expect(clippy::disallowed_methods, reason = "what serves data has no such switch")]
#[must_use]
pub fn broken(rule: &str) -> bool {
    static RULE: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    RULE.get_or_init(|| std::env::var("BRAID_MUTANT").unwrap_or_default()) == rule
}

/// Tells whether this rule is switched off. None ever is.
#[cfg(not(debug_assertions))]
#[inline]
#[must_use]
pub const fn broken(_rule: &str) -> bool {
    false
}
