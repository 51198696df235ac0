//! Members that answer at once, and how much of their I/O the engine's thread does itself.

use crate::lock::LockedFile;

/// I/O of more bytes is long. Some of that is done at once, too, but much of it together is given
/// to the driver, all of it: moved by several processors it takes less time than moved by one.
const SHORT_BYTES: u32 = 16 << 10;
/// Limit up to which long I/O together does not count as many.
const TOGETHER_BYTES: u64 = 512 << 10;
/// Bytes that the engine's thread moves in one turn; more than that goes to the driver.
const TURN_BYTES: u64 = 16 << 20;
/// Cost of a call besides the bytes it moves, as a number of bytes moved.
const CALL_BYTES: u64 = 4 << 10;

const TMPFS: u32 = 0x0102_1994;

/// Returns whether the file lies entirely in memory. I/O on it then waits for no device, but
/// io_uring would hand each one to a thread of the kernel, and waking that up takes longer than
/// moving a few strips. A page of the file may be swapped out, as may any page of the arena.
pub(super) fn answers_at_once(file: &LockedFile) -> bool {
    file.file_system() == Some(TMPFS)
}

/// Way in which an I/O is done at once.
#[derive(Clone, Copy, Debug)]
pub(super) enum AtOnce {
    /// By a copy. Waking up another processor for a part of it takes as long as copying half a MiB,
    /// and the kernel moves it at a higher price. So the driver, which has so many bytes already,
    /// gets half of the long I/O only when the engine's thread has more to do than a request or
    /// two.
    Copy { busy: bool, given_bytes: u64 },
    /// By a call, while long I/O makes up so many bytes together: those of the driver and those to
    /// be begun.
    Call { long_bytes: u64 },
}

/// Bytes that the engine's thread may still move itself in this turn. The limit keeps new requests
/// and due answers from waiting long, whatever the machine does next.
#[derive(Debug)]
pub(super) struct Budget {
    left_bytes: u64,
    /// Bytes of long I/O copied in this turn.
    copied_bytes: u64,
    /// Bytes of long I/O that are done at once when they come together.
    together_bytes: u64,
}

impl Budget {
    /// Creates the budget for a machine with so many processors.
    pub(super) const fn new(processors: usize) -> Self {
        let together_bytes = if processors > 1 { TOGETHER_BYTES } else { u64::MAX };
        Self { left_bytes: TURN_BYTES, copied_bytes: 0, together_bytes }
    }

    /// A turn begins.
    pub(super) const fn renew(&mut self) {
        self.left_bytes = TURN_BYTES;
        self.copied_bytes = 0;
    }

    /// Returns whether so many bytes of long I/O together are more than a request or two.
    pub(super) const fn is_much(&self, long_bytes: u64) -> bool {
        long_bytes > self.together_bytes.saturating_mul(4)
    }

    /// Returns whether this I/O is done at once, and if so takes it out of the budget.
    pub(super) fn take(&mut self, bytes: u32, way: AtOnce) -> bool {
        let cost = u64::from(bytes) + CALL_BYTES;
        let many = match way {
            AtOnce::Copy { busy, given_bytes } => {
                let shared = busy && self.together_bytes < u64::MAX;
                shared && is_long(bytes) && given_bytes <= self.copied_bytes
            }
            AtOnce::Call { long_bytes } => is_long(bytes) && long_bytes > self.together_bytes,
        };
        if many || self.left_bytes < cost {
            return false;
        }
        self.left_bytes -= cost;
        if is_long(bytes) {
            self.copied_bytes += u64::from(bytes);
        }
        true
    }
}

/// Returns whether an I/O of this length counts as long.
pub(super) const fn is_long(bytes: u32) -> bool {
    bytes > SHORT_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: AtOnce = AtOnce::Call { long_bytes: TOGETHER_BYTES + 1 };
    const FEW: AtOnce = AtOnce::Call { long_bytes: TOGETHER_BYTES };

    #[test]
    fn a_turn_moves_what_is_short_until_its_budget_is_used_up() {
        let mut budget = Budget::new(2);
        let count = (0..).take_while(|_| budget.take(4096, MANY)).count();
        assert_eq!(count as u64, TURN_BYTES / (4096 + CALL_BYTES));
        assert!(!budget.take(4096, FEW), "nothing is left");
        budget.renew();
        assert!(budget.take(SHORT_BYTES, MANY));
    }

    #[test]
    fn long_ones_are_given_away_when_they_are_many_and_another_processor_is_there() {
        for (processors, given_away) in [(1, false), (2, true)] {
            let mut budget = Budget::new(processors);
            assert!(budget.take(SHORT_BYTES + 1, FEW));
            assert_ne!(budget.take(SHORT_BYTES + 1, MANY), given_away);
            assert!(budget.take(SHORT_BYTES, MANY), "a short one among them");
        }
    }

    #[test]
    fn copies_are_made_at_once_and_half_of_them_given_away_when_there_is_more_to_do() {
        const MIB: u32 = 1 << 20;
        let few = AtOnce::Copy { busy: false, given_bytes: 0 };
        let mut budget = Budget::new(2);
        let all = (0..100).take_while(|_| budget.take(MIB, few)).count();
        assert_eq!(all as u64, TURN_BYTES / (u64::from(MIB) + CALL_BYTES), "within the budget");
        for (processors, expected) in [(1, 0), (2, 4)] {
            let mut budget = Budget::new(processors);
            let mut given_bytes = 0;
            for _ in 0..8 {
                if !budget.take(MIB, AtOnce::Copy { busy: true, given_bytes }) {
                    given_bytes += u64::from(MIB);
                }
            }
            assert_eq!(given_bytes, expected * u64::from(MIB), "{processors}");
            assert!(budget.take(SHORT_BYTES, AtOnce::Copy { busy: true, given_bytes: 0 }));
        }
        let budget = Budget::new(2);
        assert!(!budget.is_much(TOGETHER_BYTES * 4) && budget.is_much(TOGETHER_BYTES * 4 + 1));
    }
}
