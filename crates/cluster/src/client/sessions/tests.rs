//! The table of negotiations alone.

use braid_array::Role;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::negotiation::{Negotiation, Next, Purpose, Question, Said, Step, message, next};
use crate::Planner;
use crate::client::sessions::Facts;
use crate::family::Family;
use crate::ids::{Epoch, SetVersion};
use crate::pipeline::{Params, Slots};
use crate::wire::{Message, PeerAddress};
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

const STEPS: [Step; 16] = [
    Step::Connecting,
    Step::Identifying,
    Step::Granting,
    Step::Granted,
    Step::Resolving,
    Step::Opening,
    Step::Looking,
    Step::Listing,
    Step::Preparing,
    Step::Replaying,
    Step::Emptying,
    Step::Prepared,
    Step::Wiring,
    Step::Copying,
    Step::Flushing,
    Step::ReadingBack,
];

const SAID: [Said; 11] = [
    Said::Connected,
    Said::Identity,
    Said::Granted,
    Said::Outvoted,
    Said::Done,
    Said::Volume { used: false },
    Said::Volume { used: true },
    Said::Content,
    Said::Pipeline,
    Said::Refused,
    Said::Other,
];

/// What a node says that means well. For the vote of a member at the start the takeover asks.
fn good(purpose: Purpose, step: Step) -> Option<Said> {
    Some(match step {
        Step::Granting if purpose == Purpose::Start => return None,
        Step::Connecting => Said::Connected,
        Step::Identifying => Said::Identity,
        Step::Granting => Said::Granted,
        Step::Opening => Said::Volume { used: false },
        Step::Looking | Step::Listing => Said::Content,
        Step::Preparing => Said::Pipeline,
        Step::Replaying if !matches!(purpose, Purpose::Return | Purpose::Recover) => return None,
        Step::Resolving | Step::Replaying | Step::Emptying | Step::Wiring | Step::Flushing => {
            Said::Done
        }
        Step::Granted | Step::Prepared | Step::Copying | Step::ReadingBack => return None,
    })
}

/// How others go on who judge well, or at whose decision it rests; `None` at the end.
fn decided(purpose: Purpose, step: Step) -> Option<Step> {
    match (purpose, step) {
        (_, Step::Identifying) => Some(Step::Granting),
        (Purpose::Start, Step::Granting) => Some(Step::Opening),
        (_, Step::Granting) => Some(Step::Granted),
        (_, Step::Granted) => Some(Step::Resolving),
        (_, Step::Opening) => Some(Step::Preparing),
        (Purpose::Absent, Step::Looking) => Some(Step::Listing),
        (_, Step::Listing) => None,
        (_, Step::Looking) => Some(Step::Preparing),
        (Purpose::Start | Purpose::Look, Step::Preparing) => Some(Step::Prepared),
        (Purpose::Return | Purpose::Recover, Step::Preparing) => Some(Step::Replaying),
        (_, Step::Preparing) => Some(Step::Emptying),
        (Purpose::Look, Step::Prepared) => None,
        (_, Step::Prepared) => Some(Step::Wiring),
        (_, Step::Copying) => Some(Step::Flushing),
        _ => None,
    }
}

