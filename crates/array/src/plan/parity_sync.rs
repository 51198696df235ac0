//! Background work on one unit of a stripe with sums of its data: recovery, and check with its
//! repair.

use super::parity::{Slots, StripeView, read_strip, recover, sets, sum};
use super::{MemberPlace, Plan, Rows, Taken, Unrecoverable, form};
use crate::Buf;
use crate::action::{Checked, Compute};
use crate::code::{BlockKind, Cell, DecodeStep, Doubt, Equation, Misfit, StripeCode, Term, doubts};

/// A strip to rebuild, by the number of its cell, and where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The strip.
    pub strip: usize,
    /// Destination.
    pub place: MemberPlace,
}

/// Plans the rebuilding of strips: copied from where they can still be read, computed otherwise.
///
/// # Errors
/// [`Unrecoverable`] when too many strips are lost, or the sums do not tell what data was lost.
pub fn rebuild(
    view: &StripeView,
    targets: &[Target],
    rows: Rows,
    taken: &mut Taken,
) -> Result<Plan, Unrecoverable> {
    let mut plan = Plan::default();
    let mut slots = Slots::new(view, taken);
    let mut lost: Vec<usize> = Vec::new();
    for &Target { strip, .. } in targets {
        // Its holder and a replacement both get what is computed once.
        if view.cells[strip].reader.is_none() && !lost.contains(&strip) {
            lost.push(strip);
        }
    }
    if !lost.is_empty() {
        view.data_can_be_computed()?;
    }
    bring_back(view, &lost, rows, &mut plan, &mut slots)?;
    for target in targets {
        read_strip(view, target.strip, rows, &mut plan, &mut slots);
        plan.fill_at(target.place, rows, rows.of(slots.get(target.strip)));
    }
    Ok(plan)
}

/// Plans the bringing of a strip into memory: read where it can be, computed otherwise. Returns the
/// plan and the strip.
///
/// # Errors
/// As for [`rebuild`].
pub fn fetch(
    view: &StripeView,
    strip: usize,
    rows: Rows,
    taken: &mut Taken,
) -> Result<(Plan, Buf), Unrecoverable> {
    let mut plan = Plan::default();
    let mut slots = Slots::new(view, taken);
    if view.cells[strip].reader.is_none() {
        view.data_can_be_computed()?;
        bring_back(view, &[strip], rows, &mut plan, &mut slots)?;
    }
    read_strip(view, strip, rows, &mut plan, &mut slots);
    Ok((plan, rows.of(slots.get(strip))))
}

/// Computes strips that cannot be read in their slots.
fn bring_back(
    view: &StripeView,
    lost: &[usize],
    rows: Rows,
    plan: &mut Plan,
    slots: &mut Slots,
) -> Result<(), Unrecoverable> {
    if lost.is_empty() {
        return Ok(());
    }
    let outputs: Vec<Buf> = lost.iter().map(|&strip| rows.of(slots.get(strip))).collect();
    recover(view, rows, lost, &outputs, plan, slots)
}

/// The basis on which a check of one unit goes on: its plan and where the strips lie in scratch.
#[derive(Debug)]
pub struct CheckPlan {
    /// Reads every strip that can be; what its computations find is for [`differing`].
    pub plan: Plan,
    /// The strips in memory, by the numbers of their cells.
    pub strips: Vec<Buf>,
}

/// Plans the comparison of a unit's sums with its data; every strip can be read.
pub fn check(view: &StripeView, rows: Rows, taken: &mut Taken) -> CheckPlan {
    let mut slots = Slots::new(view, taken);
    compare(view, rows, Plan::default(), &mut slots)
}

/// Plans the computing of the one data strip that cannot be read from one sum, and the comparison
/// with the others it is part of: only where they agree it is known what the strip held.
///
/// # Errors
/// [`Unrecoverable`] when more cannot be read.
pub fn vouch(
    view: &StripeView,
    lost: usize,
    rows: Rows,
    taken: &mut Taken,
) -> Result<CheckPlan, Unrecoverable> {
    let mut plan = Plan::default();
    let mut slots = Slots::new(view, taken);
    bring_back(view, &[lost], rows, &mut plan, &mut slots)?;
    Ok(compare(view, rows, plan, &mut slots))
}

