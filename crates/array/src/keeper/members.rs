//! The members of an array, and who holds which role.

use super::MOVED;
use super::doubts::Doubts;
use crate::assemble::{Had, MemberConfig, Standing};
use crate::format::ppl::PplArea;
use crate::format::{BadBlocks, Superblock};
use crate::plan::{MemberPlace, RoleView};
use crate::status::MemberState;
use crate::{Instant, MemberId, Role};

/// The state of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Holds its role completely.
    InSync { role: Role },
    /// Holds its role below `offset`, in sectors of its data area. Within what the member `had`, it
    /// lacks only what the bitmap marks.
    Rebuilding { role: Role, offset: u64, replacement: bool, had: Had },
    /// Holds its role completely, and has been taken over from: the superblocks that say so are on
    /// their way. Until they have arrived it gets what its heir gets, and the role back should the
    /// heir fail.
    Retiring { role: Role },
    /// Waits to be needed.
    Spare,
    /// Holds the journal.
    Journal,
    /// No I/O goes there any more.
    Faulty { role: Option<Role> },
}

impl State {
    /// The state of a member that is given all of its role, except for what it `had`: of that it is
    /// given what the bitmap marks.
    pub(super) const fn rebuilding_from_start(role: Role, had: Had) -> Self {
        Self::Rebuilding { role, offset: 0, replacement: false, had }
    }

    pub(crate) const fn role(self) -> Option<Role> {
        match self {
            Self::InSync { role } | Self::Rebuilding { role, .. } | Self::Retiring { role } => {
                Some(role)
            }
            Self::Spare | Self::Journal => None,
            Self::Faulty { role } => role,
        }
    }

    /// Returns how far the member is rebuilt, if it is being rebuilt.
    pub(super) const fn rebuilt_below(self) -> Option<u64> {
        match self {
            Self::Rebuilding { offset, .. } => Some(offset),
            _ => None,
        }
    }

    pub(crate) const fn is_live(self) -> bool {
        !matches!(self, Self::Faulty { .. })
    }

    pub(crate) const fn is_rebuilding(self) -> bool {
        matches!(self, Self::Rebuilding { .. })
    }

    pub(crate) const fn public(self) -> MemberState {
        match self {
            Self::InSync { .. } | Self::Retiring { .. } => MemberState::InSync,
            Self::Rebuilding { .. } => MemberState::Rebuilding,
            Self::Spare => MemberState::Spare,
            Self::Journal => MemberState::Journal,
            Self::Faulty { .. } => MemberState::Faulty,
        }
    }
}

/// The rows of the data area that have moved, and by how many sectors towards the device's end: by
/// less than none, those before this row, and otherwise those from it on. Rows of copies have moved
/// by themselves: see [`MOVED`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moved {
    pub(super) front: u64,
    pub(super) by: i64,
}

/// An attached member.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) device: String,
    device_sectors: u64,
    moved: Moved,
    /// Its own superblock; the array-wide fields are filled in when it is written.
    pub(crate) superblock: Superblock,
    pub(crate) bad_blocks: BadBlocks,
    pub(crate) state: State,
    pub(crate) errors: u64,
    pub(crate) doubts: Doubts,
    pub(crate) want_replacement: bool,
    /// The spare that is to replace it, where one was named.
    pub(crate) wanted_spare: Option<MemberId>,
    /// Became in sync, and its superblock does not say so yet.
    pub(crate) arriving: bool,
    /// The member was lost, and no superblock says so yet.
    pub(super) loss_untold: bool,
    /// Held all of its role when it was lost.
    pub(super) had_all: bool,
    /// Held all of its role before something was torn: what nobody else can tell of that is as it
    /// was there.
    pub(super) keeps_own: bool,
    /// I/O in flight on it, and since when it has answered none.
    pub(crate) in_flight: u32,
    pub(crate) silent_since: Instant,
    /// Since when it has no room for what must be written.
    pub(crate) full_since: Option<Instant>,
    /// Sector at which the last read ended, for choosing a mirror.
    pub(crate) last_end: u64,
}

