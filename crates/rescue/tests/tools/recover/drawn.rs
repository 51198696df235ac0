//! Sets of members that are drawn at random: what lies on the array, its geometry, who is lost.

use std::fmt::Write as _;
use std::fs;

use braid_array::level::Level;

use super::Case;
use crate::support::{Folder, run};

const MIB: u64 = 1 << 20;
/// File systems that sets are made of.
const CONTENTS: u64 = 20;

/// Numbers that look random, the same in each run from one seed.
pub(super) struct Draw(u64);

impl Draw {
    pub(super) fn new(seed: u64) -> Self {
        let mut draw = Self(seed ^ 0x5bd1_e995_7b93_17c5);
        draw.below(2);
        draw
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.word() % end
    }

    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 31
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let words = std::iter::repeat_with(|| self.word() as u32).take(length.div_ceil(4));
        let mut bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        bytes.truncate(length);
        bytes
    }
}

/// A file system, and how it was made.
pub(super) struct Content {
    name: String,
    bytes: Vec<u8>,
}

/// File systems of all kinds, from nearly empty to full.
pub(super) fn contents(folder: &Folder) -> Vec<Content> {
    (0..CONTENTS).map(|number| content(folder, number)).collect()
}

fn content(folder: &Folder, number: u64) -> Content {
    let mut draw = Draw::new(number);
    let mib = draw.of(&[24, 32, 48]);
    // Nearly empty, some, half full, full.
    let percent = [3, 20, 50, 85][(number / 5 % 4) as usize];
    let name = ["ext4", "ext4 without sums", "ext4 of 1K", "xfs", "btrfs"][(number % 5) as usize];
    let mib = if number % 5 == 4 { 64 } else { mib };
    let _ = fs::remove_file(folder.path("fs"));
    folder.file("fs", mib * MIB);
    let files = fill(folder, &mut draw, mib * MIB * percent / 100 * 8 / 10);
    let line = match number % 5 {
        0 => format!("mkfs.ext4 -q -b 4096 -U {} -d tree fs", uuid(number)),
        1 => format!("mkfs.ext4 -q -b 4096 -O ^metadata_csum -U {} -d tree fs", uuid(number)),
        2 => format!("mkfs.ext4 -q -b 1024 -U {} -d tree fs", uuid(number)),
        3 => {
            fs::write(folder.path("proto"), proto(&files)).unwrap();
            format!("mkfs.xfs --unsupported -q -f -m uuid={} -p proto fs", uuid(number))
        }
        _ => format!("mkfs.btrfs -q -f -M -U {} --rootdir tree fs", uuid(number)),
    };
    run(folder, &line, "");
    let bytes = fs::read(folder.path("fs")).unwrap();
    Content { name: format!("{name}, {mib} MiB, {percent}% full"), bytes }
}

fn uuid(number: u64) -> String {
    let mut draw = Draw::new(number + 1000);
    format!("{:08x}-1234-4321-8765-{:012x}", draw.word() as u32, draw.word())
}

/// A tree of files of so many bytes in all: noise, text, and the like of tables. Answers with
/// directories and their files.
fn fill(folder: &Folder, draw: &mut Draw, most: u64) -> Vec<(String, Vec<String>)> {
    let tree = folder.path("tree");
    let _ = fs::remove_dir_all(&tree);
    fs::create_dir_all(&tree).unwrap();
    let mut all = Vec::new();
    let mut used = 0;
    while used < most {
        let directory = format!("d{}", all.len());
        fs::create_dir(tree.join(&directory)).unwrap();
        let mut files = Vec::new();
        for file in 0..draw.below(20) + 4 {
            let top = draw.of(&[4, 16, 60, 60, 400]);
            let length = ((draw.below(top) + 1) << 10).min(most.saturating_sub(used) + 1024);
            let bytes = match draw.below(4) {
                0 => vec![draw.below(256) as u8; length as usize],
                1 => format!("line {file} of {directory}\n").repeat(length as usize / 20).into(),
                _ => draw.bytes(length as usize),
            };
            fs::write(tree.join(&directory).join(format!("f{file}")), bytes).unwrap();
            files.push(format!("f{file}"));
            used += length + 4096;
        }
        all.push((directory, files));
    }
    all
}

fn proto(files: &[(String, Vec<String>)]) -> String {
    let mut text = "/\n0 0\nd--755 0 0\n".to_owned();
    for (directory, files) in files {
        let _ = writeln!(text, "{directory} d--755 0 0");
        for file in files {
            let _ = writeln!(text, "{file} ---644 0 0 tree/{directory}/{file}");
        }
        text.push_str("$\n");
    }
    text + "$\n"
}

