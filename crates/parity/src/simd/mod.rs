//! The kernels, one file per instruction set, and the choice among them.
//!
//! All files have the same three functions. The files differ in speed only, and share one contract:
//!
//! - outputs are of equal length; inputs are read from byte `at` on for that length;
//! - any length and any alignment will do; nothing beyond the slices is touched.

use std::sync::OnceLock;

use crate::gf;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod gfni;
mod scalar;
#[cfg(target_arch = "x86_64")]
mod tables;

/// `dst = srcs summed`, or `dst += srcs summed`.
type Xor = unsafe fn(dst: &mut [u8], srcs: &[&[u8]], at: usize, accumulate: bool);

/// `p = data summed`, `q = data summed with weights 2^i`, for 1 to 255 data strips.
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

/// Number of sums that [`Mul`] forms in one walk over its inputs: as many as leave the registers
/// room.
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
static ALL: &[Kernels] = &[
    #[cfg(target_arch = "x86_64")]
    Kernels {
        name: "GFNI AVX-512",
        supported: || has_avx512() && is_x86_feature_detected!("gfni"),
        xor: gfni::xor,
        pq: gfni::pq,
        mul: gfni::mul,
    },
    #[cfg(target_arch = "x86_64")]
    Kernels {
        name: "AVX-512",
        supported: has_avx512,
        xor: avx512::xor,
        pq: avx512::pq,
        mul: avx512::mul,
    },
    #[cfg(target_arch = "x86_64")]
    Kernels {
        name: "AVX2",
        supported: || is_x86_feature_detected!("avx2"),
        xor: avx2::xor,
        pq: avx2::pq,
        mul: avx2::mul,
    },
    Kernels {
        name: "scalar",
        supported: || true,
        xor: scalar::xor,
        pq: scalar::pq,
        mul: scalar::mul,
    },
];

#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw")
}

/// Bytes of the inputs to read: from `at` on, of strips that are `of` bytes long.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) at: usize,
    pub(crate) of: usize,
}

impl Part {
    pub(crate) fn whole(len: usize) -> Self {
        Self { at: 0, of: len }
    }

    /// `at`, after making sure that `strips` are as said and hold `len` bytes from there on.
    fn checked(self, len: usize, strips: &[&[u8]]) -> usize {
        assert!(strips.iter().all(|strip| strip.len() == self.of), "strips differ in length");
        assert!(self.at <= self.of && len <= self.of - self.at, "strips differ in length");
        self.at
    }
}

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

    pub(crate) fn xor_part(&self, dst: &mut [u8], srcs: &[&[u8]], part: Part, accumulate: bool) {
        let at = part.checked(dst.len(), srcs);
        // SAFETY: values of this type leave the module only when the processor supports them, and
        // every source has the bytes the kernel reads.
        unsafe { (self.xor)(dst, srcs, at, accumulate) }
    }

    pub(crate) fn pq_part(&self, p: &mut [u8], q: &mut [u8], data: &[&[u8]], part: Part) {
        assert_eq!(p.len(), q.len(), "strips differ in length");
        let at = part.checked(p.len(), data);
        assert!(data.len() <= gf::ORDER, "more data strips than P+Q can tell apart");
        if data.is_empty() {
            p.fill(0);
            q.fill(0);
            return;
        }
        // SAFETY: as in `xor_part`, and P and Q are of equal length.
        unsafe { (self.pq)(p, q, data, at) }
    }

    pub(crate) fn mul_part(
        &self,
        outputs: &mut [&mut [u8]],
        coefs: &[u8],
        inputs: &[&[u8]],
        part: Part,
        accumulate: bool,
    ) {
        assert!((1..=MUL_OUTPUTS).contains(&outputs.len()), "number of outputs");
        assert!(!inputs.is_empty(), "no inputs");
        assert_eq!(coefs.len(), outputs.len() * inputs.len(), "number of coefficients");
        let len = outputs[0].len();
        assert!(outputs.iter().all(|o| o.len() == len), "strips differ in length");
        let at = part.checked(len, inputs);
        // SAFETY: as in `xor_part`; the counts and lengths the kernel relies on were just checked.
        unsafe { (self.mul)(outputs, coefs, inputs, at, accumulate) }
    }
}
