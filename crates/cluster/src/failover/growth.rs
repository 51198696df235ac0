//! Another size for an array that is served: the client that has carried it out rests, and the next
//! one begins with the new size.

use braid_array::action::CommandId;
use braid_array::{Action, Refusal};

use super::FailoverClient;

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

impl FailoverClient {
    /// Begins to give the array another size.
    pub(super) fn grow(&mut self, id: CommandId, sectors: u64) {
        if !self.is_serving() {
            self.commands.retain(|command| *command != id);
            let why = Refusal::new("the array waits for its nodes", "try again when they are back");
            self.actions.push_back(Action::Reply { id, result: Err(why) });
            return;
        }
        if matches!(self.growth, Growth::Rest) {
            self.growth = Growth::Asked(id);
        }
        self.client.grow(self.now, id, sectors);
    }

    /// Reports the result of a command that gave the array another size.
    pub(super) fn answer_growth(&mut self) {
        match std::mem::take(&mut self.growth) {
            Growth::Over(id, result) => self.actions.push_back(Action::Reply { id, result }),
            asked => self.growth = asked,
        }
    }
}
