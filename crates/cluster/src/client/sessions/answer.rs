//! Answers of nodes.

use braid_array::Refusal;

use super::negotiation::AnswerKind;
use crate::client::out::SAME_VERSION;
use crate::client::ownership::decision::NodeGrant;
use crate::ids::{Epoch, NodeId, SetVersion};
use crate::pipeline::Params;
use crate::wire::{JournalEntry, Leftover, Message};

/// Answer of a node to any request.
#[derive(Clone, Debug)]
pub(in crate::client) enum Answer {
    Done,
    Volume {
        bytes: u64,
        used: bool,
    },
    /// Content of a volume.
    Content(Vec<u8>),
    /// Identity of the node.
    Identity(NodeId),
    Granted(NodeGrant),
    /// The epoch that another client was granted.
    Outvoted(Epoch),
    Pipeline {
        ring: u64,
        journal_bytes: u64,
        parts_only: bool,
    },
    Leftovers {
        params: Option<Params>,
        items: Vec<Leftover>,
        next: u16,
    },
    Journal {
        mark: SetVersion,
        items: Vec<JournalEntry>,
        next: u32,
    },
    /// The node is there; milliseconds for which its storage has not answered.
    Pong(u32),
    Refused(Refusal),
}

impl Answer {
    /// Returns the answer with the tag of its request; `None` if the message is no answer.
    pub(super) fn of(message: Message) -> Option<(u32, Self)> {
        Some(match message {
            Message::Ok { tag } => (tag, Self::Done),
            Message::Volume { tag, bytes, used, .. } => (tag, Self::Volume { bytes, used }),
            Message::Meta { tag, bytes } => (tag, Self::Content(bytes)),
            Message::Identity { tag, node } => (tag, Self::Identity(node)),
            Message::Granted { tag, view, incarnation, node } => {
                (tag, Self::Granted(NodeGrant { view: view.told(), incarnation, node }))
            }
            Message::Outvoted { tag, granted } => (tag, Self::Outvoted(granted)),
            Message::PipelineReady { tag, ring, journal_bytes, parts_only } => {
                (tag, Self::Pipeline { ring, journal_bytes, parts_only })
            }
            Message::Leftovers { tag, params, items, next } => {
                (tag, Self::Leftovers { params, items, next })
            }
            Message::JournalEntries { tag, mark, items, next } => {
                (tag, Self::Journal { mark, items, next })
            }
            Message::Pong { tag, storage_silent_ms } => (tag, Self::Pong(storage_silent_ms)),
            Message::Refused { tag, reason, advice, .. } => {
                (tag, Self::Refused(Refusal::new(reason, advice)))
            }
            _ => return None,
        })
    }

    pub(super) const fn said(&self) -> AnswerKind {
        match self {
            Self::Done => AnswerKind::Done,
            Self::Volume { used, .. } => AnswerKind::Volume { used: *used },
            Self::Content(_) => AnswerKind::Content,
            Self::Identity(_) => AnswerKind::Identity,
            Self::Granted(_) => AnswerKind::Granted,
            Self::Outvoted(_) => AnswerKind::Outvoted,
            Self::Pipeline { .. } => AnswerKind::Pipeline,
            Self::Refused(_) => AnswerKind::Refused,
            Self::Leftovers { .. } | Self::Journal { .. } | Self::Pong(_) => AnswerKind::Other,
        }
    }

    /// Returns the violation that the answer is if no request had asked for it.
    pub(in crate::client) const fn unasked(&self) -> &'static str {
        match self {
            Self::Granted(_) => "it grants what was not asked",
            Self::Leftovers { .. } | Self::Journal { .. } => "it lists what was not asked",
            Self::Content(_) | Self::Identity(_) => "it tells what was not asked",
            _ => "it answers what was not asked",
        }
    }

    /// Returns whether the request was carried out, or the refusal.
    pub(in crate::client) fn outcome(self) -> Result<(), Refusal> {
        match self {
            Self::Done | Self::Pong(_) => Ok(()),
            Self::Refused(why) => Err(why),
            answer => Err(Refusal::new(answer.unasked(), SAME_VERSION)),
        }
    }

    pub(in crate::client) fn refusal(self) -> Option<Refusal> {
        match self {
            Self::Refused(why) => Some(why),
            _ => None,
        }
    }
}
