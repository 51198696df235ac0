//! Arrays made by a real md kernel, for Braid to read: every level and every layout md knows, all
//! metadata versions, clean and not.

use crate::made::{self, Made};
use crate::support::{self, Run};
use braid_judges::Content;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// name | member sizes in MiB (or K) | mdadm --create arguments | what happens then (golden.sh)
const TABLE: &str = "
raid0-2             | 8 8         | -l0 -c64                             | fill
raid0-3-4k          | 8 8 8       | -l0 -c4                              | fill
raid0-4-1m          | 8 8 8 8     | -l0 -c1024                           | fill
raid0-uneven        | 8 12 20     | -l0 -c64 -e1.2 -poriginal            | fill
raid0-uneven-alt    | 8 12 20     | -l0 -c64 -palternate                 | fill
raid0-uneven-4      | 8 20 12 20  | -l0 -c16 -palternate                 | fill
raid0-v10           | 8 8         | -l0 -c64 -e1.0                       | fill
linear-2            | 8 12        | -llinear                             | fill
linear-3            | 12 8 9      | -llinear -e1.0                       | fill
raid1-2             | 8 8         | -l1                                  | fill
raid1-3             | 8 8 8       | -l1                                  | fill
raid1-bitmap        | 8 8         | -l1 -binternal --bitmap-chunk=64K    | fill
raid1-v090          | 8 8         | -l1 -e0.90                           | fill
raid1-v090-bitmap   | 8 8         | -l1 -e0.90 -binternal                | fill
raid1-v10-bitmap    | 8 8         | -l1 -e1.0 -binternal                 | fill
raid1-v11-bitmap    | 8 8         | -l1 -e1.1 -binternal                 | fill
raid1-bitmap-1k     | 8 8         | -l1 -binternal --bitmap-chunk=64K    | moved-2
raid1-v10-bitmap-1k | 8 8         | -l1 -e1.0 -binternal                 | moved-2
raid1-spare         | 8 8 8       | -l1 -x1                              | rebuilt
raid1-stale         | 8 8         | -l1 -binternal --bitmap-chunk=64K    | stale
raid1-stale-nobm    | 8 8         | -l1                                  | stale
raid1-badblocks     | 8 8         | -l1                                  | badblocks
raid1-halfway       | 8 8         | -l1                                  | halfway
raid4-3             | 8 8 8       | -l4 -c64                             | fill
raid4-4-rebuilt     | 8 8 8 8     | -l4 -c32                             | rebuilt
raid5-3             | 8 8 8       | -l5 -c64                             | fill
raid5-4-ls          | 8 8 8 8     | -l5 -c64 -pleft-symmetric            | fill
raid5-4-la          | 8 8 8 8     | -l5 -c64 -pleft-asymmetric           | fill
raid5-4-rs          | 8 8 8 8     | -l5 -c64 -pright-symmetric           | fill
raid5-4-ra          | 8 8 8 8     | -l5 -c64 -pright-asymmetric          | fill
raid5-4-first       | 8 8 8 8     | -l5 -c64 -pparity-first              | fill
raid5-4-last        | 8 8 8 8     | -l5 -c64 -pparity-last               | fill
raid5-5-4k          | 8 8 8 8 8   | -l5 -c4                              | fill
raid5-3-128k        | 8 8 8       | -l5 -c128 -pright-symmetric          | fill
raid5-3-1m          | 9 8 8       | -l5 -c1024                           | fill
raid5-v090          | 8 8 8       | -l5 -c64 -e0.90                      | rebuilt
raid5-v10           | 8 8 8       | -l5 -c64 -e1.0                       | rebuilt
raid5-v11           | 8 8 8       | -l5 -c64 -e1.1                       | fill
raid5-bitmap        | 8 8 8       | -l5 -c64 -binternal                  | rebuilt
raid5-v11-bitmap-1k | 8 8 8       | -l5 -c64 -e1.1 -binternal            | moved-2
raid5-spare         | 8 8 8 8     | -l5 -c64 -x1                         | rebuilt
raid5-degraded      | 8 8 8       | -l5 -c64                             | degraded-1
raid5-dirty         | 8 8 8       | -l5 -c64                             | dirty
raid5-dirtybm       | 8 8 8       | -l5 -c64 -binternal --bitmap-chunk=64K --delay=1 | dirty
raid5-badblocks     | 8 8 8       | -l5 -c64                             | badblocks
raid5-halfway       | 8 8 8       | -l5 -c64                             | halfway
raid5-resyncing     | 8 8 8       | -l5 -c64                             | resyncing
raid6-4             | 8 8 8 8     | -l6 -c64                             | rebuilt
raid6-5-ls          | 8 8 8 8 8   | -l6 -c64 -pleft-symmetric            | fill
raid6-5-la          | 8 8 8 8 8   | -l6 -c128 -pleft-asymmetric          | fill
raid6-5-rs          | 8 8 8 8 8   | -l6 -c64 -pright-symmetric           | fill
raid6-5-ra          | 8 8 8 8 8   | -l6 -c64 -pright-asymmetric          | fill
raid6-5-first       | 8 8 8 8 8   | -l6 -c64 -pparity-first              | fill
raid6-5-last        | 8 8 8 8 8   | -l6 -c64 -pparity-last               | fill
raid6-5-ddf-zero    | 8 8 8 8 8   | -l6 -c64 -pddf-zero-restart          | fill
raid6-5-ddf-n-r     | 8 8 8 8 8   | -l6 -c64 -pddf-N-restart             | fill
raid6-5-ddf-n-c     | 8 8 8 8 8   | -l6 -c64 -pddf-N-continue            | fill
raid6-5-ls6         | 8 8 8 8 8   | -l6 -c64 -pleft-symmetric-6          | fill
raid6-5-la6         | 8 8 8 8 8   | -l6 -c64 -pleft-asymmetric-6         | fill
raid6-5-rs6         | 8 8 8 8 8   | -l6 -c64 -pright-symmetric-6         | fill
raid6-5-ra6         | 8 8 8 8 8   | -l6 -c64 -pright-asymmetric-6        | fill
raid6-5-first6      | 8 8 8 8 8   | -l6 -c64 -pparity-first-6            | fill
raid6-6-bitmap      | 8 8 8 8 8 8 | -l6 -c32 -binternal                  | fill
raid6-degraded2     | 8 8 8 8 8   | -l6 -c64                             | degraded-14
raid10-2-n2         | 8 8         | -l10 -c64 -pn2                       | fill
raid10-3-n2         | 8 8 8       | -l10 -c64 -pn2                       | fill
raid10-4-n2         | 8 8 8 8     | -l10 -c64 -pn2                       | rebuilt
raid10-5-n2-4k      | 8 8 8 8 8   | -l10 -c4 -pn2                        | fill
raid10-3-n3         | 8 8 8       | -l10 -c64 -pn3                       | fill
raid10-5-n3         | 8 8 8 8 8   | -l10 -c64 -pn3                       | fill
raid10-2-f2         | 8 8         | -l10 -c64 -pf2                       | fill
raid10-3-f2         | 8 8 8       | -l10 -c64 -pf2                       | fill
raid10-4-f2         | 8 8 8 8     | -l10 -c64 -pf2                       | fill
raid10-4-f3         | 8 8 8 8     | -l10 -c64 -pf3                       | fill
raid10-5-f3         | 8 8 8 8 8   | -l10 -c32 -pf3                       | fill
raid10-2-o2         | 8 8         | -l10 -c64 -po2                       | fill
raid10-3-o2         | 8 8 8       | -l10 -c64 -po2                       | fill
raid10-4-o2         | 8 8 8 8     | -l10 -c64 -po2                       | fill
raid10-5-o3         | 8 8 8 8 8   | -l10 -c64 -po3                       | fill
raid10-6-o2         | 8 8 8 8 8 8 | -l10 -c128 -po2                      | fill
raid10-4-n2f2       | 8 8 8 8     | -l10 -c64 -pn2                       | relayout-514
raid10-5-n2f2       | 8 8 8 8 8   | -l10 -c64 -pn2                       | relayout-514
raid10-v090         | 8 8 8 8     | -l10 -c64 -e0.90                     | fill
raid10-v10-bitmap   | 8 8 8 8     | -l10 -c64 -e1.0 -binternal           | fill
";

