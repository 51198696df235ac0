//! `braid assemble --explain`: who is in, who is not and why, whether the array can start, and the
//! one safe next command. Members are opened read-only, whoever uses them.

use std::fmt::Write as _;

use braid_array::assemble::{Start, Verdict};
use braid_array::format::Superblock;
use braid_array::refusal::Invocation;

use super::{Layers, Plan};
use crate::cmd::found::{self, Use};
use crate::failure::Failure;
use crate::invocation::next_step;
use crate::output::{self, shape};

pub(super) fn run(plan: &Plan) -> Result<(), Failure> {
    let found = found::open_all("assemble", &plan.members, Use::Look)?;
    let layers = Layers::of(found, plan.options);
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
    text.push_str(&explanation(plan, &layers));
    output::answer(&text)
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
    for (device, verdict) in verdicts {
        let place = if verdict.attached() { "in " } else { "out" };
        let _ = writeln!(text, "  {place}  {device}: {verdict}");
    }
}

fn explanation(plan: &Plan, layers: &Layers) -> String {
    let assembly = &layers.top;
    let mut text = String::new();
    describe(assembly.newest.as_deref(), &assembly.verdicts, &mut text);
    match &assembly.start {
        Start::Refused { reason, next, .. } => {
            let _ = writeln!(text, "cannot start: {reason}");
            let _ = writeln!(text, "next: {}", next_step(next));
        }
        Start::Ready { degraded, resync_from, by_bitmap, .. } => {
            let condition = condition(*degraded, *resync_from, *by_bitmap);
            let _ = writeln!(text, "can start: {condition}");
            let (name, options) = (plan.name.clone(), plan.options);
            let devices = layers.devices_in().into_iter().map(str::to_owned).collect();
            let next = Invocation::Assemble { name, options, devices };
            let _ = writeln!(text, "next: {}", next_step(&next.into()));
        }
    }
    text
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
