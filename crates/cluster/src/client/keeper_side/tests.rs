//! The choice of members, alone: events, and the commands that they lead to.

use braid_array::action::{CommandId, NewMember};
use braid_array::format::{BadBlocks, DevRole, Superblock};
use braid_array::{MemberId, Role};

use super::*;
use crate::client::ClientMember;
use crate::client::sessions::negotiation::{Negotiation, NegotiationStep, Purpose};
use crate::client::sessions::session::SessionState;
use crate::member::VolumeAddress;

const PATIENCE_MS: u64 = 60_000;
const TARGET: SessionKey = SessionKey::CopyTarget;
const COMMAND: CommandId = CommandId(5);
const OLD: MemberId = MemberId(1);
const COMING: SessionState = SessionState::Negotiating(Negotiation {
    purpose: Purpose::Return,
    step: NegotiationStep::Looking,
});

/// Without absent members, or with these.
fn side(absent: &[&str]) -> KeeperSide {
    let absent = absent.iter().map(|&address| (address.to_owned(), "v".to_owned()));
    let mut side = KeeperSide::new(absent.collect(), Vec::new(), PATIENCE_MS);
    side.now = Instant(0).plus_millis(1_000_000);
    side
}

fn commands(side: &mut KeeperSide) -> Vec<JoinCommand> {
    std::iter::from_fn(|| side.next_command()).collect()
}

fn node(address: &str) -> NewMember {
    NewMember {
        member: MemberId(7),
        device: format!("node://{address}/v"),
        device_sectors: 1 << 20,
        device_uuid: [7; 16],
        superblock: None,
        bad_blocks: None,
        readd: false,
    }
}

/// A node with a superblock of this role.
fn of_role(address: &str, role: DevRole) -> NewMember {
    let mut superblock = Superblock { dev_number: 0, roles: vec![role], ..Superblock::blank() };
    superblock.raid_disks = 3;
    NewMember { superblock: Some(Box::new(superblock)), ..node(address) }
}

fn volume(address: &str, volume: &str) -> VolumeAddress {
    VolumeAddress { address: address.to_owned(), volume: volume.to_owned() }
}

fn recovery(origin: Origin) -> Recovery {
    Recovery { origin, new: Box::new(node("s")), place: Role(0) }
}

fn member() -> Box<ClientMember> {
    let superblock = Superblock::blank();
    let VolumeAddress { address, volume } = volume("s", "v");
    Box::new(ClientMember { address, volume, superblock, bad_blocks: BadBlocks::default() })
}

/// A node is being added.
fn recovering(origin: Origin) -> KeeperSide {
    let mut side = side(&["n9"]);
    side.begin(recovery(origin), Ok(member()));
    commands(&mut side);
    side
}

const fn vacancy(role: u16, state: SessionState) -> Vacancy {
    Vacancy { role: Role(role), state, had: true, due: None, gone_at: Instant(0) }
}

fn facts(vacancies: &[Vacancy]) -> JoinFacts {
    JoinFacts { may_return: true, spares: vec![node("s")], vacancies: vacancies.to_vec() }
}

fn open_role() -> JoinFacts {
    JoinFacts { spares: Vec::new(), ..facts(&[vacancy(0, SessionState::Missing)]) }
}

fn because(reason: &str) -> Refusal {
    Refusal::new(reason, "then")
}

fn copy(command: Option<CommandId>) -> Origin {
    Origin::Copy { command, old: OLD }
}

const ORIGINS: [Origin; 6] = [
    Origin::Command(COMMAND),
    Origin::Absent,
    Origin::Spare,
    Origin::Copy { command: Some(COMMAND), old: OLD },
    Origin::Copy { command: None, old: OLD },
    Origin::Copied,
];

/// Returns the reasons that commands give.
fn reasons(commands: &[JoinCommand]) -> Vec<&str> {
    let mut reasons = Vec::new();
    for command in commands {
        if let JoinCommand::Reply(_, Err(why)) | JoinCommand::EndCopying(_, why) = command {
            reasons.push(why.reason.as_str());
        }
    }
    reasons
}

