//! Arrays without superblocks, laid out as md does, with file systems that their own programs made.

use std::fmt::Write as _;
use std::fs;

use braid_array::geometry::{Geometry, Shape};
use braid_array::level::{Layout, Level};
use braid_rescue::Image;
use braid_rescue::recover::{
    Arrays, Confidence, Gathered, Harvest, Mark, Members, Ranked, Structure, arrays, beginning,
    rank, samples, search, structures, targets,
};

use crate::support::{Folder, have, run};

mod btrfs;
mod drawn;
mod nested;
mod ntfs;
mod property;
mod proven;
mod readable;
mod remains;
mod walked;
mod xfs;

/// An ext4 of so many MiB with so many directories of 16 files each.
fn ext4(folder: &Folder, mib: u64, directories: usize) -> Vec<u8> {
    let tree = folder.path("tree");
    let _ = fs::remove_dir_all(&tree);
    fs::create_dir_all(&tree).unwrap();
    for directory in 0..directories {
        let path = tree.join(format!("d{directory}"));
        fs::create_dir_all(&path).unwrap();
        for file in 0..16 {
            fs::write(path.join(format!("f{file}")), vec![file as u8; 28 << 10]).unwrap();
        }
    }
    let image = folder.file("ext4", mib << 20);
    // Small groups, so that metadata lie all over it, as on large file systems.
    let features = "-O 64bit,metadata_csum,^flex_bg -g 2048 -N 1536";
    let options = format!("-q -b 4096 -I 256 {features} -E lazy_itable_init=0 -d tree");
    run(folder, &format!("mkfs.ext4 {options} -U {UUID} ext4"), "");
    fs::read(image).unwrap()
}

/// The UUID of what is found, the same in each run.
const UUID: &str = "12345678-1234-1234-1234-123456789abc";

/// An XFS of 128 MiB with some directories of files.
fn xfs(folder: &Folder) -> Vec<u8> {
    xfs_with(folder, UUID, 0)
}

/// The same with this UUID, and with so many blocks in its log; 0 where mkfs.xfs chooses.
fn xfs_with(folder: &Folder, uuid: &str, log_blocks: u32) -> Vec<u8> {
    let mut proto = "/\n0 0\nd--755 0 0\n".to_owned();
    fs::write(folder.path("source"), "some text").unwrap();
    let source = folder.path("source");
    for directory in 0..30 {
        writeln!(proto, "d{directory} d--755 0 0").unwrap();
        for file in 0..16 {
            writeln!(proto, "f{file} ---644 0 0 {}", source.display()).unwrap();
        }
        proto.push_str("$\n");
    }
    proto.push_str("$\n");
    fs::write(folder.path("proto"), proto).unwrap();
    let image = folder.file("xfs", 128 << 20);
    let log = if log_blocks == 0 { String::new() } else { format!("-l size={log_blocks}b") };
    let options = format!("--unsupported -q -f -m uuid={uuid} -d agcount=8 {log} -p proto");
    run(folder, &format!("mkfs.xfs {options} xfs"), "");
    fs::read(image).unwrap()
}

/// An array to be found.
struct Case {
    level: Level,
    layout: Layout,
    chunk_sectors: u32,
    offsets: Vec<u64>,
}

impl Case {
    fn new(level: Level, layout: &str, chunk_kib: u32, members: usize) -> Self {
        let layout = match layout {
            "" if level == Level::Raid0 => Layout::None,
            "" => Layout::default_for(level),
            name => Layout::parse(level, name).unwrap(),
        };
        Self { level, layout, chunk_sectors: chunk_kib * 2, offsets: vec![2048; members] }
    }

    /// The bytes of the members, by role.
    fn lay(&self, content: &[u8]) -> Vec<Vec<u8>> {
        let count = self.offsets.len();
        let copies = match self.layout {
            Layout::Raid10(layout) => layout.copies() as usize,
            _ => 1,
        };
        let data =
            if self.level == Level::Raid1 { 1 } else { count - self.level.parity_disks() as usize };
        let chunk = u64::from(self.chunk_sectors.max(8)) * 8;
        let used = ((content.len() * copies / data) as u64 / 512 + 1).next_multiple_of(chunk);
        let geometry = Geometry::new(&Shape {
            level: self.level,
            layout: self.layout,
            raid_disks: count as u32,
            chunk_sectors: self.chunk_sectors,
            size_sectors: used,
            member_data_sectors: &vec![used; count],
        })
        .unwrap();
        let size = |offset: &u64| ((offset + used) * 512) as usize;
        let mut members: Vec<Vec<u8>> = self.offsets.iter().map(|o| vec![0; size(o)]).collect();
        for (index, bytes) in content.chunks(4096).enumerate() {
            for copy in 0..geometry.copies() {
                let strip = geometry.copy(index as u64 * 8, copy);
                let role = strip.role.index();
                let at = ((self.offsets[role] + strip.sector) * 512) as usize;
                members[role][at..at + bytes.len()].copy_from_slice(bytes);
            }
        }
        if self.level.parity_disks() > 0 {
            self.add_parity(&geometry, &mut members);
        }
        members
    }

