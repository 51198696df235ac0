//! The field GF(2^8) of RAID-6: polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11d), generator 2.
//!
//! Addition is xor. These functions are for solving a few coefficients; bulk work goes through
//! [`combine`](crate::combine).

/// The polynomial without its x^8 term, which is added back when a product overflows a byte.
pub(crate) const POLYNOMIAL: u8 = 0x1d;

/// The number of powers of the generator before they repeat.
pub(crate) const ORDER: usize = 255;

const EXP: [u8; ORDER] = {
    let mut table = [0; ORDER];
    let mut power = 1;
    let mut i = 0;
    while i < ORDER {
        table[i] = power;
        power = double(power);
        i += 1;
    }
    table
};

/// `LOG[0]` is unused: zero is no power of the generator.
const LOG: [u8; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < ORDER {
        table[EXP[i] as usize] = i as u8;
        i += 1;
    }
    table
};

/// `2 * a`.
pub(crate) const fn double(a: u8) -> u8 {
    (a << 1) ^ (POLYNOMIAL & (a >> 7).wrapping_neg())
}

/// `a * b`.
#[must_use]
pub const fn mul(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    pow2(LOG[a as usize] as usize + LOG[b as usize] as usize)
}

/// `1 / a`.
///
/// # Panics
/// When `a` is zero, which has no inverse.
#[must_use]
pub const fn inv(a: u8) -> u8 {
    pow2(ORDER - log2(a) as usize)
}

/// `a / b`.
///
/// # Panics
/// When `b` is zero.
#[must_use]
pub const fn div(a: u8, b: u8) -> u8 {
    mul(a, inv(b))
}

/// `2 ^ exponent`: the coefficient of data strip number `exponent` in Q. The powers repeat after
/// 255, so at most 255 data strips can be told apart.
#[must_use]
pub const fn pow2(exponent: usize) -> u8 {
    EXP[exponent % ORDER]
}

/// The exponent below 255 whose [`pow2`] is `a`.
///
/// # Panics
/// When `a` is zero.
#[must_use]
pub const fn log2(a: u8) -> u8 {
    assert!(a != 0, "zero has no logarithm and no inverse");
    LOG[a as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Schoolbook: add the shifted copies of `a`, then reduce bit by bit.
    fn mul_by_definition(a: u8, b: u8) -> u8 {
        let mut product = 0u16;
        for bit in 0..8 {
            if b & (1 << bit) != 0 {
                product ^= u16::from(a) << bit;
            }
        }
        for bit in (8..16).rev() {
            if product & (1 << bit) != 0 {
                product ^= 0x11d << (bit - 8);
            }
        }
        u8::try_from(product).expect("reduced to a byte")
    }

    #[test]
    fn every_product_is_the_schoolbook_product() {
        for a in 0..=255 {
            assert_eq!(double(a), mul_by_definition(a, 2));
            for b in 0..=255 {
                assert_eq!(mul(a, b), mul_by_definition(a, b), "{a} * {b}");
            }
        }
    }

    #[test]
    fn every_element_but_zero_has_an_inverse_and_a_logarithm() {
        for a in 1..=255 {
            assert_eq!(mul(a, inv(a)), 1, "inverse of {a}");
            assert_eq!(div(mul(a, 77), a), 77);
            assert_eq!(pow2(log2(a) as usize), a);
        }
        assert_eq!((pow2(0), pow2(8), pow2(255), pow2(263)), (1, 0x1d, 1, 0x1d));
    }
}
