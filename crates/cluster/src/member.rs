//! Members on nodes: their addresses, and their form for a keeper.

use braid_array::assemble::{Config, Had, MemberConfig, Standing, StartLog};
use braid_array::format::superblock::{MAX_SECTOR, feature};
use braid_array::format::{BadBlocks, Bitmap, DevRole, Superblock};
use braid_array::keeper::{Keeper, Rules, SyncSpace};
use braid_array::{Instant, Role};

/// A volume on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeAddress {
    /// Address of the node.
    pub address: String,
    /// Its name there.
    pub volume: String,
}

/// A member as the client finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientMember {
    /// Its node, `HOST:PORT`.
    pub address: String,
    /// Its volume there.
    pub volume: String,
    /// Superblock on the volume.
    pub superblock: Superblock,
    /// Sectors of its content that it does not know.
    pub bad_blocks: BadBlocks,
}

/// Metadata on a member when the start of the array was judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its superblock.
    pub superblock: Superblock,
    /// Its bitmap, where it has one that can be read.
    pub bitmap: Option<Bitmap>,
}

/// Returns the address of the node and the volume of a member with this name.
#[must_use]
pub fn member_parts(name: &str) -> Option<(&str, &str)> {
    name.strip_prefix("node://")?.split_once('/').filter(|(_, volume)| !volume.is_empty())
}

/// Returns the name of a member on a node.
#[must_use]
pub fn member_name(address: &str, volume: &str) -> String {
    format!("node://{address}/{volume}")
}

impl ClientMember {
    /// Returns whether a command has made it faulty or removed it, according to the newest
    /// superblock. Such a member stays out until it is added again.
    #[must_use]
    pub fn was_made_faulty(&self) -> bool {
        self.superblock.role() == DevRole::Faulty
    }
}

/// Returns whether the member has all content of its role.
fn is_whole(superblock: &Superblock) -> bool {
    !superblock.has(feature::RECOVERY_OFFSET)
}

/// Returns whether an array begins without a member and not clean. The operator then vouches for
/// its sums, as no such array is assembled otherwise.
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

/// Returns the standing of a member; a rebuild that was under way continues.
fn standing(role: Role, superblock: &Superblock) -> Standing {
    if is_whole(superblock) {
        return Standing::InSync { role };
    }
    let had = if superblock.has(feature::RECOVERY_BITMAP) { Had::All } else { Had::NOTHING };
    let offset = superblock.recovery_offset;
    Standing::Rebuilding { role, offset, replacement: false, had }
}

/// Returns the members of an array, by role, in the keeper's form; `None` without any.
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
        spill: None,
    })
}

/// Creates their keeper, which has missing content restored. If the array was not stopped cleanly,
/// members that were being rebuilt may lack the writes of that time. The bitmap marks these;
/// without one the rebuild begins again.
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
