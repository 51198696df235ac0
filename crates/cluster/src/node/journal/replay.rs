//! Operations that store the content of records in place.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use braid_array::{Buf, IoOp, SECTOR_BYTES};

use crate::journal::{Kind, Record};

/// Where records and data lie on a volume, in bytes, and the memory to copy with.
pub(super) struct Places {
    /// The beginning of the log.
    pub(super) log: u64,
    /// The data.
    pub(super) data: Range<u64>,
    pub(super) buffer: Buf,
}

/// Returns the operations that store, at each place, the newest content that the records have of
/// it, and no older one. A node that is lost during the replay keeps its content, or has the
/// newest. This matters where recorded content is durably in place everywhere, so that no mark says
/// any more that a node may lack it. The records come with their places in the log, in any order.
pub(super) fn steps<'a>(
    records: impl Iterator<Item = (u64, &'a Record)>,
    places: &Places,
) -> VecDeque<IoOp> {
    let mut records: Vec<(u64, &Record)> = records.collect();
    records.sort_by_key(|(_, record)| (record.version, record.sequence));
    let again = braid_array::broken("replay-newest");
    if !again && !braid_array::broken("replay-order") {
        records.reverse();
    }
    let mut stored = StoredRanges::default();
    let mut steps = VecDeque::new();
    for (at, record) in records.into_iter().filter(|(_, record)| record.kind != Kind::Void) {
        for (number, &row) in record.rows.iter().enumerate() {
            let start = places.data.start.saturating_add(row);
            let end = start.saturating_add(record.len.into());
            if end > places.data.end {
                continue;
            }
            let content = places.log + at + record.row_byte(number);
            if again {
                stored = StoredRanges::default();
            }
            for to in stored.add(start..end) {
                let len = to.end - to.start;
                if record.kind == Kind::Content {
                    copy(content + (to.start - start), to.start, len, places.buffer, &mut steps);
                } else {
                    steps.push_back(IoOp::WriteZeroes {
                        sector: to.start / SECTOR_BYTES,
                        sectors: len / SECTOR_BYTES,
                        unmap: true,
                        fua: false,
                    });
                }
            }
        }
    }
    steps.push_back(IoOp::Flush);
    steps
}

/// Ranges that are stored already, which do not overlap: where each begins and ends.
#[derive(Debug, Default)]
struct StoredRanges(BTreeMap<u64, u64>);

impl StoredRanges {
    /// Adds a range. Returns the parts of it that were missing.
    fn add(&mut self, range: Range<u64>) -> Vec<Range<u64>> {
        let before = self.0.range(..range.end).rev();
        let before = before.take_while(|&(_, &end)| end > range.start);
        let mut there: Vec<(u64, u64)> = before.map(|(&start, &end)| (start, end)).collect();
        there.reverse();
        there.push((range.end, range.end));
        let mut parts = Vec::new();
        let mut at = range.start;
        for (start, end) in there {
            if at < start {
                parts.push(at..start);
            }
            at = at.max(end);
        }
        self.0.extend(parts.iter().map(|part| (part.start, part.end)));
        parts
    }
}

fn copy(from: u64, to: u64, len: u64, buffer: Buf, steps: &mut VecDeque<IoOp>) {
    let mut done = 0;
    while done < len {
        let buf = buffer.slice(0, (len - done).min(buffer.len.into()) as u32);
        steps.push_back(IoOp::Read { sector: (from + done) / SECTOR_BYTES, buf });
        let sector = (to + done) / SECTOR_BYTES;
        steps.push_back(IoOp::Write { sector, buf, fua: false, fill: false });
        done += u64::from(buf.len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Epoch, SetVersion};
    use crate::set::Roles;

    const DATA: u64 = 1 << 20;

    fn record(version: u64, kind: Kind, row: u64, len: u32) -> Record {
        let version = SetVersion::new(Epoch(1), version);
        let sequence = version.number;
        Record { version, sequence, kind, holders: Roles(1), len, rows: vec![row], crc: 0 }
    }

    /// Returns the 4 KiB blocks of the data in the order of the stores, each with the version of
    /// its content.
    fn stored(records: &[Record]) -> Vec<(u64, u64)> {
        let buffer = Buf { offset: 0, len: 8192 };
        let places = Places { log: 0, data: DATA..2 * DATA, buffer };
        // The record of a version lies at so many times 64 KiB.
        let found = records.iter().map(|record| (record.version.number << 16, record));
        let mut version = 0;
        let mut stored = Vec::new();
        let steps = steps(found, &places);
        assert_eq!(steps.back(), Some(&IoOp::Flush));
        for op in steps {
            match op {
                IoOp::Read { sector, .. } => version = (sector * SECTOR_BYTES) >> 16,
                IoOp::Write { sector, buf, .. } => {
                    let blocks = (0..u64::from(buf.len)).step_by(4096);
                    let first = sector * SECTOR_BYTES - DATA;
                    stored.extend(blocks.map(|at| ((first + at) / 4096, version)));
                }
                IoOp::WriteZeroes { sector, .. } => {
                    stored.push(((sector * SECTOR_BYTES - DATA) / 4096, 0));
                }
                _ => {}
            }
        }
        stored
    }

    #[test]
    fn of_each_place_the_newest_is_stored_and_nothing_older_before() {
        let records = [
            record(3, Kind::Content, 4096, 8192),
            record(1, Kind::Content, 0, 16384),
            record(2, Kind::Content, 0, 8192),
            record(4, Kind::Zeroes, 12288, 4096),
        ];
        assert_eq!(stored(&records), [(3, 0), (1, 3), (2, 3), (0, 2)]);
        let void = [record(5, Kind::Void, 0, 16384), record(1, Kind::Content, 0, 4096)];
        assert_eq!(stored(&void), [(0, 1)]);
        assert_eq!(stored(&[record(1, Kind::Content, DATA, 4096)]), [], "beyond the data");
    }

    #[test]
    fn what_is_stored_already_is_left_out() {
        let mut stored = StoredRanges::default();
        let mut add = |range| {
            let parts = stored.add(range).into_iter();
            parts.map(|part| (part.start, part.end)).collect::<Vec<_>>()
        };
        assert_eq!(add(4..8), [(4, 8)]);
        assert_eq!(add(12..16), [(12, 16)]);
        assert_eq!(add(2..20), [(2, 4), (8, 12), (16, 20)]);
        assert_eq!(add(0..2), [(0, 2)]);
        assert_eq!(add(3..19), []);
        assert_eq!(add(19..21), [(20, 21)]);
    }
}