#[test]
fn a_node_gets_its_former_role_then_one_without_a_member_then_one_that_nobody_returns_to() {
    let due = Some(Instant(1));
    let returns = |role| Vacancy { due, ..vacancy(role, SessionState::Lost) };
    let stays_away = |role| vacancy(role, SessionState::Lost);
    let removed = |role| Vacancy { had: false, ..vacancy(role, SessionState::Missing) };
    let cases = [
        (node("a"), vec![], None),
        (node("a"), vec![returns(0), stays_away(1), removed(2)], Some(2)),
        (node("a"), vec![returns(0), stays_away(1)], Some(1)),
        (node("a"), vec![returns(0), returns(1)], Some(0)),
        (of_role("a", DevRole::Active(Role(0))), vec![returns(0), removed(2)], Some(0)),
        (of_role("a", DevRole::Active(Role(1))), vec![returns(0), removed(2)], Some(2)),
        (of_role("a", DevRole::Spare), vec![returns(0), removed(2)], Some(2)),
    ];
    for (new, vacancies, role) in cases {
        let mut side = side(&[]);
        let new = Box::new(new);
        side.add(&facts(&vacancies), COMMAND, new.clone());
        let expected = match role.map(Role) {
            Some(place) => {
                JoinCommand::Recover(Recovery { origin: Origin::Command(COMMAND), new, place })
            }
            None => JoinCommand::AddSpare(COMMAND, new),
        };
        assert_eq!(commands(&mut side), [expected], "{vacancies:?}");
    }
}

#[test]
fn a_command_ends_the_addition_of_a_node_that_no_command_waits_for() {
    for origin in ORIGINS {
        let ends = matches!(origin, Origin::Absent | Origin::Spare) || origin == copy(None);
        let mut side = recovering(origin);
        side.add(&open_role(), CommandId(6), Box::new(node("a")));
        let told = commands(&mut side);
        assert_eq!(matches!(told.last(), Some(JoinCommand::Recover(_))), ends, "{told:?}");
        assert_eq!(told.contains(&JoinCommand::HangUp(recovery(origin).key())), ends, "{told:?}");
        let busy = reasons(&told).contains(&"another node is being added");
        assert_eq!(busy, !ends, "{told:?}");
    }
}

#[test]
fn who_waits_for_a_node_hears_that_it_may_not_have_the_role() {
    for origin in ORIGINS {
        let mut side = side(&[]);
        side.begin(recovery(origin), Err(because("is too small")));
        let told = commands(&mut side);
        let by_command = matches!(origin, Origin::Command(_)) || origin == copy(Some(COMMAND));
        assert_eq!(reasons(&told), ["is too small"][..usize::from(by_command)], "{origin:?}");
        assert_eq!(told.len(), usize::from(by_command));
        assert!(side.target(Role(0).into()).is_none() && side.target(TARGET).is_none());
    }
}

#[test]
fn a_node_is_connected_to_on_the_session_of_its_role_or_that_of_a_copy() {
    for origin in ORIGINS {
        let mut side = side(&[]);
        side.begin(recovery(origin), Ok(member()));
        let (key, purpose) = match origin {
            Origin::Command(_) | Origin::Absent => (Role(0).into(), Purpose::Recover),
            Origin::Spare | Origin::Copied => (Role(0).into(), Purpose::Spare),
            Origin::Copy { .. } => (TARGET, Purpose::Copy),
        };
        let connect = JoinCommand::Connect { key, place: Role(0), member: member(), purpose };
        assert_eq!(commands(&mut side), [connect]);
        assert_eq!(side.target(key), Some((&node("s"), Role(0))));
        side.target_opened(99);
        assert_eq!(side.target(key).map(|(new, _)| new.device_sectors), Some(99));
    }
}

#[test]
fn after_a_failure_the_former_member_has_its_session_and_who_waits_hears_why() {
    for origin in ORIGINS {
        let mut side = recovering(origin);
        let key = recovery(origin).key();
        let other = if key == TARGET { Role(0).into() } else { TARGET };
        side.failed(other, Some(because("no")));
        assert_eq!(commands(&mut side), [], "another session");
        side.fail(key, Some(because("no")));
        let copied = matches!(origin, Origin::Copy { .. }).then_some(Role(0));
        let mut expected = vec![JoinCommand::HangUp(key), JoinCommand::Restore(key, copied)];
        match origin {
            Origin::Command(id) | Origin::Copy { command: Some(id), .. } => {
                expected.push(JoinCommand::Reply(id, Err(because("no"))));
            }
            Origin::Copy { command: None, old } => {
                expected.push(JoinCommand::EndCopying(old, because("no")));
            }
            Origin::Absent | Origin::Spare | Origin::Copied => {}
        }
        assert_eq!(commands(&mut side), expected);
        assert_eq!(side.target(key), None);
        side.fail(key, None);
        assert_eq!(commands(&mut side), [JoinCommand::HangUp(key)], "it is over");
    }
    let mut side = recovering(copy(Some(COMMAND)));
    side.stop();
    assert_eq!(reasons(&commands(&mut side)), ["the array changes no more"]);
    side.stop();
    assert_eq!(commands(&mut side), []);
}

