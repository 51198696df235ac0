//! The P+Q code as linear algebra: which strips of a stripe to read, and with which coefficients
//! to add them up, to get others. Arithmetic is in GF(2^8), where addition is xor.
//!
//! `P = sum of D_i` and `Q = sum of q_i * D_i`; the `q_i` come from
//! [`Geometry::q_coef`](crate::geometry::Geometry::q_coef).

#[cfg(test)]
mod tests;

use braid_parity::gf;

/// A strip of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StripName {
    /// Data strip, counted in array order.
    Data(u32),
    /// The xor of the data strips.
    P,
    /// Their weighted sum.
    Q,
}

/// How to compute the strips that were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Solution {
    /// What to read: indices into the available strips, ascending. Strips not needed are left out.
    pub inputs: Vec<usize>,
    /// Row-major: for each wanted strip one coefficient for each input.
    pub coefs: Vec<u8>,
}

/// Computes the `wanted` strips from the `available` ones. `q_coefs` has one coefficient for each
/// data strip, or is empty in a code with P only. Parity is read only where data is lost, and Q
/// only where P does not do. A strip both available and wanted is passed through.
///
/// `None`: too much is lost, or a strip is named that the code does not have.
#[must_use]
pub fn solve(
    data_disks: u32,
    q_coefs: &[u8],
    available: &[StripName],
    wanted: &[StripName],
) -> Option<Solution> {
    let code = Code { data_disks, q_coefs, available };
    let rows: Vec<Row> = wanted.iter().map(|&name| code.row(name)).collect::<Option<_>>()?;
    let needed = |&index: &usize| rows.iter().any(|row| row.coef(available[index]) != 0);
    let inputs: Vec<usize> = (0..available.len()).filter(needed).collect();
    let coefs = rows
        .iter()
        .flat_map(|row| inputs.iter().map(|&index| row.coef(available[index])))
        .collect();
    Some(Solution { inputs, coefs })
}

struct Code<'a> {
    data_disks: u32,
    q_coefs: &'a [u8],
    available: &'a [StripName],
}

/// A strip as a sum over all strips.
struct Row {
    data: Vec<u8>,
    p: u8,
    q: u8,
}

impl Row {
    fn coef(&self, name: StripName) -> u8 {
        match name {
            StripName::Data(index) => self.data.get(index as usize).copied().unwrap_or(0),
            StripName::P => self.p,
            StripName::Q => self.q,
        }
    }
}

impl Code<'_> {
    fn has(&self, name: StripName) -> bool {
        self.available.contains(&name)
    }

    fn q_coef(&self, index: usize) -> u8 {
        self.q_coefs.get(index).copied().unwrap_or(0)
    }

    /// Starts from what the strip is by itself, and makes the coefficients of lost data zero by
    /// adding a multiple of `P + sum of D_i`, which is zero, and one of `Q + sum of q_i * D_i`.
    fn row(&self, name: StripName) -> Option<Row> {
        let mut row = self.definition(name)?;
        let lost: Vec<usize> = (0..self.data_disks)
            .filter(|&index| !self.has(StripName::Data(index)))
            .map(|index| index as usize)
            .collect();
        let (of_p, of_q) = self.multiples(&row.data, &lost)?;
        for (index, coef) in row.data.iter_mut().enumerate() {
            *coef ^= of_p ^ gf::mul(of_q, self.q_coef(index));
        }
        row.p ^= of_p;
        row.q ^= of_q;
        Some(row)
    }

    fn definition(&self, name: StripName) -> Option<Row> {
        let mut row = Row { data: vec![0; self.data_disks as usize], p: 0, q: 0 };
        match name {
            StripName::P if self.has(name) => row.p = 1,
            StripName::P => row.data.fill(1),
            StripName::Q if self.q_coefs.len() != row.data.len() => return None,
            StripName::Q if self.has(name) => row.q = 1,
            StripName::Q => row.data.copy_from_slice(self.q_coefs),
            StripName::Data(index) => *row.data.get_mut(index as usize)? = 1,
        }
        Some(row)
    }

    /// The multiples of the two sums that clear all `lost` coefficients of `data`; those that need
    /// less parity first.
    fn multiples(&self, data: &[u8], lost: &[usize]) -> Option<(u8, u8)> {
        let clears = |&(of_p, of_q): &(u8, u8)| {
            lost.iter().all(|&x| data[x] == of_p ^ gf::mul(of_q, self.q_coef(x)))
        };
        let (has_p, has_q) = (self.has(StripName::P), self.has(StripName::Q));
        let with_p = lost.first().filter(|_| has_p).map(|&x| (data[x], 0));
        let with_q = lost
            .first()
            .filter(|_| has_q)
            .and_then(|&x| Some((0, gf::mul(data[x], inverse(self.q_coef(x))?))));
        let with_both = lost.get(..2).filter(|_| has_p && has_q).and_then(|pair| {
            let (x, y) = (pair[0], pair[1]);
            let apart = inverse(self.q_coef(x) ^ self.q_coef(y))?;
            let of_q = gf::mul(data[x] ^ data[y], apart);
            Some((data[x] ^ gf::mul(of_q, self.q_coef(x)), of_q))
        });
        [Some((0, 0)), with_p, with_q, with_both].into_iter().flatten().find(clears)
    }
}

fn inverse(coef: u8) -> Option<u8> {
    (coef != 0).then(|| gf::inv(coef))
}
