//! A member that is replaced while it serves: a spare is given a copy of it, and then its role.

use std::collections::{BTreeMap, VecDeque};

use braid_array::action::CommandId;
use braid_array::code::Cell;
use braid_array::keeper::Done;
use braid_array::{Action, Buf, MemberId, Refusal, SECTOR_BYTES};

use super::extent::{Extent, Piece, Whose};
use super::newcomer::Origin;
use super::rejoin::PATIENCE_MILLIS;
use super::setup::{Link, LinkState};
use super::step::Step;
use super::{Client, Key, Message, RequestKind};
use crate::wire::PeerAddress;

/// A slice that is being copied.
#[derive(Debug)]
struct Slice {
    /// Blocks of it that are not over.
    left: u16,
    /// All that are over were copied.
    ok: bool,
}

/// A block of one that is on its way, into a slot there.
#[derive(Clone, Copy, Debug)]
struct OnItsWay {
    key: Key,
    row: u16,
    into: u16,
}

/// The copy on its way from a serving member to its copy target: slices, and of these the blocks
/// that wait for a slot at the target or are under way.
///
/// ```text
///  connected, as who comes back ─► wired to the old one ─► copying ─► little left: flushing,
///    any failure: all is as before                                     reading back
///                                                                         ▼
///        comes back, or a spare ◄── failure ── wired to all ◄── the old one goes, exchanged
/// ```
/// The new node has a connection of its own, behind those to the members, and no part in anything
/// that is written. The old one reads what belongs to a slice and puts it to the new one, which the
/// client tells where to store it; nobody writes to the slice meanwhile. When they are exchanged
/// the new one comes the way of a node that comes back (see [`rejoin`](super::rejoin)), and gets
/// from the others what the bitmap marks.
#[derive(Debug, Default)]
pub(super) struct Filling {
    slices: BTreeMap<Key, Slice>,
    /// Blocks that wait for a slot there.
    waiting: VecDeque<(Key, u16)>,
    free: Vec<u16>,
    /// By number.
    under_way: BTreeMap<u32, OnItsWay>,
    next: u32,
}

fn too_few_votes() -> Refusal {
    let reason = "without its node too few of those that vote would be left";
    Refusal::new(reason, "start the witness, and replace it then")
}

impl Filling {
    /// Nobody may write in this slice while it is read back.
    pub(super) fn hold(&mut self, key: Key) {
        self.slices.insert(key, Slice { left: 0, ok: true });
    }

    /// The slices in which nobody may write.
    pub(super) fn slices(&self) -> impl Iterator<Item = Key> {
        self.slices.keys().copied()
    }
}

impl Client {
    /// Which connection is that to a node which is to take the place of one that serves.
    pub(super) fn beside(&self) -> u16 {
        self.params().nodes
    }

    /// Begins to replace a member by a spare, by this one if it is named.
    pub(super) fn replace(&mut self, id: CommandId, old: MemberId, spare: Option<MemberId>) {
        if let Err(why) = self.try_replace(id, old, spare) {
            self.actions.push_back(Action::Reply { id, result: Err(why) });
        }
    }

    fn try_replace(
        &mut self,
        command: CommandId,
        old: MemberId,
        spare: Option<MemberId>,
    ) -> Result<(), Refusal> {
        self.may_change()?;
        self.keeper.may_be_copied(old)?;
        if self.newcomer.is_some() {
            return Err(Refusal::new("another node is being added", "wait for that, try again"));
        }
        let new = self.keeper.spares().find(|one| spare.is_none_or(|spare| spare == one.member));
        let none = || Refusal::new("there is no spare to copy it to", "add a spare first");
        let new = new.ok_or_else(none)?;
        let role = self.role_of(old);
        let role = role.ok_or_else(|| Refusal::new("its node is not there", "add a spare"))?;
        if !self.votes_suffice_without(role) {
            return Err(too_few_votes());
        }
        self.begin_newcomer(Origin::Copy { command: Some(command), old }, new, role)
    }

