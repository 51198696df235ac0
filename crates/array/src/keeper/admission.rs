//! Admission of a device: as the spare it is, as the member it was, or as a new one.

use super::SyncSpace;
use super::core::Core;
use super::members::{Member, Members, State};
use super::metadata::Metadata;
use super::place::{Room, place};
use crate::action::NewMember;
use crate::assemble::{
    Had, Lineage, MemberConfig, Standing, adopted, check_places, check_shape, lineage,
};
use crate::create::least_journal_sectors;
use crate::format::superblock::{DevRole, MAX_DEV, feature};
use crate::format::suspended::journal_number;
use crate::format::{BadBlocks, Bitmap, Superblock};
use crate::refusal::{Invocation, Next, Refusal};
use crate::{MemberId, Role};

/// The decisions about a device, which change nothing: [`admit`](Self::admit) returns the member
/// that the device would be, [`joining`](Self::joining) the same in a role of the lane's choice.
#[derive(Clone, Copy)]
pub(super) struct Admission<'a> {
    space: &'a dyn SyncSpace,
    members: &'a Members,
    metadata: &'a Metadata,
}

impl<'a> Admission<'a> {
    pub(super) fn new(core: &'a Core) -> Self {
        Self { space: core.space.as_ref(), members: &core.members, metadata: &core.metadata }
    }

    pub(super) fn joining(self, new: &NewMember, role: Role) -> Result<Member, Refusal> {
        let spare = self.spare_called(&new.device).map(|(_, spare)| spare.clone());
        let mut member = spare.map_or_else(|| self.admit(new), Ok)?;
        if let Some(number) = self.own_number(new) {
            member.superblock.dev_number = number;
        }
        match member.state {
            State::Rebuilding { role: own, .. } if own == role => {}
            _ => {
                member.superblock.recovery_offset = 0;
                member.state = State::rebuilding_from_start(role, Had::NOTHING);
            }
        }
        Ok(member)
    }

    /// Returns the member that a device becomes: one that is to be given what it missed, or else a
    /// spare.
    pub(super) fn admit(self, new: &NewMember) -> Result<Member, Refusal> {
        self.is_new(new)?;
        if let Some(member) = self.returning_member(new) {
            return Ok(member);
        }
        if new.readd {
            let (reason, next) = if self.lineage(new) == Some(Lineage::WentAlone) {
                (
                    "is split from the array: each side went on alone",
                    "look at it with braid cat; to overwrite it, add it with --force".into(),
                )
            } else {
                let add = Invocation::Add { array: None, device: new.device.clone() };
                (
                    "cannot take its old role back: what changed is not known",
                    Next::by("have all of it rebuilt", add),
                )
            };
            return Err(Refusal::new(format!("{} {reason}", new.device), next));
        }
        self.fresh_member(new)
    }

    /// Refuses a device that is a member already, or whose id is in use.
    pub(super) fn is_new(self, new: &NewMember) -> Result<(), Refusal> {
        if self.members.iter().any(|(_, member)| member.device == new.device) {
            let reason = format!("{} is a member already", new.device);
            return Err(Refusal::new(reason, "remove it first if it is faulty"));
        }
        if self.members.get(new.member).is_some() {
            return Err(Refusal::new("its place in the table is taken", "try again"));
        }
        Ok(())
    }

    /// Returns how a device that was a member of this array came by its state.
    pub(super) fn lineage(self, new: &NewMember) -> Option<Lineage> {
        let superblock = new.superblock.as_deref()?;
        let in_sync = self.members.iter().filter_map(|(_, member)| match member.state {
            State::InSync { role } => Some((member.superblock.dev_number, role)),
            _ => None,
        });
        Some(lineage(superblock, in_sync))
    }

    /// A device that was a member and whose role is free: taken back when the bitmap tells all
    /// that changed since it left.
    fn returning_member(self, new: &NewMember) -> Option<Member> {
        let superblock = new.superblock.as_deref()?;
        let intent = self.metadata.intent.as_ref()?;
        let DevRole::Active(role) = superblock.role() else { return None };
        let number_free =
            self.members.iter().all(|(_, m)| m.superblock.dev_number != superblock.dev_number);
        let known = superblock.set_uuid == self.metadata.superblock.set_uuid
            && superblock.supported_over_nodes().is_ok()
            && superblock.events >= intent.bitmap.superblock.events_cleared
            && u32::from(role.0) < u32::from(self.space.roles())
            && self.members.role(role).holder.is_none()
            && self.lineage(new) == Some(Lineage::LeftBehind);
        let superblock = adopted(superblock, &self.metadata.superblock);
        let fits = check_shape(&superblock, &self.metadata.superblock).is_ok()
            && check_places(&superblock, new.device_sectors, self.room().bitmap_sectors).is_ok();
        if !known || !number_free || !fits {
            return None;
        }
        if superblock.has(feature::REPLACEMENT) {
            return None;
        }
        // It may have been in the middle of its rebuild: then it never had what lies beyond.
        let all_once =
            !superblock.has(feature::RECOVERY_OFFSET) || superblock.has(feature::RECOVERY_BITMAP);
        let had = if new.has_unread_bad_blocks() {
            Had::NOTHING
        } else if all_once {
            Had::All
        } else {
            Had::Below(superblock.recovery_offset)
        };
        let superblock = Superblock { recovery_offset: 0, ..superblock };
        let replacement = false;
        Some(Member::new(MemberConfig {
            device: new.device.clone(),
            device_sectors: new.device_sectors,
            superblock,
            bad_blocks: new.bad_blocks.clone().unwrap_or_default(),
            standing: Standing::Rebuilding { role, offset: 0, replacement, had },
        }))
    }

