//! `braid grow`: another shape for a running array, planned here by the same rules as there.

mod alone;
mod more_nodes;
mod nodes;
mod smaller;

use std::path::Path;

use braid_array::format::backup::HEADER_SECTORS;
use braid_array::format::superblock::feature;
use braid_array::grow::{self, Grow, NewShape};
use braid_array::level::{Layout, Level};
use braid_array::refusal::{Next, Refusal};
use braid_array::status::{ArrayState, MemberState, MemberStatus, SpillStatus, Status};
use braid_array::{MemberId, SECTOR_BYTES};
use braid_host::control::member_path;
use braid_host::control::wire::{ControlStatus, Verb};
use braid_host::member;

use super::{running, status};
use crate::args::{GrowArgs, NewSize};
use crate::config::Config;
use crate::failure::Failure;
use crate::invocation::{next_step, shell_word};
use crate::output;
use crate::output::growth::Growth;
use crate::output::progress::Progress;

const OPERATION: &str = "grow";
/// For --layout: whichever leaves all data where they are.
const PRESERVE: &str = "preserve";

pub(super) fn run(run_dir: &Path, args: &GrowArgs) -> Result<(), Failure> {
    let name = &args.name;
    if args.pause || args.resume {
        return hold(run_dir, args);
    }
    let refused = |why: Refusal| Failure::explained(OPERATION, name, why.about(name));
    let before = running::status(OPERATION, run_dir, name)?;
    let is_made_of_devices = before.array.children.is_empty() && !nodes::has_nodes(&before.array);
    if args.spill.is_some() && !is_made_of_devices {
        let reason = "nothing moves in place but the data of an array of this machine's devices";
        return Err(Failure::refused(OPERATION, name, reason, "leave --spill out"));
    }
    if nodes::has_nodes(&before.array) {
        return nodes::run(run_dir, args, &before);
    }
    let devices = devices(args)?;
    let change = change(args, before.array.superblock.level)?;
    let spill = args.spill.as_deref().map(member_path);
    let status = if args.suspend_policy {
        &grow::suspended(&before.array, change).map_err(refused)?
    } else {
        &before.array
    };
    let new = planned(status, change, &devices, spill.as_deref()).map_err(refused)?;
    check_count(args, &new)?;
    for device in &devices {
        let verb = Verb::CheckAdd { member: device.clone(), sectors: new.size_sectors };
        running::call(OPERATION, run_dir, name, verb).map_err(|why| unfit(name, device, why))?;
    }
    let geometry = new.geometry().map_err(refused)?;
    smaller::check(run_dir, args, &before, geometry.array_sectors())?;
    let mut growth = Growth::of(&before, &new, &geometry, &devices);
    growth.spill = spill.map(|path| (path, HEADER_SECTORS + new.saved_sectors));
    growth.dry_run = args.dry_run;
    if !args.json {
        output::answer(&growth.plan())?;
    }
    if args.dry_run {
        return if args.json { output::print_json(&growth) } else { Ok(()) };
    }
    part_with(run_dir, name, &grow::leaving(&before.array, change))?;
    let spill = growth.spill.as_ref();
    carry_out(run_dir, &before, change, &devices, (args.suspend_policy, spill))?;
    for device in &devices {
        remember(run_dir, name, device);
    }
    let after =
        if args.wait { wait(run_dir, name)? } else { running::status(OPERATION, run_dir, name)? };
    if args.json {
        output::print_json(&growth)
    } else {
        output::answer(&growth.done(&left(&after)))
    }
}

/// Pauses a reshape, or lets it go on.
fn hold(run_dir: &Path, args: &GrowArgs) -> Result<(), Failure> {
    let name = &args.name;
    let array = running::status(OPERATION, run_dir, name)?.array;
    if !array.superblock.has(feature::RESHAPE_ACTIVE) && !array.superblock.has(feature::NODE_TARGET)
    {
        let next = format!("braid limit {} pauses other work", shell_word(name));
        return Err(Failure::refused(OPERATION, name, "no reshape is under way", next));
    }
    let verb = if args.pause { Verb::Pause } else { Verb::Resume };
    running::call(OPERATION, run_dir, name, verb).map(drop)
}

