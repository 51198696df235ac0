//! A box with disks of two sizes, as makers of storage boxes lay them out: several arrays on
//! partitions of each disk, and volumes of LVM2 over two of them. A real md kernel, LVM2 and the
//! programs of the file systems made it and judge what Braid reads of it. Not a byte of a disk
//! changes.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::support::{self, Run, braid, fingerprints, guest, program, skip};

const GUEST: &str = include_str!("mixed.sh");
/// Start and length of the partitions, in MiB; smaller disks end before the last one.
const PARTITIONS: [(u64, u64); 4] = [(1, 10), (11, 4), (15, 96), (111, 64)];
const SMALL_MIB: u64 = 112;
const LARGE_MIB: u64 = 176;
const DISKS: usize = 4;

struct Box {
    directory: PathBuf,
    tree: PathBuf,
}

impl Box {
    fn disk(&self, number: usize) -> PathBuf {
        self.directory.join(format!("d{number}.img"))
    }

    fn disks(&self) -> Vec<PathBuf> {
        (0..DISKS).map(|number| self.disk(number)).collect()
    }

    fn make() -> Self {
        let directory = support::directory("mixed");
        let tree = directory.join("tree");
        for number in 1..=1500_u32 {
            let within = tree.join(format!("{}", number % 150));
            fs::create_dir_all(&within).expect("a directory");
            let bytes: Vec<u8> =
                (0..512 + number * 2).flat_map(|n| (n * number).to_le_bytes()).collect();
            fs::write(within.join(number.to_string()), bytes).expect("a file");
        }
        fs::create_dir_all(directory.join("run")).expect("a directory");
        let made = Self { directory, tree };
        let mut table = "TABLE=(0".to_owned();
        for (start, length) in PARTITIONS {
            let _ = write!(table, " '{start} {length}'");
        }
        for number in 0..DISKS {
            let (mib, partitions) = if number < 2 { (SMALL_MIB, 3) } else { (LARGE_MIB, 4) };
            support::sparse_file(&made.disk(number), mib << 20);
            partition(&made.disk(number), &PARTITIONS[..partitions]);
        }
        let script =
            format!("{table})\n{GUEST}\nbox {} {}", made.directory.display(), made.tree.display());
        println!("{}", guest::run("mixed", &script).expect_success("md makes arrays").stdout);
        made
    }

    /// What `braid` answers about these disks.
    fn ask(&self, words: &[&str], disks: &[PathBuf]) -> Vec<u8> {
        let mut command = braid();
        command.current_dir(&self.directory).env("BRAID_RUN_DIR", self.directory.join("run"));
        command.args(words).args(disks).stderr(Stdio::inherit());
        let output = command.output().expect("braid runs");
        assert!(output.status.success(), "braid {words:?}");
        output.stdout
    }

    /// Serves a volume of these disks and copies it out by qemu-img.
    fn served(&self, volume: &str, disks: &[PathBuf], options: &[&str]) -> PathBuf {
        let socket = std::env::temp_dir().join(format!("bj-{}-mixed", std::process::id()));
        let part = format!("vg1/{volume}");
        let export = format!("nbd:unix:{}", socket.display());
        let words = ["assemble", "box", "--readonly", "--part", &part, "--export", &export];
        self.ask(&[&words[..], options].concat(), disks);
        let copy = self.directory.join(volume);
        let uri = format!("nbd+unix:///box?socket={}", socket.display());
        let mut convert = Command::new("qemu-img");
        convert.args(["convert", "-f", "raw", "-O", "raw", &uri]).arg(&copy);
        let run = Run::of(&mut convert);
        self.ask(&["stop", "box"], &[]);
        run.expect_success("qemu-img");
        copy
    }

    fn check_ext4(&self, image: &Path) {
        Run::of(Command::new("e2fsck").arg("-fn").arg(image)).expect_success("e2fsck");
        let out = self.empty();
        let dump = format!("rdump / {}", out.display());
        Run::of(Command::new("debugfs").args(["-R", &dump]).arg(image)).expect_success("debugfs");
        self.compare(&out);
    }

