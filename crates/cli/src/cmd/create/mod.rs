//! `braid create`: writes the superblocks of a new array. Everything is checked, on all members,
//! before the first byte is written to any.

mod memory;
mod nodes;
pub(super) mod volumes;
pub(super) mod votes;

use std::path::{Path, PathBuf};

use braid_array::create::{Blueprint, CreateError, NewArray, NewBitmap, NewDevice, NewLog};
use braid_array::format::{Version, locations};
use braid_array::level::Level;
use braid_array::refusal::Advised;
use braid_array::{SECTOR_BYTES, name};
use braid_host::member::{self, MemberFile};
use uuid::Uuid;

use super::found::{self, Use};
use super::shape::{ArrayShape, Typed};
use super::writes;
use crate::args::{CreateArgs, MemberArg, MetadataArg, Size, md_device, similar, typed_with};
use crate::failure::{Failure, system_error};
use crate::invocation::shell_word;
use crate::output;

/// Data begins at a multiple of this, so that I/O fits every device.
const DATA_OFFSET_UNIT: u64 = 4096;

/// Arguments, checked as far as possible without examining members.
#[derive(Debug)]
struct Creation {
    name: String,
    shape: ArrayShape,
    size_sectors: Option<u64>,
    bitmap: NewBitmap,
    policy: Policy,
    metadata: Version,
    data_offset: Option<u64>,
    assume_clean: bool,
    integrity: bool,
    force: bool,
    /// For each role its device, `None` where it is missing; then the spares, then the journal.
    members: Vec<Option<PathBuf>>,
    /// Where all goes that is written to them.
    overlay: Option<PathBuf>,
}

/// Policy against the write hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    Plain,
    PartialParity,
    /// The journal is the last of the devices.
    Journal,
}

pub(super) fn run(run_dir: &Path, args: &CreateArgs) -> Result<(), Failure> {
    let memory = args.members.iter().any(|member| matches!(member, MemberArg::Memory(_)));
    let volatile = memory || args.members.iter().any(|m| matches!(m, MemberArg::Node(_)));
    if volatile {
        args.overlay.refuse("create", &args.name)?;
    }
    if memory {
        return memory::run(run_dir, args);
    }
    if args.foreground || !args.export.is_empty() {
        let reason = "--export and --foreground are for arrays in memory";
        let next = "serve the array with braid assemble once it is made";
        return Err(Failure::usage("create", &args.name, reason, next));
    }
    if args.members.iter().any(|member| matches!(member, MemberArg::Node(_))) {
        if args.integrity {
            let reason = "arrays over nodes have no checksums yet";
            return Err(Failure::usage("create", &args.name, reason, "leave --integrity out"));
        }
        return nodes::run(args);
    }
    if !args.witness.is_empty() {
        let reason = "witnesses are for arrays over nodes";
        return Err(Failure::usage("create", &args.name, reason, "leave --witness out"));
    }
    on_devices(args)
}

/// The members are files and block devices.
fn on_devices(args: &CreateArgs) -> Result<(), Failure> {
    let plan = Creation::of(args, paths(args)?)?;
    let devices = open(&plan)?;
    let blueprint = blueprint(&plan, &devices)?;
    warn(&plan, &devices)?;
    if args.dry_run {
        let devices = devices.iter().map(|device| device.as_ref().map(|it| it.path.as_path()));
        let journal = plan.policy == Policy::Journal;
        return output::answer(&output::planned::on_devices(&blueprint, devices, journal));
    }
    write(&plan, &devices, &blueprint)?;
    if args.consistency_policy.is_none() {
        tell_of_write_hole(&plan);
    }
    let word = |path: &PathBuf| {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        shell_word(&path.display().to_string())
    };
    let words: Vec<String> = plan.members.iter().flatten().map(word).collect();
    let option = args.overlay.words();
    let name = shell_word(&plan.name);
    output::next_command(&format!("braid assemble{option} {name} {}", words.join(" ")))
}

