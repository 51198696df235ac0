//! Computations over the arena, by `braid-parity`.

use braid_array::{Buf, Checked, Compute, Outcome};
use crc32c::crc32c_append;

use crate::device_io::bytes_of;

/// Carries a computation out.
pub fn run(arena: &mut [u8], compute: &Compute) -> Outcome {
    match compute {
        Compute::Sum { inputs, coefs, outputs, accumulate } => {
            sum(arena, inputs, coefs, outputs, *accumulate);
        }
        Compute::Check { data, q_coefs, p, q } => {
            let strips: Vec<&[u8]> = data.iter().map(|b| &arena[bytes_of(*b)]).collect();
            let q = q.map(|q| &arena[bytes_of(q)]);
            let found = braid_parity::check(&strips, q_coefs, &arena[bytes_of(*p)], q);
            return Outcome::Checked(Checked {
                p_differs: found.p_differs,
                q_differs: found.q_differs,
                data_located: found.data_located,
            });
        }
        Compute::Compare { a, b } => {
            let p_differs =
                braid_parity::differing_blocks(&arena[bytes_of(*a)], &arena[bytes_of(*b)]);
            return Outcome::Checked(Checked { p_differs, ..Checked::default() });
        }
        Compute::Crc { before, inputs } => {
            let bytes = inputs.iter().map(|buf| &arena[bytes_of(*buf)]);
            return Outcome::Crc(bytes.fold(*before, crc32c_append));
        }
        Compute::SumBlocks { buf } => return Outcome::block_sums(&arena[bytes_of(*buf)]),
    }
    Outcome::Done
}

fn sum(arena: &mut [u8], inputs: &[Buf], coefs: &[u8], outputs: &[Buf], accumulate: bool) {
    for output in outputs {
        let out = bytes_of(*output);
        let apart = |b: &Buf| bytes_of(*b).end <= out.start || out.end <= bytes_of(*b).start;
        assert!(inputs.iter().all(apart), "an output of a sum overlaps an input");
    }
    // The sums are made beside the arena, since safe code cannot lend two parts of it.
    let mut sums: Vec<Vec<u8>> = outputs.iter().map(|b| arena[bytes_of(*b)].to_vec()).collect();
    {
        let strips: Vec<&[u8]> = inputs.iter().map(|b| &arena[bytes_of(*b)]).collect();
        let mut outs: Vec<&mut [u8]> = sums.iter_mut().map(Vec::as_mut_slice).collect();
        braid_parity::combine(&mut outs, coefs, &strips, accumulate);
    }
    for (output, sum) in outputs.iter().zip(sums) {
        arena[bytes_of(*output)].copy_from_slice(&sum);
    }
}

/// A computation, for people.
pub fn describe(compute: &Compute) -> String {
    match compute {
        Compute::Sum { inputs, outputs, accumulate, .. } => {
            let add = if *accumulate { "adds" } else { "sums" };
            format!("{add} {inputs:?} into {outputs:?}")
        }
        other => format!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_replaces_or_adds() {
        let mut arena = vec![1, 2, 4, 8, 0xff, 0xff];
        let at = |offset| Buf { offset, len: 2 };
        let compute = |accumulate| Compute::Sum {
            inputs: vec![at(0), at(2)].into(),
            coefs: vec![1, 1].into(),
            outputs: vec![at(4)].into(),
            accumulate,
        };
        run(&mut arena, &compute(false));
        assert_eq!(arena[4..], [5, 10]);
        run(&mut arena, &compute(true));
        assert_eq!(arena[4..], [0, 0]);
    }
}