/// Reads the strips that are not being read yet, and compares when the computations planned so far
/// are done.
fn compare(view: &StripeView, rows: Rows, mut plan: Plan, slots: &mut Slots) -> CheckPlan {
    let mut strips = Vec::new();
    for strip in 0..view.cells.len() {
        strips.push(rows.of(slots.get(strip)));
        read_strip(view, strip, rows, &mut plan, slots);
    }
    plan.computes.extend(fits(&view.code, &strips, || rows.of(slots.spare())));
    CheckPlan { plan, strips }
}

/// Returns the computations that compare the sums in these strips with the data in them. Sums that
/// are not checked all at once are `made` one after the other. The findings are for [`differing`].
pub fn fits(code: &StripeCode, strips: &[Buf], made: impl FnOnce() -> Buf) -> Vec<Compute> {
    let (data, sums) = strips.split_at(code.data().len());
    if let Some(q_coefs) = checked_at_once(code) {
        let data = data.to_vec();
        let q = sums.get(1).copied();
        return vec![Compute::Check { data, q_coefs, p: sums[0], q }];
    }
    let made = made();
    let mut computes = Vec::new();
    for (equation, &b) in code.equations().iter().zip(sums) {
        let of = |cell| strips[code.number(cell)];
        let a = match equation.terms[..] {
            [Term { cell, coef: 1 }] => of(cell),
            _ => {
                computes.push(form(&equation.terms, of, made));
                made
            }
        };
        computes.push(Compute::Compare { a, b });
    }
    computes
}

/// The coefficients in Q of a code that is P, or P and Q, over all its data; none without Q.
fn checked_at_once(code: &StripeCode) -> Option<Vec<u8>> {
    let whole = |equation: &Equation| equation.terms.len() == code.data().len();
    match code.equations() {
        [p] if p.kind == BlockKind::Parity && whole(p) => Some(Vec::new()),
        [p, q] if p.kind == BlockKind::Parity && q.kind == BlockKind::Q && whole(p) && whole(q) => {
            Some(q.terms.iter().map(|term| term.coef).collect())
        }
        _ => None,
    }
}

/// The blocks of 4 KiB, as bits, in which an equation does not hold, by what a check found.
pub fn differing(code: &StripeCode, checked: &[Checked], equation: usize) -> u64 {
    match (checked_at_once(code), equation) {
        (Some(_), 0) => checked[0].p_differs,
        (Some(_), _) => checked[0].q_differs,
        (None, _) => checked[equation].differs(),
    }
}

/// After a comparison that vouched for it: writes a strip that could not be read.
pub fn restore(view: &StripeView, strip: usize, rows: Rows, strips: &[Buf]) -> Plan {
    let mut plan = Plan::default();
    plan.write(&view.cells[strip], rows, strips[strip], false);
    plan
}

/// Returns the strip that is wrong according to a mismatch. A resync after a crash always trusts
/// the data: a torn stripe write leaves new data behind, and nobody knows how much of it.
pub fn wrong_strip(code: &StripeCode, checked: &[Checked]) -> Option<usize> {
    let differs = |equation| u64::from(differing(code, checked, equation) != 0);
    let differs: Vec<u64> = (0..code.equations().len()).map(differs).collect();
    let misfits: Vec<Misfit> = doubts(code, &differs).iter().flat_map(Doubt::misfits).collect();
    let located = || checked[0].data_located.map(usize::from);
    match misfits[..] {
        [Misfit { wrong: Some(cell), .. }] => Some(code.number(cell)),
        _ => located(),
    }
}

/// Plans the comparison of what the equations in doubt say of each suspect, from the strips in
/// memory and in memory for two more. The findings are for [`tell`].
pub fn tell_apart(code: &StripeCode, strips: &[Buf], doubts: &[Doubt], [a, b]: [Buf; 2]) -> Plan {
    let mut plan = Plan::default();
    for doubt in doubts {
        for cell in doubt.to_compare() {
            for (nth, &number) in doubt.equations().iter().enumerate() {
                let output = if nth == 0 { a } else { b };
                plan.computes.push_back(said(code, |strip| strips[strip], cell, number, output));
                if nth > 0 {
                    plan.computes.push_back(Compute::Compare { a, b });
                }
            }
        }
    }
    plan
}

