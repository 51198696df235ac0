//! Output of `braid examine --log`: the text, and the same as JSON, record by record.

use std::fmt::{Display, Write as _};

use braid_array::format::Superblock;
use braid_array::format::journal::{BLOCK_SECTORS, Payload};
use braid_array::format::ppl::{PplArea, PplEntry};
use braid_array::geometry::Geometry;
use braid_array::log::journal::{FoundBlock, JournalArea};
use braid_array::log::ppl::{EntryRows, PplUnit, UnitStanding};
use serde_json::{Value, json};

use super::Stream;
use super::json::SCHEMA;
use crate::failure::Failure;

/// The member of the listed log.
pub(crate) struct LogMember<'a> {
    pub(crate) device: &'a str,
    pub(crate) superblock: &'a Superblock,
    pub(crate) geometry: &'a Geometry,
}

/// The listing: for each member its head, its records, and where they end.
pub(crate) struct Listing {
    out: Stream,
    as_json: bool,
    members: usize,
    /// Number of records of the current member.
    records: usize,
}

impl Listing {
    pub(crate) fn new(mut out: Stream, as_json: bool) -> Result<Self, Failure> {
        if as_json {
            out.write("[")?;
        }
        Ok(Self { out, as_json, members: 0, records: 0 })
    }

    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        if self.as_json {
            self.out.write("\n]\n")?;
        }
        self.out.finish()
    }

    /// The head of a partial parity log.
    pub(crate) fn begin_partial_parity(
        &mut self,
        member: &LogMember<'_>,
        area: &PplArea,
    ) -> Result<(), Failure> {
        let PplArea { sector, sectors, is_ring } = area;
        let role = member.superblock.role().active();
        let json = json!({
            "schema": SCHEMA,
            "device": member.device,
            "kind": "ppl",
            "role": role,
            "start_sector": sector,
            "size_sectors": sectors,
            "ring": is_ring,
        });
        let kind = if *is_ring { "a ring of units" } else { "one unit" };
        let whose = role.map_or_else(|| "-".to_owned(), |role| role.to_string());
        let device = member.device;
        let text = format!(
            "{device}: partial parity log of role {whose}, {sectors} sectors from sector {sector} \
             on, {kind}\n"
        );
        self.begin(json, "units", &text)
    }

    /// The head of a journal.
    pub(crate) fn begin_journal(
        &mut self,
        member: &LogMember<'_>,
        area: &JournalArea,
    ) -> Result<(), Failure> {
        let JournalArea { start, sectors, tail } = area;
        let json = json!({
            "schema": SCHEMA,
            "device": member.device,
            "kind": "journal",
            "start_sector": start,
            "size_sectors": sectors,
            "tail_sector": tail,
        });
        let device = member.device;
        let text = format!(
            "{device}: journal, {sectors} sectors from sector {start} on, from its tail at sector \
             {tail} on\n"
        );
        self.begin(json, "blocks", &text)
    }

    /// Prints a unit. `whole` tells for each entry whether its partial parity matches its checksum.
    pub(crate) fn unit(
        &mut self,
        member: &LogMember<'_>,
        unit: &PplUnit,
        whole: &[bool],
    ) -> Result<(), Failure> {
        let PplUnit { at, header, standing } = unit;
        let (word, means) = match standing {
            UnitStanding::Replaced => ("replaced", "a later one follows"),
            UnitStanding::Counts => ("counts", "counts"),
            UnitStanding::Older => ("older", "from an earlier round"),
        };
        let entries = || header.entries.iter().zip(whole);
        if self.as_json {
            let entries: Vec<Value> =
                entries().map(|(entry, whole)| entry_json(member, entry, *whole)).collect();
            return self.record(&json!({
                "sector": at,
                "generation": header.generation,
                "standing": word,
                "entries": entries,
            }));
        }
        let count = match header.entries.len() {
            1 => "1 entry".to_owned(),
            count => format!("{count} entries"),
        };
        let generation = header.generation;
        let mut text =
            format!("  unit at sector {at}: generation {generation}, {count}, {means}\n");
        for (entry, whole) in entries() {
            let _ = writeln!(text, "    {}", entry_text(member, entry, *whole));
        }
        self.out.write(&text)
    }

    /// A block of a journal.
    pub(crate) fn block(&mut self, found: &FoundBlock) -> Result<(), Failure> {
        let block = &found.block;
        let mut first = 0;
        let payloads = block.payloads.iter().map(|payload| {
            let pages = first..first + payload.pages();
            let damaged = found.damaged.iter().filter(|page| pages.contains(page));
            let damaged: Vec<usize> = damaged.map(|page| page - first).collect();
            first += payload.pages();
            (payload, damaged)
        });
        if self.as_json {
            let payloads: Vec<Value> =
                payloads.map(|(payload, damaged)| payload_json(payload, &damaged)).collect();
            return self.record(&json!({
                "sector": block.position,
                "sequence": block.seq,
                "counts": found.counts(),
                "payloads": payloads,
            }));
        }
        let counts = if found.counts() { "" } else { ", does not count" };
        let mut text =
            format!("  block at sector {}: sequence {}{counts}\n", block.position, block.seq);
        for (payload, damaged) in payloads {
            let _ = writeln!(text, "    {}", payload_text(payload, &damaged));
        }
        self.out.write(&text)
    }

    /// Where the records end and why.
    pub(crate) fn end(&mut self, end: Option<(u64, impl Display)>) -> Result<(), Failure> {
        if self.as_json {
            let end =
                end.map(|(sector, why)| json!({ "sector": sector, "reason": why.to_string() }));
            let end = end.unwrap_or(Value::Null);
            let behind = if self.records > 0 { "\n  " } else { "" };
            return self.out.write(&format!("{behind}], \"end\": {end}}}"));
        }
        match end {
            Some((sector, why)) => self.out.write(&format!("  end at sector {sector}: {why}\n")),
            None => Ok(()),
        }
    }

    fn begin(&mut self, head: Value, records: &str, text: &str) -> Result<(), Failure> {
        let separator = if self.members > 0 { "," } else { "" };
        self.members += 1;
        self.records = 0;
        if !self.as_json {
            return self.out.write(text);
        }
        // The records go into the object before it is closed.
        let head = head.to_string();
        let open = head.strip_suffix('}').unwrap_or(&head);
        self.out.write(&format!("{separator}\n {open}, \"{records}\": ["))
    }

    fn record(&mut self, record: &Value) -> Result<(), Failure> {
        let separator = if self.records > 0 { "," } else { "" };
        self.records += 1;
        self.out.write(&format!("{separator}\n   {record}"))
    }
}

