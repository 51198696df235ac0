//! Focus of some relays: moments that matter for one rule and are rare in other relays.

use braid_cluster::pipeline::Params;

use crate::cluster::kill_point::KillPoint;
use crate::cluster::nodes::Cluster;
use crate::cluster::scenario::ClusterScenario;
use crate::fault::FaultProfile;
use crate::rng::Rng;

/// Fewer nodes write every block of a stripe whenever one is written.
const NODES_OF_PARTS: u16 = 5;

/// Where most clients of a relay die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cluster) enum Focus {
    /// Anywhere.
    Nothing,
    /// While nodes are told which slice-sets are committed, and some never hear of it. Stores take
    /// much longer than messages: the next client could serve before these slice-sets are stored.
    Commits,
    /// While nodes are told to trim their journals, and some are not reached: their entries are
    /// older than those the others have dropped.
    Trims,
    /// When a flush was just answered, for data that journals do not hold. All nodes die with the
    /// client.
    Flushes,
}

impl Focus {
    /// Draws the focus of a seed from a generator of its own, so that other seeds are unchanged.
    /// Most seeds have none: a focused relay misses failures at all other moments.
    pub(in crate::cluster) fn of(seed: u64) -> Self {
        match Rng::new(seed ^ 0x0066_6f63_7573).below(80) {
            0..8 => Self::Commits,
            14..17 => Self::Trims,
            17..20 => Self::Flushes,
            _ => Self::Nothing,
        }
    }

    /// Returns whether the focus can occur on such an array.
    pub(super) fn fits(self, scenario: &ClusterScenario) -> bool {
        let Params { family, nodes, .. } = scenario.params;
        match self {
            Self::Nothing | Self::Commits => true,
            Self::Trims => family.has_parities() && nodes >= NODES_OF_PARTS,
            Self::Flushes => family.has_parities(),
        }
    }

    /// Returns whether the array must have journals, or must not; `None` if either will do.
    pub(super) const fn needs_journals(self) -> Option<bool> {
        match self {
            Self::Nothing => None,
            Self::Commits => Some(false),
            Self::Trims | Self::Flushes => Some(true),
        }
    }

    /// Adapts the scenario to the focus.
    pub(super) fn prepare(self, scenario: &mut ClusterScenario) {
        match self {
            Self::Nothing | Self::Trims => {}
            Self::Commits => {
                let profile = &mut scenario.profile;
                *profile = FaultProfile {
                    disk_nanos: 2_000_000,
                    net_nanos: 1_000,
                    compute_nanos: 1,
                    ..*profile
                };
            }
            Self::Flushes => scenario.parts_only = true,
        }
    }

    /// Where a client dies; nothing when that may be anywhere.
    pub(super) fn end(self, cluster: &mut Cluster) -> Option<KillPoint> {
        match self {
            Self::Nothing => None,
            Self::Commits => cluster.rng.percent(70).then(|| KillPoint::after_a_commit(cluster)),
            Self::Trims => cluster.rng.percent(50).then(|| KillPoint::after_a_trim(cluster)),
            Self::Flushes => cluster.rng.percent(70).then(|| KillPoint::after_a_flush(cluster)),
        }
    }
}
