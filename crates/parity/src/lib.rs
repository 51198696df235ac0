//! Bytes in, bytes out: xor, P+Q, and the one operation that both and every recovery are.
//!
//! P is the sum of the data strips, Q their sum weighted with the powers of 2 in GF(2^8) modulo
//! 0x11d, as Linux md lays RAID-6 out. The arithmetic is that of H. P. Anvin, "The mathematics of
//! RAID-6", <https://www.kernel.org/pub/linux/kernel/people/hpa/raid6.pdf>: P and Q, the recovery
//! of lost strips, and the location of a single corrupt one.
//!
//! All else (a full stripe, a small write's delta, a degraded read, a rebuild, a node's share of a
//! parity) is [`combine`]: sums of strips weighted with coefficients that the planner computed with
//! [`gf`].
//!
//! All slices of a call have the same length, in bytes; any length and any alignment will do. A
//! call that breaks this panics. The functions use the fastest [`Kernels`] of the processor, on the
//! calling thread, and allocate nothing.

mod check;
mod combine;
pub mod gf;
mod simd;

pub use check::{CHECK_BLOCK_BYTES, CHECK_MAX_BYTES, CheckResult};
pub use simd::Kernels;

/// `dst = srcs[0] + srcs[1] + ...`; zeroes without sources.
pub fn xor(dst: &mut [u8], srcs: &[&[u8]]) {
    Kernels::fastest().xor(dst, srcs);
}

/// `dst += srcs[0] + srcs[1] + ...`.
pub fn xor_into(dst: &mut [u8], srcs: &[&[u8]]) {
    Kernels::fastest().xor_into(dst, srcs);
}

/// `p = sum of data[i]`, `q = sum of 2^i * data[i]`, for at most 255 data strips.
pub fn pq(p: &mut [u8], q: &mut [u8], data: &[&[u8]]) {
    Kernels::fastest().pq(p, q, data);
}

/// `outputs[o] = sum of coefs[o * inputs.len() + i] * inputs[i]`, added to what the outputs hold
/// when `accumulate` is set.
///
/// Inputs with no coefficient but zero are not read. P alone (ones) and P with Q (ones, and the
/// powers of 2 in any order) run as fast as [`xor`] and [`pq`].
///
/// ```
/// // A lost strip of a RAID-5 is the sum of the others.
/// let a = [1, 2, 3];
/// let b = [7, 7, 7];
/// let mut p = [0; 3];
/// braid_parity::combine(&mut [&mut p], &[1, 1], &[&a, &b], false);
/// let mut lost = [0; 3];
/// braid_parity::combine(&mut [&mut lost], &[1, 1], &[&p, &b], false);
/// assert_eq!(lost, a);
/// ```
pub fn combine(outputs: &mut [&mut [u8]], coefs: &[u8], inputs: &[&[u8]], accumulate: bool) {
    Kernels::fastest().combine(outputs, coefs, inputs, accumulate);
}

/// Compares a stripe with its parity. `q_coefs` are the coefficients of the data strips in Q, and
/// empty when there is no `q`. Strips are at most [`CHECK_MAX_BYTES`] long.
#[must_use]
pub fn check(data: &[&[u8]], q_coefs: &[u8], p: &[u8], q: Option<&[u8]>) -> CheckResult {
    Kernels::fastest().check(data, q_coefs, p, q)
}

/// Compares two buffers of at most [`CHECK_MAX_BYTES`]: bit `i` of the answer is set when the
/// blocks of [`CHECK_BLOCK_BYTES`] at `i * CHECK_BLOCK_BYTES` differ. Zero when all is equal.
#[must_use]
pub fn differing_blocks(a: &[u8], b: &[u8]) -> u64 {
    check::differing_blocks(a, b)
}