impl Creation {
    fn of(args: &CreateArgs, members: Vec<Option<PathBuf>>) -> Result<Self, Failure> {
        check_name(args)?;
        let shape = ArrayShape::parse(&typed(args))?;
        check_counts(args)?;
        let size_sectors = match args.size.map(|size| size.0) {
            Some(bytes) if bytes < 4096 || bytes % 1024 != 0 => {
                let reason = format!("a size of {bytes} bytes is out of range");
                let next = format!("use a multiple of 1K from 4K on; {}", counted_in_kib(bytes));
                return Err(Failure::usage("create", &args.name, reason, next));
            }
            bytes => bytes.map(|bytes| bytes / SECTOR_BYTES),
        };
        Ok(Self {
            name: args.name.clone(),
            shape,
            size_sectors,
            bitmap: bitmap(args)?,
            policy: policy(args)?,
            metadata: metadata(args),
            data_offset: data_offset(args)?,
            assume_clean: args.assume_clean,
            integrity: args.integrity,
            force: args.force,
            members,
            overlay: args.overlay.dir().map(Path::to_owned),
        })
    }
}

fn metadata(args: &CreateArgs) -> Version {
    match args.metadata {
        Some(MetadataArg::V1_0) => Version::V1_0,
        Some(MetadataArg::V1_1) => Version::V1_1,
        Some(MetadataArg::V1_2) | None => Version::V1_2,
    }
}

/// In sectors.
fn data_offset(args: &CreateArgs) -> Result<Option<u64>, Failure> {
    match args.data_offset {
        Some(Size(bytes)) if !bytes.is_multiple_of(DATA_OFFSET_UNIT) => {
            let reason = format!("data cannot begin at byte {bytes}");
            Err(Failure::usage("create", &args.name, reason, "use a multiple of 4K"))
        }
        offset => Ok(offset.map(|Size(bytes)| bytes / SECTOR_BYTES)),
    }
}

/// The shape, as it was typed.
fn typed(args: &CreateArgs) -> Typed<'_> {
    args.shape.typed("create", &args.name, args.raid_devices())
}

fn check_name(args: &CreateArgs) -> Result<(), Failure> {
    if let Some(name) = md_device(&args.name) {
        let next = format!("use {}", typed_with(&args.name, name));
        return Err(Failure::usage("create", &args.name, "an array has a name, no device", next));
    }
    if found::is_member(&args.name) {
        let next = "put a name before the members: braid create NAME ...";
        let reason = "the name of the array is missing, this is a member";
        return Err(Failure::usage("create", &args.name, reason, next));
    }
    name::check_new_name(&args.name)
        .map_err(|error| Failure::usage("create", &args.name, error, error.next()))
}

/// Returns a name as mdadm stores it.
fn stored_name(name: &str) -> String {
    name::stored_name(&output::host_name(), name)
}

/// Returns whether the members are volumes of nodes.
fn over_nodes(args: &CreateArgs) -> bool {
    args.members.iter().any(|member| matches!(member, MemberArg::Node(_)))
}

fn bitmap(args: &CreateArgs) -> Result<NewBitmap, Failure> {
    let usage =
        |reason: &str, next: &'static str| Failure::usage("create", &args.name, reason, next);
    let asked = match args.bitmap.as_deref() {
        None => NewBitmap::Default,
        Some("none") => NewBitmap::None,
        Some("internal") => NewBitmap::Internal { chunk_bytes: None },
        Some(other) => {
            let reason = format!("no bitmap '{other}'");
            return Err(usage(&reason, "use --bitmap internal or --bitmap none"));
        }
    };
    let policy = match args.consistency_policy.as_deref() {
        None => return Ok(asked),
        Some("resync") => NewBitmap::None,
        Some("bitmap") => NewBitmap::Internal { chunk_bytes: None },
        // What a node missed that was away is known by the bitmap all the same.
        Some("journal" | "ppl") if over_nodes(args) => return Ok(asked),
        Some("journal" | "ppl") => NewBitmap::None,
        Some(other) => {
            let reason = format!("no consistency policy '{other}'");
            return Err(usage(&reason, "use resync, bitmap, ppl or journal"));
        }
    };
    if asked == NewBitmap::Default || asked == policy {
        return Ok(policy);
    }
    Err(usage("--bitmap and --consistency-policy contradict each other", "leave one out"))
}