/// The devices to be added, by their real names.
fn devices(args: &GrowArgs) -> Result<Vec<String>, Failure> {
    let devices: Vec<String> = args.add.iter().map(|device| member_path(device)).collect();
    let twice = (1..devices.len()).find(|at| devices[..*at].contains(&devices[*at]));
    match twice {
        Some(at) => {
            let reason = format!("{} is there twice", devices[at]);
            Err(Failure::usage(OPERATION, &args.name, reason, "leave one out"))
        }
        None => Ok(devices),
    }
}

/// The change that was typed, for an array of this level.
fn change(args: &GrowArgs, now: i32) -> Result<Grow, Failure> {
    let wrong = |why: Refusal| Failure::usage(OPERATION, &args.name, why.reason, why.next);
    let keep_layout = args.layout.as_deref() == Some(PRESERVE);
    if let Some(level) = &args.level {
        let level = level.parse::<Level>().map_err(|why| wrong(why.into()))?;
        if args.layout.is_some() && !keep_layout {
            let next = "leave --layout out, or name it when the level has changed";
            return Err(wrong(Refusal::new("with --level a layout can only be preserved", next)));
        }
        return Ok(Grow::Level { level: level.to_md(), keep_layout });
    }
    if let Some(layout) = &args.layout {
        if keep_layout {
            let next = "name the level with --level, or another layout";
            return Err(wrong(Refusal::new("a layout is preserved beside another level", next)));
        }
        if args.raid_devices.is_some() || !args.add.is_empty() {
            let next = "change the layout when the disks are in";
            return Err(wrong(Refusal::new("a layout changes by itself", next)));
        }
        let level = Level::from_md(now).unwrap_or(Level::Raid5);
        let layout = Layout::parse(level, layout).map_err(|why| wrong(why.into()))?;
        return Ok(Grow::Layout(layout.encode()));
    }
    if let Some(chunk) = args.chunk {
        let sectors = u32::try_from(chunk.0 / SECTOR_BYTES).unwrap_or(u32::MAX);
        return Ok(Grow::Chunk(sectors));
    }
    if args.undo {
        return Ok(Grow::Undo);
    }
    Ok(match (args.size, args.raid_devices) {
        (Some(NewSize::Of(size)), _) => Grow::Size(Some(size.0 / SECTOR_BYTES)),
        (Some(NewSize::Max), _) | (None, None) => Grow::Size(None),
        (None, Some(count)) => Grow::RaidDisks(count),
    })
}

/// Plans the change as if the devices were spares already, and those that leave were gone.
fn planned(
    status: &Status,
    change: Grow,
    devices: &[String],
    spill: Option<&str>,
) -> Result<NewShape, Refusal> {
    if change != Grow::Undo {
        // Of what is added for the change a recovery may begin, which the array puts off.
        grow::check_idle(status)?;
    }
    let leaving: Vec<MemberId> = grow::leaving(status, change).iter().map(|it| it.member).collect();
    let mut with_spares = status.clone();
    if let Some(path) = spill {
        with_spares.spill = Some(SpillStatus {
            member: MemberId(u16::MAX),
            device: path.to_owned(),
            sectors: u64::MAX,
            is_over: false,
        });
    }
    with_spares.members.retain(|member| !leaving.contains(&member.member));
    if takes_spares(status, change) {
        let first = u16::MAX - u16::try_from(devices.len()).unwrap_or(u16::MAX);
        for (id, device) in (first..u16::MAX).map(MemberId).zip(devices) {
            with_spares.members.push(MemberStatus {
                data_sectors: u64::MAX,
                told_sectors: room_for_data(status, device)?,
                head_sectors: u64::MAX,
                ..MemberStatus::new(id, device.clone(), MemberState::Spare)
            });
        }
    }
    grow::plan(&with_spares, change)
}

/// Returns whether the array gets devices before it changes. One of stripes gets those of another
/// level afterwards.
fn takes_spares(status: &Status, change: Grow) -> bool {
    status.superblock.level != Level::Raid0.to_md() || matches!(change, Grow::RaidDisks(_))
}

