//! The progress of a world: a machine is started, the next thing happens, a reply comes.

use braid_array::action::{Command, CommandId};
use braid_array::events::SyncAction;

use crate::assembly::{How, Refusal};
use crate::disk::Disk;
use crate::executor::Executor;
use crate::part::Parts;
use crate::report::Failure;
use crate::rng::Rng;
use crate::scenario::Scenario;
use crate::subject::{Memory, START, Subject};
use crate::trace::Trace;
use crate::troubles;
use crate::world::{BUFFERS, SLOT_BYTES, World};

/// More events than any life needs: beyond, the array is said to hang.
const MAX_STEPS: u64 = 200_000;

/// Starts a machine on these devices. A refused start is repeated by force only where an
/// administrator has to do so.
pub fn start<M: Subject>(
    mut disks: Vec<Disk>,
    scenario: &Scenario,
    parts: &Parts,
    rng: &mut Rng,
    trace: &mut Trace,
    read_only_without: Option<&[usize]>,
) -> Result<(Executor<M>, bool), Failure> {
    let mut how = How {
        without: read_only_without.unwrap_or_default(),
        read_only: read_only_without.is_some(),
        force: false,
        block_bytes: scenario.block_bytes,
    };
    let buffers_bytes = (scenario.depth * BUFFERS) as u64 * u64::from(SLOT_BYTES);
    let mut memory = Memory { end: buffers_bytes, rng };
    let started = match M::start(&mut disks, parts, how, &mut memory) {
        Err(Refusal { could_force: true, .. }) => {
            how.force = true;
            memory.end = buffers_bytes;
            M::start(&mut disks, parts, how, &mut memory)
        }
        other => other,
    };
    let (machine, attached) =
        started.map_err(|refusal| Failure(format!("not started: {}", refusal.reason)))?;
    let arena_bytes = memory.end as usize;
    trace.note(START, &[60, u64::from(how.force)], || format!("START {how:?}"));
    let exec =
        Executor::new(machine, disks, attached, arena_bytes, START, scenario.profile, rng.fork());
    Ok((exec, how.force))
}

/// Lets the next thing happen. False when nothing is due.
pub fn step(world: &mut World<impl Subject>) -> Result<bool, Failure> {
    troubles::relieve(world);
    let moved = world.exec.step(&mut world.trace) || troubles::end_hang(world);
    world.outputs()?;
    if !moved && world.in_flight() + world.asked() > 0 {
        return Err(Failure(format!(
            "hangs: {} requests and {} commands unanswered, nothing due",
            world.in_flight(),
            world.asked()
        )));
    }
    if world.exec.steps > MAX_STEPS {
        return Err(Failure(format!(
            "no end after {MAX_STEPS} events, {} requests in flight, sync {:?}",
            world.in_flight(),
            world.exec.machine.status().sync
        )));
    }
    Ok(moved)
}

/// Returns whether background work is running.
pub fn syncing(world: &World<impl Subject>) -> bool {
    world.exec.machine.status().sync.action != SyncAction::Idle
}

/// Asks and waits for the reply.
///
/// # Errors
/// The reason of a refusal, or the failure that came in between.
pub fn ask(
    world: &mut World<impl Subject>,
    command: Command,
) -> Result<Result<(), String>, Failure> {
    let id = world.ask(command);
    answer(world, id)
}

/// Waits for a reply.
pub fn answer(
    world: &mut World<impl Subject>,
    id: CommandId,
) -> Result<Result<(), String>, Failure> {
    world.outputs()?;
    while world.waits(id) {
        step(world)?;
    }
    Ok(world.refusal(id).map_or(Ok(()), Err))
}
