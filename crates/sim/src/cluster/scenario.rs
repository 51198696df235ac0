//! Scenario of a seed: the array over nodes, the writing of it, and its troubles.

use braid_array::Role;
use std::fmt;

use braid_array::level::{Layout, Level};
use braid_cluster::client::{LONG_WRITE_BYTES, SPARE_PATIENCE_MS};
use braid_cluster::ids::Epoch;
use braid_cluster::pipeline::Slots;
use braid_cluster::view::majority;
use braid_cluster::{Family, Pipeline, Planner, pipeline::Params};

use crate::fault::{FaultProfile, Mutation};
use crate::rng::Rng;

/// End of a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The client is told to stop.
    Stop,
    /// The client dies at any moment; the next one comes at once.
    Crash,
    /// Another client takes the array over at any moment, while this one is at work.
    TakenOver,
    /// Everything loses power. At the end not all nodes may come back.
    PowerCut,
    /// Nodes or connections are lost; the array serves on, reads only. There is no life after.
    Loss,
}

/// Array and troubles of a seed.
#[derive(Clone, Debug)]
pub struct ClusterScenario {
    /// Parameters of the pipeline. Session and epoch are set for each life.
    pub params: Params,
    /// The client makes some of the parities.
    pub mix: bool,
    /// Parities do not fit to begin with, and the superblocks say so.
    pub dirty: bool,
    /// Bytes covered by a bit of the bitmap, if there is one.
    pub bitmap_chunk_bytes: Option<u32>,
    /// Size of the journal on each volume; 0 without one.
    pub journal_bytes: u64,
    /// Set if journals do not record whole stripes.
    pub parts_only: bool,
    /// Behaviour of nodes, network and the client's host.
    pub profile: FaultProfile,
    /// End of each life of a client.
    pub lives: Vec<End>,
    /// Requests of a life.
    pub requests: u64,
    /// Requests in flight at once.
    pub depth: usize,
    /// Size of the largest request.
    pub largest_sectors: u64,
    /// Size from which a write is long: a long write is sent in pieces if no other is in flight.
    pub long_write_bytes: u64,
    /// Some sectors of one node cannot be read in the last life.
    pub bad_sectors: bool,
    /// Another array is written on the same nodes.
    pub guest: bool,
    /// Another node takes the place of one that is lost.
    pub recovery_target: bool,
    /// A spare is added.
    pub spare: bool,
    /// Members are replaced by the spare while they serve.
    pub replaces: bool,
    /// Time to wait for a member before the spare gets its role.
    pub spare_patience_ms: u64,
    /// Nodes that vote and hold nothing.
    pub witnesses: u16,
    /// Set if node memory is limited: room for the bases of three clients and this number of whole
    /// rings.
    pub whole_rings: Option<u64>,
    /// The client has the key of its array alone.
    pub limited: bool,
}

const MIRROR: Family =
    Family::Md { level: Level::Raid1, layout: Layout::default_for(Level::Raid1) };

/// A stripe of so many has short ones.
const MANY_BLOCKS: u32 = 16;

/// The largest request.
const MOST_SECTORS: u64 = 512;

/// Bytes of an array, at most, unless a few stripes are larger.
const ARRAY_BYTES: u64 = 3 << 19;

impl ClusterScenario {
    /// Returns a scenario without troubles.
    pub const fn calm(params: Params) -> Self {
        Self {
            params,
            mix: false,
            dirty: false,
            bitmap_chunk_bytes: None,
            journal_bytes: 0,
            parts_only: false,
            profile: FaultProfile::CALM,
            lives: Vec::new(),
            requests: 0,
            depth: 4,
            largest_sectors: 2048,
            long_write_bytes: LONG_WRITE_BYTES,
            bad_sectors: false,
            guest: false,
            recovery_target: false,
            spare: false,
            replaces: false,
            spare_patience_ms: SPARE_PATIENCE_MS,
            witnesses: 0,
            whole_rings: None,
            limited: false,
        }
    }

