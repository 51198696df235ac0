//! Room that the stores of nodes have for more of an array.

use std::collections::BTreeMap;

use braid_array::status::{MemberState, Status};
use braid_array::{Refusal, SECTOR_BYTES};
use braid_cluster::assemble::{member_name, member_parts};
use braid_cluster::journal::{HEADERS_BYTES, PAGE_BYTES};

use super::served::Served;
use crate::remote::{NodeSurvey, Remote};

impl Served {
    /// Asks all nodes of the array. Returns by member the most sectors of data that its volume may
    /// have.
    pub(super) fn rooms(&self) -> Result<BTreeMap<String, u64>, Refusal> {
        let status = self.status()?;
        let Some(network) = self.network else {
            return Err(Refusal::new("its members are on no nodes", "see their sizes"));
        };
        let in_sync = status.members.iter().filter(|member| member.state == MemberState::InSync);
        let places = in_sync.filter_map(|member| member_parts(&member.device));
        let room = |(address, volume): (&str, &str)| {
            let name = member_name(address, volume);
            let survey = Remote::connect(address, network).and_then(|mut node| node.survey());
            let room = survey.map_err(|error| error.why).and_then(|survey| {
                room(&survey, volume, &status)
                    .ok_or_else(|| Refusal::new("there is no such volume", "see its node"))
            });
            match room {
                Ok(sectors) => Ok((name, sectors)),
                Err(why) => Err(Refusal::new(format!("{name}: {}", why.reason), why.next)),
            }
        };
        places.map(room).collect()
    }
}

/// Returns the most sectors of data of a member, on a node with this survey; `None` when it has no
/// such volume.
fn room(survey: &NodeSurvey, volume: &str, status: &Status) -> Option<u64> {
    let volume = survey.volumes.iter().find(|info| info.name == volume)?;
    let most = volume.bytes + survey.free_bytes.saturating_sub(survey.promised_bytes);
    let journal = match status.journal_bytes {
        0 => 0,
        bytes => bytes + HEADERS_BYTES + PAGE_BYTES,
    };
    let before = status.superblock.data_offset * SECTOR_BYTES;
    Some(most.saturating_sub(before + journal) / SECTOR_BYTES)
}
