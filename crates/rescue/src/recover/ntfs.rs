//! NTFS 3.1: a record of the master file table has its number, and the table begins where the boot
//! sector says; record 0 says where the rest of the table lies. By `ntfs.h` of Linux's ntfs3.
//!
//! Records have no checksum: that the marks at the ends of their sectors are in place is all that
//! tells a whole one.

use std::collections::BTreeMap;

use braid_array::SECTOR_BYTES;

use super::places::Places;
use crate::bytes::{array_at, is_zero, lies_at, u16_le, u32_le, u64_le};

/// Records that lie at the table's beginning in any case.
const FIRST_RECORDS: u64 = 16;
/// Records of which there is a copy, at least.
const COPIED_RECORDS: u64 = 4;
/// More runs than that are not kept.
const MOST_RUNS: usize = 4096;
/// Places that are named for further reads.
const MOST_KNOWN: u64 = 128;

/// The facts of the volume in a boot sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ntfs {
    /// By which volumes are told apart.
    pub(super) serial: u64,
    /// Its size without the copy of the boot sector, in sectors.
    last_sector: u64,
    cluster_sectors: u64,
    /// Clusters: where the table begins, and the copy of its first records.
    table: u64,
    copy: u64,
    record_bytes: u64,
}

/// Where the table lies: by its cluster, the volume's cluster and a number of clusters.
#[derive(Clone, Debug, Default)]
pub(super) struct Runs(BTreeMap<u64, (u64, u64)>);

impl Runs {
    /// As lines of three numbers.
    pub(super) fn to_lines(&self) -> Vec<String> {
        self.0.iter().map(|(at, (cluster, count))| format!("{at} {cluster} {count}")).collect()
    }

    /// Takes in such a line.
    pub(super) fn take(&mut self, [at, cluster, count]: [u64; 3]) {
        if self.0.len() < MOST_RUNS {
            self.0.insert(at, (cluster, count));
        }
    }

    /// The longer table is the newer one.
    pub(super) fn merge(&mut self, other: Self) {
        if other.clusters() > self.clusters() {
            *self = other;
        }
    }

    fn clusters(&self) -> u64 {
        self.0.values().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }
}

