//! Assembly of an array over nodes from the superblocks on volumes. The members are judged by the
//! rules for local ones, except that no role is rebuilt yet. Nothing is written.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use braid_array::assemble as local;
use braid_array::assemble::{Standing, Verdict};
use braid_array::format::superblock::{MAX_DEV, MAX_SECTOR, feature};
use braid_array::format::{
    BadBlocks, BadBlocksError, Bitmap, BitmapError, DevRole, Superblock, SuperblockError,
};
use braid_array::level::{Layout, Level, ParityLayout};
use braid_array::refusal::Invocation;
use braid_array::{Refusal, Role, SECTOR_BYTES};

use crate::family::{Family, XOR2D_MD_LEVEL};
use crate::member::{ClientMember, Found};
pub use crate::member::{member_name, member_parts};
use crate::pipeline::Params;

#[cfg(test)]
mod tests;

/// Sector at which the superblock of a volume begins: metadata 1.2 alone is used over nodes.
pub const SUPERBLOCK_SECTOR: u64 = 8;

/// A volume, and the metadata that was found on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Where its node listens, `HOST:PORT`.
    pub address: String,
    /// Its name there.
    pub volume: String,
    /// Its size.
    pub bytes: u64,
    /// The superblock, or the reason why there is none to trust.
    pub superblock: Result<Superblock, SuperblockError>,
    /// The bitmap, when the superblock says that there is one.
    pub bitmap: Option<Result<Bitmap, BitmapError>>,
    /// Entries of its bad-block log, or the reason why the log is not to be trusted.
    pub bad_blocks: Result<BadBlocks, BadBlocksError>,
}

/// Options of an assembly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Take stale members where there are too few current ones, and start a degraded parity array
    /// that is not clean.
    pub force: bool,
    /// Serve reads only.
    pub read_only: bool,
    /// Start a degraded parity array that is not clean: the nodes are asked whether its parities
    /// fit.
    pub unclean: bool,
}

/// Result of judging the candidates.
#[derive(Clone, Debug)]
pub struct Assembly {
    /// For each candidate, in the order given: its name and its verdict.
    pub verdicts: Vec<(String, Verdict)>,
    /// The superblock that counts; `None` when no candidate has one.
    pub newest: Option<Box<Superblock>>,
    /// Whether the array can be started.
    pub start: Start,
}

/// Answer to whether the array can be started.
#[derive(Clone, Debug)]
pub enum Start {
    /// Yes.
    Ready(Box<Startable>),
    /// No.
    Refused(Refusal),
}

/// An array that can be started.
#[derive(Clone, Debug)]
pub struct Startable {
    /// The code.
    pub family: Family,
    /// Length of a block.
    pub chunk_bytes: u32,
    /// Stripes.
    pub stripes: u64,
    /// By role; `None` where it is missing. Their superblocks combine the newest one's description
    /// of the array with their own of the device.
    pub members: Vec<Option<ClientMember>>,
    /// By role, the metadata that was found on them.
    pub found: Vec<Option<Found>>,
    /// Members that replace a member that stays away.
    pub spares: Vec<ClientMember>,
    /// The bitmap, when the array has one: all members' bits.
    pub bitmap: Option<Bitmap>,
    /// Not stopped cleanly.
    pub dirty: bool,
    /// Only the parts that the bitmap marks have to be resynced then.
    pub by_bitmap: bool,
    /// Serves reads only.
    pub read_only: bool,
}

impl Startable {
    /// Returns the number of missing members.
    #[must_use]
    pub fn degraded(&self) -> usize {
        self.members.iter().filter(|member| member.is_none()).count()
    }

    /// Returns the number of members that are there and lack content, which they will be given.
    #[must_use]
    pub fn behind(&self) -> usize {
        let lacks = |member: &&ClientMember| {
            member.superblock.has(feature::RECOVERY_OFFSET) && !member.was_made_faulty()
        };
        self.members.iter().flatten().filter(lacks).count()
    }

    /// Returns the number of members that are there and stay out, since a command made them faulty.
    #[must_use]
    pub fn made_faulty(&self) -> usize {
        self.members.iter().flatten().filter(|member| member.was_made_faulty()).count()
    }
}

impl Candidate {
    /// Returns the member name.
    #[must_use]
    pub fn name(&self) -> String {
        member_name(&self.address, &self.volume)
    }

