//! The shared first hop of every row.

use super::super::Xor2d;
use super::super::diagonals::is_prime;
use braid_array::Role;

/// Attempts for the orders that are no primes; those to 33 need 55.
const ATTEMPTS: usize = 10_000;

/// A hop that a row and a diagonal share.
#[derive(Clone, Copy)]
struct Hop {
    from: Role,
    to: Role,
    diagonal: u16,
}

/// Returns, for each row, the sender and the receiver of its raw block. The receiver is a node in
/// both its row and its diagonal; the senders, the receivers and the diagonals are all distinct.
pub(super) fn first_hops(xor2d: &Xor2d) -> Vec<(Role, Role)> {
    let m = xor2d.m;
    if m == 3 {
        // Straight into the row parity, from the node with data only.
        return (0..xor2d.rows()).map(|row| (Role(2), xor2d.p_node(row))).collect();
    }
    if is_prime(m) {
        return (0..xor2d.rows()).map(|row| (Role((2 * row + 1) % m), Role(row))).collect();
    }
    let choices: Vec<Vec<Hop>> = (0..xor2d.rows()).map(|row| hops_of_row(xor2d, row)).collect();
    let found = (0..ATTEMPTS).find_map(|attempt| choose(&choices, attempt));
    found.expect("a choice exists for every order to 33").iter().map(|h| (h.from, h.to)).collect()
}

fn hops_of_row(xor2d: &Xor2d, row: u16) -> Vec<Hop> {
    let column_missing = Role(xor2d.m - 1);
    let nodes = |equation: usize| {
        let terms = xor2d.code().equations()[equation].terms.iter();
        terms.map(|term| term.cell.node).filter(move |&node| node != column_missing)
    };
    let mut hops = Vec::new();
    for from in nodes(xor2d.row_equation(row)) {
        let diagonal = xor2d.diagonal(row, from.0);
        let crossing: Vec<Role> = nodes(xor2d.diagonal_equation(diagonal)).collect();
        let to = nodes(xor2d.row_equation(row)).filter(|&to| to != from && crossing.contains(&to));
        hops.extend(to.map(|to| Hop { from, to, diagonal }));
    }
    hops
}

/// Chooses greedily, the row with the fewest choices first. The attempt determines the choices.
fn choose(choices: &[Vec<Hop>], attempt: usize) -> Option<Vec<Hop>> {
    let mut left: Vec<Vec<Hop>> = choices.to_vec();
    let mut chosen: Vec<Option<Hop>> = vec![None; choices.len()];
    for step in 0..choices.len() {
        let open = (0..choices.len()).filter(|&row| chosen[row].is_none());
        let row = open.min_by_key(|&row| left[row].len())?;
        let factor = if attempt % 2 == 1 { step + 1 } else { 1 };
        let choice = (attempt / 2 * factor).checked_rem(left[row].len())?;
        let hop = left[row][choice];
        chosen[row] = Some(hop);
        for hops in &mut left {
            hops.retain(|other| {
                other.from != hop.from && other.to != hop.to && other.diagonal != hop.diagonal
            });
        }
    }
    chosen.into_iter().collect()
}
