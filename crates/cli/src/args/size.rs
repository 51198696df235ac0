//! Sizes as people type them.

use std::fmt;

use braid_array::Refusal;
use braid_host::size;

/// A number of bytes, typed plainly or with a unit: K, M, G, T or KiB ... (powers of 1024), KB, MB,
/// GB or TB (powers of 1000). Fractions are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// Reads a size.
///
/// # Errors
/// Returns a refusal, with the next step, if the text is no size or the size is too large.
pub fn parse_size(text: &str) -> Result<Size, Refusal> {
    size::parse(text).map(Size)
}

/// Reads the size of something that takes whole KiB: a size with a unit is rounded down to them.
pub(crate) fn parse_rounded(text: &str) -> Result<Size, Refusal> {
    let Size(bytes) = parse_size(text)?;
    let has_unit = text.ends_with(|last: char| last.is_ascii_alphabetic());
    Ok(Size(if has_unit { bytes - bytes % 1024 } else { bytes }))
}

/// Reads the most that is allowed: a size, or `none` for no limit.
pub(crate) fn parse_limit(text: &str) -> Result<Size, Refusal> {
    match text {
        "none" => Ok(Size(u64::MAX)),
        _ => parse_size(text).map_err(|Refusal { reason, next }| {
            Refusal::new(reason, format!("{}; or none for no limit", next.advice))
        }),
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&size::typed(self.0))
    }
}
