//! `braid rename`: another name in the superblocks of an array that is stopped. Everything is
//! checked before the first byte is written.

use std::path::{Path, PathBuf};

use braid_array::format::{DevRole, Superblock, SuperblockError, Version};
use braid_array::name::{check_new_name, stored_name};
use braid_array::policy::Write;
use braid_array::refusal::{Advised, Invocation, Next};
use braid_array::{Refusal, SECTOR_BYTES};
use braid_cluster::ids::Epoch;
use braid_cluster::policy::Plan;
use braid_host::control::list;

use super::assemble::{present, volumes};
use super::found::{self, Use};
use super::nodes::{network, options};
use super::volumes::{carry_out, look_at_all};
use super::writes;
use crate::args::{NodeArg, RenameArgs};
use crate::failure::{Failure, system_error};
use crate::invocation::shell_word;
use crate::output;

/// A member of the array.
struct RenamedMember {
    /// For people.
    device: String,
    old: Superblock,
    /// With the new name.
    new: Superblock,
}

pub(super) fn run(run_dir: &Path, args: &RenameArgs) -> Result<(), Failure> {
    check_new_name(&args.new_name)
        .map_err(|error| Failure::usage("rename", &args.new_name, error, error.next()))?;
    let (paths, nodes) = found::stopped_members("rename", &args.name, &args.members)?;
    match nodes.first() {
        None if paths.is_empty() => {
            if list(run_dir).is_ok_and(|names| names.contains(&args.name)) {
                let stop = Invocation::Stop { array: Some(args.name.clone()), force: false };
                let next = Next::by("stop it, and name its members", stop);
                return Err(Failure::refused("rename", &args.name, "the array runs", next));
            }
            let words = format!("{} {}", args.name, args.new_name);
            on_devices(args, &found::by_name("rename", &args.name, &words)?)
        }
        None => on_devices(args, &paths),
        Some(node) if !paths.is_empty() => Err(found::mixed("rename", node)),
        Some(_) => {
            args.overlay.refuse("rename", &args.name)?;
            over_nodes(args, &nodes)
        }
    }
}

fn on_devices(args: &RenameArgs, paths: &[PathBuf]) -> Result<(), Failure> {
    let purpose = Use::change(args.overlay.dir());
    let found = found::open_all("rename", paths, purpose)?;
    let member = |one: &found::Found| {
        let device = one.device.path.display().to_string();
        RenamedMember::of(args, device, one.candidate.superblock.as_ref())
    };
    let members = found.iter().map(member).collect::<Result<Vec<RenamedMember>, Failure>>()?;
    check(args, &members)?;
    for (one, member) in found.iter().zip(&members) {
        let place = (member.new.super_offset, member.new.encode().len());
        writes::prove_writable("rename", &one.device, std::iter::once(place))?;
    }
    for (one, member) in found.iter().zip(&members) {
        let at = member.new.super_offset * SECTOR_BYTES;
        let bytes = member.new.encode();
        let written = one.device.write_at(at, &bytes).and_then(|()| one.device.sync());
        written.map_err(|error| {
            let next = "say the same again, with all members";
            Failure::refused("rename", &member.device, system_error(&error), next)
        })?;
    }
    tell(args, &args.overlay.words(), &members)
}

fn over_nodes(args: &RenameArgs, nodes: &[NodeArg]) -> Result<(), Failure> {
    let nodes = volumes("rename", Some(&args.name), nodes)?;
    let network = network("rename", &args.network)?;
    let nodes = present("rename", Some(&args.name), &nodes, network)?;
    let held = look_at_all("rename", &nodes, network)?;
    let member = |(node, volume): (&NodeArg, &braid_cluster::policy::Volume)| {
        RenamedMember::of(args, node.to_string(), volume.candidate.superblock.as_ref())
    };
    let members = nodes.iter().zip(&held).map(member);
    let members = members.collect::<Result<Vec<RenamedMember>, Failure>>()?;
    check(args, &members)?;
    let granted = held.iter().filter_map(|volume| Some(volume.voter.as_ref()?.granted)).max();
    let change = Plan {
        array: members.first().map(|member| member.old.set_uuid).unwrap_or_default(),
        epoch: granted.unwrap_or(Epoch::BEFORE_ANY).next(),
        writes: members.iter().enumerate().map(|(index, one)| one.write(index)).collect(),
    };
    carry_out("rename", &nodes, network, &held, &change)?;
    tell(args, &options(&args.network), &members)
}

