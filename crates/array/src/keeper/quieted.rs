//! The wait with which a change of the array's shape or size begins: requests are held until none
//! is in flight and the members say clean.

use super::core::Core;
use super::journal_device::JournalDevice;
use super::{Checkpoints, Traffic};
use crate::Instant;
use crate::refusal::{Invocation, Next, Refusal};

/// The longest time for which requests are held until those in flight have ended.
pub(super) const QUIET_MS: u64 = 10_000;

/// The outcome of a look at whether the array is quiet.
#[derive(Debug)]
pub(super) enum Quieted {
    NotYet,
    /// The change is to be given up.
    Never(Refusal),
    /// Nothing is in flight, and the superblocks say clean; of a journal also that it is empty.
    Yes,
}

/// Returns whether the array is quiet, and has it become clean; `until`: end of the wait.
pub(super) fn quieted(
    core: &mut Core,
    checkpoints: &mut Checkpoints,
    traffic: Traffic<'_>,
    until: Instant,
) -> Quieted {
    if core.service.stopping {
        return Quieted::Never(Refusal::new("the array is being stopped", "start it again"));
    }
    if core.now >= until {
        return Quieted::Never(late(core));
    }
    let hurries = crate::broken("grow-quiet");
    if (!traffic.quiet || !core.metadata.is_idle()) && !hurries {
        return Quieted::NotYet;
    }
    if core.metadata.has_to_resync() {
        let next = Next::by("see what it waits for", Invocation::Status { array: None });
        return Quieted::Never(Refusal::new("a write found no room on a member", next));
    }
    let is_told = core.metadata.journal.is_none_or(JournalDevice::is_told);
    if core.service.redundant && (core.metadata.clean.active || !is_told) && !hurries {
        if checkpoints.rests() {
            checkpoints.begin(core);
        }
        return Quieted::NotYet;
    }
    Quieted::Yes
}

/// Says whom requests in flight wait for.
fn late(core: &Core) -> Refusal {
    let owing = core.members.owing().min_by_key(|(_, since)| *since);
    let device = owing.and_then(|(id, _)| core.members.get(id)).map(|member| &member.device);
    match device {
        Some(device) => Refusal::new(
            format!("{device} has not answered for 10 s"),
            Next::by("fail it first", Invocation::Fail { array: None, device: device.clone() }),
        ),
        None => Refusal::new("requests in flight did not end within 10 s", "try again"),
    }
}