    /// Returns the member on this volume, with this superblock.
    fn with(&self, superblock: Superblock) -> ClientMember {
        let address = self.address.clone();
        let volume = self.volume.clone();
        let bad_blocks = self.bad_blocks.clone().unwrap_or_default();
        ClientMember { address, volume, superblock, bad_blocks }
    }

    /// Returns the candidate in the local form for an array that is to be served: journals are
    /// replayed before that.
    fn to_local(&self) -> local::Candidate {
        let local = self.as_it_lies();
        local::Candidate { superblock: local.superblock.map(replayed), ..local }
    }

    /// Returns the candidate in the local form for an array that is stopped.
    pub(crate) fn as_it_lies(&self) -> local::Candidate {
        local::Candidate {
            device: self.name(),
            device_sectors: self.bytes / SECTOR_BYTES,
            superblock: self.superblock.clone().map(as_raid6),
            bad_blocks: self.bad_blocks.clone(),
            bitmap: self.bitmap.clone(),
            log: None,
        }
    }
}

/// Returns the superblock with the 2-D XOR code shown as raid6, for the judgement of members: the
/// numbers of members and of losses agree.
fn as_raid6(superblock: Superblock) -> Superblock {
    if superblock.level != XOR2D_MD_LEVEL {
        return superblock;
    }
    let layout = Layout::Parity(ParityLayout::LeftSymmetric).encode();
    Superblock { level: Level::Raid6.to_md(), layout, ..superblock }
}

/// Returns the superblock after a replay of journals, which comes before the array is served and
/// makes it clean. The client finds out whether the replay suffices. A move of data to another
/// array says nothing of the members.
fn replayed(superblock: Superblock) -> Superblock {
    let recorded = superblock.has(feature::NODE_JOURNALS);
    let resync_offset = if recorded { MAX_SECTOR } else { superblock.resync_offset };
    let feature_map = superblock.feature_map & !feature::OVER_NODES;
    Superblock { feature_map, resync_offset, ..superblock }
}

/// Decides which candidates are in, and whether the array can be started.
#[must_use]
pub fn decide(candidates: &[Candidate], options: Options) -> Assembly {
    let judged = judge(candidates, options);
    // The one that counts, with the level it has.
    let stored = |newest: &Superblock| {
        let same = |sb: &&Superblock| {
            sb.set_uuid == newest.set_uuid && sb.device_uuid == newest.device_uuid
        };
        candidates.iter().filter_map(|c| c.superblock.as_ref().ok()).find(same).cloned()
    };
    let newest = judged.newest.as_deref().and_then(stored).map(Box::new);
    let start = match (&newest, judged.start) {
        (Some(newest), local::Start::Ready { config, by_bitmap, .. }) => {
            match plan(newest, (&config, &judged.verdicts), candidates, options) {
                Ok(plan) => Start::Ready(Box::new(Startable { by_bitmap, ..plan })),
                Err(refusal) => Start::Refused(refusal),
            }
        }
        (_, local::Start::Refused { reason, mut next, .. }) => {
            // Over nodes nobody has to say it.
            if let Some(Invocation::Assemble { options, .. }) = next.invocation.as_deref_mut() {
                options.run = false;
            }
            Start::Refused(Refusal { reason, next })
        }
        (_, local::Start::Halfway(halfway)) => {
            let reason = halfway.description();
            Start::Refused(Refusal::new(reason, "name its members as files or devices"))
        }
        (None, local::Start::Ready { .. }) => {
            unreachable!("an array that can be started has a superblock")
        }
    };
    Assembly { verdicts: judged.verdicts, newest, start }
}

/// Judges the candidates, except for volumes that have lost their superblock. These do not prevent
/// a start: they are candidates because their node was named.
fn judge(candidates: &[Candidate], options: Options) -> local::Assembly {
    let blank = |candidate: &Candidate| candidate.superblock == Err(SuperblockError::NoMagic);
    if candidates.iter().all(blank) {
        return judge_all(candidates, options);
    }
    let others: Vec<_> = candidates.iter().filter(|one| !blank(one)).cloned().collect();
    let mut judged = judge_all(&others, options);
    let mut verdicts = judged.verdicts.into_iter();
    let verdict = |candidate: &Candidate| {
        if !blank(candidate) {
            return verdicts.next();
        }
        let reason = SuperblockError::NoMagic.to_string();
        Some((candidate.name(), Verdict::Unreadable { reason }))
    };
    judged.verdicts = candidates.iter().filter_map(verdict).collect();
    judged
}