    /// Draws a seed's scenario.
    pub fn draw(rng: &mut Rng, mutation: Option<Mutation>) -> Self {
        // What witnesses are for above all.
        let forgets = mutation == Some(Mutation::ForgetViews);
        // Drawn aside: seeds without any are what they would be if there were none.
        let mut aside = rng.aside(0);
        let mirror = forgets || aside.percent(4);
        let (family, nodes) = if mirror { (MIRROR, 2) } else { family(rng) };
        // So many small writes that the generations of a position begin again.
        let long = nodes <= 8 && rng.percent(1);
        let may = !long && mutation.is_none();
        let mut one_by_one = if may { OneByOne::of(rng) } else { None };
        let params = match &mut one_by_one {
            Some(one_by_one) => one_by_one.lengthen(params(rng, family, nodes)),
            None if long => few_positions(params(rng, family, nodes)),
            None => params(rng, family, nodes),
        };
        let redundant = !matches!(family, Family::Md { level: Level::Raid0, .. });
        let ends = [End::Stop, End::Crash, End::TakenOver, End::PowerCut];
        let mut lives: Vec<End> =
            (0..rng.pick(&[0, 0, 0, 1, 1, 2])).map(|_| rng.pick(&ends)).collect();
        // Then nothing else is to be what fails.
        let looked_for = mutation.is_some_and(Mutation::is_of_journals);
        let journal = redundant && nodes <= 8 && (rng.percent(30) || looked_for);
        let witnessed = redundant && nodes <= 8 && (mirror || aside.percent(25));
        let lossy = redundant && (mirror || rng.percent(50));
        let cut = journal && (rng.percent(50) || looked_for);
        let cut = cut || redundant && !forgets && aside.percent(6);
        lives.push(last_end(cut, lossy));
        let block = u64::from(params.chunk_bytes) / 512;
        let stripe = block * u64::from(data_blocks(family, nodes));
        let bitmap = rng.pick(&[None, Some(4096), Some(16384), Some(65536), Some(1 << 20)]);
        let largest = rng.pick(&[8, 16, block, stripe, 2 * stripe, 4 * stripe]);
        let mut scenario = Self {
            params,
            mix: rng.percent(20),
            dirty: redundant && rng.percent(15) && !looked_for && !mirror,
            bitmap_chunk_bytes: if redundant { bitmap } else { None },
            journal_bytes: if journal { journal_bytes(rng, &params) } else { 0 },
            parts_only: false,
            profile: profile(rng, mutation),
            lives,
            requests: if long { rng.between(1500, 3000) } else { rng.between(20, 120) },
            depth: rng.pick(&[1, 2, 4, 8, 16, 32]),
            largest_sectors: if long { 8 } else { largest.clamp(8, MOST_SECTORS) },
            long_write_bytes: LONG_WRITE_BYTES,
            bad_sectors: redundant && rng.percent(15) && !looked_for,
            guest: nodes <= 8 && rng.percent(15),
            recovery_target: rng.percent(40),
            spare: redundant && rng.percent(20),
            spare_patience_ms: rng.pick(&[0, 100, 2_000, 20_000]),
            witnesses: if witnessed { aside.pick(&[1, 1, 2]) } else { 0 },
            whole_rings: aside.pick(&[None, Some(0), Some(0), Some(1), Some(1), Some(3)]),
            limited: aside.percent(50),
            replaces: false,
        };
        // Volumes that carry nothing yet take all of the cluster key.
        scenario.limited &= !scenario.recovery_target && !scenario.spare;
        let marks = redundant && bitmap.is_some() && !scenario.limited;
        scenario.replaces = marks && aside.percent(50);
        scenario.spare |= scenario.replaces;
        if mutation == Some(Mutation::PretendGrant) {
            scenario.whole_rings = Some(0);
        }
        let needed = mutation.is_some_and(Mutation::is_of_whole_stripes);
        scenario.parts_only = journal && family.has_parities() && (needed || rng.percent(50));
        if needed {
            scenario.write_whole_stripes(stripe);
        }
        scenario.keep_apart(&mut aside);
        if let Some(one_by_one) = one_by_one {
            one_by_one.prepare(&mut scenario);
        }
        scenario
    }

    /// Whole stripes of so many sectors are written, and parts of the same ones, again and again.
    fn write_whole_stripes(&mut self, stripe: u64) {
        if self.parts_only {
            self.lives = vec![End::PowerCut; 3];
            self.params.stripes = self.params.stripes.min(2);
            self.largest_sectors = (2 * stripe).clamp(8, MOST_SECTORS);
        } else {
            self.journal_bytes = 0;
            self.lives = vec![End::Stop];
        }
    }

    /// Resolves combinations of troubles that exclude each other.
    fn keep_apart(&mut self, aside: &mut Rng) {
        let journal = self.journal_bytes > 0;
        let cut = self.lives.ends_with(&[End::PowerCut]);
        if !journal && cut {
            // Nothing is rebuilt from sums that may not fit.
            self.recovery_target = false;
            self.spare = false;
            self.bad_sectors = false;
            self.replaces = false;
        }
        if journal && aside.percent(40) {
            // Little room: what is recorded lies upon one another.
            self.params.stripes = self.params.stripes.min(2);
        }
        // Who was lost before all sums fit, and is given back what was lost, may get anything.
        self.bad_sectors &= !self.dirty || !cut;
    }

    /// Returns whether the array can do without these nodes.
    pub fn survives(&self, lost: &[Role]) -> bool {
        let Params { family, nodes, .. } = self.params;
        family.losses(nodes).is_ok_and(|losses| losses.survives(|node| lost.contains(&node)))
    }

