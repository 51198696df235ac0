//! Two arrays over nodes between which data move, with superblocks that were tampered with,
//! checksums made right again: which of them counts.
//!
//! The first byte chooses what the two arrays say of the move, the second the volumes that are
//! there; then come patches: a volume, an offset in its superblock (two bytes), a length, and so
//! many bytes.

use braid_array::format::{BadBlocks, MoveNote, Superblock, Version};
use braid_array::level::{Layout, Level};
use braid_cluster::Family;
use braid_cluster::assemble::{Candidate, Options, SUPERBLOCK_SECTOR, Start, decide, member_name};
use braid_cluster::create::{NewArray, NewBitmap};
use braid_cluster::pair::{Counts, counts_among, later_uuid, newest, pair_among};

use crate::mutate::{Random, mutate};
use crate::targets::mend_superblock_1;

const OLD_NODES: usize = 3;
const NEW_NODES: usize = 4;
const OLD: [u8; 16] = [0x55; 16];

/// Fields of a superblock: where they lie in it, and their size.
const FIELDS: [(u16, u8); 14] = [
    (8, 4),
    (16, 8),
    (72, 4),
    (76, 4),
    (80, 8),
    (88, 4),
    (92, 4),
    (104, 8),
    (128, 8),
    (160, 4),
    (200, 8),
    (208, 8),
    (220, 4),
    (256, 8),
];

const NOTES: [MoveNote; 6] = [
    MoveNote::Apart,
    MoveNote::Source,
    MoveNote::Target { front: 0, back: false },
    MoveNote::Target { front: 64, back: false },
    MoveNote::Target { front: 64, back: true },
    MoveNote::Target { front: 0, back: true },
];

/// A few fields of one superblock replaced, or of all of an array.
pub(crate) fn make(random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![random.next() as u8, random.next() as u8 | random.next() as u8];
    for _ in 0..random.below(5) {
        let (at, length) = FIELDS[random.below(FIELDS.len())];
        let mut field = [0; 8].to_vec();
        mutate(random, &mut field, 8);
        field.resize(length.into(), 0);
        let one = random.below(OLD_NODES + NEW_NODES);
        let all = random.below(3);
        let is_patched = |volume: &usize| match all {
            0 => *volume == one,
            1 => *volume < OLD_NODES,
            _ => *volume >= OLD_NODES,
        };
        let patch =
            |volume: usize| [&[volume as u8][..], &at.to_le_bytes(), &[length], &field].concat();
        bytes.extend((0..OLD_NODES + NEW_NODES).filter(is_patched).flat_map(patch));
    }
    bytes
}

pub(crate) fn run(data: &[u8]) {
    let [notes, there, patches @ ..] = data else { return };
    let notes = usize::from(*notes);
    let new = later_uuid(OLD, 77);
    let mut superblocks = superblocks(OLD, OLD_NODES, NOTES[notes % NOTES.len()]);
    superblocks.extend(self::superblocks(new, NEW_NODES, NOTES[notes / NOTES.len() % NOTES.len()]));
    patch(&mut superblocks, patches);
    let volumes = superblocks.iter().enumerate().filter(|(number, _)| there >> number & 1 == 1);
    let volumes: Vec<Candidate> = volumes.map(candidate).collect();
    check_newest(&volumes);
    let arrays = volumes.iter().filter_map(uuid).collect();
    let Some(pair) = pair_among(&arrays) else { return };
    assert!(pair.iter().all(|array| arrays.contains(array)) && pair[0] != pair[1]);
    let of = |array| -> Vec<Candidate> {
        volumes.iter().filter(|volume| uuid(volume) == Some(array)).cloned().collect()
    };
    let [old, new] = pair.map(of);
    check_newest(&old);
    check_newest(&new);
    match counts_among(&old, &new) {
        Ok(counts) => check(counts, &old, &new),
        Err(why) => assert!(!why.reason.is_empty(), "a refusal says why"),
    }
}

fn uuid(volume: &Candidate) -> Option<[u8; 16]> {
    volume.superblock.as_ref().ok().map(|superblock| superblock.set_uuid)
}

/// Checks that the superblock that counts is one of those that there are.
fn check_newest(volumes: &[Candidate]) {
    let Some(newest) = newest(volumes) else { return };
    let mut superblocks = volumes.iter().filter_map(|volume| volume.superblock.as_ref().ok());
    assert!(superblocks.any(|found| *found == newest), "nobody says that");
}

