use super::*;

/// Strips with made-up contents: one byte each, P and Q by their definition.
fn encode(q_coefs: &[u8], data: &[u8]) -> (u8, u8) {
    let p = data.iter().fold(0, |sum, byte| sum ^ byte);
    let q = data.iter().zip(q_coefs).fold(0, |sum, (&byte, &coef)| sum ^ gf::mul(byte, coef));
    (p, q)
}

fn names(data_disks: u32, parities: usize) -> Vec<StripName> {
    let data = (0..data_disks).map(StripName::Data);
    data.chain([StripName::P, StripName::Q].into_iter().take(parities)).collect()
}

/// All ways to pick at most `most` of `names`.
fn subsets(names: &[StripName], most: usize) -> Vec<Vec<StripName>> {
    let mut sets = vec![vec![]];
    for &name in names {
        for set in sets.clone() {
            if set.len() < most {
                sets.push(set.into_iter().chain([name]).collect());
            }
        }
    }
    sets
}

fn check(data_disks: u32, q_coefs: &[u8], available: &[StripName], wanted: &[StripName]) {
    let solution = solve(data_disks, q_coefs, available, wanted)
        .unwrap_or_else(|| panic!("{wanted:?} from {available:?}"));
    let width = solution.inputs.len();
    assert_eq!(solution.coefs.len(), width * wanted.len());
    let mut seed = 1u8;
    for _ in 0..4 {
        let data: Vec<u8> = (0..data_disks)
            .map(|_| {
                seed = gf::mul(seed, 0x53) ^ 0x2f;
                seed
            })
            .collect();
        let (p, q) = encode(q_coefs, &data);
        let value = |name: &StripName| match *name {
            StripName::Data(index) => data[index as usize],
            StripName::P => p,
            StripName::Q => q,
        };
        for (row, name) in wanted.iter().enumerate() {
            let coefs = &solution.coefs[row * width..][..width];
            let sum = solution
                .inputs
                .iter()
                .zip(coefs)
                .fold(0, |sum, (&input, &coef)| sum ^ gf::mul(coef, value(&available[input])));
            assert_eq!(sum, value(name), "{name:?} of {wanted:?} from {available:?}");
        }
    }
}

#[test]
fn every_loss_comes_back_from_as_many_strips_as_there_is_data() {
    for parities in [1, 2] {
        for data_disks in 1..=7 {
            // Not in order, as in the asymmetric layouts, and with gaps, as in ddf.
            let q_coefs: Vec<u8> = (0..data_disks)
                .map(|index| gf::pow2((index as usize * 5 + 3) % 11))
                .take_while(|_| parities == 2)
                .collect();
            let all = names(data_disks, parities);
            for lost in subsets(&all, parities) {
                let available: Vec<StripName> =
                    all.iter().copied().filter(|name| !lost.contains(name)).collect();
                for wanted in subsets(&lost, lost.len()) {
                    check(data_disks, &q_coefs, &available, &wanted);
                    let solution = solve(data_disks, &q_coefs, &available, &wanted);
                    let inputs = solution.map(|solution| solution.inputs.len());
                    let expected = if wanted.is_empty() { 0 } else { data_disks as usize };
                    assert_eq!(inputs, Some(expected), "{wanted:?} from {available:?}");
                }
            }
        }
    }
}

#[test]
fn what_is_there_is_passed_through() {
    let all = names(4, 2);
    let q_coefs = [1, 2, 4, 8];
    for (index, &name) in all.iter().enumerate() {
        let solution = Solution { inputs: vec![index], coefs: vec![1] };
        assert_eq!(solve(4, &q_coefs, &all, &[name]), Some(solution));
    }
    check(4, &q_coefs, &all[1..], &[StripName::Data(0), StripName::P, StripName::Data(2)]);
}

#[test]
fn parity_is_not_read_without_need() {
    let q_coefs = [1, 2, 4];
    let all = names(3, 2);
    let solution = solve(3, &q_coefs, &all[1..], &[StripName::Data(0)]).expect("one loss");
    assert_eq!(solution, Solution { inputs: vec![0, 1, 2], coefs: vec![1, 1, 1] });
    let solution = solve(3, &q_coefs, &all[..3], &[StripName::P, StripName::Q]).expect("encode");
    assert_eq!(solution.inputs, [0, 1, 2]);
    assert_eq!(solution.coefs, [1, 1, 1, 1, 2, 4]);
}

#[test]
fn too_much_lost_has_no_solution() {
    for parities in [1, 2] {
        let data_disks = 5;
        let q_coefs: Vec<u8> = (0..5).map(gf::pow2).take_while(|_| parities == 2).collect();
        let all = names(data_disks, parities);
        for lost in subsets(&all, parities + 1).into_iter().filter(|set| set.len() > parities) {
            let available: Vec<StripName> =
                all.iter().copied().filter(|name| !lost.contains(name)).collect();
            for &name in &lost {
                assert_eq!(solve(data_disks, &q_coefs, &available, &[name]), None, "{lost:?}");
            }
        }
    }
}

#[test]
fn strips_that_the_code_does_not_have_are_refused() {
    let all = names(3, 1);
    for name in [StripName::Q, StripName::Data(3), StripName::Data(u32::MAX)] {
        assert_eq!(solve(3, &[], &all, &[name]), None);
    }
    assert_eq!(solve(3, &[1, 2], &all, &[StripName::Q]), None);
    // Coefficients that cannot tell two strips apart, or that lose one.
    let available = [StripName::Data(2), StripName::P, StripName::Q];
    assert_eq!(solve(3, &[7, 7, 1], &available, &[StripName::Data(0)]), None);
    let available = [StripName::Data(1), StripName::Data(2), StripName::Q];
    assert_eq!(solve(3, &[0, 1, 2], &available, &[StripName::Data(0)]), None);
}
