//! A seed from beginning to end: lives with troubles, then peace, then the reckoning.

use braid_array::Array;
use braid_array::action::Command;
use braid_array::stack::Stack;
use braid_array::status::JournalMode;

use crate::assembly;
use crate::create;
use crate::disk::Disk;
use crate::final_check;
use crate::judge::Judge;
use crate::nested::{self, Nest};
use crate::part::{Part, Parts};
use crate::past::Snapshot;
use crate::progress::{start, step};
use crate::report::{Failure, Options, Report, run_caught};
use crate::rest::Rest;
use crate::rng::Rng;
use crate::scenario::Scenario;
use crate::subject::Subject;
use crate::trace::Trace;
use crate::troubles;
use crate::workload::Workload;
use crate::world::{CLIENT, SLOT_BYTES, World};

/// Runs a seed.
///
/// # Errors
/// Returns a line with the seed, the array and the failure.
pub fn run_seed(seed: u64, options: Options) -> Result<Report, String> {
    let mut rng = Rng::new(seed);
    let scenario = Scenario::draw(&mut rng, options.mutation);
    run_caught(&format!("seed {seed}: {scenario}"), options, |trace| run(scenario, rng, trace))
}

/// Runs the seed of an array of devices.
fn run(scenario: Scenario, mut rng: Rng, trace: Trace) -> Result<Report, Failure> {
    let disks = create::create(&scenario, &mut rng);
    let part = Part::new(scenario.clone(), assembly::set_uuid(&disks, 0)).map_err(Failure)?;
    let parts = Parts { devices: vec![part], over: None };
    run_lives::<Array>(scenario, parts, disks, rng, trace)
}

/// Runs a seed of an array with a closed write hole.
///
/// # Errors
/// Returns a line with the seed, the array and the failure.
pub fn run_log_seed(seed: u64, options: Options) -> Result<Report, String> {
    let mut rng = Rng::new(seed);
    let scenario = Scenario::draw_with_log(&mut rng, options.mutation);
    run_caught(&format!("log seed {seed}: {scenario}"), options, |trace| run(scenario, rng, trace))
}

/// Runs a seed of arrays whose members are arrays.
///
/// # Errors
/// Returns a line with the seed, the arrays and the failure.
pub fn run_nested_seed(seed: u64, options: Options) -> Result<Report, String> {
    let mut rng = Rng::new(seed);
    let nest = Nest::draw(&mut rng, options.mutation);
    run_caught(&format!("nested seed {seed}: {nest}"), options, |trace| {
        let (parts, disks) = nested::create(&nest, &mut rng).map_err(Failure)?;
        run_lives::<Stack>(nest.outer, parts, disks, rng, trace)
    })
}

fn run_lives<M: Subject>(
    scenario: Scenario,
    parts: Parts,
    disks: Vec<Disk>,
    mut rng: Rng,
    mut trace: Trace,
) -> Result<Report, Failure> {
    let (exec, forced) = start::<M>(disks, &scenario, &parts, &mut rng, &mut trace, None)?;
    let mut judge = Judge::new(exec.machine.array_sectors());
    judge.client_begins(CLIENT, scenario.depth, SLOT_BYTES.into());
    if exec.machine.array_sectors() != parts.top().geometry.array_sectors() {
        return Err(Failure("the array has not the size of its geometry".to_owned()));
    }
    let lives = scenario.lives;
    let mut world = World::new(scenario, rng, trace, judge, exec, parts);
    world.forced = forced;
    world.exec.drain(&mut world.trace);
    for life in 1..=lives {
        let crash = life < lives && world.rng.percent(75);
        live(&mut world, crash, life == lives)?;
        if world.excess || world.lost_in_doubt {
            return final_check::after_excess(world);
        }
        if life == lives {
            break;
        }
        let cut = crash && troubles::may_cut(&mut world);
        let snapshot = if cut { None } else { troubles::goes_back(&mut world) };
        let mut disks = if cut { world.power_cut() } else { final_check::stop(&mut world)? };
        if world.lost_in_doubt {
            // An array within that could not be written may have been failed by the one above.
            return Ok(final_check::examined(&world, &disks));
        }
        if let Some(Snapshot { device, disk }) = snapshot {
            disks[device] = disk;
        }
        reassemble(&mut world, disks)?;
    }
    final_check::make_right(&mut world)?;
    if world.lost_in_doubt { final_check::after_excess(world) } else { final_check::verify(world) }
}

