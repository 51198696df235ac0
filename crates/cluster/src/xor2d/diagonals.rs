//! The numbering of diagonals: column-Hamiltonian Latin squares of odd order.
//!
//! Columns are permutations of rows to diagonals; between any two of them the rows and diagonals
//! form a single cycle, which is what lets two lost columns be peeled. The squares come from
//! perfect 1-factorisations of complete graphs: the cyclic one for primes, GA(2q) for 2q - 1, a
//! starter for 15 and the quadratic orthomorphism of GF(27).

/// Column by column, the diagonal of each row.
pub(super) type Square = Vec<Vec<u16>>;

/// Pairs of vertices of the cyclic group of order 15, all differences of which differ.
const STARTER_15: [(u16, u16); 7] = [(1, 3), (2, 11), (4, 5), (6, 13), (7, 10), (8, 12), (9, 14)];

/// The square of odd order `m`, normalised: column `m-1` reads `(row - 1) mod m`, and column `c`
/// meets diagonal `m-2`, the one without a parity, at row `m-2-c`. `None`: no construction is
/// known here.
pub(super) fn square(m: u16) -> Option<Square> {
    if is_prime(m) {
        return Some((0..m).map(|c| (0..m).map(|r| (r + c) % m).collect()).collect());
    }
    let raw = match m {
        15 => starter(m, &STARTER_15),
        27 => orthomorphism_27(),
        _ if m % 2 == 1 && is_prime(m.div_ceil(2)) => factorisation(m.div_ceil(2)),
        _ => return None,
    };
    Some(normalise(&raw))
}

pub(super) fn is_prime(x: u16) -> bool {
    x > 1 && (2..x).take_while(|d| d * d <= x).all(|d| !x.is_multiple_of(d))
}

/// GA(2q) without the vertex 2q-1: its partner pairs with itself.
fn factorisation(q: u16) -> Square {
    let vertices = 2 * q;
    let mut factors = Vec::new();
    for i in (0..vertices).step_by(2) {
        let partner = |a| match (i + vertices - a) % vertices {
            b if b == a => (a + q) % vertices,
            b => b,
        };
        factors.push((0..vertices).map(partner).collect::<Vec<_>>());
    }
    for i in (1..vertices).step_by(2).filter(|&i| i != q) {
        let mut factor = vec![0; usize::from(vertices)];
        for a in (1..vertices).step_by(2) {
            let b = (a + i) % vertices;
            factor[usize::from(a)] = b;
            factor[usize::from(b)] = a;
        }
        factors.push(factor);
    }
    let last = vertices - 1;
    let column = |factor: Vec<u16>| {
        let fixed = |(a, b): (u16, &u16)| if *b == last { a } else { *b };
        (0..last).zip(&factor).map(fixed).collect()
    };
    factors.into_iter().map(column).collect()
}

/// The columns are the translates of one pairing.
fn starter(m: u16, pairs: &[(u16, u16)]) -> Square {
    let mut swap = vec![0; usize::from(m)];
    for &(a, b) in pairs {
        swap[usize::from(a)] = b;
        swap[usize::from(b)] = a;
    }
    let at = |r, c| (swap[usize::from((r + m - c) % m)] + c) % m;
    (0..m).map(|c| (0..m).map(|r| at(r, c)).collect()).collect()
}

/// Over GF(27): squares times x, the others times the element 19, translated.
fn orthomorphism_27() -> Square {
    let squares: Vec<u16> = (1..27).map(|x| gf27::mul(x, x)).collect();
    let theta = |x| gf27::mul(if squares.contains(&x) { 3 } else { 19 }, x);
    let at = |r, c| gf27::add(theta(gf27::sub(r, c)), c);
    (0..27).map(|c| (0..27).map(|r| at(r, c)).collect()).collect()
}

/// GF(27) = GF(3)[x] / (x^3 - x - 2); the digits of an element in base 3 are its coefficients.
mod gf27 {
    fn digits(v: u16) -> [u16; 3] {
        [v % 3, v / 3 % 3, v / 9]
    }

    fn element(d: [u16; 3]) -> u16 {
        d[0] % 3 + 3 * (d[1] % 3) + 9 * (d[2] % 3)
    }

    pub(super) fn add(u: u16, v: u16) -> u16 {
        let a = digits(u);
        let b = digits(v);
        element([a[0] + b[0], a[1] + b[1], a[2] + b[2]])
    }

    pub(super) fn sub(u: u16, v: u16) -> u16 {
        add(u, add(v, v))
    }

    pub(super) fn mul(u: u16, v: u16) -> u16 {
        let mut sum = 0;
        let mut power = u;
        for digit in digits(v) {
            for _ in 0..digit {
                sum = add(sum, power);
            }
            // Times x, where x^3 = x + 2.
            let [a, b, c] = digits(power);
            power = element([2 * c, a + c, b]);
        }
        sum
    }
}

fn normalise(raw: &[Vec<u16>]) -> Square {
    let m = raw.len();
    let last = &raw[m - 1];
    let mut label = vec![0; m];
    for (row, &symbol) in last.iter().enumerate() {
        label[usize::from(symbol)] = ((row + m - 1) % m) as u16;
    }
    let mut square = vec![Vec::new(); m];
    for (number, column) in raw.iter().enumerate() {
        let column: Vec<u16> = column.iter().map(|&symbol| label[usize::from(symbol)]).collect();
        let missing = column.iter().position(|&d| usize::from(d) == m - 2);
        let place = if number == m - 1 { m - 1 } else { m - 2 - missing.unwrap_or(0) };
        square[place] = column;
    }
    square
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_two_columns_form_one_cycle() {
        for m in (3..34).step_by(2) {
            let square = square(m).expect("every order to 33");
            for i in 0..usize::from(m) {
                for j in 0..i {
                    assert_eq!(cycle(&square[i], &square[j]), m, "order {m}, columns {i}, {j}");
                }
            }
        }
    }

    #[test]
    fn the_square_is_normalised() {
        for m in (3..34).step_by(2) {
            let square = square(m).expect("every order to 33");
            for (column, diagonals) in (0..m).zip(&square) {
                for (row, &diagonal) in (0..m).zip(diagonals) {
                    let on_the_missing = if column == m - 1 { m - 1 } else { m - 2 - column };
                    assert_eq!(diagonal == m - 2, row == on_the_missing, "{m}: {row}, {column}");
                    assert!(column != m - 1 || diagonal == (row + m - 1) % m);
                }
            }
        }
    }

    #[test]
    fn order_9_is_the_published_square() {
        let square = square(9).expect("9 = 2 * 5 - 1");
        let row = |r: usize| square.iter().map(|column| column[r]).collect::<Vec<_>>();
        assert_eq!(row(0), [0, 4, 5, 2, 6, 3, 1, 7, 8]);
        assert_eq!(row(7), [7, 2, 0, 3, 5, 1, 4, 8, 6]);
    }

    #[test]
    fn orders_without_a_construction_are_refused() {
        assert_eq!([35, 8, 1, 0].map(square), [None, None, None, None]);
    }

    /// Rows on the cycle through row 0.
    fn cycle(a: &[u16], b: &[u16]) -> u16 {
        let step = |row: usize| b.iter().position(|&d| d == a[row]).expect("a permutation");
        let mut row = step(0);
        let mut length = 1;
        while row != 0 {
            (row, length) = (step(row), length + 1);
        }
        length
    }
}
