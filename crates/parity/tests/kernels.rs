//! Every kernel this processor runs against sums formed byte by byte with `gf::mul`.

use braid_parity::{CHECK_BLOCK_BYTES, CheckResult, Kernels, gf};

/// Around every vector width and unrolled width, below and above.
const LENGTHS: [usize; 19] =
    [0, 1, 15, 31, 32, 33, 63, 64, 65, 127, 128, 191, 255, 256, 257, 511, 513, 1100, 4097];

/// A small generator with a fixed seed: a failure repeats.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[5]
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 8) as usize % limit
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.byte()).collect()
    }

    fn strips(&mut self, count: usize, len: usize) -> Vec<Strip> {
        (0..count).map(|_| Strip::new(self, len)).collect()
    }
}

/// Random bytes at a random alignment, with guard bytes on both sides.
#[derive(Clone, PartialEq, Debug)]
struct Strip {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Strip {
    const GUARD: usize = 70;

    fn new(random: &mut Random, len: usize) -> Self {
        let start = Self::GUARD + random.below(64);
        Self { bytes: random.bytes(start + len + Self::GUARD), start, len }
    }

    fn get(&self) -> &[u8] {
        &self.bytes[self.start..][..self.len]
    }

    fn get_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..][..self.len]
    }

    /// The same strip holding `content`.
    fn holding(&self, content: &[u8]) -> Self {
        let mut strip = self.clone();
        strip.get_mut().copy_from_slice(content);
        strip
    }
}

fn slices(strips: &[Strip]) -> Vec<&[u8]> {
    strips.iter().map(Strip::get).collect()
}

fn slices_mut(strips: &mut [Strip]) -> Vec<&mut [u8]> {
    strips.iter_mut().map(Strip::get_mut).collect()
}

fn weighted_sum(coefs: &[u8], inputs: &[&[u8]], len: usize) -> Vec<u8> {
    let at = |i: usize| inputs.iter().zip(coefs).fold(0, |sum, (s, &c)| sum ^ gf::mul(c, s[i]));
    (0..len).map(at).collect()
}

fn added(a: &[u8], b: &[u8]) -> Vec<u8> {
    a.iter().zip(b).map(|(a, b)| a ^ b).collect()
}

fn powers(count: usize) -> Vec<u8> {
    (0..count).map(gf::pow2).collect()
}

/// Runs `test` for every kernel, length and number of inputs, with fresh random inputs.
fn for_each_shape(mut test: impl FnMut(&Kernels, &mut Random, &[&[u8]], usize)) {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for kernels in Kernels::all_supported() {
        for len in LENGTHS {
            for count in 0..=20 {
                let inputs = random.strips(count, len);
                test(kernels, &mut random, &slices(&inputs), len);
            }
        }
    }
}

#[test]
fn xor_is_the_sum() {
    for_each_shape(|kernels, random, inputs, len| {
        let sum = weighted_sum(&vec![1; inputs.len()], inputs, len);
        let before = Strip::new(random, len);
        let mut replaced = before.clone();
        let mut increased = before.clone();
        kernels.xor(replaced.get_mut(), inputs);
        kernels.xor_into(increased.get_mut(), inputs);
        let shape = (kernels.name(), len, inputs.len());
        assert_eq!(replaced, before.holding(&sum), "xor {shape:?}");
        assert_eq!(increased, before.holding(&added(before.get(), &sum)), "xor_into {shape:?}");
    });
}

#[test]
fn pq_is_the_sum_and_the_weighted_sum() {
    for_each_shape(|kernels, random, inputs, len| {
        let before = random.strips(2, len);
        let mut p = before[0].clone();
        let mut q = before[1].clone();
        kernels.pq(p.get_mut(), q.get_mut(), inputs);
        let shape = (kernels.name(), len, inputs.len());
        let p_sum = weighted_sum(&vec![1; inputs.len()], inputs, len);
        let q_sum = weighted_sum(&powers(inputs.len()), inputs, len);
        assert_eq!(p, before[0].holding(&p_sum), "P {shape:?}");
        assert_eq!(q, before[1].holding(&q_sum), "Q {shape:?}");
    });
}