/// A few small ones, committed in `tiny.tar.gz` for machines without a guest.
const TINY: &str = "
tiny-raid0      | 1152K 1216K 1280K             | -l0 -c16 -e1.2 -palternate | fill
tiny-linear     | 1152K 1216K                   | -llinear                   | fill
tiny-raid1      | 1152K 1152K                   | -l1 -e1.0 -binternal       | fill
tiny-raid4      | 1152K 1152K 1152K             | -l4 -c4                    | fill
tiny-raid5      | 1152K 1152K 1152K             | -l5 -c16 -pright-asymmetric | rebuilt
tiny-raid5-090  | 256K 256K 256K                | -l5 -c64 -e0.90            | fill
tiny-raid6      | 1152K 1152K 1152K 1152K 1152K | -l6 -c16 -pddf-N-continue  | fill
tiny-raid10     | 1152K 1152K 1152K             | -l10 -c16 -pf2             | fill
";

/// An array that md made and stopped.
#[derive(Clone, Debug)]
pub(crate) struct Golden {
    /// The line of the table.
    pub(crate) name: String,
    /// mdadm's arguments.
    pub(crate) arguments: String,
    /// What happened after creation.
    pub(crate) after: String,
    /// Where its files lie.
    pub(crate) directory: PathBuf,
    /// In role order as created; a spare comes last.
    pub(crate) members: Vec<PathBuf>,
    /// Sizes of the members.
    sizes_bytes: Vec<u64>,
    /// Number of roles.
    pub(crate) raid_devices: usize,
    /// Size of the array; 0 until made.
    pub(crate) size_bytes: u64,
    /// What it holds.
    pub(crate) content: Content,
}

