//! Small arrays: the fewer nodes and blocks there are, the sooner those meet that must not.

use braid_array::level::Level;
use braid_cluster::Family;

use super::focus::Focus;
use crate::cluster::scenario::{self, ClusterScenario, OneByOne, md};
use crate::rng::Rng;

/// Family, nodes, and witnesses. Over five nodes and more a block is written without all others of
/// its stripe.
const ARRAYS: [(Family, u16, u16); 14] = [
    (md(Level::Raid1), 2, 1),
    (md(Level::Raid1), 2, 1),
    (md(Level::Raid1), 3, 0),
    (md(Level::Raid1), 3, 2),
    (md(Level::Raid5), 3, 0),
    (md(Level::Raid5), 4, 1),
    (md(Level::Raid5), 5, 0),
    (md(Level::Raid5), 5, 0),
    (md(Level::Raid4), 5, 0),
    (md(Level::Raid6), 4, 1),
    (md(Level::Raid6), 7, 0),
    (Family::Xor2d, 5, 0),
    (Family::Xor2d, 4, 1),
    (Family::Xor2d, 5, 0),
];

/// Draws the scenario of such a seed.
pub(in crate::cluster) fn draw(rng: &mut Rng, focus: Focus) -> ClusterScenario {
    loop {
        let mut scenario = any(rng, focus);
        if focus.fits(&scenario) {
            focus.prepare(&mut scenario);
            return scenario;
        }
    }
}

fn any(rng: &mut Rng, focus: Focus) -> ClusterScenario {
    let (family, nodes, witnesses) = rng.pick(&ARRAYS);
    let mut params = scenario::params(rng, family, nodes);
    while !params.chunk_bytes.is_power_of_two() {
        params = scenario::params(rng, family, nodes);
    }
    let mut one_by_one = OneByOne::of(rng);
    if let Some(one_by_one) = &mut one_by_one {
        params = one_by_one.lengthen(params);
    }
    params.stripes = params.stripes.min(rng.between(1, 2));
    let journal = rng.percent(70);
    let journal = focus.needs_journals().unwrap_or(journal);
    let room = rng.pick(&[1, 1, 4]) * scenario::journal_bytes(rng, &params);
    let bitmap = rng.pick(&[None, Some(4096), Some(4096), Some(16384), Some(65536)]);
    let mut scenario = ClusterScenario {
        witnesses,
        profile: scenario::profile(rng, None),
        journal_bytes: if journal { room } else { 0 },
        parts_only: journal && family.has_parities() && rng.percent(60),
        bitmap_chunk_bytes: bitmap,
        limited: rng.percent(50),
        mix: rng.percent(20),
        whole_rings: rng.pick(&[None, Some(0), Some(1)]),
        ..ClusterScenario::calm(params)
    };
    if let Some(one_by_one) = one_by_one {
        one_by_one.prepare(&mut scenario);
    }
    scenario
}