/// Combines with one set of coefficients, replacing and accumulating, and compares.
fn assert_combines(kernels: &Kernels, random: &mut Random, coefs: &[u8], inputs: &[&[u8]]) {
    let len = inputs.first().map_or(100, |input| input.len());
    let rows = if inputs.is_empty() { 3 } else { coefs.len() / inputs.len() };
    for accumulate in [false, true] {
        let before = random.strips(rows, len);
        let mut outputs = before.clone();
        kernels.combine(&mut slices_mut(&mut outputs), coefs, inputs, accumulate);
        for (row, (output, before)) in outputs.iter().zip(&before).enumerate() {
            let row_coefs = &coefs[row * inputs.len()..][..inputs.len()];
            let sum = weighted_sum(row_coefs, inputs, len);
            let wanted = if accumulate { added(before.get(), &sum) } else { sum };
            let shape = (kernels.name(), len, inputs.len(), rows, accumulate);
            assert_eq!(output, &before.holding(&wanted), "{shape:?} row {row} of {coefs:?}");
        }
    }
}

#[test]
fn combine_takes_any_coefficients() {
    for_each_shape(|kernels, random, inputs, _| {
        let rows = 1 + random.below(6);
        let mut coefs = random.bytes(rows * inputs.len());
        assert_combines(kernels, random, &coefs, inputs);
        // Every third input unused, as with members that a plan does not read.
        for row in coefs.chunks_mut(inputs.len().max(1)) {
            row.iter_mut().step_by(3).for_each(|coef| *coef = 0);
        }
        assert_combines(kernels, random, &coefs, inputs);
        coefs.iter_mut().for_each(|coef| *coef &= 1);
        assert_combines(kernels, random, &coefs, inputs);
        coefs.fill(0);
        assert_combines(kernels, random, &coefs, inputs);
    });
}

#[test]
fn combine_takes_parity_rows_in_any_order() {
    for_each_shape(|kernels, random, inputs, _| {
        if inputs.is_empty() {
            return;
        }
        let mut coefs = vec![1; inputs.len()];
        coefs.extend(powers(inputs.len()));
        assert_combines(kernels, random, &coefs, inputs);
        let rotation = random.below(inputs.len());
        coefs[inputs.len()..].rotate_left(rotation);
        assert_combines(kernels, random, &coefs, inputs);
        // Nearly, but not P+Q: a power twice, a power left out.
        let last = coefs.len() - 1;
        coefs[last] = coefs[inputs.len()];
        assert_combines(kernels, random, &coefs, inputs);
        coefs[last] = gf::pow2(inputs.len());
        assert_combines(kernels, random, &coefs, inputs);
    });
}

#[test]
fn combine_takes_more_inputs_than_one_walk() {
    let mut random = Random(7);
    for kernels in Kernels::all_supported() {
        for count in [31, 32, 33, 64, 65, 100, 255, 256, 300] {
            let inputs = random.strips(count, 77);
            let inputs = slices(&inputs);
            let coefs = random.bytes(2 * count);
            assert_combines(kernels, &mut random, &coefs, &inputs);
            assert_combines(kernels, &mut random, &vec![1; count], &inputs);
            let pq: Vec<u8> = (0..count).map(|_| 1).chain(powers(count)).collect();
            assert_combines(kernels, &mut random, &pq, &inputs);
        }
    }
}

#[test]
fn multiplies_every_byte_by_every_coefficient() {
    let every_byte: Vec<u8> = (0..=255).collect();
    for kernels in Kernels::all_supported() {
        for coef in 0..=255 {
            let mut product = [0; 256];
            kernels.combine(&mut [&mut product], &[coef], &[&every_byte], false);
            let wanted: Vec<u8> = every_byte.iter().map(|&byte| gf::mul(coef, byte)).collect();
            assert_eq!(product.to_vec(), wanted, "{} times {coef}", kernels.name());
        }
    }
}

/// A P+Q stripe: data, P, Q.
fn stripe(kernels: &Kernels, random: &mut Random, data: usize, len: usize) -> Vec<Strip> {
    let mut strips = random.strips(data + 2, len);
    let (data, parity) = strips.split_at_mut(data);
    let [p, q] = parity else { unreachable!() };
    kernels.pq(p.get_mut(), q.get_mut(), &slices(data));
    strips
}

fn check(kernels: &Kernels, strips: &[Strip], q_coefs: &[u8]) -> CheckResult {
    let strips = slices(strips);
    let (data, parity) = strips.split_at(strips.len() - 2);
    kernels.check(data, q_coefs, parity[0], Some(parity[1]))
}

