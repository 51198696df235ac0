//! An array that gets another size while it serves: its volumes become longer. At any moment of
//! that a node or the client may die, nodes be out of reach, or everything lose power. Whatever
//! superblocks tell afterwards, the content is there, and what is new reads as zeroes.

use braid_array::action::{Command, CommandId};
use braid_array::grow::Grow;
use braid_array::level::Level;
use braid_array::{Role, SECTOR_BYTES};
use braid_cluster::Family;

use super::{Away, BLOCK_SECTORS};
use crate::cluster::nodes::Cluster;
use crate::cluster::scenario::ClusterScenario;
use crate::report::Failure;
use crate::rng::Rng;

/// The command that gives the array another size.
pub(super) const GROW: CommandId = CommandId(2);
/// Number of times that it does.
const ROUNDS: u64 = 3;

/// Event while the array gets another size, or its stores are full.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mishap {
    Nothing,
    /// A node dies, and comes back later.
    Node,
    /// A node cannot be reached for a moment.
    Link,
    /// The client dies, and another one comes.
    Client,
    /// All lose power.
    Power,
}

/// Returns whether the seed is such a run. Drawn from a generator of its own, so that other seeds
/// are unchanged.
pub(in crate::cluster) fn is_due(seed: u64) -> bool {
    Rng::new(seed ^ 0x006c_6172_6765_7200).percent(4)
}

/// Draws the scenario of such a seed.
pub(in crate::cluster) fn draw(rng: &mut Rng) -> ClusterScenario {
    loop {
        let scenario = ClusterScenario::draw(rng, None);
        let level0 = matches!(scenario.params.family, Family::Md { level: Level::Raid0, .. });
        if !level0 && scenario.params.chunk_bytes.is_power_of_two() {
            return ClusterScenario {
                dirty: false,
                bad_sectors: false,
                guest: false,
                witnesses: 0,
                ..scenario
            };
        }
    }
}

/// Gives the array another size several times, then judges the content.
pub(in crate::cluster) fn run(cluster: &mut Cluster) -> Result<(), Failure> {
    let stripes = cluster.scenario.params.stripes;
    let sizes: Vec<u64> = (0..ROUNDS)
        .scan(stripes, |stripes, _| {
            *stripes += cluster.rng.between(1, (*stripes).clamp(1, 40));
            Some(*stripes)
        })
        .collect();
    let most = sizes.last().map_or(stripes, |&most| most);
    let sectors = cluster.layout.sectors() / stripes * most;
    let mut away = Away::of(cluster, sectors)?;
    for stripes in sizes {
        let trouble = away.draw_trouble();
        away.grow(stripes, trouble)?;
        if away.cluster.scenario.params.stripes != stripes {
            away.grow(stripes, Mishap::Nothing)?;
        }
        if away.cluster.scenario.params.stripes != stripes {
            return Err(Failure(format!("has not grown to {stripes} stripes: {:?}", away.grown)));
        }
        away.blocks = away.cluster.layout.sectors() / BLOCK_SECTORS;
    }
    away.work_some()?;
    away.finish()?;
    away.judge_volumes()
}

impl Away<'_> {
    fn work_some(&mut self) -> Result<(), Failure> {
        self.be_whole()?;
        let requests = self.cluster.rng.between(1, 30);
        self.work(requests)
    }

    fn draw_trouble(&mut self) -> Mishap {
        let rng = &mut self.cluster.rng;
        rng.pick(&[
            Mishap::Nothing,
            Mishap::Node,
            Mishap::Link,
            Mishap::Client,
            Mishap::Client,
            Mishap::Power,
            Mishap::Power,
        ])
    }

    /// Gives the array another size while requests come, with a trouble at any moment. The array
    /// is whole again afterwards, and of one of the two sizes: of the new one if the command
    /// succeeded.
    fn grow(&mut self, stripes: u64, trouble: Mishap) -> Result<(), Failure> {
        let rows = u64::from(self.cluster.layout.code(0).rows());
        let bytes = stripes * rows * u64::from(self.cluster.scenario.params.chunk_bytes);
        let sectors = bytes / SECTOR_BYTES;
        self.work_some()?;
        self.cluster.note(&[83, stripes], || format!("GROW to {stripes} stripes, {trouble:?}"));
        self.cluster.world.begin();
        self.grown = None;
        let grow = Grow::Size(Some(sectors));
        self.cluster.world.command(self.client, GROW, Command::Grow(grow));
        let longest = self.cluster.rng.pick(&[10, 100, 400, 2_000]);
        let moment = self.cluster.rng.below(longest);
        for _ in 0..moment {
            if self.grown.is_some() {
                break;
            }
            self.sometimes_submit(20);
            self.step()?;
        }
        let role = Role(self.cluster.rng.below(self.cluster.scenario.params.nodes.into()) as u16);
        match trouble {
            Mishap::Nothing => self.await_growth()?,
            Mishap::Node => {
                self.cluster.kill(role);
                for _ in 0..self.cluster.rng.below(2_000) {
                    self.sometimes_submit(20);
                    self.step()?;
                }
                self.cluster.reboot(role);
                self.await_growth()?;
            }
            Mishap::Link => {
                self.cluster.world.disconnect(self.cluster.node(role), self.client);
                self.await_growth()?;
            }
            Mishap::Client => {
                self.cluster.world.kill(self.client);
                self.judge.client_ends(self.client);
                self.begin_another()?;
            }
            Mishap::Power => self.cut_power()?,
        }
        self.be_whole()?;
        let grown = self.cluster.scenario.params.stripes == stripes;
        match &self.grown {
            Some(Ok(())) if !grown => Err(Failure("it has the old size".to_owned())),
            Some(Err(why)) if matches!(trouble, Mishap::Nothing) => {
                Err(Failure(format!("it may not grow: {why}")))
            }
            _ => Ok(()),
        }
    }

    fn await_growth(&mut self) -> Result<(), Failure> {
        self.cluster.world.begin();
        while self.grown.is_none() {
            self.sometimes_submit(20);
            if !self.step()? {
                return Err(Failure("the command is not answered".to_owned()));
            }
        }
        Ok(())
    }

    pub(super) fn cut_power(&mut self) -> Result<(), Failure> {
        self.cluster.world.kill(self.client);
        self.judge.client_ends(self.client);
        for role in Role::all(self.cluster.scenario.params.nodes) {
            self.cluster.kill(role);
        }
        let mut disks = self.cluster.take_disks();
        for disk in &mut disks {
            disk.power_cut(&mut self.cluster.rng);
        }
        self.judge.oracle.power_cut();
        self.cluster.start_nodes(disks);
        self.begin_another()
    }
}
