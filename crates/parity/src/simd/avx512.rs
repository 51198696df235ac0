//! AVX-512 F and BW. Also the loads, stores and sums that the GFNI kernels share.
//!
//! A kernel walks over columns: `V` vectors of each strip, whose sums stay in registers. The last
//! columns are one vector wide under a mask, so no byte beyond a strip is touched.
//!
//! The order of the loads is measured, not a matter of taste: in the second-level cache the
//! prefetchers decide. Two lines of a strip at a time, the last strip first, in a loop over the
//! strips that is not unrolled further, came out ahead of wider columns, of a loop unrolled over
//! all strips, and of any software prefetch.

use std::arch::x86_64::{
    __m128i, __m512i, __mmask64, _mm_load_si128, _mm512_add_epi8, _mm512_and_si512,
    _mm512_broadcast_i32x4, _mm512_mask_storeu_epi8, _mm512_maskz_loadu_epi8,
    _mm512_maskz_mov_epi8, _mm512_movepi8_mask, _mm512_set1_epi8, _mm512_setzero_si512,
    _mm512_shuffle_epi8, _mm512_srli_epi64, _mm512_ternarylogic_epi64, _mm512_xor_si512,
};
use std::mem::MaybeUninit;

use super::tables::NIBBLES;
use crate::gf;

/// Bytes of a vector.
pub(super) const VECTOR: usize = size_of::<__m512i>();

/// Vectors of a wide column.
pub(super) const WIDE: usize = 2;

/// All bytes of a vector.
pub(super) const WHOLE: __mmask64 = !0;

/// The bytes to touch of a vector that `left` bytes follow, and how far to go on.
pub(super) fn narrow(left: usize) -> (__mmask64, usize) {
    if left < VECTOR { ((1 << left) - 1, left) } else { (WHOLE, VECTOR) }
}

/// Room for the addresses of more strips than P+Q can have.
pub(super) type Space = [MaybeUninit<*const u8>; MAX_STRIPS];

const MAX_STRIPS: usize = 256;

pub(super) const fn space() -> Space {
    [const { MaybeUninit::uninit() }; MAX_STRIPS]
}

/// Returns the addresses at which `strips` begin behind `at` bytes, after that of `first`: bare
/// addresses, as the inner loops have registers for no more.
#[inline]
pub(super) fn starts<'s>(
    space: &'s mut Space,
    first: Option<*const u8>,
    strips: &[&[u8]],
    at: usize,
) -> &'s [*const u8] {
    assert!(strips.len() < MAX_STRIPS, "more strips than there is room for");
    let starts = strips.iter().map(|strip| strip.as_ptr().wrapping_add(at));
    let mut len = 0;
    for (slot, start) in space.iter_mut().zip(first.into_iter().chain(starts)) {
        slot.write(start);
        len += 1;
    }
    // SAFETY: the first `len` elements were just written.
    unsafe { std::slice::from_raw_parts(space.as_ptr().cast(), len) }
}

/// # Safety
/// The bytes at `from` that `mask` names must be readable in each of the `V` vectors.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn load<const V: usize>(from: *const u8, mask: __mmask64) -> [__m512i; V] {
    // SAFETY: the caller's promise; a masked load touches no other byte.
    std::array::from_fn(|v| unsafe { _mm512_maskz_loadu_epi8(mask, from.add(v * VECTOR).cast()) })
}