/// The same file systems, and XFS of version 4.
pub(super) fn further_contents(folder: &Folder) -> Vec<Content> {
    let old = |number: u64| {
        let mut draw = Draw::new(number + 2000);
        let _ = fs::remove_file(folder.path("fs"));
        folder.file("fs", 48 * MIB);
        let files = fill(folder, &mut draw, MIB * (3 + number * 10));
        fs::write(folder.path("proto"), proto(&files)).unwrap();
        let options = format!("-m crc=0,uuid={} -d agcount={}", uuid(number + 100), 1 + number % 3);
        run(folder, &format!("mkfs.xfs --unsupported -q -f {options} -p proto fs"), "");
        let bytes = fs::read(folder.path("fs")).unwrap();
        Content { name: format!("xfs of version 4, 48 MiB, {number}"), bytes }
    };
    contents(folder).into_iter().chain((0..4).map(old)).collect()
}

/// What lies on each member before the data.
#[derive(Clone, Copy)]
enum Before {
    Zeroes,
    Noise,
    /// The bitmap that md has there, and a log of bad blocks.
    Bitmap,
}

/// A set of members: what was laid, and what is left of it.
pub(super) struct Set {
    before: Before,
    /// Where each member begins on its disk, in sectors; 0 where it is the disk.
    pub(super) starts: u64,
    pub(super) case: Case,
    pub(super) content: Vec<u8>,
    /// The role of each member, in the order in which they are given.
    pub(super) order: Vec<usize>,
    /// What was drawn, in words.
    pub(super) told: String,
}

impl Set {
    /// From a seed.
    pub(super) fn draw(seed: u64, contents: &[Content]) -> Self {
        let mut draw = Draw::new(seed.wrapping_mul(7919));
        let (level, layouts, least): (Level, &[&str], u64) = match draw.below(12) {
            0 => (Level::Raid0, &[""], 2),
            1 | 2 => (Level::Raid1, &[""], 2),
            3 => (Level::Raid4, &[""], 3),
            4 | 5 => (Level::Raid10, &["n2", "n2", "f2", "o2"], 2),
            6..9 => (Level::Raid5, &["ls", "ls", "ls", "rs", "la", "ra"], 3),
            _ => (Level::Raid6, &["ls", "ls", "ls", "rs", "la", "ra", "ddf-zero-restart"], 4),
        };
        let layout = draw.of(layouts);
        let most_more = if level == Level::Raid1 { 2 } else { 4 };
        let count = (least + draw.below(most_more)) as usize;
        let chunk_kib = if level == Level::Raid1 { 0 } else { 4 << draw.below(9) };
        let mut case = Case::new(level, layout, chunk_kib, count);
        let offset = draw.of(&[2048, 2048, 2048, 0, 4096, 264, 16384]);
        case.offsets = vec![offset; count];
        let content = &contents[draw.below(contents.len() as u64) as usize];
        let (mut on_it, around) = within(&mut draw, &content.bytes);
        if draw.below(3) == 0 {
            on_it.resize(on_it.len() * 3 / 2, 0);
        }
        let mut order: Vec<usize> = (0..count).collect();
        for index in (1..count).rev() {
            order.swap(index, draw.below(index as u64 + 1) as usize);
        }
        let survives = match level {
            Level::Raid0 => 0,
            Level::Raid1 => count as u64 - 1,
            Level::Raid6 => 2,
            _ if count == 2 => 0,
            _ => 1,
        };
        let lost = draw.of(&[0, 0, 1, 1, 2]).min(survives.saturating_sub(u64::from(count == 2)));
        order.truncate(count - lost as usize);
        let told = format!(
            "{level} {layout} of {count} without {lost}, chunk {chunk_kib}K, offset {offset}, \
             {around}{}",
            content.name
        );
        Self { before: Before::Zeroes, starts: 0, case, content: on_it, order, told }
    }

    /// The same, in partitions of disks and with something before the data, or one of both.
    pub(super) fn draw_further(seed: u64, contents: &[Content]) -> Self {
        let mut draw = Draw::new(seed.wrapping_mul(104_729));
        let mut set = Self::draw(seed, contents);
        let (before, what) = draw.of(&[
            (Before::Zeroes, ""),
            (Before::Noise, ", noise before it"),
            (Before::Bitmap, ", a bitmap before it"),
        ]);
        set.before = before;
        set.starts = draw.of(&[0, 2048, 2048, 4096, 63]);
        set.told = format!("{}{what}, from sector {} of disks", set.told, set.starts);
        set
    }

    /// The members as they are given.
    pub(super) fn members(&self) -> Vec<Vec<u8>> {
        let mut laid = self.case.lay(&self.content);
        for (role, member) in laid.iter_mut().enumerate() {
            self.fill_before(role, member);
            if self.starts > 0 {
                *member = in_partition(self.starts, member);
            }
        }
        super::shuffled(laid, &self.order)
    }

    /// The same where the partition is the member, as it is named once that is found.
    pub(super) fn partitions(&self, disks: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let start = (self.starts * 512) as usize;
        let end = |disk: &Vec<u8>| disk.len() - if start > 0 { MIB as usize } else { 0 };
        disks.iter().map(|disk| disk[start..end(disk)].to_vec()).collect()
    }