/// The command that starts the array under its new name.
fn tell(args: &RenameArgs, options: &str, members: &[RenamedMember]) -> Result<(), Failure> {
    let words: Vec<String> = members.iter().map(|member| shell_word(&member.device)).collect();
    let name = shell_word(&args.new_name);
    output::answer(&format!("braid assemble{options} {name} {}\n", words.join(" ")))
}

impl RenamedMember {
    /// With the new name in place of the old one, behind the same host.
    fn of(
        args: &RenameArgs,
        device: String,
        found: Result<&Superblock, &SuperblockError>,
    ) -> Result<Self, Failure> {
        let old = match found {
            Ok(old) if old.version != Version::V0_90 => old.clone(),
            Ok(_) => {
                let reason = "superblocks of version 0.90 hold no name";
                let next = "let it run under a name: braid assemble --rename NAME MEMBER...";
                return Err(Failure::refused("rename", device, reason, next));
            }
            Err(error) => {
                let next = "name the members of the array alone";
                return Err(Failure::refused("rename", device, error, next));
            }
        };
        let full = old.name();
        let name = match full.split_once(':') {
            Some((host, _)) => stored_name(host, &args.new_name),
            None => args.new_name.clone(),
        };
        let mut set_name = [0; 32];
        set_name[..name.len()].copy_from_slice(name.as_bytes());
        Ok(Self { device, new: Superblock { set_name, ..old.clone() }, old })
    }

    /// The new superblock, written to the volume with this index.
    fn write(&self, index: usize) -> Write {
        Write { index, sector: self.new.super_offset, bytes: self.new.blocks(512) }
    }
}

/// Checks that these are all members of the named array, and no others.
fn check(args: &RenameArgs, members: &[RenamedMember]) -> Result<(), Failure> {
    let checked = all_of_one(members, &args.name);
    checked.map_err(|why| Failure::explained("rename", &args.name, why))
}

fn all_of_one(members: &[RenamedMember], name: &str) -> Result<(), Refusal> {
    let refuse = |reason: String, next: &'static str| Err(Refusal::new(reason, next));
    let old = || members.iter().map(|member| &member.old);
    let Some(newest) = old().max_by_key(|superblock| superblock.events) else { return Ok(()) };
    if let Some(other) = members.iter().find(|member| member.old.set_uuid != newest.set_uuid) {
        let title = other.old.title();
        let reason = format!("{} is a member of another array, {title}", other.device);
        return refuse(reason, "name the members of one");
    }
    if !old().any(|superblock| found::is_called(superblock, name)) {
        let reason = format!("the members are those of {}", newest.title());
        return refuse(reason, "say the name that braid examine shows, and name the members");
    }
    // Who has a role and is not here would come back with the old name.
    let holds =
        |number: u32| matches!(newest.role_of(number), DevRole::Active(_) | DevRole::Journal);
    let numbers = 0..u32::try_from(newest.roles.len()).unwrap_or(u32::MAX);
    let here = |number: u32| old().any(|superblock| superblock.dev_number == number);
    let away = numbers.filter(|number| holds(*number) && !here(*number)).count();
    if away > 0 {
        let are = if away == 1 { "is" } else { "are" };
        let reason = format!("{away} of its members {are} not named, or not there");
        return refuse(reason, "name all of them: one that comes back later has the old name");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use braid_array::format::superblock::feature;

    use super::*;

    /// As the kernel placed it by default for years: 1 KiB behind the superblock's first byte.
    #[test]
    fn a_bitmap_close_behind_the_superblock_outlives_a_new_name() {
        let old = Superblock {
            feature_map: feature::BITMAP_OFFSET,
            super_offset: 8,
            bitmap_offset_sectors: 2,
            ..Superblock::blank()
        };
        let member = RenamedMember { device: "volume".to_owned(), new: old.clone(), old };
        let write = member.write(0);
        let end = write.sector + write.bytes.len() as u64 / SECTOR_BYTES;
        assert!(member.new.bitmap_sector().is_some_and(|bitmap| end <= bitmap), "{end}");
    }
}
