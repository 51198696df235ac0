//! Computations over the arena, by `braid-parity`.

use braid_array::{Buf, Checked, Compute, Outcome};
use crc32c::crc32c_append;

/// Carries a computation out.
pub fn run(arena: &mut [u8], compute: &Compute) -> Outcome {
    match compute {
        Compute::Sum { inputs, coefs, outputs, accumulate } => {
            sum(arena, inputs, coefs, outputs, *accumulate);
        }
        Compute::Check { data, q_coefs, p, q } => {
            let strips: Vec<&[u8]> = data.iter().map(|b| &arena[range(*b)]).collect();
            let q = q.map(|q| &arena[range(q)]);
            let found = braid_parity::check(&strips, q_coefs, &arena[range(*p)], q);
            return Outcome::Checked(Checked {
                p_differs: found.p_differs,
                q_differs: found.q_differs,
                data_located: found.data_located,
            });
        }
        Compute::Compare { a, b } => {
            let p_differs = braid_parity::equal_blocks(&arena[range(*a)], &arena[range(*b)]);
            return Outcome::Checked(Checked { p_differs, ..Checked::default() });
        }
        Compute::Crc { before, inputs } => {
            let bytes = inputs.iter().map(|buf| &arena[range(*buf)]);
            return Outcome::Crc(bytes.fold(*before, crc32c_append));
        }
    }
    Outcome::Done
}

fn sum(arena: &mut [u8], inputs: &[Buf], coefs: &[u8], outputs: &[Buf], accumulate: bool) {
    for output in outputs {
        let out = range(*output);
        let apart = |b: &Buf| range(*b).end <= out.start || out.end <= range(*b).start;
        assert!(inputs.iter().all(apart), "an output of a sum overlaps an input");
    }
    // The sums are made beside the arena, since safe code cannot lend two parts of it.
    let mut sums: Vec<Vec<u8>> = outputs.iter().map(|b| arena[range(*b)].to_vec()).collect();
    {
        let strips: Vec<&[u8]> = inputs.iter().map(|b| &arena[range(*b)]).collect();
        let mut outs: Vec<&mut [u8]> = sums.iter_mut().map(Vec::as_mut_slice).collect();
        braid_parity::combine(&mut outs, coefs, &strips, accumulate);
    }
    for (output, sum) in outputs.iter().zip(sums) {
        arena[range(*output)].copy_from_slice(&sum);
    }
}

fn range(buf: Buf) -> std::ops::Range<usize> {
    buf.offset as usize..buf.offset as usize + buf.len as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_replaces_or_adds() {
        let mut arena = vec![1, 2, 4, 8, 0xff, 0xff];
        let at = |offset| Buf { offset, len: 2 };
        let compute = |accumulate| Compute::Sum {
            inputs: vec![at(0), at(2)],
            coefs: vec![1, 1],
            outputs: vec![at(4)],
            accumulate,
        };
        run(&mut arena, &compute(false));
        assert_eq!(arena[4..], [5, 10]);
        run(&mut arena, &compute(true));
        assert_eq!(arena[4..], [0, 0]);
    }
}
