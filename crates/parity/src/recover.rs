//! Which sums of the surviving strips give the lost ones back.

use crate::gf;
use crate::simd::Kernels;

impl Kernels {
    /// As [`crate::recover`].
    pub fn recover(&self, strips: &mut [&mut [u8]], lost: &[usize]) {
        assert!(strips.len() >= 2, "a stripe has P and Q at least");
        let data = strips.len() - 2;
        assert!(data <= gf::ORDER, "more data strips than P+Q can tell apart");
        assert!(lost.iter().all(|&strip| strip < strips.len()), "no such strip");
        assert!(lost.len() <= 2, "P+Q gives two strips back, not more");
        assert!(!matches!(lost, [a, b] if a == b), "a strip is named twice");

        let coefs = coefficients(data, lost);
        let mut outputs = Vec::new();
        let mut inputs: Vec<&[u8]> = Vec::new();
        for (i, strip) in strips.iter_mut().enumerate() {
            if lost.contains(&i) {
                outputs.push((lost.iter().position(|&l| l == i), &mut **strip));
            } else {
                inputs.push(strip);
            }
        }
        outputs.sort_by_key(|(order, _)| *order);
        let mut outputs: Vec<_> = outputs.into_iter().map(|(_, output)| output).collect();
        self.combine(&mut outputs, &coefs, &inputs, false);
    }
}

/// One row for each lost strip, one column for each surviving one in ascending order, the data
/// strips first, then P, then Q.
///
/// With `x` and `y` lost, P and Q over the surviving data leave `dx + dy = P'` and
/// `gx dx + gy dy = Q'`, hence `dx = (gy P' + Q') / (gx + gy)`. Every strip of the stripe is such a
/// sum of survivors, so one table of weights serves all cases.
fn coefficients(data: usize, lost: &[usize]) -> Vec<u8> {
    let (p, q) = (data, data + 1);
    let survives = |strip: &usize| !lost.contains(strip);
    let power = |strip: usize| gf::pow2(strip);
    // The weights of data strip `i`, of P and of Q in the sum that gives `row` back.
    let weight = |row: usize, column: usize| -> u8 {
        let other = lost.iter().copied().find(|&l| l != row);
        match (row, other) {
            // From Q alone: dx = (Q + sum g^i di) / gx.
            (x, Some(o)) if x < data && o == p => match column {
                c if c == q => gf::inv(power(x)),
                c => gf::div(power(c), power(x)),
            },
            // From P and Q: with the y of above.
            (x, Some(y)) if x < data && y < data => {
                let scale = gf::inv(power(x) ^ power(y));
                match column {
                    c if c == p => gf::mul(power(y), scale),
                    c if c == q => scale,
                    c => gf::mul(power(y) ^ power(c), scale),
                }
            }
            // From P alone: dx = P + sum di.
            (x, _) if x < data => u8::from(column != q),
            // P = sum di, the lost dx taken from Q.
            (row, Some(x)) if row == p && x < data => match column {
                c if c == q => gf::inv(power(x)),
                c => 1 ^ gf::div(power(c), power(x)),
            },
            // Q = sum g^i di, the lost dx taken from P.
            (row, Some(x)) if row == q && x < data => match column {
                c if c == p => power(x),
                c => power(c) ^ power(x),
            },
            (row, _) if row == p => u8::from(column < data),
            (_, _) => {
                if column < data {
                    power(column)
                } else {
                    0
                }
            }
        }
    };
    let columns = || (0..data + 2).filter(survives);
    lost.iter().flat_map(|&row| columns().map(move |column| weight(row, column))).collect()
}
