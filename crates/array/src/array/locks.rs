//! Locks on ranges of sync space. An operation that must see or leave redundancy consistent holds
//! the range it touches; ranges that overlap are served in the order in which they came.

use std::collections::VecDeque;

/// The holder of a range, or a job that waits for it: an index into the table of jobs.
pub(crate) type Holder = usize;

#[derive(Clone, Copy, Debug)]
struct LockEntry {
    start: u64,
    end: u64,
    holder: Holder,
    granted: bool,
}

/// All ranges held or waited for, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    entries: VecDeque<LockEntry>,
}

impl Locks {
    /// Asks for `[start, end)`. True: granted now. False: [`Locks::release`] will name the holder.
    pub(crate) fn request(&mut self, start: u64, end: u64, holder: Holder) -> bool {
        let granted = !self.entries.iter().any(|held| held.start < end && start < held.end);
        self.entries.push_back(LockEntry { start, end, holder, granted });
        granted
    }

    /// Gives back what `holder` has; those granted by that are added to `granted`.
    pub(crate) fn release(&mut self, holder: Holder, granted: &mut Vec<Holder>) {
        let at = self.entries.iter().position(|held| held.holder == holder);
        let gone = self.entries.remove(at.expect("only holders release")).expect("just found");
        for index in at.unwrap_or(0)..self.entries.len() {
            let entry = self.entries[index];
            let touched = entry.start < gone.end && gone.start < entry.end;
            if entry.granted || !touched {
                continue;
            }
            let before = self.entries.iter().take(index);
            let free = !before.into_iter().any(|e| e.start < entry.end && entry.start < e.end);
            if free {
                self.entries[index].granted = true;
                granted.push(entry.holder);
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The range that a holder has asked for, and whether it was granted.
    pub(crate) fn held_by(&self, holder: Holder) -> Option<((u64, u64), bool)> {
        let entry = self.entries.iter().find(|entry| entry.holder == holder)?;
        Some(((entry.start, entry.end), entry.granted))
    }

    /// A range is granted when no older one overlaps it, and only then.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (index, entry) in self.entries.iter().enumerate() {
            let mut before = self.entries.iter().take(index);
            let free = !before.any(|e| e.start < entry.end && entry.start < e.end);
            if free != entry.granted {
                return Err(format!("the lock of job {} is free: {free}", entry.holder));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_ranges_are_served_in_order() {
        let mut locks = Locks::default();
        let mut granted = Vec::new();
        assert!(locks.request(0, 10, 1));
        assert!(!locks.request(5, 20, 2));
        assert!(!locks.request(15, 16, 3), "waits behind the waiting 2");
        assert!(locks.request(20, 30, 4));
        locks.release(1, &mut granted);
        assert_eq!(granted, [2]);
        granted.clear();
        locks.release(2, &mut granted);
        assert_eq!(granted, [3]);
        granted.clear();
        locks.release(4, &mut granted);
        locks.release(3, &mut granted);
        assert!(granted.is_empty() && locks.len() == 0);
    }
}