    fn add_parity(&self, geometry: &Geometry, members: &mut [Vec<u8>]) {
        let chunk = u64::from(self.chunk_sectors);
        for stripe in 0..geometry.member_sectors() / chunk {
            let (p, q) = geometry.parity_roles(stripe);
            let range = |role: usize| {
                let start = ((self.offsets[role] + stripe * chunk) * 512) as usize;
                start..start + (chunk * 512) as usize
            };
            let roles: Vec<usize> = (0..geometry.data_disks())
                .map(|index| geometry.data_role(stripe, index).index())
                .collect();
            let strips: Vec<&[u8]> = roles.iter().map(|r| &members[*r][range(*r)]).collect();
            let ones = vec![1; strips.len()];
            let coefs: Vec<u8> = match q {
                Some(_) => (0..geometry.data_disks()).map(|i| geometry.q_coef(stripe, i)).collect(),
                None => Vec::new(),
            };
            let mut sums = vec![vec![0; (chunk * 512) as usize]; 2];
            let [p_sum, q_sum] = &mut sums[..] else { unreachable!() };
            braid_parity::combine(&mut [p_sum], &ones, &strips, false);
            if q.is_some() {
                braid_parity::combine(&mut [q_sum], &coefs, &strips, false);
            }
            let at = range(p.index());
            members[p.index()][at].copy_from_slice(&sums[0]);
            if let Some(q) = q {
                let at = range(q.index());
                members[q.index()][at].copy_from_slice(&sums[1]);
            }
        }
    }
}

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

/// Members in the order of these roles; the letter x is one that has nothing to do with them.
fn shuffled(laid: &[Vec<u8>], order: &[usize]) -> Vec<Vec<u8>> {
    order.iter().map(|role| laid[*role].clone()).collect()
}

#[test]
fn every_level_is_found() {
    if !have("every_level_is_found", &["mkfs.ext4", "mkfs.xfs"]) {
        return;
    }
    let folder = Folder::new("recover-levels");
    let contents = [ext4(&folder, 48, 75), xfs(&folder)];
    let cases: [Laid; 13] = [
        (Level::Raid0, "", 64, vec![2, 0, 1], "1@2048 2@2048 0@2048"),
        (Level::Raid1, "", 0, vec![0, 1], "0@2048 1@2048"),
        (Level::Raid4, "", 64, vec![1, 2, 0], "2@2048 0@2048 1@2048"),
        (Level::Raid5, "ls", 64, vec![2, 0, 1], "1@2048 2@2048 0@2048"),
        (Level::Raid5, "la", 4, vec![2, 0, 1, 3], "1@2048 2@2048 0@2048 3@2048"),
        (Level::Raid5, "rs", 16, vec![0, 1, 2], "0@2048 1@2048 2@2048"),
        (Level::Raid5, "ra", 512, vec![1, 0, 2], "1@2048 0@2048 2@2048"),
        (Level::Raid6, "ls", 64, vec![3, 0, 2, 1], "1@2048 3@2048 2@2048 0@2048"),
        (Level::Raid6, "ra", 16, vec![3, 0, 2, 1, 4], "1@2048 3@2048 2@2048 0@2048 4@2048"),
        (Level::Raid6, "ddf-N-continue", 16, vec![0, 1, 2, 3], "0@2048 1@2048 2@2048 3@2048"),
        (Level::Raid10, "f2", 64, vec![1, 0, 2], "1@2048 0@2048 2@2048"),
        (Level::Raid10, "o2", 64, vec![1, 0, 2], "1@2048 0@2048 2@2048"),
        (Level::Raid10, "n2", 64, vec![0, 2, 1], "0@2048 2@2048 1@2048"),
    ];
    assert_found(&contents, &cases, &["high", "likely"]);
}

/// Level, layout, chunk in KiB, the roles of the members as they are given, what is to be found.
type Laid<'a> = (Level, &'a str, u32, Vec<usize>, &'a str);

