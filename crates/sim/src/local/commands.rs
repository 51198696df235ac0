//! Commands on their way: which wait for a reply, and which were refused.

use braid_array::MemberId;
use braid_array::action::{Command, CommandId};

/// A command that waits for its reply.
#[derive(Clone, Debug)]
struct Asked {
    id: CommandId,
    /// For people.
    name: String,
    /// Taken off the array when the reply is yes.
    removes: Option<MemberId>,
    /// Not put there after all when the reply is no.
    adds: Option<MemberId>,
    /// For another shape.
    grows: bool,
}

/// The command that a reply answers.
#[derive(Debug)]
pub(super) struct Replied {
    /// The command, for people.
    pub(super) name: String,
    /// The member that is no longer attached.
    pub(super) left: Option<MemberId>,
    /// The command asked for another shape.
    pub(super) grows: bool,
}

/// The commands of a world.
#[derive(Debug, Default)]
pub(super) struct Commands {
    asked: Vec<Asked>,
    next: u64,
    /// Refused commands, with the reasons.
    refused: Vec<(CommandId, String)>,
}

impl Commands {
    /// Drops the waiting commands: they get no reply.
    pub(super) fn power_cut(&mut self) {
        self.asked.clear();
    }

    /// Returns the number of commands without a reply.
    pub(super) fn asked(&self) -> usize {
        self.asked.len()
    }

    /// Returns whether this command waits for its reply.
    pub(super) fn waits(&self, id: CommandId) -> bool {
        self.asked.iter().any(|asked| asked.id == id)
    }

    /// Registers a command. Returns its id, and its name.
    pub(super) fn ask(&mut self, command: &Command) -> (CommandId, String) {
        self.next += 1;
        let id = CommandId(self.next);
        let grows = matches!(command, Command::Grow(_) | Command::GrowSuspending(_));
        let name = format!("{command:?}");
        let mut asked = Asked { id, name, removes: None, adds: None, grows };
        match command {
            Command::Remove(member) => asked.removes = Some(*member),
            Command::Add(new) | Command::Spill(new) => {
                // The place of a member taken off may be used again before the reply comes.
                for asked in self.asked.iter_mut().filter(|a| a.removes == Some(new.member)) {
                    asked.removes = None;
                }
                if let Command::Add(_) = command {
                    asked.name = format!("Add(member {}, readd {})", new.member.0, new.readd);
                }
                asked.adds = Some(new.member);
            }
            _ => {}
        }
        let name = asked.name.clone();
        self.asked.push(asked);
        (id, name)
    }

    /// The reply to one; `None` when it has one already.
    pub(super) fn replied(
        &mut self,
        id: CommandId,
        result: &Result<(), String>,
    ) -> Option<Replied> {
        let at = self.asked.iter().position(|asked| asked.id == id)?;
        let Asked { name, removes, adds, grows, .. } = self.asked.remove(at);
        if let Err(reason) = result {
            self.refused.push((id, format!("{name}: {reason}")));
        }
        Some(Replied { name, left: if result.is_ok() { removes } else { adds }, grows })
    }

    /// Returns the reason for refusing a command, if it was refused.
    pub(super) fn refusal(&mut self, id: CommandId) -> Option<String> {
        let at = self.refused.iter().position(|(other, _)| *other == id)?;
        Some(self.refused.swap_remove(at).1)
    }
}
