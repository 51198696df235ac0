//! One metadata update: superblocks, bad-block logs and bitmap pages.
//!
//! An update runs in phases, each finished on every member before the next: flush (when asked),
//! pages of the bitmap and bad-block logs, superblocks: those of members that became in sync before
//! the others, since another member may be told to be faulty in the same breath. All its writes are
//! FUA. This is md's order: the bitmap's superblock never has an older event count than the
//! array's.

use super::LaneCommand;
use super::core::Core;
use super::journal_device::JournalDevice;
use super::members::{Member, Members, State};
use super::metadata::{MetaWrite, Wanted};
use super::sync::Ranges;
use crate::MemberId;
use crate::assemble::Had;
use crate::format::superblock::{DevRole, MAX_SECTOR, feature};
use crate::format::{Bitmap, Superblock};

/// A superblock, a bad-block log or a page of the bitmap; no page is longer.
pub const PAGE_BYTES: u32 = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Superblocks of members that missed the last update before the array was started.
    CatchUp,
    Flush,
    Pages,
    /// Superblocks of members that have just become in sync.
    Arrivals,
    /// Those of all others.
    Superblocks,
}

/// The update under way.
#[derive(Debug)]
pub(super) struct Update {
    phase: Phase,
    /// What has been asked for and not been answered.
    pending: usize,
    /// Whose superblocks the phase of arrivals writes, until that is over.
    arrivals: Vec<MemberId>,
    /// Of whose loss the superblocks of the last phase tell first.
    losses: Vec<MemberId>,
    /// The superblocks of the last phase, made together with those of the phase before.
    superblocks: Vec<MetaWrite>,
    wanted: Wanted,
    bad_block_pages: Vec<MetaWrite>,
    /// The array was idle when this began, so the superblocks may say clean.
    clean: bool,
    /// How far recovery had come when the flush began; durable after it.
    recovered: Vec<(MemberId, u64)>,
    resynced: u64,
    /// The tail of the journal when the flush began.
    journal_tail: Option<u64>,
}

/// What became of the updates that are queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begun {
    /// None is queued, or one is under way.
    Nothing,
    /// It counts as done: no metadata are written any more.
    Dropped,
    /// [`Core::advance_update`] is due.
    Running,
}

impl Update {
    /// What is outstanding.
    pub(super) const fn pending(&self) -> usize {
        self.pending
    }

    /// How many members are being told that they are in sync, which they were not.
    pub(super) const fn arrivals(&self) -> usize {
        self.arrivals.len()
    }
}

impl Core {
    /// Begins the next update when one is queued and none runs. `lacks`: what a copy of a member
    /// has not got yet.
    pub(super) fn begin_update(&mut self, lacks: Option<&Ranges>) -> Begun {
        if self.metadata.running.is_some() || !self.metadata.next.any {
            return Begun::Nothing;
        }
        let mut wanted = std::mem::take(&mut self.metadata.next);
        let service = self.service;
        if service.metadata_frozen() {
            // Without redundancy there is no metadata to update, but there are caches to flush.
            let done = service.read_only || service.writes_over || service.stopped;
            let flush = wanted.flush && !service.redundant && !done;
            if !flush {
                self.metadata.done += 1;
                return Begun::Dropped;
            }
            wanted = Wanted { any: true, flush, ..Wanted::default() };
        }
        let bad_block_pages = wanted
            .bad_blocks
            .iter()
            .filter_map(|id| self.members.get(*id).map(|member| (*id, member)))
            .filter_map(|(member, m)| {
                bad_block_page(m).map(|(sector, bytes)| MetaWrite { member, sector, bytes })
            })
            .collect();
        if wanted.nominate
            && let Some(intent) = &mut self.metadata.intent
        {
            intent.nominate(|from, to| lacks.is_some_and(|lacks| lacks.overlaps(from, to)));
        }
        self.metadata.running = Some(Update {
            phase: Phase::CatchUp,
            pending: 0,
            arrivals: Vec::new(),
            losses: Vec::new(),
            superblocks: Vec::new(),
            bad_block_pages,
            clean: !self.metadata.clean.active,
            recovered: self.members.rebuilding(),
            resynced: self.metadata.clean.resynced,
            journal_tail: self.metadata.journal.as_ref().and_then(JournalDevice::tail),
            wanted,
        });
        self.begin_catch_up();
        Begun::Running
    }

