//! A reshape that goes on: one in which the data of all members move by as much, and by enough; or
//! one of a level with parity to more members in place, from where what is written lies upon
//! nothing that is yet to be read. Others are read, and md goes on with them.

use super::maps::Numbers;
use super::seen;
use crate::assemble::check::EVENT_MARGIN;
use crate::assemble::judge::same_array;
use crate::assemble::table::decide_alike;
use crate::assemble::{Assembly, Candidate, Config, MemberConfig, Options, Standing, Start};
use crate::format::Superblock;
use crate::format::reshaped::Side;
use crate::format::striped::moves;
use crate::format::superblock::{feature, time_parts};
use crate::geometry::{Geometry, RowOrder};
use crate::level::Layout;
use crate::units::UNIT_SECTORS;

/// Returns whether the machine can go on with this one. It `saves` what is about to be overwritten.
pub(super) fn is_possible(
    numbers: &Numbers,
    candidates: &[Candidate],
    newest: &Superblock,
    saves: bool,
) -> bool {
    let reshape = &newest.reshape;
    let by = shift(newest);
    let chunk = i64::from(numbers.old.chunk_sectors().max(numbers.new.chunk_sectors()));
    let (old, new) = RowOrder::of_both(&numbers.old, &numbers.new);
    // Forwards there has to be room before the data, and backwards behind them.
    let has_room = (by > 0) == numbers.backwards
        && by.unsigned_abs() >= old.least_shift(new)
        && (!numbers.is_by_stripe() || by % chunk == 0)
        && !newest.version.is_behind_data();
    let in_place = by == 0
        && numbers.is_by_stripe()
        && (numbers.reads_ahead() || saves || is_not_begun(numbers, candidates, newest));
    let can_move = (has_room || in_place)
        && (reshape.delta_disks == 0 || newest.chunk_sectors == reshape.new_chunk_sectors);
    // All members move by as much. Who left in another reshape is none of them.
    let members = current(candidates, newest);
    let mut told = members.filter(|sb| sb.has(feature::RESHAPE_ACTIVE));
    let alike = told.all(|superblock| {
        shift(superblock) == by
            && (numbers.is_by_stripe() || !superblock.has(feature::RECOVERY_OFFSET))
            && superblock
                .data_offset
                .checked_add_signed(by)
                .is_some_and(|offset| in_place || offset > 0)
    });
    if !numbers.is_by_stripe() {
        return can_move && alike && copies_move(numbers);
    }
    // md's position may be ten seconds old at the begin.
    let is_sure = is_of_braid(newest) || numbers.position >= numbers.critical_sectors();
    let is_whole = numbers.position.is_multiple_of(numbers.unit());
    can_move && is_sure && is_whole && alike
}

/// Returns whether the position is one that Braid wrote: md's times have no microseconds.
pub(super) const fn is_of_braid(newest: &Superblock) -> bool {
    let (_, micros) = time_parts(newest.utime);
    micros > 0
}

/// Returns whether a superblock is of a member that can have missed one update at most.
pub(super) fn is_current(own: &Superblock, newest: &Superblock) -> bool {
    same_array(own, newest) && own.events.saturating_add(EVENT_MARGIN) >= newest.events
}

/// The superblocks of members that can have missed one update at most.
fn current<'a>(
    candidates: &'a [Candidate],
    newest: &'a Superblock,
) -> impl Iterator<Item = &'a Superblock> {
    let members = candidates.iter().filter_map(|candidate| candidate.superblock.as_ref().ok());
    members.filter(|own| is_current(own, newest))
}

/// Returns whether nothing is written by the new map yet. A map of fewer members is written at once
/// where the old one is that lies beyond its end, and one in place where the old one is, but only
/// when all members have heard of it.
pub(super) fn is_not_begun(
    numbers: &Numbers,
    candidates: &[Candidate],
    newest: &Superblock,
) -> bool {
    let has_not_heard = |superblock: &Superblock| {
        !superblock.has(feature::RESHAPE_ACTIVE)
            && newest.role_of(superblock.dev_number) == superblock.role()
    };
    let smaller = numbers.new.array_sectors() < numbers.old.array_sectors();
    let overwrites = smaller || numbers.is_by_stripe() && shift(newest) == 0;
    numbers.is_not_begun() && (!overwrites || current(candidates, newest).any(has_not_heard))
}

/// Returns whether copies move from where they are between two shapes of which one thing differs.
fn copies_move(numbers: &Numbers) -> bool {
    let Numbers { old, new, position, .. } = numbers;
    let differ = [
        old.raid_disks() != new.raid_disks(),
        old.layout() != new.layout(),
        old.chunk_sectors() != new.chunk_sectors(),
    ];
    let can_move = |map: &Geometry| match map.layout() {
        Layout::Raid10(layout) => layout.can_move(),
        _ => false,
    };
    let unit = old.chunk_sectors().min(new.chunk_sectors()).min(UNIT_SECTORS);
    let one = differ.into_iter().filter(|differs| *differs).count() == 1;
    let is_whole = position.is_multiple_of(unit.into()) || *position >= numbers.size_sectors();
    one && old.copies() == new.copies() && can_move(old) && can_move(new) && is_whole
}

