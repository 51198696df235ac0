//! Small arrays with parities, of few whole stripes.

use braid_array::level::Level;
use braid_cluster::Family;

use crate::cluster::scenario::{self, ClusterScenario, md};
use crate::rng::Rng;

use super::MAX_BLOCKS;

/// Family, nodes, and witnesses, with which any nodes that the code survives may stay away.
const ARRAYS: [(Family, u16, u16); 12] = [
    (md(Level::Raid5), 3, 0),
    (md(Level::Raid5), 3, 0),
    (md(Level::Raid5), 3, 0),
    (md(Level::Raid5), 4, 0),
    (md(Level::Raid5), 5, 0),
    (md(Level::Raid4), 3, 0),
    (md(Level::Raid6), 4, 1),
    (md(Level::Raid6), 5, 0),
    (md(Level::Raid6), 5, 0),
    (Family::Xor2d, 4, 1),
    (Family::Xor2d, 5, 0),
    (Family::Xor2d, 6, 0),
];

/// Number of blocks of an array: all of them are read one by one, repeatedly.
const ARRAY_BLOCKS: u64 = 96;

/// Recording of whole stripes.
#[derive(Clone, Copy)]
enum Records {
    /// Not at all.
    None,
    /// Parts of stripes alone.
    Parts,
    /// All.
    All,
}

/// Draws the scenario of such a seed.
pub(in crate::cluster) fn draw(rng: &mut Rng) -> ClusterScenario {
    let (family, nodes, witnesses) = rng.pick(&ARRAYS);
    let data = family.code(nodes, 0).map_or(1, |code| code.data().len() as u64);
    let mut params = scenario::params(rng, family, nodes);
    let fits = |chunk: u32| chunk.is_power_of_two() && data * u64::from(chunk) / 4096 <= MAX_BLOCKS;
    while !fits(params.chunk_bytes) {
        params = scenario::params(rng, family, nodes);
    }
    let stripe_blocks = data * u64::from(params.chunk_bytes) / 4096;
    params.stripes = rng.between(2, (ARRAY_BLOCKS / stripe_blocks).clamp(2, 12));
    let parts = Records::Parts;
    let records = rng.pick(&[parts, parts, parts, parts, Records::None, Records::All]);
    let journal = rng.pick(&[1, 4]) * scenario::journal_bytes(rng, &params);
    let bitmap = rng.pick(&[None, Some(4096), Some(16384), Some(65536), Some(1 << 20)]);
    ClusterScenario {
        witnesses,
        profile: scenario::profile(rng, None),
        journal_bytes: if matches!(records, Records::None) { 0 } else { journal },
        parts_only: matches!(records, Records::Parts),
        bitmap_chunk_bytes: bitmap,
        mix: rng.percent(20),
        whole_rings: rng.pick(&[None, Some(1)]),
        ..ClusterScenario::calm(params)
    }
}
