//! The consistency policy of an array that is stopped, changed. Nothing is written here.
//!
//! What the new policy needs comes first, on all members, into space that nothing uses: a bitmap
//! without a bit set, or partial parity logs that tell of nothing. The superblocks come last, one
//! after the other, those of spares behind the others, with an event count that is one higher. So a
//! member that was not reached is as current as one that misses the last update, and takes the
//! place of a bitmap or log from the others: whichever writes were done, the array assembles, with
//! the old policy or the new one.

use std::ops::Range;

use crate::assemble::{Candidate, Options, Start, Verdict, decide, geometry_of};
use crate::format::ppl::{self, PplHeader};
use crate::format::superblock::{MAX_SECTOR, feature};
use crate::format::{Bitmap, DevRole, Superblock, Version};
use crate::level::Level;
use crate::refusal::{Invocation, Next, Refusal};

/// What lies in the superblock's 4 KiB.
const SUPERBLOCK_SECTORS: i64 = 8;

/// Metadata areas begin and end at multiples of this.
const AREA_SECTORS: i64 = 8;

/// The most that a bitmap takes, as mdadm has it.
const MOST_BITMAP_SECTORS: u64 = 256;

/// A policy that an array can be given, and that can be taken from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// A resync of everything follows an unclean stop.
    Resync,
    /// A resync of what the bitmap marks.
    Bitmap,
    /// Partial parity logs, which close the write hole; RAID 5.
    PartialParity,
}

/// What is to be written, in this order: all areas, a flush of all members, then the superblocks,
/// each with a flush before the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyChange {
    /// What every area is to hold.
    area: Vec<u8>,
    /// For each member its index among the candidates, and the sector at which its area begins.
    /// Empty where the new policy needs none.
    areas: Vec<(usize, u64)>,
    /// For each member its index, the sector of its superblock, and the new one, whole 4 KiB.
    superblocks: Vec<(usize, u64, Vec<u8>)>,
}

impl PolicyChange {
    /// The areas: index among the candidates, sector, content.
    pub fn areas(&self) -> impl Iterator<Item = (usize, u64, &[u8])> {
        self.areas.iter().map(|(index, sector)| (*index, *sector, self.area.as_slice()))
    }

    /// The superblocks: index among the candidates, sector, content.
    pub fn superblocks(&self) -> impl Iterator<Item = (usize, u64, &[u8])> {
        self.superblocks.iter().map(|(index, sector, bytes)| (*index, *sector, bytes.as_slice()))
    }

    /// Plans the change for the array of these candidates, which must be all of its members.
    /// `utime`: the time, coded as in a superblock. `None` when it has the policy already.
    ///
    /// # Errors
    /// Why the array, as it is, cannot be given the policy.
    pub fn plan(
        candidates: &[Candidate],
        policy: Policy,
        utime: u64,
    ) -> Result<Option<Self>, Refusal> {
        let newest = stopped(candidates)?;
        let members: Vec<Member<'_>> = (0..).zip(candidates).filter_map(Member::of).collect();
        let wanted = match policy {
            Policy::Resync => 0,
            Policy::Bitmap => feature::BITMAP_OFFSET,
            Policy::PartialParity => feature::ANY_PPL,
        };
        let kept = feature::BITMAP_OFFSET | feature::ANY_PPL;
        let level = check_level(&newest, policy)?;
        let has = newest.feature_map & kept;
        if has & !wanted == 0 && (has != 0 || wanted == 0) {
            return Ok(None);
        }
        if has != 0 && wanted != 0 {
            let what = if has == feature::BITMAP_OFFSET { "a bitmap" } else { "logs" };
            let reason = format!("the array has {what}, and cannot have both");
            let next = "take that away first, with --consistency-policy resync";
            return Err(Refusal::new(reason, next));
        }
        let superblock = Superblock { utime, events: newest.events + 1, ..newest };
        let area = match policy {
            Policy::Resync => Area::default(),
            Policy::Bitmap => Area::bitmap(level, &superblock, &members)?,
            Policy::PartialParity => Area::partial_parity(&superblock, &members)?,
        };
        Ok(Some(area.written(&superblock, &members)))
    }
}

