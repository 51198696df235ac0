//! Contents that a read-only array lays over those of its members: its log tells them, and they are
//! not written.

use std::collections::BTreeMap;

use slab::Slab;

use super::super::io::Owner;
use super::super::lane::Lane;
use crate::action::Action;
use crate::plan::MemberPlace;
use crate::{Buf, IoOp, MemberId, SECTOR_BYTES};

/// Where the contents of some sectors are.
#[derive(Clone, Debug)]
pub(super) enum Patch {
    Bytes(Vec<u8>),
    /// From this sector of the journal's device on.
    Journal {
        member: MemberId,
        sector: u64,
    },
}

/// A read of a member, and whose it is.
pub(in super::super) type Patched = (Owner, MemberId, IoOp);

/// One that waits until all of it is as the log has it.
#[derive(Debug)]
struct Reading {
    read: Patched,
    left: usize,
    failed: bool,
}

/// The patches of all members, by their first sectors; they do not overlap.
#[derive(Debug, Default)]
pub(in super::super) struct Overlay {
    patches: BTreeMap<(MemberId, u64), (u32, Patch)>,
    reads: Slab<Reading>,
}

impl Overlay {
    pub(super) fn add(&mut self, place: MemberPlace, sectors: u32, patch: Patch) {
        self.patches.insert((place.member, place.sector), (sectors, patch));
    }

    pub(super) fn add_bytes(&mut self, member: MemberId, sector: u64, bytes: Vec<u8>) {
        let sectors = (bytes.len() as u64 / SECTOR_BYTES) as u32;
        self.patches.insert((member, sector), (sectors, Patch::Bytes(bytes)));
    }

    /// A member was read into `buf`: puts there what is laid over it. True when that is still to be
    /// read; then [`answered`](Self::answered) tells whose answer it was.
    pub(in super::super) fn apply(
        &mut self,
        lane: &mut Lane,
        read: Patched,
        buf: Buf,
        sector: u64,
    ) -> bool {
        let member = read.1;
        if self.patches.is_empty() {
            return false;
        }
        let end = sector + u64::from(buf.len) / SECTOR_BYTES;
        let first = self.patches.range(..=(member, sector)).next_back().map(|(key, _)| *key);
        let first = first.filter(|key| key.0 == member).unwrap_or((member, sector));
        let mut reads = Vec::new();
        for ((_, start), (sectors, patch)) in self.patches.range(first..(member, end)) {
            let from = sector.max(*start);
            let until = end.min(*start + u64::from(*sectors));
            if from >= until {
                continue;
            }
            let bytes = |sectors: u64| (sectors * SECTOR_BYTES) as u32;
            let part = buf.slice(bytes(from - sector), bytes(until - from));
            match patch {
                Patch::Bytes(all) => {
                    let skipped = bytes(from - start) as usize;
                    let bytes = all[skipped..skipped + part.len as usize].to_vec();
                    lane.actions.push_back(Action::Store { buf: part, bytes });
                }
                Patch::Journal { member, sector } => {
                    let op = IoOp::Read { sector: sector + from - start, buf: part };
                    reads.push((*member, op));
                }
            }
        }
        if reads.is_empty() {
            return false;
        }
        let index = self.reads.insert(Reading { read, left: reads.len(), failed: false });
        for (member, op) in reads {
            lane.issue(member, op, Owner::Overlay(index));
        }
        true
    }

    /// Lists the owners of the reads that wait.
    pub(in super::super) fn owners(&self) -> impl Iterator<Item = Owner> + '_ {
        self.reads.iter().map(|(_, reading)| reading.read.0)
    }

    /// A part that was still to be read is there, or failed. Returns the read that is complete by
    /// that, and whether it has failed.
    pub(in super::super) fn answered(&mut self, index: usize, ok: bool) -> Option<(Patched, bool)> {
        let read = &mut self.reads[index];
        read.failed |= !ok;
        read.left -= 1;
        if read.left > 0 {
            return None;
        }
        let Reading { read, failed, .. } = self.reads.remove(index);
        Some((read, failed))
    }
}
