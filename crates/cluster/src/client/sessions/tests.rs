//! The table of negotiations and the judgement of answers, alone.

use braid_array::Role;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::Answer;
use super::judge::{Facts, JournalFacts, NodeVerdict, VoterOnNode, judge};
use super::negotiation::{
    AnswerKind, Negotiation, NegotiationStep, Next, Purpose, Question, message, next,
};
use crate::Planner;
use crate::client::sessions::NegotiationFacts;
use crate::family::Family;
use crate::ids::{Epoch, NodeId, SetVersion};
use crate::pipeline::{Params, Slots};
use crate::set::Roles;
use crate::wire::{Message, PeerAddress};
use braid_array::Refusal;
use braid_array::format::{DevRole, Superblock};
use braid_array::level::{Layout, Level};

const PURPOSES: [Purpose; 8] = [
    Purpose::Start,
    Purpose::Look,
    Purpose::Return,
    Purpose::Recover,
    Purpose::Spare,
    Purpose::Copy,
    Purpose::Absent,
    Purpose::Departed,
];

const STEPS: [NegotiationStep; 16] = [
    NegotiationStep::Connecting,
    NegotiationStep::Identifying,
    NegotiationStep::Granting,
    NegotiationStep::Granted,
    NegotiationStep::Resolving,
    NegotiationStep::Opening,
    NegotiationStep::Looking,
    NegotiationStep::Listing,
    NegotiationStep::Preparing,
    NegotiationStep::Replaying,
    NegotiationStep::Emptying,
    NegotiationStep::Prepared,
    NegotiationStep::Wiring,
    NegotiationStep::Copying,
    NegotiationStep::Flushing,
    NegotiationStep::ReadingBack,
];

const SAID: [AnswerKind; 11] = [
    AnswerKind::Connected,
    AnswerKind::Identity,
    AnswerKind::Granted,
    AnswerKind::Outvoted,
    AnswerKind::Done,
    AnswerKind::Volume { used: false },
    AnswerKind::Volume { used: true },
    AnswerKind::Content,
    AnswerKind::Pipeline,
    AnswerKind::Refused,
    AnswerKind::Other,
];

/// Returns the positive answer of a node; `None` where none is due. The takeover requests the vote
/// of a member at the start.
fn good(purpose: Purpose, step: NegotiationStep) -> Option<AnswerKind> {
    Some(match step {
        NegotiationStep::Granting if purpose == Purpose::Start => return None,
        NegotiationStep::Connecting => AnswerKind::Connected,
        NegotiationStep::Identifying => AnswerKind::Identity,
        NegotiationStep::Granting => AnswerKind::Granted,
        NegotiationStep::Opening => AnswerKind::Volume { used: false },
        NegotiationStep::Looking | NegotiationStep::Listing => AnswerKind::Content,
        NegotiationStep::Preparing => AnswerKind::Pipeline,
        NegotiationStep::Replaying if !matches!(purpose, Purpose::Return | Purpose::Recover) => {
            return None;
        }
        NegotiationStep::Resolving
        | NegotiationStep::Replaying
        | NegotiationStep::Emptying
        | NegotiationStep::Wiring
        | NegotiationStep::Flushing => AnswerKind::Done,
        NegotiationStep::Granted
        | NegotiationStep::Prepared
        | NegotiationStep::Copying
        | NegotiationStep::ReadingBack => return None,
    })
}

/// Returns the next step after a positive judgement or decision of others; `None` at the end.
fn decided(purpose: Purpose, step: NegotiationStep) -> Option<NegotiationStep> {
    match (purpose, step) {
        (_, NegotiationStep::Identifying) => Some(NegotiationStep::Granting),
        (Purpose::Start, NegotiationStep::Granting) => Some(NegotiationStep::Opening),
        (_, NegotiationStep::Granting) => Some(NegotiationStep::Granted),
        (_, NegotiationStep::Granted) => Some(NegotiationStep::Resolving),
        (_, NegotiationStep::Opening) => Some(NegotiationStep::Preparing),
        (Purpose::Absent, NegotiationStep::Looking) => Some(NegotiationStep::Listing),
        (_, NegotiationStep::Listing) => None,
        (_, NegotiationStep::Looking) => Some(NegotiationStep::Preparing),
        (Purpose::Start | Purpose::Look, NegotiationStep::Preparing) => {
            Some(NegotiationStep::Prepared)
        }
        (Purpose::Return | Purpose::Recover, NegotiationStep::Preparing) => {
            Some(NegotiationStep::Replaying)
        }
        (_, NegotiationStep::Preparing) => Some(NegotiationStep::Emptying),
        (Purpose::Look, NegotiationStep::Prepared) => None,
        (_, NegotiationStep::Prepared) => Some(NegotiationStep::Wiring),
        (_, NegotiationStep::Copying) => Some(NegotiationStep::Flushing),
        _ => None,
    }
}

