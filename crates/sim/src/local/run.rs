//! A seed from beginning to end: lives with troubles, then peace, then the reckoning.

use braid_array::action::Command;
use braid_array::status::JournalMode;

use crate::disk::Disk;
use crate::judge::Judge;
use crate::local::assembly;
use crate::local::create;
use crate::local::final_check;
use crate::local::growth::Growth;
use crate::local::nested::{self, Nest};
use crate::local::part::{Part, Parts};
use crate::local::past::Snapshot;
use crate::local::progress::{restart, start, step};
use crate::local::rot;
use crate::local::scenario::Scenario;
use crate::local::stores::{self, StoreTroubles};
use crate::local::troubles;
use crate::local::{BUFFERS, CLIENT, Local, SLOT_BYTES};
use crate::report::{Failure, Options, Report, run_caught};
use crate::rest::Rest;
use crate::rng::Rng;
use crate::trace::Trace;
use crate::workload::Workload;

/// Sets apart the generator of moves in place.
const SPILL: u64 = 0x5350_494c_4c00_0000;
/// Sets apart the generator of checksums.
const SUMS: u64 = 0x5355_4d53_0000_0000;

/// Runs a seed.
///
/// # Errors
/// Returns a line with the seed, the array and the failure.
pub fn run_seed(seed: u64, options: Options) -> Result<Report, String> {
    let mut rng = Rng::new(seed);
    let mut scenario = Scenario::draw(&mut rng, options.mutation);
    scenario.draw_spill(Rng::new(seed ^ SPILL));
    scenario.draw_sums(Rng::new(seed ^ SUMS));
    run_caught(&format!("seed {seed}: {scenario}"), options, |trace| run(scenario, rng, trace))
}

/// Runs the seed of an array of devices.
fn run(scenario: Scenario, mut rng: Rng, trace: Trace) -> Result<Report, Failure> {
    let disks = create::create(&scenario, &mut rng);
    let part = Part::new(scenario.clone(), assembly::set_uuid(&disks, 0)).map_err(Failure)?;
    let parts = Parts { devices: vec![part], over: None };
    run_lives(scenario, parts, disks, rng, trace)
}

/// Runs a seed of an array whose superblocks are of version 0.90, where the level has them written.
///
/// # Errors
/// Returns a line with the seed, the array and the failure.
pub fn run_old_seed(seed: u64, options: Options) -> Result<Report, String> {
    let mut rng = Rng::new(seed);
    let mut scenario = Scenario::draw(&mut rng, options.mutation);
    scenario.make_old();
    scenario.draw_spill(Rng::new(seed ^ SPILL));
    scenario.draw_sums(Rng::new(seed ^ SUMS));
    run_caught(&format!("old seed {seed}: {scenario}"), options, |trace| run(scenario, rng, trace))
}

/// Runs a seed of an array with a closed write hole.
///
/// # Errors
/// Returns a line with the seed, the array and the failure.
pub fn run_log_seed(seed: u64, options: Options) -> Result<Report, String> {
    let mut rng = Rng::new(seed);
    let mut scenario = Scenario::draw_with_log(&mut rng, options.mutation);
    scenario.draw_spill(Rng::new(seed ^ SPILL));
    scenario.draw_sums(Rng::new(seed ^ SUMS));
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
        run_lives(nest.outer, parts, disks, rng, trace)
    })
}

fn run_lives(
    scenario: Scenario,
    parts: Parts,
    disks: Vec<Disk>,
    mut rng: Rng,
    trace: Trace,
) -> Result<Report, Failure> {
    let (mut world, forced) = start(disks, &scenario, &parts, &mut rng, trace, None)?;
    let sectors = world.processes[CLIENT].client().array_sectors();
    let mut judge = Judge::new(sectors).with_buffers(BUFFERS);
    judge.client_begins(CLIENT, scenario.depth, SLOT_BYTES.into());
    if sectors != parts.top().shape.geometry.array_sectors() {
        return Err(Failure("the array has not the size of its geometry".to_owned()));
    }
    let lives = scenario.lives;
    let mut local = Local::new(scenario, rng, judge, world, parts);
    local.forced = forced;
    local.world.drain(CLIENT);
    for life in 1..=lives {
        // A loss of power may cost what is known of blocks.
        let crash = life < lives && local.rng.percent(75) && local.rotten.is_empty();
        live(&mut local, crash, life == lives)?;
        rot::is_healed(&mut local)?;
        if local.excess || local.lost_in_doubt {
            return final_check::after_excess(local);
        }
        if life == lives {
            break;
        }
        let cut = crash && troubles::may_cut(&mut local);
        let snapshot = if cut { None } else { troubles::goes_back(&mut local) };
        let mut disks = if cut { local.power_cut() } else { final_check::stop(&mut local)? };
        if local.lost_in_doubt {
            // An array within that could not be written may have been failed by the one above.
            return Ok(final_check::examined(&local, &disks));
        }
        if !cut {
            rot::is_known(&mut local, &disks)?;
        }
        if let Some(Snapshot { device, disk }) = snapshot {
            disks[device] = disk;
        } else if !cut {
            rot::strike(&mut local, &mut disks);
        }
        reassemble(&mut local, disks)?;
    }
    final_check::make_right(&mut local)?;
    if local.lost_in_doubt { final_check::after_excess(local) } else { final_check::verify(local) }
}

