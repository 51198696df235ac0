//! Attaching a device to a running array: all that can be refused is refused before anything is
//! written to it.

use std::io;
use std::path::Path;

use braid_array::action::{Command, NewMember};
use braid_array::format::{Superblock, SuperblockError};
use braid_array::refusal::{Invocation, Next};
use braid_array::status::Status;
use braid_array::{MemberId, Refusal};

use super::served::{Served, find_member};
use crate::member::{self, MemberFile, Mode, Signature};
use crate::system::{describe, random_uuid};

/// A superblock does not fit into less room than this beside the data. The exact need is known to
/// the array, which is asked last.
const SUPERBLOCK_SECTORS: u64 = 8;

impl Served {
    /// Returns the mode in which devices that become members are opened.
    fn mode(&self) -> Mode<'_> {
        self.overlay.as_deref().map_or(Mode::ReadWrite, Mode::Overlay)
    }

    pub(super) fn add(
        &self,
        path: &Path,
        within: Option<&str>,
        readd: bool,
        force: bool,
    ) -> Result<(), Refusal> {
        let status = self.status()?;
        if let Some(network) = self.network {
            return self.add_node(&path.to_string_lossy(), &status, network, readd, force);
        }
        if let Some((array, child)) = path.to_str().and_then(|word| status.child_called(word)) {
            let new = new_member(array, child.superblock.title(), readd)?;
            return self.command_with(Command::Add(Box::new(new)), None);
        }
        if let Some(member) = find_member(&status, path) {
            let that_is = format!("{} is", path.display());
            return Err(self.already_a_member(that_is, member, &status));
        }
        if within.is_none() && !status.children.is_empty() && !path.exists() {
            return Err(self.no_array_within(path));
        }
        self.check_place(path)?;
        let device = member::open(path, self.mode(), true)
            .map_err(|error| Refusal::new(error.reason, error.next))?;
        let found = member::probe(&device);
        let (array, status) = self.place_of(&status, within, found.superblock.as_ref().ok())?;
        self.check_size(&device, status.used_member_sectors)?;
        let known = self.check_superblock(&device, found.superblock, status, readd, force)?;
        if known.is_none() && !force {
            let signature = member::signature(&device);
            self.check_signature(&signature.map_err(|error| unreadable(path, &error))?)?;
        }
        let (known, bad_blocks) = match (known, found.bad_blocks) {
            (Some(known), Ok(bad_blocks)) => (Some(known), Some(bad_blocks)),
            (Some(_), Err(error)) if !force => {
                let next = "use --force to add it as a new device";
                return Err(Refusal::new(error.to_string(), next));
            }
            _ => (None, None),
        };
        let new = NewMember {
            device_sectors: device.sectors,
            superblock: known.map(Box::new),
            bad_blocks,
            // The engine puts the free id in the place of the array's.
            ..new_member(array, device.path.display().to_string(), readd)?
        };
        self.command_with(Command::Add(Box::new(new)), Some(device))
    }

    /// Checks a device that is to become a new member, with room for these sectors of data. Nothing
    /// is written.
    pub(super) fn check_add(&self, path: &Path, sectors: u64) -> Result<(), Refusal> {
        let status = self.status()?;
        if let Some(member) = find_member(&status, path) {
            let that_is = format!("{} is", path.display());
            return Err(self.already_a_member(that_is, member, &status));
        }
        if !status.children.is_empty() {
            let reason = format!("the members of {} are arrays", self.name);
            return Err(Refusal::new(reason, "add it to one of those: braid add"));
        }
        self.check_place(path)?;
        let device = member::open(path, Mode::ReadOnly, true)
            .map_err(|error| Refusal::new(error.reason, error.next))?;
        self.check_size(&device, sectors)?;
        let found = member::probe(&device).superblock;
        if self.check_superblock(&device, found, &status, false, false)?.is_none() {
            let signature = member::signature(&device);
            self.check_signature(&signature.map_err(|error| unreadable(path, &error))?)?;
        }
        Ok(())
    }

    /// Checks that a name is one of a device of this machine, and of none that lies on the array.
    fn check_place(&self, path: &Path) -> Result<(), Refusal> {
        if path.starts_with("node:") {
            return Err(Refusal::new(
                format!("is on a node, and {} is an array of this machine's devices", self.name),
                "add a file or block device",
            ));
        }
        if path.to_string_lossy().starts_with("mem:") {
            let reason = "memory is no device that can be added";
            return Err(Refusal::new(reason, "add a file or block device"));
        }
        if let Some(name) = self.circle(path) {
            let reason = if name == self.name {
                format!("is the content of {name} itself")
            } else {
                format!("is the content of {name}, which lies on {}", self.name)
            };
            return Err(Refusal::new(reason, "add a device that lies elsewhere"));
        }
        Ok(())
    }

    /// Attaches a device that is to hold the journal.
    pub(super) fn add_journal(&self, path: &Path, force: bool) -> Result<(), Refusal> {
        let status = self.status()?;
        if self.network.is_some() {
            let reason = "the nodes of the array keep their journals themselves";
            return Err(Refusal::new(reason, "add a member: leave --journal out"));
        }
        if let Some(member) = find_member(&status, path) {
            let that_is = format!("{} is", path.display());
            return Err(self.already_a_member(that_is, member, &status));
        }
        let device = member::open(path, self.mode(), true)
            .map_err(|error| Refusal::new(error.reason, error.next))?;
        self.check_blocks(&device)?;
        if !force {
            let signature = member::signature(&device);
            self.check_signature(&signature.map_err(|error| unreadable(path, &error))?)?;
        }
        let new = NewMember {
            device_sectors: device.sectors,
            // The engine puts the free id in the place of the array's.
            ..new_member(MemberId(0), device.path.display().to_string(), false)?
        };
        self.command_with(Command::AddJournal(Box::new(new)), Some(device))
    }

    /// Neither a device nor an array that is in this array of arrays.
    fn no_array_within(&self, path: &Path) -> Refusal {
        let called = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        let reason = format!("no device, and {} has no array {called} in it", self.name);
        let stop = Invocation::Stop { array: Some(self.name.clone()), force: false };
        let advice = format!("stop it, and assemble it with the members of {called} as well");
        Refusal::new(reason, Next::by(advice, stop))
    }

    /// Returns the array that a new device goes to. In an array of arrays, an inner array that was
    /// named comes first; then the one whose superblock the device has; then the one that misses
    /// most, as `BlockMachine::free_member` chooses.
    fn place_of<'a>(
        &self,
        status: &'a Status,
        within: Option<&str>,
        found: Option<&Superblock>,
    ) -> Result<(MemberId, &'a Status), Refusal> {
        if let Some(within) = within {
            let next =
                Next::by("see its members", Invocation::Detail { array: Some(self.name.clone()) });
            let reason = format!("{} has no array {within} in it", self.name);
            return status.child_called(within).ok_or_else(|| Refusal::new(reason, next));
        }
        let children = || status.children.iter();
        let own =
            found.and_then(|found| children().find(|it| it.superblock.set_uuid == found.set_uuid));
        let child = own.or_else(|| children().rev().max_by_key(|child| child.degraded));
        let called = child.and_then(|child| status.child_called(&child.superblock.title()));
        Ok(called.unwrap_or((MemberId(0), status)))
    }

    /// Refuses a device with larger blocks than the array's. A restart would not help, as content
    /// of the array is addressed in its blocks.
    pub(super) fn check_blocks(&self, device: &MemberFile) -> Result<(), Refusal> {
        if device.block_bytes <= self.block_bytes {
            return Ok(());
        }
        let own = self.block_bytes;
        let reason = format!(
            "needs I/O in blocks of {} bytes, and {} is used in blocks of {own}",
            device.block_bytes, self.name
        );
        let next = format!("use a device with blocks of {own} bytes, or format this one to them");
        Err(Refusal::new(reason, next))
    }

    /// Checks the device without its content: room for these sectors of data, and the size of
    /// blocks.
    fn check_size(&self, device: &MemberFile, data_sectors: u64) -> Result<(), Refusal> {
        self.check_blocks(device)?;
        let needed = data_sectors.saturating_add(SUPERBLOCK_SECTORS);
        if device.sectors < needed {
            return Err(Refusal::new(
                format!("too small: {} sectors, at least {needed} are needed", device.sectors),
                "use a device at least as large as the other members",
            ));
        }
        Ok(())
    }

    /// This array's superblock if the device has one. Another array's is refused without `force`.
    fn check_superblock(
        &self,
        device: &MemberFile,
        found: Result<Superblock, SuperblockError>,
        status: &Status,
        readd: bool,
        force: bool,
    ) -> Result<Option<Superblock>, Refusal> {
        let ours = &status.superblock;
        match found {
            Ok(found) if (found.set_uuid, found.version) == (ours.set_uuid, ours.version) => {
                if !readd && !force && status.went_alone(&found) {
                    return Err(split());
                }
                Ok(Some(found))
            }
            _ if readd => Err(Refusal::new(
                format!("was no member of {}", self.name),
                Invocation::Add {
                    array: Some(self.name.clone()),
                    device: device.path.display().to_string(),
                },
            )),
            Ok(found) if !force => Err(Refusal::new(
                format!("is a member of another array, {}", found.uuid_text()),
                "use --force to overwrite it",
            )),
            Ok(_) | Err(_) => Ok(None),
        }
    }

    fn check_signature(&self, found: &Option<Signature>) -> Result<(), Refusal> {
        match found {
            None => Ok(()),
            Some(Signature { what, offset }) => Err(Refusal::new(
                format!("holds {what} (at byte {offset})"),
                "use --force to overwrite it",
            )),
        }
    }
}

/// A new member of which nothing is known yet.
pub(super) fn new_member(
    member: MemberId,
    device: String,
    readd: bool,
) -> Result<NewMember, Refusal> {
    let device_uuid = random_uuid().map_err(|error| unreadable(Path::new(&device), &error))?;
    Ok(NewMember {
        member,
        device,
        device_sectors: 0,
        superblock: None,
        bad_blocks: None,
        readd,
        device_uuid,
    })
}

fn unreadable(path: &Path, error: &io::Error) -> Refusal {
    Refusal::new(
        format!("{} cannot be read: {}", path.display(), describe(error)),
        "check the device",
    )
}

/// Refuses a former member that holds data found nowhere else.
pub(super) fn split() -> Refusal {
    let reason = "is split from the array: each side went on alone, and what this one took \
                  meanwhile is nowhere else";
    Refusal::new(reason, "look at it with braid cat; to overwrite it, use --force")
}