#[test]
fn a_wired_node_is_taken_in_unless_others_have_come_or_gone_meanwhile() {
    for origin in [Origin::Command(COMMAND), Origin::Absent, Origin::Spare, Origin::Copied] {
        for is_spare in [false, true] {
            for candidate in [Ok(MemberId(3)), Err(because("is too small"))] {
                let mut side = recovering(origin);
                side.target_wired(is_spare, candidate.clone());
                let told = commands(&mut side);
                let needs_spare = matches!(origin, Origin::Spare | Origin::Copied);
                let mut taken = recovery(origin);
                taken.new.member = MemberId(3);
                if candidate.is_ok() && (is_spare || !needs_spare) {
                    assert_eq!(told, [JoinCommand::TakeIn(taken)]);
                } else {
                    assert_eq!(told[0], JoinCommand::HangUp(Role(0).into()));
                    let why = match (needs_spare && !is_spare, origin) {
                        (_, Origin::Absent | Origin::Spare | Origin::Copied) => vec![],
                        (true, _) => vec!["other members have come or gone meanwhile"],
                        (false, _) => vec!["is too small"],
                    };
                    assert_eq!(reasons(&told), why);
                }
            }
        }
    }
}

#[test]
fn a_member_that_is_taken_in_sends_its_predecessor_away_and_absent_ones_when_no_role_is_open() {
    for (facts, gone) in [(open_role(), vec!["n1"]), (facts(&[]), vec!["n1", "n9"])] {
        let mut side = recovering(Origin::Spare);
        side.taken_in(&facts, Some("n1".to_owned()));
        assert_eq!(side.target(Role(0).into()), None);
        let departed: Vec<&str> = side.departed.places().map(|one| one.address.as_str()).collect();
        assert_eq!(departed, gone);
    }
}

#[test]
fn a_spare_waits_for_who_may_return_by_itself() {
    let at = |millis| Instant(0).plus_millis(millis);
    let gone_at = at(100);
    let late = at(100 + PATIENCE_MS);
    let attempt = at(200 + PATIENCE_MS);
    let cases = [
        // State, time of the next attempt, absent members.
        (SessionState::Missing, None, false, gone_at),
        (SessionState::Missing, None, true, late),
        (SessionState::Lost, None, true, gone_at),
        (SessionState::Lost, Some(at(150)), false, late),
        (COMING, Some(at(150)), false, late),
        (COMING, Some(attempt), false, attempt),
    ];
    for (state, due, absent, expected) in cases {
        let mut side = side(if absent { &["n9"] } else { &[] });
        let mut facts = facts(&[Vacancy { due, gone_at, ..vacancy(2, state) }]);
        let found = side.next_for_spare(&facts);
        assert_eq!(found, Some((expected, Role(2))), "{state:?} {due:?} {absent}");
        for (now, begins) in [(Instant(expected.0 - 1), false), (expected, true)] {
            side.now = now;
            side.use_spares(&facts);
            let new = Box::new(node("s"));
            let recovery = Recovery { origin: Origin::Spare, new, place: Role(2) };
            let used = [JoinCommand::Recover(recovery)];
            assert_eq!(commands(&mut side), used[..usize::from(begins)]);
        }
        facts.may_return = false;
        assert_eq!(side.next_for_spare(&facts), None);
        assert_eq!(side.deadline(&facts), None);
    }
}

#[test]
fn another_spare_is_tried_after_a_pause_and_none_while_a_node_is_added() {
    let mut side = side(&[]);
    let mut facts = facts(&[vacancy(0, SessionState::Missing)]);
    facts.spares.push(node("t"));
    let mut used = Vec::new();
    for _ in 0..3 {
        let (due, _) = side.next_for_spare(&facts).expect("a role is vacant");
        side.now = due;
        side.use_spares(&facts);
        for command in commands(&mut side) {
            let JoinCommand::Recover(recovery) = command else { panic!("{command:?}") };
            used.push(recovery.new.device.clone());
            side.begin(recovery, Err(because("no")));
        }
        assert!(side.next_for_spare(&facts).is_some_and(|(next, _)| next > due));
    }
    assert_eq!(used, ["node://s/v", "node://t/v", "node://s/v"]);
    for origin in ORIGINS {
        let waits = recovering(origin).next_for_spare(&facts).is_none();
        assert_eq!(waits, origin != copy(None), "{origin:?}");
    }
    facts.spares.clear();
    assert_eq!(side.next_for_spare(&facts), None);
}

