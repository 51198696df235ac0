//! Units of partial parity logs: which entries they have, and what their partial parity is.

use std::collections::VecDeque;

use smallvec::smallvec;

use super::super::lane::Lane;
use super::super::map::ArrayMap;
use super::super::recording::Recorded;
use super::change::{Change, Contents, changes};
use crate::action::{Compute, Inputs};
use crate::format::ppl::{HEADER_BYTES, MAX_ENTRIES, PplEntry};
use crate::{Buf, MemberId, Role, SECTOR_BYTES};

/// Partial parity of a unit at most, in bytes, as in md.
const MAX_PARITY_BYTES: u32 = 128 << 10;

/// Memory for one unit, in bytes.
pub(in super::super) const BUFFER_BYTES: u32 = HEADER_BYTES + MAX_PARITY_BYTES;

/// An entry to be, and what its partial parity is the sum of.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub(super) entry: PplEntry,
    inputs: Vec<Buf>,
}

/// Writes that are recorded at once, each with its entries.
#[derive(Debug, Default)]
pub(super) struct LogUnit {
    pub(super) jobs: Vec<usize>,
    pub(super) drafts: Vec<Draft>,
}

impl LogUnit {
    /// Takes of those that wait as many as fit.
    pub(super) fn take(waiting: &mut VecDeque<(usize, Vec<Draft>)>, room_bytes: u32) -> Self {
        let room_bytes = room_bytes.min(MAX_PARITY_BYTES);
        let mut unit = Self::default();
        while let Some((_, drafts)) = waiting.front() {
            let bytes: u32 = drafts.iter().map(|draft| draft.entry.pp_bytes).sum();
            let fits = unit.parity_bytes() + bytes <= room_bytes
                && unit.drafts.len() + drafts.len() <= MAX_ENTRIES;
            if !fits && !unit.jobs.is_empty() {
                break;
            }
            let Some((job, drafts)) = waiting.pop_front() else { break };
            unit.jobs.push(job);
            unit.drafts.extend(drafts);
        }
        unit
    }

    /// Bytes of all its partial parity.
    pub(super) fn parity_bytes(&self) -> u32 {
        self.drafts.iter().map(|draft| draft.entry.pp_bytes).sum()
    }

    /// Returns the entries of its header.
    pub(super) fn entries(&self) -> Vec<PplEntry> {
        self.drafts.iter().map(|draft| draft.entry).collect()
    }

    /// Where the partial parity of an entry belongs, if it has any.
    pub(super) fn output(&self, buffer: Buf, entry: u16) -> Option<Buf> {
        let (before, rest) = self.drafts.split_at(usize::from(entry));
        let start: u32 = before.iter().map(|draft| draft.entry.pp_bytes).sum();
        let bytes = rest.first()?.entry.pp_bytes;
        (bytes > 0).then(|| buffer.slice(HEADER_BYTES + start, bytes))
    }

    /// The sums that are to be made, with the numbers of their entries.
    pub(super) fn sums(&self, buffer: Buf) -> impl Iterator<Item = (u16, Compute)> + '_ {
        (0..).zip(&self.drafts).filter_map(move |(number, draft)| {
            let output = self.output(buffer, number)?;
            let inputs = Inputs::from_slice(&draft.inputs);
            let coefs = smallvec![1; inputs.len()];
            let outputs = smallvec![output];
            Some((number, Compute::Sum { inputs, coefs, outputs, accumulate: false }))
        })
    }
}

/// The members that hold the parity of what this write changes, and live, by their ids: one, or two
/// while one takes over from the other.
pub(super) fn holders(
    recorded: Recorded<'_>,
    lane: &Lane,
) -> impl Iterator<Item = MemberId> + use<> {
    let view = parity_role(recorded, &lane.map).map(|(start, role)| {
        let members = lane.keeper().members();
        let view = members.view(role, start, 1, &[]);
        view.writers.map(|place| place.map(|place| place.member).filter(|id| members.live(*id)))
    });
    let mut holders = view.unwrap_or_default();
    holders.sort_unstable();
    holders.into_iter().flatten()
}