impl Ntfs {
    /// From a boot sector or its copy.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        if !lies_at(bytes, 3, b"NTFS    ") || !lies_at(bytes, 510, &[0x55, 0xaa]) {
            return None;
        }
        let sector_bytes = u64::from(u16_le(bytes, 0x0b)?);
        let cluster_sectors = match bytes[0x0d] {
            few @ 1..=0x80 => u64::from(few),
            log @ 0xe1.. => 1 << (256 - u32::from(log)),
            _ => return None,
        };
        let record_bytes = match array_at(bytes, 0x40).map(i8::from_le_bytes)? {
            log @ -12..=-9 => 1 << -log,
            clusters @ 1.. => clusters as u64 * cluster_sectors * sector_bytes,
            _ => return None,
        };
        let is_sector = (512..=4096).contains(&sector_bytes) && sector_bytes.is_power_of_two();
        let units = sector_bytes / SECTOR_BYTES;
        let last_sector = u64_le(bytes, 0x28)?;
        let found = Self {
            serial: u64_le(bytes, 0x48)?,
            last_sector: last_sector.checked_mul(units)?,
            cluster_sectors: cluster_sectors * units,
            table: u64_le(bytes, 0x30)?,
            copy: u64_le(bytes, 0x38)?,
            record_bytes,
        };
        let clusters = last_sector / cluster_sectors;
        let sane = is_sector
            && is_zero(&bytes[0x0e..0x15])
            && cluster_sectors.is_power_of_two()
            && cluster_sectors * sector_bytes <= 2 << 20
            && matches!(record_bytes, 512 | 1024 | 2048 | 4096)
            && (1..1 << 48).contains(&last_sector)
            && (1..clusters).contains(&found.table)
            && (1..clusters).contains(&found.copy);
        sane.then_some(found)
    }

    /// Its size in sectors: the last one has the copy of the boot sector.
    pub(super) const fn sectors(&self) -> u64 {
        self.last_sector + 1
    }

    /// Where boot sectors lie.
    pub(super) const fn boot_places(&self) -> Places {
        Places { first: 0, copy: Some(self.last_sector) }
    }

    /// The number of a record of the table. Facts in record 0 go to `runs`.
    pub(super) fn look(&self, bytes: &[u8], runs: &mut Runs) -> Option<u32> {
        if !lies_at(bytes, 0, b"FILE") {
            return None;
        }
        let record = bytes.get(..self.record_bytes as usize)?;
        let fixups = usize::from(u16_le(record, 4)?);
        let attributes = usize::from(u16_le(record, 0x14)?);
        let sectors = record.len() / SECTOR_BYTES as usize;
        // Before NTFS 3.1, what marks the ends began where the number is now.
        let sane = fixups >= 0x30
            && usize::from(u16_le(record, 6)?) == sectors + 1
            && attributes.is_multiple_of(8)
            && (fixups + 2 * (sectors + 1)..record.len()).contains(&attributes)
            && u64::from(u32_le(record, 0x1c)?) == self.record_bytes
            && u32_le(record, 0x18)? <= u32_le(record, 0x1c)?;
        let end = array_at::<2>(record, fixups)?;
        let is_whole = record.chunks_exact(512).all(|sector| sector[510..] == end);
        let number = u32_le(record, 0x2c)?;
        if !sane || !is_whole {
            return None;
        }
        if number == 0 {
            let mut record = record.to_vec();
            for index in 0..sectors {
                let kept: [u8; 2] = array_at(&record, fixups + 2 + 2 * index)?;
                record[index * 512 + 510..][..2].copy_from_slice(&kept);
            }
            if let Some(found) = self.runs(&record, attributes) {
                runs.merge(found);
            }
        }
        Some(number)
    }

    /// Where the table lies, by its own record, whose ends have been put back.
    fn runs(&self, record: &[u8], mut at: usize) -> Option<Runs> {
        loop {
            let kind = u32_le(record, at)?;
            let length = u32_le(record, at + 4)? as usize;
            if kind == u32::MAX || length < 24 {
                return None;
            }
            let attribute = record.get(at..at.checked_add(length)?)?;
            let is_elsewhere = attribute[8] == 1 && attribute[9] == 0;
            if kind == 0x80 && is_elsewhere && u64_le(attribute, 0x10)? == 0 {
                let from = usize::from(u16_le(attribute, 0x20)?);
                let runs = decode(attribute.get(from..)?, self.last_sector / self.cluster_sectors);
                let first = runs.0.first_key_value().map(|(_, run)| run.0);
                return (first == Some(self.table)).then_some(runs);
            }
            at += length;
        }
    }

    /// The sectors in which a record lies.
    pub(super) fn places(&self, number: u32, runs: &Runs) -> Option<Places> {
        let number = u64::from(number);
        let cluster_bytes = self.cluster_sectors * SECTOR_BYTES;
        let at = number * self.record_bytes;
        let within = at % cluster_bytes / SECTOR_BYTES;
        let cluster = match runs.0.range(..=at / cluster_bytes).next_back() {
            Some((begin, (cluster, count))) => {
                let into = at / cluster_bytes - begin;
                if into >= *count {
                    return None;
                }
                cluster.checked_add(into)?
            }
            None => self.table + at / cluster_bytes,
        };
        let told = !runs.0.is_empty() || number < FIRST_RECORDS;
        let first = cluster.checked_mul(self.cluster_sectors)? + within;
        let is_copied = number < COPIED_RECORDS || at + self.record_bytes <= cluster_bytes;
        let copy = is_copied.then(|| self.copy * self.cluster_sectors + at / SECTOR_BYTES);
        (told && first < self.last_sector).then_some(Places { first, copy })
    }

    /// Where boot sectors and records lie as far as is known.
    pub(super) fn known_places(&self, runs: &Runs) -> Vec<u64> {
        let cluster_bytes = self.cluster_sectors * SECTOR_BYTES;
        let records = runs.clusters().saturating_mul(cluster_bytes) / self.record_bytes;
        let records = records.max(FIRST_RECORDS).min(u32::MAX.into());
        let every = records.div_ceil(MOST_KNOWN).max(1);
        let numbers = (0..records).step_by(every as usize);
        let places = numbers.filter_map(|number| self.places(number as u32, runs));
        let all = std::iter::once(self.boot_places()).chain(places);
        all.flat_map(|places| std::iter::once(places.first).chain(places.copy)).collect()
    }
}