    fn fill_before(&self, role: usize, member: &mut [u8]) {
        let room = (self.case.offsets[role] * 512) as usize;
        match self.before {
            Before::Zeroes => {}
            Before::Noise => {
                let noise = Draw::new(role as u64 + 77).bytes(room);
                member[..room].copy_from_slice(&noise);
            }
            Before::Bitmap if room >= 64 << 10 => {
                member[8192..8196].copy_from_slice(b"bitm");
                member[8196] = 4;
                member[8200..8216].fill(0x5a);
                // It is the same on all members.
                member[8448..9000].fill(3);
                member[16 << 10..20 << 10].fill(0xff);
            }
            Before::Bitmap => {}
        }
    }

    /// Is there redundancy left?
    pub(super) fn is_redundant(&self) -> bool {
        let lost = self.case.offsets.len() - self.order.len();
        match self.case.level {
            Level::Raid0 => false,
            Level::Raid6 => lost < 2,
            Level::Raid1 => self.order.len() > 1,
            _ => lost == 0,
        }
    }
}

/// The array with a file system on it: as it is, in the second volume of a group, in a partition.
fn within(draw: &mut Draw, inner: &[u8]) -> (Vec<u8>, &'static str) {
    match draw.below(4) {
        0 => (on_lvm(draw, inner), "LVM, "),
        1 => (on_gpt(inner), "GPT, "),
        _ => (inner.to_vec(), ""),
    }
}

/// A physical volume: its label, metadata as text, a first volume, and the second one.
fn on_lvm(draw: &mut Draw, inner: &[u8]) -> Vec<u8> {
    let extents = 1 + draw.below(3);
    let mut bytes = vec![0; ((1 + extents * 4) * MIB) as usize];
    let label = &mut bytes[512..1024];
    label[..8].copy_from_slice(b"LABELONE");
    label[8..16].copy_from_slice(&1_u64.to_le_bytes());
    label[20..24].copy_from_slice(&32_u32.to_le_bytes());
    label[24..32].copy_from_slice(b"LVM2 001");
    label[32..64].copy_from_slice(b"0123456789abcdef0123456789abcdef");
    label[72..80].copy_from_slice(&MIB.to_le_bytes());
    label[104..112].copy_from_slice(&4096_u64.to_le_bytes());
    label[112..120].copy_from_slice(&(MIB - 4096).to_le_bytes());
    bytes[4100..4116].copy_from_slice(b" LVM2 x[5A%r0N*>");
    let text = "contents = \"Text Format Volume Group\"\nversion = 1\n".repeat(30);
    bytes[4608..4608 + text.len()].copy_from_slice(text.as_bytes());
    if draw.below(2) == 0 {
        let noise = draw.bytes(3 * MIB as usize);
        bytes[MIB as usize..4 * MIB as usize].copy_from_slice(&noise);
    }
    bytes.extend_from_slice(inner);
    bytes
}

/// The checksum of a GPT.
fn crc32(bytes: &[u8]) -> u32 {
    let bit = |crc: u32| (crc >> 1) ^ if crc & 1 == 1 { 0xedb8_8320 } else { 0 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| bit(crc)))
}

/// A disk with a member in its only partition, and room behind it.
fn in_partition(start: u64, member: &[u8]) -> Vec<u8> {
    let mut disk = vec![0; (start * 512) as usize];
    if start >= 2048 {
        let table = on_gpt(member);
        disk[..2048].copy_from_slice(&table[..2048]);
        disk[1056..1064].copy_from_slice(&start.to_le_bytes());
        disk[1064..1072].copy_from_slice(&(start - 1 + member.len() as u64 / 512).to_le_bytes());
        disk[552..560].copy_from_slice(&34_u64.to_le_bytes());
        disk[560..568].copy_from_slice(&(start + member.len() as u64 / 512).to_le_bytes());
        let entries = crc32(&disk[1024..1024 + 128 * 128]);
        disk[600..604].copy_from_slice(&entries.to_le_bytes());
        let header = crc32(&disk[512..604]);
        disk[528..532].copy_from_slice(&header.to_le_bytes());
    } else {
        disk[450] = 0xfd;
        disk[454..458].copy_from_slice(&(start as u32).to_le_bytes());
        disk[458..462].copy_from_slice(&(member.len() as u32 / 512).to_le_bytes());
        disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    }
    disk.extend_from_slice(member);
    disk.resize(disk.len() + MIB as usize, 0);
    disk
}

/// A disk with a GPT and one partition.
fn on_gpt(inner: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; MIB as usize];
    bytes[450] = 0xee;
    bytes[454] = 1;
    bytes[458..462].fill(0xff);
    bytes[510..512].copy_from_slice(&[0x55, 0xaa]);
    let header = &mut bytes[512..1024];
    header[..8].copy_from_slice(b"EFI PART");
    header[10] = 1;
    header[12] = 92;
    header[24] = 1;
    header[40] = 34;
    header[72] = 2;
    header[80] = 128;
    header[84] = 128;
    let entry = &mut bytes[1024..1152];
    entry[..32].copy_from_slice(b"0123456789abcdefABCDEF0123456789");
    entry[32..40].copy_from_slice(&2048_u64.to_le_bytes());
    entry[40..48].copy_from_slice(&(2047 + inner.len() as u64 / 512).to_le_bytes());
    bytes.extend_from_slice(inner);
    bytes
}
