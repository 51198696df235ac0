//! Sizes and UUIDs as mdadm prints them.

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const TIB: u64 = 1 << 40;

/// Below this mdadm prints no second form.
const SMALL_BYTES: u64 = 5000 * 1024;

/// Up to which size which prefix serves, and its binary and decimal unit.
const SCALE: [(u64, u64, u64, char); 3] = [
    (2 * GIB, MIB, 1_000_000, 'M'),
    (2 * TIB, GIB, 1_000_000_000, 'G'),
    (u64::MAX, TIB, 1_000_000_000_000, 'T'),
];

/// Binary and decimal unit for a size, and their prefix.
fn scale(bytes: u64) -> (u64, u64, char) {
    let [.., last] = SCALE;
    let (_, binary, decimal, prefix) =
        SCALE.into_iter().find(|(below, ..)| bytes < *below).unwrap_or(last);
    (binary, decimal, prefix)
}

/// ` (62.00 MiB 65.01 MB)`, or nothing for small sizes.
pub(crate) fn size_both(bytes: u64) -> String {
    if bytes < SMALL_BYTES {
        return String::new();
    }
    let (binary, decimal, prefix) = scale(bytes);
    let b = hundredths(bytes, binary);
    let d = hundredths(bytes, decimal);
    format!(" ({} {prefix}iB {} {prefix}B)", fraction(b), fraction(d))
}

/// `65.01MB`, or nothing for small sizes.
pub(crate) fn size_brief(bytes: u64) -> String {
    if bytes < SMALL_BYTES {
        return String::new();
    }
    let (_, decimal, prefix) = scale(bytes);
    format!("{}{prefix}B", fraction(hundredths(bytes, decimal)))
}

/// `62.00 MiB`.
pub(crate) fn size_binary(bytes: u64) -> String {
    let (unit, _, prefix) = scale(bytes);
    format!("{} {prefix}iB", fraction(hundredths(bytes, unit)))
}

/// Hundredths of a unit, rounded as mdadm does: in half hundredths, then up from the middle.
fn hundredths(bytes: u64, unit: u64) -> u64 {
    let twice = if unit.is_power_of_two() {
        u128::from(bytes) * 200 / u128::from(unit)
    } else {
        u128::from(bytes) / u128::from(unit / 200)
    };
    u64::try_from(twice.div_ceil(2)).unwrap_or(u64::MAX)
}

fn fraction(hundredths: u64) -> String {
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// Four groups of eight hex digits.
pub(crate) fn uuid(bytes: [u8; 16]) -> String {
    let groups: Vec<String> = bytes
        .chunks(4)
        .map(|group| group.iter().map(|byte| format!("{byte:02x}")).collect())
        .collect();
    groups.join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_mdadm() {
        // Taken from mdadm 4.2.
        assert_eq!(size_both(63488 * 1024), " (62.00 MiB 65.01 MB)");
        assert_eq!(size_both(65472 * 1024), " (63.94 MiB 67.04 MB)");
        assert_eq!(size_both(47616 * 1024), " (46.50 MiB 48.76 MB)");
        assert_eq!(size_both(SMALL_BYTES - 1), "");
        assert_eq!(size_brief(63488 * 1024), "65.01MB");
        assert_eq!(size_both(3 << 30), " (3.00 GiB 3.22 GB)");
        assert_eq!(size_both(3 << 40), " (3.00 TiB 3.30 TB)");
        assert_eq!(size_both(u64::MAX), " (16777216.00 TiB 18446744.07 TB)");
    }

    #[test]
    fn uuid_has_four_groups() {
        let mut bytes = [0; 16];
        bytes[..6].copy_from_slice(&[0x3f, 0x34, 0x87, 0x14, 0xb0, 0x98]);
        assert_eq!(uuid(bytes), "3f348714:b0980000:00000000:00000000");
    }
}