#[test]
fn a_departed_node_is_visited_unless_it_has_a_member() {
    let role = SessionKey::Member(Role(0));
    let visit = JoinCommand::Visit(SessionKey::DepartedVisit, volume("d", ""));
    let cases = [
        // Who has a session at this address, and whether the node is visited, or forgotten.
        (vec![], true, false),
        (vec![(SessionKey::Member(Role(1)), "e".to_owned(), true)], true, false),
        (vec![(SessionKey::Member(Role(1)), "d".to_owned(), false)], true, false),
        (vec![(SessionKey::Member(Role(1)), "d".to_owned(), true)], false, true),
        (vec![(role, "d".to_owned(), true)], false, false),
    ];
    for (members, visited, forgotten) in cases {
        let mut side = recovering(Origin::Command(COMMAND));
        side.departs("d".to_owned());
        let mut facts = facts(&[]);
        facts.may_return = false;
        side.tick(&facts, &members);
        assert_eq!(commands(&mut side), [], "no node may come now");
        facts.may_return = true;
        assert_eq!(side.deadline(&facts), Some(side.now));
        side.tick(&facts, &members);
        let visits = std::slice::from_ref(&visit);
        assert_eq!(commands(&mut side), visits[..usize::from(visited)], "{members:?}");
        assert_eq!(side.departed.places().next().is_none(), forgotten, "{members:?}");
        let due = side.deadline(&facts);
        assert_eq!(due.is_none(), visited || forgotten, "{members:?}");
        assert!(due.is_none_or(|due| due > side.now));
    }
}

#[test]
fn an_absent_member_is_visited_while_a_role_is_open_and_no_node_is_added() {
    let open = open_role();
    let stays = JoinFacts { may_return: false, ..open.clone() };
    let cases = [
        (side(&["n9"]), &open, true),
        (side(&["n9"]), &stays, false),
        (side(&["n9"]), &facts(&[vacancy(0, SessionState::Lost)]), false),
        (side(&[]), &open, false),
        (recovering(copy(None)), &open, false),
    ];
    for (mut side, facts, visited) in cases {
        side.look_for_absent(facts);
        let visit = JoinCommand::Visit(SessionKey::AbsentVisit, volume("n9", "v"));
        assert_eq!(commands(&mut side), [visit][..usize::from(visited)], "{facts:?}");
        side.look_for_absent(facts);
        assert_eq!(commands(&mut side), [], "it is being visited");
    }
}

/// An absent member is being visited.
fn visiting() -> KeeperSide {
    let mut side = side(&["n9"]);
    side.look_for_absent(&open_role());
    commands(&mut side);
    side
}

#[test]
fn an_absent_member_that_is_found_is_added_if_it_may_be() {
    let visit = SessionKey::AbsentVisit;
    let active = of_role("n9", DevRole::Active(Role(0)));
    let cases = [
        (open_role(), Some(active.clone()), true),
        (open_role(), None, false),
        (open_role(), Some(of_role("n9", DevRole::Spare)), false),
        (facts(&[]), Some(active.clone()), false),
    ];
    for (facts, new, added) in cases {
        let mut side = visiting();
        side.absent_found(&facts, new);
        let new = Box::new(active.clone());
        let recovery = Recovery { origin: Origin::Absent, new, place: Role(0) };
        let expected = [JoinCommand::HangUp(visit), JoinCommand::Recover(recovery)];
        assert_eq!(commands(&mut side), expected[..1 + usize::from(added)], "{facts:?}");
        assert!(side.absents.visits.deadline().is_some_and(|due| due > side.now));
    }
}

#[test]
fn an_absent_member_stays_in_the_status_with_the_reason_until_it_is_a_member() {
    let why = because("nobody is there");
    let mut side = visiting();
    side.failed(SessionKey::AbsentVisit, Some(why.clone()));
    let status = side.absent_status(&open_role());
    let status: Vec<_> = status.into_iter().map(|one| (one.device, one.why)).collect();
    assert_eq!(status, [("node://n9/v".to_owned(), why)]);
    assert_eq!(side.absent_status(&facts(&[])).len(), 0, "no role is open");
    let new = Box::new(node("n9"));
    side.begin(Recovery { origin: Origin::Absent, new, place: Role(0) }, Ok(member()));
    side.target_wired(false, Ok(MemberId(3)));
    assert_eq!(side.absent_status(&open_role()).len(), 0);
    assert_eq!(side.absent_places().count(), 0);
}