/// The newest superblock of the array, if it was stopped well, is complete, and all its members are
/// there.
fn stopped(candidates: &[Candidate]) -> Result<Superblock, Refusal> {
    let assembly = decide(candidates.to_vec(), Options::default());
    let (newest, degraded) = match (assembly.newest, assembly.start) {
        (Some(newest), Start::Ready { degraded, .. }) => (*newest, degraded),
        (_, Start::Refused { reason, next, .. }) => return Err(Refusal::new(reason, next)),
        (None, Start::Ready { .. }) => unreachable!("an array has a superblock"),
    };
    let devices: Vec<String> = assembly.verdicts.iter().map(|(device, _)| device.clone()).collect();
    let start = |advice| {
        let options = Options::default();
        let devices = devices.clone();
        Next::by(advice, Invocation::Assemble { name: None, rename: false, options, devices })
    };
    for (device, verdict) in &assembly.verdicts {
        let reason = format!("{device}: {verdict}");
        match verdict {
            Verdict::Active { .. } | Verdict::Spare => {}
            Verdict::Journal => break,
            Verdict::Rebuilding { .. } | Verdict::Replacement { .. } => {
                return Err(Refusal::new(reason, start("have it rebuilt, and stop the array")));
            }
            _ => {
                return Err(Refusal::new(reason, "name the members of the array, and all of them"));
            }
        }
    }
    if newest.has(feature::JOURNAL) {
        let reason = "the array has a journal, which is on a device of its own";
        let next = "keep it; or make the array anew with braid create";
        return Err(Refusal::new(reason, next));
    }
    if degraded > 0 {
        let reason = format!("{degraded} of its members are not named, or not there");
        let next = "name all of them; or add a member and have it rebuilt first";
        return Err(Refusal::new(reason, next));
    }
    if newest.resync_offset != MAX_SECTOR {
        let reason = "the array was not stopped well, or its resync is not done";
        return Err(Refusal::new(reason, start("start it, wait for the resync, and stop it")));
    }
    let mut superblocks = candidates.iter().filter_map(|one| one.superblock.as_ref().ok());
    let current = |sb: &Superblock| !has_role(sb) || sb.events == newest.events;
    if !superblocks.all(current) {
        let reason = "some members miss the last update of the superblocks";
        return Err(Refusal::new(reason, start("start the array, and stop it")));
    }
    Ok(newest)
}

fn has_role(superblock: &Superblock) -> bool {
    matches!(superblock.role(), DevRole::Active(_))
}

/// Can an array of this level have the policy?
fn check_level(newest: &Superblock, policy: Policy) -> Result<Level, Refusal> {
    let level =
        Level::from_md(newest.level).filter(|level| !matches!(level, Level::Linear | Level::Raid0));
    let Some(level) = level else {
        let reason = "the array has no redundancy that could become inconsistent";
        return Err(Refusal::new(reason, "leave it as it is"));
    };
    if policy == Policy::PartialParity && level != Level::Raid5 {
        let reason = format!("a {level} cannot have partial parity logs, which a raid5 has");
        return Err(Refusal::new(reason, "use resync or bitmap"));
    }
    if policy == Policy::PartialParity && newest.raid_disks as usize > ppl::MAX_MEMBERS {
        let most = ppl::MAX_MEMBERS;
        let reason = format!("partial parity logs are for {most} members at most");
        return Err(Refusal::new(reason, "use resync or bitmap"));
    }
    Ok(level)
}

/// A member, and where among the candidates it is.
struct Member<'a> {
    index: usize,
    device: &'a str,
    superblock: &'a Superblock,
}