/// Each content is found on each of these, by these confidences.
fn assert_found(contents: &[Vec<u8>], cases: &[Laid<'_>], confidences: &[&str]) {
    let mut wrong = Vec::new();
    for (level, layout, chunk_kib, order, roles) in cases {
        let case = Case::new(*level, layout, *chunk_kib, roles.split(' ').count());
        for content in contents {
            let members = shuffled(&case.lay(content), order);
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

/// Eight groups of metadata, and zeroes in the rest of their rows: parity is a copy of them, and
/// nothing tells one from the other but the member that such an answer leaves out. Where the log
/// ends decides what else tells.
#[test]
fn an_order_that_few_blocks_tell_is_not_called_likely_unless_it_is_right() {
    if !have("an_order_that_few_blocks_tell", &["mkfs.xfs"]) {
        return;
    }
    let folder = Folder::new("recover-few-blocks");
    let case = Case::new(Level::Raid5, "ra", 512, 3);
    let right = "1@2048 0@2048 2@2048";
    let mut wrong = Vec::new();
    let mut exactly = 0;
    let logs = [0, 1368, 1400, 1430, 1450, 1470, 1490, 1510, 1530, 1600];
    for (number, log_blocks) in logs.into_iter().enumerate() {
        let uuid = format!("{:08x}-1234-4321-8765-{:012x}", number * 0x1357_9bdf, number * 77);
        let content = xfs_with(&folder, &uuid, log_blocks);
        let ranked = found(&shuffled(&case.lay(&content), &[1, 0, 2]));
        let told = told(&ranked);
        let is_right = ["high", "likely"].map(|confidence| expected(&case, right, confidence));
        let is_right = is_right.contains(&told);
        exactly += usize::from(is_right);
        if !is_right {
            println!("log of {log_blocks} blocks: {}", brief(&ranked));
        }
        if !is_right && !told.ends_with(" guess") {
            wrong.push(format!("log of {log_blocks} blocks, {uuid}: {}", brief(&ranked)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(exactly, logs.len(), "{right} was found");
}

#[test]
fn missing_foreign_and_shifted_members_are_told() {
    if !have("missing_foreign_and_shifted_members_are_told", &["mkfs.ext4"]) {
        return;
    }
    let folder = Folder::new("recover-members");
    let content = ext4(&folder, 48, 75);
    let mut case = Case::new(Level::Raid5, "ls", 64, 4);
    case.offsets = vec![2048, 4096, 2048, 264];
    let laid = case.lay(&content);
    let told_of = |order: &[usize]| told(&found(&shuffled(&laid, order)));
    let all = "2@2048 1@4096 3@2048 0@264";
    assert_eq!(told_of(&[3, 1, 0, 2]), expected(&case, all, "high"));
    let three = "2@2048 1@4096 - 0@264";
    assert_eq!(told_of(&[3, 1, 0]), expected(&case, three, "high"));
    // A disk of another array with a file system of its own, and one with noise.
    let mut members = shuffled(&laid, &[3, 1, 0, 2]);
    let noise = |n: u64| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u8;
    members.insert(2, (0..members[0].len() as u64).map(noise).collect());
    let ranked = found(&members);
    let beside = "3@2048 1@4096 4@2048 0@264";
    assert_eq!(told(&ranked), expected(&case, beside, "high"));
    let evidence = ranked[0].evidence.join("; ");
    assert!(evidence.contains("m2 is none of its members"), "{evidence}");
    assert!(evidence.contains("parity agrees in 100% of "), "{evidence}");
}

/// What was read of a disk is that of its partitions, too.
#[test]
fn a_part_of_what_was_read_is_what_is_read_of_the_part() {
    if !have("a_part_of_what_was_read", &["mkfs.ext4"]) {
        return;
    }
    let folder = Folder::new("recover-part");
    let member = Case::new(Level::Raid5, "ls", 64, 3).lay(&ext4(&folder, 48, 75)).swap_remove(1);
    let mut disk = vec![0; 1 << 20];
    disk.extend_from_slice(&member);
    // What lies behind the partition is not of it.
    disk.extend_from_slice(&member[1 << 20..]);
    let mut known = vec![Structure::DISK];
    structures(&mut &disk[..], 0..disk.len() as u64, &mut known);
    assert_eq!(known.len(), 2);
    let gathered = |mut bytes: &[u8]| {
        let mut harvest = Harvest::default();
        let all = 0..bytes.len() as u64;
        harvest.gather(&mut bytes, all, &known);
        harvest
    };
    let lines = |harvest: &Harvest| {
        let mut lines: Vec<String> = harvest.to_text().lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    let part = gathered(&disk).within(&(2048..2048 + member.len() as u64 / 512));
    let own = lines(&gathered(&member));
    assert!(own.len() > 50 && own == lines(&part), "{own:?}");
}

#[test]
fn a_stale_member_is_left_out() {
    if !have("a_stale_member_is_left_out", &["mkfs.ext4", "debugfs"]) {
        return;
    }
    let folder = Folder::new("recover-stale");
    let old = ext4(&folder, 48, 75);
    fs::write(folder.path("source"), vec![7; 9000]).unwrap();
    let files = (0..60).map(|file| format!("mkdir n{file}\nwrite source n{file}/f\n"));
    run(&folder, "debugfs -w ext4", &files.collect::<String>());
    let new = fs::read(folder.path("ext4")).unwrap();
    assert_stale(&old, &new, 64);
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

#[test]
fn what_cannot_be_told_is_no_more_than_a_guess() {
    if !have("what_cannot_be_told_is_no_more_than_a_guess", &["mkfs.ext4"]) {
        return;
    }
    let folder = Folder::new("recover-guess");
    // Hardly anything that tells where it belongs.
    let content = ext4(&folder, 16, 0);
    let members = Case::new(Level::Raid5, "ls", 512, 3).lay(&content);
    let ranked = found(&members);
    assert!(ranked.iter().all(|one| one.confidence != Confidence::High), "{ranked:#?}");
    assert!(found(&[vec![0; 1 << 20], vec![0; 1 << 20]]).is_empty());
    // Encrypted content: sums say that there is parity, and nothing says more.
    let noise = |n: u64| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u8;
    let mut content: Vec<u8> = (0..8 << 20).map(noise).collect();
    content[..8].copy_from_slice(b"LUKS\xba\xbe\x00\x02");
    let case = Case::new(Level::Raid5, "ls", 512, 3);
    let ranked = found(&shuffled(&case.lay(&content), &[1, 2, 0]));
    assert_eq!(told(&ranked), expected(&case, "2@2048 0@2048 1@2048", "guess"));
    let evidence = ranked[0].evidence.join("; ");
    assert!(evidence.contains("cannot be told: the content is encrypted (LUKS)"), "{evidence}");
    let mirror = Case::new(Level::Raid1, "", 0, 2);
    let ranked = found(&mirror.lay(&content[4096..]));
    assert_eq!(told(&ranked), expected(&mirror, "0@2048 1@2048", "likely"));
    // Controllers have other arrays than mirrors, too.
    let mut controlled = mirror.lay(&content[4096..]);
    for member in &mut controlled {
        let anchor = member.len() - 512;
        member[anchor..anchor + 4].copy_from_slice(b"\xde\x11\xde\x11");
    }
    let ranked = found(&controlled);
    assert_eq!(told(&ranked), expected(&mirror, "0@2048 1@2048", "guess"));
    let evidence = ranked[0].evidence.join("; ");
    assert!(evidence.contains("m0 is a member of a controller's array (DDF)"), "{evidence}");
    assert!(found(&[Vec::new()]).is_empty());
}

/// Whatever lies there instead, it is looked at to the end.
#[test]
fn damaged_members_do_no_harm() {
    if !have("damaged_members_do_no_harm", &["mkfs.ext4", "mkfs.xfs"]) {
        return;
    }
    let folder = Folder::new("recover-damaged");
    let contents = [ext4(&folder, 16, 10), xfs(&folder)];
    let mut state = 1_u64;
    let mut draw = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
        (state >> 33) as usize % below
    };
    for round in 0..8 {
        let mut members = Case::new(Level::Raid5, "ls", 64, 3).lay(&contents[round % 2]);
        for member in &mut members {
            let written: Vec<usize> =
                (0..member.len() / 512).filter(|s| member[s * 512..][..512] != [0; 512]).collect();
            for _ in 0..2000 {
                let sector = written[draw(written.len())] * 512;
                member[sector + draw(512)] = draw(256) as u8;
            }
            let end = member.len() - draw(1 << 20) / 512 * 512;
            member.truncate(end);
        }
        for one in found(&members) {
            assert!(one.hypothesis.met <= one.hypothesis.of);
            assert!(!one.evidence.is_empty());
        }
    }
}

/// Any array that holds an ext4 is found again.
#[test]
fn random_arrays_are_found() {
    if !have("random_arrays_are_found", &["mkfs.ext4"]) {
        return;
    }
    let folder = Folder::new("recover-random");
    let content = ext4(&folder, 48, 75);
    let begun = std::time::Instant::now();
    let mut state = 20_260_101_u64;
    let mut draw = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut done = 0;
    let mut found_exactly = 0;
    while done < 40 && begun.elapsed().as_secs() < 40 {
        let (level, layouts, least): (Level, &[&str], u64) = match draw(5) {
            0 => (Level::Raid0, &[""], 2),
            1 => (Level::Raid4, &[""], 3),
            2 => (Level::Raid10, &["n2", "f2", "o2"], 3),
            3 => (Level::Raid5, &["ls", "rs", "la", "ra"], 3),
            _ => (Level::Raid6, &["ls", "rs", "la", "ra", "ddf-zero-restart"], 4),
        };
        let layout = layouts[draw(layouts.len() as u64) as usize];
        let count = (least + draw(3)) as usize;
        let mut case = Case::new(level, layout, 4 << draw(8), count);
        case.offsets = (0..count).map(|_| [0, 2048, 4096][draw(3) as usize]).collect();
        let laid = case.lay(&content);
        let mut order: Vec<usize> = (0..count).collect();
        for index in (1..count).rev() {
            order.swap(index, draw(index as u64 + 1) as usize);
        }
        let survives = !matches!(level, Level::Raid0 | Level::Raid10);
        if survives && draw(3) == 0 {
            order.pop();
        }
        let ranked = found(&shuffled(&laid, &order));
        let place = |role: usize| match order.iter().position(|other| *other == role) {
            Some(member) => format!("{member}@{}", case.offsets[role]),
            None => "-".to_owned(),
        };
        let roles = (0..count).map(place).collect::<Vec<_>>().join(" ");
        let told = told(&ranked);
        let right = expected(&case, &roles, "high");
        // Copies may be named in another order.
        let alike = level == Level::Raid10 && told.starts_with(right.split(':').next().unwrap());
        let likely = expected(&case, &roles, "likely");
        let is_right = told == right || told == likely || alike;
        let best = ranked.first();
        assert!(is_right || !told.ends_with(" high"), "{right}, not {told}: {}", brief(&ranked));
        found_exactly += usize::from(is_right);
        if !is_right {
            println!("{right}: {told}: {:?}", best.map(|best| &best.evidence));
        }
        done += 1;
    }
    println!("{found_exactly} of {done}");
    assert!(found_exactly * 10 >= done * 8, "{found_exactly} of {done}");
    assert!(done >= 2, "only {done} in time");
}

/// On disks of 8 TiB the groups of a file system begin on few of the members, most of which hold
/// next to nothing else that tells.
#[test]
fn members_with_few_blocks_keep_their_roles() {
    if !have("members_with_few_blocks_keep_their_roles", &["mkfs.xfs"]) {
        return;
    }
    let folder = Folder::new("recover-few");
    let mut known = vec![Structure::DISK];
    let content = xfs(&folder);
    structures(&mut content.as_slice(), 0..1 << 20, &mut known);
    const OFFSET: u64 = 264_192;
    let used = (8 << 31) - OFFSET;
    let used = used / 1024 * 1024;
    let layout = Layout::default_for(Level::Raid6);
    let geometry = Geometry::new(&Shape {
        level: Level::Raid6,
        layout,
        raid_disks: 8,
        chunk_sectors: 1024,
        size_sectors: used,
        member_data_sectors: &[used; 8],
    })
    .unwrap();
    let mut gathered = Gathered::default();
    let mut mark = |role: usize, strip: u64, place: u64| {
        let sector = strip + OFFSET;
        gathered.marks.push(Mark { member: role, sector, structure: 1, place });
    };
    // Many at the beginning, but on one member, and one at each terabyte.
    let first = (0..6 * 128).filter(|block| block / 128 != 2).map(|block| block * 8);
    // Eight rows further, roles are the same.
    let first = first.flat_map(|place| [place, place + 8 * 6 * 1024]);
    let blocks = first.chain((1..48).map(|group| group << 31));
    for place in blocks {
        let strip = geometry.copy(place, 0);
        let (p, _) = geometry.parity_roles(strip.sector / 1024);
        mark(strip.role.index(), strip.sector, place);
        // The rest of the row is zero.
        mark(p.index(), strip.sector, place);
    }
    gathered.marks.sort_unstable();
    let found = search(&[8 << 31; 8], &gathered, &known, None);
    let first = &found[0];
    assert_eq!((first.met, first.of), (1327, 1327), "{first:?}");
    assert_eq!((first.shape.level, first.shape.layout), (Level::Raid6, layout));
    let few = first.roles.iter().enumerate().filter(|(_, place)| place.is_some());
    assert!(few.clone().count() >= 6, "{first:?}");
    assert!(few.into_iter().all(|(role, place)| place.is_some_and(|place| place.member == role)));
}