    /// Returns whether the voters left after losing `lost` nodes can tell every later client of the
    /// loss.
    fn can_tell(&self, lost: usize) -> bool {
        let nodes = usize::from(self.params.nodes);
        let voters = nodes + usize::from(self.witnesses);
        voters - lost + majority(voters) > voters
    }

    /// Nodes that the array can do without, none of them among `lost`; none when nothing is left.
    pub fn more_losses(&self, rng: &mut Rng, lost: &[Role]) -> Vec<Role> {
        let mut all = lost.to_vec();
        for _ in 0..rng.pick(&[1, 2, 2]) {
            let node = Role(rng.below(u64::from(self.params.nodes)) as u16);
            if !all.contains(&node) {
                all.push(node);
                if !self.survives(&all) || !self.can_tell(all.len()) {
                    all.pop();
                }
            }
        }
        all.split_off(lost.len())
    }
}

/// Writes one by one, each answered before the next comes, that are long to the client, over links
/// on which their slices are long on their way: it sends them in parts.
#[derive(Debug)]
pub(super) struct OneByOne(Rng);

impl OneByOne {
    /// Returns the draw of such a seed, from a generator of its own: other seeds are unchanged.
    pub(super) fn of(rng: &Rng) -> Option<Self> {
        let mut aside = rng.aside(0x6c6f_6e67);
        aside.percent(12).then_some(Self(aside))
    }

    /// Slices of several blocks, unless stripes have very many.
    pub(super) fn lengthen(&mut self, params: Params) -> Params {
        let Params { chunk_bytes, stripes, wide, reads, .. } = params;
        if data_blocks(params.family, params.nodes) >= MANY_BLOCKS {
            return params;
        }
        let bytes = self.0.pick(&[16 << 10, 32 << 10]).max(chunk_bytes);
        let stripes = (stripes * u64::from(chunk_bytes) / u64::from(bytes)).max(1);
        let wide = Slots { bytes, ..wide };
        let reads = Slots { bytes, ..reads };
        Params { chunk_bytes: bytes, stripes, wide, reads, ..params }
    }

    /// Adapts the rest of the scenario.
    pub(super) fn prepare(mut self, scenario: &mut ClusterScenario) {
        let Params { family, nodes, chunk_bytes, .. } = scenario.params;
        let stripe = u64::from(data_blocks(family, nodes)) * u64::from(chunk_bytes) / 512;
        scenario.depth = 1;
        scenario.long_write_bytes = self.0.pick(&[4096, 4096, 32 << 10]);
        scenario.largest_sectors = self.0.pick(&[stripe, 2 * stripe]).min(MOST_SECTORS);
        scenario.profile.net_nanos = self.0.pick(&[1_000_000, 4_000_000]);
        scenario.whole_rings = self.0.pick(&[None, None, Some(1)]);
    }
}

/// A level of md's, with its usual layout.
pub(super) const fn md(level: Level) -> Family {
    Family::Md { level, layout: Layout::default_for(level) }
}

/// Room for a few of the largest slice-sets, or for more.
pub(super) fn journal_bytes(rng: &mut Rng, params: &Params) -> u64 {
    journal_of(params, rng.pick(&[LEAST_SETS, 7, 10, 30]))
}

/// With room for fewer of the largest slice-sets journals are not used.
const LEAST_SETS: u64 = 6;

/// The least journal that is used.
pub(super) fn least_journal_bytes(params: &Params) -> u64 {
    journal_of(params, LEAST_SETS)
}

fn journal_of(params: &Params, sets: u64) -> u64 {
    let rows = params.family.code(params.nodes, 0).map_or(1, |code| code.rows());
    sets * (8192 + u64::from(rows) * u64::from(params.wide.bytes)) + 8192
}

const fn last_end(cut: bool, lossy: bool) -> End {
    if cut {
        End::PowerCut
    } else if lossy {
        End::Loss
    } else {
        End::Stop
    }
}

fn data_blocks(family: Family, nodes: u16) -> u32 {
    family.code(nodes, 0).map_or(1, |code| code.data().len() as u32)
}

