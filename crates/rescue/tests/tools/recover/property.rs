//! Any set of members is found again, and what is called high or likely is right.

use std::collections::BTreeMap;

use braid_array::geometry::{Geometry, Strip};
use braid_array::{Role, SECTOR_BYTES};
use braid_rescue::recover::{Confidence, Hypothesis, Ranked};

use super::drawn::{Set, contents, further_contents};
use super::{brief, found};
use crate::support::{Folder, have};

/// What came of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Right(Confidence),
    Wrong(Confidence),
    Nothing,
}

/// Reads all of the array by a hypothesis: is that what was written to it?
fn reads_right(one: &Hypothesis, members: &[Vec<u8>], content: &[u8]) -> bool {
    let room = |place: &braid_rescue::recover::MemberInRole| {
        (members[place.member].len() as u64 / SECTOR_BYTES).saturating_sub(place.data_offset)
    };
    let sectors = one.roles.iter().flatten().map(room).min().unwrap_or(0);
    let Some(geometry) = one.shape.geometry(sectors) else { return false };
    let block = |index: usize| index as u64 * 8;
    content.chunks_exact(4096).enumerate().all(|(index, written)| {
        block(index) < geometry.array_sectors()
            && read(one, &geometry, members, block(index)).is_some_and(|read| read == written)
    })
}

fn read(
    one: &Hypothesis,
    geometry: &Geometry,
    members: &[Vec<u8>],
    sector: u64,
) -> Option<Vec<u8>> {
    let strip_of = |strip: Strip| {
        let place = one.roles[strip.role.index()]?;
        let at = ((place.data_offset + strip.sector) * SECTOR_BYTES) as usize;
        members[place.member].get(at..at + 4096).map(<[u8]>::to_vec)
    };
    let copies = (0..geometry.copies()).map(|copy| geometry.copy(sector, copy));
    if let Some(bytes) = copies.clone().find_map(strip_of) {
        return Some(bytes);
    }
    if one.shape.level.parity_disks() == 0 {
        return None;
    }
    let strip = geometry.copy(sector, 0);
    let (_, q) = geometry.parity_roles(strip.sector / u64::from(geometry.chunk_sectors()));
    let rest = (0..geometry.raid_disks() as u16).map(Role);
    let rest = rest.filter(|role| *role != strip.role && Some(*role) != q);
    let mut sum = vec![0; 4096];
    for role in rest {
        let other = strip_of(Strip { role, sector: strip.sector })?;
        sum.iter_mut().zip(other).for_each(|(sum, byte)| *sum ^= byte);
    }
    Some(sum)
}

fn judge(set: &Set, members: &[Vec<u8>], ranked: &[Ranked]) -> Outcome {
    let Some(first) = ranked.first() else { return Outcome::Nothing };
    let one = &first.hypothesis;
    let place = |role: usize| {
        let member = set.order.iter().position(|other| *other == role)?;
        Some((member, set.starts + set.case.offsets[role]))
    };
    let roles = one.roles.iter().map(|place| place.map(|it| (it.member, it.data_offset)));
    let exact = one.shape.level == set.case.level
        && one.shape.layout == set.case.layout
        && one.shape.chunk_sectors == set.case.chunk_sectors
        && roles.eq((0..set.case.offsets.len()).map(place));
    if exact || reads_right(one, members, &set.content) {
        Outcome::Right(first.confidence)
    } else {
        Outcome::Wrong(first.confidence)
    }
}

/// Figures of a run.
#[derive(Debug, Default)]
struct Figures {
    all: BTreeMap<Outcome, usize>,
    redundant: usize,
    redundant_right: usize,
    sets: usize,
}

impl Figures {
    fn of(&self, outcome: Outcome) -> usize {
        self.all.get(&outcome).copied().unwrap_or(0)
    }
}

/// Which sets are drawn.
#[derive(Clone, Copy)]
enum Drawn {
    /// Members that are whole disks, and hold nothing but the array.
    Plain,
    /// Members in partitions or with something else before their data; more file systems.
    Further,
}

