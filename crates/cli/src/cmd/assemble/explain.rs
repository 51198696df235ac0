//! `braid assemble --explain`: of every array found, who is in, who is not and why, whether it can
//! start, and the one safe next command. Members are opened read-only, whoever uses them.

use std::fmt::Write as _;
use std::path::Path;

use braid_array::assemble::{Start, Verdict};
use braid_array::format::{Superblock, SuperblockError};
use braid_array::refusal::{Invocation, Next};
use braid_host::control::wire::ControlStatus;

use super::{Called, Layers, Plan};
use crate::cmd::families::{Choice, Families, Family, choose};
use crate::cmd::found::{self, Found};
use crate::cmd::running;
use crate::failure::Failure;
use crate::invocation::next_step;
use crate::output::{self, shape};

/// A device that is in no array, and why.
type Out = (String, Verdict);

pub(super) fn run(run_dir: &Path, plan: Plan) -> Result<(), Failure> {
    // Who cannot be asked is none of the arrays that are explained, as far as can be said.
    let running = running::all("assemble", run_dir).unwrap_or_default().found;
    let (found, odd) = found::look(&plan.members);
    let mut odd: Vec<Out> = odd.into_iter().map(unreadable).collect();
    let mut families = Families::of(found, plan.called.wanted());
    if let Some(name) = plan.called.wanted() {
        let Choice { members, left_out, .. } =
            choose(families, name).map_err(|unclear| unclear.refusal("assemble", name))?;
        odd.extend(left_out);
        families = Families::of(found::look(&members).0, Some(name));
    }
    let Families { arrays, mut strays } = families;
    let nothing = arrays.is_empty();
    let only = arrays.len() == 1;
    let called = if only { plan.called.clone() } else { Called::default() };
    if !only {
        odd.extend(strays.drain(..).map(stray));
    }
    let mut parts: Vec<String> = Vec::new();
    for family in arrays {
        // What is blank could be left out; what is damaged is a loss to the array.
        let (blank, damaged): (Vec<Found>, Vec<Found>) = std::mem::take(&mut strays)
            .into_iter()
            .partition(|one| one.candidate.superblock == Err(SuperblockError::NoMagic));
        let mut others: Vec<Out> = blank.into_iter().map(stray).collect();
        if only {
            others.append(&mut odd);
        }
        parts.push(explain(family, damaged, &others, &called, &plan, &running));
    }
    if !odd.is_empty() {
        let mut text = "in no array:\n".to_owned();
        list(&odd, &mut text);
        parts.push(text);
    }
    let mut text = parts.join("\n");
    if nothing {
        let next = Next::by("check the paths, or make a new array", Invocation::Create);
        let _ = writeln!(text, "next: {}", next_step(&next));
    }
    output::answer(&text)?;
    if nothing { Err(Failure::Silent(Failure::REFUSED)) } else { Ok(()) }
}

fn stray(found: Found) -> Out {
    let reason = found.candidate.superblock.err().map(|error| error.to_string());
    (found.candidate.device, Verdict::Unreadable { reason: reason.unwrap_or_default() })
}

fn unreadable(error: braid_host::member::OpenError) -> Out {
    (error.path.display().to_string(), Verdict::Unreadable { reason: error.reason })
}

/// All there is to say of one array.
fn explain(
    family: Family,
    damaged: Vec<Found>,
    others: &[Out],
    called: &Called,
    plan: &Plan,
    running: &[ControlStatus],
) -> String {
    let uuid = family.superblock.set_uuid;
    let runs = running.iter().find(|status| status.array.superblock.set_uuid == uuid);
    let (nested, superblock) = (family.nested, family.superblock.clone());
    let devices = family.into_devices().into_iter().chain(damaged).collect();
    let layers = Layers::of(devices, nested, called.clone(), plan.options);
    let mut text = String::new();
    for layer in &layers.inner {
        describe(layer.assembly.newest.as_deref(), &layer.assembly.verdicts, &mut text);
        match &layer.assembly.start {
            Start::Refused { reason, .. } => {
                let _ = writeln!(text, "cannot start: {reason}\n");
            }
            Start::Ready { .. } => text.push('\n'),
        }
    }
    // Nothing is known of an array none of whose members can be started, but that it is there.
    let newest = layers.top.newest.as_deref().unwrap_or(&superblock);
    describe(Some(newest), &layers.top.verdicts, &mut text);
    list(others, &mut text);
    let _ = match (runs, &layers.top.start) {
        (Some(ControlStatus { name, pid, .. }), _) => {
            let next = Next::from(Invocation::Status { array: Some(name.clone()) });
            writeln!(text, "runs as {name}, process {pid}\nnext: {}", next_step(&next))
        }
        (None, Start::Refused { reason, next, .. }) => {
            let next = called.named(next.clone());
            writeln!(text, "cannot start: {reason}\nnext: {}", next_step(&next))
        }
        (None, Start::Ready { degraded, resync_from, by_bitmap, .. }) => {
            let condition = condition(*degraded, *resync_from, *by_bitmap);
            let next = Next::from(layers.invocation(plan.options));
            writeln!(text, "can start: {condition}\nnext: {}", next_step(&next))
        }
    };
    text
}

/// The array, and what each device is to it.
pub(super) fn describe(
    newest: Option<&Superblock>,
    verdicts: &[(String, Verdict)],
    text: &mut String,
) {
    if let Some(sb) = newest {
        let level = shape::level_name(sb.level);
        let version = shape::version_name(sb.version);
        let _ = write!(text, "array {} ({}): {level}", sb.name(), sb.uuid_text());
        if let Some(layout) = shape::layout_name(sb).filter(|_| sb.level != 4) {
            let _ = write!(text, ", {layout}");
        }
        let _ = writeln!(
            text,
            ", {} members, metadata {version}, newest event count {}",
            sb.raid_disks, sb.events
        );
    }
    list(verdicts, text);
}

fn list(verdicts: &[(String, Verdict)], text: &mut String) {
    for (device, verdict) in verdicts {
        let place = if verdict.attached() { "in " } else { "out" };
        let _ = writeln!(text, "  {place}  {device}: {verdict}");
    }
}

fn condition(degraded: u16, resync_from: Option<u64>, by_bitmap: bool) -> String {
    let mut parts = Vec::new();
    if degraded > 0 {
        parts.push(format!("degraded, {degraded} roles without an in-sync member"));
    }
    match resync_from {
        Some(_) if by_bitmap => parts.push("resync of what the bitmap marks".to_owned()),
        Some(0) => parts.push("resync of everything".to_owned()),
        Some(sector) => parts.push(format!("resync from sector {sector} on")),
        None if degraded == 0 => parts.push("clean and complete".to_owned()),
        None => {}
    }
    parts.join("; ")
}