    /// The newest superblock goes to the members that do not have it, as it is. Were the next one
    /// written at once, a power cut could leave members two updates behind, and those are stale.
    /// A member that the missed update gave another role keeps the superblock of its old one, which
    /// says truly what it holds.
    fn begin_catch_up(&mut self) {
        if !self.metadata.running.as_ref().is_some_and(|running| running.wanted.catch_up) {
            return;
        }
        let mut writes = Vec::new();
        let newest = &self.metadata.superblock;
        for (member, m) in self.members.iter_live() {
            let own = &m.superblock;
            if own.events < newest.events && own.role() == newest.role_of(own.dev_number) {
                writes.push(self.superblock_write(member, &own.with_news_of(newest)));
            }
        }
        self.queue_writes(writes);
    }

    fn queue_writes(&mut self, writes: Vec<MetaWrite>) {
        let Some(running) = &mut self.metadata.running else { return };
        running.pending += writes.len();
        self.out.0.extend(writes.into_iter().map(LaneCommand::Write));
    }

    fn begin_flush(&mut self) {
        let Some(running) = &mut self.metadata.running else { return };
        if running.wanted.flush {
            let members: Vec<MemberId> = self.members.iter_live().map(|(id, _)| id).collect();
            running.pending = members.len();
            self.out.0.extend(members.into_iter().map(LaneCommand::Flush));
        }
    }

    /// Goes to the next phase while nothing of this one is outstanding. Is the update complete?
    pub(super) fn advance_update(&mut self) -> bool {
        while let Some(running) = &mut self.metadata.running
            && running.pending == 0
        {
            match running.phase {
                Phase::CatchUp => {
                    running.phase = Phase::Flush;
                    self.begin_flush();
                }
                Phase::Flush => {
                    running.phase = Phase::Pages;
                    self.begin_pages();
                }
                Phase::Pages => {
                    running.phase = Phase::Arrivals;
                    self.begin_superblocks();
                }
                Phase::Arrivals if gave_role_back(&running.arrivals, &self.members) => {
                    self.begin_superblocks();
                }
                Phase::Arrivals => {
                    running.phase = Phase::Superblocks;
                    running.arrivals.clear();
                    let superblocks = std::mem::take(&mut running.superblocks);
                    self.queue_writes(superblocks);
                }
                Phase::Superblocks => {
                    for id in std::mem::take(&mut running.losses) {
                        self.members.change(id, |member| member.loss_untold = false);
                    }
                    self.metadata.running = None;
                    self.metadata.done += 1;
                    let told = self.metadata.journal.as_mut().and_then(JournalDevice::told);
                    if let Some(id) = told {
                        self.out.push(LaneCommand::Reply(id, Ok(())));
                    }
                    return true;
                }
            }
        }
        false
    }

