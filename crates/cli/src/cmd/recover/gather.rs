//! Reads members, all at the same time, and has the data judged.

use std::ops::Range;
use std::thread;

use braid_array::SECTOR_BYTES;
use braid_host::member::{MemberFile, as_image};
use braid_rescue::Image;
use braid_rescue::recover::{self, Arrays, Gathered, Harvest, Members, Ranked, Structure};

use super::hints;
use super::kept::StoredProgress;
use crate::failure::Failure;

use crate::output::recovered::ReadingProgress;

/// Bytes read at once, between two updates of the progress.
const PIECE_BYTES: u64 = 8 << 20;

/// Rounds of further reads that the search may ask for.
const ROUNDS: usize = 3;

/// Data read from members.
pub(super) struct Read {
    known: Vec<Structure>,
    harvests: Vec<Harvest>,
    /// The ranges that were read.
    samples: Vec<Vec<Range<u64>>>,
    kept: Option<StoredProgress>,
}

/// Reads samples. `resume`: the data read are kept in a file, and data kept there are not read
/// again.
pub(super) fn read(devices: &[MemberFile], resume: bool) -> Result<Read, Failure> {
    let bytes = |device: &MemberFile| device.sectors * SECTOR_BYTES;
    let beginnings: Vec<Vec<Range<u64>>> =
        devices.iter().map(|device| vec![recover::beginning(bytes(device))]).collect();
    let samples: Vec<Vec<Range<u64>>> =
        devices.iter().map(|device| recover::samples(bytes(device))).collect();
    let progress = ReadingProgress::new(total(&beginnings) + total(&samples));
    let mut known = vec![Structure::DISK];
    let fresh = |_| (0, Vec::new());
    let find = |image: &mut dyn Image, range, found: &mut _| {
        recover::structures(image, range, found);
    };
    let each = each_member(devices, &beginnings, &progress, fresh, find, |_, _, _| {});
    each.into_iter().flatten().for_each(|one| recover::add(&mut known, one));
    let kept = if resume { Some(StoredProgress::of(devices, known.len())?) } else { None };
    let begin = |member| kept.as_ref().map_or_else(Default::default, |kept| kept.so_far(member));
    let gather = |image: &mut dyn Image, range, found: &mut Harvest| {
        found.gather(image, range, &known);
    };
    let after = |member: usize, done: usize, found: &Harvest| {
        if let Some(kept) = &kept {
            kept.note(member, done, found, done == samples[member].len());
        }
    };
    let harvests = each_member(devices, &samples, &progress, begin, gather, after);
    progress.done();
    Ok(Read { known, harvests, samples, kept })
}

impl Read {
    /// Returns the data of parts of some members, by the bytes of each, without reading again.
    pub(super) fn within(&self, parts: &[(usize, Range<u64>)]) -> Self {
        let harvests = parts.iter().map(|(member, part)| {
            let sectors = part.start / SECTOR_BYTES..part.end / SECTOR_BYTES;
            self.harvests[*member].within(&sectors)
        });
        let samples = parts.iter().map(|(member, part)| {
            let clip = |range: &Range<u64>| {
                let start = range.start.max(part.start) - part.start;
                start..range.end.min(part.end).saturating_sub(part.start)
            };
            self.samples[*member].iter().map(clip).filter(|range| range.start < range.end).collect()
        });
        Self {
            known: self.known.clone(),
            harvests: harvests.collect(),
            samples: samples.collect(),
            kept: None,
        }
    }

