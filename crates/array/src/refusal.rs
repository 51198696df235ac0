//! Refusals as data: why something is not done, and the way on. Where the way on is the command, a
//! refusal says what to call it for; the spelling is known to the command alone.

use std::borrow::Cow;
use std::fmt;

use crate::condition::Condition;
use crate::options::Options;

/// A refusal: the reason, and what to do instead. As text: `reason; advice`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Refusal {
    /// The reason, in one line without the next step.
    pub reason: String,
    /// The next step.
    pub next: Next,
}

/// The next step: advice, an invocation of the command, or advice that leads to one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Next {
    /// In words; empty where the invocation says it all.
    pub advice: Cow<'static, str>,
    /// The command that does it.
    pub invocation: Option<Box<Invocation>>,
    /// The condition that asks for it, where that has an id. Not sent to other processes.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub condition: Option<Condition>,
}

/// A call of the command, by its purpose. An array without a name is the one that was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Invocation {
    /// Start an array of these devices.
    Assemble {
        /// The one of this name.
        name: Option<String>,
        /// Under that name, whatever its own name is.
        rename: bool,
        /// Options.
        options: Options,
        /// Its members; found by looking at all block devices when empty.
        devices: Vec<String>,
    },
    /// Write the content of an array of these devices to stdout.
    Cat {
        /// Even if what has to be computed for it may be wrong.
        force: bool,
        /// Its members.
        devices: Vec<String>,
    },
    /// Tell who would be in.
    Explain {
        /// Candidates.
        devices: Vec<String>,
    },
    /// Show superblocks.
    Examine {
        /// The devices on which they lie.
        devices: Vec<String>,
    },
    /// Make a new array.
    Create,
    /// Show what runs: one array, or all.
    Status {
        /// Its name.
        array: Option<String>,
    },
    /// Follow background work to its end.
    Watch {
        /// Its name.
        array: Option<String>,
    },
    /// Show an array's members.
    Detail {
        /// Its name.
        array: Option<String>,
    },
    /// Stop an array.
    Stop {
        /// Its name.
        array: Option<String>,
        /// Even if it is in use.
        force: bool,
    },
    /// Make a member faulty.
    Fail {
        /// The array's name.
        array: Option<String>,
        /// The member.
        device: String,
    },
    /// Detach a member.
    Remove {
        /// The array's name.
        array: Option<String>,
        /// The member.
        device: String,
    },
    /// Attach a device.
    Add {
        /// The array's name.
        array: Option<String>,
        /// The device.
        device: String,
    },
}

/// An error that knows the way on.
pub trait Advised: std::error::Error {
    /// The next step; the error's own text is the reason.
    fn next(&self) -> Next;
}

impl Refusal {
    /// A refusal.
    pub fn new(reason: impl Into<String>, next: impl Into<Next>) -> Self {
        Self { reason: reason.into(), next: next.into() }
    }

    /// A reason that leads nowhere by itself; who hears it knows more.
    pub fn plain(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), next: Next::default() }
    }

    /// The same, about the array of this name where none is named.
    #[must_use]
    pub fn about(self, name: &str) -> Self {
        Self { next: self.next.about(name), ..self }
    }
}

impl<E: Advised> From<E> for Refusal {
    fn from(error: E) -> Self {
        Self { reason: error.to_string(), next: error.next() }
    }
}

impl std::error::Error for Refusal {}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        match &*self.next.advice {
            "" => Ok(()),
            advice => write!(f, "; {advice}"),
        }
    }
}

impl Next {
    /// Advice that the invocation carries out.
    pub fn by(advice: impl Into<Cow<'static, str>>, invocation: Invocation) -> Self {
        Self { advice: advice.into(), ..invocation.into() }
    }

    /// The same, for this condition.
    #[must_use]
    pub fn of(self, condition: impl Into<Option<Condition>>) -> Self {
        Self { condition: condition.into(), ..self }
    }

    /// Nothing leads on.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.advice.is_empty() && self.invocation.is_none()
    }

    /// The same, or this advice where there is none.
    #[must_use]
    pub fn or(self, advice: &'static str) -> Self {
        if self.is_empty() { advice.into() } else { self }
    }

    /// The same, about the array of this name where none is named.
    #[must_use]
    pub fn about(mut self, name: &str) -> Self {
        if let Some(
            Invocation::Status { array }
            | Invocation::Watch { array }
            | Invocation::Detail { array }
            | Invocation::Stop { array, .. }
            | Invocation::Fail { array, .. }
            | Invocation::Remove { array, .. }
            | Invocation::Add { array, .. },
        ) = self.invocation.as_deref_mut()
        {
            array.get_or_insert_with(|| name.to_owned());
        }
        self
    }
}

impl From<&'static str> for Next {
    fn from(advice: &'static str) -> Self {
        Self { advice: advice.into(), ..Self::default() }
    }
}

impl From<String> for Next {
    fn from(advice: String) -> Self {
        Self { advice: advice.into(), ..Self::default() }
    }
}

impl From<Invocation> for Next {
    fn from(invocation: Invocation) -> Self {
        Self { invocation: Some(Box::new(invocation)), ..Self::default() }
    }
}
