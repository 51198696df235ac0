//! `braid assemble`: finds the members of an array, decides which are attached, starts the array
//! and serves it.

use std::path::{Path, PathBuf};
use std::process::Command;

use braid_array::assemble::{Options, Start};
use braid_array::format::Superblock;
use braid_array::name::check_name;
use braid_array::refusal::{Advised, Invocation, Next};
use braid_array::{Condition, Refusal};
use braid_host::daemon::Daemon;
use braid_host::serve::Assembled;

use super::families::{self, Choice};
use super::found::{self, Found, Members, Named, Use};
use super::given::Given;
use super::launch::{self, How, launch};
use super::maps;
use super::stranger::refuse_strangers;
use super::successor::{HowAssembled, STORE};
use super::sync;
use crate::args::{AssembleArgs, MapArgs, ReshapeArgs, SpeedArgs};
use crate::config::{MdadmConf, MdadmPlace as Place, uuid_digits};
use crate::failure::{Failure, system_error};
use crate::output::{self, shape};

mod advice;
mod bare;
mod explain;
mod layers;
mod nodes;
mod outlook;
mod part;

use layers::Layers;
pub use nodes::open_nodes;
pub(super) use nodes::{ask_all, present, present_arrays, volumes};
pub(super) use outlook::{Outlook, Unnamed, outlook};

/// Identity of the array, as typed.
#[derive(Clone, Debug, Default)]
struct Called {
    name: Option<String>,
    /// Set if the array shall run under this name instead of the name in its superblocks.
    rename: bool,
    /// The array is known by this, and not by its name.
    uuid: Option<String>,
}

impl Called {
    /// The name by which it is to be found.
    fn wanted(&self) -> Option<&str> {
        let name = if self.rename { None } else { self.name.as_deref() };
        self.uuid.as_deref().or(name)
    }

    /// Returns the command that assembles these devices.
    fn invocation(&self, options: Options, devices: Vec<&str>) -> Invocation {
        let name = self.name.clone();
        let rename = self.rename;
        let devices = devices.into_iter().map(str::to_owned).collect();
        Invocation::Assemble { name, rename, options, devices }
    }

    /// Adds the typed name of the array to the next step.
    fn named(&self, mut next: Next) -> Next {
        if let Some(Invocation::Assemble { name: name @ None, rename, .. }) =
            next.invocation.as_deref_mut()
        {
            (*name, *rename) = (self.name.clone(), self.rename);
        }
        next
    }

    /// The name that the array runs under.
    fn run_name(&self, newest: Option<&Superblock>, object: &str) -> Result<String, Failure> {
        let stored = newest.map(Superblock::name).unwrap_or_default();
        let stored = Some(shape::short_name(&stored)).filter(|name| !name.is_empty());
        let name = match &self.name {
            Some(name) if self.rename => Some(name.as_str()),
            name => stored.or(name.as_deref()),
        };
        let next = "put a name before the members: braid assemble --rename NAME MEMBER...";
        let by_uuid = newest.map(|newest| format!("md-{}", &uuid_digits(&newest.uuid_text())[..8]));
        let Some(name) = name.or(by_uuid.as_deref()) else {
            let reason = "its superblocks give it no name";
            return Err(Failure::refused("assemble", object, reason, next));
        };
        check_name(name).map_err(|error| {
            let reason = format!("'{name}' in its superblocks cannot be used: {error}");
            Failure::refused("assemble", object, reason, next)
        })?;
        Ok(name.to_owned())
    }
}

/// Checked arguments.
#[derive(Debug)]
struct Chosen {
    called: Called,
    /// Object of messages until the name of the array is known.
    object: String,
    members: Vec<PathBuf>,
    how: How,
    options: Options,
    /// Where all goes that is written to members.
    overlay: Option<PathBuf>,
    /// Ranges of members that count as unreadable.
    maps: MapArgs,
    reshape: ReshapeArgs,
}

impl Chosen {
    /// Returns the options that later commands need again.
    fn given(&self) -> Given<'_> {
        let overlay = self.overlay.as_deref();
        Given { maps: &self.maps, overlay, reshape: Some(&self.reshape) }
    }
}

pub(super) fn run(run_dir: &Path, args: &AssembleArgs) -> Result<(), Failure> {
    // Before anything else: whoever waits for this process has to learn how it goes.
    let daemon = Daemon::adopt();
    let SpeedArgs { min, max } = &args.speed;
    sync::check_pair("assemble", &args.names.join(" "), min.as_ref(), max.as_ref())?;
    start(run_dir, args, false, daemon)
}

