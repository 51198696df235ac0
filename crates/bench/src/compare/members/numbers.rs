//! Numbers beside what was published and what the limits let through.

use super::class::{CLASSES, Class, KB};
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
        let of_bonnie = Numbers::read(found, [bonnie::OUTPUT], |run, [text]| {
            let value = |column: BonnieColumn| {
                reading(&run.job, column.name, column.unit, bonnie::value(text, column))
            };
            let share = |kind: CaseNumber| {
                let percent = bonnie::cpu_percent(text, kind.column);
                reading(&run.job, cpu(kind.column), "%", percent)
            };
            let all = KINDS[..4].iter().map(|kind| kind.column).chain(bonnie::MORE);
            all.map(value).chain(KINDS[..4].iter().copied().map(share)).collect()
        });
        let of_fio = Numbers::read(found, [fio::OUTPUT], |run, [text]| {
            let rate = fio::parse(text).first().map(|job| job.read.bytes_s / KB);
            vec![reading(&run.job, READ.name, READ.unit, rate)]
        });
        Self { numbers: of_bonnie.and(of_fio), found }
    }

    /// Cases of which something was found.
    pub(super) fn cases(&self) -> Vec<MembersCase> {
        let found = |case: &MembersCase| self.found.runs.iter().any(|run| run.case == case.name());
        MembersCase::all().filter(found).collect()
    }

    pub(super) fn classes(&self) -> Vec<&'static Class> {
        let cases = self.cases();
        CLASSES.iter().filter(|class| cases.iter().any(|case| case.class == *class)).collect()
    }

    pub(super) fn spread(&self, case: MembersCase, kind: CaseNumber) -> Option<Spread> {
        let name = case.name();
        kind.jobs.iter().find_map(|job| self.numbers.spread(&name, job, kind.column.name))
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
        self.found.server_cores(&case.name(), COLD).map(|cores| cores.median)
    }

    pub(super) fn cell(&self, case: MembersCase, kind: CaseNumber) -> Option<Cell> {
        let name = case.name();
        let cell = |job: &&str| self.numbers.cell(&name, job, kind.column.name);
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
