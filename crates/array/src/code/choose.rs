//! The best way to write a part of a stripe.

use super::decode::Recovery;
use super::stripe::{Cell, StripeCode};

/// The way in which a write makes the sums fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Sums from what is written alone.
    FullStripe,
    /// All sums anew, from what is written and the other data, which is read (md:
    /// reconstruct-write).
    ReconstructWrite,
    /// Only the sums that change, by what changes: the old data is read, and they are (md:
    /// read-modify-write).
    ReadModifyWrite,
    /// The same as [`Strategy::ReconstructWrite`]; but first data is brought back that cannot be
    /// read.
    RecoverFirst,
    /// The same as [`Strategy::ReadModifyWrite`], of the sums that are known. The others are noted
    /// as unknown and stay so, as data is lost that they would be formed of.
    KnownSums,
}

/// A write, and what can be done about it.
pub struct WriteChoice<'a> {
    /// The code of the stripe.
    pub code: &'a StripeCode,
    /// Returns whether this data, by index, is written.
    pub covered: &'a dyn Fn(usize) -> bool,
    /// Returns whether this cell can be read.
    pub readable: &'a dyn Fn(Cell) -> bool,
    /// Returns whether any member holds this sum.
    pub held: &'a dyn Fn(Cell) -> bool,
    /// Returns whether it is noted of this cell that its holder does not know it.
    pub noted: &'a dyn Fn(Cell) -> bool,
    /// The sums fit the data, so that they can be changed along with it.
    pub in_step: bool,
}

impl WriteChoice<'_> {
    /// The way with the fewest reads and writes.
    #[must_use]
    pub fn strategy(&self) -> Strategy {
        let Self { code, covered, readable, held, .. } = *self;
        let copies = code.equations().iter().all(|equation| equation.terms.len() == 1);
        let sums = code.equations().iter().filter(|equation| held(equation.parity));
        let all = sums.clone().count();
        let data = || (0..).zip(code.data());
        let written = data().filter(|(index, _)| covered(*index)).count();
        if written == code.data().len() || all == 0 || copies {
            return Strategy::FullStripe;
        }
        let changes = |cell: Cell| covered(code.number(cell));
        let changed = sums.filter(|equation| equation.terms.iter().any(|term| changes(term.cell)));
        let mut sums = 0;
        let mut delta = self.in_step;
        for equation in changed {
            sums += 1;
            delta &= readable(equation.parity);
        }
        delta &= data().all(|(index, &cell)| !covered(index) || readable(cell));
        let reconstruct = data().all(|(index, &cell)| covered(index) || readable(cell));
        match (delta, reconstruct) {
            (false, false) if self.leaves_unknown() => Strategy::KnownSums,
            (false, false) => Strategy::RecoverFirst,
            (true, false) => Strategy::ReadModifyWrite,
            (false, true) => Strategy::ReconstructWrite,
            // The one reads and writes what changes; the other reads the rest of the data, and
            // writes all sums.
            // At a tie the one touches fewer members.
            (true, true) if 2 * (written + sums) <= code.data().len() + all => {
                Strategy::ReadModifyWrite
            }
            (true, true) => Strategy::ReconstructWrite,
        }
    }

    /// Tells whether data is lost that other sums than the known ones would be formed of, and the
    /// known ones can be changed without it.
    fn leaves_unknown(&self) -> bool {
        let Self { code, covered, readable, held, noted, in_step } = *self;
        let mut sums = code.equations().iter().map(|equation| equation.parity);
        if !sums.any(|sum| held(sum) && noted(sum)) {
            return false;
        }
        let known = |cell: Cell| readable(cell) && in_step;
        let fits = |cell: Cell| {
            let all = code.involved(cell).iter().map(|&sum| code.equations()[sum].parity);
            let mut changed = all.filter(|&sum| held(sum));
            if readable(cell) {
                changed.all(|sum| noted(sum) || known(sum))
            } else {
                noted(cell) && changed.all(noted)
            }
        };
        let data = || (0..).zip(code.data());
        data().all(|(index, &cell)| !covered(index) || fits(cell)) && !self.can_recover()
    }

    /// Tells whether the data that is not written and cannot be read can be brought back.
    fn can_recover(&self) -> bool {
        let Self { code, covered, readable, in_step, .. } = *self;
        let lost: Vec<Cell> = code.cells().filter(|&cell| !readable(cell)).collect();
        let data = (0..).zip(code.data());
        let wanted = data.filter(|&(index, &cell)| !covered(index) && !readable(cell));
        let wanted: Vec<Cell> = wanted.map(|(_, &cell)| cell).collect();
        in_step && Recovery::of(code, &lost, &wanted).is_some()
    }
}
