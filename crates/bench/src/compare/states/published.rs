//! Published figures: "RAID 1 on Debian etch", two disks of 80 GB, `dd` on ext3; and the lines of
//! `/proc/mdstat` from the same page.

use super::case::{Flow, StateCase, Task, mirror};

/// The sizes, in 10^6 bytes. Nothing was written with the first.
pub(super) const SIZES_MB: [u64; 8] = [2, 4, 16, 64, 256, 512, 1024, 2048];

/// Written with `oflag=sync`, in MB/s; cases as [`mirror`] has them.
const WRITE: [[f64; 7]; 4] = [
    [12.1, 23.0, 25.5, 26.2, 27.1, 27.7, 27.2],
    [17.2, 25.2, 26.8, 26.8, 27.4, 27.7, 27.4],
    [16.5, 24.2, 25.8, 25.6, 26.7, 27.4, 26.6],
    [15.7, 24.5, 25.4, 26.0, 26.9, 27.7, 28.1],
];

/// Read after the file system was mounted anew.
const READ: [[f64; 8]; 4] = [
    [34.2, 31.6, 45.0, 50.2, 49.5, 50.9, 51.2, 42.4],
    [46.0, 35.8, 45.8, 53.1, 51.0, 53.5, 52.1, 43.5],
    [31.5, 51.1, 48.1, 48.3, 48.6, 48.8, 47.4, 41.7],
    [46.2, 47.0, 50.5, 51.6, 48.5, 51.1, 51.3, 42.8],
];

/// Written without `oflag=sync` to a mirror in sync.
const CACHED: [f64; 7] = [318.0, 313.0, 315.0, 291.0, 264.0, 30.1, 28.9];

/// Speeds of a recovery without, with and after a `dd`, in KiB/s.
const RECOVERY_KIB_S: [f64; 3] = [34_240.0, 4306.0, 26_031.0];
/// Shares of its speed on its own.
pub(super) const RECOVERY_IN_USE: f64 = RECOVERY_KIB_S[1] / RECOVERY_KIB_S[0];
pub(super) const RECOVERY_AFTER: f64 = RECOVERY_KIB_S[2] / RECOVERY_KIB_S[0];
/// Share that a `dd` keeps of its speed while the array recovers, at the least, from 64 MB on.
pub(super) const USE_KEPT: f64 = 0.95;
/// The share of a core that a `dd` of 2048 MB used while it wrote to an array in sync.
pub(super) const WRITE_CORES: f64 = 0.104;

/// MB/s of a mirror in a state or of a member of it.
pub(super) fn mb_s(case: StateCase, task: Task) -> Option<f64> {
    let row = mirror().iter().position(|(one, _)| *one == case)?;
    let column = |mb: u64| SIZES_MB.iter().position(|size| *size == mb);
    match task {
        Task::Sized(Flow::Read, mb) => READ[row].get(column(mb)?).copied(),
        Task::Sized(Flow::Write, mb) => WRITE[row].get(column(mb)?.checked_sub(1)?).copied(),
        Task::Cached(mb) if row == 0 => CACHED.get(column(mb)?.checked_sub(1)?).copied(),
        _ => None,
    }
}

/// Published ratio to a member on its own.
pub(super) fn ratio(case: StateCase, task: Task) -> Option<f64> {
    Some(mb_s(case, task)? / mb_s(StateCase::Alone, task)?)
}