/// Checks that superblocks support the choice, and that nothing else is in what would be started.
fn check(counts: Counts, old: &[Candidate], new: &[Candidate]) {
    let says = |volumes: &[Candidate], is_it: fn(MoveNote) -> bool| {
        let superblocks = volumes.iter().filter_map(|volume| volume.superblock.as_ref().ok());
        superblocks.map(MoveNote::of).any(is_it)
    };
    let is_apart = |note| note == MoveNote::Apart;
    let is_target = |note| matches!(note, MoveNote::Target { .. });
    let begins = |note| note == MoveNote::Target { front: 0, back: false };
    match counts {
        Counts::Old => assert!(says(old, is_apart), "not the old one"),
        Counts::New => assert!(says(new, is_apart), "not the new one"),
        Counts::Both if says(old, |note| note == MoveNote::Source) => {
            assert!(says(new, is_target), "not both");
        }
        Counts::Both => assert!(says(old, is_apart) && says(new, begins), "not both at the begin"),
    }
    let chosen: &[&[Candidate]] = match counts {
        Counts::Old => &[old],
        Counts::New => &[new],
        Counts::Both => &[old, new],
    };
    for volumes in chosen {
        let names: Vec<String> = volumes.iter().map(Candidate::name).collect();
        if let Start::Ready(plan) = decide(volumes, Options::default()).start {
            let taken = plan.members.iter().flatten();
            let mut taken = taken.map(|member| member_name(&member.address, &member.volume));
            assert!(taken.all(|member| names.contains(&member)), "a member of another array");
        }
    }
}

/// The superblocks of a good array, which says this of the move.
fn superblocks(set_uuid: [u8; 16], nodes: usize, note: MoveNote) -> Vec<Vec<u8>> {
    let array = NewArray {
        name: "host:x".into(),
        set_uuid,
        ctime: 1,
        family: Family::Md { level: Level::Raid5, layout: Layout::default_for(Level::Raid5) },
        chunk_bytes: Some(4096),
        size_bytes: 1 << 20,
        bitmap: NewBitmap::Default,
        journal_bytes: 0,
        parts_only: false,
        note,
    };
    let uuids: Vec<[u8; 16]> = (1..=nodes).map(|number| [number as u8; 16]).collect();
    let blueprint = array.plan(&uuids, &[]).expect("a good array");
    let superblock = |writes: &Vec<(u64, Vec<u8>)>| {
        let (_, bytes) = writes.last().expect("a superblock");
        let mut superblock =
            Superblock::decode(Version::V1_2, SUPERBLOCK_SECTOR, bytes).expect("a good one");
        superblock.reshape.position = note.position();
        superblock.encode()
    };
    blueprint.writes.iter().map(superblock).collect()
}

fn patch(superblocks: &mut [Vec<u8>], mut patches: &[u8]) {
    while let [volume, low, high, length, rest @ ..] = patches {
        let volume = usize::from(*volume) % superblocks.len();
        let superblock = &mut superblocks[volume];
        let at = usize::from(u16::from_le_bytes([*low, *high])) % superblock.len();
        let length = usize::from(*length).min(rest.len()).min(superblock.len() - at);
        superblock[at..at + length].copy_from_slice(&rest[..length]);
        mend_superblock_1(superblock);
        patches = &rest[length..];
    }
}

fn candidate((number, bytes): (usize, &Vec<u8>)) -> Candidate {
    let volume = if number < OLD_NODES { "x" } else { "x.2" };
    Candidate {
        address: format!("h{}:7000", number % NEW_NODES),
        volume: volume.into(),
        bytes: 16 << 20,
        superblock: Superblock::decode(Version::V1_2, SUPERBLOCK_SECTOR, bytes),
        bitmap: None,
        bad_blocks: Ok(BadBlocks::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_array_is_chosen_that_no_superblock_supports() {
        for seed in 0..3000 {
            run(&make(&mut Random::new(seed)));
        }
    }

    #[test]
    fn what_superblocks_say_is_understood() {
        for (notes, expected) in
            [(12, Counts::Both), (13, Counts::Both), (19, Counts::Both), (1, Counts::New)]
        {
            let new = later_uuid(OLD, 77);
            let of = |array, count, note, from| -> Vec<Candidate> {
                let numbered = superblocks(array, count, note).into_iter().enumerate();
                numbered.map(|(number, bytes)| candidate((from + number, &bytes))).collect()
            };
            let old = of(OLD, OLD_NODES, NOTES[notes % NOTES.len()], 0);
            let new = of(new, NEW_NODES, NOTES[notes / NOTES.len()], OLD_NODES);
            assert_eq!(counts_among(&old, &new), Ok(expected), "{notes}");
        }
    }
}