#[test]
fn check_names_the_blocks_and_the_strip() {
    let mut random = Random(5);
    let len = 64 * CHECK_BLOCK_BYTES - 100;
    for kernels in Kernels::all_supported() {
        let strips = stripe(kernels, &mut random, 5, len);
        let coefs = powers(5);
        assert_eq!(check(kernels, &strips, &coefs), CheckResult::default());

        let flip = |strips: &mut [Strip], changes: &[(usize, usize)]| {
            for &(strip, at) in changes {
                strips[strip].get_mut()[at] ^= 0x41;
            }
        };
        let second = CHECK_BLOCK_BYTES;
        let last = len - 1;
        let mask = 1 << 63 | 1 << 1;
        for strip in 0..5 {
            let mut strips = strips.clone();
            flip(&mut strips, &[(strip, second), (strip, last)]);
            let located = CheckResult {
                p_differs: mask,
                q_differs: mask,
                data_located: u16::try_from(strip).ok(),
            };
            assert_eq!(check(kernels, &strips, &coefs), located);
            // A second wrong strip, or wrong parity elsewhere, and no single strip explains all.
            for other in [(strip + 1) % 5, 5, 6] {
                let mut strips = strips.clone();
                flip(&mut strips, &[(other, 9)]);
                assert_eq!(check(kernels, &strips, &coefs).data_located, None, "{other}");
            }
        }
        for (parity, p_differs, q_differs) in [(5, mask, 0), (6, 0, mask)] {
            let mut strips = strips.clone();
            flip(&mut strips, &[(parity, second), (parity, last)]);
            let differs = CheckResult { p_differs, q_differs, data_located: None };
            assert_eq!(check(kernels, &strips, &coefs), differs);
        }
    }
}

#[test]
fn check_takes_any_coefficients_and_none() {
    let mut random = Random(6);
    for kernels in Kernels::all_supported() {
        // As in the ddf layouts, where the coefficient follows the member: P and Q leave gaps.
        for coefs in [[2, 4, 8, 0x10], [8, 1, 2, 4], [1, 2, 2, 4]] {
            let mut strips = random.strips(6, 5000);
            let (data, parity) = strips.split_at_mut(4);
            let ones_then_coefs = [[1; 4], coefs].concat();
            kernels.combine(&mut slices_mut(parity), &ones_then_coefs, &slices(data), false);
            assert_eq!(check(kernels, &strips, &coefs), CheckResult::default(), "{coefs:?}");

            strips[2].get_mut()[4096..].fill(0);
            let located = (coefs[1] != coefs[2]).then_some(2);
            let wanted = CheckResult { p_differs: 2, q_differs: 2, data_located: located };
            assert_eq!(check(kernels, &strips, &coefs), wanted, "{coefs:?}");

            let strips = slices(&strips);
            let wanted = CheckResult { p_differs: 2, ..CheckResult::default() };
            assert_eq!(kernels.check(&strips[..4], &[], strips[4], None), wanted);
        }
    }
}

#[test]
fn differing_blocks_are_named() {
    let mut random = Random(8);
    let a = random.bytes(3 * CHECK_BLOCK_BYTES + 1);
    let mut b = a.clone();
    assert_eq!(braid_parity::differing_blocks(&a, &b), 0);
    b[CHECK_BLOCK_BYTES - 1] ^= 1;
    b[3 * CHECK_BLOCK_BYTES] ^= 1;
    assert_eq!(braid_parity::differing_blocks(&a, &b), 0b1001);
    assert_eq!(braid_parity::differing_blocks(&[], &[]), 0);
}

#[test]
#[should_panic(expected = "strips differ in length")]
fn strips_of_unequal_length_are_refused() {
    braid_parity::combine(&mut [&mut [0; 4]], &[1, 1], &[&[1; 4], &[1; 5]], false);
}

#[test]
fn says_which_kernels_it_tested() {
    let names: Vec<_> = Kernels::all_supported().map(Kernels::name).collect();
    eprintln!("kernels tested on this processor: {}", names.join(", "));
    assert_eq!(names.first(), Some(&Kernels::fastest().name()));
    assert_eq!(names.last(), Some(&"scalar"));
}
