//! Latency of the nodes' answers, and detection of slow nodes. A write waits for the slowest node
//! that has a part in it, so operators want to know which one that is.
//!
//! Only operations of a single node are timed: reads, stores of prepared content, flushes,
//! metadata. The time of preparing would tell nothing, as nodes wait for one another there.

use std::collections::{BTreeMap, VecDeque};

use braid_array::events::ArrayEvent;
use braid_array::figures::{IoFigures, MemberFigures, OperationKind};
use braid_array::status::Status;
use braid_array::{Instant, MemberId, Role};

use crate::ids::{Position, Slot};

/// Number of latest answers that count.
const ANSWERS: usize = 16;
/// Least number of answers for a conclusion.
const FEWEST: usize = 5;
/// A node is slow from when it takes this many times longer than the others, and longer than the
/// limit below, until it takes half of either.
const TIMES: u64 = 4;
const LEAST_MICROS: u64 = 50_000;
/// Time between two comparisons.
const PERIOD_MILLIS: u64 = 100;

/// Operation of a single node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TimedOperation {
    /// Read into a slot.
    Read(Slot),
    /// Store the slice-set at a position.
    Store(Position),
    /// A flush or metadata: the tag.
    Request(u32),
}

/// Completed or failed operation of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Done {
    /// The member on the node.
    pub(super) member: Option<MemberId>,
    pub(super) kind: OperationKind,
    pub(super) bytes: u64,
    pub(super) ok: bool,
}

/// Figures of all operations of a role's member.
#[derive(Clone, Debug, Default)]
struct Counted {
    member: Option<MemberId>,
    io: IoFigures,
}

/// The latest answers of a node.
#[derive(Clone, Debug, Default)]
struct Answers {
    micros: VecDeque<u64>,
    slow: bool,
}

impl Answers {
    fn median(&self) -> Option<u64> {
        (self.micros.len() >= FEWEST).then(|| median(self.micros.iter().copied().collect()))
    }
}

fn median(mut all: Vec<u64>) -> u64 {
    let middle = all.len() / 2;
    *all.select_nth_unstable(middle).1
}

/// Latencies of each node's answers: the latest, and figures of all. [`begin`](Self::begin) and
/// [`end`](Self::end) time an operation; [`event`](Self::event) compares the medians, ten times a
/// second at most. A node is slow when its median is 4 times that of the others and above 50 ms.
/// One event reports it. The node stays slow until its median is down to 2 times that of the
/// others, or 25 ms.
#[derive(Debug)]
pub(super) struct LatencyTracker {
    /// Operations under way, by role, with their start.
    asked: BTreeMap<(Role, TimedOperation), Instant>,
    /// By role.
    answers: Vec<Answers>,
    /// By role; the figures of a returning node continue.
    counted: Vec<Counted>,
    next_look: Instant,
}

/// A node that has become slow, with the latencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slow {
    role: Role,
    micros: u64,
    others_micros: u64,
}

impl LatencyTracker {
    pub(super) fn new(nodes: u16) -> Self {
        let answers = vec![Answers::default(); usize::from(nodes)];
        let counted = vec![Counted::default(); usize::from(nodes)];
        Self { asked: BTreeMap::new(), answers, counted, next_look: Instant::default() }
    }

    /// Starts timing an operation.
    pub(super) fn begin(&mut self, role: Role, operation: TimedOperation, now: Instant) {
        self.asked.insert((role, operation), now);
    }

    /// Ends timing an operation; figures count it if `done`.
    pub(super) fn end(
        &mut self,
        role: Role,
        operation: TimedOperation,
        done: Option<Done>,
        now: Instant,
    ) {
        let Some(since) = self.asked.remove(&(role, operation)) else { return };
        if let Some(done) = done {
            let counted = &mut self.counted[role.index()];
            if counted.member != done.member {
                // Another one has the role.
                *counted = Counted { member: done.member, io: IoFigures::default() };
            }
            counted.io.note((done.kind, done.bytes), since, now, done.ok);
        }
        let micros = &mut self.answers[role.index()].micros;
        if micros.len() == ANSWERS {
            micros.pop_front();
        }
        micros.push_back((now.0 - since.0) / 1000);
    }

