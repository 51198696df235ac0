//! Comparing a stripe with its parity, and naming the strip that is to blame.

use crate::combine::in_order;
use crate::gf;
use crate::simd::{Kernels, Part};

/// The unit in which differences are reported, in bytes: md's page.
pub const CHECK_BLOCK_BYTES: usize = 4096;

/// The longest strip one call compares: a mask has 64 bits.
pub const CHECK_MAX_BYTES: usize = 64 * CHECK_BLOCK_BYTES;

/// Result of [`check`](crate::check). Bit `i` of a mask stands for the block at byte `4096 * i`;
/// the last block may be shorter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckResult {
    /// Blocks in which P is not the sum of the data.
    pub p_differs: u64,
    /// Blocks in which Q is not the weighted sum of the data. Zero without Q.
    pub q_differs: u64,
    /// The data strip whose change alone explains every difference in P and Q, if there is
    /// exactly one such strip.
    pub data_located: Option<u16>,
}

/// Coefficient of a single wrong data strip, as far as the differences seen so far tell.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Suspect {
    Unknown,
    Coefficient(u8),
    Impossible,
}

impl Kernels {
    /// Compares a stripe as [`crate::check`] does.
    pub fn check(&self, data: &[&[u8]], q_coefs: &[u8], p: &[u8], q: Option<&[u8]>) -> CheckResult {
        assert!(p.len() <= CHECK_MAX_BYTES, "strips are longer than the mask");
        let len = p.len();
        assert!(data.iter().all(|strip| strip.len() == len), "strips differ in length");
        let Some(q) = q else {
            return CheckResult { p_differs: self.check_p(data, p), ..CheckResult::default() };
        };
        assert_eq!(q.len(), len, "strips differ in length");
        assert_eq!(q_coefs.len(), data.len(), "number of coefficients");

        let mut space = None;
        let ordered = in_order(q_coefs, data, &mut space);
        let mut result = CheckResult::default();
        let mut suspect = Suspect::Unknown;
        let mut p_sum = [0; CHECK_BLOCK_BYTES];
        let mut q_sum = [0; CHECK_BLOCK_BYTES];
        for (bit, (p, q)) in blocks(p).zip(blocks(q)).enumerate() {
            let p_sum = &mut p_sum[..p.len()];
            let q_sum = &mut q_sum[..p.len()];
            let part = Part { at: bit * CHECK_BLOCK_BYTES, of: len };
            if let Some(data) = ordered {
                self.pq_part(p_sum, q_sum, data, part);
            } else {
                self.xor_part(p_sum, data, part, false);
                self.mul_part(&mut [&mut *q_sum], q_coefs, data, part, false);
            }
            let p_differs = p_sum != p;
            let q_differs = q_sum != q;
            result.p_differs |= u64::from(p_differs) << bit;
            result.q_differs |= u64::from(q_differs) << bit;
            if p_differs || q_differs {
                self.xor_into(p_sum, &[p]);
                self.xor_into(q_sum, &[q]);
                suspect = suspect.after(p_sum, q_sum);
            }
        }
        result.data_located = suspect.strip(q_coefs);
        result
    }

    fn check_p(&self, data: &[&[u8]], p: &[u8]) -> u64 {
        let len = p.len();
        let mut sum = [0; CHECK_BLOCK_BYTES];
        let mut mask = 0;
        for (bit, p) in blocks(p).enumerate() {
            let sum = &mut sum[..p.len()];
            let part = Part { at: bit * CHECK_BLOCK_BYTES, of: len };
            self.xor_part(sum, data, part, false);
            mask |= u64::from(sum != p) << bit;
        }
        mask
    }
}

impl Suspect {
    /// The verdict after the P and Q syndromes of one more block. An error `e` in the strip with
    /// coefficient `c` shows as `e` in P's and `c * e` in Q's, so `c` is their quotient.
    fn after(mut self, p_syndrome: &[u8], q_syndrome: &[u8]) -> Self {
        for (&p, &q) in p_syndrome.iter().zip(q_syndrome) {
            self = match (self, p, q) {
                (_, 0, 0) => self,
                (Self::Impossible, ..) | (_, 0, _) | (_, _, 0) => return Self::Impossible,
                (Self::Unknown, ..) => Self::Coefficient(gf::div(q, p)),
                (Self::Coefficient(coef), ..) if gf::mul(coef, p) == q => self,
                (Self::Coefficient(_), ..) => return Self::Impossible,
            };
        }
        self
    }

    /// The only strip with the coefficient found.
    fn strip(self, q_coefs: &[u8]) -> Option<u16> {
        let Self::Coefficient(found) = self else { return None };
        let mut strips = (0..).zip(q_coefs).filter(|&(_, &coef)| coef == found);
        match (strips.next(), strips.next()) {
            (Some((strip, _)), None) => Some(strip),
            _ => None,
        }
    }
}

/// Returns the mask of differing blocks, as [`crate::differing_blocks`] does.
pub(crate) fn differing_blocks(a: &[u8], b: &[u8]) -> u64 {
    assert_eq!(a.len(), b.len(), "buffers differ in length");
    assert!(a.len() <= CHECK_MAX_BYTES, "buffers are longer than the mask");
    let differs = blocks(a).zip(blocks(b)).map(|(a, b)| u64::from(a != b));
    differs.enumerate().fold(0, |mask, (bit, differs)| mask | differs << bit)
}

fn blocks(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.chunks(CHECK_BLOCK_BYTES)
}