#[test]
fn an_absent_member_is_not_visited_again_when_it_is_kept_away_and_told_when_it_is_replaced() {
    let mut side = visiting();
    side.absent_kept_away();
    side.failed(SessionKey::AbsentVisit, Some(because("was made faulty")));
    assert_eq!(side.absent_places().count(), 0);
    assert_eq!(side.absent_status(&open_role()).len(), 1);
    let mut side = visiting();
    side.absent_replaced();
    let departed: Vec<VolumeAddress> = side.departed.places().cloned().collect();
    assert_eq!(departed, [volume("n9", "")]);
}

#[test]
fn a_member_is_replaced_by_a_spare_if_enough_others_vote() {
    let spare = || Some(node("s"));
    let role = Some(Role(0));
    let cases = [
        (side(&[]), role, true, spare(), None),
        (recovering(Origin::Spare), role, true, spare(), Some("another node is being added")),
        (side(&[]), role, true, None, Some("there is no spare to copy it to")),
        (side(&[]), None, false, spare(), Some("its node is not there")),
        (
            side(&[]),
            role,
            false,
            spare(),
            Some("without its node too few of those that vote would be left"),
        ),
    ];
    for (mut side, role, votes, spare, refused) in cases {
        side.replace(COMMAND, OLD, role, votes, spare);
        let told = commands(&mut side);
        assert_eq!(reasons(&told).first().copied(), refused);
        let copies = told == [JoinCommand::Recover(recovery(copy(Some(COMMAND))))];
        assert_eq!(copies, refused.is_none(), "{told:?}");
    }
}

#[test]
fn a_copy_begins_when_its_target_is_wired_and_ends_with_the_role() {
    let mut side = recovering(copy(Some(COMMAND)));
    side.copy_wired();
    assert_eq!(commands(&mut side), [JoinCommand::BeginCopying(OLD, Role(0))]);
    side.copy_begun();
    assert_eq!(commands(&mut side), [JoinCommand::Reply(COMMAND, Ok(()))]);
    assert_eq!(side.copied(), Some((OLD, Role(0), &node("s"))));
    assert_eq!(side.recovery.as_ref().map(|one| one.origin), Some(copy(None)), "it is answered");
    side.exchange();
    assert_eq!(commands(&mut side), [JoinCommand::Exchange(Role(0))]);
    assert_eq!((side.copied(), side.target(TARGET)), (None, None));
    assert_eq!(side.target(Role(0).into()), Some((&node("s"), Role(0))));
    side.exchange();
    assert_eq!(commands(&mut side), [], "once is enough");
    // If it fails now, the old one has its session again; no copy has to be ended.
    let key = Role(0).into();
    side.failed(key, None);
    assert_eq!(commands(&mut side), [JoinCommand::Restore(key, None)]);
    side.copy_wired();
    assert_eq!(commands(&mut side), [JoinCommand::HangUp(TARGET)], "nothing is copied");
}

#[test]
fn a_command_is_refused_if_the_copy_cannot_begin() {
    let mut side = recovering(copy(Some(COMMAND)));
    side.copy_wired();
    commands(&mut side);
    side.fail(TARGET, Some(because("the array is not in sync")));
    let told = commands(&mut side);
    let refused = JoinCommand::Reply(COMMAND, Err(because("the array is not in sync")));
    assert_eq!(told.last(), Some(&refused), "{told:?}");
}

#[test]
fn visits_are_one_at_a_time_with_longer_and_longer_pauses_and_end_after_so_many() {
    let mut visits = Visits::new(Some(3));
    let mut now = Instant(0);
    visits.add(volume("a", "v"), 0, now);
    visits.add(volume("b", "v"), 0, now);
    visits.begin(visits.next(now).expect("one is due"));
    assert_eq!((visits.next(now), visits.deadline()), (None, None), "one is being visited");
    visits.done();
    let mut pauses = Vec::new();
    while let Some(due) = visits.deadline() {
        pauses.push(due.0 - now.0);
        now = due;
        visits.begin(visits.next(now).expect("it is due"));
        assert_eq!(visits.failed(now), Some(volume("b", "v")));
        assert_eq!((visits.failed(now), visits.next(now)), (None, None));
    }
    assert_eq!(pauses.len(), 3, "{pauses:?}");
    assert!(pauses.is_sorted(), "{pauses:?}");
    assert_eq!(visits.places().next(), None);
}
