//! Policy of looking for completions before going to sleep.

use std::time::Duration;

/// Duration of a look.
const LOOK: Duration = Duration::from_micros(100);
/// A sleep of at most this length, waking up included, counts as short: a look of about `LOOK`
/// would have found the completion.
const SHORT: Duration = Duration::from_micros(200);
/// Number of short sleeps in a row after which looking begins.
const SHORT_SLEEPS: u32 = 8;
/// The same number after looking has been in vain again and again.
const MOST_SHORT_SLEEPS: u32 = 4096;
/// Limit on vain looks at which looking ends. Each vain look counts 2, each successful one takes 1
/// off.
const MOST_VAIN: u32 = 8;

/// Policy of waiting for completions. A sleeping processor takes some ten microseconds to wake up,
/// often longer than the completion takes. So the thread looks for completions instead while that
/// pays off: looking begins after a row of short sleeps, and ends when more than a third of the
/// looks find nothing; an idle thread sleeps. With one processor the thread always sleeps, as
/// nothing else could run meanwhile.
#[derive(Debug)]
pub(super) struct WaitPolicy {
    state: WaitState,
    /// Number of short sleeps in a row after which looking begins.
    needed: u32,
}

#[derive(Debug)]
enum WaitState {
    Never,
    Sleeps { short: u32 },
    Looks { vain: u32 },
}

impl WaitPolicy {
    /// Creates the policy for a machine with so many processors.
    pub(super) const fn new(processors: usize) -> Self {
        let state = if processors > 1 { WaitState::Sleeps { short: 0 } } else { WaitState::Never };
        Self { state, needed: SHORT_SLEEPS }
    }

    /// Returns the duration to look before the next sleep, if at all.
    pub(super) const fn look(&self) -> Option<Duration> {
        match self.state {
            WaitState::Looks { .. } => Some(LOOK),
            WaitState::Never | WaitState::Sleeps { .. } => None,
        }
    }

    /// Notes the result of a look: whether a completion came.
    pub(super) fn looked(&mut self, came: bool) {
        let WaitState::Looks { vain } = &mut self.state else { return };
        if came {
            *vain = vain.saturating_sub(1);
            self.needed = SHORT_SLEEPS;
            return;
        }
        *vain += 2;
        if *vain >= MOST_VAIN {
            self.needed = (self.needed * 2).min(MOST_SHORT_SLEEPS);
            self.state = WaitState::Sleeps { short: 0 };
        }
    }

    /// Notes the duration of a sleep.
    pub(super) fn slept(&mut self, time: Duration) {
        let WaitState::Sleeps { short } = &mut self.state else { return };
        *short = if time <= SHORT { *short + 1 } else { 0 };
        if *short >= self.needed {
            self.state = WaitState::Looks { vain: 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After how many short sleeps it looks.
    fn sleeps_until_it_looks(patience: &mut WaitPolicy) -> u32 {
        let mut sleeps = 0;
        while patience.look().is_none() {
            patience.slept(SHORT);
            sleeps += 1;
            assert!(sleeps <= MOST_SHORT_SLEEPS, "it never looks");
        }
        sleeps
    }

    fn look_in_vain(patience: &mut WaitPolicy) {
        for _ in 0..MOST_VAIN / 2 {
            assert_eq!(patience.look(), Some(LOOK));
            patience.looked(false);
        }
        assert_eq!(patience.look(), None);
    }

    #[test]
    fn it_looks_while_waits_are_short() {
        let mut patience = WaitPolicy::new(2);
        for _ in 0..100 {
            patience.slept(SHORT);
            patience.slept(SHORT * 2);
        }
        assert_eq!(patience.look(), None, "short ones in a row are asked for");
        assert_eq!(sleeps_until_it_looks(&mut patience), SHORT_SLEEPS);
        for _ in 0..10 {
            for came in [false, true, true] {
                assert_eq!(patience.look(), Some(LOOK));
                patience.looked(came);
                patience.slept(SHORT * 2);
            }
        }
        // Half of them are too few.
        let half = (0..100).take_while(|number| {
            patience.looked(number % 2 == 0);
            patience.look().is_some()
        });
        assert!(half.count() < 20);
    }

    #[test]
    fn looks_in_vain_make_it_slow_to_look_again_until_one_is_not() {
        let mut patience = WaitPolicy::new(2);
        for times in [1, 2, 4] {
            assert_eq!(sleeps_until_it_looks(&mut patience), SHORT_SLEEPS * times);
            look_in_vain(&mut patience);
        }
        for _ in 0..20 {
            sleeps_until_it_looks(&mut patience);
            look_in_vain(&mut patience);
        }
        assert_eq!(sleeps_until_it_looks(&mut patience), MOST_SHORT_SLEEPS);
        patience.looked(true);
        look_in_vain(&mut patience);
        assert_eq!(sleeps_until_it_looks(&mut patience), SHORT_SLEEPS * 2);
    }

    #[test]
    fn with_one_processor_it_never_looks() {
        let mut patience = WaitPolicy::new(1);
        for _ in 0..2 * MOST_SHORT_SLEEPS {
            patience.slept(Duration::ZERO);
        }
        assert_eq!(patience.look(), None);
    }
}
