//! Metadata updates: superblocks, bad-block logs and bitmap pages, one update at a time.
//!
//! Whoever needs something on the members before going on files a wish and gets a ticket; the
//! next update carries out all wishes filed so far, so many waiters share one. An update runs in
//! phases, each finished on every member before the next: flush (when asked), pages of the bitmap
//! and bad-block logs, superblocks: those of members that became in sync before the others, since
//! another member may be told to be faulty in the same breath. All its writes are FUA. This is
//! md's order: the bitmap's superblock never has an older event count than the array's.

use std::collections::BTreeSet;

use super::members::{Member, Members, State};
use super::{Keeper, LaneCommand};
use crate::MemberId;
use crate::format::superblock::{Role, feature};
use crate::format::{Bitmap, Superblock};

/// A superblock, a bad-block log or a page of the bitmap; no page is longer.
pub const PAGE_BYTES: u32 = 4096;

/// What the next update has to do.
#[derive(Debug, Default)]
pub(crate) struct Wishes {
    wanted: bool,
    flush: bool,
    superblock: bool,
    bitmap_pages: BTreeSet<usize>,
    bad_blocks: BTreeSet<MemberId>,
    /// Chunks of the bitmap that are idle are looked for; never together with `clear_bits`.
    nominate: bool,
    /// `events_cleared` becomes the event count that all members have.
    note_cleared: bool,
    clear_bits: bool,
    catch_up: bool,
}

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

/// Metadata for a member.
#[derive(Clone, Debug)]
pub struct MetaWrite {
    /// Whose.
    pub member: MemberId,
    /// Where: an absolute sector.
    pub sector: u64,
    /// What: whole blocks, at most a page.
    pub bytes: Vec<u8>,
}

struct Update {
    phase: Phase,
    /// What has been asked for and not been answered.
    pending: usize,
    /// Whose superblocks the phase of arrivals writes.
    arrivals: Vec<MemberId>,
    /// The superblocks of the last phase, made together with those of the phase before.
    superblocks: Vec<MetaWrite>,
    wishes: Wishes,
    bad_block_pages: Vec<MetaWrite>,
    /// The array was idle when this began, so the superblocks may say clean.
    clean: bool,
    /// How far recovery had come when the flush began; durable after it.
    recovered: Vec<(MemberId, u64)>,
    resynced: u64,
}

/// The metadata writer.
#[derive(Default)]
pub(crate) struct Meta {
    done: u64,
    running: Option<Update>,
    next: Wishes,
}

impl std::fmt::Debug for Meta {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meta").field("done", &self.done).finish_non_exhaustive()
    }
}

impl Meta {
    /// The update that will carry out wishes filed now.
    pub(crate) fn ticket(&self) -> u64 {
        self.done + 1 + u64::from(self.running.is_some())
    }

    pub(crate) const fn is_done(&self, ticket: u64) -> bool {
        ticket <= self.done
    }

    /// Superblocks are waiting to be written.
    pub(crate) const fn wants_superblock(&self) -> bool {
        self.next.superblock
    }

    /// What the running update waits for.
    pub(super) fn pending(&self) -> usize {
        self.running.as_ref().map_or(0, |running| running.pending)
    }

    /// How many members the running update says are in sync that were not.
    pub(super) fn arrivals(&self) -> usize {
        self.running.as_ref().map_or(0, |running| running.arrivals.len())
    }

    pub(crate) const fn is_idle(&self) -> bool {
        self.running.is_none() && !self.next.wanted
    }
}

impl Keeper {
    /// Files a wish for new superblocks; with `flush`, after what was written so far is durable.
    pub(crate) fn wish_superblock(&mut self, flush: bool) -> u64 {
        self.meta.next.wanted = true;
        self.meta.next.superblock = true;
        self.meta.next.flush |= flush;
        self.meta.ticket()
    }

    pub(crate) fn wish_bitmap_page(&mut self, page: usize) {
        self.meta.next.wanted = true;
        self.meta.next.bitmap_pages.insert(page);
    }

    pub(crate) fn wish_whole_bitmap(&mut self) {
        let pages = self.intent.as_ref().map_or(0, |intent| intent.bitmap.pages() as usize);
        self.meta.next.bitmap_pages.extend(0..pages);
        self.meta.next.wanted |= pages > 0;
    }

    /// The first update is to begin with the members that missed the last one.
    pub(crate) const fn wish_catch_up(&mut self) {
        self.meta.next.wanted = true;
        self.meta.next.catch_up = true;
    }

    /// The first move of a checkpoint: what is idle now may be cleared after the second.
    pub(super) fn wish_first_move(&mut self) -> u64 {
        self.meta.next.nominate = true;
        self.wish_superblock(!crate::broken("clear-after-flush"))
    }

    /// The second move of a checkpoint: all members have made the first.
    pub(super) fn wish_second_move(&mut self) -> u64 {
        self.meta.next.note_cleared = true;
        self.wish_superblock(false)
    }

