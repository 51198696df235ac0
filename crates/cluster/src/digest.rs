//! Digests of ranges of blocks, with the sums of the ranges: every sum of a code that holds for the
//! contents holds for their digests. So nodes are asked for digests when a stripe is checked, and
//! the contents stay where they are.
//!
//! A range is cut into 128 pieces `d0`, `d1`, ... of equal length. Its digest is two of them, with
//! the arithmetic of RAID-6 (2 is the generator of GF(2^8)):
//!
//! ```text
//!  d0 + d2 + d3 + ... + d127        d1 + 2^2 d2 + 2^3 d3 + ... + 2^127 d127
//! ```
//! The two sums are a code of distance three: a difference that lies in one or two pieces, or is
//! the same in a row of them, is always detected. Any other difference is missed if by chance it
//! changes neither sum: for unrelated contents with odds of 1 in 2^512, for the shortest range of 4
//! KiB. The digest does not protect against deliberately made contents.

use braid_array::{Buf, Compute};
use braid_parity::gf;

/// Pieces of a range. Powers of 2 repeat after 255.
const PIECES: u32 = 128;
/// Pieces of a digest.
const SUMS: u32 = 2;
/// Ranges are multiples of this.
pub(crate) const UNIT_BYTES: u32 = 4096;

/// Length of the digest of a range.
pub(crate) const fn digest_bytes(range_bytes: u32) -> u32 {
    range_bytes / PIECES * SUMS
}

/// Returns the computation of a range's digest. The digest replaces the first bytes; the others
/// stay.
pub(crate) fn digest(range: Buf) -> Compute {
    let bytes = range.len / PIECES;
    let piece = |number| range.slice(number * bytes, bytes);
    let ones = (SUMS..PIECES).map(|_| 1);
    let powers = (SUMS..PIECES).map(|number| gf::pow2(number as usize));
    Compute::Sum {
        inputs: (SUMS..PIECES).map(piece).collect(),
        coefs: ones.chain(powers).collect(),
        outputs: (0..SUMS).map(piece).collect(),
        accumulate: true,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use braid_array::code::{StripeCode, Term};
    use braid_array::level::{Layout, Level};

    use super::*;
    use crate::Family;

    const BYTES: usize = UNIT_BYTES as usize;

    /// The digest of these bytes.
    pub(crate) fn of(bytes: &[u8]) -> Vec<u8> {
        let range = Buf { offset: 0, len: bytes.len() as u32 };
        let Compute::Sum { inputs, coefs, outputs, accumulate } = digest(range) else {
            unreachable!("a digest is a sum");
        };
        let part = |buf: &Buf| &bytes[buf.offset as usize..][..buf.len as usize];
        let inputs: Vec<&[u8]> = inputs.iter().map(part).collect();
        let mut sums: Vec<Vec<u8>> = outputs.iter().map(|buf| part(buf).to_vec()).collect();
        let mut into: Vec<&mut [u8]> = sums.iter_mut().map(Vec::as_mut_slice).collect();
        braid_parity::combine(&mut into, &coefs, &inputs, accumulate);
        sums.concat()
    }

    fn random(len: usize, seed: &mut u64) -> Vec<u8> {
        let mut byte = || {
            *seed ^= *seed << 13;
            *seed ^= *seed >> 7;
            *seed ^= *seed << 17;
            (*seed >> 32) as u8
        };
        (0..len).map(|_| byte()).collect()
    }

    fn sum(code: &StripeCode, terms: &[Term], of_cells: &[Vec<u8>]) -> Vec<u8> {
        let mut sum = vec![0; of_cells[0].len()];
        for term in terms {
            let input = &of_cells[code.number(term.cell)];
            braid_parity::combine(&mut [&mut sum], &[term.coef], &[input], true);
        }
        sum
    }

    fn codes() -> Vec<StripeCode> {
        let levels = [
            (Level::Raid1, 3),
            (Level::Raid4, 3),
            (Level::Raid5, 4),
            (Level::Raid6, 6),
            (Level::Raid10, 4),
        ];
        let md = levels.map(|(level, nodes)| {
            let family = Family::Md { level, layout: Layout::default_for(level) };
            family.code(nodes, 1).expect("a code")
        });
        let xor2d = [4, 5, 8].map(|nodes| Family::Xor2d.code(nodes, 0).expect("4 to 34 nodes"));
        md.into_iter().chain(xor2d).collect()
    }

    #[test]
    fn every_sum_of_every_code_holds_of_digests_and_none_with_a_byte_changed() {
        let mut seed = 1;
        for code in codes() {
            for len in [BYTES, 3 * BYTES] {
                let mut cells: Vec<Vec<u8>> = vec![vec![0; len]; code.cells().count()];
                for &cell in code.data() {
                    cells[code.number(cell)] = random(len, &mut seed);
                }
                for equation in code.equations() {
                    let parity = sum(&code, &equation.terms, &cells);
                    cells[code.number(equation.parity)] = parity;
                }
                let mut digests: Vec<Vec<u8>> = cells.iter().map(|cell| of(cell)).collect();
                assert!(digests.iter().all(|d| d.len() == digest_bytes(len as u32) as usize));
                for equation in code.equations() {
                    let parity = &digests[code.number(equation.parity)];
                    assert_eq!(&sum(&code, &equation.terms, &digests), parity, "{len}");
                }
                for cell in code.cells() {
                    let number = code.number(cell);
                    let at = seed as usize % len;
                    cells[number][at] ^= 0x10;
                    let right = std::mem::replace(&mut digests[number], of(&cells[number]));
                    for (at, equation) in code.equations().iter().enumerate() {
                        let parity = &digests[code.number(equation.parity)];
                        let fits = &sum(&code, &equation.terms, &digests) == parity;
                        assert_eq!(fits, !code.involved(cell).contains(&at), "{cell:?}");
                    }
                    cells[number][at] ^= 0x10;
                    digests[number] = right;
                }
            }
        }
    }

    #[test]
    fn every_byte_is_seen_and_any_two_pieces_are() {
        let zero = vec![0; digest_bytes(UNIT_BYTES) as usize];
        let mut bytes = vec![0; BYTES];
        for at in 0..BYTES {
            for change in [1, 0x80, 0xff] {
                bytes[at] = change;
                assert_ne!(of(&bytes), zero, "byte {at}");
            }
            bytes[at] = 0;
        }
        let piece = BYTES / PIECES as usize;
        let weights = |number: usize| {
            let mut one = vec![0; BYTES];
            one[number * piece] = 1;
            let digest = of(&one);
            (digest[0], digest[piece])
        };
        // No two are multiples of one another: nothing of two pieces cancels out.
        let mut known: Vec<(u8, u8)> = (0..PIECES as usize).map(weights).collect();
        for (p, q) in &mut known {
            let first = if *p == 0 { *q } else { *p };
            (*p, *q) = (gf::div(*p, first), gf::div(*q, first));
        }
        known.sort_unstable();
        known.dedup();
        assert_eq!(known.len(), PIECES as usize);
    }

    #[test]
    fn a_difference_that_is_the_same_all_along_is_seen() {
        let zero = vec![0; digest_bytes(UNIT_BYTES) as usize];
        let piece = BYTES / PIECES as usize;
        for start in 0..PIECES as usize {
            for end in start + 1..=PIECES as usize {
                let mut bytes = vec![0; BYTES];
                bytes[start * piece..end * piece].fill(0x5a);
                assert_ne!(of(&bytes), zero, "{start} to {end}");
            }
        }
    }
}
