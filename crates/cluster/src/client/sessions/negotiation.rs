//! Dialogue between a client and a node until the node is ready, as one table.
//!
//! The [`Purpose`] of a negotiation, its [`NegotiationStep`] and the answer determine the [`Next`]
//! action; [`message`] returns the request of a step. Nothing here has a state of its own.
//!
//! ```text
//!              Start   Look  Return  Recover  Spare   Copy   Absent  Departed
//! Connecting     │      │      │        │       │       │       │        │
//! Identifying    │      │      │        ▼ J     ▼ J     ▼ J     │        ▼ J
//! Granting       ▼ H    │      ▼ J      ▼ J     ▼ J     ▼ J     │        ▼ J
//! Granted        │      │      ▼ H      ▼ H     ▼ H     ▼ H     │        ▼ H
//! Resolving      │      │      ▼        ▼       ▼       ▼       │        ▼
//! Opening        ▼      ▼      ▼        ▼ J     ▼       ▼       ▼       over
//! Looking        │      │      ▼ J      │       ▼ J     ▼ J     ▼ J
//! Listing        │      │      │        │       │       │       ▼ J
//! Preparing      ▼ J    ▼ J    ▼ J      ▼ J     ▼ J     ▼ J    over
//! Replaying      │      │      ▼        ▼       │       │
//! Emptying       │      │      ▼        ▼       ▼       ▼
//! Prepared       ▼ H    ▼ H    ▼ H      ▼ H     ▼ H     ▼ H
//! Wiring         ▼      │      ▼ W      ▼ W     ▼ W     ▼ W
//! Copying        │      │      │        │       │       ▼ H
//! Flushing       │      │      │        │       │       ▼
//! ReadingBack    │      │      │        │       │       ▼ H
//!              ready  ready  ready    ready   ready   Spare, from Prepared on
//! ```
//! *J*: [`judge`](super::judge) decides on the answer. *H*: the session rests until others go on.
//! *W*: the other nodes are wired to the node at the same time, and all results count. Listing is
//! skipped where the superblock has no bad-block log. Replaying and Emptying are skipped where the
//! array has no journals, and Replaying where the last client left no records in them. Refusals are
//! judged, too.

use super::NegotiationFacts;
use crate::assemble::SUPERBLOCK_SECTOR;
use crate::wire::{Message, PeerAddress};
use braid_array::Role;

/// Bytes that are read for a superblock.
const SUPERBLOCK_BYTES: u32 = 4096;

/// Purpose of a negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum Purpose {
    /// Start of the array with a member.
    Start,
    /// Inspection: asks for no votes, and needs no wires for reads.
    Look,
    /// Return of a lost member.
    Return,
    /// Addition of a member that was inspected before.
    Recover,
    /// Use of a spare: no connection to it existed, so its volume may hold anything by now.
    Spare,
    /// Copy of a member to the node.
    Copy,
    /// Inspection of the volume of a member that was absent at the start.
    Absent,
    /// Order to drop prepared slice-sets: the node's member has left the array.
    Departed,
}

impl Purpose {
    /// Returns whether the node is a member from the beginning.
    pub(in crate::client) const fn is_start(self) -> bool {
        matches!(self, Self::Start | Self::Look)
    }

    /// Returns whether the connection is separate from those of the members, and ends with the
    /// negotiation.
    pub(in crate::client) const fn is_visit(self) -> bool {
        matches!(self, Self::Absent | Self::Departed)
    }
}

/// Step of a negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum NegotiationStep {
    Connecting,
    /// The node tells its identity. If it had another member, a grant would end that member's
    /// connection.
    Identifying,
    /// The node is asked for its grant: it must know of no newer client.
    Granting,
    /// The array is granted; a takeover may still ask for the node's prepared slice-sets.
    Granted,
    /// Leftover slice-sets are dropped: they went on without the node.
    Resolving,
    Opening,
    /// The superblock is checked.
    Looking,
    /// The bad-block log is read.
    Listing,
    Preparing,
    /// Journal records of slice-sets that were committed at the start are stored on the node, too.
    Replaying,
    /// The journal is emptied: its records no longer count.
    Emptying,
    /// Nothing is missing but the wires to the others.
    Prepared,
    Wiring,
    /// A member is copied to the node.
    Copying,
    /// The copy is made durable.
    Flushing,
    /// A sample of the copy is read back.
    ReadingBack,
}

/// Purpose and step of a negotiation: a column and a row of the table above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) struct Negotiation {
    pub(in crate::client) purpose: Purpose,
    pub(in crate::client) step: NegotiationStep,
}

/// Kind of a node's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum AnswerKind {
    Connected,
    Identity,
    Granted,
    Outvoted,
    Done,
    /// A volume is open; another client uses it too.
    Volume {
        used: bool,
    },
    Content,
    Pipeline,
    Refused,
    /// Answer that no negotiation asks for.
    Other,
}

/// Next action after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum Next {
    /// Continues at this step, and sends its request.
    Ask(NegotiationStep),
    /// Rests at this step until others continue.
    Hold(NegotiationStep),
    /// Needs a [judgement](super::judge) of the answer.
    Judge,
    /// Ends the negotiation: the node is ready.
    Ready,
    /// Ends the node's wiring, with success or not; the others have to be wired, too.
    Wired(bool),
    /// Ends the negotiation.
    Over,
    /// Ends the negotiation: the node is of no use now.
    Fail,
    /// Fails the node: it violates the protocol.
    Violation,
}

