//! GFNI with AVX-512: a multiplication by any coefficient is one instruction.

use std::arch::x86_64::{__m512i, __mmask64, _mm512_gf2p8affine_epi64_epi8, _mm512_set1_epi64};

use super::avx512::{self, VECTOR, WHOLE, add, load, narrow, space, starts, store, zero};
use super::tables::MATRICES;

pub(super) use super::avx512::xor;

/// Vectors of a wide column.
const WIDE: usize = 4;

/// Number of data strips up to which the instructions of AVX-512 alone are faster. The measurement
/// was on a processor whose cache is the limit, not its arithmetic.
const FEW: usize = 4;

/// `coef * x`, the coefficient given by its matrix.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,gfni")]
fn product<const V: usize>(x: &[__m512i; V], matrix: __m512i) -> [__m512i; V] {
    x.map(|x| _mm512_gf2p8affine_epi64_epi8::<0>(x, matrix))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,gfni")]
fn matrix(coef: u8) -> __m512i {
    _mm512_set1_epi64(MATRICES[usize::from(coef)].cast_signed())
}

/// # Safety
/// The processor must have GFNI, AVX-512 F and BW; `p` and `q` must be of equal length, and 1 to
/// 255 `data` readable from `at` on for that length.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
pub(super) unsafe fn pq(p: &mut [u8], q: &mut [u8], data: &[&[u8]], at: usize) {
    if data.len() <= FEW {
        // SAFETY: the caller's promise, handed on.
        return unsafe { avx512::pq(p, q, data, at) };
    }
    let mut space = space();
    let data = starts(&mut space, None, data, at);
    let len = p.len();
    let p = p.as_mut_ptr();
    let q = q.as_mut_ptr();
    let mut from = 0;
    // SAFETY: every column lies below `len`, which the caller vouches for.
    unsafe {
        while from + WIDE * VECTOR <= len {
            pq_column::<WIDE>(p, q, data, from, WHOLE);
            from += WIDE * VECTOR;
        }
        while from < len {
            let (mask, width) = narrow(len - from);
            pq_column::<1>(p, q, data, from, mask);
            from += width;
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn pq_column<const V: usize>(
    p: *mut u8,
    q: *mut u8,
    data: &[*const u8],
    from: usize,
    mask: __mmask64,
) {
    let two = matrix(2);
    // SAFETY: the column lies within the strips, by the caller's promise.
    unsafe {
        let mut p_sum = zero::<V>();
        let mut q_sum = zero::<V>();
        for strip in data.iter().rev() {
            let x = load(strip.add(from), mask);
            add(&mut p_sum, &x);
            q_sum = product(&q_sum, two);
            add(&mut q_sum, &x);
        }
        store(p.add(from), mask, p_sum);
        store(q.add(from), mask, q_sum);
    }
}

/// # Safety
/// The processor must have GFNI, AVX-512 F and BW; there must be one to four outputs of equal
/// length, inputs readable from `at` on for that length, and a coefficient for each pair of them.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
pub(super) unsafe fn mul(
    outputs: &mut [&mut [u8]],
    coefs: &[u8],
    inputs: &[&[u8]],
    at: usize,
    accumulate: bool,
) {
    // SAFETY: the caller's promise, handed on.
    unsafe {
        match outputs {
            [a] => mul_outputs([a], coefs, inputs, at, accumulate),
            [a, b] => mul_outputs([a, b], coefs, inputs, at, accumulate),
            [a, b, c] => mul_outputs([a, b, c], coefs, inputs, at, accumulate),
            [a, b, c, d] => mul_outputs([a, b, c, d], coefs, inputs, at, accumulate),
            _ => unreachable!("one to four outputs"),
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn mul_outputs<const O: usize>(
    outputs: [&mut [u8]; O],
    coefs: &[u8],
    inputs: &[&[u8]],
    at: usize,
    accumulate: bool,
) {
    let len = outputs[0].len();
    let outputs = outputs.map(|output| output.as_mut_ptr());
    let mut from = 0;
    // SAFETY: every column lies below `len`, which the caller vouches for.
    unsafe {
        while from + WIDE * VECTOR <= len {
            let to = outputs.map(|output| output.add(from));
            mul_column::<O, WIDE>(to, coefs, inputs, at + from, accumulate, WHOLE);
            from += WIDE * VECTOR;
        }
        while from < len {
            let (mask, width) = narrow(len - from);
            let to = outputs.map(|output| output.add(from));
            mul_column::<O, 1>(to, coefs, inputs, at + from, accumulate, mask);
            from += width;
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn mul_column<const O: usize, const V: usize>(
    outputs: [*mut u8; O],
    coefs: &[u8],
    inputs: &[&[u8]],
    at: usize,
    accumulate: bool,
    mask: __mmask64,
) {
    // SAFETY: the column lies within the slices, by the caller's promise, and so do the
    // coefficients: `O` rows of as many as there are inputs.
    unsafe {
        let mut sums = [zero::<V>(); O];
        if accumulate {
            sums = outputs.map(|output| load(output, mask));
        }
        for (i, input) in inputs.iter().enumerate() {
            let x = load::<V>(input.as_ptr().add(at), mask);
            for (o, sum) in sums.iter_mut().enumerate() {
                let coef = *coefs.get_unchecked(o * inputs.len() + i);
                add(sum, &product(&x, matrix(coef)));
            }
        }
        for (output, sum) in outputs.into_iter().zip(sums) {
            store(output, mask, sum);
        }
    }
}
