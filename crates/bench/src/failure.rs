//! Reasons why a measurement was not made.

use std::fmt;
use std::io;

use braid_array::refusal::{Next, Refusal};

/// Reason that ends a comparison, or leaves a gap in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Thing that could not be measured, or tool that could not be used.
    pub object: String,
    /// Reason and next step.
    pub why: Refusal,
    /// Extent of the failure.
    pub ends: Ends,
}

/// Extent of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// The case or the job: the report has a gap there. Something is not installed or not allowed.
    Part,
    /// The run: whatever came after it could not be trusted.
    Run,
    /// Nothing was begun: what was asked for makes no sense.
    Usage,
}

impl Failure {
    /// The run cannot go on.
    pub fn refused(
        object: impl fmt::Display,
        reason: impl fmt::Display,
        next: impl Into<Next>,
    ) -> Self {
        let why = Refusal::new(reason.to_string(), next);
        Self { object: object.to_string(), why, ends: Ends::Run }
    }

    /// Same as [`Failure::refused`], with a reason that knows the next step already.
    pub fn explained(object: impl fmt::Display, why: impl Into<Refusal>) -> Self {
        Self { object: object.to_string(), why: why.into(), ends: Ends::Run }
    }

    /// Leaves a gap: this part cannot be measured here; the others can.
    pub fn gap(
        object: impl fmt::Display,
        reason: impl fmt::Display,
        next: impl Into<Next>,
    ) -> Self {
        Self { ends: Ends::Part, ..Self::refused(object, reason, next) }
    }

    /// Makes a failure of somebody else's program a gap.
    #[must_use]
    pub fn forgiven(self) -> Self {
        Self { ends: Ends::Part, ..self }
    }

    /// Refuses a request that makes no sense.
    pub fn usage(
        object: impl fmt::Display,
        reason: impl fmt::Display,
        next: impl Into<Next>,
    ) -> Self {
        Self { ends: Ends::Usage, ..Self::refused(object, reason, next) }
    }

    /// Reports an error of the system about a file, a device or a program.
    pub fn system(object: impl fmt::Display, error: &io::Error, next: impl Into<Next>) -> Self {
        Self::refused(object, system_error(error), next)
    }
}

/// Results of the system, whose errors do not say what they are about.
pub(crate) trait About<T> {
    /// Makes an error the failure of a file, a device or a program.
    fn about(self, object: impl fmt::Display, next: impl Into<Next>) -> Result<T, Failure>;
}

impl<T> About<T> for io::Result<T> {
    fn about(self, object: impl fmt::Display, next: impl Into<Next>) -> Result<T, Failure> {
        self.map_err(|error| Failure::system(object, &error, next))
    }
}

impl From<Failure> for braid_cli::Failure {
    fn from(failure: Failure) -> Self {
        let code = match failure.ends {
            Ends::Usage => Self::USAGE,
            Ends::Part | Ends::Run => Self::REFUSED,
        };
        Self::explained("bench", failure.object, failure.why).with_code(code)
    }
}

pub(crate) use braid_cli::system_error;
