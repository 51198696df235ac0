//! Another size for an array that is served: the client that has carried it out rests, and the next
//! one begins with the new size.

use braid_array::action::CommandId;
use braid_array::{Action, Refusal};

/// A command that gives the array another size.
#[derive(Debug, Default)]
pub(super) enum Growth {
    #[default]
    Rest,
    /// The client carries it out.
    Asked(CommandId),
    /// The result, which is reported once the next client serves: this one is at rest.
    Over(CommandId, Result<(), Refusal>),
}

impl Growth {
    /// The client is asked for another size by this command.
    pub(super) fn ask(&mut self, id: CommandId) {
        if matches!(self, Self::Rest) {
            *self = Self::Asked(id);
        }
    }

    /// Returns the answer to the command, if there is one that waits for the next client.
    pub(super) fn answer(&mut self) -> Option<Action> {
        match std::mem::take(self) {
            Self::Over(id, result) => Some(Action::Reply { id, result }),
            asked => {
                *self = asked;
                None
            }
        }
    }
}