fn reassemble(local: &mut Local, mut disks: Vec<Disk>) -> Result<(), Failure> {
    for disk in disks.iter_mut().filter(|disk| disk.gone()) {
        disk.set_gone(!local.rng.percent(60));
    }
    stores::mend(local, &mut disks);
    let forced = restart(local, disks, None)?;
    if forced {
        local.note(&[61], || "started by force".to_owned());
    }
    local.forced = forced;
    local.exempt();
    local.exempt_unreadable();
    local.parts.all_mut().for_each(|part| part.suspects.begin_life());
    if local.rng.percent(30) {
        // A resync that takes its time meets more requests and troubles.
        let slow = Some(64 << 10);
        local.ask(Command::SpeedLimits { min_bytes_s: slow, max_bytes_s: slow });
    }
    local.world.drain(CLIENT);
    Ok(())
}

/// Requests and troubles; ends early when the power is to be cut, and at times before a stop.
fn live(local: &mut Local, crash: bool, last: bool) -> Result<(), Failure> {
    let block_sectors = u64::from(local.scenario.block_bytes / 512);
    let sectors = local.machine().array_sectors();
    let mut workload = Workload::new(local.rng.fork(), sectors, block_sectors);
    let requests = local.scenario.requests;
    let mut troubles: Vec<u64> =
        (0..local.scenario.troubles).map(|_| local.rng.below(requests)).collect();
    if !local.rotten.is_empty() {
        // What cannot be written is known no more, and rots unseen.
        troubles.clear();
    }
    let mut submitted = 0;
    let early = crash || !last && local.rng.percent(40);
    let mut cut_in = early.then(|| local.rng.between(1, requests * 12));
    // Some are shorter than the time until memory is given back, some longer than a page is dirty.
    let mut rest = Rest::draw(&mut local.rng.aside(2), requests, 2_000..=40_000);
    let mut growth = Growth::draw(&local.scenario, local.rng.aside(4), requests);
    let mut stores = StoreTroubles::draw(local, requests);
    let requests = requests + growth.requests();
    if growth.comes() {
        cut_in = None;
    }
    let mut linger = local.rng.pick(&[0, 20, 200, 1000]);
    if local.scenario.has_journal() && local.rng.percent(60) {
        local.ask(Command::JournalMode(JournalMode::WriteBack));
    }
    if local.scenario.excess && local.rng.percent(30) {
        // A resync that has just begun meets it.
        let status = local.status();
        troubles::scratch(local, &status);
    }
    loop {
        if troubles.iter().any(|at| *at <= submitted) {
            troubles.retain(|at| *at > submitted);
            troubles::inject(local);
            local.outputs()?;
            // The moments after a trouble are the interesting ones to cut the power in.
            if crash && local.rng.percent(30) {
                cut_in = Some(local.rng.between(1, 40));
            }
        }
        growth.drive(local, submitted);
        stores.drive(local, submitted);
        workload.resize(growth.limit(local.judge.oracle.sectors()));
        cut_in = growth.draw_cut(local, crash).or(cut_in);
        cut_in = stores.draw_cut(local, crash).or(cut_in);
        let rests = rest.is_now(local.world.now(), submitted);
        while !rests && submitted < requests && local.submit(&mut workload)? {
            submitted += 1;
        }
        local.outputs()?;
        // So are those in which logs begin, or end before superblocks tell of it.
        let changed = std::mem::take(&mut local.members_changed) && local.scenario.has_log();
        if crash && changed && local.rng.percent(40) {
            cut_in = Some(local.rng.between(1, 40));
        }
        if submitted == requests && local.in_flight() == 0 {
            if linger == 0 {
                return Ok(());
            }
            linger -= 1;
        }
        if cut_in == Some(0) {
            return Ok(());
        }
        cut_in = cut_in.map(|steps| steps - 1);
        if step(local)? {
            continue;
        }
        stores.after(rest.is_over(), local, submitted);
        if local.in_flight() == 0 && submitted == requests {
            return Ok(());
        }
    }
}
