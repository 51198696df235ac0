//! What is said between a client and a node until the node has its part, as one table.
//!
//! Why one negotiates with a node, the [`Purpose`], crossed with how far one is, the [`Step`], and
//! what the node says, gives what comes [`Next`]; [`message`] gives what a step asks. Nothing here
//! has a state of its own.
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
//! *J*: what the node says is judged by others, who go on, or do not. *H*: the session stays there
//! until others go on. *W*: the other nodes are wired to it at the same time, and all count.
//! Listing is left out where the superblock speaks of no list of bad blocks.
//! Replaying and Emptying are left out where the array has no journals, and Replaying where the
//! last client left nothing in them. A refusal ends a negotiation: a node that
//! comes later is tried again or not, as its purpose says; at the start an open volume or a missing
//! wire is asked for once more for a while, and everything else ends the start.

use super::Facts;
use crate::assemble::SUPERBLOCK_SECTOR;
use crate::wire::{Message, PeerAddress};
use braid_array::Role;

/// Bytes of a superblock that are read.
const SUPERBLOCK_BYTES: u32 = 4096;

/// Why one negotiates with a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum Purpose {
    /// It is a member, and the array is being started.
    Start,
    /// The same for who only has a look: it asks for no votes, and needs no wires for reads.
    Look,
    /// It was lost and comes back.
    Return,
    /// It is to be a member, and was looked at before.
    Recover,
    /// It was a spare: nobody was connected to it, and it may be anything by now.
    Spare,
    /// A member is to be copied to it.
    Copy,
    /// It was absent at the start: what lies on its volume?
    Absent,
    /// Its member has left the array: it is told to drop what it has prepared.
    Departed,
}

impl Purpose {
    /// The node is a member all the while.
    pub(in crate::client) const fn is_start(self) -> bool {
        matches!(self, Self::Start | Self::Look)
    }

    /// The connection is one beside those of the members, and ends with the negotiation.
    pub(in crate::client) const fn is_visit(self) -> bool {
        matches!(self, Self::Absent | Self::Departed)
    }
}

/// How far a negotiation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum Step {
    Connecting,
    /// Which node is it? Had it another member, a grant would end that one's connection.
    Identifying,
    /// Does it know of no newer client?
    Granting,
    /// It has granted the array; what it was told last may still count.
    Granted,
    /// It drops what it had of slice-sets: they went on without it.
    Resolving,
    Opening,
    /// Is it the member that it should be?
    Looking,
    /// Its list of bad blocks is read.
    Listing,
    Preparing,
    /// What it had recorded of what was committed at the start is brought in place on it, too.
    Replaying,
    /// Its journal is emptied: what it had recorded counts no more.
    Emptying,
    /// All is there but the wires to the others.
    Prepared,
    Wiring,
    /// A member is copied to it.
    Copying,
    /// What was copied is made durable.
    Flushing,
    /// A sample of that is read back.
    ReadingBack,
}

/// Why one negotiates with a node, and how far that is: a column and a row of the table above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) struct Negotiation {
    pub(in crate::client) purpose: Purpose,
    pub(in crate::client) step: Step,
}

/// What kind of thing a node says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum Said {
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
    /// What no negotiation asks for.
    Other,
}

/// What follows from what a node has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum Next {
    /// On to this step, which asks something.
    Ask(Step),
    /// On to this step, at which others decide when it goes on.
    Hold(Step),
    /// Others judge what it has said.
    Judge,
    /// It has its part.
    Ready,
    /// It is wired, or not: the others have to be, too.
    Wired(bool),
    /// Nothing more is to be said to it.
    Over,
    /// The same is asked again after a moment, for a while.
    Again,
    /// It is there and cannot be used: the array must not start as if it were dead.
    GiveUp,
    /// It refuses.
    Refuse,
    /// It is of no use now.
    Fail,
    /// It does not keep to the protocol.
    Violation,
}