/// Returns the requested policy against the write hole, for an array on disks.
fn policy(args: &CreateArgs) -> Result<Policy, Failure> {
    let usage =
        |reason: &str, next: &'static str| Failure::usage("create", &args.name, reason, next);
    match (args.consistency_policy.as_deref(), &args.write_journal) {
        (Some("ppl"), None) => Ok(Policy::PartialParity),
        (None | Some("journal"), Some(_)) if args.bitmap.as_deref() == Some("internal") => {
            Err(usage("a journal and a bitmap exclude each other", "leave one out"))
        }
        (None | Some("journal"), Some(_)) => Ok(Policy::Journal),
        (Some("journal"), None) => {
            let next = "name the device that is to hold it: --write-journal DEVICE";
            Err(usage("there is no journal", next))
        }
        (Some(_), Some(_)) => {
            let reason = "--write-journal and --consistency-policy contradict each other";
            Err(usage(reason, "leave one out"))
        }
        (_, None) => Ok(Policy::Plain),
    }
}

/// Checks the number of members.
fn check_counts(args: &CreateArgs) -> Result<(), Failure> {
    let usage =
        |reason: &str, next: &'static str| Failure::usage("create", &args.name, reason, next);
    if args.raid_devices() == 1 && !args.force {
        let reason = "an array of 1 member is most likely a mistake";
        return Err(usage(reason, "use --force if it is not"));
    }
    let roles = args.raid_devices() as usize;
    let spares = args.spare_devices as usize;
    let given = args.members.len();
    if given == roles.saturating_add(spares) {
        return Ok(());
    }
    let and = if spares > 0 { format!(" and {spares} spares") } else { String::new() };
    let reason = format!("{given} members were given, {roles}{and} are needed");
    let nodes = over_nodes(args);
    let next = if given > roles + spares {
        let more = given - spares;
        format!("leave {} out, or say --raid-devices {more}", given - roles - spares)
    } else if nodes {
        "name a node for each".to_owned()
    } else {
        "write 'missing' for a member that is to come later".to_owned()
    };
    Err(Failure::usage("create", &args.name, reason, next))
}

/// For each role its device, `None` where it is missing; then the spares.
fn paths(args: &CreateArgs) -> Result<Vec<Option<PathBuf>>, Failure> {
    let path = |member: &MemberArg| match member {
        MemberArg::Path(path) => Some(path.clone()),
        _ => None,
    };
    let mut paths: Vec<Option<PathBuf>> = args.members.iter().map(path).collect();
    if paths.iter().skip(args.raid_devices() as usize).any(Option::is_none) {
        let next = "use fewer --spare-devices";
        return Err(Failure::usage("create", &args.name, "a spare cannot be missing", next));
    }
    let journal = match &args.write_journal {
        None => None,
        Some(MemberArg::Path(path)) => Some(Some(path.clone())),
        Some(_) => {
            let next = "name a file or block device";
            return Err(Failure::usage("create", &args.name, "that cannot be a journal", next));
        }
    };
    paths.extend(journal);
    Ok(paths)
}

/// Opens and locks all members, and looks whether they hold anything.
fn open(plan: &Creation) -> Result<Vec<Option<MemberFile>>, Failure> {
    let failed = |error: member::OpenError| {
        let missing = error.path.to_str().and_then(|word| similar(word, ["missing"]));
        let next = match missing {
            Some(meant) if !error.path.exists() => {
                format!("did you mean {meant}? {}", error.next.advice).into()
            }
            _ => error.next,
        };
        Failure::refused("create", error.path.display(), error.reason, next)
    };
    let paths: Vec<PathBuf> = plan.members.iter().flatten().cloned().collect();
    let purpose = Use::change(plan.overlay.as_deref());
    let devices =
        found::open_distinct(&paths, |path| found::open(path, purpose)).map_err(failed)?;
    let overwritten = if plan.force { &[][..] } else { &devices[..] };
    for device in overwritten {
        let found = member::signature(device).map_err(|error| unreadable(device, &error))?;
        if let Some(found) = found {
            let reason = format!("holds {} at byte {}", found.what, found.offset);
            let next = "use another device, or --force to overwrite it";
            return Err(Failure::refused("create", device.path.display(), reason, next));
        }
    }
    let mut opened = devices.into_iter();
    Ok(plan.members.iter().map(|path| path.as_ref().and_then(|_| opened.next())).collect())
}

