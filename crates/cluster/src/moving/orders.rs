//! Orders of the move, carried out, and answers to requests and commands: what the other files of
//! the machine use.

use braid_array::action::{Command, CommandId};
use braid_array::{Action, Op, Refusal, Request, RequestError, RequestId};

use super::stage::{MoveOrder, Step};
use super::{MovingClient, NOTE, STOP, Side};
use crate::failover::FailoverClient;

impl MovingClient {
    pub(super) fn array(&self, side: Side) -> &FailoverClient {
        self.arrays.get(side)
    }

    /// The array that is left.
    pub(super) const fn alone(&self) -> Option<Side> {
        match self.moving.step() {
            Step::Over(side) => Some(*side),
            _ => None,
        }
    }

    /// The array that stands for both: the one that is left, or else the new one, which has all
    /// nodes.
    pub(super) fn main(&self) -> Side {
        self.alone().unwrap_or(Side::New)
    }

    pub(super) fn carry_out_orders(&mut self) {
        while let Some(order) = self.moving.next_order() {
            match order {
                MoveOrder::Tell(side, note) => {
                    self.arrays.command(side, self.now, NOTE, Command::NoteMove(note));
                }
                MoveOrder::Stop(side) => self.stop_array(side),
                MoveOrder::Piece { side, slot, op, sector, buf } => {
                    self.split.piece(side, slot, op, sector, buf);
                }
                MoveOrder::Flush(side) => self.split.flush_moved(side),
                MoveOrder::Release => {
                    for request in self.held.release() {
                        self.admit(&request);
                    }
                }
                MoveOrder::Notify(event) => self.actions.push_back(Action::Notify(event)),
                MoveOrder::Reply(id, result) => self.reply(id, result),
            }
        }
    }

    /// Takes a request that nothing stands against.
    pub(super) fn admit(&mut self, request: &Request) {
        if request.op == Op::Flush {
            self.split.flush(request.id, self.moving.sides());
        } else {
            self.split.cut(request, self.moving.front());
        }
    }

    pub(super) fn stop_array(&mut self, side: Side) {
        self.arrays.command(side, self.now, STOP[side as usize], Command::Stop);
    }

    pub(super) fn fail(&mut self, id: RequestId) {
        self.actions.push_back(Action::Complete { id, result: Err(RequestError::Failed) });
    }

    /// Answers a command.
    pub(super) fn reply(&mut self, id: CommandId, result: Result<(), Refusal>) {
        self.actions.push_back(Action::Reply { id, result });
    }
}
