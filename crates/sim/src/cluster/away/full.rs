//! Stores of nodes that become full while the array is written, and get room later. What has room
//! in them already can be written, as in files with holes. Until there is room writes wait, or the
//! array goes on without members that it can do without, whoever dies meanwhile; nothing fails, and
//! nothing that was answered is lost.

use braid_array::Role;
use braid_array::status::{ArrayState, MemberState, MemberStatus};

use super::larger::{self, Mishap};
use super::{Away, VOLUME};
use crate::cluster::content;
use crate::cluster::nodes::Cluster;
use crate::cluster::scenario::ClusterScenario;
use crate::report::Failure;
use crate::rng::Rng;

/// Number of times that stores become full.
const ROUNDS: u64 = 3;

const MISHAPS: [Mishap; 5] =
    [Mishap::Nothing, Mishap::Link, Mishap::Client, Mishap::Power, Mishap::Node];

/// Returns whether the seed is such a run. Drawn from a generator of its own, so that other seeds
/// are unchanged.
pub(in crate::cluster) fn is_due(seed: u64) -> bool {
    Rng::new(seed ^ 0x0066_756c_6c00).percent(4)
}

/// Draws the scenario of such a seed.
pub(in crate::cluster) fn draw(rng: &mut Rng) -> ClusterScenario {
    larger::draw(rng)
}

/// Fills stores several times, then judges the content.
pub(in crate::cluster) fn run(cluster: &mut Cluster) -> Result<(), Failure> {
    leave_holes(cluster);
    let sectors = cluster.layout.sectors();
    let mut away = Away::of(cluster, sectors)?;
    for _ in 0..ROUNDS {
        away.come_back()?;
        let before = away.cluster.rng.between(1, 12);
        away.work(before)?;
        away.run_full()?;
    }
    away.come_back()?;
    away.work(12)?;
    away.finish()?;
    away.judge_volumes()
}

/// Volumes are files with holes, but for what they have been made with.
fn leave_holes(cluster: &mut Cluster) {
    let journal = cluster.rng.percent(70);
    let journal_sectors = cluster.world.journal_sectors;
    for role in Role::all(cluster.scenario.params.nodes) {
        let node = cluster.node(role);
        let disk = &mut cluster.world.processes[node].volume_mut(VOLUME).disk;
        disk.has_holes();
        disk.give_room(0, content::DATA_SECTOR);
        if journal {
            disk.give_room(disk.sectors() - journal_sectors, journal_sectors);
        }
    }
}

impl Away<'_> {
    /// Stores become full, something happens, and there is room again.
    fn run_full(&mut self) -> Result<(), Failure> {
        let mishap = self.draw_mishap();
        let longest = self.cluster.rng.pick(&[20, 200, 2_000]);
        let mut full: Vec<Role> = Role::all(self.cluster.scenario.params.nodes).collect();
        while self.cluster.rng.percent(40) && full.len() > 1 {
            full.remove(self.cluster.rng.index(full.len()));
        }
        self.cluster.note(&[110], || format!("FULL {full:?}, {mishap:?}"));
        self.cluster.world.begin();
        for &role in &full {
            self.set_full(role, true);
            self.goes_on_for(3)?;
        }
        self.goes_on_for(longest)?;
        self.befall(mishap)?;
        self.goes_on_for(longest)?;
        while !full.is_empty() {
            let role = full.remove(self.cluster.rng.index(full.len()));
            self.cluster.note(&[111, role.0.into()], || format!("ROOM {role}"));
            self.set_full(role, false);
            let between = self.cluster.rng.pick(&[1, 20, 400]);
            self.goes_on_for(between)?;
        }
        Ok(())
    }

    fn set_full(&mut self, role: Role, full: bool) {
        let node = self.cluster.node(role);
        self.cluster.world.processes[node].volume_mut(VOLUME).disk.set_full(full);
    }

    /// Where journals do not hold everything, who is lost for lack of room takes along what makes
    /// up for the memory of another.
    fn draw_mishap(&mut self) -> Mishap {
        let has_parities = self.cluster.scenario.params.family.has_parities();
        let mishaps: &[Mishap] = match (self.is_recorded(), has_parities) {
            (true, _) => &MISHAPS,
            (false, false) => &MISHAPS[..4],
            (false, true) => &MISHAPS[..3],
        };
        self.cluster.rng.pick(mishaps)
    }

    /// Returns whether journals hold all that is answered.
    const fn is_recorded(&self) -> bool {
        let ClusterScenario { journal_bytes, parts_only, .. } = self.cluster.scenario;
        journal_bytes > 0 && !parts_only
    }

    fn befall(&mut self, mishap: Mishap) -> Result<(), Failure> {
        let role = Role(self.cluster.rng.below(self.cluster.scenario.params.nodes.into()) as u16);
        match mishap {
            Mishap::Nothing => {}
            Mishap::Link => self.cluster.world.disconnect(self.cluster.node(role), self.client),
            Mishap::Client => self.another()?,
            Mishap::Node => {
                self.cluster.kill(role);
                let longest = self.cluster.rng.pick(&[1, 100, 1_000]);
                self.goes_on_for(longest)?;
                self.cluster.reboot(role);
            }
            Mishap::Power => {
                // Before a resync is over a client does not know that all flushed data is there:
                // the array must not wait again, or a flush would fail.
                if !self.is_recorded() {
                    let all = Role::all(self.cluster.scenario.params.nodes);
                    all.for_each(|role| self.set_full(role, false));
                }
                self.cut_power()?;
            }
        }
        Ok(())
    }

    fn another(&mut self) -> Result<(), Failure> {
        self.cluster.world.kill(self.client);
        self.judge.client_ends(self.client);
        self.begin_another()
    }

    /// Some steps, with requests.
    fn goes_on_for(&mut self, longest: u64) -> Result<(), Failure> {
        for _ in 0..self.cluster.rng.below(longest + 1) {
            self.sometimes_submit(30);
            self.step()?;
            self.start_refused()?;
        }
        Ok(())
    }

    /// Starts another client in the place of one that was refused at its start.
    fn start_refused(&mut self) -> Result<(), Failure> {
        let status = self.cluster.status_of(self.client);
        let refused = status.state == ArrayState::Failed && status.waiting.is_none();
        if refused { self.another() } else { Ok(()) }
    }

    /// There is room: all come back. Who was given up for lack of it comes back to the next client.
    fn come_back(&mut self) -> Result<(), Failure> {
        self.cluster.world.begin();
        while !self.is_whole() {
            self.start_refused()?;
            if self.leaves_one_out() {
                self.another()?;
            }
            if !self.step()? {
                let status = self.cluster.status_of(self.client);
                return Err(Failure(format!("comes to rest as {status:?}")));
            }
        }
        Ok(())
    }

    /// Returns whether the client serves without a member that it does not wait for.
    fn leaves_one_out(&mut self) -> bool {
        let status = self.cluster.status_of(self.client);
        let serves = status.state != ArrayState::Failed && status.waiting.is_none();
        let given_up = |member: &MemberStatus| {
            member.state == MemberState::Faulty && !member.awaited && member.refused.is_none()
        };
        serves && status.members.iter().any(given_up)
    }
}
