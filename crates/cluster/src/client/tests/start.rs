//! Starts during which nodes are lost.

use braid_array::Role;
use std::collections::VecDeque;

use braid_array::format::superblock::feature;

use super::*;
use crate::ids::{Epoch, SetVersion};

/// Journal size of the nodes.
const JOURNAL_BYTES: u64 = 1 << 20;

/// Returns the answer of a healthy node at a start, with a journal in which nothing is recorded.
fn answer_with_journal(role: Role, message: &Message) -> Option<Message> {
    match *message {
        Message::OpenPipeline { tag, .. } => {
            let journal_bytes = JOURNAL_BYTES;
            Some(Message::PipelineReady { tag, ring: 0, journal_bytes, parts_only: false })
        }
        Message::ListJournal { tag, .. } => Some(Message::JournalEntries {
            tag,
            mark: SetVersion::default(),
            items: Vec::new(),
            next: 0,
        }),
        Message::ReplayJournal { tag, .. } | Message::TrimJournal { tag, .. } => {
            Some(Message::Ok { tag })
        }
        _ => answer(role, message),
    }
}

/// An array whose journals may hold something.
fn with_journals() -> Client {
    let mut config = config(Planner::Encoder { node: Role(0) });
    for member in config.members.iter_mut().flatten() {
        member.superblock.feature_map |= feature::NODE_JOURNALS;
    }
    made(config)
}

/// Starts a client. After this many answers the nodes in `lost` are lost and say nothing more; if
/// there are none, the start runs until set-up is over. Returns the number of answers.
fn start(client: &mut Client, answers: usize, lost: &[Role]) -> usize {
    let mut given = 0;
    let mut asked = VecDeque::new();
    for now in 2.. {
        for action in actions(client) {
            match action {
                Action::Fabric(FabricOp::Connect { peer, .. }) => asked.push_back((peer, None)),
                Action::Fabric(FabricOp::Send { peer, bytes }) => {
                    asked.push_back((peer, Some(Message::decode(&bytes).expect("a message").1)));
                }
                _ => {}
            }
        }
        client.invariants().expect("every wait ends");
        if lost.is_empty() && client.is_set_up() {
            return given;
        }
        if given == answers {
            lost.iter().for_each(|&role| lose(client, role));
            given += 1;
            continue;
        }
        let Some((peer, message)) = asked.pop_front() else { return given };
        let of_peer = |link: &Session| link.peer == Some(peer) && link.is_connected();
        let Some(role) = client.parts.sessions.list.members().iter().position(of_peer) else {
            continue;
        };
        let event = match message {
            None => FabricEvent::Connected { peer },
            Some(message) => match answer_with_journal(Role::at(role), &message) {
                Some(answer) => FabricEvent::Message { peer, bytes: answer.encode(Epoch(1)) },
                None => continue,
            },
        };
        given += 1;
        client.handle(Instant(now), Event::Fabric(event));
    }
    given
}

#[test]
fn a_start_that_loses_too_many_ends_at_whatever_moment() {
    let mut whole = with_journals();
    let answers = start(&mut whole, usize::MAX, &[]);
    assert!(matches!(whole.parts.phase, ClientPhase::Running) && !whole.parts.writes_over());
    for moment in 0..answers {
        let mut client = with_journals();
        start(&mut client, moment, &[Role(1), Role(2)]);
        assert!(client.is_set_up() && client.has_too_few(), "after {moment} answers");
        assert!(
            client.parts.sessions.list.members().iter().all(|link| !link.is_connected()),
            "after {moment} answers"
        );
    }
}