impl Member {
    pub(crate) fn new(config: MemberConfig) -> Self {
        let state = match config.standing {
            Standing::InSync { role } => State::InSync { role },
            Standing::Rebuilding { role, offset, replacement, had } => {
                State::Rebuilding { role, offset, replacement, had }
            }
            Standing::Spare => State::Spare,
            Standing::Journal => State::Journal,
            Standing::Faulty { role } => State::Faulty { role },
        };
        Self {
            device: config.device,
            device_sectors: config.device_sectors,
            moved: Moved::default(),
            superblock: config.superblock,
            bad_blocks: config.bad_blocks,
            state,
            errors: 0,
            doubts: Doubts::default(),
            want_replacement: false,
            wanted_spare: None,
            arriving: false,
            loss_untold: false,
            had_all: false,
            keeps_own: false,
            in_flight: 0,
            silent_since: Instant::default(),
            full_since: None,
            last_end: 0,
        }
    }

    /// Returns how many sectors the device has for data: more than the superblock says where the
    /// device has grown, and nothing lies behind the data.
    pub(super) const fn data_room(&self) -> u64 {
        let superblock = &self.superblock;
        if superblock.version.is_behind_data() {
            return superblock.data_size;
        }
        let room = self.device_sectors.saturating_sub(superblock.data_offset);
        if room > superblock.data_size { room } else { superblock.data_size }
    }

    /// Device sector of a sector of the data area.
    pub(crate) const fn absolute(&self, sector: u64) -> u64 {
        let Moved { front, by } = self.moved;
        let has_moved = sector & MOVED != 0 || (sector < front) == (by < 0);
        let by = if has_moved { by } else { 0 };
        (self.superblock.data_offset + (sector & !MOVED)).saturating_add_signed(by)
    }

    /// Returns how many sectors there are before the data that nothing uses; `bitmap_sectors`: the
    /// size of the bitmap, if there is one.
    pub(super) fn head_room(&self, bitmap_sectors: u64) -> u64 {
        let superblock = &self.superblock;
        if superblock.version.is_behind_data() {
            return 0;
        }
        let log = superblock.bblog_sector().map(|at| at + u64::from(superblock.bblog_size_sectors));
        let bitmap = superblock.bitmap_sector().map(|at| at + bitmap_sectors);
        let logged = PplArea::kept(superblock).ok().flatten();
        let logged = logged.map(|area| area.sector + area.sectors);
        let metadata = [Some(superblock.super_offset + 8), log, bitmap, logged];
        let used = metadata.into_iter().flatten().max();
        superblock.data_offset.saturating_sub(used.unwrap_or(0))
    }

    /// Returns whether the member has been given its role's contents below this sector of its data
    /// area.
    const fn holds(&self, end: u64) -> bool {
        match self.state {
            State::InSync { .. } | State::Retiring { .. } => true,
            State::Rebuilding { offset, .. } => end <= offset,
            State::Spare | State::Journal | State::Faulty { .. } => false,
        }
    }
}

/// The holder of a role, and the member beside it: one that is to take over from the holder, or
/// that has just lost the role to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RoleEntry {
    pub(crate) holder: Option<MemberId>,
    pub(crate) beside: Option<MemberId>,
}

/// The table. A member keeps its index as long as it is attached.
#[derive(Clone, Debug)]
pub(crate) struct Members {
    table: Vec<Option<Member>>,
    roles: Vec<RoleEntry>,
}

impl Members {
    pub(crate) fn new(configs: Vec<MemberConfig>, raid_disks: usize) -> Self {
        let table = configs.into_iter().map(|config| Some(Member::new(config))).collect();
        let mut members = Self { table, roles: vec![RoleEntry::default(); raid_disks] };
        members.index_roles();
        members
    }

    /// There are so many roles from now on: states follow, and then [`index_roles`] is due.
    ///
    /// [`index_roles`]: Self::index_roles
    pub(super) fn reshape(&mut self, raid_disks: usize) {
        self.roles = vec![RoleEntry::default(); raid_disks];
    }

