use super::*;
use crate::Role;
use crate::code::{BlockKind, Equation};

/// P, or P and Q, over as many strips as there are coefficients.
fn code(parities: u16, q_coefs: &[u8]) -> StripeCode {
    let cell = |node| Cell { row: 0, node };
    let width = q_coefs.len() as u16;
    let data: Vec<Cell> = Role::all(width).map(cell).collect();
    let sum = |node, kind, coefs: &mut dyn Iterator<Item = u8>| Equation {
        parity: cell(node),
        kind,
        terms: data.iter().zip(coefs).map(|(&cell, coef)| Term { cell, coef }).collect(),
    };
    let p = sum(Role(width), BlockKind::Parity, &mut std::iter::repeat(1));
    let q = sum(Role(width + 1), BlockKind::Q, &mut q_coefs.iter().copied());
    let equations = [p, q].into_iter().take(parities.into()).collect();
    StripeCode::new(width + parities, 1, data.clone(), equations)
}

/// All ways to pick at most `most` of the cells.
fn subsets(code: &StripeCode, most: usize) -> Vec<Vec<Cell>> {
    let mut sets = vec![vec![]];
    for cell in code.cells() {
        for set in sets.clone() {
            if set.len() < most {
                sets.push(set.into_iter().chain([cell]).collect());
            }
        }
    }
    sets
}

/// Not in order, as in the asymmetric layouts, and with gaps, as in ddf.
fn scattered(data: u8) -> Vec<u8> {
    (0..usize::from(data)).map(|index| gf::pow2((index * 5 + 3) % 11)).collect()
}

/// The sums must be right for made-up contents: one byte in each cell.
fn check(code: &StripeCode, lost: &[Cell], wanted: &[Cell], sums: &Sums) {
    let width = sums.inputs.len();
    assert_eq!(sums.coefs.len(), width * wanted.len());
    let mut seed = 1u8;
    for _ in 0..4 {
        let mut bytes: Vec<u8> = Vec::new();
        for _ in code.data() {
            seed = gf::mul(seed, 0x53) ^ 0x2f;
            bytes.push(seed);
        }
        for equation in code.equations() {
            let terms = equation.terms.iter();
            let product = |term: &Term| gf::mul(term.coef, bytes[code.number(term.cell)]);
            let sum = terms.map(product).fold(0, |sum, byte| sum ^ byte);
            bytes.push(sum);
        }
        for (row, &cell) in wanted.iter().enumerate() {
            let coefs = &sums.coefs[row * width..][..width];
            let products = sums.inputs.iter().zip(coefs);
            let products = products.map(|(&input, &coef)| gf::mul(coef, bytes[input]));
            let sum = products.fold(0, |sum, byte| sum ^ byte);
            assert_eq!(sum, bytes[code.number(cell)], "{cell:?} of {wanted:?} without {lost:?}");
        }
    }
}

#[test]
fn every_loss_comes_back_from_as_many_strips_as_there_is_data() {
    for (parities, data) in [1, 2].into_iter().flat_map(|p| (1..=7).map(move |data| (p, data))) {
        let code = code(parities, &scattered(data));
        for lost in subsets(&code, parities.into()) {
            for wanted in subsets(&code, lost.len()) {
                if !wanted.iter().all(|cell| lost.contains(cell)) {
                    continue;
                }
                let recovery = Recovery::of(&code, &lost, &wanted).expect("no more than parities");
                let sums = recovery.direct(&code, &wanted);
                check(&code, &lost, &wanted, &sums);
                let expected = if wanted.is_empty() { 0 } else { usize::from(data) };
                assert_eq!(sums.inputs.len(), expected, "{wanted:?} without {lost:?}");
            }
        }
    }
}

#[test]
fn parity_is_not_read_without_need() {
    let code = code(2, &[1, 2, 4]);
    let of = |wanted: &[usize]| {
        let cells: Vec<Cell> = wanted.iter().map(|&number| code.cell(number)).collect();
        let recovery = Recovery::of(&code, &cells, &cells).expect("two parities");
        recovery.direct(&code, &cells)
    };
    assert_eq!(of(&[0]), Sums { inputs: vec![1, 2, 3], coefs: vec![1, 1, 1] });
    assert_eq!(of(&[3, 4]), Sums { inputs: vec![0, 1, 2], coefs: vec![1, 1, 1, 1, 2, 4] });
}

#[test]
fn too_much_lost_does_not_come_back() {
    for parities in [1, 2] {
        let code = code(parities, &scattered(5));
        let parities = usize::from(parities);
        for lost in subsets(&code, parities + 1).into_iter().filter(|set| set.len() > parities) {
            for &cell in &lost {
                assert_eq!(Recovery::of(&code, &lost, &[cell]), None, "{cell:?} of {lost:?}");
            }
        }
    }
    // Coefficients that cannot tell two strips apart.
    let code = code(2, &[7, 7, 1]);
    let lost = [code.cell(0), code.cell(1)];
    assert_eq!(Recovery::of(&code, &lost, &lost[..1]), None);
}

#[test]
fn what_can_come_back_does_when_something_else_cannot() {
    let cell = |node| Cell { row: 0, node: Role(node) };
    let copy = |of, node| {
        let terms = vec![Term { cell: cell(of), coef: 1 }];
        Equation { parity: cell(node), kind: BlockKind::Copy, terms }
    };
    let code = StripeCode::new(4, 1, vec![cell(0), cell(2)], vec![copy(0, 1), copy(2, 3)]);
    let lost = [cell(0), cell(2), cell(3)];
    assert_eq!(Recovery::of(&code, &lost, &lost), None);
    let recovery = Recovery::of(&code, &lost, &lost[..1]).expect("its copy is there");
    assert_eq!(recovery.direct(&code, &lost[..1]), Sums { inputs: vec![2], coefs: vec![1] });
}
