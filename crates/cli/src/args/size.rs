//! Sizes as people type them.

use std::fmt;

use crate::output::human;

use braid_array::Refusal;

/// A number of bytes, typed plainly or with K, M, G or T (powers of 1024).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// Reads a size.
///
/// # Errors
/// It is none, or too large; says what would have been right.
pub fn parse_size(text: &str) -> Result<Size, Refusal> {
    let (digits, shift) = match text.char_indices().next_back() {
        Some((at, 'K' | 'k')) => (&text[..at], 10),
        Some((at, 'M' | 'm')) => (&text[..at], 20),
        Some((at, 'G' | 'g')) => (&text[..at], 30),
        Some((at, 'T' | 't')) => (&text[..at], 40),
        _ => (text, 0),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Refusal::new("not a size", "write bytes, or a number with K, M, G or T"));
    }
    let too_large = || Refusal::new("too large", "the largest size is 8388607T");
    let number: u64 = digits.parse().map_err(|_| too_large())?;
    let bytes = number.checked_mul(1 << shift).filter(|&b| i64::try_from(b).is_ok());
    bytes.map(Size).ok_or_else(too_large)
}

/// Reads the most that is allowed: a size, or `none` for no limit.
pub(crate) fn parse_limit(text: &str) -> Result<Size, String> {
    match text {
        "none" => Ok(Size(u64::MAX)),
        _ => parse_size(text).map_err(|reason| format!("{reason}; or none for no limit")),
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&human::size_typed(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        for (text, bytes) in
            [("0", 0), ("512", 512), ("64K", 65536), ("3m", 3 << 20), ("8388607T", 8388607 << 40)]
        {
            assert_eq!(parse_size(text), Ok(Size(bytes)), "{text}");
        }
        assert_eq!(Size(3 << 20).to_string(), "3M");
        assert_eq!(Size(1536).to_string(), "1536");
        assert_eq!(Size(0).to_string(), "0");
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "K", "-1", "1.5K", "64KB", "64 K", "+5", "0x10", "8388608T", "1é"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
        assert!(parse_size("99999999999999999999999").is_err());
    }
}