/// Where the rows of a write begin, and the role that holds their parity.
fn parity_role(recorded: Recorded<'_>, map: &ArrayMap) -> Option<(u64, Role)> {
    let start = match recorded {
        Recorded::Write { start, .. } | Recorded::Zeroes { start, .. } => start,
        Recorded::Rebuilt { .. } => return None,
    };
    let chunk = u64::from(map.geometry.chunk_sectors());
    Some((start, map.geometry.parity_roles(start / chunk).0))
}

/// The entries of a write; none where it makes no parity.
pub(super) fn drafts(recorded: Recorded<'_>, lane: &Lane) -> Vec<Draft> {
    let Some((start, role)) = parity_role(recorded, &lane.map) else { return Vec::new() };
    let changes = changes(recorded, &lane.map);
    let draft = |change: &Change| draft(change, start, &lane.map, role, lane.pool.zero);
    changes.iter().filter_map(draft).collect()
}

/// The entry of one change. The partial parity is what the strips that do not change add up to:
/// the new parity without the new data.
fn draft(change: &Change, start: u64, map: &ArrayMap, role: Role, zero: Buf) -> Option<Draft> {
    let parity = *change.sums.first()?;
    let (first, _) = *change.data.first()?;
    let strips = change.data.len() as u32;
    let bytes = change.rows.sectors() * SECTOR_BYTES as u32;
    let whole = strips == map.geometry.data_disks();
    let entry = PplEntry {
        data_sector: map.data_sector(start + u64::from(change.rows.start), first),
        pp_bytes: if whole { 0 } else { bytes },
        data_bytes: bytes * strips,
        parity_disk: role.0.into(),
        checksum: 0,
    };
    let mut inputs: Vec<Buf> = change.data.iter().filter_map(|(_, buf)| *buf).collect();
    if let Contents::Buf(buf) = parity {
        inputs.push(buf);
    }
    if inputs.is_empty() {
        inputs.push(zero.slice(0, bytes));
    }
    Some(Draft { entry, inputs })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(writes: &[(usize, u32)]) -> VecDeque<(usize, Vec<Draft>)> {
        let draft = |pp_bytes| {
            let entry = PplEntry { pp_bytes, ..PplEntry::default() };
            Draft { entry, inputs: Vec::new() }
        };
        let write =
            |(job, (entries, bytes)): (usize, &(usize, u32))| (job, vec![draft(*bytes); *entries]);
        writes.iter().enumerate().map(write).collect()
    }

    #[test]
    fn a_unit_has_as_many_writes_as_fit() {
        let mut writes = waiting(&[(1, 4096), (2, 2048), (1, 8192), (1, 512)]);
        assert_eq!(LogUnit::take(&mut writes, 8192).jobs, [0, 1]);
        // In their order: a smaller one does not go before.
        assert_eq!(LogUnit::take(&mut writes, 8192).jobs, [2]);
        assert_eq!(LogUnit::take(&mut writes, 8192).jobs, [3]);
        assert!(LogUnit::take(&mut writes, 8192).jobs.is_empty());
        // An area may have more room than a unit.
        let mut writes = waiting(&[(1, 100 << 10), (1, 28 << 10), (1, 512)]);
        assert_eq!(LogUnit::take(&mut writes, 1 << 20).jobs, [0, 1]);
        // Entries without partial parity take room in the header alone.
        let mut writes = waiting(&[(100, 0), (48, 0), (1, 0)]);
        assert_eq!(LogUnit::take(&mut writes, 8192).jobs, [0, 1]);
    }

    #[test]
    fn partial_parity_lies_in_the_order_of_entries() {
        let mut writes = waiting(&[(1, 4096), (1, 0), (1, 512)]);
        let unit = LogUnit::take(&mut writes, 8192);
        let buffer = Buf { offset: 1000, len: BUFFER_BYTES };
        let output = |entry| unit.output(buffer, entry);
        assert_eq!(output(0), Some(Buf { offset: 1000 + 4096, len: 4096 }));
        assert_eq!(output(1), None);
        assert_eq!(output(2), Some(Buf { offset: 1000 + 8192, len: 512 }));
        assert_eq!(output(3), None);
    }
}