impl<'a> Member<'a> {
    fn of((index, candidate): (usize, &'a Candidate)) -> Option<Self> {
        let superblock = candidate.superblock.as_ref().ok()?;
        Some(Self { index, device: &candidate.device, superblock })
    }

    /// Whole blocks between superblock and data that nothing uses, counted from the superblock.
    fn gaps(&self) -> Vec<Range<i64>> {
        let sb = self.superblock;
        let from_superblock = |sector: u64| {
            i64::try_from(sector).ok()?.checked_sub(i64::try_from(sb.super_offset).ok()?)
        };
        let (start, end) = match sb.version {
            Version::V1_1 | Version::V1_2 => {
                (Some(SUPERBLOCK_SECTORS), from_superblock(sb.data_offset))
            }
            _ => (sb.data_offset.checked_add(sb.data_size).and_then(from_superblock), Some(0)),
        };
        let (Some(start), Some(end)) = (start, end) else { return Vec::new() };
        let bad_blocks = sb.bblog_sector().and_then(from_superblock);
        let bad_blocks =
            bad_blocks.map_or(end..end, |at| at..at + i64::from(sb.bblog_size_sectors));
        let before = start..bad_blocks.start.min(end);
        let behind = bad_blocks.end.max(start)..end;
        let whole = |gap: Range<i64>| {
            let base = i64::try_from(sb.super_offset).unwrap_or(0) % AREA_SECTORS;
            let up = (gap.start + base + AREA_SECTORS - 1).div_euclid(AREA_SECTORS);
            let down = (gap.end + base).div_euclid(AREA_SECTORS);
            up * AREA_SECTORS - base..down * AREA_SECTORS - base
        };
        [before, behind].into_iter().map(whole).filter(|gap| gap.start < gap.end).collect()
    }

    fn has_room(&self, place: &Range<i64>) -> bool {
        self.gaps().iter().any(|gap| gap.start <= place.start && place.end <= gap.end)
    }
}

/// The offset from the superblock at which all members have so much room: as close to it as can be.
fn common_offset(members: &[Member<'_>], sectors: u64) -> Option<i32> {
    let sectors = i64::try_from(sectors).ok()?;
    let starts = |member: &Member<'_>| {
        let at_end = matches!(member.superblock.version, Version::V1_0);
        let start = move |gap: Range<i64>| if at_end { gap.end - sectors } else { gap.start };
        member.gaps().into_iter().map(start).collect::<Vec<_>>()
    };
    let mut offsets: Vec<i64> = members.iter().flat_map(starts).collect();
    offsets.sort_by_key(|offset| offset.abs());
    let fits = |offset: &i64| {
        let place = *offset..*offset + sectors;
        members.iter().all(|member| member.has_room(&place))
    };
    offsets.into_iter().find(fits).and_then(|offset| i32::try_from(offset).ok())
}

/// What the new policy needs on each member, at the same place behind or before the superblock.
#[derive(Debug, Default)]
struct Area {
    /// Nothing where it needs none.
    content: Vec<u8>,
    /// From the superblock, in sectors.
    offset: i32,
    /// What the superblock says of it.
    feature: u32,
    code: i32,
}

impl Area {
    fn bitmap(
        level: Level,
        superblock: &Superblock,
        members: &[Member<'_>],
    ) -> Result<Self, Refusal> {
        let impossible =
            |reason: String| Refusal::new(reason, "compare what braid examine says of the members");
        let sync_sectors = geometry_of(level, superblock).map_err(impossible)?.sync_sectors();
        let fits = |space: u64| {
            let mut bitmap = Bitmap::new(superblock.set_uuid, sync_sectors, None, space)?;
            bitmap.superblock.events = superblock.events;
            bitmap.superblock.events_cleared = superblock.events;
            let sectors = bitmap.size_sectors().next_multiple_of(AREA_SECTORS.unsigned_abs());
            Some((common_offset(members, sectors)?, bitmap))
        };
        let spaces = (0..).map(|halvings| MOST_BITMAP_SECTORS >> halvings);
        let spaces = spaces.take_while(|space| *space >= AREA_SECTORS.unsigned_abs());
        let Some((offset, bitmap)) = spaces.filter_map(fits).next() else {
            return Err(no_room(members, AREA_SECTORS.unsigned_abs(), "a bitmap"));
        };
        let content = (0..bitmap.pages()).flat_map(|page| bitmap.encode_page(page)).collect();
        Ok(Self { content, offset, feature: feature::BITMAP_OFFSET, code: offset })
    }

    fn partial_parity(superblock: &Superblock, members: &[Member<'_>]) -> Result<Self, Refusal> {
        let least = ppl::least_sectors(superblock.chunk_sectors);
        let place = |sectors: u64| {
            let offset = i16::try_from(common_offset(members, sectors)?).ok()?;
            Some((offset, u16::try_from(sectors).ok()?))
        };
        let Some((offset, sectors)) = place(ppl::DEFAULT_SECTORS).or_else(|| place(least)) else {
            return Err(no_room(members, least, "a partial parity log"));
        };
        let header = PplHeader { generation: 0, entries: Vec::new() };
        let mut content = header.encode(superblock.set_uuid);
        // What was recorded there once must not be taken for what follows.
        content.resize(usize::from(sectors) * crate::SECTOR_BYTES as usize, 0);
        Ok(Self {
            content,
            offset: offset.into(),
            feature: ppl::feature_of(sectors.into()),
            code: ppl::place_code(offset, sectors),
        })
    }

    /// All that is to be written; `superblock` is that of the whole array, as it is to be.
    fn written(self, superblock: &Superblock, members: &[Member<'_>]) -> PolicyChange {
        let kept = !(feature::BITMAP_OFFSET | feature::ANY_PPL | feature::RECOVERY_BITMAP);
        let renewed = |member: &Member<'_>| {
            let new = Superblock {
                feature_map: member.superblock.feature_map & kept | self.feature,
                bitmap_offset_sectors: self.code,
                ..member.superblock.with_news_of(superblock)
            };
            let mut bytes = new.encode();
            bytes.resize(bytes.len().next_multiple_of(4096), 0);
            (member.index, new.super_offset, bytes)
        };
        // A bitmap is looked for on members that are in sync, so these are to tell of it first.
        let (roles, spares): (Vec<_>, Vec<_>) =
            members.iter().partition(|member| has_role(member.superblock));
        let superblocks = roles.into_iter().chain(spares).map(renewed).collect();
        let area = |member: &Member<'_>| {
            let sector = member.superblock.super_offset.checked_add_signed(self.offset.into());
            (member.index, sector.expect("in a gap on the device"))
        };
        let areas =
            if self.content.is_empty() { Vec::new() } else { members.iter().map(area).collect() };
        PolicyChange { area: self.content, areas, superblocks }
    }
}

fn no_room(members: &[Member<'_>], sectors: u64, what: &str) -> Refusal {
    let needed = sectors * crate::SECTOR_BYTES / 1024;
    let wanting = members.iter().find(|member| {
        let largest = member.gaps().into_iter().map(|gap| gap.end - gap.start).max();
        largest.unwrap_or(0).unsigned_abs() < sectors
    });
    let device = wanting.map_or("some member", |member| member.device);
    let reason = format!(
        "{device} has not the {needed} KiB between superblock and data that {what} needs, at the \
         place where the other members have it"
    );
    Refusal::new(reason, "keep the policy; or make the array anew with braid create")
}