/// What comes next.
pub(in crate::client) const fn next(negotiation: Negotiation, said: Said) -> Next {
    use Purpose::{Absent, Copy, Departed, Look, Recover, Return, Spare, Start};
    use Step::{
        Connecting, Emptying, Flushing, Granting, Identifying, Listing, Looking, Opening,
        Preparing, Replaying, Resolving, Wiring,
    };
    match (negotiation.step, negotiation.purpose, said) {
        (Connecting, Start, Said::Connected) => Next::Hold(Granting),
        (Connecting, Return, Said::Connected) => Next::Ask(Granting),
        (Connecting, Look | Absent, Said::Connected) => Next::Ask(Opening),
        (Connecting, Recover | Spare | Copy | Departed, Said::Connected) => Next::Ask(Identifying),

        (Identifying, Recover | Spare | Copy | Departed, Said::Identity) => Next::Judge,

        (Granting, Return | Recover | Spare | Copy | Departed, Said::Granted) => Next::Judge,
        (Granting, Departed, Said::Outvoted) => Next::Over,
        (Granting, Return | Recover | Spare | Copy, Said::Outvoted) => Next::Fail,

        (Resolving, Return | Recover | Spare | Copy, Said::Done) => Next::Ask(Opening),
        (Resolving, Departed, Said::Done) => Next::Over,

        (Opening, Start | Look, Said::Volume { .. }) => Next::Ask(Preparing),
        (Opening, Start | Look, Said::Refused) => Next::Again,
        (Opening, Recover, Said::Volume { .. }) => Next::Judge,
        (Opening, Return | Spare | Copy, Said::Volume { .. }) => Next::Ask(Looking),
        (Opening, Absent, Said::Volume { used: false }) => Next::Ask(Looking),
        (Opening, Absent, Said::Volume { used: true }) => Next::Fail,

        (Looking, Return | Spare | Copy | Absent, Said::Content) => Next::Judge,
        (Listing, Absent, Said::Content) => Next::Judge,

        (Preparing, Start | Look | Return | Recover | Spare | Copy, Said::Pipeline) => Next::Judge,
        // One that cannot tell what it had recorded may be given all of it.
        (Replaying, Return | Recover, Said::Done | Said::Refused) => Next::Ask(Emptying),
        (Emptying, Return | Recover | Spare | Copy, Said::Done) => Next::Hold(Step::Prepared),

        (Wiring, Start, Said::Done) => Next::Ready,
        (Wiring, Start, Said::Refused) => Next::Again,
        (Wiring, Return | Recover | Spare | Copy, Said::Done) => Next::Wired(true),
        (Wiring, Return | Recover | Spare | Copy, Said::Refused) => Next::Wired(false),

        (Flushing, Copy, Said::Done) => Next::Hold(Step::ReadingBack),

        (_, Start | Look, Said::Refused) => Next::GiveUp,
        (_, Return | Recover | Spare | Copy | Absent | Departed, Said::Refused) => Next::Refuse,
        _ => Next::Violation,
    }
}

/// With what a step asks, besides what holds for all nodes.
#[derive(Clone, Debug)]
pub(in crate::client) struct Question {
    /// The name of the volume.
    pub(in crate::client) volume: String,
    /// The role that the node has, or is to have.
    pub(in crate::client) place: Option<Role>,
    pub(in crate::client) data_sector: u64,
    /// First sector and bytes of its list of bad blocks.
    pub(in crate::client) list: Option<(u64, u32)>,
    /// Those that it is to be connected to.
    pub(in crate::client) peers: Vec<PeerAddress>,
}

/// What is asked at a step; nothing where others decide.
pub(in crate::client) fn message(
    negotiation: Negotiation,
    tag: u32,
    facts: &Facts,
    question: Question,
) -> Option<Message> {
    let Negotiation { purpose, step } = negotiation;
    let Question { volume: name, place, data_sector, list, peers } = question;
    let &Facts { array, params, mark, .. } = facts;
    Some(match step {
        Step::Identifying => Message::Identify { tag },
        // That of a member at the start is asked for by the takeover.
        Step::Granting if !purpose.is_start() => {
            Message::Grant { tag, array, epoch: params.epoch, client: params.session }
        }
        Step::Resolving => Message::ResolveLeftovers { tag, commit: Vec::new() },
        Step::Opening => {
            let write = !matches!(purpose, Purpose::Look | Purpose::Absent);
            Message::OpenVolume { tag, name, write }
        }
        Step::Looking => {
            Message::ReadMeta { tag, sector: SUPERBLOCK_SECTOR, bytes: SUPERBLOCK_BYTES }
        }
        Step::Listing => {
            let (sector, bytes) = list?;
            Message::ReadMeta { tag, sector, bytes }
        }
        Step::Preparing => Message::OpenPipeline { tag, role: place?, data_sector, params },
        Step::Replaying => {
            let (above, without) = facts.decided.as_deref()?.clone();
            Message::ReplayJournal { tag, above, without }
        }
        Step::Emptying => Message::TrimJournal { tag, mark, all: true },
        Step::Wiring => Message::Connect { tag, peers },
        Step::Flushing => Message::Flush { tag },
        Step::Connecting
        | Step::Granting
        | Step::Granted
        | Step::Prepared
        | Step::Copying
        | Step::ReadingBack => return None,
    })
}
