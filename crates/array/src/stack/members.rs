//! Commands for members of a stack: leaves go to the inner array that has them, inner arrays to the
//! outer one.
//!
//! An inner array without redundancy gives no member away while the outer array uses it. Once the
//! outer one goes on without it, its members may be exchanged; when it is whole again, it becomes
//! a member anew, and is given everything by the others.

use super::{LEAVES, Stack, Then};
use crate::MemberId;
use crate::action::{Command, CommandId, Event, NewMember};
use crate::refusal::{Invocation, Next, Refusal};
use crate::{Array, BlockMachine, Machine};

/// The member that a command is for.
fn member_of(command: &mut Command) -> Option<&mut MemberId> {
    match command {
        Command::Fail(member)
        | Command::ForceFail(member)
        | Command::Remove(member)
        | Command::Replace(member) => Some(member),
        Command::ReplaceWith { old, .. } => Some(old),
        Command::Add(new) | Command::AddJournal(new) => Some(&mut new.member),
        _ => None,
    }
}

impl Stack {
    /// Hands a command for a member to the array that has it.
    pub(super) fn take_member_command(&mut self, id: CommandId, mut command: Command) {
        if let Command::ReplaceWith { old, spare } = &mut command {
            // Each array has its own spares.
            if old.array_number().is_some() || Self::locate(*old).0 != Self::locate(*spare).0 {
                let reason = "the spare is not of the array that has the member";
                let next = Next::by("see its spares", Invocation::Detail { array: None });
                return self.outer.refuse(id, Refusal::new(reason, next));
            }
            *spare = Self::locate(*spare).1;
        }
        let Some(member) = member_of(&mut command) else { return };
        if let Some(number) = member.array_number() {
            *member = MemberId(number as u16);
            return self.take_outer_command(id, number, command);
        }
        let (index, leaf) = Self::locate(*member);
        *member = leaf;
        if let Err(why) = self.judge(index, &command) {
            return self.outer.refuse(id, why);
        }
        let Some(array) = self.inner.get_mut(index) else {
            return self.outer.handle(self.now, Event::Command { id, command });
        };
        if matches!(command, Command::Add(_)) && !array.is_redundant() {
            let pending = self.pending.iter_mut().find(|pending| pending.id == id);
            pending.into_iter().for_each(|it| it.then = Some(Then::TakeBack(index as u16)));
        }
        array.handle(self.now, Event::Command { id, command });
    }

    /// Returns which array a member is of, and that array's id for it.
    pub(super) fn locate(leaf: MemberId) -> (usize, MemberId) {
        (usize::from(leaf.0 / LEAVES), MemberId(leaf.0 % LEAVES))
    }

    /// A command for an inner array as a member of the outer one.
    fn take_outer_command(&mut self, id: CommandId, number: usize, mut command: Command) {
        if let Command::Add(new) = &mut command {
            if self.inner.get(number).is_none_or(Array::has_failed) {
                let reason = "it has lost too many members of its own";
                return self.outer.refuse(id, Refusal::new(reason, "add a member to it first"));
            }
            **new = self.join(number);
        }
        self.outer.handle(self.now, Event::Command { id, command });
    }

    /// Checks that this inner array may take a command for a member. The inner array is told
    /// whether the outer one goes on without it.
    fn judge(&mut self, index: usize, command: &Command) -> Result<(), Refusal> {
        let id = MemberId(index as u16);
        let in_use = self.outer.is_live(id);
        let Some(array) = self.inner.get_mut(index) else { return Ok(()) };
        array.set_dispensable(!in_use);
        let takes_it = match *command {
            // Spares are of use to an array with redundancy, whatever it lacks.
            _ if !in_use || !self.outer.is_redundant() || array.read_only() => true,
            Command::Fail(leaf) | Command::ForceFail(leaf) => !array.needs(leaf),
            _ => array.is_redundant(),
        };
        if takes_it {
            return Ok(());
        }
        let name = array.status().short_name();
        if self.outer.needs(id) {
            let reason = format!("the array would lose data without {name}");
            return Err(Refusal::new(reason, "make the other arrays in it whole first, and wait"));
        }
        let reason = format!("{name} cannot do without it, and the array goes on without {name}");
        let fail = Invocation::Fail { array: None, device: name };
        Err(Refusal::new(reason, Next::by("fail that as a whole first", fail)))
    }

    /// An inner array becomes a member of the outer one anew, also where it is to be taken back:
    /// what it holds is not looked at, it is given everything.
    fn join(&mut self, index: usize) -> NewMember {
        let array = &mut self.inner[index];
        array.set_dispensable(false);
        NewMember {
            member: MemberId(index as u16),
            device: self.titles[index].clone(),
            device_sectors: array.array_sectors(),
            superblock: None,
            bad_blocks: None,
            readd: false,
            device_uuid: array.status().superblock.set_uuid,
        }
    }

    /// An inner array that had been failed got a member. When it lacks none, the outer array takes
    /// it back. False when there is nothing to wait for.
    pub(super) fn take_back(&mut self, id: CommandId, number: u16) -> bool {
        let index = usize::from(number);
        if self.inner[index].has_failed() {
            return false;
        }
        let member = MemberId(number);
        let (command, then) = if self.outer.has(member) {
            (Command::Remove(member), Some(Then::TakeBack(number)))
        } else {
            (Command::Add(Box::new(self.join(index))), None)
        };
        if let Some(pending) = self.pending.iter_mut().find(|pending| pending.id == id) {
            pending.waiting = 1;
            pending.then = then;
        }
        self.outer.handle(self.now, Event::Command { id, command });
        self.lifted = true;
        true
    }
}
