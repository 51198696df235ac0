//! A seed from beginning to end: clients come, write and go, things break, and in the end
//! everything that was acknowledged must be there.

use braid_array::Role;
use std::collections::BTreeSet;

use super::final_check::{finish_and_stop, nothing_differs, quiet, reckon, stop};
use super::idle_phase::IdlePhase;
use super::kill_point::KillPoint;
use super::nodes::Cluster;
use super::promises::Happened;
use super::scenario::{ClusterScenario, End};
use super::session::{Phase, Session};
use super::troubles::{Trouble, inject, troubles};
use super::{away, moved, relay, torn};
use crate::report::{Failure, Options, Report, run_caught};
use crate::rng::Rng;
use crate::workload::Workload;

/// Time for nodes to reconnect after a broken connection.
const RETURN_MILLIS: u64 = 4_000;

/// Runs a seed.
///
/// # Errors
/// Returns a line with the seed, the array and the failure.
pub fn run_seed(seed: u64, options: Options) -> Result<Report, String> {
    let mut rng = Rng::new(seed);
    let torn = options.mutation.is_none() && torn::is_due(seed);
    let relay = options.mutation.is_none() && relay::is_due(seed);
    let focus = relay::focus::Focus::of(seed);
    let larger = options.mutation.is_none() && away::larger::is_due(seed);
    let moves = options.mutation.is_none() && !larger && moved::is_due(seed);
    let full = options.mutation.is_none() && !larger && !moves && away::full::is_due(seed);
    let scenario = if moves {
        moved::draw(&mut rng)
    } else if full {
        away::full::draw(&mut rng)
    } else if larger {
        away::larger::draw(&mut rng)
    } else if torn {
        torn::array::draw(&mut rng)
    } else if relay {
        relay::array::draw(&mut rng, focus)
    } else {
        ClusterScenario::draw(&mut rng, options.mutation)
    };
    run_caught(&format!("cluster seed {seed}: {scenario}"), options, |trace| {
        if options.verbose {
            println!("{scenario:?}");
        }
        if moves {
            return moved::run(scenario, rng, trace);
        }
        let mut cluster = Cluster::new(scenario, rng, trace);
        if larger {
            away::larger::run(&mut cluster)?;
        } else if full {
            away::full::run(&mut cluster)?;
        } else if torn {
            torn::run(&mut cluster)?;
        } else if relay {
            relay::run(&mut cluster, focus)?;
        } else if cluster.rng.percent(12) && away::fits(&cluster.scenario) {
            away::run(&mut cluster)?;
        } else {
            let mut session = Session::new(cluster);
            run(&mut session)?;
            cluster = session.cluster;
        }
        Ok(Report::of(&cluster.world.trace))
    })
}

fn run(session: &mut Session) -> Result<(), Failure> {
    let lives = session.cluster.scenario.lives.clone();
    if session.cluster.scenario.guest {
        session.guest = Some(session.cluster.start_guest()?);
    }
    for (number, &end) in (1..).zip(&lives) {
        session.start_client(&[], false)?;
        let last = number == lives.len();
        // Who has not all of his role yet is lost already.
        let whole = last && session.is_whole();
        let troubles = if whole { troubles(session, end) } else { Vec::new() };
        let cut = matches!(end, End::Crash | End::TakenOver | End::PowerCut)
            || !last && session.cluster.rng.percent(30);
        let kill_point = match end {
            _ if cut => cut_off(&mut session.cluster),
            End::Loss if !session.cluster.scenario.replaces => {
                KillPoint::of_a_loss(&session.cluster)
            }
            _ => KillPoint::never(),
        };
        let died = live(session, troubles, kill_point)?;
        if died && end == End::Loss && session.cluster.rng.percent(50) {
            // It was its link that failed.
            session.cluster.world.lose_what_is_under_way(session.client, |_| true);
        }
        match end {
            End::PowerCut if last && session.cluster.scenario.journal_bytes == 0 => {
                fall_short_unrecorded(session)?;
            }
            End::PowerCut if last => fall_short(session)?,
            End::Loss if session.may_go_on() && session.cluster.rng.percent(60) => {
                if !go_on(session, died)? {
                    return Ok(());
                }
            }
            // Losses do not spare the client.
            End::Loss if died || session.cluster.rng.percent(20) => session.crash(),
            _ if last => finish_and_stop(session)?,
            End::Stop | End::Loss => stop(session)?,
            End::Crash => {
                session.crash();
                after_a_crash(session)?;
            }
            End::TakenOver => {
                session.leave_running();
                session.fence()?;
            }
            // What a member lacks is lost with what the others were writing.
            End::PowerCut if !session.is_whole() => session.crash(),
            End::PowerCut => {
                power_cut(session);
                after_a_crash(session)?;
            }
        }
    }
    session.not_yet_regained();
    if !session.cluster.world.processes[session.client].alive {
        after_the_last(session)?;
    }
    // Where sums were never right, nobody starts it without a member.
    let vouched = session.cluster.scenario.dirty && session.promises.half_synced;
    if !session.rebuilding().is_empty() && !session.promises.failed && !vouched {
        rebuild_on(session)?;
    }
    if session.promises.troubled && whole(session) && session.cluster.rng.percent(60) {
        revive(session)?;
    }
    reckon(session)
}