    fn begin_pages(&mut self) {
        let Some(running) = &mut self.metadata.running else { return };
        if self.service.writes_over {
            // The superblocks go on telling the last state in which the array could change.
            running.wanted = Wanted::default();
            return;
        }
        if running.wanted.flush {
            for (id, offset) in &running.recovered {
                if let Some(member) = self.members.get_mut(*id) {
                    member.superblock.recovery_offset = *offset;
                }
            }
            self.metadata.clean.durable_resynced = running.resynced;
            if let (Some(journal), Some(tail)) = (&mut self.metadata.journal, running.journal_tail)
            {
                journal.durable_tail = Some(tail);
            }
        }
        let mut writes = std::mem::take(&mut running.bad_block_pages);
        let mut pages = std::mem::take(&mut running.wanted.bitmap_pages);
        let superblock = running.wanted.superblock;
        let note = running.wanted.note_cleared;
        let clear = running.wanted.clear_bits;
        // What all members say.
        let events = self.metadata.superblock.events;
        let first = running.wanted.nominate;
        let stays = crate::broken("events-move") && (first || note)
            || crate::broken("events-move-twice") && note;
        if superblock && !stays {
            self.metadata.superblock.events += 1;
        }
        if let Some(intent) = &mut self.metadata.intent {
            let whole = self.members.degraded() == 0;
            if note && whole {
                // Before any bit goes: after a crash nobody may know of that alone.
                intent.bitmap.superblock.events_cleared = events;
            } else if note && !crate::broken("clear-when-whole") {
                intent.forget_nominated();
            }
            if clear && (whole || crate::broken("clear-when-whole")) {
                intent.clear_nominated(&mut pages);
            }
            if superblock {
                intent.bitmap.superblock.events = self.metadata.superblock.events;
                pages.insert(0);
            }
            for (member, m) in self.members.iter_live().filter(|(_, m)| m.state.role().is_some()) {
                let Some(start) = m.superblock.bitmap_sector() else { continue };
                writes.extend(pages.iter().map(|page| MetaWrite {
                    member,
                    sector: start + *page as u64 * 8,
                    bytes: bitmap_page(&intent.bitmap, *page as u64, self.metadata.block_bytes),
                }));
            }
        }
        self.queue_writes(writes);
    }

    fn begin_superblocks(&mut self) {
        let failed = self.service.failed;
        let Some(running) = &mut self.metadata.running else { return };
        if failed {
            // They go on telling the last state in which the array could run.
            running.wanted.superblock = false;
            running.arrivals.clear();
            running.superblocks.clear();
        }
        if !running.wanted.superblock {
            return;
        }
        let clean = running.clean && !self.metadata.clean.active;
        let mut arrivals = Vec::new();
        let mut others = Vec::new();
        let losses: Vec<MemberId> = self.members.untold().collect();
        let in_steps = self.rules.losses_are_noted && !losses.is_empty();
        for (member, m) in self.members.iter_live() {
            let begins = m.state == State::Journal && !self.metadata.has_journal();
            if begins || matches!(m.state, State::Retiring { .. }) {
                continue;
            }
            let image = self.superblock_of(m, clean);
            if m.arriving && in_steps {
                arrivals.push(self.superblock_write(member, &self.before_losses(&image)));
            } else if m.arriving {
                arrivals.push(self.superblock_write(member, &image));
                continue;
            }
            others.push(self.superblock_write(member, &image));
        }
        self.members.arrived();
        self.metadata.clean.on_disk = clean;
        if let Some(running) = &mut self.metadata.running {
            running.arrivals = arrivals.iter().map(|write| write.member).collect();
            running.losses = losses;
            running.superblocks = others;
        }
        self.queue_writes(arrivals);
    }

    /// One thing that the running update asked for is done, or its member has failed.
    pub(super) const fn update_answered(&mut self) {
        if let Some(running) = &mut self.metadata.running {
            running.pending -= 1;
        }
    }