impl Made for Golden {
    const GUEST: &str = include_str!("golden.sh");

    fn directory(&self) -> &Path {
        &self.directory
    }

    fn members(&self) -> Vec<(&Path, u64)> {
        let sizes_bytes = self.sizes_bytes.iter().copied();
        self.members.iter().map(PathBuf::as_path).zip(sizes_bytes).collect()
    }

    fn content(&self) -> &Content {
        &self.content
    }

    fn call(&self) -> String {
        let Self { name, raid_devices, after, arguments, .. } = self;
        let seed = self.content.seed;
        let directory = self.directory.display();
        format!("one {name} {seed} {raid_devices} {after} {directory} {arguments}")
    }
}

impl Golden {
    /// md's level, as mdadm's argument names it.
    pub(crate) fn level(&self) -> &str {
        let option = self.arguments.split(' ').next().unwrap_or("");
        option.trim_start_matches("-l")
    }

    /// RAID-10: how many copies of each chunk there are; otherwise 1.
    pub(crate) fn copies(&self) -> usize {
        if self.level() != "10" {
            return 1;
        }
        let Some((_, layout)) = self.arguments.split_once(" -p") else { return 2 };
        let digit = layout.as_bytes()[1] - b'0';
        if self.after.starts_with("relayout") { 4 } else { usize::from(digit) }
    }

    /// One of mdadm's descriptions of it.
    pub(crate) fn text(&self, file: &str) -> String {
        support::read(&self.directory.join(file))
    }
}