/// Clears the suspects that such comparisons have found to be right.
pub fn tell(doubts: &mut [Doubt], checked: &[Checked]) {
    let mut checked = checked.iter();
    for doubt in doubts {
        let comparisons = doubt.equations().len() - 1;
        for suspect in 0..doubt.to_compare().len() {
            let found = checked.by_ref().take(comparisons);
            let differs = found.fold(0, |all, checked| all | checked.differs());
            doubt.clear(suspect, differs);
        }
    }
}

/// Plans the replacing of wrong data, in memory alone, by what it should be.
pub fn right(code: &StripeCode, strips: &[Buf], misfits: &[Misfit]) -> Plan {
    let mut plan = Plan::default();
    for misfit in misfits {
        let Some(wrong) = misfit.wrong.filter(|&cell| code.kind(cell) == BlockKind::Data) else {
            continue;
        };
        for block in (0..u64::BITS).filter(|block| misfit.blocks >> block & 1 == 1) {
            let bytes = Checked::BLOCK_BYTES;
            let of = |strip: usize| strips[strip].slice(block * bytes, bytes);
            let output = of(code.number(wrong));
            plan.computes.push_back(said(code, of, wrong, misfit.equation, output));
        }
    }
    plan
}

/// Returns the computation of a strip by an equation, which is given by number.
fn said(
    code: &StripeCode,
    strip: impl Fn(usize) -> Buf,
    cell: Cell,
    equation: usize,
    output: Buf,
) -> Compute {
    let step = DecodeStep::by_equation(code, cell, equation);
    form(&step.inputs, |cell| strip(code.number(cell)), output)
}

/// After a check found a difference: makes the unit fit again from the strips in memory. With
/// `located`, that data strip is computed anew from its first sum; otherwise all sums are.
pub fn mend(view: &StripeView, rows: Rows, strips: &[Buf], located: Option<usize>) -> Plan {
    let mut plan = Plan::default();
    let code = &view.code;
    if let Some(strip) = located {
        let cell = code.cell(strip);
        let first = code.involved(cell)[0];
        let computed = said(code, |strip| strips[strip], cell, first, strips[strip]);
        plan.computes.push_back(computed);
        plan.write(&view.cells[strip], rows, strips[strip], false);
        return plan;
    }
    let all: Vec<&Equation> = code.equations().iter().collect();
    for set in sets(&all) {
        plan.computes.push_back(sum(code, set, |strip| strips[strip]));
        for equation in set {
            let strip = code.number(equation.parity);
            plan.write(&view.cells[strip], rows, strips[strip], false);
        }
    }
    plan
}

/// Resync of a unit of which strips are missing: what is left must agree with itself again. The
/// data of a missing member is taken to be what the sums say, the first ones first, and the sums
/// are made to fit. A strip that can be written is written here and now: were it left to later, a
/// small write could take what is there for the data that the sums are about. When nothing
/// redundant is left to bring in line, nothing is to be done.
///
/// # Errors
/// [`Unrecoverable`] when more strips are lost than there are sums.
pub fn resync_degraded(
    view: &StripeView,
    rows: Rows,
    taken: &mut Taken,
) -> Result<Plan, Unrecoverable> {
    let lost = view.lost();
    let sums = view.code.equations().len();
    let writable = lost.iter().any(|&strip| view.cells[strip].writable());
    if lost.len() > sums {
        return Err(Unrecoverable);
    }
    if lost.len() == sums && !writable {
        return Ok(Plan::default());
    }
    let mut plan = Plan::default();
    let mut slots = Slots::new(view, taken);
    let lost: Vec<usize> = lost.into_iter().filter(|&strip| view.is_data(strip)).collect();
    bring_back(view, &lost, rows, &mut plan, &mut slots)?;
    for strip in 0..view.data_strips() {
        read_strip(view, strip, rows, &mut plan, &mut slots);
    }
    let held: Vec<&Equation> = view.held().collect();
    for set in sets(&held) {
        plan.computes.push_back(sum(&view.code, set, |strip| rows.of(slots.get(strip))));
    }
    let held = held.iter().map(|equation| view.code.number(equation.parity));
    for strip in lost.into_iter().chain(held) {
        plan.write(&view.cells[strip], rows, rows.of(slots.get(strip)), false);
    }
    Ok(plan)
}
