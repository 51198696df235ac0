//! Areas for a new policy on members: unused space between superblock and data, at the same place
//! on all of them.

use std::ops::Range;

use super::{ANY_POLICY, PolicyChange, Write, has_role};
use crate::assemble::{Candidate, geometry_of};
use crate::format::ppl::{self, PplHeader};
use crate::format::superblock::feature;
use crate::format::{Bitmap, Superblock, Version};
use crate::level::Level;
use crate::refusal::Refusal;

/// Sectors of the superblock's 4 KiB.
const SUPERBLOCK_SECTORS: i64 = 8;

/// Metadata areas begin and end at multiples of this.
const AREA_SECTORS: i64 = 8;

/// The most that a bitmap takes, as mdadm has it.
const MOST_BITMAP_SECTORS: u64 = 256;

/// A member, and where among the candidates it is.
#[derive(Clone, Copy)]
pub(super) struct AreaMember<'a> {
    pub(super) index: usize,
    pub(super) device: &'a str,
    pub(super) superblock: &'a Superblock,
}

impl<'a> AreaMember<'a> {
    pub(super) fn of((index, candidate): (usize, &'a Candidate)) -> Option<Self> {
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
fn common_offset(members: &[AreaMember<'_>], sectors: u64) -> Option<i32> {
    let sectors = i64::try_from(sectors).ok()?;
    let starts = |member: &AreaMember<'_>| {
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

/// Space for the new policy on each member, at the same place behind or before the superblock.
#[derive(Debug, Default)]
pub(super) struct Area {
    /// Nothing where it needs none.
    content: Vec<u8>,
    /// Distance from the superblock, in sectors.
    offset: i32,
    /// Feature bit of the policy in the superblock.
    feature: u32,
    code: i32,
}

impl Area {
    pub(super) fn bitmap(
        level: Level,
        superblock: &Superblock,
        members: &[AreaMember<'_>],
        chunk_bytes: Option<u32>,
    ) -> Result<Self, Refusal> {
        let impossible =
            |reason: String| Refusal::new(reason, "compare what braid examine says of the members");
        let sync_sectors = geometry_of(level, superblock).map_err(impossible)?.sync_sectors();
        let fits = |space: u64| {
            let mut bitmap = Bitmap::new(superblock.set_uuid, sync_sectors, chunk_bytes, space)?;
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

    pub(super) fn partial_parity(
        superblock: &Superblock,
        members: &[AreaMember<'_>],
    ) -> Result<Self, Refusal> {
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
    pub(super) fn written(
        self,
        superblock: &Superblock,
        members: &[AreaMember<'_>],
    ) -> PolicyChange {
        let area = |member: &AreaMember<'_>| {
            let sector = member.superblock.super_offset.checked_add_signed(self.offset.into());
            let sector = sector.expect("in a gap on the device");
            Write { index: member.index, sector, bytes: self.content.clone() }
        };
        let holders = if self.content.is_empty() { &[] } else { members };
        let areas = holders.iter().map(area);
        let superblocks = superblocks(superblock, members, self.feature, self.code);
        PolicyChange { writes: areas.chain(superblocks).collect(), leaves: None }
    }
}

/// The superblocks of these members, with this feature of a policy and no other; `superblock` is
/// that of the whole array, as it is to be.
pub(super) fn superblocks(
    superblock: &Superblock,
    members: &[AreaMember<'_>],
    feature: u32,
    code: i32,
) -> Vec<Write> {
    let kept = !(ANY_POLICY | feature::RECOVERY_BITMAP);
    let renewed = |member: &AreaMember<'_>| {
        let new = Superblock {
            feature_map: member.superblock.feature_map & kept | feature,
            bitmap_offset_sectors: code,
            ..member.superblock.with_news_of(superblock)
        };
        Write { index: member.index, sector: new.super_offset, bytes: new.blocks(512) }
    };
    // A bitmap is looked for on members that are in sync, so these are to tell of it first.
    let (roles, others): (Vec<_>, Vec<_>) =
        members.iter().partition(|member| has_role(member.superblock));
    roles.into_iter().chain(others).map(renewed).collect()
}

fn no_room(members: &[AreaMember<'_>], sectors: u64, what: &str) -> Refusal {
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