/// The steps of a negotiation in which all is well.
fn way(purpose: Purpose) -> Vec<NegotiationStep> {
    let mut way = vec![NegotiationStep::Connecting];
    loop {
        let step = *way.last().expect("it begins");
        assert!(way.len() <= STEPS.len(), "{purpose:?} goes in a circle: {way:?}");
        let said = good(purpose, step).map(|said| next(Negotiation { purpose, step }, said));
        let goes_on = match said {
            Some(Next::Ask(step) | Next::Hold(step)) => Some(step),
            None | Some(Next::Judge) => decided(purpose, step),
            Some(Next::Wired(true)) if purpose == Purpose::Copy => Some(NegotiationStep::Copying),
            Some(Next::Ready | Next::Wired(true) | Next::Over) => None,
            Some(other) => panic!("{purpose:?} at {step:?}: {other:?}"),
        };
        match goes_on {
            Some(step) => way.push(step),
            None => return way,
        }
    }
}

#[test]
fn every_purpose_comes_to_its_end() {
    use NegotiationStep::{
        Connecting, Copying, Emptying, Flushing, Granted, Granting, Identifying, Listing, Looking,
        Opening, Prepared, Preparing, ReadingBack, Replaying, Resolving, Wiring,
    };
    let returns = [Connecting, Granting, Granted, Resolving, Opening, Looking, Preparing];
    let wired = [Emptying, Prepared, Wiring];
    let identified = [Connecting, Identifying, Granting, Granted, Resolving];
    let copied = [Copying, Flushing, ReadingBack];
    let all = |parts: &[&[NegotiationStep]]| parts.concat();
    let looked = [Opening, Looking, Preparing];
    let start = [Connecting, Granting, Opening, Preparing, Prepared, Wiring];
    assert_eq!(way(Purpose::Start), start);
    assert_eq!(way(Purpose::Look), [Connecting, Opening, Preparing, Prepared]);
    assert_eq!(way(Purpose::Return), all(&[&returns, &[Replaying], &wired]));
    assert_eq!(
        way(Purpose::Recover),
        all(&[&identified, &[Opening, Preparing, Replaying], &wired])
    );
    assert_eq!(way(Purpose::Spare), all(&[&identified, &looked, &wired]));
    assert_eq!(way(Purpose::Copy), all(&[&identified, &looked, &wired, &copied]));
    assert_eq!(way(Purpose::Absent), [Connecting, Opening, Looking, Listing]);
    assert_eq!(way(Purpose::Departed), identified);
}

#[test]
fn what_is_not_expected_is_refused() {
    let refused = |next| matches!(next, Next::Violation | Next::Fail);
    for purpose in PURPOSES {
        let way: BTreeSet<usize> = way(purpose).into_iter().map(|step| step as usize).collect();
        for step in STEPS {
            for said in SAID {
                let next = next(Negotiation { purpose, step }, said);
                let means_well = match (good(purpose, step), said) {
                    (Some(AnswerKind::Volume { .. }), AnswerKind::Volume { .. }) => true,
                    (good, said) => good == Some(said),
                };
                let judged = said == AnswerKind::Refused && next == Next::Judge;
                if !way.contains(&(step as usize)) {
                    assert!(refused(next) || judged, "{purpose:?} never is at {step:?}: {next:?}");
                } else if (step, said) == (NegotiationStep::Replaying, AnswerKind::Refused) {
                    // It has recorded nothing that could be told.
                    assert_eq!(next, Next::Ask(NegotiationStep::Emptying), "{purpose:?}");
                } else if said == AnswerKind::Refused {
                    let wired = next == Next::Wired(false);
                    assert!(judged || wired, "{purpose:?} at {step:?}: {next:?}");
                } else if !means_well && said != AnswerKind::Outvoted {
                    assert_eq!(next, Next::Violation, "{purpose:?} at {step:?} hears {said:?}");
                }
            }
        }
    }
}

#[test]
fn another_client_ends_what_is_negotiated_beside_a_takeover() {
    for purpose in PURPOSES {
        let next =
            next(Negotiation { purpose, step: NegotiationStep::Granting }, AnswerKind::Outvoted);
        let expected = match purpose {
            Purpose::Departed => Next::Over,
            Purpose::Return | Purpose::Recover | Purpose::Spare | Purpose::Copy => Next::Fail,
            // That of a member at the start is heard by the takeover.
            Purpose::Start | Purpose::Look | Purpose::Absent => Next::Violation,
        };
        assert_eq!(next, expected, "{purpose:?}");
    }
}

