//! Parts of an array that are exported as disks of their own.

use std::fmt;
use std::ops::Range;

use braid_array::Refusal;

use crate::access::Unmeant;
use crate::size;

/// Limit on names of exports. The protocol would take 4096 bytes.
const MAX_NAME_BYTES: usize = 255;

/// Part of the array that an export shows, and its name. By default it is the whole array, and has
/// its name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExportPart {
    name: Option<String>,
    offset: Option<u64>,
    size: Option<u64>,
    read_only: bool,
}

/// Bytes of the array that an export shows, and whether they are writable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) bytes: Range<u64>,
    pub(super) writable: bool,
}

impl ExportPart {
    /// Takes an option in; `value` is empty where none is given. False when it is none of these.
    pub(crate) fn set(&mut self, key: &str, value: &str) -> Result<bool, Unmeant> {
        let twice = || Unmeant { reason: format!("{key} is there twice"), next: "leave one out" };
        let was_there = match key {
            "name" => self.name.replace(name(value)?).is_some(),
            "offset" => self.offset.replace(bytes(key, value)?).is_some(),
            "size" => match bytes(key, value)? {
                0 => {
                    let reason = "size=0: a disk needs some bytes".to_owned();
                    return Err(Unmeant { reason, next: "name a size, or leave size= out" });
                }
                bytes => self.size.replace(bytes).is_some(),
            },
            "readonly" if value.is_empty() => std::mem::replace(&mut self.read_only, true),
            "readonly" => {
                let reason = format!("readonly={value}: readonly takes no value");
                return Err(Unmeant { reason, next: "write readonly, or leave it out" });
            }
            _ => return Ok(false),
        };
        if was_there { Err(twice()) } else { Ok(true) }
    }

    /// Returns its name, where it has one other than the array's.
    pub(super) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns whether it reaches to the end of the array, wherever that is.
    pub(super) const fn reaches_end(&self) -> bool {
        self.size.is_none()
    }

    /// Returns the least number of bytes of an array that has it.
    #[must_use]
    pub fn least_bytes(&self) -> u64 {
        self.offset.unwrap_or(0).saturating_add(self.size.unwrap_or(1))
    }

    /// Returns its bytes on an array of this size with blocks of so many bytes.
    pub(super) fn extent(
        &self,
        array_bytes: u64,
        block_bytes: u32,
        array_is_read_only: bool,
    ) -> Result<Extent, Refusal> {
        let block = u64::from(block_bytes);
        for (key, value) in [("offset", self.offset), ("size", self.size)] {
            value.map_or(Ok(()), |value| check_aligned(key, value, block))?;
        }
        let end = array_bytes - array_bytes % block;
        let from = self.offset.unwrap_or(0);
        let left = end.saturating_sub(from);
        if left == 0 {
            let reason = format!("offset={} is not inside the array", size::typed(from));
            return Err(Refusal::new(reason, format!("the array has {end} bytes")));
        }
        let len = self.size.unwrap_or(left);
        if len > left {
            let reason = format!("ends {} bytes beyond the end of the array", len - left);
            let next = format!("use size={} at most, or leave size= out", size::typed(left));
            return Err(Refusal::new(reason, next));
        }
        let writable = !self.read_only && !array_is_read_only;
        Ok(Extent { bytes: from..from + len, writable })
    }
}

/// Writes the options, each after a comma.
impl fmt::Display for ExportPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(f, ",name={name}")?;
        }
        if let Some(offset) = self.offset {
            write!(f, ",offset={}", size::typed(offset))?;
        }
        if let Some(bytes) = self.size {
            write!(f, ",size={}", size::typed(bytes))?;
        }
        if self.read_only {
            f.write_str(",readonly")?;
        }
        Ok(())
    }
}

impl Extent {
    /// Returns whether both could write the same bytes, each as if they were its own. Exports of
    /// the whole array do not clash: they are one disk in several ways.
    pub(super) fn clashes(&self, other: &Self, whole: &Range<u64>) -> bool {
        let shared = self.bytes.start.max(other.bytes.start) < self.bytes.end.min(other.bytes.end);
        let both_whole = self.bytes == *whole && other.bytes == *whole;
        self.writable && other.writable && shared && !both_whole
    }
}

fn check_aligned(key: &str, value: u64, block: u64) -> Result<(), Refusal> {
    let over = value % block;
    if over == 0 {
        return Ok(());
    }
    let typed = size::typed(value);
    let reason = format!("{key}={typed} is not a multiple of the array's blocks of {block} bytes");
    let below = size::typed(value - over);
    let above = size::typed(value - over + block);
    let next = if value < block && key == "size" {
        format!("use {key}={above}")
    } else {
        format!("use {key}={below} or {key}={above}")
    };
    Err(Refusal::new(reason, next))
}