/// Runs short-lived clients at times.
fn after_a_crash(session: &mut Session) -> Result<(), Failure> {
    if !session.cluster.scenario.replaces && session.cluster.rng.percent(30) {
        session.short_lived_clients(true)
    } else {
        Ok(())
    }
}

/// Handles the end of the last client: its messages are still under way, or have arrived, and other
/// clients may have tried since.
fn after_the_last(session: &mut Session) -> Result<(), Failure> {
    // Who has taken a role and has not all of it is known to nobody else.
    if session.cluster.scenario.replaces {
        return Ok(());
    }
    if session.cluster.rng.percent(60) {
        quiet(session)?;
        session.not_yet_told();
    }
    if session.cluster.rng.percent(40) { session.short_lived_clients(false) } else { Ok(()) }
}

/// The client dies, and the next one goes on with nodes and witnesses that are left. False when
/// that is all that can be looked at.
fn go_on(session: &mut Session, died: bool) -> Result<bool, Failure> {
    if !died && session.cluster.rng.percent(50) {
        let until = session.cluster.world.now().plus_millis(RETURN_MILLIS);
        session.cluster.world.wake_at(until);
        while session.cluster.world.now() < until && session.step()? {}
    }
    session.crash();
    session.drop_guest();
    if session.cluster.rng.percent(60) && session.those_behind_serve(!died)? {
        return Ok(false);
    }
    session.go_on_with_witnesses()?;
    live(session, Vec::new(), KillPoint::never())?;
    if session.cluster.rng.percent(50) {
        finish_and_stop(session)?;
        return Ok(true);
    }
    // All are told who is left out.
    session.crash();
    Ok(!session.those_behind_serve(true)?)
}

/// The client died while a recovery target was being rebuilt: the next one goes on with that.
fn rebuild_on(session: &mut Session) -> Result<(), Failure> {
    session.cluster.note(&[54], || "REBUILD".to_owned());
    if session.phase != Phase::Stopped {
        session.crash();
    }
    let begun = session.rebuilding();
    let missing: Vec<Role> =
        session.promises.dropped.iter().copied().filter(|role| !begun.contains(role)).collect();
    session.start_client(&missing, false)?;
    live(session, Vec::new(), KillPoint::never())?;
    finish_and_stop(session)?;
    let left = session.rebuilding();
    // What cannot be read keeps a rebuild from its end.
    let unread = session.cluster.scenario.bad_sectors || session.promises.half_synced;
    if left.is_disjoint(&begun) || session.promises.failed || unread {
        Ok(())
    } else {
        Err(Failure(format!("the rebuild of roles {left:?} does not come to its end")))
    }
}

