//! Advice of `--explain`: reading first, wherever a write could make things worse. Commands that
//! write are named as the later step, with a list of their writes.

use braid_array::assemble::{Start, Verdict};
use braid_array::refusal::{Invocation, Next};

use super::layers::Layers;
use crate::cmd::found::Found;
use crate::cmd::given::Given;
use crate::invocation::next_step;
use crate::output;
use crate::output::explained::Later;

/// The next step, and the one after it where the first only reads.
pub(super) struct Advice {
    pub(super) next: Next,
    pub(super) later: Option<Later>,
}

impl Advice {
    /// `next` leads to the array; but when its members are not a complete set of this machine's
    /// own, reading does first. An image with holes is written to in no case.
    pub(super) fn of(layers: &Layers, found: &Owner, next: Next, given: &Given<'_>) -> Self {
        let has_holes = !given.maps.all().is_empty();
        let may_write = found.is_own && is_whole(layers) && !has_holes;
        let reading = match next.invocation.as_deref() {
            Some(Invocation::Assemble { options, .. }) if !(options.read_only || may_write) => {
                let mut reading = next.clone();
                if let Some(Invocation::Assemble { options, .. }) =
                    reading.invocation.as_deref_mut()
                {
                    options.read_only = true;
                }
                reading
            }
            _ => return Self { next: given.put_into(next), later: None },
        };
        let writing = Next::from(*next.invocation.expect("it assembles"));
        let command = next_step(&given.put_into(writing));
        let later = (!has_holes).then(|| Later { command, writes: writes(layers) });
        Self { next: given.put_into(reading), later }
    }
}

/// Owner of the examined devices.
pub(super) struct Owner {
    /// Set if the devices are block devices that no other host has assembled.
    is_own: bool,
}

impl Owner {
    pub(super) fn of(devices: &[Found]) -> Self {
        let here = output::host_name();
        let is_ours = |one: &Found| {
            let name = one.candidate.superblock.as_ref().map(|sb| sb.name()).unwrap_or_default();
            let host = name.split_once(':').map(|(host, _)| host.to_owned());
            one.device.block_device && host.is_none_or(|host| host == here)
        };
        Self { is_own: devices.iter().all(is_ours) }
    }
}

/// Returns whether every member is attached and no array needs a resync, a log replay or a missing
/// member.
fn is_whole(layers: &Layers) -> bool {
    let arrays = layers.inner.iter().map(|layer| &layer.assembly).chain([&layers.top]);
    let whole = |start: &Start| match start {
        Start::Refused { .. } | Start::Halfway(_) => false,
        Start::Ready { config, degraded, resync_from, .. } => {
            *degraded == 0 && resync_from.is_none() && !config.log.has_to_replay()
        }
    };
    let is_out = |verdict: &Verdict| !verdict.attached();
    let mut arrays = arrays.into_iter();
    arrays.all(|one| whole(&one.start) && !one.verdicts.iter().any(|(_, v)| is_out(v)))
}

/// Lists the writes of a normal start.
fn writes(layers: &Layers) -> String {
    let mut parts = vec!["superblocks".to_owned()];
    match &layers.top.start {
        Start::Refused { .. } | Start::Halfway(_) => {
            parts.push("which say from then on that these members are current".to_owned());
        }
        Start::Ready { config, resync_from, by_bitmap, .. } => {
            if config.log.has_to_replay() {
                parts.push("what the log holds".to_owned());
            }
            match resync_from {
                Some(_) if *by_bitmap => parts.push("a resync of what the bitmap marks".to_owned()),
                Some(_) => parts.push("a resync".to_owned()),
                None => {}
            }
        }
    }
    parts.join(", ")
}