    /// A superblock for a device that becomes a spare, laid out as the other members' are.
    fn fresh_member(self, new: &NewMember) -> Result<Member, Refusal> {
        self.fresh_member_of(new, self.room())
    }

    fn fresh_member_of(self, new: &NewMember, room: Room) -> Result<Member, Refusal> {
        let live = self.members.iter_live().filter(|(_, m)| m.state != State::Journal);
        let live: Vec<_> = live.map(|(_, m)| &m.superblock).collect();
        if live.is_empty() {
            return Err(Refusal::new("no member is left", "stop the array and assemble it again"));
        }
        let mut superblock = match place(&live, new.device_sectors, room) {
            Ok(superblock) => superblock,
            Err(needed) => {
                let device = &new.device;
                let sectors = new.device_sectors;
                let next = "use a device at least as large as the other members";
                let reason = format!("{device} is too small: {sectors} sectors, needs {needed}");
                return Err(Refusal::new(reason, next));
            }
        };
        self.has_room()?;
        // Nor is it that of one that was made faulty, as long as there are others.
        let free = |n: &u32| self.members.iter().all(|(_, m)| m.superblock.dev_number != *n);
        let off = journal_number(&self.metadata.superblock);
        let kept = |n: &u32| self.metadata.made_faulty.contains(n) || off == Some(*n);
        let unused = (0..MAX_DEV).filter(free).find(|n| !kept(n));
        superblock.dev_number = unused.or_else(|| (0..).find(free)).unwrap_or(0);
        // It is behind in nothing, and holds nothing: its number may be that of a member which is
        // missing, and in whose role superblocks still list that.
        superblock.events = self.metadata.superblock.events;
        superblock.roles = Vec::new();
        superblock.device_uuid = new.device_uuid;
        superblock.devflags = 0;
        superblock.corrected_reads = 0;
        superblock.recovery_offset = 0;
        Ok(Member::new(MemberConfig {
            device: new.device.clone(),
            device_sectors: new.device_sectors,
            superblock,
            bad_blocks: BadBlocks::default(),
            standing: Standing::Spare,
        }))
    }

    /// A device that is to hold the journal, laid out as the members are.
    pub(super) fn journal(self, new: &NewMember) -> Result<Member, Refusal> {
        self.is_new(new)?;
        let used_sectors = least_journal_sectors(self.space.roles().into());
        let mut member = self.fresh_member_of(new, Room { used_sectors, ..self.room() })?;
        member.state = State::Journal;
        Ok(member)
    }

    /// Checks that superblocks have room for one more, behind all roles.
    fn has_room(self) -> Result<(), Refusal> {
        let version = self.metadata.superblock.version;
        let behind = |member: &Member| !matches!(member.state, State::InSync { .. });
        let behind = self.members.iter_live().filter(|(_, member)| behind(member)).count();
        let most = version.most_devices();
        if usize::from(self.space.roles()) + behind < most as usize {
            return Ok(());
        }
        let reason = format!("superblocks of version {} tell of {most} devices", version.name());
        Err(Refusal::new(reason, "remove a spare first"))
    }

    fn room(self) -> Room {
        let bitmap = self.metadata.intent.as_ref().map(|intent| &intent.bitmap);
        Room {
            used_sectors: self.space.member_sectors(),
            bitmap_sectors: bitmap.map_or(0, Bitmap::size_sectors),
        }
    }

    /// The number of one that was a member before, if nobody has it now: any other may be that of
    /// one who is away, and comes back with it.
    fn own_number(self, new: &NewMember) -> Option<u32> {
        let superblock = new.superblock.as_deref()?;
        let number = superblock.dev_number;
        let ours = self.metadata.superblock.set_uuid;
        let taken = self.members.iter().any(|(_, m)| m.superblock.dev_number == number);
        (superblock.set_uuid == ours && !taken && number < MAX_DEV).then_some(number)
    }

    pub(super) fn spare_called(self, device: &str) -> Option<(MemberId, &'a Member)> {
        let called = |member: &Member| member.state == State::Spare && member.device == device;
        self.members.iter().find(|(_, member)| called(member))
    }
}