    /// Forgets the latencies of a node that is gone: they do not predict its later ones.
    pub(super) fn forget(&mut self, role: Role) {
        self.asked.retain(|(asked, _), _| *asked != role);
        self.answers[role.index()] = Answers::default();
    }

    /// Returns the figures of a role's member.
    pub(super) fn figures(&self, role: Role, member: MemberId) -> MemberFigures {
        let counted = &self.counted[role.index()];
        let same = counted.member == Some(member);
        let io = if same { counted.io.clone() } else { IoFigures::default() };
        let in_flight = self.asked.keys().filter(|(asked, _)| *asked == role).count() as u64;
        MemberFigures { member, io: IoFigures { in_flight, ..io } }
    }

    /// Compares the medians. Returns a node that has become slow.
    fn look(&mut self, now: Instant) -> Option<Slow> {
        if now < self.next_look {
            return None;
        }
        self.next_look = now.plus_millis(PERIOD_MILLIS);
        let medians: Vec<Option<u64>> = self.answers.iter().map(Answers::median).collect();
        let mut begins = None;
        for (role, answers) in (0..).map(Role).zip(&mut self.answers) {
            let others = (0..).map(Role).zip(&medians).filter(|(other, _)| *other != role);
            let others: Vec<u64> = others.filter_map(|(_, median)| *median).collect();
            let Some(micros) = medians[role.index()] else { continue };
            if others.is_empty() {
                continue;
            }
            let others_micros = median(others);
            let ease = if answers.slow { 2 } else { 1 };
            let slow = micros * ease > LEAST_MICROS && micros * ease > TIMES * others_micros;
            if slow && !answers.slow {
                begins = Some(Slow { role, micros, others_micros });
            }
            answers.slow = slow;
        }
        begins
    }

    /// Returns the latency of a slow node in milliseconds.
    fn slow_ms(&self, role: Role) -> Option<u64> {
        let answers = self.answers.get(role.index()).filter(|answers| answers.slow)?;
        answers.median().map(|micros| micros / 1000)
    }

    /// Returns an event, once, when a node has become slow; `member` returns its id.
    pub(super) fn event(
        &mut self,
        now: Instant,
        member: impl FnOnce(Role) -> Option<MemberId>,
    ) -> Option<ArrayEvent> {
        let Slow { role, micros, others_micros } = self.look(now)?;
        let ms = micros / 1000;
        let others_ms = others_micros / 1000;
        Some(ArrayEvent::MemberSlow { member: member(role)?, ms, others_ms })
    }

