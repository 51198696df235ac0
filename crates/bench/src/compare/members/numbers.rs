//! Numbers beside what was published and what the limits let through.

use super::class::{CLASSES, Class, KB, METRICS};
use super::{BONNIE, COLD, MembersCase, WARM};
use crate::compare::numbers::{Numbers, reading};
use crate::model::{Cell, Found, Spread};
use crate::tool::bonnie::{self, BonnieColumn, READ, REWRITE, SEEKS, WRITE};
use crate::tool::fio;

/// Kind of number of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CaseNumber {
    pub(super) name: &'static str,
    pub(super) column: BonnieColumn,
    /// The jobs that say it: the second one where the first was over too soon.
    jobs: &'static [&'static str],
}

const fn of_bonnie(column: BonnieColumn) -> CaseNumber {
    CaseNumber { name: column.name, column, jobs: &[BONNIE] }
}

pub(super) const WRITES: CaseNumber = of_bonnie(WRITE);
pub(super) const WARM_READS: CaseNumber =
    CaseNumber { name: "read from memory", column: READ, jobs: &[BONNIE, WARM] };
pub(super) const COLD_READS: CaseNumber =
    CaseNumber { name: "read from the members", column: READ, jobs: &[COLD] };
/// Kinds in the order of the published table, and the one that is not in it.
pub(super) const KINDS: [CaseNumber; 5] =
    [WRITES, of_bonnie(REWRITE), WARM_READS, of_bonnie(SEEKS), COLD_READS];

impl CaseNumber {
    pub(super) fn published(self, case: MembersCase) -> Option<f64> {
        if self == COLD_READS { None } else { case.class.published(case.members, self.column) }
    }

    /// Published ratio to one member.
    pub(super) fn published_ratio(self, case: MembersCase) -> Option<f64> {
        Some(self.published(case)? / self.published(case.one())?)
    }

    pub(super) fn bound(self, case: MembersCase) -> Option<f64> {
        let column = if self == COLD_READS { WRITE } else { self.column };
        case.class.bound(case.members, column)
    }

    /// Returns whether its bound is more than an estimate.
    pub(super) fn is_bounded(self) -> bool {
        self != WARM_READS
    }
}

/// The metric of the CPU time of a column.
pub(super) fn cpu(column: BonnieColumn) -> String {
    format!("{}, CPU", column.name)
}

pub(super) struct Members<'a> {
    pub(super) numbers: Numbers,
    pub(super) found: &'a Found,
}

impl<'a> Members<'a> {
    pub(super) fn of(found: &'a Found) -> Self {
        let numbers = Numbers::of(found).read(found, [bonnie::OUTPUT], |run, [text]| {
            let value = |column: BonnieColumn| {
                reading(&run.job, column.name, column.unit, bonnie::value(text, column))
            };
            let share = |column: BonnieColumn| {
                reading(&run.job, cpu(column), "%", bonnie::cpu_percent(text, column))
            };
            METRICS.into_iter().chain(bonnie::MORE).map(value).chain(METRICS.map(share)).collect()
        });
        let numbers = numbers.read(found, [fio::OUTPUT], |run, [text]| {
            let rate = fio::parse(text).first().map(|job| job.read.bytes_s / KB);
            vec![reading(&run.job, READ.name, READ.unit, rate)]
        });
        Self { numbers, found }
    }

    /// Cases of which something was found.
    pub(super) fn cases(&self) -> Vec<MembersCase> {
        let found = |case: &MembersCase| {
            let name = case.to_string();
            self.found.runs.iter().any(|run| run.case == name)
        };
        MembersCase::all().filter(found).collect()
    }

    pub(super) fn classes(&self) -> Vec<&'static Class> {
        let cases = self.cases();
        CLASSES.iter().filter(|class| cases.iter().any(|case| case.class == *class)).collect()
    }

    pub(super) fn spread(&self, case: MembersCase, kind: CaseNumber) -> Option<Spread> {
        kind.jobs.iter().find_map(|job| self.numbers.spread((case, job, kind.column.name)))
    }

    /// Ratio to one member of the same class.
    pub(super) fn ratio(&self, case: MembersCase, kind: CaseNumber) -> Option<f64> {
        Some(self.spread(case, kind)?.median / self.spread(case.one(), kind)?.median)
    }

    /// Share of what the limits let through.
    pub(super) fn share(&self, case: MembersCase, kind: CaseNumber) -> Option<f64> {
        Some(self.spread(case, kind)?.median / kind.bound(case)?)
    }

    /// CPU seconds a second of Braid's process while the members are read.
    pub(super) fn server_cores(&self, case: MembersCase) -> Option<f64> {
        self.numbers.cores(case, COLD).map(|cores| cores.median)
    }

    pub(super) fn cell(&self, case: MembersCase, kind: CaseNumber) -> Option<Cell> {
        let cell = |job: &&str| self.numbers.cell((case, job, kind.column.name));
        let cell = kind.jobs.iter().find_map(cell)?;
        let is_cold = kind == COLD_READS;
        Some(Cell {
            published: kind.published(case),
            ratio: self.ratio(case, kind),
            published_ratio: kind.published_ratio(case),
            bound: kind.bound(case),
            server_cores: if is_cold { self.server_cores(case) } else { None },
            ..cell
        })
    }
}
