//! Metrics of members that are verified by checksums.

use braid_array::SECTOR_BYTES;
use braid_array::format::integrity::BLOCK_SECTORS;
use braid_array::status::Status;
use prometheus_client::registry::Registry;

use super::{Counters, Gauges, bytes, family};

#[derive(Debug)]
pub(super) struct SumMetrics {
    mismatches: Counters,
    healed: Counters,
    known: Gauges,
    all: Gauges,
}

impl SumMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let mismatches = "Blocks of a member that did not fit their checksums";
        let healed = "Those that were written again";
        let known = "What of a member has checksums that are known";
        let all = "What of a member can have checksums";
        Self {
            mismatches: family(registry, "member_checksum_mismatches", mismatches),
            healed: family(registry, "member_checksum_healed", healed),
            known: bytes(registry, "member_checksum_known", known),
            all: bytes(registry, "member_checksum_covered", all),
        }
    }

    pub(super) fn fill(&self, name: &str, status: &Status) {
        for sums in status.integrity.iter().flat_map(|integrity| &integrity.members) {
            let Some(member) = status.member(sums.member) else { continue };
            let labels = vec![("array", name.to_owned()), ("member", member.device.clone())];
            self.mismatches.get_or_create(&labels).inc_by(sums.mismatches);
            self.healed.get_or_create(&labels).inc_by(sums.healed);
            let bytes = |blocks: u64| blocks * BLOCK_SECTORS * SECTOR_BYTES;
            self.all.get_or_create(&labels).set(bytes(sums.blocks));
            if let Some(known) = sums.known_blocks {
                self.known.get_or_create(&labels).set(bytes(known));
            }
        }
    }
}