fn judge_all(candidates: &[Candidate], options: Options) -> local::Assembly {
    let candidates: Vec<_> = candidates.iter().map(Candidate::to_local).collect();
    let local = local::Options { force: options.force, run: true, read_only: options.read_only };
    let judged = local::decide(candidates.clone(), local);
    if options.unclean && matches!(judged.start, local::Start::Refused { could_force: true, .. }) {
        // Force may do that alone, and take nobody in who is stale.
        let forced = local::decide(candidates, local::Options { force: true, ..local });
        if forced.verdicts == judged.verdicts {
            return forced;
        }
    }
    judged
}

const LOCALLY: &str = "assemble the members as local files, on one machine";

fn plan(
    newest: &Superblock,
    (config, verdicts): (&local::Config, &[(String, Verdict)]),
    candidates: &[Candidate],
    options: Options,
) -> Result<Startable, Refusal> {
    let nodes = newest.raid_disks;
    let impossible = |reason: &str| Refusal::new(reason, "use another array");
    let family = Family::decode(newest.level, newest.layout, nodes)?;
    let nodes = u16::try_from(nodes).map_err(|_| impossible("too many members"))?;
    let code = family.code(nodes, 0)?;
    // A mirror has no chunks; any length will do for the blocks.
    let chunk_bytes = match newest.chunk_sectors.checked_mul(512) {
        Some(0) => Params::default_chunk_bytes(family, nodes)?,
        Some(bytes) => bytes,
        None => return Err(impossible("the chunk is out of range")),
    };
    let mut members: Vec<Option<ClientMember>> = vec![None; usize::from(nodes)];
    let has_newest = |member: &local::MemberConfig| {
        member.standing != Standing::Spare && member.superblock.events == newest.events
    };
    let one_has_newest = config.members.iter().any(has_newest);
    let mut sizes = Vec::new();
    let mut spares = Vec::new();
    for member in &config.members {
        if let (Standing::Spare, Some(found)) =
            (member.standing, candidates.iter().find(|c| c.name() == member.device))
        {
            spares.push(found.with(member.superblock.clone()));
            continue;
        }
        let (Standing::InSync { role } | Standing::Rebuilding { role, replacement: false, .. }) =
            member.standing
        else {
            continue;
        };
        let Some(place) = members.get_mut(role.index()) else { continue };
        let Some(found) = candidates.iter().find(|c| c.name() == member.device) else { continue };
        let Ok(own) = &found.superblock else { continue };
        sizes.push(if newest.size_sectors == 0 { own.data_size } else { newest.size_sectors });
        let roles = config.superblock.roles.clone();
        let superblock = Superblock { roles, ..as_held(own, newest, member, one_has_newest) };
        *place = Some(found.with(superblock));
    }
    if !options.read_only {
        let behind = left_behind(newest, verdicts, candidates, (&members, &spares));
        for (role, member) in behind {
            members[role.index()] = Some(member);
        }
    }
    let stripe_sectors = u64::from(code.rows()) * (u64::from(chunk_bytes) / SECTOR_BYTES);
    let in_blocks = chunk_bytes.is_multiple_of(4096);
    let stripes = if in_blocks { whole_stripes(&sizes, stripe_sectors) } else { None };
    let Some(stripes) = stripes else {
        return Err(Refusal::new("its members do not consist of whole stripes", LOCALLY));
    };
    Ok(Startable {
        family,
        chunk_bytes,
        stripes,
        bitmap: config.bitmap.clone(),
        dirty: newest.resync_offset != MAX_SECTOR,
        by_bitmap: false,
        read_only: options.read_only,
        found: members.iter().map(|member| found_on(member.as_ref()?, candidates)).collect(),
        members,
        spares,
    })
}

/// Returns the metadata that was found on a member.
fn found_on(member: &ClientMember, candidates: &[Candidate]) -> Option<Found> {
    let is_it = |c: &&Candidate| c.address == member.address && c.volume == member.volume;
    let candidate = candidates.iter().find(is_it)?;
    let superblock = candidate.superblock.clone().ok()?;
    let bitmap = candidate.bitmap.as_ref().and_then(|bitmap| bitmap.clone().ok());
    Some(Found { superblock, bitmap })
}

