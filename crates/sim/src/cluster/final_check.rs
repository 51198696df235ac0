//! The end of a seed: all writes durable, all troubles mended, a clean stop. Then the volumes are
//! checked, and the content that a client reads without as many nodes as the array survives.

use braid_array::events::ArrayEvent;
use braid_array::{Machine, Role};

use super::promises::Happened;
use super::session::{Phase, Session};
use super::{bit_rot, content};
use crate::oracle::Range;
use crate::report::Failure;
use crate::workload::Kind;

/// A rebuild takes less, nodes that die on its way included.
const REBUILD_MILLIS: u64 = 60_000;

/// Checks that scrubs found no mismatch, despite concurrent writes: they compare complete stripes
/// only.
pub(super) fn nothing_differs(session: &mut Session) -> Result<(), Failure> {
    let differs = |event: &ArrayEvent| matches!(event, ArrayEvent::Mismatch { .. });
    match std::mem::take(&mut session.scrubs).into_iter().find(differs) {
        Some(found) if !session.promises.failed => {
            Err(Failure(format!("there is no such {found:?}")))
        }
        _ => Ok(()),
    }
}

/// The end of the last life: everything durable, everything right, and a clean stop.
pub(super) fn finish_and_stop(session: &mut Session) -> Result<(), Failure> {
    let until = session.cluster.world.now().plus_millis(REBUILD_MILLIS);
    while session.in_flight() > 0 || session.waits_for_sync(until) {
        if session.step()? {
            continue;
        }
        if session.syncing() {
            return Err(Failure("a resync stands still".to_owned()));
        }
        break;
    }
    nothing_differs(session)?;
    session.departed_are_free()?;
    if session.cluster.rng.percent(40) {
        bit_rot::scrub(session, false)?;
        nothing_differs(session)?;
    }
    if !session.submit_one(Kind::Flush, Range::default()) {
        return Err(Failure("no flush is taken".to_owned()));
    }
    while session.in_flight() > 0 {
        session.outputs()?;
        session.step()?;
    }
    bit_rot::flip_a_bit(session)?;
    stop(session)
}

/// Stops the client; nothing is left to do at the nodes.
pub(super) fn stop(session: &mut Session) -> Result<(), Failure> {
    session.ask_to_stop();
    session.outputs()?;
    session.until("a stop is never answered", |session| session.phase == Phase::Stopped)?;
    if session.in_flight() > 0 {
        return Err(Failure("stopped with requests in flight".to_owned()));
    }
    if !session.cluster.world.processes[session.client].machine.idle() {
        return Err(Failure("the client has stopped and is not idle".to_owned()));
    }
    if session.cluster.rng.percent(50) || session.promises.dead {
        quiet(session)?;
    }
    Ok(())
}

/// Lets everything come to rest: then no node has anything left to do.
pub(super) fn quiet(session: &mut Session) -> Result<(), Failure> {
    session.end_guest()?;
    while !session.cluster.world.quiet() {
        session.step()?;
    }
    for &node in &session.cluster.nodes {
        let process = &session.cluster.world.processes[node];
        if process.alive && !process.machine.idle() {
            return Err(Failure(format!("{} has lost its clients and is not idle", process.name)));
        }
        if process.alive
            && !session.promises.left
            && process.devices.iter().any(|device| device.open.is_some())
        {
            return Err(Failure(format!("{} keeps a volume open", process.name)));
        }
    }
    Ok(())
}

/// Checks the content of the volumes, and the content that a client reads without as many nodes as
/// the array survives.
pub(super) fn reckon(session: &mut Session) -> Result<(), Failure> {
    quiet(session)?;
    let params = session.cluster.scenario.params;
    if !session.promises.troubled {
        if !session.fenced.iter().all(|fenced| fenced.told) {
            return Err(Failure("a client does not hear that its array is taken".to_owned()));
        }
        if let Some(misfit) = content::misfit(&session.cluster.layout, &session.cluster.disks()) {
            return Err(Failure(misfit));
        }
        for role in Role::all(params.nodes) {
            let superblock = content::superblock(session.cluster.disk(role)).map_err(Failure)?;
            if superblock.resync_offset != braid_array::format::superblock::MAX_SECTOR {
                return Err(Failure(format!("node {role} is not clean after a stop")));
            }
        }
    }
    // Stopped in the moment in which a node was in sync again, the array may not have noted it.
    for role in session.cluster.left_out() {
        session.promises.heard(Happened::Missing(role));
    }
    let gone = session.promises.lost.clone();
    // A node with bad sectors, or one that was cut off, may be there or not; but not later only, as
    // then it would be the one that is out.
    let there = session.cluster.rng.percent(50);
    for round in 0..3 {
        let mut missing = gone.clone();
        let more = session.cluster.more_losses(&gone);
        missing.extend(more.into_iter().take(round));
        session.promises.heard(Happened::LookedAtWithout(&missing));
        // What a client had answered when it died may lie with the nodes until the next one comes.
        let died = !session.cluster.world.processes[session.client].alive;
        if !died {
            look(session, &missing)?;
        }
        let dead =
            |role: &Role| !session.cluster.world.processes[session.cluster.node(*role)].alive;
        let without: Vec<Role> =
            missing.iter().filter(|r| dead(r) || !gone.contains(r) || !there).copied().collect();
        read_back(session, &without)?;
        if died {
            look(session, &missing)?;
        }
    }
    Ok(())
}

/// Decodes everything from the volumes.
pub(super) fn look(session: &mut Session, missing: &[Role]) -> Result<(), Failure> {
    let params = session.cluster.scenario.params;
    let stripe_sectors = session.cluster.layout.sectors() / params.stripes;
    let known = content::known(&session.cluster.layout, &session.cluster.disks());
    for stripe in (0..params.stripes).filter(|stripe| known[*stripe as usize]) {
        let bytes =
            content::data(&session.cluster.layout, &session.cluster.disks(), stripe, missing);
        let judged = session.judge_content(stripe * stripe_sectors, &bytes);
        judged.map_err(|Failure(what)| {
            Failure(format!("on the volumes without nodes {missing:?}: {what}"))
        })?;
    }
    Ok(())
}

/// A new client reads everything, without some of the nodes.
pub(super) fn read_back(session: &mut Session, missing: &[Role]) -> Result<(), Failure> {
    session.cluster.note(&[52], || format!("READ BACK without {missing:?}"));
    let told =
        |Failure(what): Failure| Failure(format!("read back without nodes {missing:?}: {what}"));
    session.start_client(missing, true)?;
    session.read_everything().map_err(told)?;
    stop(session).map_err(told)
}