/// Starts an array as it is asked for, in this process if that is a daemon already. One that has to
/// be `whole` is not started degraded.
pub(super) fn start(
    run_dir: &Path,
    args: &AssembleArgs,
    whole: bool,
    daemon: Option<Daemon>,
) -> Result<(), Failure> {
    if let Some(geometry) = &args.bare.geometry {
        return bare::start(run_dir, args, geometry, daemon);
    }
    if let Some(part) = &args.part {
        return part::start(run_dir, args, part, daemon);
    }
    let named = Named::parse("assemble", &args.names)?;
    let exports = launch::exports("assemble", &args.export, args.insecure)?;
    let integrity_store = args.integrity_store();
    let how = How { limits: args.limits(), whole, integrity_store, ..exports.into() };
    // HOST:NAME and UUIDs select an array, too, but are no name for it.
    if let Some(name) = named.name.as_ref().filter(|name| args.rename || !name.contains(':')) {
        check_name(name).map_err(|error| Failure::usage("assemble", name, error, error.next()))?;
    }
    if args.scan && named.members != Members::Paths(Vec::new()) {
        let next = "name members or use --scan, not both";
        return Err(Failure::usage("assemble", "--scan", "members were given", next));
    }
    let called = Called { name: named.name, rename: args.rename, uuid: args.uuid.clone() };
    if called.rename && called.name.is_none() {
        let next = "put the name before the members: braid assemble --rename NAME MEMBER...";
        return Err(Failure::usage("assemble", "--rename", "no name was given", next));
    }
    let members = match (called.name.as_deref(), named.members) {
        (_, Members::Nodes(members)) => {
            args.overlay.refuse("assemble", called.name.as_deref().unwrap_or("nodes"))?;
            return nodes::run(run_dir, args, &called, &members, how, daemon);
        }
        (_, Members::Paths(members)) if !members.is_empty() => found::inside(&members),
        (Some(_), _) if called.rename && called.uuid.is_none() => {
            let reason = "which array is to run under this name was not said";
            return Err(Failure::usage("assemble", "--rename", reason, "name its members"));
        }
        (Some(name), _) => {
            found::by_name("assemble", called.uuid.as_deref().unwrap_or(name), name)?
        }
        (None, _) if args.scan && args.explain => scanned()?.concat(),
        (None, _) if args.scan => return each(args),
        (None, _) => {
            let next = "name an array or its members, or use --scan";
            return Err(Failure::usage("assemble", "array", "which one was not said", next));
        }
    };
    refuse_what_is_for_nodes(args)?;
    let first = members.first().map(|member| member.display().to_string());
    let plan = Chosen {
        object: called.name.clone().or(first).unwrap_or_default(),
        called,
        members,
        how: How { again: Some(HowAssembled::of_devices(run_dir, args)), ..how },
        options: Options { force: args.force, run: args.run, read_only: args.readonly },
        overlay: args.overlay.dir().map(Path::to_owned),
        maps: args.maps.clone(),
        reshape: args.reshape.clone(),
    };
    maps::check("assemble", &args.maps, plan.members.iter().map(PathBuf::as_path))?;
    check_maps(args, &plan.object)?;
    if args.explain {
        return explain::run(run_dir, plan, args.json);
    }
    let object = plan.object.clone();
    launch("assemble", &object, args.foreground, daemon, |daemon| serve(run_dir, plan, daemon))
}

fn refuse_what_is_for_nodes(args: &AssembleArgs) -> Result<(), Failure> {
    if args.schedule.is_none() && args.network.fabric.is_none() {
        return Ok(());
    }
    let reason = "--schedule and --fabric are for arrays over nodes";
    Err(Failure::usage("assemble", "arguments", reason, "leave it out"))
}

/// Images with holes are not written to.
fn check_maps(args: &AssembleArgs, object: &str) -> Result<(), Failure> {
    let reads = args.readonly || args.explain || args.overlay.dir().is_some();
    if reads || args.maps.all().is_empty() {
        return Ok(());
    }
    let reason = "--mapfile is for reading: what was not rescued would be written to the image";
    Err(Failure::usage("assemble", object, reason, "add --readonly, or --overlay DIR"))
}

/// Every array among the block devices, each in a process of its own.
fn each(args: &AssembleArgs) -> Result<(), Failure> {
    if args.foreground || !args.export.is_empty() {
        let reason = "--foreground and --export are for one array";
        return Err(Failure::usage("assemble", "--scan", reason, "name the array"));
    }
    let arrays = scanned()?;
    let known = MdadmConf::read();
    let flags = [(args.readonly, "--readonly"), (args.run, "--run"), (args.force, "--force")];
    let mut worst = 0;
    for members in arrays {
        let mut command = Command::new("/proc/self/exe");
        command.arg("assemble");
        command.args(flags.iter().filter(|(set, _)| *set).map(|(_, flag)| flag));
        if let Some(dir) = args.integrity_store() {
            command.arg(STORE).arg(dir);
        }
        match uuid_of(&members).and_then(|uuid| known.of(&uuid).cloned()) {
            Some(Place::Ignored) => {
                let members: Vec<_> =
                    members.iter().map(|path| path.display().to_string()).collect();
                let line = format!("{} left alone, as mdadm.conf says <ignore>", members.join(" "));
                output::warning(&format!("assemble --scan: {line}"));
                continue;
            }
            Some(Place::Name(name)) if check_name(&name).is_ok() => {
                command.arg("--rename").arg(name);
            }
            _ => {}
        }
        command.args(members);
        let status = command.status().map_err(|error| {
            Failure::refused("assemble", "--scan", system_error(&error), "try again")
        })?;
        worst = worst.max(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1));
    }
    if worst == 0 { Ok(()) } else { Err(Failure::Silent(worst)) }
}

