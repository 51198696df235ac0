//! Sums of products, the one operation behind parity, recovery and partial updates.

use crate::gf;
use crate::simd::{Kernels, MUL_OUTPUTS, Part};

/// Inputs taken in one walk over the outputs. More than this are added in further walks.
const WALK_INPUTS: usize = 32;

impl Kernels {
    /// Sums strips as [`crate::xor`] does.
    pub fn xor(&self, dst: &mut [u8], srcs: &[&[u8]]) {
        let part = Part::whole(dst.len());
        self.xor_part(dst, srcs, part, false);
    }

    /// Adds strips as [`crate::xor_into`] does.
    pub fn xor_into(&self, dst: &mut [u8], srcs: &[&[u8]]) {
        let part = Part::whole(dst.len());
        self.xor_part(dst, srcs, part, true);
    }

    /// Computes P and Q as [`crate::pq`] does.
    pub fn pq(&self, p: &mut [u8], q: &mut [u8], data: &[&[u8]]) {
        let part = Part::whole(p.len());
        self.pq_part(p, q, data, part);
    }

    /// Combines strips as [`crate::combine`] does.
    pub fn combine(
        &self,
        outputs: &mut [&mut [u8]],
        coefs: &[u8],
        inputs: &[&[u8]],
        accumulate: bool,
    ) {
        assert_eq!(coefs.len(), outputs.len() * inputs.len(), "number of coefficients");
        if let Some(len) = outputs.first().map(|output| output.len()) {
            let alike = outputs.iter().all(|output| output.len() == len)
                && inputs.iter().all(|input| input.len() == len);
            assert!(alike, "strips differ in length");
        }
        if let ([p, q], false) = (&mut *outputs, accumulate) {
            let (ones, powers) = coefs.split_at(inputs.len());
            let mut space = None;
            if ones.iter().all(|&coef| coef == 1)
                && let Some(data) = in_order(powers, inputs, &mut space)
            {
                let part = Part::whole(p.len());
                return self.pq_part(p, q, data, part);
            }
        }
        // Sums without products are formed one by one, each reading only what it needs.
        let width = if coefs.iter().all(|&coef| coef <= 1) { 1 } else { MUL_OUTPUTS };
        for (i, outputs) in outputs.chunks_mut(width).enumerate() {
            let rows = &coefs[i * width * inputs.len()..][..outputs.len() * inputs.len()];
            self.sum(outputs, rows, inputs, accumulate);
        }
    }

    /// [`combine`](Self::combine) for at most [`MUL_OUTPUTS`] outputs, leaving out the inputs of
    /// which no output wants any.
    fn sum(&self, outputs: &mut [&mut [u8]], coefs: &[u8], inputs: &[&[u8]], mut accumulate: bool) {
        let count = inputs.len();
        for (walk, part) in inputs.chunks(WALK_INPUTS).enumerate() {
            let mut chosen: [&[u8]; WALK_INPUTS] = [&[]; WALK_INPUTS];
            let mut columns = [0; WALK_INPUTS];
            let mut len = 0;
            for (column, input) in (walk * WALK_INPUTS..).zip(part) {
                if coefs.iter().skip(column).step_by(count).any(|&coef| coef != 0) {
                    (chosen[len], columns[len]) = (input, column);
                    len += 1;
                }
            }
            if len == 0 {
                continue;
            }
            let mut dense = [0; WALK_INPUTS * MUL_OUTPUTS];
            for (row, dense) in coefs.chunks(count).zip(dense.chunks_mut(len)) {
                for (coef, &column) in dense.iter_mut().zip(&columns[..len]) {
                    *coef = row[column];
                }
            }
            let dense = &dense[..len * outputs.len()];
            match outputs {
                [output] if dense.iter().all(|&coef| coef == 1) => {
                    let part = Part::whole(output.len());
                    self.xor_part(output, &chosen[..len], part, accumulate);
                }
                _ => {
                    let part = Part::whole(outputs[0].len());
                    self.mul_part(outputs, dense, &chosen[..len], part, accumulate);
                }
            }
            accumulate = true;
        }
        if !accumulate {
            outputs.iter_mut().for_each(|output| output.fill(0));
        }
    }
}

/// The data strips of a stripe in the order in which its Q counts them.
pub(crate) type Ordered<'a> = [&'a [u8]; gf::ORDER];

/// Returns the inputs in the order of the exponents, when `coefs` are 2^0, 2^1, ... in any order.
/// They are sorted in `space` unless they came so. The asymmetric layouts number the data of a
/// stripe otherwise than its Q does.
pub(crate) fn in_order<'s, 'a>(
    coefs: &[u8],
    inputs: &'s [&'a [u8]],
    space: &'s mut Option<Ordered<'a>>,
) -> Option<&'s [&'a [u8]]> {
    let count = inputs.len();
    if count > gf::ORDER {
        return None;
    }
    if coefs.iter().enumerate().all(|(i, &coef)| coef == gf::pow2(i)) {
        return Some(inputs);
    }
    let mut filled = [false; gf::ORDER];
    let ordered = space.insert([&[]; gf::ORDER]);
    for (&coef, input) in coefs.iter().zip(inputs) {
        if coef == 0 {
            return None;
        }
        let slot = usize::from(gf::log2(coef));
        if slot >= count || filled[slot] {
            return None;
        }
        (ordered[slot], filled[slot]) = (input, true);
    }
    Some(&ordered[..count])
}
