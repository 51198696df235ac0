//! `braid assemble --explain`: the verdict on each device of every array found, whether the array
//! can start, and the safe next command. Members are opened read-only, also while in use.

use std::path::Path;

use braid_array::array::array_size;
use braid_array::assemble::{Config, MemberConfig, Standing, Start, StartLog, Verdict};
use braid_array::format::SuperblockError;
use braid_array::format::reshaped::is_backwards;
use braid_array::refusal::{Invocation, Next};
use braid_host::control::wire::ControlStatus;
use braid_host::member;

use super::advice::{Advice, Owner};
use super::layers::Layer;
use super::{Called, Chosen, Layers};
use crate::cmd::families::{Choice, Families, Family, choose};
use crate::cmd::found::{self, Found, Use};
use crate::cmd::given::Given;
use crate::cmd::maps;
use crate::cmd::running;
use crate::cmd::stranger::Stranger;
use crate::failure::Failure;
use crate::invocation::{next_step, shell_word};
use crate::output;
use crate::output::explained::{Explained, Explanation, Judged, Prospect, Replay};
use crate::output::shape;

pub(super) fn run(run_dir: &Path, plan: Chosen, as_json: bool) -> Result<(), Failure> {
    // Who cannot be asked is none of the arrays that are explained, as far as can be said.
    let running = running::all("assemble", run_dir).unwrap_or_default().found;
    let purpose = Use::look(plan.overlay.as_deref());
    let (found, odd) = found::look_as(&plan.members, purpose);
    let found = maps::apply("assemble", &plan.maps, found)?;
    let mut odd: Vec<Judged> = odd.into_iter().map(unreadable).collect();
    let mut families = Families::of(found, plan.called.wanted());
    if let Some(name) = plan.called.wanted() {
        let Choice { members, left_out, .. } =
            choose(families, name).map_err(|unclear| unclear.refusal("assemble", name))?;
        odd.extend(left_out);
        let found = found::look_as(&members, purpose).0;
        families = Families::of(maps::apply("assemble", &plan.maps, found)?, Some(name));
    }
    let Families { arrays, mut strays } = families;
    let mut explained = Explained::default();
    if arrays.is_empty() {
        let first = strays.first().map(|stray| Stranger::of(&stray.device).next);
        explained.next = Some(first.unwrap_or_else(|| "check the paths".to_owned()));
    }
    let only = arrays.len() == 1;
    let called = if only { plan.called.clone() } else { Called::default() };
    if !only {
        odd.extend(strays.drain(..).map(stray));
    }
    for family in arrays {
        // What is blank could be left out; what is damaged is a loss to the array.
        let (blank, damaged): (Vec<Found>, Vec<Found>) = std::mem::take(&mut strays)
            .into_iter()
            .partition(|one| one.candidate.superblock == Err(SuperblockError::NoMagic));
        let mut others: Vec<Judged> = blank.into_iter().map(stray).collect();
        if only {
            others.append(&mut odd);
        }
        explained.arrays.push(explain(family, damaged, others, &called, &plan, &running));
    }
    explained.others = odd;
    explained.together = together(&explained.arrays, &plan.given());
    answer(&explained, as_json)
}

/// Returns the command that lists volumes spanning several of these arrays.
fn together(arrays: &[Explanation], given: &Given<'_>) -> Option<String> {
    let ready: Vec<Vec<&str>> = arrays.iter().map(|array| array.devices().collect()).collect();
    let several = ready.iter().filter(|devices| !devices.is_empty()).count() > 1;
    let devices = ready.concat();
    let words: Vec<String> = devices.iter().map(|device| shell_word(device)).collect();
    let maps = given.maps_of(&devices);
    several.then(|| format!("braid cat --list{maps} {}", words.join(" ")))
}

/// Prints the explanation. The exit status reports a missing array, or an array that cannot start.
pub(super) fn answer(explained: &Explained, as_json: bool) -> Result<(), Failure> {
    if as_json {
        output::print_json(&explained.json())?;
    } else {
        output::answer(&explained.text())?;
    }
    if explained.is_good() { Ok(()) } else { Err(Failure::Silent(Failure::REFUSED)) }
}

fn stray(found: Found) -> Judged {
    let reason = match found.candidate.superblock {
        Err(SuperblockError::NoMagic) => Stranger::of(&found.device).reason,
        Err(error) => error.to_string(),
        Ok(_) => String::new(),
    };
    (found.candidate.device, Verdict::Unreadable { reason })
}

fn unreadable(error: member::OpenError) -> Judged {
    (error.path.display().to_string(), Verdict::Unreadable { reason: error.reason })
}

