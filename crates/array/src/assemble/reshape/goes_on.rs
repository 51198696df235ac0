//! A reshape that goes on: one to more members, forwards, with room before the data. Others are
//! read, and md goes on with them.

use super::maps::{Numbers, Side};
use super::seen;
use crate::assemble::check::EVENT_MARGIN;
use crate::assemble::judge::same_array;
use crate::assemble::table::decide_alike;
use crate::assemble::{Assembly, Candidate, Options, Start};
use crate::format::Superblock;
use crate::format::superblock::{feature, time_parts};

/// Returns whether the machine can go on with this one.
pub(super) fn is_possible(
    numbers: &Numbers,
    candidates: &[Candidate],
    newest: &Superblock,
) -> bool {
    let Superblock { reshape, layout, chunk_sectors, .. } = newest;
    let shift = -i64::from(reshape.new_offset);
    let moves = numbers.is_parity()
        && !numbers.backwards
        && reshape.delta_disks > 0
        && reshape.new_layout == *layout
        && reshape.new_chunk_sectors == *chunk_sectors
        && !newest.version.is_behind_data();
    // All members move by as much. Who left in another reshape is none of them.
    let members = candidates.iter().filter_map(|candidate| candidate.superblock.as_ref().ok());
    let current = |sb: &&Superblock| sb.events.saturating_add(EVENT_MARGIN) >= newest.events;
    let members = members.filter(|sb| same_array(sb, newest)).filter(current);
    let mut told = members.filter(|sb| sb.has(feature::RESHAPE_ACTIVE));
    let alike = told.all(|superblock| {
        superblock.has(feature::NEW_OFFSET)
            && superblock.reshape.new_offset == reshape.new_offset
            && u64::try_from(shift).is_ok_and(|shift| shift < superblock.data_offset)
    });
    // md's position may be ten seconds old at the begin. md's times have no microseconds.
    let (_, micros) = time_parts(newest.utime);
    let is_sure = micros > 0 || numbers.position >= numbers.critical_sectors();
    let chunk = i64::from(*chunk_sectors);
    let is_sure = is_sure && numbers.position.is_multiple_of(numbers.unit());
    moves && is_sure && alike && shift >= chunk && shift % chunk == 0
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
    if numbers.position == 0 && !crate::broken("reshape-start") {
        return by(Side::Old, options);
    }
    let mut assembly = by(Side::New, options);
    if numbers.position < numbers.size_sectors()
        && let Start::Refused { reason, next, could_force } =
            by(Side::Old, Options { read_only: true, ..options }).start
    {
        let reason = format!("by the map that data move from: {reason}");
        assembly.start = Start::Refused { reason, next, could_force };
    }
    if let Start::Ready { config, .. } = &mut assembly.start {
        let told = feature::RESHAPE_ACTIVE | feature::NEW_OFFSET;
        config.superblock.feature_map |= told;
        let by = i64::from(superblock.reshape.new_offset);
        for member in &mut config.members {
            let own = &mut member.superblock;
            own.feature_map |= told;
            own.data_offset = own.data_offset.saturating_add_signed(-by);
            own.data_size = own.data_size.saturating_add_signed(by);
        }
    }
    assembly.newest = Some(Box::new(superblock.clone()));
    assembly
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
    let missed = |superblock: &Superblock| {
        same_array(superblock, newest)
            && superblock.has(feature::RESHAPE_ACTIVE)
            && !newest.has(feature::RESHAPE_ACTIVE)
            && (superblock.events < newest.events || superblock.reshape.position == 0)
            && superblock.events.saturating_add(EVENT_MARGIN) >= newest.events
    };
    let settle = |mut candidate: Candidate| {
        if let Ok(superblock) = &mut candidate.superblock
            && missed(superblock)
            && let Ok(numbers) = Numbers::of(superblock)
        {
            let bitmap = superblock.feature_map & feature::BITMAP_OFFSET;
            let side = if numbers.position == 0 { Side::Old } else { Side::New };
            *superblock = numbers.seen(superblock, side);
            superblock.feature_map |= bitmap;
        }
        candidate
    };
    if crate::broken("reshape-end") {
        return candidates;
    }
    candidates.into_iter().map(settle).collect()
}
