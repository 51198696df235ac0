//! The kernels, one file per instruction set, and the choice among them.
//!
//! All files have the same three functions. They differ in speed only, and share one contract:
//!
//! - outputs are of equal length; inputs are read from byte `at` on for that length;
//! - any length and any alignment will do; nothing beyond the slices is touched.

use std::sync::OnceLock;

mod scalar;

/// `dst = srcs summed`, or `dst += srcs summed`.
type Xor = unsafe fn(dst: &mut [u8], srcs: &[&[u8]], at: usize, accumulate: bool);

/// `p = data summed`, `q = data summed with weights 2^i`.
type Pq = unsafe fn(p: &mut [u8], q: &mut [u8], data: &[&[u8]], at: usize);

/// `outputs[o] (+)= sum of coefs[o * inputs + i] * inputs[i]`, for up to [`MUL_OUTPUTS`] outputs
/// and one input at least.
type Mul = unsafe fn(
    outputs: &mut [&mut [u8]],
    coefs: &[u8],
    inputs: &[&[u8]],
    at: usize,
    accumulate: bool,
);

/// How many sums [`Mul`] forms in one walk over its inputs: as many as leave the registers room.
pub(crate) const MUL_OUTPUTS: usize = 4;

/// The kernels of one instruction set. The functions of the crate use [`Kernels::fastest`].
pub struct Kernels {
    name: &'static str,
    supported: fn() -> bool,
    xor: Xor,
    pq: Pq,
    mul: Mul,
}

/// Fastest first. The last one runs everywhere.
static ALL: &[Kernels] = &[Kernels {
    name: "scalar",
    supported: || true,
    xor: scalar::xor,
    pq: scalar::pq,
    mul: scalar::mul,
}];

impl Kernels {
    /// The fastest kernels this processor runs, chosen once.
    #[must_use]
    pub fn fastest() -> &'static Self {
        static FASTEST: OnceLock<&Kernels> = OnceLock::new();
        FASTEST.get_or_init(|| {
            Self::all_supported().next().expect("the scalar kernels run everywhere")
        })
    }

    /// All kernels this processor runs, fastest first.
    pub fn all_supported() -> impl Iterator<Item = &'static Self> {
        ALL.iter().filter(|kernels| (kernels.supported)())
    }

    /// The instruction set, for messages.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn xor_at(&self, dst: &mut [u8], srcs: &[&[u8]], at: usize, accumulate: bool) {
        assert_readable(srcs, at, dst.len());
        // SAFETY: values of this type leave the module only when the processor supports them, and
        // every source has the bytes the kernel reads.
        unsafe { (self.xor)(dst, srcs, at, accumulate) }
    }

    pub(crate) fn pq_at(&self, p: &mut [u8], q: &mut [u8], data: &[&[u8]], at: usize) {
        assert_eq!(p.len(), q.len(), "P and Q differ in length");
        assert_readable(data, at, p.len());
        // SAFETY: as in `xor_at`, and P and Q are of equal length.
        unsafe { (self.pq)(p, q, data, at) }
    }

    pub(crate) fn mul_at(
        &self,
        outputs: &mut [&mut [u8]],
        coefs: &[u8],
        inputs: &[&[u8]],
        at: usize,
        accumulate: bool,
    ) {
        assert!((1..=MUL_OUTPUTS).contains(&outputs.len()), "number of outputs");
        assert!(!inputs.is_empty(), "no inputs");
        assert_eq!(coefs.len(), outputs.len() * inputs.len(), "number of coefficients");
        let len = outputs[0].len();
        assert!(outputs.iter().all(|o| o.len() == len), "outputs differ in length");
        assert_readable(inputs, at, len);
        // SAFETY: as in `xor_at`; the counts and lengths the kernel relies on were just checked.
        unsafe { (self.mul)(outputs, coefs, inputs, at, accumulate) }
    }
}

fn assert_readable(srcs: &[&[u8]], at: usize, len: usize) {
    let end = at.checked_add(len).expect("offset overflows");
    assert!(srcs.iter().all(|src| src.len() >= end), "strips differ in length");
}
