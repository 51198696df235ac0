//! The end of a stop: members that answer nothing are not waited for, and the superblocks say
//! clean.

use super::LaneCommand;
use super::core::Core;
use crate::action::CommandId;
use crate::{Instant, MemberId};

/// A stop: asked for, then the last checkpoint is under way, then the array has stopped.
#[derive(Debug, Default)]
pub(super) struct Stop {
    pub(super) command: Option<CommandId>,
    /// Since when members that answer nothing are given up after a while.
    impatient_since: Option<Instant>,
    /// Its members give up those who do not answer themselves.
    pub(super) over_arrays: bool,
    /// The first move of the last checkpoint.
    pub(super) ticket: Option<u64>,
}

impl Stop {
    /// The array ends soon: from now on members that answer nothing are given up after a while.
    pub(super) const fn lose_patience(&mut self, now: Instant) {
        if self.impatient_since.is_none() && !self.over_arrays {
            self.impatient_since = Some(now);
        }
    }

    /// The members that live and owe an answer, and when each has been silent for too long.
    fn patience(&self, core: &Core) -> impl Iterator<Item = (MemberId, Instant)> {
        let patience_ms = core.rules.stop_patience_ms;
        let begun = self.impatient_since;
        core.members
            .owing()
            .filter_map(move |(id, since)| Some((id, since.max(begun?).plus_millis(patience_ms))))
    }

    /// Returns when a member that a stop waits for has been silent for too long.
    pub(super) fn deadline(&self, core: &Core) -> Option<Instant> {
        self.impatient_since?;
        self.patience(core).map(|(_, until)| until).min()
    }

    /// The members that keep a stop waiting, and are to be given up.
    pub(super) fn silent(&self, core: &Core) -> Vec<MemberId> {
        let silent = self.patience(core).filter(|(_, until)| *until <= core.now);
        silent.map(|(id, _)| id).collect()
    }

    /// Returns whether the last checkpoint is due. `quiet`: nothing is in flight any more.
    pub(super) fn is_ready(&self, core: &Core, quiet: bool) -> bool {
        let waits = self.command.is_some() && self.ticket.is_none();
        waits && quiet && core.metadata.is_idle()
    }

    /// The array has stopped once the last checkpoint is complete.
    pub(super) fn advance(&self, core: &mut Core) {
        if let Some(id) = self.command
            && self.ticket.is_some_and(|ticket| core.metadata.is_done(ticket))
            && core.metadata.is_idle()
            && !core.service.stopped
        {
            core.service.stopped = true;
            core.out.push(LaneCommand::Reply(id, Ok(())));
        }
    }
}
