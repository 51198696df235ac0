//! Numbers and text in bytes that may end anywhere: `None` beyond their end.

use uuid::Uuid;

/// `N` bytes at `at`.
pub(crate) fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// The little-endian number of two bytes at `at`.
pub(crate) fn u16_le(bytes: &[u8], at: usize) -> Option<u16> {
    array_at(bytes, at).map(u16::from_le_bytes)
}

/// The little-endian number of four bytes at `at`.
pub(crate) fn u32_le(bytes: &[u8], at: usize) -> Option<u32> {
    array_at(bytes, at).map(u32::from_le_bytes)
}

/// The little-endian number of eight bytes at `at`.
pub(crate) fn u64_le(bytes: &[u8], at: usize) -> Option<u64> {
    array_at(bytes, at).map(u64::from_le_bytes)
}

/// A GUID as UEFI stores it: the first three fields little-endian.
pub(crate) fn guid(bytes: &[u8], at: usize) -> Option<Uuid> {
    array_at(bytes, at).map(Uuid::from_bytes_le)
}

/// Returns whether this lies at `at`.
pub(crate) fn lies_at(bytes: &[u8], at: usize, what: &[u8]) -> bool {
    bytes.get(at..).is_some_and(|rest| rest.starts_with(what))
}

/// UTF-16 up to the first zero, for people: what is no text, or would steer a terminal, is
/// replaced.
pub(crate) fn utf16(bytes: &[u8]) -> String {
    let units = bytes.as_chunks().0.iter().map(|unit| u16::from_le_bytes(*unit));
    let units = units.take_while(|unit| *unit != 0);
    let shown =
        |decoded: Result<char, _>| printable(decoded.unwrap_or(char::REPLACEMENT_CHARACTER));
    char::decode_utf16(units).map(shown).collect()
}

/// A character that may be printed in the place of this one.
pub(crate) fn printable(character: char) -> char {
    if character.is_control() { char::REPLACEMENT_CHARACTER } else { character }
}

/// Text up to the first zero, for people, as [`utf16`]; `None` where there is none.
pub(crate) fn text(bytes: &[u8]) -> Option<String> {
    let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let text = String::from_utf8_lossy(&bytes[..length]);
    let text = text.trim_end();
    (!text.is_empty()).then(|| text.chars().map(printable).collect())
}

/// Returns whether there is nothing but zeroes.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}