    /// The node of a copy is prepared: the old one connects to it.
    pub(super) fn wire_beside(&mut self, place: u16) {
        let beside = self.beside();
        let link = &self.links[usize::from(beside)];
        let Some(member) = link.member.as_ref().filter(|_| self.alive(place)) else {
            return self.return_fails(beside);
        };
        let peer = |address, ring| vec![PeerAddress { role: place, address, ring }];
        let peers = peer(member.address.clone(), link.ring);
        // Without an address it waits for the old one, which connects.
        let others = peer(String::new(), self.links[usize::from(place)].ring);
        self.wires(beside, [place, beside].into());
        self.ask(place, RequestKind::Rewire, |tag| Message::Connect { tag, peers });
        self.return_step(beside, Step::Wiring, |tag| Message::Connect { tag, peers: others });
    }

    /// They are connected: the copy begins.
    pub(super) fn begin_filling(&mut self) {
        let (beside, slots) = (self.beside(), self.pipeline.base_reads());
        let Some((command, old)) = self.newcomer.as_mut().and_then(|one| one.begin_copy()) else {
            return self.return_fails(beside);
        };
        if let Err(why) = self.keeper.begin_copying(old) {
            self.newcomer_hears(beside, why);
            return self.return_fails(beside);
        }
        self.filling = Filling { free: (0..slots).rev().collect(), ..Filling::default() };
        let link = &mut self.links[usize::from(beside)];
        link.state = LinkState::Returning(Step::Copying);
        link.due = None;
        if let Some(id) = command {
            self.actions.push_back(Action::Reply { id, result: Ok(()) });
        }
    }

    fn is_filling(&self) -> bool {
        let state = self.links[usize::from(self.beside())].state;
        state == LinkState::Returning(Step::Copying)
    }

    /// Begins to copy a slice that nobody uses. False when there is no copy any more.
    pub(super) fn copy_slice(&mut self, key: Key) -> bool {
        if !self.is_filling() {
            return false;
        }
        let left = self.pipeline.rows();
        self.areas.entry(key).or_default().readers += 1;
        self.filling.slices.insert(key, Slice { left, ok: true });
        self.filling.waiting.extend((0..left).map(|row| (key, row)));
        true
    }

    /// Asks for what has found a slot; and exchanges the two once little is left.
    pub(super) fn fill(&mut self) {
        let Some((place, old, spare)) = self.newcomer.as_ref().and_then(|one| one.copied()) else {
            return;
        };
        let beside = self.beside();
        let begun = matches!(
            self.links[usize::from(beside)].state,
            LinkState::Returning(Step::Copying | Step::Flushing | Step::ReadingBack)
        );
        let gone = match self.keeper.spares().any(|one| one.device == spare) {
            true if self.keeper.is_copied(old) => None,
            true => Some("it has failed"),
            false => Some("the spare is gone"),
        };
        if let Some(reason) = gone.filter(|_| begun) {
            self.newcomer_hears(beside, Refusal::new(reason, "add a spare, replace it again"));
            return self.return_fails(beside);
        }
        self.read_back(place);
        if !self.is_filling() {
            return;
        }
        while let Some(into) = self.filling.free.pop() {
            let Some((key, row)) = self.filling.waiting.pop_front() else {
                self.filling.free.push(into);
                break;
            };
            self.copy_block(place, OnItsWay { key, row, into });
        }
        if self.keeper.little_is_left() && self.filling.slices.is_empty() {
            self.give_time();
            self.return_step(beside, Step::Flushing, |tag| Message::Flush { tag });
        }
    }

    /// Whoever is asked has this long.
    pub(super) fn give_time(&mut self) {
        let until = self.keeper.now().plus_millis(PATIENCE_MILLIS);
        let beside = self.beside();
        self.links[usize::from(beside)].due = Some(until);
    }

    fn copy_block(&mut self, place: u16, one: OnItsWay) {
        let number = self.filling.next;
        self.filling.next = number.wrapping_add(1);
        self.filling.under_way.insert(number, one);
        let (at, len) = (one.key.1 * self.slice_bytes(), self.slice_len(one.key.1));
        let extent = Extent { stripe: one.key.0, index: 0, at, len };
        let cell = Cell { row: one.row, node: place };
        self.queue(Piece {
            cell,
            extent,
            into: Buf { offset: 0, len },
            whose: Whose::Copy(number),
        });
    }

    /// Into which slot there this block goes.
    pub(super) fn copied_into(&self, number: u32) -> u16 {
        self.filling.under_way.get(&number).map_or(0, |one| one.into)
    }

