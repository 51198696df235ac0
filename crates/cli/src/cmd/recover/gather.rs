//! Reads members, all at the same time, and has what they hold judged.

use std::ops::Range;
use std::thread;

use braid_array::SECTOR_BYTES;
use braid_host::member::{MemberFile, as_image};
use braid_rescue::Image;
use braid_rescue::recover::{self, Gathered, Harvest, Members, Ranked, Structure};

use super::hints;
use super::kept::Kept;
use crate::failure::Failure;

use crate::output::recovered::Progress;

/// What is read at once, between two looks at the progress.
const PIECE_BYTES: u64 = 8 << 20;

/// `resume`: what was read is kept in a file, and what was kept there is not read again.
pub(super) fn ranked(devices: &[MemberFile], resume: bool) -> Result<Vec<Ranked>, Failure> {
    let sizes: Vec<u64> = devices.iter().map(|device| device.sectors).collect();
    let bytes = |device: &MemberFile| device.sectors * SECTOR_BYTES;
    let beginnings: Vec<Vec<Range<u64>>> =
        devices.iter().map(|device| vec![recover::beginning(bytes(device))]).collect();
    let samples: Vec<Vec<Range<u64>>> =
        devices.iter().map(|device| recover::samples(bytes(device))).collect();
    let progress = Progress::new(total(&beginnings) + total(&samples));
    let mut known = vec![Structure::DISK];
    let hints = hints::of(devices);
    let fresh = |_| (0, Vec::new());
    let find = |image: &mut dyn Image, range, found: &mut _| {
        recover::structures(image, range, found);
    };
    let each = each_member(devices, &beginnings, &progress, fresh, find, |_, _, _| {});
    each.into_iter().flatten().for_each(|one| recover::add(&mut known, one));
    let kept = if resume { Some(Kept::of(devices, known.len())?) } else { None };
    let begin = |member| kept.as_ref().map_or_else(Default::default, |kept| kept.so_far(member));
    let gather = |image: &mut dyn Image, range, found: &mut Harvest| {
        found.gather(image, range, &known);
    };
    let after = |member: usize, done: usize, found: &Harvest| {
        if let Some(kept) = &kept {
            kept.note(member, done, found, done == samples[member].len());
        }
    };
    let mut harvests = each_member(devices, &samples, &progress, begin, gather, after);
    let mut gathered = Gathered::of(&harvests, &known);
    let mut found = recover::search(&sizes, &gathered, &known, hints.as_ref());
    let targets = recover::targets(&found, &sizes, &gathered, &known);
    let targets: Vec<Vec<Range<u64>>> = without(targets, &samples);
    if total(&targets) > 0 {
        progress.add(total(&targets));
        let fresh = |_| (0, Harvest::default());
        let more = each_member(devices, &targets, &progress, fresh, gather, |_, _, _| {});
        harvests.iter_mut().zip(more).for_each(|(one, more)| one.merge(more));
        gathered = Gathered::of(&harvests, &known);
        found = recover::search(&sizes, &gathered, &known, hints.as_ref());
    }
    progress.done();
    if let Some(kept) = kept {
        kept.done();
    }
    let names: Vec<String> =
        devices.iter().map(|device| device.path.display().to_string()).collect();
    let mut images: Vec<_> = devices.iter().map(as_image).collect();
    let mut images: Vec<&mut dyn Image> =
        images.iter_mut().map(|image| image as &mut dyn Image).collect();
    Ok(recover::rank(&found, &mut Members::new(&mut images), &gathered, &known, &names))
}

fn total(ranges: &[Vec<Range<u64>>]) -> u64 {
    ranges.iter().flatten().map(|range| range.end - range.start).sum()
}

/// What has not been read yet.
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

/// Reads ranges of each member, in a thread of its own. `begin` says of a member how many of them
/// were read before and what was found there, `after` hears how far it is.
fn each_member<T: Send>(
    devices: &[MemberFile],
    ranges: &[Vec<Range<u64>>],
    progress: &Progress,
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