/// The steps of a negotiation in which all is well.
fn way(purpose: Purpose) -> Vec<Step> {
    let mut way = vec![Step::Connecting];
    loop {
        let step = *way.last().expect("it begins");
        assert!(way.len() <= STEPS.len(), "{purpose:?} goes in a circle: {way:?}");
        let said = good(purpose, step).map(|said| next(Negotiation { purpose, step }, said));
        let goes_on = match said {
            Some(Next::Ask(step) | Next::Hold(step)) => Some(step),
            None | Some(Next::Judge) => decided(purpose, step),
            Some(Next::Wired(true)) if purpose == Purpose::Copy => Some(Step::Copying),
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
    use Step::{
        Connecting, Copying, Emptying, Flushing, Granted, Granting, Identifying, Listing, Looking,
        Opening, Prepared, Preparing, ReadingBack, Replaying, Resolving, Wiring,
    };
    let returns = [Connecting, Granting, Granted, Resolving, Opening, Looking, Preparing];
    let wired = [Emptying, Prepared, Wiring];
    let identified = [Connecting, Identifying, Granting, Granted, Resolving];
    let copied = [Copying, Flushing, ReadingBack];
    let all = |parts: &[&[Step]]| parts.concat();
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
    let refused = |next| {
        matches!(next, Next::Violation | Next::Refuse | Next::GiveUp | Next::Again | Next::Fail)
    };
    for purpose in PURPOSES {
        let way: BTreeSet<usize> = way(purpose).into_iter().map(|step| step as usize).collect();
        for step in STEPS {
            for said in SAID {
                let next = next(Negotiation { purpose, step }, said);
                let means_well = match (good(purpose, step), said) {
                    (Some(Said::Volume { .. }), Said::Volume { .. }) => true,
                    (good, said) => good == Some(said),
                };
                if !way.contains(&(step as usize)) {
                    assert!(refused(next), "{purpose:?} never is at {step:?}: {next:?}");
                } else if (step, said) == (Step::Replaying, Said::Refused) {
                    // It has recorded nothing that could be told.
                    assert_eq!(next, Next::Ask(Step::Emptying), "{purpose:?}");
                } else if said == Said::Refused {
                    let wired = next == Next::Wired(false);
                    assert!(refused(next) && next != Next::Violation || wired, "{purpose:?}");
                } else if !means_well && said != Said::Outvoted {
                    assert_eq!(next, Next::Violation, "{purpose:?} at {step:?} hears {said:?}");
                }
            }
        }
    }
}

#[test]
fn another_client_ends_what_is_negotiated_beside_a_takeover() {
    for purpose in PURPOSES {
        let next = next(Negotiation { purpose, step: Step::Granting }, Said::Outvoted);
        let expected = match purpose {
            Purpose::Departed => Next::Over,
            Purpose::Return | Purpose::Recover | Purpose::Spare | Purpose::Copy => Next::Fail,
            // That of a member at the start is heard by the takeover.
            Purpose::Start | Purpose::Look | Purpose::Absent => Next::Violation,
        };
        assert_eq!(next, expected, "{purpose:?}");
    }
}

fn facts() -> Facts {
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
    Facts { array, params, mark, decided, version: 0, starting: false, may_return: true }
}

fn asked(purpose: Purpose, step: Step) -> Option<Message> {
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
            let answered = good(purpose, step).is_some() && step != Step::Connecting;
            assert_eq!(asked(purpose, step).is_some(), answered, "{purpose:?} at {step:?}");
        }
    }
    let grant = Message::Grant { tag: 9, array: [3; 16], epoch: Epoch(2), client: 7 };
    assert_eq!(asked(Purpose::Return, Step::Granting), Some(grant));
    let params = facts().params;
    let prepare = Message::OpenPipeline { tag: 9, role: Role(1), data_sector: 64, params };
    assert_eq!(asked(Purpose::Copy, Step::Preparing), Some(prepare));
    let list = Message::ReadMeta { tag: 9, sector: 24, bytes: 4096 };
    assert_eq!(asked(Purpose::Absent, Step::Listing), Some(list));
    let empty = Message::TrimJournal { tag: 9, mark: facts().mark, all: true };
    assert_eq!(asked(Purpose::Return, Step::Emptying), Some(empty));
}

#[test]
fn a_volume_is_opened_for_writing_by_whoever_is_to_write() {
    for purpose in PURPOSES {
        let reads = matches!(purpose, Purpose::Look | Purpose::Absent);
        let name = "v".to_owned();
        let open = Message::OpenVolume { tag: 9, name, write: !reads };
        assert_eq!(asked(purpose, Step::Opening), Some(open), "{purpose:?}");
    }
}