    fn check_btrfs(&self, image: &Path) {
        let check = Run::of(Command::new("btrfs").args(["check", "--readonly"]).arg(image));
        check.expect_success("btrfs check");
        let out = self.empty();
        let restore = Run::of(Command::new("btrfs").arg("restore").arg(image).arg(&out));
        restore.expect_success("btrfs restore");
        self.compare(&out);
    }

    fn empty(&self) -> PathBuf {
        let out = self.directory.join("out");
        let _ = fs::remove_dir_all(&out);
        fs::create_dir_all(&out).expect("a directory");
        out
    }

    fn compare(&self, out: &Path) {
        let mut diff = Command::new("diff");
        diff.args(["-r", "--exclude=lost+found"]).arg(&self.tree).arg(out);
        Run::of(&mut diff).expect_success("diff");
    }
}

fn partition(disk: &Path, partitions: &[(u64, u64)]) {
    let mut table = "label: gpt\n".to_owned();
    for (start, length) in partitions {
        let _ = writeln!(table, "start={}, size={}", start << 11, length << 11);
    }
    support::partition(disk, &table);
}

#[test]
fn volumes_over_the_arrays_of_a_box_of_mixed_disks_are_read() {
    let test = "volumes_over_the_arrays_of_a_box_of_mixed_disks_are_read";
    let tools = ["lvm", "sfdisk", "mkfs.ext4", "mkfs.btrfs", "debugfs", "btrfs", "qemu-img"];
    let available = guest::available().and_then(|()| tools.into_iter().try_for_each(program));
    if let Err(reason) = available {
        return skip(test, &reason);
    }
    let made = Box::make();
    let disks = made.disks();
    let before = fingerprints(&disks);

    let list = String::from_utf8_lossy(&made.ask(&["cat", "--list"], &disks)).into_owned();
    println!("{list}");
    for line in ["vg1/volume_1  104.00 MiB", "vg1/volume_2  144.00 MiB"] {
        assert!(list.contains(line), "{line} in {list}");
    }
    let volume = made.served("volume_1", &disks, &[]);
    made.check_ext4(&volume);
    let copy = made.ask(&["cat", "--part", "vg1/volume_1"], &disks);
    assert!(fs::read(&volume).expect("a copy") == copy, "served and copied out differ");
    made.check_btrfs(&made.served("volume_2", &disks, &[]));

    // A disk of each kind is enough to lose.
    for missing in [1, 3] {
        let mut rest = made.disks();
        rest.remove(missing);
        made.check_ext4(&made.served("volume_1", &rest, &["--run"]));
        made.check_btrfs(&made.served("volume_2", &rest, &["--run"]));
    }
    assert_eq!(before, fingerprints(&disks), "reading changed a disk");

    found_again(&made);
}

/// The superblocks of the large array are gone, and one disk with it.
fn found_again(made: &Box) {
    let (start, _) = PARTITIONS[2];
    for disk in made.disks() {
        let file = File::options().write(true).open(disk).expect("a disk");
        file.write_all_at(&[0; 8192], start << 20).expect("room");
    }
    let disks = made.disks();
    let before = fingerprints(&disks);
    let parts: Vec<PathBuf> = [3, 0, 2]
        .into_iter()
        .map(|number| PathBuf::from(format!("{}#3", disks[number].display())))
        .collect();
    let found: Value =
        serde_json::from_slice(&made.ask(&["recover", "--json"], &parts)).expect("JSON");
    let best = &found["hypotheses"][0];
    assert_eq!(
        (&best["level"], &best["confidence"]),
        (&"raid5".into(), &"high".into()),
        "{found:#}"
    );
    let expected = [&parts[1], Path::new("missing"), &parts[2], &parts[0]];
    let expected: Vec<Value> =
        expected.into_iter().map(|path| path.display().to_string().into()).collect();
    assert_eq!(best["members"].as_array(), Some(&expected), "{found:#}");
    assert_eq!(before, fingerprints(&disks), "looking for it changed a disk");
}