fn facts() -> NegotiationFacts {
    let slots = Slots { count: 3, bytes: 4096 };
    let params = Params {
        session: 7,
        epoch: Epoch(2),
        family: Family::Md { level: Level::Raid5, layout: Layout::default_for(Level::Raid5) },
        nodes: 3,
        chunk_bytes: 4096,
        stripes: 10,
        planner: Planner::Client,
        wide: slots,
        narrow: slots,
        reads: slots,
        silence_ms: 4000,
    };
    let mark = SetVersion::new(Epoch(2), 5);
    let decided = Some(Arc::new((SetVersion::new(Epoch(1), 4), Vec::new())));
    let array = [3; 16];
    NegotiationFacts { array, params, mark, decided, version: 0, starting: false, may_return: true }
}

fn asked(purpose: Purpose, step: NegotiationStep) -> Option<Message> {
    let address = "n2".to_owned();
    let peers = vec![PeerAddress { role: Role(2), address, ring: 64 }];
    let volume = "v".to_owned();
    let place = Some(Role(1));
    let question = Question { volume, place, data_sector: 64, list: Some((24, 4096)), peers };
    message(Negotiation { purpose, step }, 9, &facts(), question)
}

#[test]
fn a_step_asks_where_a_node_has_to_answer() {
    for purpose in PURPOSES {
        for step in way(purpose) {
            let answered = good(purpose, step).is_some() && step != NegotiationStep::Connecting;
            assert_eq!(asked(purpose, step).is_some(), answered, "{purpose:?} at {step:?}");
        }
    }
    let grant = Message::Grant { tag: 9, array: [3; 16], epoch: Epoch(2), client: 7 };
    assert_eq!(asked(Purpose::Return, NegotiationStep::Granting), Some(grant));
    let params = facts().params;
    let prepare = Message::OpenPipeline { tag: 9, role: Role(1), data_sector: 64, params };
    assert_eq!(asked(Purpose::Copy, NegotiationStep::Preparing), Some(prepare));
    let list = Message::ReadMeta { tag: 9, sector: 24, bytes: 4096 };
    assert_eq!(asked(Purpose::Absent, NegotiationStep::Listing), Some(list));
    let empty = Message::TrimJournal { tag: 9, mark: facts().mark, all: true };
    assert_eq!(asked(Purpose::Return, NegotiationStep::Emptying), Some(empty));
}

#[test]
fn a_volume_is_opened_for_writing_by_whoever_is_to_write() {
    for purpose in PURPOSES {
        let reads = matches!(purpose, Purpose::Look | Purpose::Absent);
        let name = "v".to_owned();
        let open = Message::OpenVolume { tag: 9, name, write: !reads };
        assert_eq!(asked(purpose, NegotiationStep::Opening), Some(open), "{purpose:?}");
    }
}

fn verdict(purpose: Purpose, step: NegotiationStep, answer: &Answer, facts: &Facts) -> NodeVerdict {
    judge(Negotiation { purpose, step }, answer, facts)
}

/// Returns the reason of a verdict that ends a negotiation.
fn reason(verdict: NodeVerdict) -> String {
    match verdict {
        NodeVerdict::Refuse(why) | NodeVerdict::KeepAway(why) | NodeVerdict::Replaced(why) => {
            why.reason
        }
        other => format!("{other:?}"),
    }
}

#[test]
fn a_node_has_one_member_and_a_departed_one_has_none() {
    let on = |purpose, voter: &[VoterOnNode]| {
        let facts = Facts { voters: voter.to_vec(), ..Facts::default() };
        verdict(purpose, NegotiationStep::Identifying, &Answer::Identity(NodeId(1)), &facts)
    };
    let member = |taken, connected| VoterOnNode::Member { taken, connected };
    let goes_on = NodeVerdict::Ask(NegotiationStep::Granting);
    for purpose in [Purpose::Recover, Purpose::Spare, Purpose::Copy] {
        assert_eq!(on(purpose, &[]), goes_on);
        assert_eq!(on(purpose, &[member(false, true)]), goes_on);
        let voters = [member(false, false), member(true, false)];
        assert_eq!(reason(on(purpose, &voters)), "is on the node of another member");
        assert_eq!(reason(on(purpose, &[VoterOnNode::Witness])), "is on the node of a witness");
    }
    assert_eq!(on(Purpose::Departed, &[member(true, false)]), goes_on);
    assert_eq!(on(Purpose::Departed, &[member(false, true)]), NodeVerdict::Over);
    assert_eq!(on(Purpose::Departed, &[VoterOnNode::Witness]), NodeVerdict::Over);
}

