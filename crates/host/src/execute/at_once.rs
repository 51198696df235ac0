//! Members that answer at once, and how much of their I/O the engine's thread does itself.

use super::member::file_system;
use crate::lock::LockedFile;

/// I/O of more bytes is long. Some of that is done at once, too, but much of it together is given
/// to the driver, all of it: moved by several processors it takes less time than moved by one.
const SHORT_BYTES: u32 = 16 << 10;
/// So much of long I/O together is not many.
const TOGETHER_BYTES: u64 = 512 << 10;
/// What is only copied, the driver moves at a higher price than the engine's thread. With so much
/// of it, another processor has something to do; the thread does the rest itself.
const GIVEN_BYTES: u64 = 256 << 10;
/// What the engine's thread moves in one turn; what goes beyond is given to the driver.
const TURN_BYTES: u64 = 16 << 20;
/// What a call costs besides the bytes it moves, in bytes moved.
const CALL_BYTES: u64 = 4 << 10;

const TMPFS: u32 = 0x0102_1994;

/// Is all of this file in memory? Then no I/O on it waits for a device, and io_uring has a thread
/// of the kernel's carry each out: to wake that one up takes longer than to move a few strips. A
/// page of it may have been swapped out, as one of the arena may that any turn touches.
pub(super) fn answers_at_once(file: &LockedFile) -> bool {
    file_system(file) == Some(TMPFS)
}

/// The long I/O of the moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Long {
    /// What the driver has of it and what is to be begun.
    pub(super) all_bytes: u64,
    /// What the driver has.
    pub(super) given_bytes: u64,
    /// For the engine's thread, the one that is to be begun is only a copy.
    pub(super) copied: bool,
}

/// What the engine's thread may still move itself in this turn, so that neither what came in
/// meanwhile nor answers that are due wait for long, whatever the machine goes on with.
#[derive(Debug)]
pub(super) struct Budget {
    left_bytes: u64,
    /// How much of long I/O is done at once when it comes together.
    together_bytes: u64,
}

impl Budget {
    /// For a machine with so many processors.
    pub(super) const fn new(processors: usize) -> Self {
        let together_bytes = if processors > 1 { TOGETHER_BYTES } else { u64::MAX };
        Self { left_bytes: TURN_BYTES, together_bytes }
    }

    /// A turn begins.
    pub(super) const fn renew(&mut self) {
        self.left_bytes = TURN_BYTES;
    }

    /// Is this I/O done at once? If so it is taken out of the budget.
    pub(super) fn take(&mut self, bytes: u32, long: Long) -> bool {
        let cost = u64::from(bytes) + CALL_BYTES;
        let many = is_long(bytes) && long.all_bytes > self.together_bytes;
        let another_works = long.copied && long.given_bytes >= GIVEN_BYTES;
        if many && !another_works || self.left_bytes < cost {
            return false;
        }
        self.left_bytes -= cost;
        true
    }
}

/// Does an I/O of this length count as long?
pub(super) const fn is_long(bytes: u32) -> bool {
    bytes > SHORT_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: Long =
        Long { all_bytes: TOGETHER_BYTES + 1, given_bytes: GIVEN_BYTES, copied: false };

    #[test]
    fn a_turn_moves_what_is_short_until_its_budget_is_used_up() {
        let mut budget = Budget::new(2);
        let count = (0..).take_while(|_| budget.take(4096, MANY)).count();
        assert_eq!(count as u64, TURN_BYTES / (4096 + CALL_BYTES));
        assert!(!budget.take(4096, Long::default()), "nothing is left");
        budget.renew();
        assert!(budget.take(SHORT_BYTES, MANY));
    }

    #[test]
    fn long_ones_are_given_away_when_they_are_many_and_another_processor_is_there() {
        for (processors, given_away) in [(1, false), (2, true)] {
            let mut budget = Budget::new(processors);
            assert!(budget.take(SHORT_BYTES + 1, Long { all_bytes: TOGETHER_BYTES, ..MANY }));
            assert_ne!(budget.take(SHORT_BYTES + 1, MANY), given_away);
            assert!(budget.take(SHORT_BYTES, MANY), "a short one among them");
        }
    }

    #[test]
    fn of_copies_the_driver_gets_what_keeps_another_processor_busy() {
        let mut budget = Budget::new(2);
        let copied = Long { copied: true, ..MANY };
        assert!(!budget.take(SHORT_BYTES + 1, Long { given_bytes: GIVEN_BYTES - 1, ..copied }));
        assert!(budget.take(SHORT_BYTES + 1, copied));
    }
}
