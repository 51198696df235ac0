//! Sums of data blocks, symbolically.

use std::collections::BTreeMap;
use std::fmt;

use braid_parity::gf;

/// A sum of data blocks of a stripe, each with a coefficient of GF(2^8) that is not zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms(BTreeMap<u32, u8>);

impl Terms {
    /// The data block with this index.
    #[must_use]
    pub fn block(index: u32) -> Self {
        Self(BTreeMap::from([(index, 1)]))
    }

    /// Adds `coef * other`.
    pub fn add(&mut self, coef: u8, other: &Self) {
        for (&index, &theirs) in &other.0 {
            let sum = self.coef(index) ^ gf::mul(coef, theirs);
            if sum == 0 {
                self.0.remove(&index);
            } else {
                self.0.insert(index, sum);
            }
        }
    }

    /// The coefficient of a data block, 0 for one that is not in the sum.
    #[must_use]
    pub fn coef(&self, index: u32) -> u8 {
        self.0.get(&index).copied().unwrap_or(0)
    }

    /// Data indices, ascending, with their coefficients.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u8)> {
        self.0.iter().map(|(&index, &coef)| (index, coef))
    }

    /// The index of the block, when the sum is one block as the client sent it.
    #[must_use]
    pub fn as_block(&self) -> Option<u32> {
        match self.iter().next() {
            Some((index, 1)) if self.0.len() == 1 => Some(index),
            _ => None,
        }
    }
}

impl fmt::Display for Terms {
    /// `3+2*7`: coefficients of 1 are left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (index, coef)) in self.iter().enumerate() {
            let plus = if i == 0 { "" } else { "+" };
            match coef {
                1 => write!(f, "{plus}{index}")?,
                _ => write!(f, "{plus}{coef}*{index}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_terms_cancel_and_coefficients_multiply() {
        let mut sum = Terms::block(3);
        sum.add(2, &Terms::block(7));
        assert_eq!((sum.to_string().as_str(), sum.as_block()), ("3+2*7", None));
        let mut twice = Terms::default();
        twice.add(2, &sum);
        assert_eq!(twice.to_string(), "2*3+4*7");
        sum.add(1, &Terms::block(3));
        assert_eq!(sum.to_string(), "2*7");
        assert_eq!(sum.as_block(), None, "twice a block is not the block");
    }
}