#[test]
fn a_journal_is_large_enough_and_is_replayed_for_who_was_a_member() {
    let answer = Answer::Pipeline { ring: 0, journal_bytes: 0, parts_only: false };
    let at = |purpose, used, suffices, replays| {
        let journal = JournalFacts { used, suffices, replays };
        let facts = Facts { journal, ..Facts::default() };
        verdict(purpose, NegotiationStep::Preparing, &answer, &facts)
    };
    let prepared = NodeVerdict::Hold(NegotiationStep::Prepared);
    let empties = NodeVerdict::Ask(NegotiationStep::Emptying);
    for purpose in PURPOSES {
        let had = matches!(purpose, Purpose::Return | Purpose::Recover);
        let replays = NodeVerdict::Ask(NegotiationStep::Replaying);
        if purpose.is_visit() {
            let violation = NodeVerdict::Violation(answer.unasked());
            assert_eq!(at(purpose, true, true, true), violation);
        } else if purpose.is_start() {
            assert_eq!(at(purpose, true, false, true), prepared);
        } else {
            assert_eq!(at(purpose, false, false, true), prepared);
            assert!(reason(at(purpose, true, false, true)).contains("no journal"));
            assert_eq!(at(purpose, true, true, false), empties);
            assert_eq!(at(purpose, true, true, true), if had { replays } else { empties.clone() });
        }
    }
}

#[test]
fn a_volume_holds_the_member_that_is_expected() {
    let content = Answer::Content(Vec::new());
    let own = Superblock { set_uuid: [3; 16], ..Superblock::blank() };
    let of = |purpose, found: Superblock, facts: Facts| {
        let facts = Facts { array: [3; 16], member: Some(own.clone()), nodes: 3, ..facts };
        let facts = Facts { found: Some(Ok(found)), ..facts };
        verdict(purpose, NegotiationStep::Looking, &content, &facts)
    };
    let other = Superblock { device_uuid: [9; 16], ..own.clone() };
    let strange = Superblock { set_uuid: [8; 16], ..own.clone() };
    for purpose in [Purpose::Return, Purpose::Spare, Purpose::Copy] {
        let kept = NodeVerdict::Keep(Box::new(own.clone()), NegotiationStep::Preparing);
        assert_eq!(of(purpose, own.clone(), Facts::default()), kept);
        assert!(reason(of(purpose, other.clone(), Facts::default())).contains("another member"));
        assert!(reason(of(purpose, strange.clone(), Facts::default())).contains("another array"));
    }
    let first = Superblock { dev_number: 0, roles: vec![DevRole::Active(Role(0))], ..own.clone() };
    let absent = |found: &Superblock, facts| of(Purpose::Absent, found.clone(), facts);
    let open = || Facts { open: Roles::all(3), ..Facts::default() };
    let found = NodeVerdict::Absent(Box::new(first.clone()), None);
    assert_eq!(absent(&first, open()), found);
    assert!(matches!(absent(&first, Facts::default()), NodeVerdict::Replaced(_)));
    let faulty = Facts { made_faulty: true, ..open() };
    assert!(matches!(absent(&first, faulty), NodeVerdict::KeepAway(_)));
    assert!(matches!(absent(&strange, open()), NodeVerdict::Refuse(_)));
    let beyond = Superblock { roles: vec![DevRole::Active(Role(7))], ..first };
    assert_eq!(absent(&beyond, open()), NodeVerdict::Fail);
}

#[test]
fn a_refusal_at_the_start_is_borne_for_a_while() {
    let why = Refusal::new("full", "");
    let answer = Answer::Refused(why.clone());
    for purpose in PURPOSES {
        for step in STEPS {
            let hears =
                |patient| verdict(purpose, step, &answer, &Facts { patient, ..Facts::default() });
            let wires = (purpose, step) == (Purpose::Start, NegotiationStep::Wiring);
            if !purpose.is_start() {
                assert_eq!(reason(hears(true)), "full");
                continue;
            }
            let ends = NodeVerdict::GiveUp(why.clone());
            let ends = if wires { NodeVerdict::Lose(why.clone()) } else { ends };
            assert_eq!(hears(false), ends, "{purpose:?} at {step:?}");
            let borne = wires || step == NegotiationStep::Opening;
            assert_eq!(hears(true), if borne { NodeVerdict::Again } else { ends });
        }
    }
}
