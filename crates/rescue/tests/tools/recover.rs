//! Arrays without superblocks, laid out as md does, with file systems that their own programs made.

use braid_array::level::Level;
use braid_rescue::Image;
use braid_rescue::recover::{
    Arrays, Gathered, Harvest, Members, Ranked, Structure, arrays, beginning, rank, samples,
    search, structures, targets,
};

use laid::Case;
use made::{UUID, ext4, xfs};

mod btrfs;
mod drawn;
mod laid;
mod levels;
mod made;
mod members;
mod nested;
mod ntfs;
mod property;
mod proven;
mod readable;
mod remains;
mod walked;
mod xfs;

/// What is found of members with these bytes.
fn found(members: &[Vec<u8>]) -> Vec<Ranked> {
    let sizes: Vec<u64> = members.iter().map(|member| member.len() as u64 / 512).collect();
    searched(members, |read, gathered, known, names| {
        assert!(arrays(read, gathered, known, names).is_none(), "they are of one array");
        let found = search(&sizes, gathered, known, None);
        let ranges = targets(&found, &sizes, gathered, known);
        assert!(ranges.iter().flatten().all(|range| range.start < range.end));
        rank(&found, read, gathered, known, names)
    })
}

/// The arrays that members with these bytes make up, if they are of several.
fn found_arrays(members: &[Vec<u8>]) -> Option<Arrays> {
    searched(members, arrays)
}

/// What is answered of members with these bytes, once they have been read.
fn searched<T>(
    members: &[Vec<u8>],
    answer: impl FnOnce(&mut Members<'_, '_>, &Gathered, &[Structure], &[String]) -> T,
) -> T {
    let mut images: Vec<&[u8]> = members.iter().map(Vec::as_slice).collect();
    let mut known = vec![Structure::DISK];
    for image in &mut images {
        let range = beginning(image.size_bytes());
        structures(image, range, &mut known);
    }
    let mut harvests: Vec<Harvest> = Vec::new();
    for image in &mut images {
        let mut harvest = Harvest::default();
        let ranges = samples(image.size_bytes());
        for range in ranges {
            harvest.gather(image, range, &known);
        }
        harvests.push(harvest);
    }
    let mut gathered = Gathered::of(&harvests, &known);
    let names: Vec<String> = (0..members.len()).map(|index| format!("m{index}")).collect();
    let mut images: Vec<&mut dyn Image> = images.iter_mut().map(|i| i as &mut dyn Image).collect();
    let mut read = Members::new(&mut images);
    gathered.compare(&mut read);
    answer(&mut read, &gathered, &known, &names)
}

/// What was found first, in short: `raid5 Parity(LeftSymmetric) 128: 0@2048 - 2@2048 high`.
fn told(ranked: &[Ranked]) -> String {
    let Some(Ranked { hypothesis, confidence, .. }) = ranked.first() else { return "none".into() };
    let shape = hypothesis.shape;
    let roles = hypothesis.roles.iter().map(|role| match role {
        Some(place) => format!("{}@{}", place.member, place.data_offset),
        None => "-".to_owned(),
    });
    let roles = roles.collect::<Vec<_>>().join(" ");
    let level = shape.level;
    let chunk = shape.chunk_sectors;
    format!("{level} {:?} {chunk}: {roles} {}", shape.layout, confidence.name())
}

/// All that was found, in a line each.
fn brief(ranked: &[Ranked]) -> String {
    let line = |one: &Ranked| {
        let one = std::slice::from_ref(one);
        format!(
            "{}, from {}; {}\n",
            told(one),
            one[0].hypothesis.origin,
            one[0].evidence.join("; ")
        )
    };
    ranked.iter().map(line).collect()
}

fn expected(case: &Case, roles: &str, confidence: &str) -> String {
    format!("{} {:?} {}: {roles} {confidence}", case.level, case.layout, case.chunk_sectors)
}

/// Members in the order of these roles.
fn shuffled(mut laid: Vec<Vec<u8>>, order: &[usize]) -> Vec<Vec<u8>> {
    order.iter().map(|role| std::mem::take(&mut laid[*role])).collect()
}

/// Level, layout, chunk in KiB, the roles of the members as they are given, what is to be found.
type Laid<'a> = (Level, &'a str, u32, Vec<usize>, &'a str);

/// Each content is found on each of these, by these confidences.
fn assert_found(contents: &[Vec<u8>], cases: &[Laid<'_>], confidences: &[&str]) {
    let mut wrong = Vec::new();
    for (level, layout, chunk_kib, order, roles) in cases {
        let case = Case::new(*level, layout, *chunk_kib, roles.split(' ').count());
        for content in contents {
            let members = shuffled(case.lay(content), order);
            let ranked = found(&members);
            let told = told(&ranked);
            // What lies here has its metadata in few chunks, which leaves more open than usual.
            let is_right = |confidence: &&str| told == expected(&case, roles, confidence);
            if !confidences.iter().any(is_right) {
                wrong.push(format!("{}\n{}", expected(&case, roles, "high"), brief(&ranked)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// One of the members is as old as this.
fn assert_stale(old: &[u8], new: &[u8], chunk_kib: u32) {
    for (level, count) in [(Level::Raid5, 4), (Level::Raid6, 5)] {
        let case = Case::new(level, "ls", chunk_kib, count);
        let mut members = case.lay(new);
        members[1] = case.lay(old).swap_remove(1);
        let ranked = found(&members);
        let rest = if count == 4 { "" } else { " 4@2048" };
        let left = expected(&case, &format!("0@2048 - 2@2048 3@2048{rest}"), "high");
        assert_eq!(told(&ranked), left, "{}", brief(&ranked));
        let evidence = ranked[0].evidence.join("; ");
        assert!(evidence.contains("m1 is stale by "), "{evidence}");
    }
}