/// A list of runs, up to what is none within so many clusters.
fn decode(mut bytes: &[u8], clusters: u64) -> Runs {
    let mut runs = Runs::default();
    let mut at = 0_u64;
    let mut cluster = 0_i64;
    while let Some(&sizes) = bytes.first().filter(|sizes| **sizes != 0) {
        let length = usize::from(sizes & 0xf);
        let offset = usize::from(sizes >> 4);
        // One without an offset has nothing behind it.
        if length > 8 || !(1..=8).contains(&offset) {
            break;
        }
        let Some(fields) = bytes.get(1..1 + length + offset) else { break };
        let number = |field: &[u8], fill: u8| {
            let mut wide = [fill; 8];
            wide[..field.len()].copy_from_slice(field);
            u64::from_le_bytes(wide)
        };
        let count = number(&fields[..length], 0);
        let sign = if fields[length + offset - 1] & 0x80 == 0 { 0 } else { 0xff };
        cluster = cluster.wrapping_add(number(&fields[length..], sign).cast_signed());
        let begin = u64::try_from(cluster).unwrap_or(u64::MAX);
        let fits = count > 0 && begin.checked_add(count).is_some_and(|end| end <= clusters);
        if !fits {
            break;
        }
        runs.take([at, begin, count]);
        at += count;
        bytes = &bytes[1 + length + offset..];
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Ntfs = Ntfs {
        serial: 7,
        last_sector: 1 << 17,
        cluster_sectors: 8,
        table: 4,
        copy: 8191,
        record_bytes: 1024,
    };

    #[test]
    fn runs_are_followed_both_ways() {
        // 8 clusters from 4 on, 16 from 1000 on, 2 from 500 on.
        let bytes = [0x11, 8, 4, 0x21, 16, 0xe4, 0x03, 0x21, 2, 0x0c, 0xfe, 0];
        let runs = decode(&bytes, 1 << 14);
        assert_eq!(runs.to_lines(), ["0 4 8", "8 1000 16", "24 500 2"]);
        let first = |number| ONE.places(number, &runs).map(|places| places.first);
        assert_eq!(first(0), Some(32));
        assert_eq!(first(31), Some(32 + 62));
        assert_eq!(first(33), Some(8002));
        assert_eq!(first(96), Some(4000));
        assert_eq!(first(104), None);
        // Beyond the volume, without clusters, cut off.
        assert_eq!(decode(&bytes, 1000).to_lines(), ["0 4 8"]);
        assert_eq!(decode(&[0x11, 0, 4, 0], 1 << 14).to_lines().len(), 0);
        assert_eq!(decode(&bytes[..5], 1 << 14).to_lines(), ["0 4 8"]);
        assert_eq!(decode(&[0xff; 40], 1 << 14).to_lines().len(), 0);
    }

    #[test]
    fn without_its_own_record_the_beginning_of_the_table_is_known() {
        let runs = Runs::default();
        let places = ONE.places(3, &runs).unwrap();
        assert_eq!((places.first, places.copy), (38, Some(8191 * 8 + 6)));
        let places = ONE.places(15, &runs).unwrap();
        assert_eq!((places.first, places.copy), (62, None));
        assert!(ONE.places(16, &runs).is_none());
        assert!(ONE.known_places(&runs).contains(&(1 << 17)));
    }

    #[test]
    fn damaged_records_are_not_followed() {
        let mut record = vec![0; 1024];
        record[..4].copy_from_slice(b"FILE");
        record[4] = 0x30;
        record[6] = 3;
        record[0x14] = 0x38;
        record[0x19] = 2;
        record[0x1d] = 4;
        record[0x30..0x36].copy_from_slice(&[9, 0, 0, 0, 0, 0]);
        (record[510], record[1022]) = (9, 9);
        // The data: not resident, 8 clusters from 4 on.
        record[0x38] = 0x80;
        record[0x3c] = 0x48;
        record[0x40] = 1;
        record[0x38 + 0x20] = 0x40;
        record[0x78..0x7c].copy_from_slice(&[0x11, 8, 4, 0]);
        let mut runs = Runs::default();
        assert_eq!(ONE.look(&record, &mut runs), Some(0));
        assert_eq!(runs.to_lines(), ["0 4 8"]);
        let mut state = 1_u64;
        for _ in 0..5000 {
            let mut damaged = record.clone();
            for _ in 0..3 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                damaged[(state >> 40) as usize % 1024] = (state >> 33) as u8;
            }
            ONE.look(&damaged, &mut Runs::default());
            ONE.look(&damaged[..(state >> 50) as usize % 1024], &mut Runs::default());
        }
        record[510] = 8;
        assert_eq!(ONE.look(&record, &mut runs), None);
    }
}
