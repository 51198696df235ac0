//! Background work on one unit of a stripe with parity: recovery, and check with its repair.

use super::parity::{Slots, StripeView, reads_into, recover};
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
    /// Reads every strip that can be; its last computation is the check.
    pub(crate) plan: Plan,
    /// The strips in memory, in the order of [`StripeView::names`].
    pub(crate) strips: Vec<Buf>,
}

/// Plans the comparison of a unit's parity with its data; every strip can be read.
pub(crate) fn check(view: &StripeView, rows: Rows, taken: &mut Taken) -> CheckPlan {
    let mut plan = Plan::default();
    let mut slots = Slots::new(view, taken);
    compare(view, rows, &mut plan, &mut slots)
}

/// Plans the computing of the one data strip that cannot be read from P, and its comparison with
/// Q: only where they agree it is known what the strip held.
///
/// # Errors
/// [`Unrecoverable`] when more cannot be read.
pub(crate) fn vouch(
    view: &StripeView,
    lost: StripName,
    rows: Rows,
    taken: &mut Taken,
) -> Result<CheckPlan, Unrecoverable> {
    let mut plan = Plan::default();
    let mut slots = Slots::new(view, taken);
    let output = rows.of(slots.get(lost));
    let sum = recover(view, rows, &[lost], vec![output], &mut plan, &mut slots)?;
    plan.computes.push(sum);
    Ok(compare(view, rows, &mut plan, &mut slots))
}

/// Reads the strips that are not being read yet, and compares when the computations planned so far
/// are done.
fn compare(view: &StripeView, rows: Rows, plan: &mut Plan, slots: &mut Slots) -> CheckPlan {
    let mut strips = Vec::new();
    for name in view.names() {
        let slot = slots.get(name);
        if let Some(place) = view.strip(name).reader
            && !reads_into(plan, rows.of(slot))
        {
            plan.read(place, rows, slot);
        }
        strips.push(rows.of(slot));
    }
    let data = strips[..view.data.len()].to_vec();
    let p = strips[view.data.len()];
    let q = strips.get(view.data.len() + 1).copied();
    plan.computes.push(Compute::Check { data, q_coefs: view.q_coefs.clone(), p, q });
    CheckPlan { plan: std::mem::take(plan), strips }
}

/// After a comparison that vouched for it: writes a strip that could not be read.
pub(crate) fn restore(view: &StripeView, name: StripName, rows: Rows, strips: &[Buf]) -> Plan {
    let mut plan = Plan::default();
    for (strip, buf) in view.names().zip(strips).filter(|(strip, _)| *strip == name) {
        plan.write(view.strip(strip), rows, *buf, false);
    }
    plan
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

/// Resync of a unit of which strips are missing: what is left must agree with itself again. The
/// data of a missing member is taken to be what P (else Q) says, and parity is made to fit. A strip
/// that can be written is written here and now: were it left to later, a small write could take
/// what is there for the data that parity is about. When nothing redundant is left to bring in
/// line, nothing is to be done.
///
/// # Errors
/// [`Unrecoverable`] when more strips are lost than there are parities.
pub(crate) fn resync_degraded(
    view: &StripeView,
    rows: Rows,
    taken: &mut Taken,
) -> Result<Plan, Unrecoverable> {
    let lost: Vec<StripName> =
        view.names().filter(|name| view.strip(*name).reader.is_none()).collect();
    let parities = 1 + usize::from(view.q.is_some());
    let writable = lost.iter().any(|name| view.strip(*name).writable());
    if lost.len() > parities {
        return Err(Unrecoverable);
    }
    if lost.len() == parities && !writable {
        return Ok(Plan::default());
    }
    let mut plan = Plan::default();
    let mut slots = Slots::new(view, taken);
    let (lost_data, data): (Vec<StripName>, Vec<StripName>) =
        (0..view.data.len() as u32).map(StripName::Data).partition(|name| lost.contains(name));
    if !lost_data.is_empty() {
        let outputs = lost_data.iter().map(|name| rows.of(slots.get(*name))).collect();
        let sum = recover(view, rows, &lost_data, outputs, &mut plan, &mut slots)?;
        plan.computes.push(sum);
    }
    for name in data {
        let place = view.strip(name).reader.ok_or(Unrecoverable)?;
        let slot = slots.get(name);
        if !reads_into(&plan, rows.of(slot)) {
            plan.read(place, rows, slot);
        }
    }
    let parities: Vec<StripName> = view.parities().collect();
    if !parities.is_empty() {
        let data = (0..view.data.len() as u32).map(StripName::Data);
        let inputs = data.map(|name| rows.of(slots.get(name))).collect();
        let coefs = parities.iter().flat_map(|name| view.coefs(*name)).collect();
        let outputs = parities.iter().map(|name| rows.of(slots.get(*name))).collect();
        plan.computes.push(Compute::Sum { inputs, coefs, outputs, accumulate: false });
    }
    for name in lost_data.into_iter().chain(parities) {
        let buf = rows.of(slots.get(name));
        plan.write(view.strip(name), rows, buf, false);
    }
    Ok(plan)
}
