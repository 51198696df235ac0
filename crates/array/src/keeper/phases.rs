//! Carrying out one metadata update: superblocks, bad-block logs and bitmap pages.
//!
//! An update runs in phases, each finished on every member before the next: flush (when asked),
//! pages of the bitmap and bad-block logs, superblocks: those of members that became in sync before
//! the others, since another member may be told to be faulty in the same breath, and that of a
//! journal which goes on, without which the others would not start. All its writes are
//! FUA. This is md's order: the bitmap's superblock never has an older event count than the
//! array's.

use super::LaneCommand;
use super::core::Core;
use super::journal_device::JournalDevice;
use super::logs;
use super::members::{Member, Members, State};
use super::sync::Ranges;
use super::update::{MetaWrite, PAGE_BYTES, Update, UpdatePhase, Wanted};
use crate::MemberId;
use crate::format::{Bitmap, Superblock, Version};

/// The outcome of looking for an update to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begun {
    /// No update is queued, or one is under way.
    Nothing,
    /// The update counts as done: no metadata are written any more.
    Dropped,
    /// [`Core::advance_update`] is due.
    Running,
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
            phase: UpdatePhase::CatchUp,
            pending: 0,
            arrivals: Vec::new(),
            losses: Vec::new(),
            superblocks: Vec::new(),
            bad_block_pages,
            clean: !self.metadata.clean.active,
            recovered: self.members.rebuilding(),
            resynced: self.metadata.clean.resynced,
            position: self.metadata.position,
            journal_tail: self.metadata.journal.as_ref().and_then(JournalDevice::tail),
            wanted,
        });
        self.begin_catch_up();
        Begun::Running
    }

    /// Writes the newest superblock to the members that do not have it, as it is. If the next one
    /// were written at once, a power cut could leave members two updates behind, and those are
    /// stale. A member that the missed update gave another role keeps the superblock of its old
    /// one, which says truly what it holds.
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
        let placed = self.metadata.superblock.reshape.position != running.position;
        let broken = crate::broken("reshape-flush") || crate::broken("move-flush");
        if running.wanted.flush && !(placed && broken) {
            let members: Vec<MemberId> = self.members.iter_live().map(|(id, _)| id).collect();
            running.pending = members.len();
            self.out.0.extend(members.into_iter().map(LaneCommand::Flush));
        }
    }

    /// Goes to the next phase while nothing of this one is outstanding. Returns whether the update
    /// is complete.
    pub(super) fn advance_update(&mut self) -> bool {
        while let Some(running) = &mut self.metadata.running
            && running.pending == 0
        {
            match running.phase {
                UpdatePhase::CatchUp => {
                    running.phase = UpdatePhase::Flush;
                    self.begin_flush();
                }
                UpdatePhase::Flush => {
                    running.phase = UpdatePhase::Pages;
                    self.begin_pages();
                }
                UpdatePhase::Pages => {
                    running.phase = UpdatePhase::Arrivals;
                    self.begin_superblocks();
                }
                UpdatePhase::Arrivals
                    if gave_role_back(&running.arrivals, &self.members)
                        || lost_journal(&running.arrivals, &self.members) =>
                {
                    self.begin_superblocks();
                }
                UpdatePhase::Arrivals => {
                    running.phase = UpdatePhase::Superblocks;
                    running.arrivals.clear();
                    let superblocks = std::mem::take(&mut running.superblocks);
                    self.queue_writes(superblocks);
                }
                UpdatePhase::Superblocks => {
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
            self.metadata.superblock.reshape.position = running.position;
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
            logs::journal_goes_on(self);
        }
        let Some(running) = &mut self.metadata.running else { return };
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
        self.metadata.superblock.utime = self.metadata.wall_clock(self.now);
        if self.metadata.superblock.version == Version::V0_90 {
            self.members.renumber();
        }
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

    fn superblock_write(&self, member: MemberId, image: &Superblock) -> MetaWrite {
        let bytes = image.blocks(self.metadata.block_bytes);
        MetaWrite { member, sector: image.super_offset, bytes }
    }

    /// Takes note that a command of the running update is done, or that its member has failed.
    pub(super) const fn update_answered(&mut self) {
        if let Some(running) = &mut self.metadata.running {
            running.pending -= 1;
        }
    }
}

/// Returns whether one of these arrivals failed before its superblock said that it is in sync, and
/// another member got its role back. The other members are not told then what is no longer so.
fn gave_role_back(arrivals: &[MemberId], members: &Members) -> bool {
    arrivals.iter().any(|id| !members.live(*id)) && members.any_arriving()
}

/// Returns whether a journal failed before its superblock said that it goes on: the array goes on
/// without it.
fn lost_journal(arrivals: &[MemberId], members: &Members) -> bool {
    arrivals.iter().any(|id| {
        let state = members.get(*id).map(|member| member.state);
        matches!(state, Some(State::Faulty { role: None }))
    })
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
