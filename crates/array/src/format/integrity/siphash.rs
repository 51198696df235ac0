//! SipHash-2-4 with a result of 128 bits, as its authors have it in their reference code
//! (Aumasson and Bernstein, `siphash.c`), with the key that is all zeroes: a digest, not a secret.

/// Returns the hash of these bytes.
pub(super) fn siphash_128(bytes: &[u8]) -> [u8; 16] {
    keyed([0, 0], bytes)
}

fn keyed([low, high]: [u64; 2], bytes: &[u8]) -> [u8; 16] {
    let mut state = [
        low ^ 0x736f_6d65_7073_6575,
        high ^ 0x646f_7261_6e64_6f6d ^ 0xee,
        low ^ 0x6c79_6765_6e65_7261,
        high ^ 0x7465_6462_7974_6573,
    ];
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    last[7] = bytes.len().to_le_bytes()[0];
    for word in words.iter().chain([&last]) {
        let word = u64::from_le_bytes(*word);
        state[3] ^= word;
        rounds(&mut state, 2);
        state[0] ^= word;
    }
    let mut hash = [0; 16];
    for (half, mark) in hash.as_chunks_mut::<8>().0.iter_mut().zip([(2, 0xee), (1, 0xdd)]) {
        let (at, value) = mark;
        state[at] ^= value;
        rounds(&mut state, 4);
        *half = state.iter().fold(0, |sum, word| sum ^ word).to_le_bytes();
    }
    hash
}

fn rounds(state: &mut [u64; 4], count: usize) {
    let [mut a, mut b, mut c, mut d] = *state;
    for _ in 0..count {
        a = a.wrapping_add(b);
        b = b.rotate_left(13) ^ a;
        a = a.rotate_left(32);
        c = c.wrapping_add(d);
        d = d.rotate_left(16) ^ c;
        a = a.wrapping_add(d);
        d = d.rotate_left(21) ^ a;
        c = c.wrapping_add(b);
        b = b.rotate_left(17) ^ c;
        c = c.rotate_left(32);
    }
    *state = [a, b, c, d];
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vectors of the reference code: its key, and inputs that count up.
    #[test]
    fn it_is_the_hash_of_its_authors() {
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        let vectors: [[u8; 16]; 3] = [
            0xa381_7f04_ba25_a8e6_6df6_7214_c755_0293_u128.to_be_bytes(),
            0xda87_c1d8_6b99_af44_3476_5911_9b22_fc45_u128.to_be_bytes(),
            0x8177_228d_a4a4_5dc7_fca3_8bde_f60a_ffe4_u128.to_be_bytes(),
        ];
        for (length, vector) in (0..).zip(vectors) {
            let input: Vec<u8> = (0..length).collect();
            assert_eq!(keyed(key, &input), vector, "{length}");
        }
        // Of input 00 to 0e, by the paper's key.
        let input: Vec<u8> = (0..15).collect();
        let expected = 0x5493_e999_33b0_a811_7e08_ec0f_97cf_c3d9_u128.to_be_bytes();
        assert_eq!(keyed(key, &input), expected);
    }
}
