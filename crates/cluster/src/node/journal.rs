//! The journal of a pipeline, as data: what it is at, what it found, what is under way.
//! [`record`](super::record) carries it out.

use std::collections::VecDeque;

use braid_array::{Buf, IoOp, MemberId, SECTOR_BYTES};

use super::ids::ArrayId;
use crate::journal::{Header, Kind, Log, Look, PAGE_BYTES, Record, Version};
use crate::pipeline::Pipeline;

/// What goes on before records are appended.
#[derive(Debug)]
pub(super) enum Start {
    /// The headers are being read.
    Headers,
    /// A record is being looked for.
    Look(Look),
    /// One is found: are its contents, too?
    Check(Check),
    /// What was found is being made durable.
    Flushing,
    /// What it was is known.
    Known,
    /// Records are being stored, in order: what is to be done yet.
    Replay { tag: u32, steps: VecDeque<IoOp> },
}

/// A record whose contents are being looked at.
#[derive(Debug)]
pub(super) struct Check {
    pub(super) look: Look,
    pub(super) record: Record,
    /// So much of them, with this CRC.
    pub(super) done: u64,
    pub(super) crc: u32,
}

impl Check {
    /// What comes next: byte of the log, and how much at once.
    pub(super) fn next(&self, most: u32) -> (u64, u64) {
        let len = u64::from(self.record.len);
        let (row, byte) = (self.done / len, self.done % len);
        let at = self.look.at + self.record.row_byte(row as usize) + byte;
        (at, (len - byte).min(most.into()))
    }
}

/// How far a batch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Sums,
    Writes,
    Flush,
}

/// Records on their way to the volume.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) step: Step,
    /// Operations that are not answered.
    pub(super) left: usize,
    pub(super) ok: bool,
    pub(super) records: Vec<Recorded>,
}

/// A record of a batch.
#[derive(Debug)]
pub(super) struct Recorded {
    pub(super) position: u16,
    /// Where it begins on the volume.
    pub(super) sector: u64,
    pub(super) record: Record,
    pub(super) contents: Vec<Buf>,
}

/// One member's journal, from `OpenPipeline` until the pipeline ends. At the start it reads the
/// headers,
/// looks for records and checks their contents, and makes what it found durable; then what the log
/// held is known (`found`) and may be replayed. Once the client has had it emptied it is `used`:
/// slice-sets are recorded in batches before they count as prepared, and a trim writes a header by
/// which older records count no more.
#[derive(Debug)]
pub(super) struct Journal {
    pub(super) array: ArrayId,
    pub(super) member: MemberId,
    /// First sector of the headers, and of the log when that is known.
    pub(super) headers_sector: u64,
    pub(super) log_sector: u64,
    /// First byte of the data on the volume, and of what is behind them.
    pub(super) data: (u64, u64),
    /// In the arena: a page for each position and two more.
    pub(super) pages: u64,
    pub(super) positions: u16,
    /// No record has more of them.
    pub(super) rows: u16,
    /// The tag of `OpenPipeline`.
    pub(super) prepare: u32,
    pub(super) start: Start,
    /// What lies in the buffer at the start: byte of the log, and how much.
    pub(super) window: (u64, u64),
    pub(super) header: Option<Header>,
    pub(super) log: Option<Log>,
    /// What the log held at the start.
    pub(super) found: Vec<(u64, Record)>,
    pub(super) waiting: Vec<u16>,
    pub(super) batch: Option<Batch>,
    /// The tag of what is answered when this header is durable.
    pub(super) trimming: Option<(u32, Header)>,
    /// The log has a hole: nothing behind it would be found.
    pub(super) broken: bool,
    /// What it held at the start cannot be read.
    pub(super) unreadable: bool,
    /// The client has had it emptied: from then on it records what is staged.
    pub(super) used: bool,
}

impl Journal {
    /// Memory for it, beside a ring.
    pub(super) fn page_bytes(pipeline: &Pipeline) -> u64 {
        (u64::from(pipeline.positions()) + 2) * PAGE_BYTES
    }

    pub(super) fn page(&self, number: u16, len: u64) -> Buf {
        Buf { offset: self.pages + u64::from(number) * PAGE_BYTES, len: len as u32 }
    }

    /// Memory to look with and to replay with: nothing else uses it then.
    pub(super) fn buffer(&self) -> Buf {
        self.page(0, u64::from(self.positions) * PAGE_BYTES)
    }

    /// Which part of the log is to be looked at next.
    pub(super) fn wanted(&self) -> Option<(u64, u64)> {
        match &self.start {
            Start::Look(look) => Some((look.at, PAGE_BYTES)),
            Start::Check(check) => Some(check.next(self.buffer().len)),
            Start::Headers | Start::Flushing | Start::Known | Start::Replay { .. } => None,
        }
    }

    pub(super) fn log_byte(&self) -> u64 {
        self.log_sector * SECTOR_BYTES
    }

    /// Is it there, and listed?
    pub(super) fn is_known(&self) -> bool {
        self.header.is_some() && matches!(self.start, Start::Known)
    }

    /// Replays these records, in order.
    pub(super) fn steps(&self, above: Version, without: &[Version]) -> VecDeque<IoOp> {
        let mut records: Vec<&(u64, Record)> = self.found.iter().collect();
        records.sort_by_key(|(_, record)| (record.version, record.sequence));
        if braid_array::broken("replay-order") {
            records.reverse();
        }
        let goes = |version: Version| version > above && !without.contains(&version);
        let mut steps = VecDeque::new();
        for (at, record) in records.into_iter().filter(|(_, record)| goes(record.version)) {
            for (number, &row) in record.rows.iter().enumerate() {
                let (to, len) = (self.data.0.saturating_add(row), u64::from(record.len));
                if to.saturating_add(len) > self.data.1 || len == 0 {
                    continue;
                }
                match record.kind {
                    Kind::Void => {}
                    Kind::Blank => steps.push_back(IoOp::WriteZeroes {
                        sector: to / SECTOR_BYTES,
                        sectors: len / SECTOR_BYTES,
                        unmap: true,
                        fua: false,
                    }),
                    Kind::Content => {
                        let from = self.log_byte() + at + record.row_byte(number);
                        copy(from, to, len, self.buffer(), &mut steps);
                    }
                }
            }
        }
        steps.push_back(IoOp::Flush);
        steps
    }
}

fn copy(from: u64, to: u64, len: u64, buffer: Buf, steps: &mut VecDeque<IoOp>) {
    let mut done = 0;
    while done < len {
        let buf = buffer.slice(0, (len - done).min(buffer.len.into()) as u32);
        steps.push_back(IoOp::Read { sector: (from + done) / SECTOR_BYTES, buf });
        let sector = (to + done) / SECTOR_BYTES;
        steps.push_back(IoOp::Write { sector, buf, fua: false });
        done += u64::from(buf.len);
    }
}