/// All there is to say of one array.
fn explain(
    family: Family,
    damaged: Vec<Found>,
    others: Vec<Judged>,
    called: &Called,
    plan: &Chosen,
    running: &[ControlStatus],
) -> Explanation {
    let uuid = family.superblock.set_uuid;
    let runs = running.iter().find(|status| status.array.superblock.set_uuid == uuid);
    let nested = family.nested;
    let superblock = family.superblock.clone();
    let devices: Vec<Found> = family.into_devices().into_iter().chain(damaged).collect();
    let unavailable = match runs {
        Some(ControlStatus { name, pid, .. }) => {
            let next = Next::from(Invocation::Status { array: Some(name.clone()) });
            Some((Prospect::Runs { name: name.clone(), pid: *pid }, next))
        }
        // Of an array that does not answer; its superblocks say less than they seem to.
        None => devices.iter().find_map(in_use),
    };
    let owner = Owner::of(&devices);
    let (devices, mut said, _) = found::to_use(devices, plan.options.read_only);
    let mut layers = Layers::of(devices, nested, called.clone(), plan.options);
    said.append(&mut layers.look(plan.options, &plan.reshape));
    let (prospect, Advice { next, later }) = match unavailable {
        Some((prospect, next)) => (prospect, Advice { next, later: None }),
        None => {
            let next = match &layers.top.start {
                Start::Refused { next, .. } => called.named(next.clone()),
                Start::Ready { .. } | Start::Halfway(_) => layers.invocation(plan.options).into(),
            };
            let advice = Advice::of(&layers, &owner, next, &plan.given());
            (prospect_of(&layers.top.start, &said), advice)
        }
    };
    let within = |layer: Layer| Explanation {
        prospect: prospect_of(&layer.assembly.start, &[]),
        superblock: layer.assembly.newest.map(|newest| *newest),
        verdicts: layer.assembly.verdicts,
        within: Vec::new(),
        next: None,
        later: None,
    };
    // Nothing is known of an array none of whose members can be started, but that it is there.
    let newest = layers.top.newest.map_or(superblock, |newest| *newest);
    Explanation {
        superblock: Some(newest),
        verdicts: layers.top.verdicts.into_iter().chain(others).collect(),
        within: layers.inner.into_iter().map(within).collect(),
        prospect,
        next: Some(next_step(&next)),
        later,
    }
}

/// Returns the prospect and next step for an array with a device locked by another process.
fn in_use(found: &Found) -> Option<(Prospect, Next)> {
    let (user, next) = member::locked_by(&found.device)?;
    let reason = format!("{} is in use by {user}", found.candidate.device);
    Some((Prospect::Refused { reason, condition: None }, next))
}

/// Returns the prospect of a start. `said`: facts from the data that superblocks do not tell.
fn prospect_of(start: &Start, said: &[String]) -> Prospect {
    match start {
        Start::Refused { reason, next, .. } => {
            Prospect::Refused { reason: reason.clone(), condition: next.condition }
        }
        Start::Halfway(halfway) => Prospect::Ready {
            condition: with("to be read".to_owned(), &[&[halfway.description()], said].concat()),
            replay: None,
        },
        Start::Ready { config, degraded, resync_from, by_bitmap } => Prospect::Ready {
            condition: with(
                condition(*degraded, *resync_from, *by_bitmap),
                &[goes_on(config).as_slice(), said].concat(),
            ),
            replay: replay(config),
        },
    }
}

/// Says that a reshape goes on, if one does.
fn goes_on(config: &Config) -> Option<String> {
    let superblock = &config.superblock;
    let (before, after) = shape::of_reshape(superblock)?;
    let change = if before.raid_disks == after.raid_disks {
        format!("({})", shape::reshape_in_words(superblock)?)
    } else {
        format!("from {} to {} members", before.raid_disks, after.raid_disks)
    };
    let size = array_size(config).unwrap_or(0).max(1);
    let position = superblock.reshape.position.min(size);
    let moved = if is_backwards(superblock) { size - position } else { position };
    let percent = moved.saturating_mul(100) / size;
    Some(format!("a reshape {change} at {percent}% goes on"))
}

/// Describes the log entries to be replayed.
fn replay(config: &Config) -> Option<Replay> {
    match &config.log {
        log if !log.has_to_replay() => None,
        StartLog::None | StartLog::JournalOff { .. } => None,
        StartLog::PartialParity { fixes, .. } => {
            let holds = |member: &&MemberConfig| match member.standing {
                Standing::InSync { role } => fixes.iter().any(|fix| fix.parity == role),
                _ => false,
            };
            let devices = config.members.iter().filter(holds);
            let devices = devices.map(|member| member.device.clone()).collect();
            Some(Replay::PartialParity { devices, ranges: fixes.len() })
        }
        StartLog::Journal { member, scan } => {
            let device = config.members.get(usize::from(member.0))?.device.clone();
            let pages = scan.pages.len() + scan.data.len();
            Some(Replay::Journal { device, blocks: scan.blocks, pages })
        }
    }
}

fn with(condition: String, said: &[String]) -> String {
    said.iter().fold(condition, |text, more| format!("{text}; {more}"))
}

fn condition(degraded: u16, resync_from: Option<u64>, by_bitmap: bool) -> String {
    let mut parts = Vec::new();
    if degraded > 0 {
        let roles = if degraded == 1 { "role" } else { "roles" };
        parts.push(format!("degraded, {degraded} {roles} without an in-sync member"));
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
