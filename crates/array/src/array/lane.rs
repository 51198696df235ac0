//! The state that the parts of a local array share: the keeper, where bytes lie, I/O in flight,
//! scratch, and the actions for the executor. No part sees another one but those below it.

use std::collections::VecDeque;

use super::dirty::DirtyPages;
use super::io::{Ios, Owner};
use super::map::ArrayMap;
use super::planning::Planner;
use super::recording::LogKind;
use super::scratch::Pool;
use super::stripe_cache::StripeCache;
use crate::events::Fault;
use crate::keeper::{Keeper, KeeperView, LaneReport, Traffic};
use crate::plan::ScratchStrips;
use crate::{Action, Compute, IoOp, MemberId, SECTOR_BYTES};

/// The lane of an array: the array owns it, and every part gets it as an argument. The parts
/// [see](Self::keeper) the keeper and [report](Self::report) to it; the array drives it.
#[derive(Debug)]
pub(super) struct Lane {
    keeper: Keeper,
    /// The number of the next write.
    next_write: u64,
    pub(super) map: ArrayMap,
    /// The demands of the log of writes on them.
    pub(super) log: LogKind,
    /// Pages of its journal that are not in place.
    pub(super) dirty: DirtyPages,
    pub(super) actions: VecDeque<Action>,
    pub(super) ios: Ios,
    pub(super) pool: Pool,
    pub(super) cache: StripeCache,
}

/// The keeper's answer to a write that begins.
pub(super) struct BegunWrite {
    /// The number by which the keeper knows the write.
    pub(super) number: u64,
    /// The members know of it: the write need not wait.
    pub(super) may_start: bool,
}

impl Lane {
    pub(super) fn new(keeper: Keeper, map: ArrayMap, pool: Pool) -> Self {
        Self {
            keeper,
            next_write: 0,
            map,
            log: LogKind::None,
            dirty: DirtyPages::default(),
            actions: VecDeque::with_capacity(1024),
            ios: Ios::with_capacity(1024),
            cache: StripeCache::new(&pool),
            pool,
        }
    }

    /// Returns the view of the keeper.
    pub(super) const fn keeper(&self) -> KeeperView<'_> {
        self.keeper.view()
    }

    /// Tells the keeper something.
    pub(super) fn report(&mut self, report: LaneReport) {
        self.keeper.hear(report);
    }

    /// Returns whether dirty pages may go in place.
    pub(super) fn destages(&self) -> bool {
        !self.keeper().has_failed() && !self.keeper().is_read_only()
    }

    /// Returns whether all members are there and the array is to go on being written to as it is.
    pub(super) fn is_healthy(&self) -> bool {
        let keeper = self.keeper();
        let over = keeper.has_failed() || keeper.writes_over() || keeper.is_stopping();
        !over && !keeper.holds_requests() && keeper.members().degraded() == 0
    }

    /// The keeper, for the array, which drives it.
    pub(super) const fn keeper_mut(&mut self) -> &mut Keeper {
        &mut self.keeper
    }

    /// The keeper, driven with what it has to know: see [`Traffic`]. `plans` tells whether a job
    /// means this member.
    pub(super) fn drive_with(
        &mut self,
        quiet: bool,
        plans: &dyn Fn(MemberId) -> bool,
        drive: impl FnOnce(&mut Keeper, Traffic<'_>),
    ) {
        let Self { keeper, ios, .. } = self;
        drive(keeper, Traffic { quiet, plans, gave_up: &|id| ios.abandoned_on(id) });
    }

    /// Asks whether a write may start in this range of sync space.
    pub(super) fn begin_write(&mut self, start: u64, end: u64) -> BegunWrite {
        let number = self.next_write;
        self.next_write += 1;
        self.report(LaneReport::BeginWrite { number, start, end });
        BegunWrite { number, may_start: self.keeper().may_start(number) }
    }

    /// Asks whether to wait for room on a member that has none.
    pub(super) fn waits_for_room(&mut self, member: MemberId, fault: Fault) -> bool {
        self.report(LaneReport::NoRoom(member, fault));
        self.keeper().waits_for_room(member)
    }

    pub(super) const fn planner(&self) -> Planner<'_> {
        Planner { keeper: self.keeper(), map: &self.map, dirty: &self.dirty }
    }

    /// Returns whether I/O goes there: to a member that lives, or to the device beside them that
    /// what is moved in place is saved to.
    pub(super) fn takes_io(&self, id: MemberId) -> bool {
        self.keeper().members().live(id) || self.map.saved_to() == Some(id)
    }

    /// Returns whether an I/O is one on that device.
    pub(super) fn is_spill(&self, member: MemberId, owner: Owner) -> bool {
        matches!(owner, Owner::Spill { .. }) || self.map.saved_to() == Some(member)
    }

    /// Returns whether what is being moved does not go on.
    pub(super) const fn moves_no_more(&self) -> bool {
        self.keeper().has_failed() || self.keeper().writes_over()
    }

    /// Sends one I/O to a member.
    pub(super) fn issue(&mut self, member: MemberId, op: IoOp, owner: Owner) {
        let io = self.ios.insert(owner, Some((member, op)));
        self.report(LaneReport::Asked(member));
        if let IoOp::Read { sector, buf } = op {
            let end = sector + u64::from(buf.len) / SECTOR_BYTES;
            self.report(LaneReport::ReadUpTo(member, end));
        }
        self.actions.push_back(Action::Io { io, member, op });
    }

    /// Strips of scratch for a job: all there are but what jobs have, the cache gives its own back.
    pub(super) fn take_strips(&mut self, count: usize, destages: bool) -> Option<ScratchStrips> {
        let Self { pool, cache, .. } = self;
        let take = |pool: &mut Pool| {
            if destages { pool.take_to_destage(count) } else { pool.take(count) }
        };
        take(pool).or_else(|| {
            cache.shed(pool);
            take(pool)
        })
    }

    /// A job has ended, or is planned anew: what is kept of it counts if it went well.
    pub(super) fn cache_ends(&mut self, job: usize, well: bool) {
        let keeper = self.keeper.view();
        let well = well && !keeper.is_stopping();
        self.cache.end(&mut self.pool, keeper.now(), job, well);
    }

    /// Drops all kept strips: members may not hold any longer what was written, or read, before.
    /// Writes that wait for dirty pages are planned anew.
    pub(super) fn members_change(&mut self) {
        self.dirty.look_again();
        self.cache.clear(&mut self.pool);
    }

    /// Hands one computation to the executor.
    pub(super) fn issue_compute(&mut self, compute: Compute, owner: Owner) {
        let io = self.ios.insert(owner, None);
        self.actions.push_back(Action::Compute { io, compute });
    }
}