/// # Safety
/// The bytes at `to` that `mask` names must be writable in each of the `V` vectors.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn store<const V: usize>(to: *mut u8, mask: __mmask64, vectors: [__m512i; V]) {
    for (v, vector) in vectors.into_iter().enumerate() {
        // SAFETY: the caller's promise; a masked store touches no other byte.
        unsafe { _mm512_mask_storeu_epi8(to.add(v * VECTOR).cast(), mask, vector) }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn zero<const V: usize>() -> [__m512i; V] {
    [_mm512_setzero_si512(); V]
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn add<const V: usize>(sum: &mut [__m512i; V], x: &[__m512i; V]) {
    for v in 0..V {
        sum[v] = _mm512_xor_si512(sum[v], x[v]);
    }
}

/// `sum += x + y` in one instruction.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn add2<const V: usize>(sum: &mut [__m512i; V], x: &[__m512i; V], y: &[__m512i; V]) {
    const XOR3: i32 = 0x96;
    for v in 0..V {
        sum[v] = _mm512_ternarylogic_epi64::<XOR3>(sum[v], x[v], y[v]);
    }
}

/// # Safety
/// The processor must have AVX-512 F and BW; `srcs` must be readable from `at` on for the length
/// of `dst`.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn xor(dst: &mut [u8], srcs: &[&[u8]], at: usize, accumulate: bool) {
    let len = dst.len();
    let dst = dst.as_mut_ptr();
    // What is accumulated upon is one more source: each column is read before it is written.
    let (now, later) = srcs.split_at(srcs.len().min(MAX_STRIPS - 1));
    // SAFETY: the caller's promise.
    unsafe {
        let first = accumulate.then_some(dst.cast_const());
        xor_columns(dst, starts(&mut space(), first, now, at), len);
        for now in later.chunks(MAX_STRIPS - 1) {
            xor_columns(dst, starts(&mut space(), Some(dst.cast_const()), now, at), len);
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn xor_columns(dst: *mut u8, srcs: &[*const u8], len: usize) {
    let mut from = 0;
    // SAFETY: every column lies below `len`, which the caller vouches for.
    unsafe {
        while from + WIDE * VECTOR <= len {
            xor_column::<WIDE>(dst, srcs, from, WHOLE);
            from += WIDE * VECTOR;
        }
        while from < len {
            let (mask, width) = narrow(len - from);
            xor_column::<1>(dst, srcs, from, mask);
            from += width;
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn xor_column<const V: usize>(
    dst: *mut u8,
    srcs: &[*const u8],
    from: usize,
    mask: __mmask64,
) {
    // SAFETY: the column lies within the slices, by the caller's promise.
    unsafe {
        let mut sum = zero::<V>();
        let source = |i: usize| srcs.get_unchecked(i).add(from);
        let mut left = srcs.len();
        while left >= 4 {
            left -= 4;
            add2(&mut sum, &load(source(left + 3), mask), &load(source(left + 2), mask));
            add2(&mut sum, &load(source(left + 1), mask), &load(source(left), mask));
        }
        while left > 0 {
            left -= 1;
            add(&mut sum, &load(source(left), mask));
        }
        store(dst.add(from), mask, sum);
    }
}

/// # Safety
/// The processor must have AVX-512 F and BW; `p` and `q` must be of equal length, and 1 to
/// 255 `data` readable from `at` on for that length.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn pq(p: &mut [u8], q: &mut [u8], data: &[&[u8]], at: usize) {
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
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn pq_column<const V: usize>(
    p: *mut u8,
    q: *mut u8,
    data: &[*const u8],
    from: usize,
    mask: __mmask64,
) {
    // SAFETY: the column lies within the strips, by the caller's promise.
    unsafe {
        let mut p_sum = zero::<V>();
        let mut q_sum = zero::<V>();
        let mut left = data.len() - 1;
        let mut x = load(data.get_unchecked(left).add(from), mask);
        // Q is doubled as soon as there is more to come, with the load of it in between: at four
        // strips in the second-level cache that is worth a tenth of the rate.
        while left > 0 {
            left -= 1;
            add(&mut q_sum, &x);
            add(&mut p_sum, &x);
            let carry = q_sum.map(|q| _mm512_movepi8_mask(q));
            x = load(data.get_unchecked(left).add(from), mask);
            double(&mut q_sum, carry);
        }
        add(&mut p_sum, &x);
        add(&mut q_sum, &x);
        store(p.add(from), mask, p_sum);
        store(q.add(from), mask, q_sum);
    }
}

/// `x = 2 * x`: a byte whose top bit falls out, which `carry` names, gets the polynomial added.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn double<const V: usize>(x: &mut [__m512i; V], carry: [__mmask64; V]) {
    let polynomial = _mm512_set1_epi8(gf::POLYNOMIAL.cast_signed());
    for (x, carry) in x.iter_mut().zip(carry) {
        let carry = _mm512_maskz_mov_epi8(carry, polynomial);
        *x = _mm512_xor_si512(_mm512_add_epi8(*x, *x), carry);
    }
}

/// # Safety
/// The processor must have AVX-512 F and BW; there must be one to four outputs of equal length,
/// inputs readable from `at` on for that length, and a coefficient for each pair of them.
#[target_feature(enable = "avx512f,avx512bw")]
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
        unsafe {
            match outputs {
                [a] => mul_outputs([a], coefs, inputs, at, accumulate),
                [a, b] => mul_outputs([a, b], coefs, inputs, at, accumulate),
                _ => unreachable!("chunks of two"),
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn mul_outputs<const O: usize>(
    outputs: [&mut [u8]; O],
    coefs: &[u8],
    inputs: &[&[u8]],
    at: usize,
    accumulate: bool,
) {
    const V: usize = 2;
    let len = outputs[0].len();
    let outputs = outputs.map(|output| output.as_mut_ptr());
    let mut from = 0;
    // SAFETY: every column lies below `len`, which the caller vouches for.
    unsafe {
        while from + V * VECTOR <= len {
            let to = outputs.map(|output| output.add(from));
            mul_column::<O, V>(to, coefs, inputs, at + from, accumulate, WHOLE);
            from += V * VECTOR;
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
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn mul_column<const O: usize, const V: usize>(
    outputs: [*mut u8; O],
    coefs: &[u8],
    inputs: &[&[u8]],
    at: usize,
    accumulate: bool,
    mask: __mmask64,
) {
    let low_nibble = _mm512_set1_epi8(0x0f);
    // SAFETY: the column lies within the slices, by the caller's promise, and so do the
    // coefficients: `O` rows of as many as there are inputs.
    unsafe {
        let mut sums = [zero::<V>(); O];
        if accumulate {
            sums = outputs.map(|output| load(output, mask));
        }
        for (i, input) in inputs.iter().enumerate() {
            let x = load::<V>(input.as_ptr().add(at), mask);
            let low = x.map(|x| _mm512_and_si512(x, low_nibble));
            let high = x.map(|x| _mm512_and_si512(_mm512_srli_epi64::<4>(x), low_nibble));
            for (o, sum) in sums.iter_mut().enumerate() {
                let coef = *coefs.get_unchecked(o * inputs.len() + i);
                let tables = NIBBLES[usize::from(coef)].0.as_ptr().cast::<__m128i>();
                let low_table = _mm512_broadcast_i32x4(_mm_load_si128(tables));
                let high_table = _mm512_broadcast_i32x4(_mm_load_si128(tables.add(1)));
                let low = low.map(|low| _mm512_shuffle_epi8(low_table, low));
                let high = high.map(|high| _mm512_shuffle_epi8(high_table, high));
                add2(sum, &low, &high);
            }
        }
        for (output, sum) in outputs.into_iter().zip(sums) {
            store(output, mask, sum);
        }
    }
}
