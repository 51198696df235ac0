//! Published figures: "RAID 1 on Debian etch", two disks of 80 GB, `dd` on ext3; and the lines of
//! `/proc/mdstat` from the same page.

use super::case::{Flow, State, StateCase};

/// The sizes, in 10^6 bytes. Nothing was written with the first.
pub(super) const SIZES_MB: [u64; 8] = [2, 4, 16, 64, 256, 512, 1024, 2048];

/// Written with `oflag=sync`, in MB/s; states as [`State::ALL`], and the member on its own.
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

/// Written without `oflag=sync`.
const CACHED: [f64; 7] = [318.0, 313.0, 315.0, 291.0, 264.0, 30.1, 28.9];

/// Speeds of a recovery without, with and after a `dd`, in KiB/s.
const RECOVERY_KIB_S: [f64; 3] = [34_240.0, 4306.0, 26_031.0];
/// Share of its speed on its own.
pub(super) const RECOVERY_IN_USE: f64 = RECOVERY_KIB_S[1] / RECOVERY_KIB_S[0];
/// Share of its speed on its own.
pub(super) const RECOVERY_AFTER: f64 = RECOVERY_KIB_S[2] / RECOVERY_KIB_S[0];
/// Share that a `dd` keeps of its speed while the array recovers, at the least, from 64 MB on.
pub(super) const USE_KEPT: f64 = 0.95;
/// The share of a core that a `dd` of 2048 MB used while it wrote to an array in sync.
pub(super) const WRITE_CORES: f64 = 0.104;

/// MB/s of a mirror in a state or of a member of it.
pub(super) fn mb_s(case: StateCase, flow: Flow, mb: u64) -> Option<f64> {
    let row = match case {
        StateCase::Array { level, state } if level.number == 1 => {
            State::ALL.iter().position(|one| *one == state)?
        }
        StateCase::Alone => 3,
        _ => return None,
    };
    let column = SIZES_MB.iter().position(|size| *size == mb)?;
    match flow {
        Flow::Write => WRITE[row].get(column.checked_sub(1)?).copied(),
        Flow::Read => READ[row].get(column).copied(),
    }
}

/// MB/s to the page cache.
pub(super) fn cached_mb_s(mb: u64) -> Option<f64> {
    let column = SIZES_MB.iter().position(|size| *size == mb)?;
    CACHED.get(column.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::super::case::StateLevel;
    use super::*;

    /// Ratios that their author could have worked out.
    #[test]
    fn the_ratios_are_the_ones_known() {
        let level = StateLevel::ALL[0];
        let ratio = |state, flow, mb| {
            let array = mb_s(StateCase::Array { level, state }, flow, mb)?;
            Some((array / mb_s(StateCase::Alone, flow, mb)? * 100.0).round() as u32)
        };
        let row = |state, flow| SIZES_MB.map(|mb| ratio(state, flow, mb).unwrap_or(0));
        let write = Flow::Write;
        let read = Flow::Read;
        assert_eq!(row(State::InSync, write), [0, 77, 94, 100, 101, 101, 100, 97]);
        assert_eq!(row(State::Degraded, write), [0, 110, 103, 106, 103, 102, 100, 98]);
        assert_eq!(row(State::Recovering, write), [0, 105, 99, 102, 98, 99, 99, 95]);
        assert_eq!(row(State::InSync, read), [74, 67, 89, 97, 102, 100, 100, 99]);
        assert_eq!(row(State::Degraded, read), [100, 76, 91, 103, 105, 105, 102, 102]);
        assert_eq!(row(State::Recovering, read), [68, 109, 95, 94, 100, 95, 92, 97]);
        assert!((RECOVERY_IN_USE - 0.13).abs() < 0.005 && (RECOVERY_AFTER - 0.76).abs() < 0.005);
        assert_eq!((cached_mb_s(2), cached_mb_s(1024)), (None, Some(30.1)));
    }
}
