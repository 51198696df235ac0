//! Computations, done at once and by the book.

use super::world::World;
use crate::action::{Checked, Compute, Outcome};

impl World {
    pub(super) fn compute(&mut self, compute: Compute) -> Outcome {
        match compute {
            Compute::Sum { inputs, coefs, outputs, accumulate } => {
                let inputs: Vec<Vec<u8>> =
                    inputs.into_iter().map(|buf| self.bytes(buf).to_vec()).collect();
                for (output, row) in outputs.into_iter().zip(coefs.chunks(inputs.len())) {
                    let mut sum = vec![0; output.len as usize];
                    if accumulate {
                        sum.copy_from_slice(self.bytes(output));
                    }
                    for (input, coef) in inputs.iter().zip(row) {
                        let products: [u8; 256] =
                            std::array::from_fn(|byte| braid_parity::gf::mul(*coef, byte as u8));
                        for (to, from) in sum.iter_mut().zip(input) {
                            *to ^= products[usize::from(*from)];
                        }
                    }
                    self.bytes(output).copy_from_slice(&sum);
                }
                Outcome::Done
            }
            Compute::Check { data, q_coefs, p, q } => {
                let data: Vec<Vec<u8>> =
                    data.into_iter().map(|buf| self.bytes(buf).to_vec()).collect();
                let p = self.bytes(p).to_vec();
                let q = q.map(|buf| self.bytes(buf).to_vec());
                let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
                let found = braid_parity::check(&data, &q_coefs, &p, q.as_deref());
                Outcome::Checked(Checked {
                    p_differs: found.p_differs,
                    q_differs: found.q_differs,
                    data_located: found.data_located,
                })
            }
            Compute::Crc { before, inputs } => {
                let bytes = inputs.into_iter().map(|buf| self.bytes(buf).to_vec());
                Outcome::Crc(bytes.fold(before, |crc, bytes| crc32c::crc32c_append(crc, &bytes)))
            }
            Compute::SumBlocks { buf } => Outcome::block_sums(self.bytes(buf)),
            Compute::Compare { a, b } => {
                let a = self.bytes(a).to_vec();
                let b = self.bytes(b).to_vec();
                let p_differs = braid_parity::differing_blocks(&a, &b);
                Outcome::Checked(Checked { p_differs, ..Checked::default() })
            }
        }
    }
}