/// Returns how many sectors a device would have for data of a level that uses all of them.
fn room_for_data(status: &Status, device: &str) -> Result<u64, Refusal> {
    if status.superblock.level != Level::Linear.to_md() {
        return Ok(0);
    }
    let device = member::peek(Path::new(device))
        .map_err(|error| Refusal::new(format!("{device}: {}", error.reason), error.next))?;
    let version = status.superblock.version;
    let end = if version.is_behind_data() { version.location(device.sectors) } else { None };
    let begin = status.members.iter().map(|member| member.data_offset).max().unwrap_or(0);
    Ok(end.unwrap_or(device.sectors).saturating_sub(begin))
}

/// Checks a number of members that was typed beside a level.
fn check_count(args: &GrowArgs, new: &NewShape) -> Result<(), Failure> {
    match args.raid_devices {
        Some(count) if count != new.raid_disks => {
            let reason = format!("the array would have {} members, not {count}", new.raid_disks);
            let next = "leave --raid-devices out: data would have to move for another number";
            Err(Failure::refused(OPERATION, &args.name, reason, next))
        }
        _ => Ok(()),
    }
}

/// A device that cannot be added. Nothing is overwritten here: `braid add` is asked for that.
fn unfit(name: &str, device: &str, why: Failure) -> Failure {
    let Refusal { reason, next } = why.into_refusal();
    let next = if next.advice.starts_with("use --force") {
        format!("to overwrite it, wipefs --all {}", shell_word(device)).into()
    } else {
        next
    };
    Failure::explained(
        OPERATION,
        format!("{name} {device}"),
        Refusal::new(reason, next).about(name),
    )
}

/// Takes members out that hold what the new level has no place for.
fn part_with(run_dir: &Path, name: &str, leaving: &[&MemberStatus]) -> Result<(), Failure> {
    for (at, member) in leaving.iter().enumerate() {
        let device = || member.device.clone();
        let fail = Verb::Fail { member: device(), force: false };
        let fail = (member.state == MemberState::InSync).then_some(fail);
        let verbs = fail.into_iter().chain([Verb::Remove { member: device() }]);
        for verb in verbs {
            running::call(OPERATION, run_dir, name, verb).map_err(|why| {
                let Refusal { reason, next } = why.into_refusal();
                let left = match at {
                    0 => String::new(),
                    _ => format!(" ({at} of {} that are to leave have left)", leaving.len()),
                };
                let reason = format!("{}: {reason}{left}", member.device);
                Failure::explained(OPERATION, name, Refusal::new(reason, next))
            })?;
        }
    }
    Ok(())
}

/// Adds the devices and changes the array, in the order that its level wants.
fn carry_out(
    run_dir: &Path,
    before: &ControlStatus,
    change: Grow,
    devices: &[String],
    (suspend_policy, spill): (bool, Option<&(String, u64)>),
) -> Result<(), Failure> {
    let name = &before.name;
    let add = |device: &String| {
        let verb = Verb::Add { member: device.clone(), force: false, within: None };
        running::call(OPERATION, run_dir, name, verb)
    };
    let takes_spares = takes_spares(&before.array, change);
    let first = if takes_spares { devices } else { &[] };
    for (at, device) in first.iter().enumerate() {
        add(device).map_err(|why| with_spares(name, &first[..at], why))?;
    }
    if let Some((path, sectors)) = spill {
        let verb = Verb::Spill { path: path.clone(), sectors: *sectors };
        running::call(OPERATION, run_dir, name, verb)
            .map_err(|why| with_spares(name, first, why))?;
    }
    for grow in in_turn(&before.array, change) {
        running::call(OPERATION, run_dir, name, Verb::Grow { grow, suspend_policy })
            .map_err(|why| with_spares(name, first, why))?;
    }
    if takes_spares {
        return Ok(());
    }
    for device in devices {
        add(device).map_err(|why| {
            let Refusal { reason, next } = why.into_refusal();
            let reason = format!("the level has changed, and {device} was not added: {reason}");
            Failure::explained(OPERATION, name, Refusal::new(reason, next))
        })?;
    }
    Ok(())
}

/// Returns the changes that lead to this one: a linear array gets its members one by one.
fn in_turn(status: &Status, change: Grow) -> Vec<Grow> {
    match change {
        Grow::RaidDisks(count) if status.superblock.level == Level::Linear.to_md() => {
            (status.superblock.raid_disks + 1..=count).map(Grow::RaidDisks).collect()
        }
        other => vec![other],
    }
}

