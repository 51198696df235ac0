//! Filling up writes: the parts of blocks or strips that a write does not cover are read, so that
//! it covers them.

use super::parity::{Segment, Slots, Source, StripeView, recover};
use super::{Plan, Rows, Taken, Unrecoverable};
use crate::Buf;
use crate::format::journal::BLOCK_SECTORS;

/// Makes whole blocks of 4 KiB of segments that begin or end within one, by the old contents
/// around them, which are read in the memory of an empty `plan`. `None` where all are whole.
///
/// # Errors
/// [`Unrecoverable`] when the old contents are lost beyond the redundancy.
pub(crate) fn whole_blocks(
    plan: &mut Plan,
    view: &StripeView,
    segments: &[Segment],
    zero: Buf,
    taken: &mut Taken,
) -> Result<Option<Vec<Segment>>, Unrecoverable> {
    if segments.iter().all(|segment| blocks_around(segment.rows) == segment.rows) {
        return Ok(None);
    }
    let mut slots = Slots::new(view, taken);
    let mut whole = Vec::new();
    for index in 0..view.data_strips() {
        let of_strip = || segments.iter().filter(|segment| segment.index as usize == index);
        let around = of_strip().map(|segment| blocks_around(segment.rows));
        if let Some(rows) = around.reduce(hull) {
            whole.push(filled_up(plan, view, index, rows, of_strip(), zero, &mut slots)?);
        }
    }
    Ok(Some(whole))
}

/// Makes segments that are as high in all strips which pages belong to, so that few I/Os carry
/// many pages: what lies between pages is read, in the memory of an empty `plan`. `pages` do not
/// overlap. `zero` is a strip of zeroes.
///
/// # Errors
/// [`Unrecoverable`] when what lies between is lost beyond the redundancy.
pub(crate) fn whole_strips(
    plan: &mut Plan,
    view: &StripeView,
    pages: &[Segment],
    zero: Buf,
    taken: &mut Taken,
) -> Result<Vec<Segment>, Unrecoverable> {
    let Some(rows) = pages.iter().map(|page| page.rows).reduce(hull) else {
        return Ok(Vec::new());
    };
    let mut slots = Slots::new(view, taken);
    let mut whole = Vec::new();
    for index in 0..view.data_strips() {
        let of_strip = || pages.iter().filter(|page| page.index as usize == index);
        if of_strip().next().is_some() {
            whole.push(filled_up(plan, view, index, rows, of_strip(), zero, &mut slots)?);
        }
    }
    Ok(whole)
}

/// Returns these rows of a strip with new contents of some of them; the others are read.
fn filled_up<'a>(
    plan: &mut Plan,
    view: &StripeView,
    index: usize,
    rows: Rows,
    new: impl Iterator<Item = &'a Segment> + Clone,
    zero: Buf,
    slots: &mut Slots,
) -> Result<Segment, Unrecoverable> {
    let strip = slots.spare();
    let given: u32 = new.clone().map(|segment| segment.rows.sectors()).sum();
    match view.cells[index].reader {
        _ if given == rows.sectors() => {}
        Some(place) => plan.read(place, rows, strip),
        None => {
            view.data_can_be_computed()?;
            recover(view, rows, &[index], &[rows.of(strip)], plan, slots)?;
        }
    }
    for segment in new {
        let contents = match segment.source {
            Source::Buf(buf) => buf,
            Source::Zeroes { .. } => segment.rows.of(zero),
        };
        plan.copy(contents, segment.rows.of(strip));
    }
    Ok(Segment { index: index as u32, rows, source: Source::Buf(rows.of(strip)) })
}

/// Returns the rows from the first to the last.
fn hull(a: Rows, b: Rows) -> Rows {
    Rows::new(a.start.min(b.start), a.end.max(b.end))
}

/// Returns these rows, and the rest of the blocks of 4 KiB that they touch.
fn blocks_around(rows: Rows) -> Rows {
    const BLOCK: u32 = BLOCK_SECTORS as u32;
    Rows::new(rows.start / BLOCK * BLOCK, rows.end.next_multiple_of(BLOCK))
}
