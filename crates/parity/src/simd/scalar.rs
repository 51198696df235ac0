//! Plain Rust, for every processor: the judge of the other kernels and the fallback.
//!
//! Byte loops over short blocks: a block of every strip stays in the first-level cache, and the
//! compiler turns the loops into the vectors that the target always has.

use std::ops::Range;

use crate::gf;

const BLOCK_BYTES: usize = 512;

fn blocks(len: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len).step_by(BLOCK_BYTES).map(move |start| start..len.min(start + BLOCK_BYTES))
}

fn add(dst: &mut [u8], src: &[u8]) {
    for (d, s) in dst.iter_mut().zip(src) {
        *d ^= s;
    }
}

fn double(dst: &mut [u8]) {
    for d in dst {
        *d = gf::double(*d);
    }
}

pub(super) fn xor(dst: &mut [u8], srcs: &[&[u8]], at: usize, accumulate: bool) {
    for block in blocks(dst.len()) {
        let dst = &mut dst[block.clone()];
        if !accumulate {
            dst.fill(0);
        }
        for src in srcs {
            add(dst, &src[at..][block.clone()]);
        }
    }
}

pub(super) fn pq(p: &mut [u8], q: &mut [u8], data: &[&[u8]], at: usize) {
    for block in blocks(p.len()) {
        let p = &mut p[block.clone()];
        let q = &mut q[block.clone()];
        p.fill(0);
        q.fill(0);
        for strip in data.iter().rev() {
            let strip = &strip[at..][block.clone()];
            add(p, strip);
            double(q);
            add(q, strip);
        }
    }
}

pub(super) fn mul(
    outputs: &mut [&mut [u8]],
    coefs: &[u8],
    inputs: &[&[u8]],
    at: usize,
    accumulate: bool,
) {
    for (output, row) in outputs.iter_mut().zip(coefs.chunks_exact(inputs.len())) {
        for block in blocks(output.len()) {
            let output = &mut output[block.clone()];
            if !accumulate {
                output.fill(0);
            }
            for (input, &coef) in inputs.iter().zip(row) {
                add_product(output, &input[at..][block.clone()], coef);
            }
        }
    }
}

/// `dst += coef * src`, one bit of the coefficient at a time.
fn add_product(dst: &mut [u8], src: &[u8], coef: u8) {
    let mut power = [0; BLOCK_BYTES];
    let power = &mut power[..src.len()];
    power.copy_from_slice(src);
    for bit in 0..8 {
        if coef & (1 << bit) != 0 {
            add(dst, power);
        }
        double(power);
    }
}