    /// It is on its way there.
    pub(super) fn copy_sent(&mut self, number: u32) {
        let Some(&OnItsWay { key, row, into: slot }) = self.filling.under_way.get(&number) else {
            return;
        };
        let beside = self.beside();
        let byte = self.pipeline.member_byte(key.0, row, key.1 * self.slice_bytes());
        let sector = self.data_sector(beside) + byte / SECTOR_BYTES;
        let bytes = self.slice_len(key.1);
        self.give_time();
        let message = |tag| Message::StoreCopied { tag, slot, sector, bytes };
        self.ask_uncounted(beside, RequestKind::StoreCopied(number), message);
    }

    /// The new one has stored it, or cannot.
    pub(super) fn copy_taken(&mut self, number: u32, answer: Result<Option<u64>, Refusal>) {
        let beside = self.beside();
        if let Err(why) = answer {
            self.newcomer_hears(beside, why);
            return self.return_fails(beside);
        }
        self.links[usize::from(beside)].due = None;
        if self.questions.values().any(|(asked, _)| *asked == beside) {
            self.give_time();
        }
        self.block_over(number, true);
    }

    /// A block is copied, or cannot be read.
    pub(super) fn block_over(&mut self, number: u32, ok: bool) {
        let Some(OnItsWay { key, into, .. }) = self.filling.under_way.remove(&number) else {
            return;
        };
        self.filling.free.push(into);
        let Some(slice) = self.filling.slices.get_mut(&key) else { return };
        slice.left -= 1;
        slice.ok &= ok;
        if slice.left == 0 {
            let ok = slice.ok;
            self.slice_over(
                key,
                if ok { Done::Well { equal: true } } else { Done::Unread(vec![]) },
            );
        }
    }

    fn slice_over(&mut self, key: Key, done: Done) {
        self.let_slice_go(key);
        self.task_over(key, done);
    }

    /// The slice may be written again.
    pub(super) fn let_slice_go(&mut self, key: Key) {
        self.filling.slices.remove(&key);
        if let Some(area) = self.areas.get_mut(&key) {
            area.readers -= 1;
        }
        self.list(key);
    }

    /// There is nobody to copy to any more.
    pub(super) fn filling_ends(&mut self, place: u16) {
        self.abandon_read_back(place);
        self.links[usize::from(place)].queue.retain(|piece| !matches!(piece.whose, Whose::Copy(_)));
        let next = self.filling.next;
        let filling = std::mem::replace(&mut self.filling, Filling { next, ..Filling::default() });
        for key in filling.slices.into_keys() {
            self.filling.slices.insert(key, Slice { left: 0, ok: false });
            self.slice_over(key, Done::Failed);
        }
        if self.links[usize::from(place)].state == LinkState::Ready {
            self.send(place, &Message::Without { role: place });
        }
    }

    /// All that was copied is durable, and can be read: the new one takes the place of the old one.
    pub(super) fn exchange(&mut self) {
        let (beside, now) = (self.beside(), self.keeper.now());
        let Some((place, _, _)) = self.newcomer.as_ref().and_then(|one| one.copied()) else {
            return;
        };
        if !self.votes_suffice_without(place) {
            // Nothing could be answered while the new one is taken in.
            self.newcomer_hears(beside, too_few_votes());
            return self.return_fails(beside);
        }
        if !self.keeper.let_copied_go() {
            let link = &mut self.links[usize::from(beside)];
            link.state = LinkState::Returning(Step::Copying);
            link.due = None;
            return;
        }
        self.carry_out();
        let none = Link::new(None, None, self.params().reads.count);
        let link = std::mem::replace(&mut self.links[usize::from(beside)], none);
        let old = std::mem::replace(&mut self.links[usize::from(place)], link);
        let link = &mut self.links[usize::from(place)];
        link.state = LinkState::Returning(Step::Prepared);
        link.due = Some(now.plus_millis(PATIENCE_MILLIS));
        link.lost_at = self.version;
        link.gone_at = old.gone_at;
        if let Some(newcomer) = &mut self.newcomer {
            // If it fails now, the old one comes back.
            newcomer.exchanged(place, old.member.map(|member| (member, old.id, Some(now))));
        }
        self.wire_returned();
    }
}
