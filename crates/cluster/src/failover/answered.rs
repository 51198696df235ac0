//! Answered requests that changed the array, and the part of them that is durable, [`Answered`].

/// Requests that changed the array and were answered. When nodes have lost their memories, requests
/// that no flush had made durable may be gone. Flushes then fail, until one has failed that came
/// after all of these.
#[derive(Debug, Default)]
pub(super) struct Answered {
    count: u64,
    /// The number of first requests that are durable.
    durable: u64,
    /// The number of first requests some of which may be gone.
    gone: Option<u64>,
}

impl Answered {
    /// Returns the number of requests so far.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// Adds an answered request.
    pub(super) const fn add(&mut self) {
        self.count += 1;
    }

    /// Notes an answered flush that the client took after this many requests.
    pub(super) fn flushed(&mut self, count: u64) {
        self.durable = self.durable.max(count);
    }

    /// Notes that requests which are not durable may be gone.
    pub(super) fn forget_memory(&mut self) {
        if self.count > self.durable {
            self.gone = Some(self.count);
        }
    }

    /// Returns whether a flush is to fail, as requests may be gone; the flush came after `before`
    /// requests. Its failure reports a possible loss of all requests before it, and of none
    /// answered while it was under way.
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
