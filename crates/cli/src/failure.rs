//! Failure of a command, in the one form of messages: `braid: OPERATION OBJECT: REASON; NEXT STEP`.

use std::fmt;

use braid_array::refusal::{Next, Refusal};

use crate::invocation::next_step;

/// Reason for ending a command early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// To be said in one line on stderr.
    Said(Box<Said>),
    /// Exit status only, without a message. With 0: the reader of the output has closed it.
    Silent(u8),
}

/// Content of a failure's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The command, mostly.
    operation: String,
    /// Object of the command.
    object: String,
    /// Reason and next step.
    why: Refusal,
    /// The exit status.
    code: u8,
}

impl Failure {
    /// Exit status of wrong usage.
    pub const USAGE: u8 = 2;
    /// Exit status of everything else that went wrong.
    pub const REFUSED: u8 = 1;

    /// The command was right but could not or should not be carried out.
    pub fn refused(
        operation: &str,
        object: impl fmt::Display,
        reason: impl fmt::Display,
        next: impl Into<Next>,
    ) -> Self {
        Self::explained(operation, object, Refusal::new(reason.to_string(), next))
    }

    /// Refuses with a reason that includes the next step, like [`Failure::refused`].
    pub fn explained(operation: &str, object: impl fmt::Display, why: impl Into<Refusal>) -> Self {
        let operation = operation.to_owned();
        let object = object.to_string();
        Self::Said(Box::new(Said { operation, object, why: why.into(), code: Self::REFUSED }))
    }

    /// Returns the reason without the next step.
    pub(crate) fn reason(&self) -> &str {
        match self {
            Self::Said(said) => &said.why.reason,
            Self::Silent(_) => "it ended",
        }
    }

    /// The command was typed wrongly.
    pub fn usage(
        operation: &str,
        object: impl fmt::Display,
        reason: impl fmt::Display,
        next: impl Into<Next>,
    ) -> Self {
        Self::refused(operation, object, reason, next).with_code(Self::USAGE)
    }

    /// Replaces the exit status.
    #[must_use]
    pub fn with_code(self, code: u8) -> Self {
        match self {
            Self::Said(said) => Self::Said(Box::new(Said { code, ..*said })),
            Self::Silent(_) => Self::Silent(code),
        }
    }

    /// Replaces the next step.
    #[must_use]
    pub(crate) fn map_next(self, other: impl FnOnce(Next) -> Next) -> Self {
        match self {
            Self::Said(mut said) => {
                said.why.next = other(said.why.next);
                Self::Said(said)
            }
            Self::Silent(code) => Self::Silent(code),
        }
    }

    /// Returns the reason and next step, without operation and object.
    pub(crate) fn into_refusal(self) -> Refusal {
        match self {
            Self::Said(said) => said.why,
            Self::Silent(_) => Refusal::new("it was given up", "try again"),
        }
    }

    /// The exit status.
    #[must_use]
    pub const fn code(&self) -> u8 {
        match self {
            Self::Said(said) => said.code,
            Self::Silent(code) => *code,
        }
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, object, why: Refusal { reason, next }, .. } = self;
        let id = next.condition.map(|condition| format!(" ({condition})")).unwrap_or_default();
        let line = format!("{operation} {object}: {reason}{id}; {}", next_step(next));
        f.write_str(&one_line(&line))
    }
}

/// Escapes control characters: names come from superblocks and command lines, and an error must
/// stay one line and move no cursor.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
    line
}

/// An error of the system in lower case, without Rust's "(os error N)".
#[must_use]
pub fn system_error(error: &std::io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line() {
        let failure = Failure::refused("create", "a\nb\u{1b}[2J", "no", "try again");
        let Failure::Said(said) = &failure else { panic!("not said") };
        assert_eq!(said.to_string(), "create a\\nb\\u{1b}[2J: no; try again");
        assert_eq!(failure.code(), 1);
    }
}