/// Warns of probable mistakes: a member much larger than another, and data on a member without a
/// known signature.
fn warn(plan: &Creation, devices: &[Option<MemberFile>]) -> Result<(), Failure> {
    let all = !matches!(plan.shape.level, Level::Linear | Level::Raid0);
    let common = all && plan.size_sectors.is_none();
    let journal = usize::from(plan.policy == Policy::Journal);
    let members = devices.len() - journal;
    let sizes = devices[..members].iter().flatten().map(|device| device.sectors);
    let smallest = sizes.min().unwrap_or(0);
    for (index, device) in devices.iter().enumerate() {
        let Some(device) = device else { continue };
        let common = common && index < members;
        let name = &plan.name;
        let path = device.path.display();
        let unused = device.sectors.saturating_sub(smallest);
        if common && unused > device.sectors / 10 {
            let [unused, all] = [unused, device.sectors].map(|sectors| sectors * SECTOR_BYTES);
            let why = "for another member is that much smaller";
            output::warning(&format!(
                "create {name}: {path}: {} of {} MiB stay unused, {why}",
                unused >> 20,
                all >> 20
            ));
        }
        let found = if plan.force { Ok(None) } else { member::data(device) };
        if let Some(offset) = found.map_err(|error| unreadable(device, &error))? {
            let what = format!("holds data of no known kind, at byte {offset} for one");
            output::warning(&format!("create {name}: {path}: {what}; it is overwritten"));
        }
    }
    Ok(())
}

/// Warns that an array with parity has a write hole, if no policy was asked for. By default arrays
/// are as mdadm makes them: closing the hole costs performance.
fn tell_of_write_hole(plan: &Creation) {
    let closed_by = match plan.shape.level {
        _ if plan.policy != Policy::Plain => return,
        Level::Raid5 => "--consistency-policy ppl or --write-journal DEVICE",
        Level::Raid4 | Level::Raid6 => "--write-journal DEVICE",
        _ => return,
    };
    output::warning(&format!(
        "create {}: a power cut together with a lost member may change blocks that nobody wrote; \
         {closed_by} closes that",
        plan.name
    ));
}

fn unreadable(device: &MemberFile, error: &std::io::Error) -> Failure {
    Failure::refused("create", device.path.display(), system_error(error), "check the device")
}

fn blueprint(plan: &Creation, devices: &[Option<MemberFile>]) -> Result<Blueprint, Failure> {
    let new = |device: &MemberFile| {
        let device_uuid = Uuid::new_v4().into_bytes();
        NewDevice { device_sectors: device.sectors, device_uuid }
    };
    let (members, journal) = match (plan.policy, devices) {
        (Policy::Journal, [members @ .., Some(journal)]) => (members, Some(journal)),
        _ => (devices, None),
    };
    let log = match (plan.policy, journal) {
        (Policy::PartialParity, _) => NewLog::PartialParity,
        (_, Some(journal)) => {
            let [a, b, c, d, ..] = Uuid::new_v4().into_bytes();
            let first_seq = u32::from_le_bytes([a, b, c, d]);
            NewLog::Journal { device: new(journal), first_seq }
        }
        _ => NewLog::None,
    };
    let array = NewArray {
        name: stored_name(&plan.name),
        set_uuid: Uuid::new_v4().into_bytes(),
        ctime: writes::now(),
        level: plan.shape.level,
        layout: plan.shape.layout,
        chunk_sectors: plan.shape.chunk_sectors,
        version: plan.metadata,
        data_offset: plan.data_offset,
        size_sectors: plan.size_sectors,
        bitmap: plan.bitmap,
        log,
        assume_clean: plan.assume_clean,
        integrity: plan.integrity,
    };
    let (roles, spares) = members.split_at(plan.shape.raid_disks as usize);
    let roles: Vec<Option<NewDevice>> = roles.iter().map(|d| d.as_ref().map(new)).collect();
    let spares: Vec<NewDevice> = spares.iter().flatten().map(new).collect();
    array.plan(&roles, &spares).map_err(|error| impossible(plan, &error))
}

