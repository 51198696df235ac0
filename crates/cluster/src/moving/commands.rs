//! Commands to an array whose data move.

use braid_array::action::{Command, CommandId, Event};
use braid_array::grow::Grow;
use braid_array::{Machine, Refusal};

use super::stage::Step;
use super::{BESIDE, MovingClient, Side, Stop};

impl MovingClient {
    pub(super) fn command(&mut self, id: CommandId, command: Command) {
        match command {
            Command::Stop if self.stop.is_some() => {
                self.reply(id, Err(Refusal::new("it is being stopped already", "wait for it")));
            }
            Command::Stop => self.stop = Some(Stop { id, left: 0, told: false, result: Ok(()) }),
            command if self.is_over() => self.pass_command(self.main(), id, command),
            Command::SpeedLimits { min_bytes_s, max_bytes_s } => {
                self.limits.min_bytes_per_s = min_bytes_s.unwrap_or(self.limits.min_bytes_per_s);
                self.limits.max_bytes_per_s = max_bytes_s.or(self.limits.max_bytes_per_s);
                self.restart_speed();
                self.pass_to_both(id, &Command::SpeedLimits { min_bytes_s, max_bytes_s });
            }
            Command::Pause(paused) => {
                self.limits.paused = paused;
                self.restart_speed();
                self.pass_to_both(id, &Command::Pause(paused));
            }
            Command::Grow(Grow::Undo) => match self.may_turn() {
                Ok(()) => self.turn = Some(id),
                Err(why) => self.reply(id, Err(why)),
            },
            _ => {
                let why = "its data are being moved to other nodes";
                self.reply(id, Err(Refusal::new(why, "wait for the end, or braid grow --undo")));
            }
        }
    }

    fn may_turn(&self) -> Result<(), Refusal> {
        match self.step {
            _ if self.back || self.turn.is_some() => {
                Err(Refusal::new("its data go back already", "wait for the end"))
            }
            Step::Starting | Step::Refused | Step::Confirming(_) | Step::Marking => {
                Err(Refusal::new("its nodes are not connected yet", "try again when they are"))
            }
            Step::Still => Err(Refusal::new("it is read-only", "assemble it without --readonly")),
            Step::Ending | Step::Leaving | Step::Over(_) => {
                Err(Refusal::new("all data have moved", "it is too late to go back"))
            }
            _ => Ok(()),
        }
    }

    /// Passes a command to both arrays; the answer of the new one counts.
    fn pass_to_both(&mut self, id: CommandId, command: &Command) {
        self.pass_command(Side::Old, BESIDE, command.clone());
        self.pass_command(Side::New, id, command.clone());
    }

    fn pass_command(&mut self, side: Side, id: CommandId, command: Command) {
        let now = self.now;
        self.array_mut(side).handle(now, Event::Command { id, command });
    }

    /// Stops the arrays, once no window is open, or nodes are away for which it would have to wait.
    pub(super) fn drive_stop(&mut self) -> bool {
        let away = Side::BOTH.iter().any(|&side| self.array(side).is_waiting());
        let busy = self.window().is_some() || matches!(self.step, Step::Turning | Step::Ending);
        let busy = busy || self.step == Step::Leaving;
        let Some(stop) = self.stop.as_mut().filter(|stop| !stop.told && (away || !busy)) else {
            return false;
        };
        stop.told = true;
        let sides = self.sides();
        if let Some(stop) = &mut self.stop {
            stop.left = sides.len() as u32;
        }
        self.fail_held(true);
        for &side in sides {
            self.stop_array(side);
        }
        true
    }
}
