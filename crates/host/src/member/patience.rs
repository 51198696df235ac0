//! Patience with a locked file: the holder cannot be seen, or is udev.

use std::time::{Duration, Instant};

use crate::users::Process;

/// Time for which a killed process may keep its files, while the kernel ends its I/O.
const LAST_IO: Duration = Duration::from_secs(3);

/// Time for which udev may look at a device that has just appeared, or that a process has closed;
/// the device is locked meanwhile (<https://systemd.io/BLOCK_DEVICE_LOCKING>). After that time udev
/// ends its own process (`--event-timeout`, systemd-udevd.service(8)).
const UDEV_LOOKS: Duration = Duration::from_secs(180);
/// Names of udev's processes.
const UDEV: [&str; 2] = ["(udev-worker)", "systemd-udevd"];

/// A wait for a lock.
#[derive(Debug)]
pub(super) struct LockWait {
    began: Instant,
    /// Time since which no holder was seen. However long udev had the lock, the wait begins anew,
    /// as it may have gone at that moment.
    nobody_since: Option<Instant>,
}

impl LockWait {
    pub(super) const fn new(began: Instant) -> Self {
        Self { began, nobody_since: None }
    }

    /// Returns whether waiting longer for these holders of the lock is in vain.
    pub(super) fn is_over(&mut self, now: Instant, holders: &[Process]) -> bool {
        if holders.is_empty() {
            return now - *self.nobody_since.get_or_insert(now) > LAST_IO;
        }
        self.nobody_since = None;
        !holders.iter().all(is_udev) || now - self.began > UDEV_LOOKS
    }
}

fn is_udev(holder: &Process) -> bool {
    holder.program.as_deref().is_some_and(|program| UDEV.contains(&program))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(program: &str) -> [Process; 1] {
        [Process { pid: 7, program: Some(program.to_owned()) }]
    }

    #[test]
    fn who_has_gone_after_udev_was_waited_for_is_not_waited_for_in_vain() {
        let began = Instant::now();
        let at = |seconds| began + Duration::from_secs(seconds);
        let mut patience = LockWait::new(began);
        assert!(!patience.is_over(at(0), &called(UDEV[0])));
        assert!(!patience.is_over(at(10), &called(UDEV[1])));
        // It is gone, and the lock free.
        assert!(!patience.is_over(at(11), &[]));
        assert!(patience.is_over(at(15), &[]));
    }

    #[test]
    fn others_are_not_waited_for_and_udev_not_for_ever() {
        let began = Instant::now();
        assert!(LockWait::new(began).is_over(began, &called("braid")));
        let late = began + UDEV_LOOKS + Duration::from_secs(1);
        assert!(LockWait::new(began).is_over(late, &called(UDEV[0])));
    }
}