fn family(rng: &mut Rng) -> (Family, u16) {
    loop {
        let level = rng.pick(&[
            None,
            None,
            None,
            Some(Level::Raid6),
            Some(Level::Raid5),
            Some(Level::Raid5),
            Some(Level::Raid4),
            Some(Level::Raid0),
            Some(Level::Raid1),
            Some(Level::Raid10),
        ]);
        let Some(level) = level else {
            let large = rng.percent(2);
            let nodes = if large { rng.between(13, 34) } else { rng.between(4, 12) };
            return (Family::Xor2d, nodes as u16);
        };
        let nodes = rng.between(2, 8) as u16;
        let layout = match level {
            Level::Raid10 => rng.pick(&["n2", "n2", "n3", "o2"]),
            Level::Raid5 if rng.percent(40) => {
                rng.pick(&["right-asymmetric", "left-asymmetric", "parity-first", "parity-last"])
            }
            Level::Raid6 if rng.percent(40) => {
                rng.pick(&["right-symmetric", "ddf-N-continue", "left-symmetric-6", "parity-last"])
            }
            _ => "",
        };
        let layout = match layout {
            "" => Layout::default_for(level),
            name => Layout::parse(level, name).expect("a layout of the level"),
        };
        let family = Family::Md { level, layout };
        if family.code(nodes, 0).is_ok() {
            return (family, nodes);
        }
    }
}

pub(super) fn params(rng: &mut Rng, family: Family, nodes: u16) -> Params {
    let code = family.code(nodes, 0).expect("the family has a code");
    let data = code.data().len() as u64;
    let chunks: &[u32] = match data {
        0..16 => &[4096, 8192, 12288, 16384, 32768],
        16..64 => &[4096, 8192],
        _ => &[4096],
    };
    let chunk_bytes = rng.pick(chunks);
    let most = (ARRAY_BYTES / (data * u64::from(chunk_bytes))).clamp(2, 40);
    let stripes = rng.between(1, most);
    let slices = u64::from(chunk_bytes / 4096);
    let wide_bytes = 4096 * rng.between(1, slices) as u32;
    let narrow_bytes = 4096 * rng.between(1, u64::from(wide_bytes / 4096)) as u32;
    let each = u64::from(nodes);
    let most = if data > 64 { 3 } else { 2 * each };
    let slots = |count: u64, bytes| Slots { count: count as u16, bytes };
    let wanted = rng.below(10);
    let params = |planner| Params {
        session: 0,
        epoch: Epoch::BEFORE_ANY,
        family,
        nodes,
        chunk_bytes,
        stripes,
        planner,
        wide: Slots { count: 1, bytes: wide_bytes },
        narrow: Slots { count: 1, bytes: narrow_bytes },
        reads: Slots { count: 1, bytes: wide_bytes },
        silence_ms: 4000,
    };
    let planner = match wanted {
        0..6 => Planner::Encoder { node: Role(0) },
        6..8 => Planner::Chain,
        8 => Planner::Client,
        _ => Planner::Static,
    };
    let chosen = match Pipeline::new(params(planner)) {
        Ok(_) => planner,
        Err(_) => Planner::Encoder { node: Role(0) },
    };
    // Now and then what a user gets, where that does not take too much memory.
    if nodes <= 4
        && rng.percent(10)
        && let Ok(usual) = Params::for_array(family, nodes, chunk_bytes, stripes, chosen)
    {
        return usual;
    }
    let narrow = rng.between(1, most);
    Params {
        // As many as nodes: so there is one with an encoder, whoever is lost.
        wide: slots(each + rng.between(0, most), wide_bytes),
        narrow: slots(narrow, narrow_bytes),
        reads: slots(rng.between(1, 8), wide_bytes),
        silence_ms: 4000,
        ..params(chosen)
    }
}

fn few_positions(params: Params) -> Params {
    let wide = Slots { count: params.nodes, ..params.wide };
    Params { wide, narrow: Slots { count: 1, ..params.narrow }, ..params }
}

pub(super) fn profile(rng: &mut Rng, mutation: Option<Mutation>) -> FaultProfile {
    FaultProfile {
        disk_nanos: rng.pick(&[1_000, 100_000, 2_000_000]),
        net_nanos: rng.pick(&[1_000, 50_000, 1_000_000]),
        compute_nanos: rng.pick(&[1, 1_000, 100_000]),
        slow_permille: rng.pick(&[0, 5, 50]),
        discard_zeroes: rng.percent(50),
        mutation,
        ..FaultProfile::CALM
    }
}

impl fmt::Display for ClusterScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Params { family, nodes, chunk_bytes, stripes, planner, wide, .. } = self.params;
        let name = match family {
            Family::Xor2d => "xor2d".to_owned(),
            Family::Md { level, .. } => level.to_string(),
        };
        write!(
            f,
            "{name} over {nodes} nodes, {stripes} stripes, chunk {}K in {}K, {}{}{}{}, {:?}",
            chunk_bytes >> 10,
            wide.bytes >> 10,
            planner.name(),
            if self.mix { " and mix" } else { "" },
            match (self.journal_bytes, self.parts_only) {
                (0, _) => "",
                (_, false) => ", journals",
                (_, true) => ", ppl",
            },
            ["", ", a witness", ", two witnesses"][usize::from(self.witnesses)],
            self.lives
        )
    }
}