    /// The bits of what was idle at the first move of a checkpoint are to be cleared.
    pub(super) fn wish_clear_bits(&mut self) -> u64 {
        self.meta.next.wanted = true;
        self.meta.next.clear_bits = true;
        self.meta.ticket()
    }

    pub(crate) fn wish_bad_blocks(&mut self, member: MemberId) {
        self.meta.next.bad_blocks.insert(member);
        self.wish_superblock(true);
    }

    /// Grows with each update that is over or under way.
    #[must_use]
    pub fn updates(&self) -> u64 {
        self.meta.ticket()
    }

    /// Begins the next update when one is wanted and none runs.
    pub fn drive_meta(&mut self) {
        if self.meta.running.is_some() || !self.meta.next.wanted {
            return;
        }
        let mut wishes = std::mem::take(&mut self.meta.next);
        if self.metadata_frozen() {
            // Without redundancy there is no metadata to update, but there are caches to flush.
            let done = self.read_only || self.writes_over || self.stop.over;
            let flush = wishes.flush && !self.is_redundant() && !done;
            if !flush {
                self.meta.done += 1;
                self.meta_done();
                return;
            }
            wishes = Wishes { wanted: true, flush, ..Wishes::default() };
        }
        let bad_block_pages = wishes
            .bad_blocks
            .iter()
            .filter_map(|id| self.members.get(*id).map(|member| (*id, member)))
            .filter_map(|(member, m)| {
                bad_block_page(m).map(|(sector, bytes)| MetaWrite { member, sector, bytes })
            })
            .collect();
        let recovered = self
            .members
            .iter_live()
            .filter_map(|(id, member)| match member.state {
                State::Rebuilding { offset, .. } => Some((id, offset)),
                _ => None,
            })
            .collect();
        if wishes.nominate
            && let Some(intent) = &mut self.intent
        {
            let copying = self.copying.as_ref();
            let lacks = |from, to| copying.is_some_and(|copying| copying.lacks(from, to));
            intent.nominate(lacks);
        }
        self.meta.running = Some(Update {
            phase: Phase::CatchUp,
            pending: 0,
            arrivals: Vec::new(),
            superblocks: Vec::new(),
            bad_block_pages,
            clean: !self.clean.active,
            recovered,
            resynced: self.clean.resynced,
            wishes,
        });
        self.begin_catch_up();
        self.advance_meta();
    }

    /// The newest superblock goes to the members that do not have it, as it is. Were the next one
    /// written at once, a power cut could leave members two updates behind, and those are stale.
    /// A member that the missed update gave another role keeps the superblock of its old one, which
    /// says truly what it holds.
    fn begin_catch_up(&mut self) {
        if !self.meta.running.as_ref().is_some_and(|running| running.wishes.catch_up) {
            return;
        }
        let mut writes = Vec::new();
        let newest = &self.superblock;
        for (member, m) in self.members.iter_live() {
            let own = &m.superblock;
            if own.events < newest.events && own.role() == newest.role_of(own.dev_number) {
                writes.push(superblock_write(member, &own.with_news_of(newest)));
            }
        }
        self.ask_to_write(writes);
    }

    fn ask_to_write(&mut self, writes: Vec<MetaWrite>) {
        let Some(running) = &mut self.meta.running else { return };
        running.pending += writes.len();
        self.out.extend(writes.into_iter().map(LaneCommand::Write));
    }

    fn begin_flush(&mut self) {
        let Some(running) = &mut self.meta.running else { return };
        if running.wishes.flush {
            let members: Vec<MemberId> = self.members.iter_live().map(|(id, _)| id).collect();
            running.pending = members.len();
            self.out.extend(members.into_iter().map(LaneCommand::Flush));
        }
    }

