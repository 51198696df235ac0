//! Why a command did not do what was asked, in the one form in which it is said:
//! `braid: OPERATION OBJECT: REASON; NEXT STEP`.

use std::fmt;

/// What ends a command early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// To be said in one line on stderr.
    Said {
        /// The line, without `braid: `.
        line: String,
        /// The exit status.
        code: u8,
    },
    /// The exit status says it all. With 0: whoever reads our output has seen enough.
    Silent(u8),
}

impl Failure {
    /// Exit status of wrong usage.
    pub(crate) const USAGE: u8 = 2;
    /// Exit status of everything else that went wrong.
    pub(crate) const REFUSED: u8 = 1;

    /// The command was right but could not or should not be carried out.
    pub(crate) fn refused(
        operation: &str,
        object: impl fmt::Display,
        reason: impl fmt::Display,
        next: impl fmt::Display,
    ) -> Self {
        let line = one_line(&format!("{operation} {object}: {reason}; {next}"));
        Self::Said { line, code: Self::REFUSED }
    }

    /// As [`Failure::refused`] with a reason that names the next step already.
    pub(crate) fn explained(
        operation: &str,
        object: impl fmt::Display,
        explanation: impl fmt::Display,
    ) -> Self {
        let line = one_line(&format!("{operation} {object}: {explanation}"));
        Self::Said { line, code: Self::REFUSED }
    }

    /// The command was typed wrongly.
    pub(crate) fn usage(
        operation: &str,
        object: impl fmt::Display,
        reason: impl fmt::Display,
        next: impl fmt::Display,
    ) -> Self {
        let line = one_line(&format!("{operation} {object}: {reason}; {next}"));
        Self::Said { line, code: Self::USAGE }
    }

    /// The same with another exit status.
    pub(crate) fn with_code(self, code: u8) -> Self {
        match self {
            Self::Said { line, .. } => Self::Said { line, code },
            Self::Silent(_) => Self::Silent(code),
        }
    }

    /// The exit status.
    pub(crate) const fn code(&self) -> u8 {
        match self {
            Self::Said { code, .. } => *code,
            Self::Silent(code) => *code,
        }
    }
}

/// Names come from superblocks and command lines: what is no printable character is shown escaped,
/// so that one error stays one line and moves no cursor.
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
pub(crate) fn system_error(error: &std::io::Error) -> String {
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
        let Failure::Said { line, code } = failure else { panic!("not said") };
        assert_eq!(line, "create a\\nb\\u{1b}[2J: no; try again");
        assert_eq!(code, 1);
    }
}