/// At times another node is offered in the place of one that was lost, and dies on its way; or
/// before one is lost, as a spare.
fn replace(session: &mut Session) {
    if session.cluster.scenario.spare && session.promises.in_step && session.cluster.rng.percent(2)
    {
        session.cluster.scenario.spare = false;
        session.drop_guest();
        session.offer_spare();
    }
    let lost = session.promises.dropped.iter().any(|&role| !session.cluster.is_new(role));
    let may = session.cluster.scenario.recovery_target
        && session.promises.in_step
        && session.recovery_target.is_none();
    if lost && may && session.cluster.rng.percent(2) {
        session.drop_guest();
        session.offer();
    } else if let Some(role) = session.rebuilding().first().copied()
        && session.cluster.rng.below(5000) < 1
    {
        session.cluster.restart_recovery_target(role);
    }
}

/// Returns whether every node can be present again with its whole content. After an unclean stop,
/// the array does not start with members that have missed writes.
fn whole(session: &Session) -> bool {
    let damaged = session.cluster.disks().iter().any(|disk| disk.damaged());
    !damaged && (session.promises.dropped.is_empty() || session.cluster.is_clean())
}

/// Revives an array that lost only connections, and nodes that come back: a new client starts it
/// and makes it complete. A node that lost power comes back without its unflushed data.
fn revive(session: &mut Session) -> Result<(), Failure> {
    session.cluster.note(&[53], || "REVIVE".to_owned());
    let nodes = session.cluster.nodes.clone();
    let dead = (0..)
        .map(Role)
        .zip(nodes)
        .filter(|&(_, node)| !session.cluster.world.processes[node].alive);
    let dead: Vec<Role> = dead.map(|(role, _)| role).collect();
    let unnoticed = !dead.is_empty() && !session.cluster.world.processes[session.client].alive;
    for role in dead {
        if session.cluster.reboot(role) {
            session.judge.oracle.power_cut();
            session.suspects.power_cut();
        }
    }
    for node in session.cluster.nodes.clone() {
        session.cluster.world.thaw(node);
    }
    // A client that died just before may not have noticed; the next one goes on without them.
    let left_out = session.cluster.left_out();
    session.promises.heard(Happened::Revived { left_out: &left_out, unnoticed });
    let late = session.some_are_late();
    session.start_client(late.as_slice(), false)?;
    live(session, Vec::new(), KillPoint::never())?;
    if let Some(role) = late {
        session.come_late(role)?;
    }
    finish_and_stop(session)
}

fn cut_off(cluster: &mut Cluster) -> KillPoint {
    let events = 40 * u64::from(cluster.scenario.params.nodes);
    KillPoint::of_a_cut(cluster, cluster.scenario.requests * events)
}

/// Submits requests and causes troubles. Returns whether the kill point has come.
fn live(
    session: &mut Session,
    mut troubles: Vec<(u64, Trouble)>,
    mut kill_point: KillPoint,
) -> Result<bool, Failure> {
    session.planned = troubles.iter().flat_map(|(_, trouble)| trouble.roles()).collect();
    let sectors = session.cluster.layout.sectors();
    let mut workload = Workload::new(session.cluster.rng.fork(), sectors, 8);
    workload.largest(session.cluster.scenario.largest_sectors.min(sectors));
    let requests = session.cluster.scenario.requests;
    let mut submitted = 0;
    // How long a trouble waits for the moment it comes in.
    let hold = session.cluster.rng.pick(&[50, 90, 98]);
    let mut linger: u32 = session.cluster.rng.pick(&[0, 20, 200, 1000]);
    let mut scrub_at =
        session.cluster.rng.percent(25).then(|| session.cluster.rng.below(requests + 1));
    let mut idle = IdlePhase::draw(&session.cluster);
    // How many events a life goes on for a member that is being replaced.
    let mut patience: u32 = 0;
    if session.cluster.scenario.replaces {
        patience = session.cluster.rng.pick(&[0, 2_000, 50_000]);
    }
    loop {
        if scrub_at.take_if(|at| *at <= submitted).is_some() {
            let repair = session.cluster.rng.percent(50);
            session.scrub(repair);
            session.outputs()?;
        }
        replace(session);
        session.sometimes_replace();
        session.outputs()?;
        nothing_differs(session)?;
        // The moment of a trouble is any between two events around its request.
        while let Some(at) = troubles.iter().position(|(at, _)| *at <= submitted) {
            if session.cluster.rng.percent(hold) && submitted < requests {
                break;
            }
            let (_, trouble) = troubles.remove(at);
            inject(session, trouble);
            session.outputs()?;
        }
        let pauses = idle.is_now(&mut session.cluster, submitted);
        while !pauses && submitted < requests && session.submit(&mut workload) {
            submitted += 1;
            session.outputs()?;
            if idle.is_now(&mut session.cluster, submitted) {
                break;
            }
        }
        let done = submitted == requests && session.in_flight() == 0 && troubles.is_empty();
        if done {
            if linger == 0 && (patience == 0 || !session.is_replacing()) {
                return Ok(false);
            }
            linger = linger.saturating_sub(1);
            patience = patience.saturating_sub(1);
        }
        if kill_point.is_now(&session.cluster, submitted) {
            return Ok(true);
        }
        if !session.step()? {
            if done {
                return Ok(false);
            }
            if pauses {
                idle.is_over();
            } else if troubles.is_empty() {
                return Err(Failure("nothing is due, and no request is taken".to_owned()));
            }
        }
    }
}

