//! Start of clients from the content of the volumes, with a list of missing nodes.

use braid_array::Role;
use std::collections::BTreeSet;

use braid_array::format::superblock::{MAX_SECTOR, feature};
use braid_array::format::{Bitmap, Superblock};
use braid_cluster::assemble::{Assembly, Candidate, Options, Start, catching_up, decide};
use braid_cluster::client::{ClientConfig, ClientMember, Found};
use braid_cluster::ids::Epoch;
use braid_cluster::pipeline::Params;
use braid_cluster::view::{View, majority};

use super::content::{self, VOLUME};
use super::nodes::Cluster;
use super::promises::Happened;
use super::scenario::ClusterScenario;
use super::session::{Phase, Session};
use crate::disk::Disk;
use crate::report::Failure;

/// Metadata of the present members.
struct Members {
    by_role: Vec<Option<ClientMember>>,
    found: Vec<Option<Found>>,
    bitmap: Option<Bitmap>,
}

impl Cluster {
    /// Judges the volumes of these roles.
    pub(super) fn assembly(&mut self, roles: &[Role]) -> Assembly {
        let candidate = |&role: &Role| content::candidate(self.disk(role), self.address(role));
        let candidates: Vec<Candidate> = roles.iter().filter_map(candidate).collect();
        let assembly = decide(&candidates, Options { unclean: true, ..Options::default() });
        self.world.note(&[79], || {
            let why = match &assembly.start {
                Start::Ready(_) => "",
                Start::Refused(why) => why.reason.as_str(),
            };
            format!("ASSEMBLES {:?} {why}", assembly.verdicts)
        });
        assembly
    }

    /// Returns the configuration of a client of the array on these roles, if it can start.
    pub(super) fn assembled(&mut self, roles: &[Role]) -> Option<ClientConfig> {
        let Start::Ready(plan) = self.assembly(roles).start else { return None };
        self.has_stripes(plan.stripes);
        let params = Params { session: self.rng.next(), epoch: Epoch(1), ..self.scenario.params };
        let config = ClientConfig::new(params, plan.members);
        let found = plan.found;
        let bitmap = plan.bitmap;
        let mix = self.scenario.mix;
        let long_write_bytes = self.scenario.long_write_bytes;
        Some(ClientConfig { found, bitmap, mix, long_write_bytes, ..config })
    }
}

impl Session {
    /// Returns whether the start is forced: the operator declares that missing nodes are off, as
    /// also nodes that die in the middle of the start. The start is forced where too few voters
    /// would be left.
    fn is_forced(&mut self, missing: &[Role], read_only: bool) -> bool {
        // It is about this start, whether anybody would have to force it or not.
        let unforced = std::mem::take(&mut self.unforced);
        let nodes = usize::from(self.cluster.scenario.params.nodes);
        let there = nodes - missing.len() + self.cluster.witnesses_there();
        let few = there < majority(nodes + self.cluster.witnesses.len()) + 2;
        // Before a client has served nothing says that parts of stripes alone are in doubt.
        let parts = self.cluster.scenario.parts_only
            && self.cluster.newest_says(missing, feature::NODE_JOURNALS);
        let doubt = !self.promises.all_fits && (!parts || read_only);
        let forced = nodes <= 4 || !missing.is_empty() && (few || doubt);
        (forced || self.cluster.lacks_votes()) && !unforced
    }

