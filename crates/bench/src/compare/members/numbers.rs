//! What was found, beside what was published and what the limits let through.

use super::class::{CLASSES, Class, KB, MEMBERS, METRICS};
use super::{BONNIE, COLD, Case, WARM};
use crate::model::{Cell, Found, Measured, Spread};
use crate::tool::bonnie::{self, Column, READ};
use crate::tool::fio;

/// What is measured of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// By bonnie++; its reads by fio if they were over too soon.
    Of(Column),
    /// From the members.
    ColdRead,
}

impl What {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Of(column) if column == READ => "read from memory",
            Self::Of(column) => column.name,
            Self::ColdRead => "read from the members",
        }
    }

    pub(super) const fn column(self) -> Column {
        match self {
            Self::Of(column) => column,
            Self::ColdRead => READ,
        }
    }

    /// In the order of the published table, and the one that is not in it.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        METRICS.into_iter().map(Self::Of).chain([Self::ColdRead])
    }
}

pub(super) struct Numbers<'a>(pub(super) &'a Found);

impl Numbers<'_> {
    /// Cases of which something was found.
    pub(super) fn cases(&self) -> Vec<Case> {
        let all = Case::all();
        all.filter(|case| self.0.runs.iter().any(|run| run.case == case.name())).collect()
    }

    pub(super) fn classes(&self) -> Vec<&'static Class> {
        let cases = self.cases();
        CLASSES.iter().filter(|class| cases.iter().any(|case| case.class == *class)).collect()
    }

    /// The job that a number comes from, and the number.
    fn measured(&self, case: Case, what: What) -> Option<(&'static str, Measured)> {
        let name = case.name();
        let fio = |job: &'static str| {
            let read = |text: &str| Some(fio::parse(text).first()?.read.bytes_s / KB);
            Some((job, self.0.measured(&name, job, fio::OUTPUT, read)?))
        };
        match what {
            What::ColdRead => fio(COLD),
            What::Of(column) => {
                let read = |text: &str| bonnie::value(text, column);
                let found = self.0.measured(&name, BONNIE, bonnie::OUTPUT, read);
                let found = found.map(|found| (BONNIE, found));
                if column == READ { found.or_else(|| fio(WARM)) } else { found }
            }
        }
    }

    pub(super) fn spread(&self, case: Case, what: What) -> Option<Spread> {
        Some(self.measured(case, what)?.1.spread)
    }

    pub(super) fn published(case: Case, what: What) -> Option<f64> {
        match what {
            What::Of(column) => case.class.published(case.members, column),
            What::ColdRead => None,
        }
    }

    pub(super) fn published_ratio(case: Case, what: What) -> Option<f64> {
        match what {
            What::Of(column) => case.class.published_ratio(case.members, column),
            What::ColdRead => None,
        }
    }

    pub(super) fn bound(case: Case, what: What) -> Option<f64> {
        match what {
            What::Of(column) => case.class.bound(case.members, column),
            What::ColdRead => Some(case.class.bound_kb_s(case.members)),
        }
    }

    /// To one member of the same class.
    pub(super) fn ratio(&self, case: Case, what: What) -> Option<f64> {
        let one = Case { members: 1, ..case };
        Some(self.spread(case, what)?.median / self.spread(one, what)?.median)
    }

    /// How much of what the limits let through came through.
    pub(super) fn share(&self, case: Case, what: What) -> Option<f64> {
        Some(self.spread(case, what)?.median / Self::bound(case, what)?)
    }

    /// CPU time that bonnie++ says it took, in percent of one core.
    pub(super) fn cpu(&self, case: Case, column: Column) -> Option<Measured> {
        let read = |text: &str| bonnie::cpu_percent(text, column);
        self.0.measured(&case.name(), BONNIE, bonnie::OUTPUT, read)
    }

    /// CPU seconds a second of Braid's process while the members are read.
    pub(super) fn server_cores(&self, case: Case) -> Option<Spread> {
        self.0.server_cores(&case.name(), COLD)
    }

    pub(super) fn cell(&self, case: Case, what: What) -> Option<Cell> {
        let (job, measured) = self.measured(case, what)?;
        let column = what.column();
        let mut cell = Cell::new(&case.name(), job, column.name, column.unit, measured);
        cell.published = Self::published(case, what);
        cell.ratio = self.ratio(case, what);
        cell.published_ratio = Self::published_ratio(case, what);
        cell.bound = Self::bound(case, what);
        if what == What::ColdRead {
            cell.server_cores = self.server_cores(case).map(|spread| spread.median);
        }
        Some(cell)
    }
}

/// All cases of a class.
pub(super) fn of(class: &'static Class) -> [Case; 3] {
    MEMBERS.map(|members| Case { class, members })
}
