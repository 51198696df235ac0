//! Judgement of a node's answer while the node joins, returns or is visited, as one function.
//!
//! The [table](super::negotiation) says which answers need a judgement. [`judge`] returns the
//! [`NodeVerdict`], from the purpose, the step, the answer and the [`Facts`] that the caller takes
//! from the machines. Nothing here has a state of its own or changes one.

use braid_array::assemble::{bad_blocks_place, read_bad_blocks};
use braid_array::format::{BadBlocks, DevRole, Superblock, SuperblockError};
use braid_array::keeper::MADE_FAULTY;
use braid_array::{Refusal, Role};

use super::Answer;
use super::negotiation::{Negotiation, NegotiationStep, Purpose};
use crate::set::Roles;

/// Advice that leads to a volume with a journal.
const NEW_VOLUME: &str = "remove it (`braid node delete`) and add the node again";

/// Advice for a node that holds another volume than the member's.
const ITS_STORE: &str =
    "start the node on the store that it had, or remove the member and add the node again";

/// Advice for an absent member that is not in its place.
const IN_ITS_PLACE: &str =
    "start the node on the store that it had, or add another node in its place";

const ANOTHERS: &str = "its volume is that of another member of the array";

/// A voter that is known to be on the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::client) enum VoterOnNode {
    Witness,
    /// Node of a member. `taken`: the role has a member, other than the one that is being added.
    Member {
        taken: bool,
        connected: bool,
    },
}

/// The journals of the array, and that of the node.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::client) struct JournalFacts {
    /// Answered data is in journals.
    pub(in crate::client) used: bool,
    /// The node's journal is large enough.
    pub(in crate::client) suffices: bool,
    /// The last client's records were decided on, and tell more than the sums that are known.
    pub(in crate::client) replays: bool,
}

/// State of the machines that a judgement depends on. Each step needs a few of them; the others
/// have their defaults.
#[derive(Clone, Debug, Default)]
pub(in crate::client) struct Facts {
    /// The array's id.
    pub(in crate::client) array: [u8; 16],
    /// A refusal may be temporary.
    pub(in crate::client) patient: bool,
    pub(in crate::client) voters: Vec<VoterOnNode>,
    /// The keeper's answer to a node that asks for a role: its superblock there.
    pub(in crate::client) candidate: Option<Result<Superblock, Refusal>>,
    /// The member that the volume is to hold.
    pub(in crate::client) member: Option<Superblock>,
    /// The superblock of the volume.
    pub(in crate::client) found: Option<Result<Superblock, SuperblockError>>,
    pub(in crate::client) volume_sectors: u64,
    /// The superblock is of a member that was made faulty.
    pub(in crate::client) made_faulty: bool,
    pub(in crate::client) nodes: u16,
    /// Roles that are vacant and wait for no known member.
    pub(in crate::client) open: Roles,
    pub(in crate::client) journal: JournalFacts,
}

/// Judgement of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::client) enum NodeVerdict {
    /// Continues at this step, and sends its request.
    Ask(NegotiationStep),
    /// Rests at this step until others continue.
    Hold(NegotiationStep),
    /// Continues at this step, with this superblock of the volume.
    Keep(Box<Superblock>, NegotiationStep),
    /// Continues as a member with this superblock.
    Accept(Box<Superblock>),
    /// Ends the visit: an absent member is in its place, and may be added.
    Absent(Box<Superblock>, Option<BadBlocks>),
    /// Ends the visit: the absent member stays away until the operator takes it back.
    KeepAway(Refusal),
    /// Ends the visit: another member has the role of the absent one, which has thus departed.
    Replaced(Refusal),
    /// Ends the visit for good.
    Over,
    /// Repeats the request after a moment.
    Again,
    /// Fails the node: it is there and does not do its part.
    Lose(Refusal),
    /// Gives up: the array must not start as if the node were dead.
    GiveUp(Refusal),
    /// Ends the negotiation: the node cannot be used as it is.
    Refuse(Refusal),
    /// Ends the negotiation: the node is of no use now.
    Fail,
    /// Fails the node: it violates the protocol.
    Violation(&'static str),
}

