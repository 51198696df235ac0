//! Tables for a multiplication by each of the 256 coefficients, computed at compile time.

use crate::gf;

/// Products of a coefficient with the low nibbles 0x00..=0x0f, then with the high nibbles
/// 0x00..=0xf0: two 16-entry tables for a byte shuffle.
#[repr(align(32))]
pub(super) struct Nibbles(pub(super) [u8; 32]);

pub(super) static NIBBLES: [Nibbles; 256] = {
    let mut tables = [const { Nibbles([0; 32]) }; 256];
    let mut coef = 0;
    while coef < 256 {
        let mut nibble = 0;
        while nibble < 16 {
            tables[coef].0[nibble] = gf::mul(coef as u8, nibble as u8);
            tables[coef].0[16 + nibble] = gf::mul(coef as u8, (nibble << 4) as u8);
            nibble += 1;
        }
        coef += 1;
    }
    tables
};

/// The multiplication by a coefficient as an 8x8 bit matrix for `gf2p8affineqb`. (The instruction
/// set has a multiplication too, but in the field of AES, 0x11b.) The instruction takes bit `i` of
/// the result from row byte `7 - i`, whose bit `j` is bit `i` of `coef * 2^j`.
pub(super) static MATRICES: [u64; 256] = {
    let mut matrices = [0; 256];
    let mut coef = 0;
    while coef < 256 {
        let mut j = 0;
        while j < 8 {
            let product = gf::mul(coef as u8, 1 << j);
            let mut i = 0;
            while i < 8 {
                let bit = (product >> i & 1) as u64;
                matrices[coef] |= bit << (8 * (7 - i) + j);
                i += 1;
            }
            j += 1;
        }
        coef += 1;
    }
    matrices
};