/// Returns the members that the array went on without, by role where no other member has it. These
/// members have a vote, and are given the content that they missed.
fn left_behind(
    newest: &Superblock,
    verdicts: &[(String, Verdict)],
    candidates: &[Candidate],
    (members, spares): (&[Option<ClientMember>], &[ClientMember]),
) -> BTreeMap<Role, ClientMember> {
    let number = |member: &ClientMember| member.superblock.dev_number;
    let mut numbers: BTreeSet<u32> = members.iter().flatten().chain(spares).map(number).collect();
    let mut behind = BTreeMap::new();
    // Who was given a role later goes on with it, however little of it that is: who had it before
    // was failed or replaced.
    let rank = |found: &Candidate| {
        let own = found.superblock.as_ref();
        own.map_or((false, 0), |own| {
            (newest.role_of(own.dev_number) != DevRole::Faulty, own.events)
        })
    };
    let mut order: Vec<_> = candidates.iter().zip(verdicts).collect();
    order.sort_by_key(|(found, _)| Reverse(rank(found)));
    for (found, (_, verdict)) in order {
        let (Verdict::Stale { re_add_possible, .. }, Ok(own)) = (verdict, &found.superblock) else {
            continue;
        };
        let DevRole::Active(role) = own.role() else { continue };
        let vacant = members.get(role.index()).is_some_and(Option::is_none);
        let needed_bytes = own.data_offset.saturating_add(newest.size_sectors) * SECTOR_BYTES;
        // A copy of the volume from before it became longer holds no member any more.
        let vacant = vacant && found.bytes >= needed_bytes;
        if vacant && !behind.contains_key(&role) {
            let superblock = catching_up(own, newest, *re_add_possible, &numbers);
            numbers.insert(superblock.dev_number);
            behind.insert(role, found.with(superblock));
        }
    }
    behind
}

/// Returns the superblock with the latest update, also where that made the array larger.
fn with_size(own: &Superblock, newest: &Superblock) -> Superblock {
    let data_size = own.data_size.max(newest.size_sectors);
    Superblock { data_size, ..own.with_news_of(newest) }
}

/// Returns the superblock of a member that has its role. If any member `has_newest`, members that
/// missed the last update get that update first, before there is another one.
fn as_held(
    own: &Superblock,
    newest: &Superblock,
    member: &local::MemberConfig,
    has_newest: bool,
) -> Superblock {
    let events = if has_newest { own.events } else { newest.events };
    let mut superblock = Superblock { events, ..with_size(own, newest) };
    if matches!(member.standing, Standing::InSync { .. }) {
        // It may have been rebuilt to its end, and not have heard of that.
        superblock.feature_map &= !(feature::RECOVERY_OFFSET | feature::RECOVERY_BITMAP);
    }
    superblock
}

/// Returns the superblock of a member that was left behind, as one that is being rebuilt; `marked`:
/// only where the bitmap says so. Another member may have got its number while it was away: then it
/// gets the lowest number that is not `taken`.
#[must_use]
pub fn catching_up(
    own: &Superblock,
    newest: &Superblock,
    marked: bool,
    taken: &BTreeSet<u32>,
) -> Superblock {
    let mut superblock = with_size(own, newest);
    if taken.contains(&superblock.dev_number) {
        // Nor is it that of one that was made faulty, as long as there are others.
        let free = |number: &u32| !taken.contains(number);
        let made_faulty = |number: u32| newest.role_of(number) == DevRole::Faulty;
        let unused = (0..MAX_DEV).filter(free).find(|number| !made_faulty(*number));
        superblock.dev_number = unused.or_else(|| (0..).find(free)).unwrap_or(0);
    }
    superblock.recovery_offset = 0;
    superblock.feature_map |= feature::RECOVERY_OFFSET;
    if marked {
        superblock.feature_map |= feature::RECOVERY_BITMAP;
    } else {
        superblock.feature_map &= !feature::RECOVERY_BITMAP;
    }
    superblock
}

/// Returns the number of stripes of members of these sizes, if all have exactly that many.
fn whole_stripes(sizes: &[u64], stripe_sectors: u64) -> Option<u64> {
    let size = *sizes.first()?;
    let stripes = size.checked_div(stripe_sectors).filter(|&stripes| stripes > 0)?;
    let whole = sizes.iter().all(|&other| other == stripes * stripe_sectors);
    whole.then_some(stripes)
}