/// Returns the next action.
pub(in crate::client) const fn next(negotiation: Negotiation, said: AnswerKind) -> Next {
    use NegotiationStep::{
        Connecting, Emptying, Flushing, Granting, Identifying, Listing, Looking, Opening,
        Preparing, Replaying, Resolving, Wiring,
    };
    use Purpose::{Absent, Copy, Departed, Look, Recover, Return, Spare, Start};
    match (negotiation.step, negotiation.purpose, said) {
        (Connecting, Start, AnswerKind::Connected) => Next::Hold(Granting),
        (Connecting, Return, AnswerKind::Connected) => Next::Ask(Granting),
        (Connecting, Look | Absent, AnswerKind::Connected) => Next::Ask(Opening),
        (Connecting, Recover | Spare | Copy | Departed, AnswerKind::Connected) => {
            Next::Ask(Identifying)
        }

        (Identifying, Recover | Spare | Copy | Departed, AnswerKind::Identity) => Next::Judge,

        (Granting, Return | Recover | Spare | Copy | Departed, AnswerKind::Granted) => Next::Judge,
        (Granting, Departed, AnswerKind::Outvoted) => Next::Over,
        (Granting, Return | Recover | Spare | Copy, AnswerKind::Outvoted) => Next::Fail,

        (Resolving, Return | Recover | Spare | Copy, AnswerKind::Done) => Next::Ask(Opening),
        (Resolving, Departed, AnswerKind::Done) => Next::Over,

        (Opening, Start | Look, AnswerKind::Volume { .. }) => Next::Ask(Preparing),
        (Opening, Recover, AnswerKind::Volume { .. }) => Next::Judge,
        (Opening, Return | Spare | Copy, AnswerKind::Volume { .. }) => Next::Ask(Looking),
        (Opening, Absent, AnswerKind::Volume { used: false }) => Next::Ask(Looking),
        (Opening, Absent, AnswerKind::Volume { used: true }) => Next::Fail,

        (Looking, Return | Spare | Copy | Absent, AnswerKind::Content) => Next::Judge,
        (Listing, Absent, AnswerKind::Content) => Next::Judge,

        (Preparing, Start | Look | Return | Recover | Spare | Copy, AnswerKind::Pipeline) => {
            Next::Judge
        }
        // One that cannot tell what it had recorded may be given all of it.
        (Replaying, Return | Recover, AnswerKind::Done | AnswerKind::Refused) => {
            Next::Ask(Emptying)
        }
        (Emptying, Return | Recover | Spare | Copy, AnswerKind::Done) => {
            Next::Hold(NegotiationStep::Prepared)
        }

        (Wiring, Start, AnswerKind::Done) => Next::Ready,
        (Wiring, Return | Recover | Spare | Copy, AnswerKind::Done) => Next::Wired(true),
        (Wiring, Return | Recover | Spare | Copy, AnswerKind::Refused) => Next::Wired(false),

        (Flushing, Copy, AnswerKind::Done) => Next::Hold(NegotiationStep::ReadingBack),

        (_, _, AnswerKind::Refused) => Next::Judge,
        _ => Next::Violation,
    }
}

/// Parameters of a step's request, besides those common to all nodes.
#[derive(Clone, Debug)]
pub(in crate::client) struct Question {
    /// The name of the volume.
    pub(in crate::client) volume: String,
    /// The role that the node has, or is to have.
    pub(in crate::client) place: Option<Role>,
    pub(in crate::client) data_sector: u64,
    /// First sector and bytes of the member's bad-block log.
    pub(in crate::client) list: Option<(u64, u32)>,
    /// Nodes to connect to.
    pub(in crate::client) peers: Vec<PeerAddress>,
}

/// Returns the request of a step; `None` where others decide.
pub(in crate::client) fn message(
    negotiation: Negotiation,
    tag: u32,
    facts: &NegotiationFacts,
    question: Question,
) -> Option<Message> {
    let Negotiation { purpose, step } = negotiation;
    let Question { volume: name, place, data_sector, list, peers } = question;
    let &NegotiationFacts { array, params, mark, .. } = facts;
    Some(match step {
        NegotiationStep::Identifying => Message::Identify { tag },
        // That of a member at the start is asked for by the takeover.
        NegotiationStep::Granting if !purpose.is_start() => {
            Message::Grant { tag, array, epoch: params.epoch, client: params.session }
        }
        NegotiationStep::Resolving => Message::ResolveLeftovers { tag, commit: Vec::new() },
        NegotiationStep::Opening => {
            let write = !matches!(purpose, Purpose::Look | Purpose::Absent);
            Message::OpenVolume { tag, name, write }
        }
        NegotiationStep::Looking => {
            Message::ReadMeta { tag, sector: SUPERBLOCK_SECTOR, bytes: SUPERBLOCK_BYTES }
        }
        NegotiationStep::Listing => {
            let (sector, bytes) = list?;
            Message::ReadMeta { tag, sector, bytes }
        }
        NegotiationStep::Preparing => {
            Message::OpenPipeline { tag, role: place?, data_sector, params }
        }
        NegotiationStep::Replaying => {
            let (above, without) = facts.decided.as_deref()?.clone();
            Message::ReplayJournal { tag, above, without }
        }
        NegotiationStep::Emptying => Message::TrimJournal { tag, mark, all: true },
        NegotiationStep::Wiring => Message::Connect { tag, peers },
        NegotiationStep::Flushing => Message::Flush { tag },
        NegotiationStep::Connecting
        | NegotiationStep::Granting
        | NegotiationStep::Granted
        | NegotiationStep::Prepared
        | NegotiationStep::Copying
        | NegotiationStep::ReadingBack => return None,
    })
}