    /// Marks the slow members in a status.
    pub(super) fn mark(&self, status: &mut Status) {
        for member in &mut status.members {
            member.slow_ms = member.role.and_then(|role| self.slow_ms(role));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::default().plus_millis(millis)
    }

    /// Lets each of five nodes answer this many times, each after its time in milliseconds.
    fn answer(tracker: &mut LatencyTracker, times: u64, takes: [u64; 5]) -> Option<Slow> {
        let begin = tracker.next_look;
        let mut begins = None;
        for number in 0..times {
            let asked = begin.plus_millis(number * 1000);
            for (role, millis) in (0..).map(Role).zip(takes) {
                tracker.begin(role, TimedOperation::Store(Position(7)), asked);
                let ended = asked.plus_millis(millis);
                tracker.end(role, TimedOperation::Store(Position(7)), None, ended);
            }
            begins = begins.or(tracker.look(asked.plus_millis(900)));
        }
        begins
    }

    fn named(tracker: &LatencyTracker) -> Vec<(Role, u64)> {
        Role::all(5).filter_map(|role| Some((role, tracker.slow_ms(role)?))).collect()
    }

    #[test]
    fn the_slow_one_is_named_once_and_until_it_keeps_pace() {
        let mut tracker = LatencyTracker::new(5);
        assert_eq!(answer(&mut tracker, 20, [5, 6, 4, 5, 30]), None);
        let slow = answer(&mut tracker, 20, [5, 6, 300, 5, 30]).expect("it is slow");
        assert_eq!((slow.role, slow.micros, slow.others_micros), (Role(2), 300_000, 6000));
        assert_eq!(named(&tracker), [(Role(2), 300)]);
        // Not said again, and not over while it is nearly as slow.
        assert_eq!(answer(&mut tracker, 20, [5, 6, 400, 5, 30]), None);
        assert_eq!(answer(&mut tracker, 20, [5, 6, 40, 5, 30]), None);
        assert_eq!(named(&tracker), [(Role(2), 40)]);
        assert_eq!(answer(&mut tracker, 20, [5, 6, 20, 5, 30]), None);
        assert_eq!(named(&tracker), []);
        assert!(answer(&mut tracker, 20, [5, 6, 300, 5, 30]).is_some());
        tracker.forget(Role(2));
        assert_eq!(named(&tracker), []);
    }

    #[test]
    fn nobody_is_slow_among_the_slow() {
        let mut tracker = LatencyTracker::new(5);
        assert_eq!(answer(&mut tracker, 20, [100, 200, 350, 100, 90]), None);
        assert_eq!(named(&tracker), []);
    }

    #[test]
    fn of_a_few_answers_nothing_is_concluded() {
        let mut tracker = LatencyTracker::new(5);
        assert_eq!(answer(&mut tracker, 4, [5, 900, 5, 5, 5]), None);
        assert!(answer(&mut tracker, 1, [5, 900, 5, 5, 5]).is_some());
    }

    #[test]
    fn what_was_not_asked_is_no_answer() {
        let mut tracker = LatencyTracker::new(2);
        tracker.begin(Role(0), TimedOperation::Read(Slot(3)), at(0));
        tracker.end(Role(0), TimedOperation::Read(Slot(4)), None, at(9));
        tracker.end(Role(1), TimedOperation::Read(Slot(3)), None, at(9));
        assert!(tracker.answers.iter().all(|answers| answers.micros.is_empty()));
        tracker.end(Role(0), TimedOperation::Read(Slot(3)), None, at(9));
        assert_eq!(tracker.answers[0].micros, [9000]);
    }

    #[test]
    fn figures_are_those_of_the_member_that_has_the_role() {
        let mut tracker = LatencyTracker::new(2);
        let mut read = |slot, member, ok| {
            tracker.begin(Role(1), TimedOperation::Read(Slot(slot)), at(0));
            let done =
                Done { member: Some(MemberId(member)), kind: OperationKind::Read, bytes: 512, ok };
            tracker.end(Role(1), TimedOperation::Read(Slot(slot)), Some(done), at(1));
            tracker.begin(Role(1), TimedOperation::Request(9), at(1));
            let figures = tracker.figures(Role(1), MemberId(7));
            tracker.forget(Role(1));
            (figures.io.in_flight, figures.io.read.operations, figures.io.read.errors)
        };
        assert_eq!(read(0, 7, true), (1, 1, 0));
        assert_eq!(read(1, 7, false), (1, 2, 1), "it was lost meanwhile, and has come back");
        assert_eq!(read(2, 8, true), (1, 0, 0), "another one has its role");
        assert_eq!(read(3, 7, true), (1, 1, 0));
        let figures = tracker.figures(Role(1), MemberId(7)).io.read;
        assert_eq!((figures.bytes, figures.total_ns), (512, 1_000_000));
        assert_eq!(tracker.figures(Role(0), MemberId(0)).io, IoFigures::default());
    }
}
