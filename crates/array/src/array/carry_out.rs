//! What the keeper asks for, done.

use super::Array;
use super::io::Owner;
use super::job::Stage;
use super::scratch::PAGE_BYTES;
use crate::action::{Action, Command, CommandId};
use crate::keeper::{LaneCommand, Traffic};
use crate::{Buf, IoOp};

impl Array {
    /// Does what the keeper asks for, in order.
    pub(super) fn carry_out(&mut self) {
        while let Some(ask) = self.keeper.next_command() {
            match ask {
                LaneCommand::Flush(member) => {
                    self.issue(member, IoOp::Flush, Owner::Meta { page: None })
                }
                LaneCommand::Write(write) => {
                    self.meta_writes.push_back(write);
                    self.pump_pages();
                }
                LaneCommand::Updated => self.updated(),
                LaneCommand::Work { place, unit, work } => self.start_work(place, unit, work),
                LaneCommand::GiveUp(member) => self.ios.give_up(member),
                LaneCommand::Disown(member) => self.ios.disown(member),
                LaneCommand::Reply(id, result) => {
                    self.actions.push_back(Action::Reply { id, result })
                }
                LaneCommand::Notify(event) => self.actions.push_back(Action::Notify(event)),
            }
        }
    }

    /// Has the keeper do what it can do now.
    pub(super) fn drive_keeper(&mut self) {
        self.keeper.drive_meta();
        self.carry_out();
        self.keeper.drive_sync();
        self.carry_out();
        self.with_traffic(|keeper, traffic| keeper.drive_removals(traffic));
        self.with_traffic(|keeper, traffic| keeper.drive_stop(traffic));
        self.keeper.drive_meta();
        self.carry_out();
    }

    pub(super) fn take_command(&mut self, id: CommandId, command: Command) {
        self.with_traffic(|keeper, traffic| keeper.command(id, command, traffic));
    }

    fn with_traffic(&mut self, drive: impl FnOnce(&mut crate::keeper::Keeper, Traffic<'_>)) {
        let Self { keeper, requests, jobs, ios, .. } = self;
        let traffic = Traffic {
            quiet: requests.in_flight() == 0 && jobs.is_empty(),
            plans: &|id| jobs.mention(id),
            gave_up: &|id| ios.abandoned_on(id),
        };
        drive(keeper, traffic);
        self.carry_out();
    }

    /// Writes metadata while there are pages to hold them.
    pub(super) fn pump_pages(&mut self) {
        while !self.meta_writes.is_empty() {
            let Some(buf) = self.pool.take_page() else { return };
            let Some(write) = self.meta_writes.pop_front() else { return };
            if !self.keeper.members().live(write.member) {
                self.pool.give_page(buf);
                self.keeper.update_done();
                continue;
            }
            let buf = Buf { len: write.bytes.len() as u32, ..buf };
            self.actions.push_back(Action::Store { buf, bytes: write.bytes });
            let op = IoOp::Write { sector: write.sector, buf, fua: true };
            self.issue(write.member, op, Owner::Meta { page: Some(buf.offset) });
        }
    }

    /// An I/O of the running update is answered.
    pub(super) fn meta_io_done(&mut self, page: Option<u64>) {
        if let Some(offset) = page {
            self.pool.give_page(Buf { offset, len: PAGE_BYTES });
        }
        self.keeper.update_done();
        self.carry_out();
        self.pump_pages();
    }

    /// Something that operations wait for may be on the members now.
    fn updated(&mut self) {
        let Self { keeper, jobs, queues, .. } = self;
        let ready = &mut queues.ready;
        queues.meta_waiters.retain(|index| {
            let waits = matches!(jobs.get(*index).stage,
                Stage::Metadata(ticket) if !keeper.is_told(ticket));
            if !waits {
                ready.push_back(*index);
            }
            waits
        });
        self.answer_settled();
    }
}
