//! CRC-32 with the polynomial of IEEE 802.3, reflected. GPT and LVM2 begin and end it differently.

const TABLE: [u32; 256] = table(0xedb8_8320);

/// The change that a byte makes to a sum by this polynomial, reflected.
pub(crate) const fn table(polynomial: u32) -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut value = index as u32;
        let mut bit = 0;
        while bit < 8 {
            value = value >> 1 ^ if value & 1 == 1 { polynomial } else { 0 };
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
}

/// The sum's state after these bytes.
pub(crate) fn crc32_update(state: u32, bytes: &[u8]) -> u32 {
    let step = |state: u32, byte: &u8| state >> 8 ^ TABLE[(state as u8 ^ byte) as usize];
    bytes.iter().fold(state, step)
}

/// As GPT has it (UEFI specification, 5.3.2), and zlib: the complement from all ones.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    !crc32_update(u32::MAX, bytes)
}

#[cfg(test)]
mod tests {
    use super::crc32;

    /// The check value of the catalogue of CRC algorithms for CRC-32/ISO-HDLC.
    #[test]
    fn the_check_value_comes_out() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }
}
