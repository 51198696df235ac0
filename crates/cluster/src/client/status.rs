//! What the array says of itself.

use braid_array::events::SyncAction;
use braid_array::status::{ArrayState, MemberState, MemberStatus, Status, SyncStatus};

use super::{BlockMachine, Client, Link, MemberId, SECTOR_BYTES};

impl Client {
    pub(super) fn describe(&self) -> Status {
        let superblocks = self.links.iter().filter_map(|link| link.member.as_ref());
        let mut superblock = superblocks
            .map(|member| member.superblock.clone())
            .next()
            .unwrap_or_else(|| unreachable!("an array has members"));
        superblock.events = self.marks.events();
        let members = (0..).zip(&self.links).filter_map(|(role, link)| member(role, link));
        let state = match self.marks.active() {
            _ if !self.enough() => ArrayState::Failed,
            _ if self.read_only || self.writes_over => ArrayState::ReadOnly,
            true => ArrayState::Active,
            false => ArrayState::Clean,
        };
        Status {
            array_sectors: self.array_sectors(),
            used_member_sectors: superblock.size_sectors,
            superblock,
            state,
            degraded: self.lost().len() as u16,
            members: members.collect(),
            sync: self.sync(),
            ..Status::blank()
        }
    }

    fn sync(&self) -> SyncStatus {
        let Some(resync) = &self.resync else { return SyncStatus::default() };
        let per_slice = u64::from(self.slice_bytes()) / SECTOR_BYTES;
        let rows = u64::from(self.pipeline.rows());
        SyncStatus {
            action: SyncAction::Resync,
            paused: resync.paused,
            done_sectors: resync.done * per_slice * rows,
            total_sectors: self.slices() * per_slice * rows,
            ..SyncStatus::default()
        }
    }
}

fn member(role: u16, link: &Link) -> Option<MemberStatus> {
    let member = link.member.as_ref()?;
    Some(MemberStatus {
        member: MemberId(role),
        device: format!("node://{}/{}", member.address, member.volume),
        role: Some(role),
        number: role,
        state: if link.alive() { MemberState::InSync } else { MemberState::Faulty },
        replacement: false,
        want_replacement: false,
        events: member.superblock.events,
        errors: link.errors,
        unreliable: false,
        recovery_offset_sectors: None,
        devflags: member.superblock.devflags,
    })
}