    /// The rows of all members that have moved.
    pub(super) fn set_moved(&mut self, moved: Moved) {
        self.with_data().for_each(|member| member.moved = moved);
    }

    /// The data begin so many sectors behind where they began.
    pub(super) fn settle(&mut self, by: i64) {
        for member in self.with_data() {
            member.moved = Moved::default();
            let superblock = &mut member.superblock;
            superblock.data_offset = superblock.data_offset.saturating_add_signed(by);
            superblock.data_size = superblock.data_size.saturating_add_signed(-by);
        }
    }

    /// The members that hold data of the array, or may come to.
    fn with_data(&mut self) -> impl Iterator<Item = &mut Member> {
        self.table.iter_mut().flatten().filter(|member| member.state != State::Journal)
    }

    /// Returns the places where a role's strip is to lie at this row, once it has moved by so many
    /// sectors.
    pub(crate) fn moved_view(&self, role: Role, row: u64) -> RoleView {
        let mut view = RoleView::default();
        if let Some(id) = self.role(role).holder
            && let Some(member) = self.get(id)
        {
            let sector = member.superblock.data_offset + row;
            let sector = sector.saturating_add_signed(member.moved.by);
            view.writers[0] = Some(MemberPlace { member: id, sector });
        }
        view
    }

    /// Recomputes who holds which role from the members' states.
    pub(crate) fn index_roles(&mut self) {
        self.roles.fill(RoleEntry::default());
        for (index, member) in self.table.iter().enumerate() {
            let id = MemberId(index as u16);
            let Some(member) = member else { continue };
            match member.state {
                State::InSync { role } => self.roles[role.index()].holder = Some(id),
                State::Rebuilding { role, replacement: false, .. } => {
                    self.roles[role.index()].holder = Some(id);
                }
                State::Rebuilding { role, replacement: true, .. } | State::Retiring { role } => {
                    self.roles[role.index()].beside = Some(id);
                }
                State::Spare | State::Journal | State::Faulty { .. } => {}
            }
        }
    }

    /// Returns one more than the highest id in use.
    pub(crate) const fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns whether there is a member that became in sync, whose superblock was not made since.
    pub(crate) fn any_arriving(&self) -> bool {
        self.iter_live().any(|(_, member)| member.arriving)
    }

    /// The superblocks of members that became in sync are on their way.
    pub(crate) fn arrived(&mut self) {
        for member in self.table.iter_mut().flatten() {
            member.arriving = false;
        }
    }

    /// Returns the lost members whose loss no superblock tells of yet.
    pub(super) fn untold(&self) -> impl Iterator<Item = MemberId> {
        self.iter().filter(|(_, member)| member.loss_untold).map(|(id, _)| id)
    }

    /// After an unclean stop: a resync compares the holders of roles only, so what a replacement
    /// had been given must be given again.
    pub(crate) fn restart_replacements(&mut self) {
        for member in self.table.iter_mut().flatten() {
            if let State::Rebuilding { replacement: true, offset, .. } = &mut member.state {
                *offset = 0;
                member.superblock.recovery_offset = 0;
            }
        }
    }

    pub(crate) fn get(&self, id: MemberId) -> Option<&Member> {
        self.table.get(usize::from(id.0)).and_then(Option::as_ref)
    }

    pub(crate) fn get_mut(&mut self, id: MemberId) -> Option<&mut Member> {
        self.table.get_mut(usize::from(id.0)).and_then(Option::as_mut)
    }

