use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::process::geteuid;

use super::*;
use crate::tool::Tool;

const MIB: usize = 1 << 20;

struct Stand {
    paths: Vec<PathBuf>,
    guards: [Guard; 2],
    files: Vec<PathBuf>,
    directory: tempfile::TempDir,
}

fn stand(count: usize, limits: Limits) -> Option<Stand> {
    if !Path::new("/dev/fuse").exists() || !geteuid().is_root() {
        assert!(std::env::var_os("CI").is_none(), "it needs FUSE and root");
        eprintln!("SKIPPED: it needs FUSE and root");
        return None;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let room = Room::new(directory.path().to_owned(), Vec::new(), Tool::at("braid", "no".into()));
    let files: Vec<PathBuf> =
        (0..count).map(|number| directory.path().join(format!("below{number}"))).collect();
    for file in &files {
        File::create(file).and_then(|file| file.set_len(64 << 20)).expect("a file");
    }
    let (paths, guards) = limited(&room, "test", &files, limits).expect("disks");
    Some(Stand { paths, guards, files, directory })
}

fn direct(path: &Path) -> File {
    let flags = OFlags::DIRECT.bits().cast_signed();
    File::options().read(true).write(true).custom_flags(flags).open(path).expect("O_DIRECT")
}

/// Returns the requests a second of all threads together: `depth` threads on each file, each
/// waiting for its answer. Requests before all of them run are not counted.
fn rate(files: &[PathBuf], depth: usize, ask: impl Fn(&File, u64) + Sync) -> f64 {
    let begin_s = 0.2;
    let end_s = 1.4;
    let begun = Instant::now();
    let one = |path: &Path, lane: u64| {
        let file = direct(path);
        let mut first = None;
        let mut last = 0.0;
        let mut counted = 0_u32;
        for at in 0.. {
            ask(&file, lane * 7919 + at);
            let now = begun.elapsed().as_secs_f64();
            if now > end_s {
                break;
            }
            if now > begin_s {
                first.get_or_insert(now);
                last = now;
                counted += 1;
            }
        }
        first.map_or(0.0, |first| f64::from(counted.saturating_sub(1)) / (last - first))
    };
    thread::scope(|scope| {
        let one = &one;
        let lanes = files.iter().flat_map(|file| (0..depth as u64).map(move |lane| (file, lane)));
        let lanes: Vec<_> =
            lanes.map(|(file, lane)| scope.spawn(move || one(file, lane))).collect();
        lanes.into_iter().map(|lane| lane.join().expect("a rate")).sum()
    })
}

/// A machine that is busy with something else can only be too slow: that is tried again.
fn is_rate(what: &str, expected: f64, measure: impl Fn() -> f64) {
    let mut found = Vec::new();
    for _ in 0..5 {
        let rate = measure();
        assert!(rate < 1.05 * expected, "{what}: {rate} is more than {expected}");
        if rate > 0.95 * expected {
            return;
        }
        found.push(rate);
    }
    panic!("{what}: {found:?} instead of {expected}");
}

/// Place of the next request: nowhere near the one before it.
fn place(at: u64, bytes: usize) -> u64 {
    let blocks = (64 * MIB / bytes) as u64;
    at * 77 % blocks * bytes as u64
}

fn read(bytes: usize) -> impl Fn(&File, u64) + Sync {
    move |file, at| {
        file.read_exact_at(&mut vec![0; bytes], place(at, bytes)).expect("read");
    }
}

fn write(bytes: usize) -> impl Fn(&File, u64) + Sync {
    let data = vec![7; bytes];
    move |file, at| {
        file.write_all_at(&data, place(at, data.len())).expect("written");
    }
}

#[test]
fn a_disk_moves_so_many_bytes_a_second_and_no_more() {
    let disk = Rate { bytes_s: Some(20e6), iops: Some(1e6) };
    let Some(stand) = stand(1, Limits { disk, host: Rate::default() }) else { return };
    let of = 20e6 / (128 << 10) as f64;
    is_rate("writes", of, || rate(&stand.paths, 1, write(128 << 10)));
    is_rate("reads", of, || rate(&stand.paths, 4, read(128 << 10)));
}

#[test]
fn a_disk_serves_so_many_requests_a_second_and_no_more() {
    let disk = Rate { bytes_s: Some(20e6), iops: Some(200.0) };
    let Some(stand) = stand(1, Limits { disk, host: Rate::default() }) else { return };
    is_rate("one read at a time", 200.0, || rate(&stand.paths, 1, read(4096)));
    is_rate("eight reads at a time", 200.0, || rate(&stand.paths, 8, read(4096)));
    is_rate("eight writes at a time", 200.0, || rate(&stand.paths, 8, write(4096)));
    let in_order = |file: &File, at| {
        file.read_exact_at(&mut [0; 64 << 10], at % 1024 * (64 << 10)).expect("read");
    };
    is_rate("in order", 20e6 / (64 << 10) as f64, || rate(&stand.paths, 1, in_order));
}

#[test]
fn disks_share_what_their_host_moves() {
    let of = |mb_s: f64, iops| Rate { bytes_s: Some(mb_s * 1e6), iops: Some(iops) };
    let limits = Limits { disk: of(20.0, 200.0), host: of(30.0, 300.0) };
    let Some(stand) = stand(2, limits) else { return };
    let block = 256 << 10;
    let one = &stand.paths[..1];
    is_rate("one", 20e6 / block as f64, || rate(one, 2, write(block)));
    is_rate("one, long requests", 20e6 / MIB as f64, || rate(one, 2, write(MIB)));
    is_rate("both", 30e6 / block as f64, || rate(&stand.paths, 2, write(block)));
    is_rate("both, small", 300.0, || rate(&stand.paths, 4, read(4096)));
}

#[test]
fn what_is_written_lies_below_and_nothing_stays_mounted() {
    let Some(stand) = stand(2, Limits::default()) else { return };
    let Stand { paths, guards, files, directory } = stand;
    let file = direct(&paths[1]);
    file.write_all_at(&[5; 4096], 8192).expect("written");
    file.sync_all().expect("flushed");
    let below = fs::read(&files[1]).expect("the file below");
    assert!(below.len() == 64 * MIB && below[8192..12288] == [5; 4096] && below[12288] == 0);
    file.write_all_at(&[5; 4096], 64 << 20).expect_err("there is no more room");
    drop(file);
    let mount = paths[0].parent().expect("a directory").to_owned();
    drop(guards);
    let until = Instant::now() + Duration::from_secs(10);
    while mount.exists() {
        assert!(Instant::now() < until, "{} is still there", mount.display());
        thread::yield_now();
    }
    assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 2);
}