/// Returns the UUID of the array of these members.
fn uuid_of(members: &[PathBuf]) -> Option<String> {
    let (found, _) = found::look(members);
    let mut superblocks = found.iter().filter_map(|one| one.candidate.superblock.as_ref().ok());
    superblocks.next().map(|superblock| uuid_digits(&superblock.uuid_text()))
}

/// The members of each array among the block devices.
fn scanned() -> Result<Vec<Vec<PathBuf>>, Failure> {
    let arrays = found::scan("assemble", |_| true)?;
    if arrays.is_empty() {
        let reason = "no block device has a superblock";
        return Err(Failure::refused("assemble", "--scan", reason, "name the members"));
    }
    Ok(arrays)
}

/// Returns the refusal of a degraded start by a file that allows none; `by_hand` starts it.
pub(super) fn never_degraded(degraded: usize, by_hand: Invocation) -> Refusal {
    let roles =
        if degraded == 1 { "1 role has".to_owned() } else { format!("{degraded} roles have") };
    let reason = format!("{roles} no member in sync, and the file says degraded = \"refuse\"");
    let next = Next::by("attach the missing members, or start it degraded", by_hand);
    Refusal::new(reason, next.of(Condition::MembersLeftOut))
}

/// Serves the array until it is stopped. With `daemon`, the terminal is left once it is served.
fn serve(run_dir: &Path, plan: Chosen, daemon: Option<Daemon>) -> Result<(), Failure> {
    let purpose = match (plan.options.read_only, plan.overlay.as_deref()) {
        (true, overlay) => Use::serve_read_only(overlay),
        (false, overlay) => Use::change(overlay),
    };
    let Choice { members, nested, left_out } = match plan.called.wanted() {
        Some(name) => {
            let purpose = Use::look(plan.overlay.as_deref());
            families::by_name("assemble", name, &plan.members, purpose)?
        }
        None => Choice { members: plan.members.clone(), nested: false, left_out: Vec::new() },
    };
    let found = found::open_all("assemble", &members, purpose)?;
    let found = maps::apply("assemble", &plan.maps, found)?;
    refuse_strangers("assemble", &found)?;
    let (found, remarks, _) = found::to_use(found, plan.options.read_only);
    let mut layers = Layers::of(found, nested, plan.called.clone(), plan.options);
    if !plan.options.read_only {
        layers.look(plan.options, &plan.reshape);
    }
    if let Start::Refused { reason, next, .. } = &layers.top.start {
        let next = plan.given().put_into(plan.called.named(next.clone()));
        return Err(Failure::refused("assemble", &plan.object, reason, next));
    }
    if plan.overlay.is_some() && layers.saves() {
        let reason = "--overlay would leave the members as they are, and change the backup file";
        return Err(Failure::refused("assemble", &plan.object, reason, "use --readonly"));
    }
    let settled = layers
        .settle(&plan.reshape)
        .map_err(|why| Failure::explained("assemble", &plan.object, why))?;
    if let Some(said) = settled {
        output::warning(&format!("assemble {}: {said}", plan.object));
    }
    let degraded = layers.degraded();
    if plan.how.whole && degraded > 0 {
        let why = never_degraded(degraded, layers.invocation(plan.options));
        return Err(Failure::explained("assemble", &plan.object, why));
    }
    let name = plan.called.run_name(layers.top.newest.as_deref(), &plan.object)?;
    let others = left_out.iter().map(|(device, why)| format!("{device} is left out: {why}"));
    for left_out in others.chain(layers.left_out(&name)).chain(remarks) {
        output::warning(&format!("assemble {name}: {left_out}"));
    }
    if plan.overlay.is_some() && !layers.inner.is_empty() {
        let reason = "--overlay is for arrays of devices, and this one is made of arrays";
        return Err(Failure::refused("assemble", &plan.object, reason, "use --readonly"));
    }
    let array = layers.assembled(&plan.object, &plan.reshape)?;
    let mut how = plan.how;
    if matches!(array, Assembled::Pieces { .. }) {
        how.again = None;
    }
    launch::serve("assemble", run_dir, name, array, how, daemon)
}

/// An array of just these members.
pub(super) fn all_in(object: &str, found: Vec<Found>) -> Result<Assembled, Failure> {
    Layers::of(found, false, Called::default(), Options::default())
        .assembled(object, &ReshapeArgs::default())
}