    pub(crate) fn live(&self, id: MemberId) -> bool {
        self.get(id).is_some_and(|member| member.state.is_live())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (MemberId, &Member)> {
        self.table
            .iter()
            .enumerate()
            .filter_map(|(index, member)| member.as_ref().map(|m| (MemberId(index as u16), m)))
    }

    pub(crate) fn iter_live(&self) -> impl Iterator<Item = (MemberId, &Member)> {
        self.iter().filter(|(_, member)| member.state.is_live())
    }

    /// The member that holds the journal.
    pub(super) fn journal(&self) -> Option<(MemberId, &Member)> {
        let is_journal = |member: &&Member| member.state == State::Journal;
        (0..).zip(&self.table).find_map(|(index, member)| {
            member.as_ref().filter(is_journal).map(|member| (MemberId(index), member))
        })
    }

    /// The members that live and hold a role, in part or completely.
    pub(crate) fn holders(&self) -> impl Iterator<Item = MemberId> {
        let holders = self.iter_live().filter(|(_, member)| member.state.role().is_some());
        holders.map(|(id, _)| id)
    }

    pub(crate) fn role(&self, role: Role) -> RoleEntry {
        self.roles[role.index()]
    }

    pub(crate) fn roles(&self) -> impl Iterator<Item = (Role, RoleEntry)> + '_ {
        self.roles.iter().enumerate().map(|(role, entry)| (Role::at(role), *entry))
    }

    /// The lowest id that is not in use, and is none of these, which are taken otherwise.
    pub(crate) fn free_id(&self, taken: &[Option<MemberId>]) -> Option<MemberId> {
        let is_free = |index: &usize| {
            self.table.get(*index).is_none_or(Option::is_none)
                && taken.iter().flatten().all(|taken| usize::from(taken.0) != *index)
        };
        (0..1024).find(is_free).map(|index| MemberId(index as u16))
    }

    /// Gives members the numbers that md does with superblocks 0.90, for each update anew: those in
    /// sync the numbers of their roles, and others those behind all roles, faulty ones last.
    pub(super) fn renumber(&mut self) {
        let mut next = self.roles.len() as u32;
        for faulty in [false, true] {
            let is_faulty = |member: &Member| matches!(member.state, State::Faulty { .. });
            let members = self.table.iter_mut().flatten();
            for member in members.filter(|member| is_faulty(member) == faulty) {
                if let State::InSync { role } = member.state {
                    member.superblock.dev_number = role.0.into();
                } else {
                    member.superblock.dev_number = next;
                    next += 1;
                }
            }
        }
    }

    /// Returns whether this is the number of a member that lives.
    pub(super) fn is_live_number(&self, number: u32) -> bool {
        self.iter_live().any(|(_, member)| member.superblock.dev_number == number)
    }

    pub(crate) fn attach(&mut self, id: MemberId, member: Member) {
        let index = usize::from(id.0);
        if index >= self.table.len() {
            self.table.resize_with(index + 1, || None);
        }
        self.table[index] = Some(member);
        self.index_roles();
    }

    pub(crate) fn detach(&mut self, id: MemberId) {
        self.table[usize::from(id.0)] = None;
        self.index_roles();
    }

    pub(crate) fn set_state(&mut self, id: MemberId, state: State) {
        if let Some(member) = self.get_mut(id) {
            member.state = state;
        }
        self.index_roles();
    }

    /// A spare is gone: whom it was to replace stays.
    pub(super) fn forget_wanted(&mut self, spare: MemberId) {
        for member in self.table.iter_mut().flatten() {
            if member.wanted_spare.take_if(|wanted| *wanted == spare).is_some() {
                member.want_replacement = false;
            }
        }
    }

    /// Returns whether the role is held by a member that is completely in sync.
    pub(crate) fn in_sync(&self, role: Role) -> bool {
        self.role(role)
            .holder
            .and_then(|id| self.get(id))
            .is_some_and(|member| matches!(member.state, State::InSync { .. }))
    }

    /// Roles without a completely in-sync holder.
    pub(crate) fn degraded(&self) -> u16 {
        Role::all(self.roles.len() as u16).filter(|role| !self.in_sync(*role)).count() as u16
    }

    /// Returns the member that held this role before its holder, and still has all of it.
    pub(super) fn retiring(&self, role: Role) -> Option<MemberId> {
        let id = self.role(role).beside?;
        matches!(self.get(id)?.state, State::Retiring { .. }).then_some(id)
    }