/// Returns by how much the data of a member move: the field counts only where the feature says so.
fn shift(superblock: &Superblock) -> i64 {
    let shifts = superblock.has(feature::NEW_OFFSET);
    if shifts { superblock.reshape.new_offset.into() } else { 0 }
}

/// Decides who is in, and starts the array by both maps. Where nothing has moved yet the reshape
/// counts as not begun: some members may not have heard of it.
pub(super) fn decide(
    numbers: &Numbers,
    candidates: &[Candidate],
    newest: usize,
    superblock: &Superblock,
    options: Options,
) -> Assembly {
    let by = |side, options| {
        decide_alike(&with_bitmaps(numbers, candidates, superblock, side), newest, options)
    };
    if is_not_begun(numbers, candidates, superblock) && !crate::broken("reshape-start") {
        return by(Side::Old, options);
    }
    // All members have roles in the shape that has more of them, and the bitmap is for the larger.
    let larger = numbers.new.array_sectors() > numbers.old.array_sectors();
    let grows = superblock.reshape.delta_disks > 0 || superblock.reshape.delta_disks == 0 && larger;
    let (wide, other) = if grows { (Side::New, Side::Old) } else { (Side::Old, Side::New) };
    let mut assembly = by(wide, options);
    let needs_other = !grows || numbers.position < numbers.size_sectors();
    if needs_other
        && let Start::Refused { reason, next, could_force } =
            by(other, Options { read_only: true, ..options }).start
    {
        let name = if grows { "from" } else { "to" };
        let reason = format!("by the map that data move {name}: {reason}");
        assembly.start = Start::Refused { reason, next, could_force };
    }
    if let Start::Ready { config, .. } = &mut assembly.start {
        as_told(config, superblock, wide);
    }
    assembly.newest = Some(Box::new(superblock.clone()));
    assembly
}

/// Puts back what the superblocks say of a reshape, which one side alone does not have.
fn as_told(config: &mut Config, newest: &Superblock, seen: Side) {
    let told = newest.feature_map & feature::RESHAPE;
    config.superblock.raid_disks = newest.raid_disks;
    config.superblock.layout = newest.layout;
    config.superblock.chunk_sectors = newest.chunk_sectors;
    let by = if seen == Side::New { shift(newest) } else { 0 };
    let has_data = |member: &&mut MemberConfig| member.standing != Standing::Journal;
    let members = config.members.iter_mut().filter(has_data).map(|member| &mut member.superblock);
    for own in members.chain([&mut config.superblock]) {
        own.feature_map |= told;
        own.reshape.new_offset = shift(newest) as i32;
        own.data_offset = own.data_offset.saturating_add_signed(-by);
        own.data_size = own.data_size.saturating_add_signed(by);
    }
}

fn with_bitmaps(
    numbers: &Numbers,
    candidates: &[Candidate],
    newest: &Superblock,
    side: Side,
) -> Vec<Candidate> {
    let mut seen = seen(numbers, candidates, newest, side);
    for (candidate, own) in seen.iter_mut().zip(candidates) {
        if let (Ok(superblock), Ok(before)) = (&mut candidate.superblock, &own.superblock) {
            superblock.feature_map |= before.feature_map & feature::BITMAP_OFFSET;
            superblock.resync_offset = before.resync_offset;
            candidate.bitmap.clone_from(&own.bitmap);
        }
    }
    seen
}

/// The candidates as they would be had all heard what the newest one tells: that a reshape is over,
/// so that those that missed just that update lie by the new map as well; or that it was not begun,
/// where nothing had moved yet.
pub(in crate::assemble) fn settled(
    candidates: Vec<Candidate>,
    newest: &Superblock,
) -> Vec<Candidate> {
    let is_not_begun =
        |superblock: &Superblock| Numbers::of(superblock).is_ok_and(|one| one.is_not_begun());
    let missed = |superblock: &Superblock| {
        same_array(superblock, newest)
            && superblock.has(feature::RESHAPE_ACTIVE)
            && !newest.has(feature::RESHAPE_ACTIVE)
            && (superblock.events < newest.events || is_not_begun(superblock))
            && superblock.events.saturating_add(EVENT_MARGIN) >= newest.events
    };
    let settle = |mut candidate: Candidate| {
        if let Ok(superblock) = &mut candidate.superblock
            && missed(superblock)
            && let Ok(numbers) = Numbers::of(superblock)
        {
            let bitmap = superblock.feature_map & feature::BITMAP_OFFSET;
            let side = if numbers.is_not_begun() { Side::Old } else { Side::New };
            let stripes = moves(superblock);
            *superblock = numbers.seen(superblock, side);
            superblock.feature_map |= bitmap;
            if stripes {
                superblock.data_size = superblock.size_sectors;
            }
        }
        candidate
    };
    if crate::broken("reshape-end") {
        return candidates;
    }
    candidates.into_iter().map(settle).collect()
}
