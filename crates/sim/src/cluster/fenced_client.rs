//! Clients that are taken over while they are at work, and keep trying.

use braid_array::Action;
use braid_array::events::ArrayEvent;

use super::session::{Phase, Session};
use crate::oracle::Range;
use crate::report::Failure;
use crate::workload::Kind;

/// Requests from here on are begun when the next client serves already.
const STRAY: u64 = 1 << 32;

impl Session {
    /// Cuts the power of the fenced clients.
    pub fn kill_fenced(&mut self) {
        for fenced in std::mem::take(&mut self.fenced) {
            self.cluster.world.kill(fenced.process);
            self.judge.client_ends(fenced.process);
        }
    }

    /// Writes once more by the last fenced client. Before the next client serves, the write may
    /// still succeed; afterwards it must not land.
    pub fn write_as_fenced(&mut self, range: Range) {
        let Some(at) = self.fenced.len().checked_sub(1) else { return };
        let fenced = &self.fenced[at];
        let process = fenced.process;
        if fenced.strays || fenced.told {
            return;
        }
        let kind = Kind::Write { fua: false };
        let now = self.cluster.world.now();
        let client = &mut self.cluster.world.processes[process];
        let draft = self.judge.draft(process, kind, range, &mut client.arena, |_| false);
        let Some(mut draft) = draft else { return };
        let strays = self.phase == Phase::Serving;
        draft.request.id.0 += if strays { STRAY } else { 0 };
        if client.client().submit(now, draft.request).is_err() {
            return;
        }
        let Range { sector, sectors } = range;
        let id = draft.request.id;
        let serial = draft.serial;
        self.cluster.note(&[55, id.0, sector, sectors], || {
            format!("FENCED CLIENT WRITES {sector}+{sectors} serial {serial}, stray {strays}")
        });
        if strays {
            self.fenced[at].strays = true;
        } else {
            self.begin(process, draft, false);
        }
        self.cluster.world.drain(process);
    }

    /// Handles an action of a fenced client; returns false for other processes.
    pub fn fenced_says(&mut self, process: usize, action: &Action) -> Result<bool, Failure> {
        let fenced = self.fenced.iter_mut().find(|fenced| fenced.process == process);
        let Some(fenced) = fenced else { return Ok(false) };
        match action {
            Action::Notify(ArrayEvent::TakenOver) => fenced.told = true,
            Action::Complete { id, result } if id.0 >= STRAY => {
                fenced.strays = false;
                if result.is_ok() {
                    return Err(Failure("a write is answered after a takeover".to_owned()));
                }
            }
            Action::Complete { id, result } => {
                let flight = self.judge.answered(process, *id)?;
                let kind = flight.kind;
                self.cluster.note(&[56, id.0, u64::from(result.is_ok())], || {
                    format!("FENCED CLIENT'S #{} {kind:?}: {result:?}", id.0)
                });
                // What it has read may have been old already.
                self.conclude(&flight, *result, None)?;
            }
            _ => {}
        }
        Ok(true)
    }
}
