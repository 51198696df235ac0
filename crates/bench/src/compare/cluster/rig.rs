//! Rigs on which measurements are made, and the turns of those that share one.

use super::setting::{LineRate, Raw};
use super::words::{Pattern, WriteSchedule};
use crate::failure::Failure;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MeasurementKind {
    pub(super) pattern: Pattern,
    pub(super) schedule: WriteSchedule,
}

pub(super) trait Rig {
    /// Measures the line, with the nodes idle.
    fn line(&mut self) -> Result<LineRate, Failure>;
    /// Makes one measurement; `line` is that of its round.
    fn measure(&mut self, kind: MeasurementKind, line: LineRate) -> Result<Raw, Failure>;
}

/// A rig whose line is measured at the beginning of every round.
pub(super) struct Turns {
    rig: Box<dyn Rig>,
    line: Option<LineRate>,
    /// Kinds that this round has measured.
    done: Vec<MeasurementKind>,
}

impl Turns {
    pub(super) fn of(rig: Box<dyn Rig>) -> Self {
        Self { rig, line: None, done: Vec::new() }
    }

    pub(super) fn measure(&mut self, kind: MeasurementKind) -> Result<Raw, Failure> {
        // What comes again comes in the next round.
        if self.done.contains(&kind) {
            (self.line, self.done) = (None, Vec::new());
        }
        let line = match self.line {
            Some(line) => line,
            None => *self.line.insert(self.rig.line()?),
        };
        self.done.push(kind);
        self.rig.measure(kind, line)
    }
}

#[cfg(test)]
mod tests {
    use super::super::setting::tests::{raw, setting};
    use super::*;

    struct Made(f64);

    impl Rig for Made {
        fn line(&mut self) -> Result<LineRate, Failure> {
            self.0 += 1.0;
            Ok(LineRate { bytes_s: self.0, idle_nodes_cpu: None })
        }

        fn measure(&mut self, kind: MeasurementKind, line: LineRate) -> Result<Raw, Failure> {
            Ok(Raw { line, ..raw(setting(), kind.schedule.name(), 1.0) })
        }
    }

    #[test]
    fn every_round_has_a_line_of_its_own() {
        let mut turns = Turns::of(Box::new(Made(0.0)));
        let mut line = |pattern, schedule| {
            turns.measure(MeasurementKind { pattern, schedule }).expect("measured").line.bytes_s
        };
        let lines = [
            line(Pattern::Write, WriteSchedule::Client),
            line(Pattern::Write, WriteSchedule::Chain),
            line(Pattern::Write, WriteSchedule::Client),
            line(Pattern::Write, WriteSchedule::Chain),
            line(Pattern::Read, WriteSchedule::Chain),
        ];
        assert_eq!(lines, [1.0, 1.0, 2.0, 2.0, 2.0]);
    }
}
