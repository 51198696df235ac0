//! Content of a device without an md superblock, and the next step.

use braid_array::format::SuperblockError;
use braid_host::member::{self, MemberFile};

use super::found::Found;
use crate::failure::Failure;
use crate::invocation::shell_word;

/// Next step for unknown content.
const CHECK: &str = "check that it is the right device or image";

/// A device that is no member.
pub(super) struct Stranger {
    /// Reason, which names the content.
    pub(super) reason: String,
    /// Next step.
    pub(super) next: String,
}

impl Stranger {
    pub(super) fn of(device: &MemberFile) -> Self {
        let none = SuperblockError::NoMagic.to_string();
        let Some(found) = member::what_it_is(device).findings.into_iter().next() else {
            return Self { reason: none, next: CHECK.to_owned() };
        };
        let label = found.label.map(|label| format!(" called {label}")).unwrap_or_default();
        let name = shell_word(&device.path.display().to_string());
        let advice = found.kind.advice();
        let next = ["FILE", "DEVICE"]
            .iter()
            .fold(advice.to_owned(), |advice, placeholder| advice.replace(placeholder, &name));
        Self { reason: format!("{none}; it is {}{label}", found.kind), next }
    }
}

/// Refuses devices none of which is a member.
pub(super) fn refuse_strangers(operation: &str, found: &[Found]) -> Result<(), Failure> {
    let no_member = |one: &Found| one.candidate.superblock == Err(SuperblockError::NoMagic);
    match found.first() {
        Some(first) if found.iter().all(no_member) => {
            let Stranger { reason, next } = Stranger::of(&first.device);
            Err(Failure::refused(operation, &first.candidate.device, reason, next))
        }
        _ => Ok(()),
    }
}
