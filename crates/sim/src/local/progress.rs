//! The progress of a local array: a machine is started, the next thing happens, a reply comes.

use braid_array::BlockMachine;
use braid_array::action::{Command, CommandId};
use braid_array::events::SyncAction;
use braid_array::verified::IntegrityMachine;

use crate::disk::Disk;
use crate::local::assembly::{self, Attached, How, Memory, Refusal};
use crate::local::nested;
use crate::local::part::Parts;
use crate::local::scenario::Scenario;
use crate::local::spill;
use crate::local::stores;
use crate::local::troubles;
use crate::local::{BUFFERS, CLIENT, Local, SLOT_BYTES};
use crate::report::Failure;
use crate::rng::Rng;
use crate::trace::Trace;
use crate::world::World;
use crate::world::ground::START;
use crate::world::process::Process;

/// A machine, and the devices of its members.
type Started = (Box<dyn BlockMachine + Send>, Attached);

/// Builds the machine of an array, or of an array of arrays.
fn build(
    disks: &mut Vec<Disk>,
    parts: &Parts,
    how: How<'_>,
    memory: &mut Memory<'_>,
) -> Result<Started, Refusal> {
    if parts.over.is_some() {
        let (stack, attached) = nested::start(disks, parts, how, memory)?;
        return Ok((Box::new(stack), attached));
    }
    let part = &parts.devices[0];
    let (config, attached) = match assembly::assemble(disks, part.set_uuid, how) {
        Err(why) if !how.read_only => spill::go_on(disks, part, how, memory.rng, why)?,
        other => other?,
    };
    let sums = stores::areas(&config, &attached, disks, part, how, memory)?;
    let array = memory.start(config)?;
    if sums.is_empty() {
        return Ok((Box::new(array), attached));
    }
    Ok((Box::new(IntegrityMachine::new(array, sums, memory.take_for_sums())), attached))
}

/// A world with a machine on these devices, of which nothing was carried out yet. A refused start
/// is repeated by force only where an administrator has to do so.
pub fn start(
    mut disks: Vec<Disk>,
    scenario: &Scenario,
    parts: &Parts,
    rng: &mut Rng,
    mut trace: Trace,
    read_only_without: Option<&[usize]>,
) -> Result<(World, bool), Failure> {
    let mut how = How {
        without: read_only_without.unwrap_or_default(),
        read_only: read_only_without.is_some(),
        force: false,
        block_bytes: scenario.block_bytes,
    };
    let buffers_bytes = (scenario.depth * BUFFERS) as u64 * u64::from(SLOT_BYTES);
    let mut memory = Memory { end: buffers_bytes, rng, grows: scenario.grows };
    let started = match build(&mut disks, parts, how, &mut memory) {
        Err(Refusal { could_force: true, reason }) => {
            trace.note(START, &[], || format!("REFUSED {reason}"));
            how.force = true;
            memory.end = buffers_bytes;
            build(&mut disks, parts, how, &mut memory)
        }
        other => other,
    };
    let (machine, attached) =
        started.map_err(|refusal| Failure(format!("not started: {}", refusal.reason)))?;
    let arena_bytes = memory.end;
    trace.note(START, &[60, u64::from(how.force)], || format!("START {how:?}"));
    let mut process = Process::of_array(machine, arena_bytes, disks, &attached);
    process.read_only = how.read_only;
    let mut world = World::new(rng.fork(), scenario.profile, trace);
    world.processes.push(process);
    Ok((world, how.force))
}

/// A machine starts on these devices in place of the last one. Returns whether it did by force.
pub fn restart(
    local: &mut Local,
    disks: Vec<Disk>,
    read_only_without: Option<&[usize]>,
) -> Result<bool, Failure> {
    let trace = std::mem::replace(&mut local.world.trace, Trace::new(false));
    let Local { scenario, parts, rng, .. } = local;
    let (world, forced) = start(disks, scenario, parts, rng, trace, read_only_without)?;
    local.restart(world)?;
    Ok(forced)
}

/// Lets the next thing happen. False when nothing is due.
pub fn step(local: &mut Local) -> Result<bool, Failure> {
    troubles::relieve(local);
    let moved = local.world.step() || troubles::end_hang(local) || spill::mend(local);
    local.outputs()?;
    local.world.goes_on(moved, &local.judge, CLIENT)?;
    if !moved && local.asked() > 0 {
        return Err(Failure(format!("hangs: {} commands unanswered", local.asked())));
    }
    Ok(moved)
}

/// Returns whether background work is running.
pub fn syncing(local: &mut Local) -> bool {
    local.status().sync.action != SyncAction::Idle
}

/// Asks and waits for the reply.
///
/// # Errors
/// The reason of a refusal, or the failure that came in between.
pub fn ask(local: &mut Local, command: Command) -> Result<Result<(), String>, Failure> {
    let id = local.ask(command);
    answer(local, id)
}

/// Waits for a reply.
pub fn answer(local: &mut Local, id: CommandId) -> Result<Result<(), String>, Failure> {
    local.outputs()?;
    while local.waits(id) {
        step(local)?;
    }
    Ok(local.refusal(id).map_or(Ok(()), Err))
}
