//! Members that have failed are listed on when another program takes an array over, until they are
//! removed.

use braid_array::Role;
use braid_array::assemble::{Config, MemberConfig, Standing};
use braid_array::format::{BadBlocks, Superblock};
use braid_array::status::{MemberState, MemberStatus, Status};
use braid_cluster::assemble::member_name;
use braid_cluster::{ClientConfig, ClientMember};
use serde::{Deserialize, Serialize};

use super::Assembled;

/// A member that no program goes on with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct FaultyMember {
    /// Number of the inner array that it is in, of an array of arrays.
    array: usize,
    device: String,
    role: Option<Role>,
    number: u16,
}

/// The arrays that have devices.
pub(super) fn arrays(status: &Status) -> &[Status] {
    if status.children.is_empty() { std::slice::from_ref(status) } else { &status.children }
}

/// Returns the faulty members of an array. Nodes that are away and come back do not count.
pub(super) fn of(status: &Status) -> Vec<FaultyMember> {
    let arrays = arrays(status).iter().enumerate();
    arrays.flat_map(|(array, status)| faulty(array, &status.members)).collect()
}

fn faulty(array: usize, members: &[MemberStatus]) -> impl Iterator<Item = FaultyMember> {
    let faulty = members.iter().filter(|one| one.state == MemberState::Faulty && !one.awaited);
    faulty.map(move |one| FaultyMember {
        array,
        device: one.device.clone(),
        role: one.role,
        number: one.number,
    })
}

/// Adds faulty members to the configuration of an array.
pub(super) fn list(array: &mut Assembled, faulty: &[FaultyMember]) {
    for one in faulty {
        match array {
            Assembled::Array { config, .. } => list_in(config, one),
            Assembled::Nested { inner, .. } => {
                if let Some((config, _)) = inner.get_mut(one.array) {
                    list_in(config, one);
                }
            }
            Assembled::Cluster { config, .. } => list_on_node(config, one),
            // A member that fails in a move comes back by itself.
            Assembled::Pieces { .. } | Assembled::Moving { .. } => {}
        }
    }
}

fn list_in(config: &mut Config, one: &FaultyMember) {
    let is_there = |member: &MemberConfig| {
        member.device == one.device || member.superblock.dev_number == u32::from(one.number)
    };
    if !config.members.iter().any(is_there) {
        config.members.push(one.config(&config.superblock));
    }
}

fn list_on_node(config: &mut ClientConfig, one: &FaultyMember) {
    let members = config.members.iter().flatten().chain(&config.spares);
    let is_there = |member: &ClientMember| {
        let device = member_name(&member.address, &member.volume);
        device == one.device || member.superblock.dev_number == u32::from(one.number)
    };
    if members.clone().any(is_there) {
        return;
    }
    let Some(newest) = members.max_by_key(|member| member.superblock.events) else { return };
    let faulty = one.config(&newest.superblock);
    config.faulty.push(faulty);
    config.not_in.retain(|(device, _)| *device != one.device);
}

impl FaultyMember {
    /// Returns its configuration. All but the device comes from the array's superblock.
    fn config(&self, array: &Superblock) -> MemberConfig {
        MemberConfig {
            device: self.device.clone(),
            device_sectors: 0,
            superblock: Superblock { dev_number: self.number.into(), ..array.clone() },
            bad_blocks: BadBlocks::default(),
            standing: Standing::Faulty { role: self.role },
        }
    }
}