    /// Goes to the next phase while nothing of this one is outstanding.
    fn advance_meta(&mut self) {
        while let Some(running) = &mut self.meta.running
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
                    let superblocks = std::mem::take(&mut running.superblocks);
                    self.ask_to_write(superblocks);
                }
                Phase::Superblocks => {
                    self.meta.running = None;
                    self.meta.done += 1;
                    self.meta_done();
                    self.drive_meta();
                    return;
                }
            }
        }
    }

    fn begin_pages(&mut self) {
        let Some(running) = &mut self.meta.running else { return };
        if self.writes_over {
            // The superblocks go on telling the last state in which the array could change.
            running.wishes = Wishes::default();
            return;
        }
        if running.wishes.flush {
            for (id, offset) in &running.recovered {
                if let Some(member) = self.members.get_mut(*id) {
                    member.superblock.recovery_offset = *offset;
                }
            }
            self.clean.durable_resynced = running.resynced;
        }
        let mut writes = std::mem::take(&mut running.bad_block_pages);
        let mut pages = std::mem::take(&mut running.wishes.bitmap_pages);
        let superblock = running.wishes.superblock;
        let (note, clear) = (running.wishes.note_cleared, running.wishes.clear_bits);
        // What all members say.
        let events = self.superblock.events;
        let first = running.wishes.nominate;
        let stays = crate::broken("events-move") && (first || note)
            || crate::broken("events-move-twice") && note;
        if superblock && !stays {
            self.superblock.events += 1;
        }
        if let Some(intent) = &mut self.intent {
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
                intent.bitmap.superblock.events = self.superblock.events;
                pages.insert(0);
            }
            for (member, m) in self.members.iter_live().filter(|(_, m)| m.state.role().is_some()) {
                let Some(start) = m.superblock.bitmap_sector() else { continue };
                writes.extend(pages.iter().map(|page| MetaWrite {
                    member,
                    sector: start + *page as u64 * 8,
                    bytes: bitmap_page(&intent.bitmap, *page as u64, self.block_bytes),
                }));
            }
        }
        self.ask_to_write(writes);
    }

    fn begin_superblocks(&mut self) {
        let failed = self.failed;
        let Some(running) = &mut self.meta.running else { return };
        if failed {
            // They go on telling the last state in which the array could run.
            running.wishes.superblock = false;
            running.arrivals.clear();
            running.superblocks.clear();
        }
        if !running.wishes.superblock {
            return;
        }
        let clean = running.clean && !self.clean.active;
        let (mut arrivals, mut others) = (Vec::new(), Vec::new());
        let stays = |m: &Member| !matches!(m.state, State::Leaving { .. });
        for (member, m) in self.members.iter_live().filter(|(_, m)| stays(m)) {
            let write = superblock_write(member, &self.superblock_of(m, clean));
            if m.arriving {
                arrivals.push(write);
            } else {
                others.push(write);
            }
        }
        self.members.arrived();
        self.clean.on_disk = clean;
        if let Some(running) = &mut self.meta.running {
            running.arrivals = arrivals.iter().map(|write| write.member).collect();
            running.superblocks = others;
        }
        self.ask_to_write(arrivals);
    }

    /// One thing that the running update asked for is done, or its member has failed.
    pub fn update_done(&mut self) {
        if let Some(running) = &mut self.meta.running {
            running.pending -= 1;
        }
        self.advance_meta();
    }

    /// An update is complete: lets those go on who waited for it.
    fn meta_done(&mut self) {
        self.repeat_failure_update();
        self.drive_checkpoint();
        if let Some(intent) = &mut self.intent {
            intent.told(self.meta.done);
        }
        self.out.push_back(LaneCommand::Updated);
        let (meta, out) = (&self.meta, &mut self.out);
        self.replies.retain(|(ticket, id)| {
            let waits = !meta.is_done(*ticket);
            if !waits {
                out.push_back(LaneCommand::Reply(*id, Ok(())));
            }
            waits
        });
    }

    /// The superblock of one member as it is to be written now.
    pub(crate) fn superblock_of(&self, member: &Member, clean: bool) -> Superblock {
        let array = &self.superblock;
        let mut image = member.superblock.with_array_of(array);
        image.utime = self.wall_clock();
        image.resync_offset = if clean { self.clean.durable_resynced } else { 0 };
        image.roles = self.role_table();
        image.feature_map = array.feature_map & feature::RAID0_LAYOUT;
        image.feature_map |= self.elsewhere.features(clean, !self.has_to_resync());
        if self.intent.is_some() {
            image.feature_map |= feature::BITMAP_OFFSET;
        }
        if !member.bad_blocks.is_empty() {
            image.feature_map |= feature::BAD_BLOCKS;
        }
        match member.state {
            State::Rebuilding { replacement, marked_below, .. } => {
                image.feature_map |= feature::RECOVERY_OFFSET;
                if replacement {
                    image.feature_map |= feature::REPLACEMENT;
                }
                if marked_below == u64::MAX {
                    image.feature_map |= feature::RECOVERY_BITMAP;
                }
            }
            _ => image.recovery_offset = 0,
        }
        image
    }

    /// What superblocks say of each device number.
    fn role_table(&self) -> Vec<Role> {
        let longest = self.members.iter().map(|(_, m)| m.superblock.dev_number as usize + 1).max();
        let len = longest.unwrap_or(0).max(self.superblock.roles.len());
        let mut roles = vec![Role::Spare; len];
        for (_, member) in self.members.iter() {
            roles[member.superblock.dev_number as usize] = match member.state {
                State::InSync { role } | State::Rebuilding { role, .. } => Role::Active(role),
                State::Spare => Role::Spare,
                State::Leaving { .. } | State::Faulty { .. } => Role::Faulty,
            };
        }
        roles
    }
}

/// Did one of these, who became in sync, fail before its superblock said so, and another get its
/// role back? The others are not told what is no longer so.
fn gave_role_back(arrivals: &[MemberId], members: &Members) -> bool {
    arrivals.iter().any(|id| !members.live(*id)) && members.any_arriving()
}

fn superblock_write(member: MemberId, image: &Superblock) -> MetaWrite {
    let mut bytes = image.encode();
    bytes.resize(PAGE_BYTES as usize, 0);
    MetaWrite { member, sector: image.super_offset, bytes }
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
