//! AVX2. Bytes behind the last whole vector go to the plain loops.

use std::arch::x86_64::{
    __m128i, __m256i, _mm_load_si128, _mm256_add_epi8, _mm256_and_si256,
    _mm256_broadcastsi128_si256, _mm256_cmpgt_epi8, _mm256_loadu_si256, _mm256_set1_epi8,
    _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srli_epi64, _mm256_storeu_si256,
    _mm256_xor_si256,
};

use super::scalar;
use super::tables::NIBBLES;
use crate::gf;

/// Bytes of a vector.
const VECTOR: usize = size_of::<__m256i>();

/// Vectors of a wide column.
const WIDE: usize = 4;

/// # Safety
/// `V` vectors must be readable at `from`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load<const V: usize>(from: *const u8) -> [__m256i; V] {
    // SAFETY: the caller's promise.
    std::array::from_fn(|v| unsafe { _mm256_loadu_si256(from.add(v * VECTOR).cast()) })
}

/// # Safety
/// `V` vectors must be writable at `to`.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn store<const V: usize>(to: *mut u8, vectors: [__m256i; V]) {
    for (v, vector) in vectors.into_iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe { _mm256_storeu_si256(to.add(v * VECTOR).cast(), vector) }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn zero<const V: usize>() -> [__m256i; V] {
    [_mm256_setzero_si256(); V]
}

#[inline]
#[target_feature(enable = "avx2")]
fn add<const V: usize>(sum: &mut [__m256i; V], x: &[__m256i; V]) {
    for v in 0..V {
        sum[v] = _mm256_xor_si256(sum[v], x[v]);
    }
}

/// # Safety
/// The processor must have AVX2; `srcs` must be readable from `at` on for the length of `dst`.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn xor(dst: &mut [u8], srcs: &[&[u8]], at: usize, accumulate: bool) {
    let mut from = 0;
    // SAFETY: every column lies within `dst`, for whose length the caller vouches.
    unsafe {
        while from + WIDE * VECTOR <= dst.len() {
            xor_column::<WIDE>(dst.as_mut_ptr().add(from), srcs, at + from, accumulate);
            from += WIDE * VECTOR;
        }
        while from + VECTOR <= dst.len() {
            xor_column::<1>(dst.as_mut_ptr().add(from), srcs, at + from, accumulate);
            from += VECTOR;
        }
    }
    scalar::xor(&mut dst[from..], srcs, at + from, accumulate);
}

#[inline]
#[target_feature(enable = "avx2")]
unsafe fn xor_column<const V: usize>(dst: *mut u8, srcs: &[&[u8]], at: usize, accumulate: bool) {
    // SAFETY: the column lies within the slices, by the caller's promise.
    unsafe {
        let mut sum = if accumulate { load::<V>(dst) } else { zero() };
        for src in srcs {
            add(&mut sum, &load(src.as_ptr().add(at)));
        }
        store(dst, sum);
    }
}

/// # Safety
/// The processor must have AVX2; `p` and `q` must be of equal length, and `data` readable from
/// `at` on for that length.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn pq(p: &mut [u8], q: &mut [u8], data: &[&[u8]], at: usize) {
    let p_start = p.as_mut_ptr();
    let q_start = q.as_mut_ptr();
    let mut from = 0;
    // SAFETY: every column lies within `p`, for whose length the caller vouches.
    unsafe {
        while from + WIDE * VECTOR <= p.len() {
            pq_column::<WIDE>(p_start.add(from), q_start.add(from), data, at + from);
            from += WIDE * VECTOR;
        }
        while from + VECTOR <= p.len() {
            pq_column::<1>(p_start.add(from), q_start.add(from), data, at + from);
            from += VECTOR;
        }
    }
    scalar::pq(&mut p[from..], &mut q[from..], data, at + from);
}

#[inline]
#[target_feature(enable = "avx2")]
unsafe fn pq_column<const V: usize>(p: *mut u8, q: *mut u8, data: &[&[u8]], at: usize) {
    // SAFETY: the column lies within the slices, by the caller's promise.
    unsafe {
        let mut p_sum = zero::<V>();
        let mut q_sum = zero::<V>();
        for strip in data.iter().rev() {
            let x = load(strip.as_ptr().add(at));
            add(&mut p_sum, &x);
            double(&mut q_sum);
            add(&mut q_sum, &x);
        }
        store(p, p_sum);
        store(q, q_sum);
    }
}

