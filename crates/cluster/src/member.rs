//! Members on nodes: where they are, and how a keeper takes them.

use braid_array::assemble::{Config, Had, MemberConfig, Standing, StartLog};
use braid_array::format::superblock::{MAX_SECTOR, feature};
use braid_array::format::{BadBlocks, Bitmap, DevRole, Superblock};
use braid_array::keeper::{Keeper, Rules, SyncSpace};
use braid_array::{Instant, Role};

/// A volume on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeAddress {
    /// Of the node.
    pub address: String,
    /// Its name there.
    pub volume: String,
}

/// A member as the client finds it.
#[derive(Clone, Debug)]
pub struct ClientMember {
    /// Its node, `HOST:PORT`.
    pub address: String,
    /// Its volume there.
    pub volume: String,
    /// What it carries.
    pub superblock: Superblock,
    /// Sectors of what it is to hold that it does not know.
    pub bad_blocks: BadBlocks,
}

/// What lay on a member when it was judged how the array starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its superblock.
    pub superblock: Superblock,
    /// Its bitmap, where it has one that can be read.
    pub bitmap: Option<Bitmap>,
}

/// The address of the node and the volume of a member that is called so.
#[must_use]
pub fn member_parts(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix("node://")?.split_once('/').filter(|(_, volume)| !volume.is_empty())
}

/// How a member on a node is called.
#[must_use]
pub fn member_name(address: &str, volume: &str) -> String {
    format!("node://{address}/{volume}")
}

impl ClientMember {
    /// Did a command make it faulty or remove it, by what the newest superblock says? Then it
    /// stays out until it is added again.
    #[must_use]
    pub fn was_made_faulty(&self) -> bool {
        self.superblock.role() == DevRole::Faulty
    }
}

/// Has the member been given all that belongs to its role?
fn is_whole(superblock: &Superblock) -> bool {
    !superblock.has(feature::RECOVERY_OFFSET)
}

/// Does an array begin without a member and not clean? Then somebody vouches for its sums: nobody
/// assembles it otherwise.
pub(crate) fn vouched_for(members: &[Option<ClientMember>]) -> bool {
    let without = |member: &Option<ClientMember>| {
        member.as_ref().is_none_or(|member| !is_whole(&member.superblock))
    };
    let dirty = |member: &ClientMember| {
        let superblock = &member.superblock;
        superblock.resync_offset != MAX_SECTOR && !superblock.has(feature::NODE_JOURNALS)
    };
    members.iter().any(without) && members.iter().flatten().any(dirty)
}

/// One that was being rebuilt goes on with that.
fn standing(role: Role, superblock: &Superblock) -> Standing {
    if is_whole(superblock) {
        return Standing::InSync { role };
    }
    let had = if superblock.has(feature::RECOVERY_BITMAP) { Had::All } else { Had::NOTHING };
    let offset = superblock.recovery_offset;
    Standing::Rebuilding { role, offset, replacement: false, had }
}

/// The members of an array, by role, as their keeper takes them; `None` without any.
pub(crate) fn kept(
    members: &[Option<ClientMember>],
    spares: Vec<ClientMember>,
    bitmap: Option<Bitmap>,
    read_only: bool,
    block_bytes: u32,
) -> Option<Config> {
    let roles =
        (0..).map(Role).zip(members).filter_map(|(role, member)| Some((role, member.as_ref()?)));
    let config = |member: &ClientMember, standing| MemberConfig {
        device: member_name(&member.address, &member.volume),
        device_sectors: 0,
        superblock: member.superblock.clone(),
        bad_blocks: member.bad_blocks.clone(),
        standing,
    };
    let with_role =
        |(role, member): (Role, &ClientMember)| config(member, standing(role, &member.superblock));
    let spares = spares.iter().map(|spare| config(spare, Standing::Spare));
    let superblocks = members.iter().flatten().map(|member| &member.superblock);
    Some(Config {
        superblock: superblocks.max_by_key(|superblock| superblock.events)?.clone(),
        members: roles.map(with_role).chain(spares).collect(),
        bitmap,
        log: StartLog::None,
        read_only,
        force: false,
        block_bytes,
    })
}

/// Their keeper, who sees that those who lack something are given it. Where the array was not
/// stopped cleanly, members that were being rebuilt may lack what was written then: the bitmap
/// marks it; without one they begin again.
pub(crate) fn keeper(
    mut kept: Config,
    space: Box<dyn SyncSpace>,
    rules: Rules,
) -> Result<Keeper, String> {
    let marked = kept.bitmap.is_some();
    if kept.superblock.resync_offset < space.sync_sectors() {
        for member in &mut kept.members {
            let Standing::Rebuilding { offset, had, .. } = &mut member.standing else {
                continue;
            };
            *had = if marked { Had::Below(*offset).max(*had) } else { Had::NOTHING };
            *offset = 0;
            member.superblock.recovery_offset = 0;
        }
    }
    Keeper::new(Instant(0), kept, space, rules)
}