fn reassemble(world: &mut World<impl Subject>, mut disks: Vec<Disk>) -> Result<(), Failure> {
    for disk in disks.iter_mut().filter(|disk| disk.gone()) {
        disk.set_gone(!world.rng.percent(60));
    }
    let World { scenario, parts, rng, trace, .. } = world;
    let (exec, forced) = start(disks, scenario, parts, rng, trace, None)?;
    world.restart(exec);
    if forced {
        world.note(&[61], || "started by force".to_owned());
    }
    world.forced = forced;
    world.exempt();
    world.exempt_unreadable();
    world.parts.all_mut().for_each(|part| part.suspects.begin_life());
    if world.rng.percent(30) {
        // A resync that takes its time meets more requests and troubles.
        let slow = Some(64 << 10);
        world.ask(Command::SpeedLimits { min_bytes_s: slow, max_bytes_s: slow });
    }
    world.exec.drain(&mut world.trace);
    Ok(())
}

/// Requests and troubles; ends early when the power is to be cut, and at times before a stop.
fn live(world: &mut World<impl Subject>, crash: bool, last: bool) -> Result<(), Failure> {
    let block_sectors = u64::from(world.scenario.block_bytes / 512);
    let sectors = world.exec.machine.array_sectors();
    let mut workload = Workload::new(world.rng.fork(), sectors, block_sectors);
    let requests = world.scenario.requests;
    let mut troubles: Vec<u64> =
        (0..world.scenario.troubles).map(|_| world.rng.below(requests)).collect();
    let mut submitted = 0;
    let early = crash || !last && world.rng.percent(40);
    let mut cut_in = early.then(|| world.rng.between(1, requests * 12));
    let mut rest = Rest::draw(&world.rng, requests);
    let mut linger = world.rng.pick(&[0, 20, 200, 1000]);
    if world.scenario.has_journal() && world.rng.percent(60) {
        world.ask(Command::JournalMode(JournalMode::WriteBack));
    }
    if world.scenario.excess && world.rng.percent(30) {
        // A resync that has just begun meets it.
        let status = world.exec.machine.status();
        troubles::scratch(world, &status);
    }
    loop {
        if troubles.iter().any(|at| *at <= submitted) {
            troubles.retain(|at| *at > submitted);
            troubles::inject(world);
            world.outputs()?;
            // The moments after a trouble are the interesting ones to cut the power in.
            if crash && world.rng.percent(30) {
                cut_in = Some(world.rng.between(1, 40));
            }
        }
        let rests = rest.is_now(world.exec.now(), submitted);
        while !rests && submitted < requests && world.submit(&mut workload)? {
            submitted += 1;
        }
        world.outputs()?;
        // So are those in which logs begin, or end before superblocks tell of it.
        let changed = std::mem::take(&mut world.members_changed) && world.scenario.has_log();
        if crash && changed && world.rng.percent(40) {
            cut_in = Some(world.rng.between(1, 40));
        }
        if submitted == requests && world.in_flight() == 0 {
            if linger == 0 {
                return Ok(());
            }
            linger -= 1;
        }
        if cut_in == Some(0) {
            return Ok(());
        }
        cut_in = cut_in.map(|steps| steps - 1);
        if step(world)? {
            continue;
        }
        rest.is_over();
        if world.in_flight() == 0 && submitted == requests {
            return Ok(());
        }
    }
}
