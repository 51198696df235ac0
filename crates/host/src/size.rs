//! Sizes as people type them.

use braid_array::Refusal;

/// Unit to which a fraction is rounded down that is no whole number of bytes.
const ROUND_BYTES: u128 = 1024;

/// Reads a number of bytes, typed plainly or with a unit: K, M, G, T or KiB ... (powers of 1024),
/// KB, MB, GB or TB (powers of 1000). A fraction is allowed with a unit.
///
/// # Errors
/// When the text is no size, or one too large; the next step shows a right one.
pub fn parse(text: &str) -> Result<u64, Refusal> {
    let none = || {
        let next = "write bytes, or a number with K, M, G or T (powers of 1024), or with KB, MB, \
                    GB or TB (powers of 1000)";
        Refusal::new("not a size", next)
    };
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let unit = unit_bytes(unit).ok_or_else(none)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || number.contains('.') && unit == 1 {
        return Err(none());
    }
    let too_large = || Refusal::new("too large", "the largest size is 8388607T");
    let whole: u64 = whole.parse().map_err(|_| too_large())?;
    // Digits beyond these are less than a byte of the largest unit.
    let fraction = &fraction[..fraction.len().min(18)];
    let parts = 10u128.pow(fraction.len() as u32);
    let fraction: u128 = fraction.parse().map_err(|_| none())?;
    let scaled = fraction * u128::from(unit);
    let mut bytes = u128::from(whole) * u128::from(unit) + scaled / parts;
    if !scaled.is_multiple_of(parts) {
        bytes -= bytes % ROUND_BYTES;
    }
    let bytes = i64::try_from(bytes).map_err(|_| too_large())?;
    Ok(bytes.unsigned_abs())
}

/// Returns the number of bytes of a unit. A letter that could mean bits is no unit.
fn unit_bytes(unit: &str) -> Option<u64> {
    let power = |letter: char| "KMGT".find(letter.to_ascii_uppercase()).map(|at| at as u32 + 1);
    let mut letters = unit.chars();
    let Some(first) = letters.next() else { return Some(1) };
    let power = power(first)?;
    match letters.as_str() {
        "" | "iB" => Some(1024u64.pow(power)),
        "ib" if first.is_ascii_lowercase() => Some(1024u64.pow(power)),
        "B" => Some(1000u64.pow(power)),
        "b" if first.is_ascii_lowercase() => Some(1000u64.pow(power)),
        _ => None,
    }
}

/// The shortest exact form that can be typed: `64K`.
#[must_use]
pub fn typed(bytes: u64) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let fits = |shift: u32| bytes != 0 && bytes.trailing_zeros() >= shift;
    match units.into_iter().find(|&(shift, _)| fits(shift)) {
        Some((shift, unit)) => format!("{}{unit}", bytes >> shift),
        None => bytes.to_string(),
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
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for (text, bytes) in [
            ("10GB", 10_000_000_000),
            ("10gb", 10_000_000_000),
            ("10GiB", 10 << 30),
            ("10G", 10 << 30),
            ("4kB", 4000),
            ("1.5T", 3 << 39),
            ("1.5K", 1536),
            ("0.5K", 512),
            ("1.1G", 1_181_116_006 / 1024 * 1024),
            ("8388607.999T", 9_223_372_035_755_264_000),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        assert_eq!(typed(3 << 20), "3M");
        assert_eq!(typed(1536), "1536");
        assert_eq!(typed(0), "0");
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in [
            "", "K", "-1", "1.5", "1.", ".5G", "1.2.3G", "64 K", "+5", "0x10", "8388608T", "1é",
            "10Gb", "10P", "10GIB", "5KK",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse("99999999999999999999999").is_err());
    }
}