/// Advises the size in KiB that mdadm would take from a plain number.
fn counted_in_kib(bytes: u64) -> String {
    format!("mdadm counts in KiB, which is --size {bytes}K here")
}

/// Explains why the array is impossible, with the argument to change.
fn impossible(plan: &Creation, error: &CreateError) -> Failure {
    match error {
        CreateError::DeviceTooSmall { index, device_sectors } => {
            let device = plan.members.get(*index).and_then(Option::as_ref);
            let object = device.map_or_else(|| plan.name.clone(), |d| d.display().to_string());
            let bytes = device_sectors * SECTOR_BYTES;
            let reason = format!("{bytes} bytes are too few for metadata and a chunk of data");
            Failure::refused("create", object, reason, "use a larger member")
        }
        CreateError::DataOffset { data_offset, least_sectors } => {
            let bytes = data_offset * SECTOR_BYTES;
            let least = Size(least_sectors * SECTOR_BYTES);
            let reason = format!("data cannot begin at byte {bytes}: that is for the metadata");
            let next = format!("use --data-offset {least} or more");
            Failure::usage("create", &plan.name, reason, next)
        }
        CreateError::SizeTooLarge { available_sectors, .. } => {
            let available = available_sectors * SECTOR_BYTES;
            let reason = format!("--size exceeds the {available} bytes of the smallest member");
            let next = format!("use --size {} or less", Size(available));
            Failure::usage("create", &plan.name, reason, next)
        }
        CreateError::SizeTooSmall { size_sectors, unit_sectors } => {
            let bytes = size_sectors * SECTOR_BYTES;
            let chunk = Size(unit_sectors * SECTOR_BYTES);
            let reason = format!("--size {bytes} is in bytes, less than a chunk of {chunk}");
            let next = format!("use at least {chunk}; {}", counted_in_kib(bytes));
            Failure::usage("create", &plan.name, reason, next)
        }
        _ => Failure::usage("create", &plan.name, error, error.next()),
    }
}

/// Writes to all members. The superblocks, which make them members, come last, after everything
/// else is durable on all of them.
fn write(
    plan: &Creation,
    devices: &[Option<MemberFile>],
    blueprint: &Blueprint,
) -> Result<(), Failure> {
    let failed = |device: &MemberFile, error: &std::io::Error| {
        let next = format!("replace it and run braid create again with --force for {}", plan.name);
        Failure::refused("create", device.path.display(), system_error(error), next)
    };
    prove_writable(devices, blueprint)?;
    let mut superblocks = Vec::with_capacity(devices.len());
    for (index, device) in devices.iter().enumerate() {
        let Some(device) = device else { continue };
        let mut writes = blueprint.writes(index);
        superblocks.extend(writes.pop().map(|superblock| (device, superblock)));
        wipe(device)
            .and_then(|()| write_all(device, &writes))
            .map_err(|error| failed(device, &error))?;
    }
    for (device, superblock) in superblocks {
        write_all(device, &[superblock]).map_err(|error| failed(device, &error))?;
    }
    Ok(())
}

/// A device that takes no writes, or has no room for them, is found before any is changed.
fn prove_writable(devices: &[Option<MemberFile>], blueprint: &Blueprint) -> Result<(), Failure> {
    for (index, device) in devices.iter().enumerate() {
        let Some(device) = device else { continue };
        let writes = blueprint.writes(index);
        let places = writes.iter().map(|(sector, bytes)| (*sector, bytes.len()));
        writes::prove_writable("create", device, places)?;
    }
    Ok(())
}

fn write_all(device: &MemberFile, writes: &[(u64, Vec<u8>)]) -> std::io::Result<()> {
    for (sector, bytes) in writes {
        device.write_at(sector * SECTOR_BYTES, bytes)?;
    }
    device.sync()
}

/// Superblocks of other arrays and versions must not be found any more.
fn wipe(device: &MemberFile) -> std::io::Result<()> {
    const MAGIC: [u8; 4] = 0xa92b_4efc_u32.to_le_bytes();
    for (_, sector, bytes) in locations(device.sectors) {
        let offset = sector * SECTOR_BYTES;
        if device.read_at(offset, MAGIC.len())? == MAGIC {
            device.write_at(offset, &vec![0; bytes as usize])?;
        }
    }
    Ok(())
}