fn entry_json(member: &LogMember<'_>, entry: &PplEntry, whole: bool) -> Value {
    let rows = EntryRows::of(entry, member.geometry);
    json!({
        "array_sector": entry.data_sector,
        "data_bytes": entry.data_bytes,
        "partial_parity_bytes": entry.pp_bytes,
        "parity_role": entry.parity_disk,
        "checksum_ok": whole,
        "rows": rows.as_ref().ok().map(|rows| json!({
            "member_sector": rows.row,
            "sectors": rows.sectors,
            "data_roles": rows.data,
        })),
        "impossible": rows.err(),
    })
}

fn entry_text(member: &LogMember<'_>, entry: &PplEntry, whole: bool) -> String {
    let PplEntry { data_sector, pp_bytes, parity_disk, .. } = entry;
    let checksum = if whole { "right" } else { "WRONG" };
    let rows = match EntryRows::of(entry, member.geometry) {
        Ok(EntryRows { row, sectors, data }) => {
            let roles: Vec<String> = data.iter().map(ToString::to_string).collect();
            format!("{sectors} rows from member sector {row} on, data of role {}", roles.join(", "))
        }
        Err(reason) => format!("not possible: {reason}"),
    };
    let parity = format!("parity of role {parity_disk}");
    let partial = match pp_bytes {
        0 => "whole rows, no partial parity".to_owned(),
        bytes => format!("{bytes} bytes of partial parity, checksum {checksum}"),
    };
    format!("array sector {data_sector}: {rows}, {parity}, {partial}")
}

fn payload_json(payload: &Payload, damaged: &[usize]) -> Value {
    let sectors = payload.pages() as u64 * BLOCK_SECTORS;
    match payload {
        Payload::Data { sector, .. } => json!({
            "kind": "data",
            "array_sector": sector,
            "sectors": sectors,
            "pages_ok": damaged.is_empty(),
            "damaged_pages": damaged,
        }),
        Payload::Parity { sector, .. } => json!({
            "kind": "parity",
            "member_sector": sector,
            "sectors": sectors,
            "pages_ok": damaged.is_empty(),
            "damaged_pages": damaged,
        }),
        Payload::Flush { rows } => json!({ "kind": "flush", "member_sectors": rows }),
    }
}

fn payload_text(payload: &Payload, damaged: &[usize]) -> String {
    let sectors = payload.pages() as u64 * BLOCK_SECTORS;
    let pages = match damaged {
        [] => "pages right".to_owned(),
        damaged => {
            let damaged: Vec<String> = damaged.iter().map(ToString::to_string).collect();
            format!("DAMAGED pages {}", damaged.join(", "))
        }
    };
    match payload {
        Payload::Data { sector, .. } => {
            format!("data of array sector {sector}, {sectors} sectors, {pages}")
        }
        Payload::Parity { sector, .. } => {
            format!("parity of member sector {sector}, {sectors} sectors, {pages}")
        }
        Payload::Flush { rows } => {
            let rows: Vec<String> = rows.iter().map(ToString::to_string).collect();
            format!("flush of member sectors {}", rows.join(", "))
        }
    }
}
