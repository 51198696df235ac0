//! Members on nodes: where they are, and how a keeper takes them.

use braid_array::assemble::{Config, MemberConfig, Standing};
use braid_array::format::superblock::MAX_SECTOR;
use braid_array::format::{BadBlocks, Bitmap, Superblock};

/// A member as the client finds it.
#[derive(Clone, Debug)]
pub struct ClientMember {
    /// Its node, `HOST:PORT`.
    pub address: String,
    /// Its volume there.
    pub volume: String,
    /// What it carries.
    pub superblock: Superblock,
}

/// How a member on a node is called.
#[must_use]
pub fn member_name(address: &str, volume: &str) -> String {
    format!("node://{address}/{volume}")
}

/// Does an array begin without a member and not clean? Then somebody vouches for its sums: nobody
/// assembles it otherwise.
pub(crate) fn vouched_for(members: &[Option<ClientMember>]) -> bool {
    let dirty = |member: &ClientMember| member.superblock.resync_offset != MAX_SECTOR;
    members.iter().any(Option::is_none) && members.iter().flatten().any(dirty)
}

/// The members of an array, by role, as their keeper takes them; `None` without any.
pub(crate) fn kept(
    members: &[Option<ClientMember>],
    bitmap: Option<Bitmap>,
    read_only: bool,
    block_bytes: u32,
) -> Option<Config> {
    let roles = (0..).zip(members).filter_map(|(role, member)| Some((role, member.as_ref()?)));
    let config = |(role, member): (u16, &ClientMember)| MemberConfig {
        device: member_name(&member.address, &member.volume),
        device_sectors: 0,
        superblock: member.superblock.clone(),
        bad_blocks: BadBlocks::default(),
        standing: Standing::InSync { role },
    };
    let superblocks = members.iter().flatten().map(|member| &member.superblock);
    Some(Config {
        superblock: superblocks.max_by_key(|superblock| superblock.events)?.clone(),
        members: roles.map(config).collect(),
        bitmap,
        read_only,
        force: false,
        block_bytes,
    })
}