fn bytes(key: &str, value: &str) -> Result<u64, Unmeant> {
    size::parse(value).map_err(|refusal| Unmeant {
        reason: format!("{key}={value}: {}", refusal.reason),
        next: "write bytes, or a number with K, M, G or T: offset=1G, size=1.5T",
    })
}

fn name(value: &str) -> Result<String, Unmeant> {
    let next = "name the export as clients are to ask for it: name=vm1";
    let reason = if value.is_empty() {
        "name= has no name".to_owned()
    } else if value.len() > MAX_NAME_BYTES {
        format!("name= has a name of more than {MAX_NAME_BYTES} bytes")
    } else if value.contains(char::is_control) {
        format!("name={value:?} has characters that cannot be shown")
    } else {
        return Ok(value.to_owned());
    };
    Err(Unmeant { reason, next })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn part(options: &[(&str, &str)]) -> ExportPart {
        let mut part = ExportPart::default();
        for (key, value) in options {
            assert_eq!(part.set(key, value), Ok(true), "{key}");
        }
        part
    }

    #[test]
    fn a_part_is_where_it_was_asked_for() {
        let extent = |options: &[(&str, &str)]| part(options).extent(10 * GIB + 100, 512, false);
        let bytes = |options: &[(&str, &str)]| extent(options).unwrap().bytes;
        assert_eq!(bytes(&[]), 0..10 * GIB);
        assert_eq!(bytes(&[("offset", "1GiB"), ("size", "1.5G")]), GIB..5 * GIB / 2);
        assert_eq!(bytes(&[("offset", "9G")]), 9 * GIB..10 * GIB);
        assert_eq!(bytes(&[("size", "1GB")]), 0..1_000_000_000);
        assert!(!extent(&[("readonly", "")]).unwrap().writable);
        assert!(!part(&[]).extent(GIB, 512, true).unwrap().writable, "the array is not");
        let all = part(&[("readonly", ""), ("size", "512"), ("offset", "0"), ("name", "a b")]);
        assert_eq!(all.to_string(), ",name=a b,offset=0,size=512,readonly");
    }

    #[test]
    fn what_does_not_fit_the_array_is_refused_with_what_does() {
        let table = [
            (("offset", "1000"), "multiple of the array's blocks of 4096", "offset=0 or offset=4K"),
            (("size", "5000"), "size=5000 is not a multiple", "size=4K or size=8K"),
            (("size", "1"), "size=1 is not a multiple", "use size=4K"),
            (("offset", "1G"), "offset=1G is not inside the array", "has 1073741824 bytes"),
            (("offset", "8T"), "offset=8T is not inside the array", "has 1073741824 bytes"),
            (("size", "2G"), "ends 1073741824 bytes beyond", "use size=1G at most"),
        ];
        for (option, reason, next) in table {
            let refusal = part(&[option]).extent(GIB, 4096, false).unwrap_err();
            assert!(refusal.reason.contains(reason), "{refusal}");
            assert!(refusal.next.advice.ends_with(next) || refusal.next.advice.contains(next));
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        let reason =
            |key: &str, value: &str| ExportPart::default().set(key, value).unwrap_err().reason;
        assert_eq!(reason("offset", "1Q"), "offset=1Q: not a size");
        assert_eq!(reason("offset", ""), "offset=: not a size");
        assert_eq!(reason("size", "0"), "size=0: a disk needs some bytes");
        assert_eq!(reason("name", ""), "name= has no name");
        assert!(reason("name", &"n".repeat(256)).contains("more than 255"));
        assert!(reason("name", "a\nb").contains("cannot be shown"));
        assert!(reason("readonly", "no").contains("takes no value"));
        assert_eq!(part(&[("size", "1K")]).set("size", "1K").unwrap_err().next, "leave one out");
        assert!(part(&[("readonly", "")]).set("readonly", "").is_err());
        assert_eq!(ExportPart::default().set("mode", "0600"), Ok(false));
    }

    #[test]
    fn two_that_could_write_the_same_bytes_clash() {
        let extent = |bytes: Range<u64>, writable| Extent { bytes, writable };
        let clash = |a: &Extent, b: &Extent| {
            assert_eq!(a.clashes(b, &(0..100)), b.clashes(a, &(0..100)));
            a.clashes(b, &(0..100))
        };
        let part = extent(10..20, true);
        for (other, clashes) in [(0..10, false), (20..30, false), (19..30, true), (0..100, true)] {
            assert_eq!(clash(&part, &extent(other.clone(), true)), clashes, "{other:?}");
            assert!(!clash(&part, &extent(other, false)), "who reads writes nothing");
        }
        assert!(clash(&part, &part), "two disks on the same bytes");
        assert!(!clash(&extent(0..100, true), &extent(0..100, true)), "one disk in two ways");
    }
}
