//! What was answered of what changed the array, and how much of that is durable, [`Answered`].

/// Requests that changed something and were answered. When nodes have lost their memories, those
/// may be gone that no flush had made durable. Flushes say so then, until one has that came after
/// all of these.
#[derive(Debug, Default)]
pub(super) struct Answered {
    count: u64,
    /// So many of them, the first, are durable.
    durable: u64,
    /// Of so many, the first, some may be gone.
    gone: Option<u64>,
}

impl Answered {
    /// How many there are so far.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// One more is answered.
    pub(super) const fn add(&mut self) {
        self.count += 1;
    }

    /// A flush is answered that the client took after so many.
    pub(super) fn flushed(&mut self, count: u64) {
        self.durable = self.durable.max(count);
    }

    /// What is not durable may be gone.
    pub(super) fn forget_memory(&mut self) {
        if self.count > self.durable {
            self.gone = Some(self.count);
        }
    }

    /// A flush comes that is to fail, as something may be gone: it came after so many. Whoever
    /// hears of it knows that all before may be gone, and nothing of what was answered while it was
    /// under way.
    pub(super) fn tell_of_loss(&mut self, before: u64) -> bool {
        let tells = self.gone.is_some();
        if tells {
            self.flushed(before);
            self.gone.take_if(|gone| *gone <= before);
        }
        tells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(count: u64) -> Answered {
        Answered { count, ..Answered::default() }
    }

    #[test]
    fn flushes_tell_of_a_loss_until_one_has_that_came_after_it() {
        let mut answered = answered(5);
        answered.flushed(3);
        assert!(!answered.tell_of_loss(5), "nothing is gone");
        answered.forget_memory();
        answered.add();
        assert!(answered.tell_of_loss(4), "it came before the last that may be gone");
        assert!(answered.tell_of_loss(6));
        assert!(!answered.tell_of_loss(6), "it was said");
    }

    #[test]
    fn what_is_durable_is_not_gone() {
        let mut answered = answered(5);
        answered.flushed(5);
        answered.forget_memory();
        assert!(!answered.tell_of_loss(5));
    }
}
