//! What the superblocks say of the array: active before the first write reaches a node, clean again
//! when nothing has been written for a while and at the end. After a crash the nodes then know that
//! parities may not fit, and so does md, where it knows the level.
//!
//! ```text
//!  Clean ─► ToActive ─► Active ─► Flushing ─► ToClean ─► Clean
//! ```

use braid_array::format::superblock::{MAX_SECTOR, time_code};

use super::{Action, Client, ClientMember, Instant, Message, Phase, Question};

/// Clean after this long without a write.
const IDLE_MILLIS: u64 = 1000;

/// What the superblocks say, and are about to say.
#[derive(Debug)]
pub(super) struct Marks {
    state: State,
    events: u64,
    /// Parities may not fit until a resync has ended.
    unsynced: bool,
    /// When the last slice-set ended.
    idle_since: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The level has nothing that could fail to fit.
    Unneeded,
    Clean,
    ToActive {
        left: u32,
    },
    Active,
    Flushing,
    ToClean {
        left: u32,
    },
}

impl Marks {
    pub(super) fn of(members: &[Option<ClientMember>], redundant: bool) -> Self {
        let superblocks = || members.iter().flatten().map(|member| &member.superblock);
        let dirty = superblocks().any(|superblock| superblock.resync_offset != MAX_SECTOR);
        Self {
            state: if redundant { State::Clean } else { State::Unneeded },
            events: superblocks().map(|superblock| superblock.events).max().unwrap_or(0),
            unsynced: redundant && dirty,
            idle_since: Instant(0),
        }
    }

    pub(super) const fn needs_resync(&self) -> bool {
        self.unsynced
    }

    /// The resync has ended.
    pub(super) const fn synced(&mut self) {
        self.unsynced = false;
    }

    pub(super) const fn active(&self) -> bool {
        self.unsynced || !matches!(self.state, State::Clean | State::Unneeded)
    }

    pub(super) const fn events(&self) -> u64 {
        self.events
    }
}

impl Client {
    /// Whether slice-sets may be opened; if not, it is seen to.
    pub(super) fn may_write(&mut self) -> bool {
        match self.marks.state {
            State::Unneeded | State::Active => true,
            State::Flushing => {
                self.marks.state = State::Active;
                true
            }
            State::Clean => {
                let left = self.mark(0);
                self.marks.state = State::ToActive { left };
                false
            }
            State::ToActive { .. } | State::ToClean { .. } => false,
        }
    }

    /// Writes all superblocks; tells how many.
    fn mark(&mut self, resync_offset: u64) -> u32 {
        self.marks.events += 1;
        let events = self.marks.events;
        let micros = self.epoch_micros + self.now.0 / 1000;
        let utime = time_code(micros / 1_000_000, (micros % 1_000_000) as u32);
        let mut left = 0;
        for role in 0..self.params().nodes {
            let link = &mut self.links[usize::from(role)];
            if !link.alive() {
                continue;
            }
            let Some(member) = &mut link.member else { continue };
            let superblock = &mut member.superblock;
            (superblock.events, superblock.utime) = (events, utime);
            superblock.resync_offset = resync_offset;
            let sector = superblock.super_offset;
            let mut bytes = superblock.encode();
            bytes.resize(bytes.len().next_multiple_of(4096), 0);
            self.ask(role, Question::Mark, |tag| Message::WriteMeta { tag, sector, bytes });
            left += 1;
        }
        left
    }

    pub(super) const fn mark_answered(&mut self) {
        match &mut self.marks.state {
            State::ToActive { left } | State::ToClean { left } if *left > 1 => *left -= 1,
            State::ToActive { .. } => self.marks.state = State::Active,
            State::ToClean { .. } => self.marks.state = State::Clean,
            _ => {}
        }
    }

    /// A slice-set has ended.
    pub(super) const fn marks_touched(&mut self) {
        self.marks.idle_since = self.now;
    }

    fn idle_at(&self) -> Instant {
        self.marks.idle_since.plus_millis(IDLE_MILLIS)
    }

    pub(super) fn marks_deadline(&self) -> Option<Instant> {
        let due = self.marks.state == State::Active && self.no_sets() && self.cleanable();
        due.then(|| self.idle_at())
    }

    /// Whether the superblocks may ever say clean.
    const fn cleanable(&self) -> bool {
        !self.writes_over && !self.marks.unsynced
    }

    /// Marks the array clean when it is time, and carries a stop to its end.
    pub(super) fn marks_go_on(&mut self) {
        let stopping = matches!(self.phase, Phase::Stopping { .. });
        let over = stopping && self.requests.is_empty() && self.no_sets();
        let idle = self.no_sets() && self.now >= self.idle_at();
        match self.marks.state {
            State::Active if self.cleanable() && (over || idle) => {
                self.marks.state = State::Flushing;
                self.flush_nodes(None);
            }
            State::Unneeded if over && self.flushes.is_empty() => self.stop(),
            State::Clean if over => self.stop(),
            State::Active if over && !self.cleanable() => self.stop(),
            _ => {}
        }
    }

    /// The nodes have flushed for the machine itself.
    pub(super) fn flushed(&mut self, fine: bool) {
        if self.marks.state != State::Flushing {
            return;
        }
        if fine && self.no_sets() && self.cleanable() {
            let left = self.mark(MAX_SECTOR);
            self.marks.state = State::ToClean { left };
        } else {
            self.marks.state = State::Active;
            self.marks.idle_since = self.now;
            if !fine {
                self.end_writes();
            }
        }
    }

    fn stop(&mut self) {
        let Phase::Stopping { id, .. } = self.phase else { return };
        self.hang_up_all();
        // Nobody answers any more.
        self.questions.clear();
        self.phase = Phase::Stopped;
        self.actions.push_back(Action::Reply { id, result: Ok(()) });
    }
}