/// Returns the verdict on an answer.
pub(in crate::client) fn judge(
    negotiation: Negotiation,
    answer: &Answer,
    facts: &Facts,
) -> NodeVerdict {
    use NegotiationStep::{
        Granted, Granting, Identifying, Listing, Looking, Opening, Prepared, Preparing,
    };
    use Purpose::{Absent, Copy, Departed, Look, Recover, Return, Spare, Start};
    match (negotiation.step, negotiation.purpose, answer) {
        (Identifying, Recover | Spare | Copy, Answer::Identity(_)) => target_is_on(&facts.voters),
        (Identifying, Departed, Answer::Identity(_)) => departed_is_on(&facts.voters),
        (Granting, Return | Recover | Spare | Copy | Departed, Answer::Granted(_)) => {
            NodeVerdict::Hold(Granted)
        }
        (Opening, Recover, Answer::Volume { .. }) => match facts.candidate.clone() {
            Some(Ok(superblock)) => NodeVerdict::Accept(Box::new(superblock)),
            Some(Err(why)) => NodeVerdict::Refuse(why),
            None => NodeVerdict::Fail,
        },
        (Looking, Return | Spare | Copy, Answer::Content(_)) => member_found(facts),
        (Looking, Absent, Answer::Content(_)) => absent_found(facts),
        (Listing, Absent, Answer::Content(bytes)) => absent_listed(facts, bytes),
        (Preparing, Start | Look, Answer::Pipeline { .. }) => NodeVerdict::Hold(Prepared),
        (Preparing, Return | Recover | Spare | Copy, Answer::Pipeline { .. }) => {
            pipeline_ready(negotiation.purpose, facts.journal)
        }
        (_, _, Answer::Refused(why)) => refused(negotiation, why.clone(), facts.patient),
        (_, _, answer) => NodeVerdict::Violation(answer.unasked()),
    }
}

/// Judges the node that is to have a role: it must have no other member, and be no witness.
fn target_is_on(voters: &[VoterOnNode]) -> NodeVerdict {
    let other = |voter: &&VoterOnNode| !matches!(voter, VoterOnNode::Member { taken: false, .. });
    match voters.iter().find(other) {
        None => NodeVerdict::Ask(NegotiationStep::Granting),
        Some(VoterOnNode::Witness) => {
            NodeVerdict::Refuse(Refusal::new("is on the node of a witness", "use another node"))
        }
        Some(VoterOnNode::Member { .. }) => NodeVerdict::Refuse(Refusal::new(
            "is on the node of another member",
            "use a node of its own for each member",
        )),
    }
}

/// Judges a departed node. The node of a connected member has nothing to drop, and a witness stays
/// one.
fn departed_is_on(voters: &[VoterOnNode]) -> NodeVerdict {
    let has_part =
        |voter: &VoterOnNode| !matches!(voter, VoterOnNode::Member { connected: false, .. });
    if voters.iter().any(has_part) {
        NodeVerdict::Over
    } else {
        NodeVerdict::Ask(NegotiationStep::Granting)
    }
}

/// Judges the superblock of a returning member or of a spare.
fn member_found(facts: &Facts) -> NodeVerdict {
    let (Some(member), Some(found)) = (&facts.member, &facts.found) else {
        return NodeVerdict::Fail;
    };
    match (is_other(member, found), found) {
        (Some(why), _) => NodeVerdict::Refuse(why),
        (None, Ok(found)) => NodeVerdict::Keep(Box::new(found.clone()), NegotiationStep::Preparing),
        (None, Err(_)) => NodeVerdict::Fail,
    }
}

/// Judges the superblock of a visited volume; a bad-block log is read first.
fn absent_found(facts: &Facts) -> NodeVerdict {
    match &facts.found {
        Some(Ok(found)) if matches!(bad_blocks_place(found, facts.volume_sectors), Ok(Some(_))) => {
            NodeVerdict::Keep(Box::new(found.clone()), NegotiationStep::Listing)
        }
        _ => absent_is(facts, None),
    }
}