fn draw_and_find(kind: Drawn, seeds: impl Iterator<Item = u64>, folder: &Folder) -> Figures {
    let contents = match kind {
        Drawn::Plain => contents(folder),
        Drawn::Further => further_contents(folder),
    };
    let mut figures = Figures::default();
    for seed in seeds {
        let mut set = match kind {
            Drawn::Plain => Set::draw(seed, &contents),
            Drawn::Further => Set::draw_further(seed, &contents),
        };
        let mut members = set.members();
        let begun = std::time::Instant::now();
        let mut ranked = found(&members);
        let mut places =
            ranked.iter().take(1).flat_map(|one| one.hypothesis.roles.iter().flatten());
        let is_within = places.all(|place| place.data_offset >= set.starts);
        let is_guess = ranked.iter().all(|one| one.confidence == Confidence::Guess);
        if set.starts > 0 && (is_guess || is_within) {
            // What lies in partitions of disks is looked for there.
            members = set.partitions(&members);
            set.starts = 0;
            ranked = found(&members);
        }
        let outcome = judge(&set, &members, &ranked);
        let right = matches!(outcome, Outcome::Right(_));
        figures.sets += 1;
        *figures.all.entry(outcome).or_default() += 1;
        figures.redundant += usize::from(set.is_redundant());
        figures.redundant_right += usize::from(set.is_redundant() && right);
        println!("seed {seed}: {}: {outcome:?} in {:?}", set.told, begun.elapsed());
        if !right {
            let roles = &set.order;
            println!("  given roles {roles:?}, answered:\n{}", brief(&ranked));
        }
    }
    println!("{figures:?}");
    figures
}

fn assert_figures(kind: Drawn, figures: &Figures) {
    let wrong = |confidence| figures.of(Outcome::Wrong(confidence));
    assert_eq!(wrong(Confidence::High), 0, "wrong and called high");
    assert!(wrong(Confidence::Likely) * 100 <= figures.sets, "{figures:?}");
    let least_percent = match kind {
        Drawn::Plain => 90,
        // Many of them leave open where on its disk the array begins.
        Drawn::Further => 60,
    };
    assert!(figures.redundant_right * 100 >= figures.redundant * least_percent, "{figures:?}");
}

const PROGRAMS: [&str; 3] = ["mkfs.ext4", "mkfs.xfs", "mkfs.btrfs"];

/// Nearly empty sets of which another hypothesis met more blocks than the right one, since parity
/// shows copies of what is missing.
const HIDDEN: [u64; 6] = [52, 177, 179, 226, 395, 453];

/// The first of those below; what is printed names the seed of each, and the next tests take it.
#[test]
fn some_drawn_sets_are_found() {
    if have("some_drawn_sets_are_found", &PROGRAMS) {
        let folder = Folder::new("recover-drawn");
        assert_figures(Drawn::Plain, &draw_and_find(Drawn::Plain, 0..12, &folder));
        let further = (13..18).chain(HIDDEN);
        assert_figures(Drawn::Further, &draw_and_find(Drawn::Further, further, &folder));
    }
}

#[test]
#[ignore = "minutes"]
fn drawn_sets_are_found() {
    assert_all(Drawn::Plain, "plain");
}

#[test]
#[ignore = "minutes"]
fn further_drawn_sets_are_found() {
    assert_all(Drawn::Further, "further");
}

/// `BRAID_SEEDS=17..18,40..60` draws what failures named; without it, 500 sets.
fn assert_all(kind: Drawn, name: &str) {
    let seeds = std::env::var("BRAID_SEEDS").unwrap_or_else(|_| "0..500".into());
    let folder = Folder::new(&format!("recover-drawn-{name}-{seeds}"));
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let range = |range: &str| {
        let (first, end) = range.split_once("..").expect("a range");
        number(first)..number(end)
    };
    let all = seeds.split(',').flat_map(range);
    assert_figures(kind, &draw_and_find(kind, all, &folder));
}
