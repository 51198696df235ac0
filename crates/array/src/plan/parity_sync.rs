//! Background work on one unit of a stripe with parity: recovery, and check with its repair.

use super::parity::{Slots, StripeView, recover};
use super::{Place, Plan, Rows, Taken, Unrecoverable};
use crate::Buf;
use crate::action::{Checked, Compute};
use crate::code::StripName;

/// A strip to rebuild and where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) name: StripName,
    pub(crate) place: Place,
}

/// Plans the rebuilding of strips: copied from where they can still be read, computed otherwise.
///
/// # Errors
/// [`Unrecoverable`] when too many strips are lost.
pub(crate) fn rebuild(
    view: &StripeView,
    targets: &[Target],
    rows: Rows,
    taken: &mut Taken,
) -> Result<Plan, Unrecoverable> {
    let mut plan = Plan::default();
    let mut slots = Slots::new(view, taken);
    let lost: Vec<StripName> = targets
        .iter()
        .map(|target| target.name)
        .filter(|name| view.strip(*name).reader.is_none())
        .collect();
    if !lost.is_empty() {
        let outputs = lost.iter().map(|name| rows.of(slots.get(*name))).collect();
        let sum = recover(view, rows, &lost, outputs, &mut plan, &mut slots)?;
        plan.computes.push(sum);
    }
    for target in targets {
        let slot = slots.get(target.name);
        if let Some(place) = view.strip(target.name).reader {
            plan.read(place, rows, slot);
        }
        plan.write_at(target.place, rows, rows.of(slot), false);
    }
    Ok(plan)
}

/// What a check of one unit needs to go on: its plan and where the strips lie in scratch.
#[derive(Debug)]
pub(crate) struct CheckPlan {
    /// Reads every strip; its only computation is the check.
    pub(crate) plan: Plan,
    /// The strips in memory, in the order of [`StripeView::names`].
    pub(crate) strips: Vec<Buf>,
}

/// Plans the comparison of a unit's parity with its data. `None` when a strip cannot be read:
/// then there is no redundancy left to compare with, or [`resync_degraded`] has to decide.
pub(crate) fn check(view: &StripeView, rows: Rows, taken: &mut Taken) -> Option<CheckPlan> {
    if view.names().any(|name| view.strip(name).reader.is_none()) {
        // Before any strip is taken: the plan made instead takes as many.
        return None;
    }
    let mut plan = Plan::default();
    let mut slots = Slots::new(view, taken);
    let mut strips = Vec::new();
    for name in view.names() {
        let place = view.strip(name).reader?;
        let slot = slots.get(name);
        plan.read(place, rows, slot);
        strips.push(rows.of(slot));
    }
    let data = strips[..view.data.len()].to_vec();
    let p = strips[view.data.len()];
    let q = strips.get(view.data.len() + 1).copied();
    plan.computes.push(Compute::Check { data, q_coefs: view.q_coefs.clone(), p, q });
    Some(CheckPlan { plan, strips })
}

/// Which strip a mismatch says is wrong. A resync after a crash always trusts the data: a torn
/// stripe write leaves new data behind, and nobody knows how much of it.
pub(crate) fn wrong_strip(checked: Checked) -> Option<StripName> {
    match (checked.p_differs != 0, checked.q_differs != 0) {
        (true, false) => Some(StripName::P),
        (false, true) => Some(StripName::Q),
        (true, true) => checked.data_located.map(|index| StripName::Data(index.into())),
        (false, false) => None,
    }
}

/// After a check found a difference: makes the unit fit again from the strips in memory. With
/// `located`, that data strip is computed anew from P and the others; otherwise parity is.
pub(crate) fn mend(view: &StripeView, rows: Rows, strips: &[Buf], located: Option<u32>) -> Plan {
    let mut plan = Plan::default();
    let data = &strips[..view.data.len()];
    if let Some(index) = located {
        let target = data[index as usize];
        let mut inputs: Vec<Buf> = data.to_vec();
        inputs.remove(index as usize);
        inputs.push(strips[view.data.len()]);
        let coefs = vec![1; inputs.len()];
        let outputs = vec![target];
        plan.computes.push(Compute::Sum { inputs, coefs, outputs, accumulate: false });
        plan.write(&view.data[index as usize], rows, target, false);
        return plan;
    }
    let mut coefs = vec![1; data.len()];
    coefs.extend(&view.q_coefs);
    let outputs = strips[view.data.len()..].to_vec();
    plan.write(&view.p, rows, outputs[0], false);
    if let (Some(q), Some(buf)) = (&view.q, outputs.get(1)) {
        plan.write(q, rows, *buf, false);
    }
    let inputs = data.to_vec();
    plan.computes.push(Compute::Sum { inputs, coefs, outputs, accumulate: false });
    plan
}

/// Resync of a P+Q unit with one strip lost: what is left must agree with itself again. The lost
/// strip is taken to be what P says (or nothing, when P or Q is the lost one), and the other
/// parity is made to fit.
///
/// # Errors
/// [`Unrecoverable`] when more than one strip is lost or there is only one parity: nothing
/// redundant is left to bring in line.
pub(crate) fn resync_degraded(
    view: &StripeView,
    rows: Rows,
    taken: &mut Taken,
) -> Result<Plan, Unrecoverable> {
    let lost: Vec<StripName> =
        view.names().filter(|name| view.strip(*name).reader.is_none()).collect();
    let &[lost] = lost.as_slice() else { return Err(Unrecoverable) };
    if view.q.is_none() {
        return Err(Unrecoverable);
    }
    let mut plan = Plan::default();
    let mut slots = Slots::new(view, taken);
    let fix = if lost == StripName::Q { StripName::P } else { StripName::Q };
    for name in view.names().filter(|name| *name != lost && *name != fix) {
        let place = view.strip(name).reader.ok_or(Unrecoverable)?;
        let slot = slots.get(name);
        plan.read(place, rows, slot);
    }
    if let StripName::Data(_) = lost {
        let others = view.names().filter(|name| *name != lost && *name != StripName::Q);
        let inputs: Vec<Buf> = others.map(|name| rows.of(slots.get(name))).collect();
        let coefs = vec![1; inputs.len()];
        let outputs = vec![rows.of(slots.get(lost))];
        plan.computes.push(Compute::Sum { inputs, coefs, outputs, accumulate: false });
    }
    let data = (0..view.data.len() as u32).map(StripName::Data);
    let inputs = data.map(|name| rows.of(slots.get(name))).collect();
    let coefs = match fix {
        StripName::Q => view.q_coefs.clone(),
        _ => vec![1; view.data.len()],
    };
    let output = rows.of(slots.get(fix));
    plan.computes.push(Compute::Sum { inputs, coefs, outputs: vec![output], accumulate: false });
    plan.write(view.strip(fix), rows, output, false);
    Ok(plan)
}