    /// Starts a client without the `missing` nodes.
    pub fn start_client(&mut self, missing: &[Role], read_only: bool) -> Result<(), Failure> {
        self.begun = (missing.to_vec(), self.unforced);
        self.drop_departed();
        self.cluster.epoch = self.cluster.epoch.next();
        let journals =
            self.cluster.scenario.journal_bytes > 0 && !self.cluster.some_are_unrecorded(missing);
        // What others lost is in their journals.
        let recorded = |view: &View| {
            let there =
                |role: &Role| !missing.contains(role) && !self.promises.dropped.contains(role);
            journals
                && (0..)
                    .map(Role)
                    .zip(&view.members)
                    .all(|(role, member)| member.is_some() || !there(&role))
        };
        let kept = |view: &View| self.cluster.have_kept_enough(view, missing);
        let fits = |view: View| !view.torn && (kept(&view) || recorded(&view));
        let all_fits = !read_only && self.cluster.newest_view().is_some_and(fits);
        self.promises.heard(Happened::ClientBegins { all_fits });
        let params = Params {
            session: self.cluster.rng.next(),
            epoch: self.cluster.epoch,
            ..self.cluster.scenario.params
        };
        // Who only reads does without nodes that are behind.
        let behind = if read_only { Vec::new() } else { self.promises.dropped.clone() };
        let out = |role: &Role| {
            missing.contains(role) || read_only && self.promises.dropped.contains(role)
        };
        let missing: Vec<Role> = Role::all(params.nodes).filter(out).collect();
        let members = self.members(&missing, &behind, journals && self.promises.all_fits)?;
        let Members { by_role, found, bitmap } = members;
        let force = self.is_forced(&missing, read_only);
        let ClusterScenario { mix, long_write_bytes, .. } = self.cluster.scenario;
        let config = ClientConfig { found, ..ClientConfig::new(params, by_role) };
        let absent = self.cluster.absent(&missing, read_only);
        let spares = if read_only { Vec::new() } else { self.spares() };
        let spare_patience_ms = self.cluster.scenario.spare_patience_ms;
        let config = ClientConfig { absent, spares, spare_patience_ms, long_write_bytes, ..config };
        let config = ClientConfig { bitmap, read_only, mix, force, ..config };
        let slots = self.cluster.scenario.depth as u64 * self.cluster.slot_bytes();
        let name = format!("client {}", self.cluster.epoch);
        let limit = self.cluster.limit();
        let client = self.cluster.world.start_client(&name, config, slots, limit);
        self.client = client.map_err(Failure)?;
        let sectors = self.cluster.world.processes[self.client].client().array_sectors();
        if sectors != self.cluster.layout.sectors() {
            return Err(Failure(format!("the array has {sectors} sectors")));
        }
        let slot_bytes = self.cluster.slot_bytes();
        self.judge.client_begins(self.client, self.cluster.scenario.depth, slot_bytes);
        self.waiting = None;
        self.phase = Phase::Starting;
        self.cluster.world.begin();
        Ok(())
    }

    /// Starts a client in place of one whose metadata changed before it was granted the array.
    pub(super) fn start_again(&mut self) -> Result<(), Failure> {
        self.cluster.world.kill(self.client);
        let (missing, unforced) = std::mem::take(&mut self.begun);
        self.unforced = unforced;
        self.start_client(&missing, false)
    }

    /// Reads the volumes, without the `missing` nodes. Members that are `behind` will be given the
    /// writes they missed.
    fn members(
        &mut self,
        missing: &[Role],
        behind: &[Role],
        recorded: bool,
    ) -> Result<Members, Failure> {
        let roles = Role::all(self.cluster.scenario.params.nodes);
        let current = |role: &Role| !missing.contains(role) && !behind.contains(role);
        let disks: Vec<&Disk> =
            roles.clone().filter(current).map(|role| self.cluster.disk(role)).collect();
        let bitmap = content::bitmap(&disks).map_err(Failure)?;
        let superblocks = disks.iter().filter_map(|disk| content::superblock(disk).ok());
        let superblocks: Vec<Superblock> = superblocks.collect();
        let mut numbers: BTreeSet<u32> = superblocks.iter().map(|own| own.dev_number).collect();
        let newest = superblocks.into_iter().max_by_key(|superblock| superblock.events);
        let mut by_role = Vec::new();
        let mut all_found = Vec::new();
        for role in roles {
            if missing.contains(&role) {
                by_role.push(None);
                all_found.push(None);
                continue;
            }
            let found = content::found(self.cluster.disk(role)).map_err(Failure)?;
            let mut superblock = found.superblock.clone();
            let older = |newest: &&Superblock| superblock.events + 1 < newest.events;
            if behind.contains(&role)
                && let Some(newest) = newest.as_ref().filter(older)
            {
                let since = bitmap.as_ref().map(|bitmap| bitmap.superblock.events_cleared);
                // One that never had all of its role lacks more.
                let had_all = !superblock.has(feature::RECOVERY_OFFSET)
                    || superblock.has(feature::RECOVERY_BITMAP);
                let marked = had_all && since.is_some_and(|since| superblock.events >= since);
                superblock = catching_up(&superblock, newest, marked, &numbers);
                numbers.insert(superblock.dev_number);
            }
            let clean = superblock.resync_offset == MAX_SECTOR;
            self.promises.heard(Happened::MemberFound { clean, recorded });
            let address = self.cluster.address(role);
            let volume = VOLUME.to_owned();
            let bad_blocks = content::bad_blocks(self.cluster.disk(role), &found.superblock);
            let bad_blocks = bad_blocks.map_err(|error| Failure(error.to_string()))?;
            by_role.push(Some(ClientMember { address, volume, superblock, bad_blocks }));
            all_found.push(Some(found));
        }
        Ok(Members { by_role, found: all_found, bitmap })
    }
}