fn absent_listed(facts: &Facts, bytes: &[u8]) -> NodeVerdict {
    let Some(Ok(found)) = &facts.found else { return NodeVerdict::Fail };
    let list = read_bad_blocks(found, facts.volume_sectors, &mut |_, _| Ok(bytes.to_owned()));
    absent_is(facts, list.ok())
}

/// Judges a visited volume: whether it is a member's whose role is open.
fn absent_is(facts: &Facts, bad_blocks: Option<BadBlocks>) -> NodeVerdict {
    let Some(found) = &facts.found else { return NodeVerdict::Fail };
    if let Some(Refusal { reason, .. }) = is_of_another(facts.array, found) {
        return NodeVerdict::Refuse(Refusal::new(reason, IN_ITS_PLACE));
    }
    let Ok(found) = found else { return NodeVerdict::Fail };
    if facts.made_faulty {
        return NodeVerdict::KeepAway(Refusal::new(MADE_FAULTY, "take it back with braid re-add"));
    }
    match found.role() {
        DevRole::Active(role) if facts.open.contains(role) => {
            NodeVerdict::Absent(Box::new(found.clone()), bad_blocks)
        }
        DevRole::Active(Role(role)) if role < facts.nodes => {
            NodeVerdict::Replaced(Refusal::new(ANOTHERS, IN_ITS_PLACE))
        }
        _ => NodeVerdict::Fail,
    }
}

/// Judges the journal of a joining node. Only a member that was one before has records to replay.
fn pipeline_ready(purpose: Purpose, journal: JournalFacts) -> NodeVerdict {
    let had = matches!(purpose, Purpose::Return | Purpose::Recover);
    if !journal.used {
        NodeVerdict::Hold(NegotiationStep::Prepared)
    } else if !journal.suffices {
        let reason = "its volume has no journal that is large enough";
        NodeVerdict::Refuse(Refusal::new(reason, NEW_VOLUME))
    } else if had && journal.replays {
        NodeVerdict::Ask(NegotiationStep::Replaying)
    } else {
        NodeVerdict::Ask(NegotiationStep::Emptying)
    }
}

/// Judges a refusal. At the start, one that may be temporary is borne for a while.
fn refused(Negotiation { purpose, step }: Negotiation, why: Refusal, patient: bool) -> NodeVerdict {
    match (purpose, step) {
        (Purpose::Start | Purpose::Look, NegotiationStep::Opening) if patient => NodeVerdict::Again,
        (Purpose::Start, NegotiationStep::Wiring) if patient => NodeVerdict::Again,
        // Two nodes that are there do not see each other.
        (Purpose::Start, NegotiationStep::Wiring) => NodeVerdict::Lose(why),
        (Purpose::Start | Purpose::Look, _) => NodeVerdict::GiveUp(why),
        (Purpose::Return, NegotiationStep::Opening) => {
            NodeVerdict::Refuse(Refusal::new(why.reason, ITS_STORE))
        }
        (Purpose::Absent, _) => NodeVerdict::Refuse(Refusal::new(why.reason, IN_ITS_PLACE)),
        _ => NodeVerdict::Refuse(why),
    }
}

/// Returns the refusal of a volume that holds no member of the array.
fn is_of_another(array: [u8; 16], found: &Result<Superblock, SuperblockError>) -> Option<Refusal> {
    let reason = match found {
        Err(SuperblockError::NoMagic) => "its volume is empty: it has no superblock".to_owned(),
        Err(error) => format!("the superblock of its volume is damaged: {error}"),
        Ok(found) if found.set_uuid != array => {
            format!("its volume is of another array, {}", found.uuid_text())
        }
        Ok(_) => return None,
    };
    Some(Refusal::new(reason, ITS_STORE))
}

/// Returns the refusal of a volume that does not hold the lost member.
fn is_other(member: &Superblock, found: &Result<Superblock, SuperblockError>) -> Option<Refusal> {
    let another = is_of_another(member.set_uuid, found);
    let (Ok(found), None) = (found, &another) else { return another };
    let reason = if found.device_uuid != member.device_uuid {
        ANOTHERS
    } else if found.data_offset != member.data_offset {
        "its volume was made anew: the data begins at another sector"
    } else {
        return None;
    };
    Some(Refusal::new(reason, ITS_STORE))
}