/// All arrays of the table.
pub(crate) fn all() -> &'static [Golden] {
    static MADE: OnceLock<Result<Vec<Golden>, String>> = OnceLock::new();
    MADE.get_or_init(make).as_ref().unwrap_or_else(|reason| panic!("{reason}"))
}

/// One array of the table.
pub(crate) fn named(name: &str) -> &'static Golden {
    all().iter().find(|array| array.name == name).unwrap_or_else(|| panic!("no array {name}"))
}

/// The committed arrays, unpacked.
pub(crate) fn tiny() -> Vec<Golden> {
    let directory = support::directory("tiny");
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(&directory).arg("-xzf").arg(tiny_archive());
    Run::of(&mut tar).expect_success("unpacking");
    sized(parse(TINY, &directory))
}

fn tiny_archive() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tiny.tar.gz")
}

#[test]
#[ignore = "makes the committed archive anew"]
fn make_tiny_archive() {
    let directory = support::directory("tiny-new");
    let arrays = parse(TINY, &directory);
    made::make_in_one_boot("tiny-new", &arrays.iter().collect::<Vec<_>>()).expect("a guest");
    let mut tar = Command::new("tar");
    tar.env("GZIP", "-9").arg("-C").arg(&directory).args(["--sparse", "--exclude=recipe"]);
    tar.args(["--owner=0", "--group=0", "--sort=name", "-czf"]).arg(tiny_archive());
    Run::of(tar.args(arrays.iter().map(|array| &array.name))).expect_success("packing");
}

/// With the sizes that md gave them.
fn sized(mut arrays: Vec<Golden>) -> Vec<Golden> {
    for array in &mut arrays {
        array.size_bytes = Made::size_bytes(array);
    }
    arrays
}

fn make() -> Result<Vec<Golden>, String> {
    let arrays = table();
    made::unpack_all("golden", &arrays)?;
    Ok(sized(arrays))
}

fn table() -> Vec<Golden> {
    parse(TABLE, &support::base().join("golden"))
}

#[test]
#[ignore = "makes the committed archive anew"]
fn make_archive() {
    made::make_all("golden", &table()).expect("a guest");
    made::pack_all("golden", &table());
}

fn parse(table: &str, base: &Path) -> Vec<Golden> {
    table.lines().filter(|line| !line.is_empty()).map(|line| parse_line(base, line)).collect()
}

fn parse_line(base: &Path, line: &str) -> Golden {
    let columns: Vec<&str> = line.split('|').map(str::trim).collect();
    let [name, sizes, arguments, after] = columns[..] else { panic!("bad line: {line}") };
    let sizes_bytes: Vec<u64> = sizes.split(' ').map(size_bytes).collect();
    let directory = base.join(name);
    let content = made::content_of(name);
    let seed = content.seed;
    Golden {
        name: name.into(),
        arguments: arguments.into(),
        after: after.into(),
        members: made::members_in(&directory, sizes_bytes.len()),
        raid_devices: sizes_bytes.len() - usize::from(arguments.contains("-x1")),
        sizes_bytes,
        size_bytes: 0,
        content: if after == "stale" { content.then(seed + 1, 4 << 20, 64 << 10) } else { content },
        directory,
    }
}

/// MiB, or KiB with a K.
fn size_bytes(word: &str) -> u64 {
    match word.strip_suffix('K') {
        Some(kib) => kib.parse::<u64>().expect("a size") << 10,
        None => word.parse::<u64>().expect("a size") << 20,
    }
}

/// Copies of the members, for tests that write.
pub(crate) fn copy(array: &Golden, to: &Path) -> Vec<PathBuf> {
    fs::create_dir_all(to).expect("a directory");
    let copies = array.members.iter().map(|member| to.join(member.file_name().expect("a name")));
    let copies: Vec<PathBuf> = copies.collect();
    for (from, to) in array.members.iter().zip(&copies) {
        Run::of(Command::new("cp").arg("--sparse=always").arg(from).arg(to)).expect_success("cp");
    }
    copies
}