    /// Judges the data. Reads further ranges first, if the search asks for them.
    pub(super) fn judge(&mut self, devices: &[MemberFile]) -> SearchResult {
        let sizes: Vec<u64> = devices.iter().map(|device| device.sectors).collect();
        let hints = hints::of(devices);
        let known = &self.known;
        let mut images: Vec<_> = devices.iter().map(as_image).collect();
        let mut images: Vec<&mut dyn Image> =
            images.iter_mut().map(|image| image as &mut dyn Image).collect();
        let mut members = Members::new(&mut images);
        let mut gathered = Gathered::of(&self.harvests, known);
        gathered.compare(&mut members);
        let mut found = recover::search(&sizes, &gathered, known, hints.as_ref());
        let progress = ReadingProgress::new(0);
        let gather = |image: &mut dyn Image, range, found: &mut Harvest| {
            found.gather(image, range, known);
        };
        // What is found there may say that more is worth it.
        for _ in 0..ROUNDS {
            let targets = recover::targets(&found, &sizes, &gathered, known);
            let targets = without(targets, &self.samples);
            if total(&targets) == 0 {
                break;
            }
            progress.add(total(&targets));
            let fresh = |_| (0, Harvest::default());
            let more = each_member(devices, &targets, &progress, fresh, gather, |_, _, _| {});
            self.harvests.iter_mut().zip(more).for_each(|(one, more)| one.merge(more));
            self.samples.iter_mut().zip(targets).for_each(|(read, more)| read.extend(more));
            gathered = Gathered::of(&self.harvests, known);
            gathered.compare(&mut members);
            found = recover::search(&sizes, &gathered, known, hints.as_ref());
        }
        let rows = rows(devices, &recover::compared(&found, &sizes, &gathered), &progress);
        progress.done();
        if let Some(kept) = self.kept.take() {
            kept.done();
        }
        let names: Vec<String> =
            devices.iter().map(|device| device.path.display().to_string()).collect();
        for (member, rows) in rows.into_iter().enumerate() {
            rows.into_iter().for_each(|(at, bytes)| members.keep(member, at, bytes));
        }
        // Superblocks tell which members are of one array.
        let arrays = match hints {
            None => recover::arrays(&mut members, &gathered, known, &names),
            Some(_) => None,
        };
        arrays.map_or_else(
            || SearchResult::One(recover::rank(&found, &mut members, &gathered, known, &names)),
            SearchResult::Several,
        )
    }
}

/// Result of the search.
pub(super) enum SearchResult {
    /// Hypotheses about one array, best first.
    One(Vec<Ranked>),
    /// Results for several arrays.
    Several(Arrays),
}

/// Rows of a member, by where they were read.
type Rows = Vec<(u64, Vec<u8>)>;

/// Reads rows of all members, which judging would read from one after the other.
fn rows(
    devices: &[MemberFile],
    ranges: &[Vec<Range<u64>>],
    progress: &ReadingProgress,
) -> Vec<Rows> {
    progress.add(total(ranges));
    let read = |image: &mut dyn Image, range: Range<u64>, found: &mut Rows| {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        // What cannot be read as a whole is not compared.
        if image.read(range.start, &mut bytes).is_err() {
            bytes.clear();
        }
        found.push((range.start, bytes));
    };
    each_member(devices, ranges, progress, |_| (0, Vec::new()), read, |_, _, _| {})
}

fn total(ranges: &[Vec<Range<u64>>]) -> u64 {
    ranges.iter().flatten().map(|range| range.end - range.start).sum()
}

/// Removes the ranges that have already been read.
fn without(targets: Vec<Vec<Range<u64>>>, read: &[Vec<Range<u64>>]) -> Vec<Vec<Range<u64>>> {
    let new = |range: &Range<u64>, read: &[Range<u64>]| {
        !read.iter().any(|known| known.start <= range.start && range.end <= known.end)
    };
    let each = targets.into_iter().zip(read).map(|(mut ranges, read)| {
        ranges.retain(|range| new(range, read));
        ranges
    });
    each.collect()
}

/// Reads ranges of each member, in a thread of its own. `begin` returns the number of ranges
/// already read of a member, with their findings; `after` is told of the progress.
fn each_member<T: Send>(
    devices: &[MemberFile],
    ranges: &[Vec<Range<u64>>],
    progress: &ReadingProgress,
    begin: impl Fn(usize) -> (usize, T) + Sync,
    look: impl Fn(&mut dyn Image, Range<u64>, &mut T) + Sync,
    after: impl Fn(usize, usize, &T) + Sync,
) -> Vec<T> {
    let begin = &begin;
    let look = &look;
    let after = &after;
    let read = move |member: usize, device: &MemberFile, ranges: &[Range<u64>]| {
        let mut image = as_image(device);
        let (done, mut found) = begin(member);
        for (index, range) in ranges.iter().enumerate() {
            if index >= done {
                for start in range.clone().step_by(PIECE_BYTES as usize) {
                    let end = (start + PIECE_BYTES).min(range.end);
                    look(&mut image, start..end, &mut found);
                    progress.read(end - start);
                }
                after(member, index + 1, &found);
            } else {
                progress.read(range.end - range.start);
            }
        }
        found
    };
    thread::scope(|scope| {
        let each = devices.iter().zip(ranges).enumerate();
        let threads: Vec<_> = each
            .map(|(member, (device, ranges))| scope.spawn(move || read(member, device, ranges)))
            .collect();
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.collect()
    })
}