    /// The superblock of one member as it is to be written now.
    fn superblock_of(&self, member: &Member, clean: bool) -> Superblock {
        let metadata = &self.metadata;
        let array = &metadata.superblock;
        let mut image = member.superblock.with_array_of(array);
        image.utime = metadata.wall_clock(self.now);
        image.resync_offset = metadata.resync_offset(clean);
        image.roles = self.role_table();
        image.feature_map = array.feature_map & (feature::RAID0_LAYOUT | feature::LOGS);
        // By what is written here: that nothing waits for a resync may still be on its way.
        let in_line = image.resync_offset == MAX_SECTOR;
        image.feature_map |= metadata.journals.features(clean, in_line);
        if metadata.intent.is_some() {
            image.feature_map |= feature::BITMAP_OFFSET;
        }
        if !member.bad_blocks.is_empty() {
            image.feature_map |= feature::BAD_BLOCKS;
        }
        match member.state {
            State::Rebuilding { replacement, had, .. } => {
                image.feature_map |= feature::RECOVERY_OFFSET;
                if replacement {
                    image.feature_map |= feature::REPLACEMENT;
                }
                if had == Had::All {
                    image.feature_map |= feature::RECOVERY_BITMAP;
                }
            }
            State::Journal => {
                let tail = metadata.journal.and_then(|journal| journal.durable_tail);
                image.recovery_offset = tail.unwrap_or(0);
            }
            _ => image.recovery_offset = 0,
        }
        image
    }

    fn superblock_write(&self, member: MemberId, image: &Superblock) -> MetaWrite {
        let bytes = image.blocks(self.metadata.block_bytes);
        MetaWrite { member, sector: image.super_offset, bytes }
    }

    /// The superblock of a member that became in sync, as long as nobody is to hear of a loss: with
    /// the event count that all have, who is lost keeps his role and is not stale. If he is found
    /// without this member, and goes on, this one says nothing against that.
    fn before_losses(&self, image: &Superblock) -> Superblock {
        let mut image = Superblock { events: image.events - 1, ..image.clone() };
        for (_, lost) in self.members.iter().filter(|(_, member)| member.loss_untold) {
            if let State::Faulty { role: Some(role) } = lost.state
                && self.members.role(role).holder.is_none()
            {
                image.roles[lost.superblock.dev_number as usize] = DevRole::Active(role);
            }
        }
        image
    }

    /// What superblocks say of each device number.
    fn role_table(&self) -> Vec<DevRole> {
        let made_faulty = &self.metadata.made_faulty;
        let numbers = self.members.iter().map(|(_, m)| m.superblock.dev_number);
        let numbers = numbers.chain(made_faulty.iter().copied());
        let longest = numbers.map(|number| number as usize + 1).max();
        let len = longest.unwrap_or(0).max(self.metadata.superblock.roles.len());
        let mut roles = vec![DevRole::Spare; len];
        let away = if self.rules.faulty_stay_out { DevRole::Spare } else { DevRole::Faulty };
        for (_, member) in self.members.iter() {
            roles[member.superblock.dev_number as usize] = match member.state {
                State::InSync { role } | State::Rebuilding { role, .. } => DevRole::Active(role),
                State::Spare => DevRole::Spare,
                State::Journal if self.metadata.has_journal() => DevRole::Journal,
                State::Journal => DevRole::Spare,
                State::Retiring { .. } | State::Faulty { .. } => away,
            };
        }
        for &number in made_faulty.iter().filter(|number| !self.members.is_live_number(**number)) {
            roles[number as usize] = DevRole::Faulty;
        }
        roles
    }
}

/// Did one of these, who became in sync, fail before its superblock said so, and another get its
/// role back? The others are not told what is no longer so.
fn gave_role_back(arrivals: &[MemberId], members: &Members) -> bool {
    arrivals.iter().any(|id| !members.live(*id)) && members.any_arriving()
}

/// Device sector and contents of a member's bad-block log, when it has one.
fn bad_block_page(member: &Member) -> Option<(u64, Vec<u8>)> {
    let superblock = &member.superblock;
    let sector = superblock.bblog_sector()?;
    let mut bytes = member.bad_blocks.encode(superblock.bblog_shift);
    bytes.resize(PAGE_BYTES as usize, 0xff);
    Some((sector, bytes))
}

/// A page of the bitmap, cut to what belongs to it: the bad-block log may lie behind the last.
fn bitmap_page(bitmap: &Bitmap, page: u64, block_bytes: u32) -> Vec<u8> {
    let mut bytes = bitmap.encode_page(page);
    bytes.truncate(bitmap.page_bytes(page, block_bytes) as usize);
    bytes
}
