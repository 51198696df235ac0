//! Commands to an array whose data move.

use braid_array::action::{Command, CommandId};
use braid_array::grow::Grow;
use braid_array::{Refusal, RequestId};

use super::stage::Step;
use super::{BESIDE, MovingClient, Side};

/// A stop that was asked for.
#[derive(Debug)]
pub(super) struct Stop {
    id: CommandId,
    /// The arrays that have not stopped yet, once they were told to.
    left: u32,
    told: bool,
    result: Result<(), Refusal>,
}

impl MovingClient {
    pub(super) fn command(&mut self, id: CommandId, command: Command) {
        match command {
            Command::Stop if self.stop.is_some() => {
                self.reply(id, Err(Refusal::new("it is being stopped already", "wait for it")));
            }
            Command::Stop => self.stop = Some(Stop { id, left: 0, told: false, result: Ok(()) }),
            command if self.alone().is_some() => {
                self.arrays.command(self.main(), self.now, id, command);
            }
            Command::SpeedLimits { min_bytes_s, max_bytes_s } => {
                self.moving.pace().limit(min_bytes_s, max_bytes_s);
                self.pass_to_both(id, &Command::SpeedLimits { min_bytes_s, max_bytes_s });
            }
            Command::Pause(paused) => {
                self.moving.pace().pause(self.now, paused);
                self.pass_to_both(id, &Command::Pause(paused));
            }
            Command::Grow(Grow::Undo) => {
                self.moving.turn(id);
                self.carry_out_orders();
            }
            _ => {
                let why = "its data are being moved to other nodes";
                self.reply(id, Err(Refusal::new(why, "wait for the end, or braid grow --undo")));
            }
        }
    }

    /// Passes a limit to both arrays; the answer of the new one counts.
    fn pass_to_both(&mut self, id: CommandId, command: &Command) {
        self.moving.restart_speed(self.now);
        self.arrays.command(Side::Old, self.now, BESIDE, command.clone());
        self.arrays.command(Side::New, self.now, id, command.clone());
    }

    /// Stops the arrays, once no window is open, or nodes are away for which it would have to wait.
    pub(super) fn drive_stop(&mut self) -> bool {
        let may_stop = self.moving.may_stop() || self.arrays.are_away();
        let sides = self.moving.sides();
        let Some(stop) = self.stop.as_mut().filter(|stop| !stop.told && may_stop) else {
            return false;
        };
        stop.told = true;
        stop.left = sides.len() as u32;
        let held: Vec<RequestId> = self.held.release().map(|request| request.id).collect();
        held.into_iter().for_each(|id| self.fail(id));
        self.moving.refuse_turn();
        self.carry_out_orders();
        for &side in sides {
            self.stop_array(side);
        }
        true
    }

    /// An array has been stopped: the one that is left in the end, or one of those that were told.
    pub(super) fn stopped(&mut self, side: Side, result: Result<(), Refusal>) {
        if *self.moving.step() == Step::Leaving && !self.moving.sides().contains(&side) {
            self.moving.left(&self.arrays);
            return;
        }
        let Some(stop) = &mut self.stop else { return };
        stop.left = stop.left.saturating_sub(1);
        if let Err(why) = result {
            stop.result = Err(why);
        }
        if stop.left == 0 {
            let id = stop.id;
            let result = stop.result.clone();
            self.reply(id, result);
        }
    }
}