fn power_cut(session: &mut Session) {
    session.cluster.note(&[51], || "POWER CUT".to_owned());
    session.crash();
    session.kill_fenced();
    session.drop_guest();
    session.drop_spare();
    for node in session.cluster.nodes.clone() {
        session.cluster.world.kill(node);
    }
    let mut disks = session.cluster.take_disks();
    for disk in &mut disks {
        disk.power_cut(&mut session.cluster.rng);
    }
    session.judge.oracle.power_cut();
    session.suspects.power_cut();
    session.cluster.start_nodes(disks);
    for number in 0..session.cluster.witnesses.len() {
        session.cluster.restart_witness(number);
    }
}

/// Cuts the power of all processes; not all nodes come back. Without journals, the content of the
/// absent nodes for unfinished writes is unknown. An unforced client serves only if nothing was
/// being written.
fn fall_short_unrecorded(session: &mut Session) -> Result<(), Failure> {
    power_cut(session);
    let gone = session.cluster.more_losses(&session.promises.lost);
    session.cluster.note(&[54], || format!("NEVER BACK {gone:?}, NO JOURNALS"));
    session.never_back(&gone);
    let before = session.promises.clone();
    session.unforced = !session.cluster.lacks_votes();
    let vouched = !session.unforced;
    session.start_client(&gone, false)?;
    session.unforced = false;
    if session.is_refused()? {
        session.promises.take_back(before);
        session.crash();
        return Ok(());
    }
    if !vouched && session.cluster.scenario.params.family.has_parities() {
        session.suspects.only(BTreeSet::new());
    }
    live(session, Vec::new(), KillPoint::never())?;
    finish_and_stop(session)
}

/// Cuts the power of all processes; not all nodes come back. Journals make up for the missing
/// nodes: durable writes are kept, and every slice-set is old or new. Only whole stripes that are
/// not recorded and were being written may be lost.
fn fall_short(session: &mut Session) -> Result<(), Failure> {
    let whole = session.cluster.scenario.parts_only.then(|| session.suspects.whole_stripes());
    power_cut(session);
    let mut gone = Vec::new();
    if session.cluster.rng.percent(70) {
        gone = session.cluster.more_losses(&session.promises.lost);
    }
    session.cluster.note(&[54], || format!("NEVER BACK {gone:?}"));
    session.never_back(&gone);
    after_a_crash(session)?;
    session.start_client(&gone, false)?;
    if session.promises.all_fits {
        session.suspects.resynced(session.judge.moment());
    } else if let Some(whole) = whole {
        session.suspects.only(whole);
    }
    live(session, Vec::new(), KillPoint::never())?;
    finish_and_stop(session)
}