/// A refusal after these devices were added: they stay, and may be of use as spares.
fn with_spares(name: &str, spares: &[String], why: Failure) -> Failure {
    let Some((last, others)) = spares.split_last() else { return why };
    let Refusal { reason, next } = why.into_refusal();
    let stay = if others.is_empty() { "stays as a spare" } else { "stay as spares" };
    let reason = format!("{reason} ({} {stay})", spares.join(" and "));
    let remove = format!("braid remove {} {}", shell_word(name), shell_word(last));
    let next = format!("{}; to take a spare out: {remove}", next_step(&next.about(name)));
    Failure::refused(OPERATION, name, reason, next)
}

/// Tells that an array of the file of this machine has a member that the file does not name.
pub(super) fn remember(run_dir: &Path, name: &str, device: &str) {
    let Some(config) = Config::of_machine() else { return };
    let Some(array) = config.array(name) else { return };
    let real = |path: &str| std::fs::canonicalize(path).unwrap_or_else(|_| path.into());
    let is_named = array.members.iter().any(|member| real(&member.value) == real(device));
    // Arrays within and nodes go by other names.
    let is_path = Path::new(device).is_absolute();
    if !is_path
        || array.members.is_empty()
        || is_named
        || run_dir != braid_host::control::run_dir(None)
    {
        return;
    }
    let file = config.path.display();
    output::warning(&format!(
        "{file}:{}: array.{name}.members lacks {device}; add it there, or braid up refuses to \
         start the array",
        array.line
    ));
}

/// Waits until what the change began is done.
fn wait(run_dir: &Path, name: &str) -> Result<ControlStatus, Failure> {
    loop {
        let now = status::wait(OPERATION, run_dir, name, Progress::bar(name), |_| true)?;
        let array = &now.array;
        let is_next = |member: &MemberStatus| {
            matches!(member.state, MemberState::Spare | MemberState::Rebuilding)
        };
        let goes_on =
            array.degraded > 0 && array.members.iter().any(is_next) || array.log_comes_back();
        let ends = array.held_up.is_some() || array.state == ArrayState::Failed;
        if goes_on && !ends {
            std::thread::sleep(Progress::INTERVAL);
            continue;
        }
        let faulty = array.members.iter().any(|member| member.state == MemberState::Faulty);
        if faulty || ends {
            let next =
                Next::from(format!("see braid status {} for what happened", shell_word(name)));
            let reason = "the array has changed, and what follows ended before it was complete";
            return Err(Failure::refused(OPERATION, name, reason, next));
        }
        return Ok(now);
    }
}

/// Returns what is left to be done by the array or for it.
fn left(after: &ControlStatus) -> String {
    let name = shell_word(&after.name);
    let status = &after.array;
    if !status.sync.is_idle() {
        return format!("{} runs: braid status {name} --watch", status.sync.action.name());
    }
    output::redundancy::next(&after.name, status).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(failure: Failure) -> String {
        let Failure::Said(said) = failure else { panic!("not said") };
        said.to_string()
    }

    #[test]
    fn spares_that_stay_are_told_with_the_way_to_take_them_out() {
        let refused = || Failure::refused(OPERATION, "home", "no", "wait");
        assert_eq!(said(with_spares("home", &[], refused())), "grow home: no; wait");
        let spares = ["/dev/d".to_owned(), "/dev/e f".to_owned()];
        let one = "grow home: no (/dev/d stays as a spare); wait; to take a spare out: \
                   braid remove home /dev/d";
        assert_eq!(said(with_spares("home", &spares[..1], refused())), one);
        let two = said(with_spares("home", &spares, refused()));
        assert!(two.contains("(/dev/d and /dev/e f stay as spares)"), "{two}");
        assert!(two.ends_with("braid remove home '/dev/e f'"), "{two}");
    }

    #[test]
    fn a_device_is_overwritten_by_hand_alone() {
        let held = Failure::refused(OPERATION, "home", "holds ext4", "use --force to overwrite it");
        let expected = "grow home /dev/d: holds ext4; to overwrite it, wipefs --all /dev/d";
        assert_eq!(said(unfit("home", "/dev/d", held)), expected);
    }
}