    /// A role's holder is gone: whom it took the role from has it again, or the member that was to
    /// replace it is rebuilt as the holder.
    pub(super) fn pass_role_on(&mut self, role: Role) {
        let entry = self.role(role);
        let (None, Some(heir)) = (entry.holder, entry.beside) else { return };
        let Some(member) = self.get_mut(heir) else { return };
        let state = match member.state {
            State::Rebuilding { role, offset, had, .. } => {
                State::Rebuilding { role, offset, replacement: false, had }
            }
            State::Retiring { role } => {
                // Members may have been told that it left: it says first that it has not.
                member.arriving = true;
                State::InSync { role }
            }
            State::InSync { .. } | State::Spare | State::Journal | State::Faulty { .. } => return,
        };
        self.set_state(heir, state);
    }

    /// The members to be rebuilt now, and from where: those that lack only what is marked go before
    /// those that lack everything, so that where both lack something is short of one soon.
    pub(super) fn first_to_rebuild(&self) -> Vec<(MemberId, u64)> {
        let mut targets = self.rebuilding();
        let marked = |&(id, _): &(MemberId, u64)| {
            let state = self.get(id).map(|member| member.state);
            matches!(state, Some(State::Rebuilding { had: Had::All, .. }))
        };
        if targets.iter().any(marked) {
            targets.retain(marked);
        }
        targets
    }

    /// Members being rebuilt, and from where.
    pub(super) fn rebuilding(&self) -> Vec<(MemberId, u64)> {
        self.iter().filter_map(|(id, m)| Some((id, m.state.rebuilt_below()?))).collect()
    }

    /// An operation on a member is on its way.
    pub(super) fn asked(&mut self, id: MemberId, now: Instant) {
        if let Some(member) = self.get_mut(id) {
            if member.in_flight == 0 {
                member.silent_since = now;
            }
            member.in_flight += 1;
        }
    }

    /// A member has answered an operation.
    pub(super) fn answered(&mut self, id: MemberId, now: Instant) {
        if let Some(member) = self.get_mut(id) {
            member.in_flight -= 1;
            member.silent_since = now;
        }
    }

    /// The members that live and owe an answer, and since when they have been silent.
    pub(super) fn owing(&self) -> impl Iterator<Item = (MemberId, Instant)> {
        let owing = self.iter_live().filter(|(_, member)| member.in_flight > 0);
        owing.map(|(id, member)| (id, member.silent_since))
    }

    /// A member that lives has no room for what must be written, from now on if it had before.
    pub(super) fn full(&mut self, id: MemberId, now: Instant) {
        if self.live(id) {
            self.change(id, |member| _ = member.full_since.get_or_insert(now));
        }
    }

    /// Changes what is noted of a member, if it is one.
    pub(super) fn change(&mut self, id: MemberId, change: impl FnOnce(&mut Member)) {
        if let Some(member) = self.get_mut(id) {
            change(member);
        }
    }

    /// Returns what can be done with a role's strip at this range of the data area. `avoid` names
    /// members not to be read: they have just failed to.
    pub(crate) fn view(
        &self,
        role: Role,
        sector: u64,
        sectors: u64,
        avoid: &[MemberId],
    ) -> RoleView {
        let entry = self.role(role);
        let mut view = RoleView::default();
        for (slot, id) in [entry.holder, entry.beside].into_iter().enumerate() {
            let Some((id, member)) = id.and_then(|id| self.get(id).map(|member| (id, member)))
            else {
                continue;
            };
            let place = MemberPlace { member: id, sector: member.absolute(sector) };
            view.writers[slot] = Some(place);
            if !member.holds((sector & !MOVED) + sectors) {
                continue;
            }
            let bad = member.bad_blocks.next_bad(place.sector, sectors);
            view.noted |= bad == Some((place.sector, sectors));
            if bad.is_some() || avoid.contains(&id) {
                view.unreadable = Some(id);
            } else if view.reader.is_none() {
                view.reader = Some(place);
            }
        }
        view.noted &= view.reader.is_none();
        view
    }
}