/// `x = 2 * x`: a byte whose top bit falls out, a negative one, gets the polynomial added.
#[inline]
#[target_feature(enable = "avx2")]
fn double<const V: usize>(x: &mut [__m256i; V]) {
    let polynomial = _mm256_set1_epi8(gf::POLYNOMIAL.cast_signed());
    for x in x {
        let negative = _mm256_cmpgt_epi8(_mm256_setzero_si256(), *x);
        let carry = _mm256_and_si256(negative, polynomial);
        *x = _mm256_xor_si256(_mm256_add_epi8(*x, *x), carry);
    }
}

/// # Safety
/// The processor must have AVX2; the outputs must be of equal length, inputs readable from `at`
/// on for that length, and there must be a coefficient for each pair of them.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn mul(
    outputs: &mut [&mut [u8]],
    coefs: &[u8],
    inputs: &[&[u8]],
    at: usize,
    accumulate: bool,
) {
    // Two sums at a time: their tables and sums fill the registers.
    for (outputs, coefs) in outputs.chunks_mut(2).zip(coefs.chunks(2 * inputs.len())) {
        // SAFETY: the caller's promise, for a part of the outputs.
        let done = unsafe {
            match outputs {
                [a] => mul_outputs([a], coefs, inputs, at, accumulate),
                [a, b] => mul_outputs([a, b], coefs, inputs, at, accumulate),
                _ => unreachable!("chunks of two"),
            }
        };
        for (output, row) in outputs.iter_mut().zip(coefs.chunks(inputs.len())) {
            scalar::mul(&mut [&mut output[done..]], row, inputs, at + done, accumulate);
        }
    }
}

/// Returns how many bytes it did: all but those behind the last whole vector.
#[target_feature(enable = "avx2")]
unsafe fn mul_outputs<const O: usize>(
    outputs: [&mut [u8]; O],
    coefs: &[u8],
    inputs: &[&[u8]],
    at: usize,
    accumulate: bool,
) -> usize {
    const V: usize = 2;
    let len = outputs[0].len();
    let outputs = outputs.map(|output| output.as_mut_ptr());
    let mut from = 0;
    // SAFETY: every column lies below `len`, which the caller vouches for.
    unsafe {
        while from + V * VECTOR <= len {
            let to = outputs.map(|output| output.add(from));
            mul_column::<O, V>(to, coefs, inputs, at + from, accumulate);
            from += V * VECTOR;
        }
        while from + VECTOR <= len {
            let to = outputs.map(|output| output.add(from));
            mul_column::<O, 1>(to, coefs, inputs, at + from, accumulate);
            from += VECTOR;
        }
    }
    from
}

#[inline]
#[target_feature(enable = "avx2")]
unsafe fn mul_column<const O: usize, const V: usize>(
    outputs: [*mut u8; O],
    coefs: &[u8],
    inputs: &[&[u8]],
    at: usize,
    accumulate: bool,
) {
    let low_nibble = _mm256_set1_epi8(0x0f);
    // SAFETY: the column lies within the slices, by the caller's promise, and so do the
    // coefficients: `O` rows of as many as there are inputs.
    unsafe {
        let mut sums = [zero::<V>(); O];
        if accumulate {
            sums = outputs.map(|output| load(output));
        }
        for (i, input) in inputs.iter().enumerate() {
            let x = load::<V>(input.as_ptr().add(at));
            let low = x.map(|x| _mm256_and_si256(x, low_nibble));
            let high = x.map(|x| _mm256_and_si256(_mm256_srli_epi64::<4>(x), low_nibble));
            for (o, sum) in sums.iter_mut().enumerate() {
                let coef = *coefs.get_unchecked(o * inputs.len() + i);
                let tables = NIBBLES[usize::from(coef)].0.as_ptr().cast::<__m128i>();
                let low_table = _mm256_broadcastsi128_si256(_mm_load_si128(tables));
                let high_table = _mm256_broadcastsi128_si256(_mm_load_si128(tables.add(1)));
                add(sum, &low.map(|low| _mm256_shuffle_epi8(low_table, low)));
                add(sum, &high.map(|high| _mm256_shuffle_epi8(high_table, high)));
            }
        }
        for (output, sum) in outputs.into_iter().zip(sums) {
            store(output, sum);
        }
    }
}
