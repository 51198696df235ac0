//! Decision on the holders of an array that another client takes over.

use std::num::NonZeroU64;

use super::super::ownership::decision::{Decision, Findings, NodeGrant, decide};
use super::*;
use crate::ids::{Epoch, NodeId, VoterNo};
use crate::view::{View, Witness};
use braid_array::Role;

const N: u16 = 5;

/// The newest view, which all have been told of: all five, as they were started first.
fn view(torn: bool) -> View {
    let members = (0..N).map(|role| NonZeroU64::new(100 + u64::from(role))).collect();
    let voters = (0..u64::from(N)).map(NodeId).collect();
    View { epoch: Epoch(3), count: 1, torn, members, voters, ..View::default() }
}

/// These roles are there, of which some were started again.
fn grants(there: &[u16], anew: &[u16], torn: bool) -> BTreeMap<VoterNo, NodeGrant> {
    let grant = |&role: &u16| {
        let incarnation = u64::from(role) + if anew.contains(&role) { 200 } else { 100 };
        let grant = NodeGrant { view: Some(view(torn)), incarnation, node: NodeId(role.into()) };
        (VoterNo(role), grant)
    };
    there.iter().map(grant).collect()
}

static NONE_LOST: BTreeSet<VoterNo> = BTreeSet::new();

fn decided(
    grants: &BTreeMap<VoterNo, NodeGrant>,
    marked: bool,
    vouched: bool,
) -> Result<Decision, Refusal> {
    decide(&findings(grants, marked, vouched))
}

fn findings(grants: &BTreeMap<VoterNo, NodeGrant>, marked: bool, vouched: bool) -> Findings<'_> {
    Findings {
        epoch: Epoch(4),
        nodes: N,
        grants,
        in_sync: &|_| true,
        lost: &NONE_LOST,
        alone: vouched,
        vouched,
        survives: &|lost| Role::all(N).filter(|&role| lost(role)).count() <= 2,
        parities: true,
        marked,
        recorded: false,
        ppl: false,
    }
}

#[test]
fn what_is_not_recorded_keeps_nobody_from_starting_and_is_not_believed() {
    // Three died, and one of the others is not there.
    let grants = grants(&[0, 1, 2, 3], &[1, 2, 3], false);
    let findings = findings(&grants, true, false);
    decide(&findings).expect_err("parities are in doubt");
    let ppl = decide(&Findings { ppl: true, ..findings }).expect("it starts");
    assert!(ppl.view.torn && !ppl.fits && !ppl.intact);
    let recorded = decide(&Findings { recorded: true, ppl: true, ..findings }).expect("it starts");
    assert!(!recorded.view.torn && recorded.fits);
    assert_eq!(holders(&ppl), [0, 1, 2, 3]);
}

fn holders(decision: &Decision) -> Vec<u16> {
    (0..N).filter(|&role| decision.view.has(Role(role))).collect()
}

#[test]
fn those_who_never_died_hold_it_if_they_are_enough() {
    let all = [0, 1, 2, 3, 4];
    for (there, anew, holds, stale) in [
        (&all[..], &[][..], &all[..], &[][..]),
        (&all, &[3], &[0, 1, 2, 4], &[3]),
        (&all, &[1, 3], &[0, 2, 4], &[1, 3]),
        (&[0, 2, 3, 4], &[3], &[0, 2, 4], &[3]),
        (&[0, 2, 4], &[], &[0, 2, 4], &[]),
    ] {
        let decision = decided(&grants(there, anew, false), true, false).expect("a majority");
        assert!(decision.intact && !decision.view.torn, "{there:?} {anew:?}");
        let missed: Vec<u16> = decision.stale.iter().map(|role| role.0).collect();
        assert_eq!((holders(&decision), missed), (holds.to_vec(), stale.to_vec()));
    }
}

#[test]
fn parities_are_in_doubt_where_too_few_never_died() {
    let complete = decided(&grants(&[0, 1, 2, 3, 4], &[1, 2, 3], false), true, false);
    let complete = complete.expect("all are there");
    assert!(!complete.intact && complete.view.torn, "a resync is due");
    assert_eq!(holders(&complete), [0, 1, 2, 3, 4]);

    for (there, anew, torn) in [(&[0, 1, 2, 3][..], &[1, 2][..], false), (&[0, 1, 2, 3], &[], true)]
    {
        let grants = grants(there, anew, torn);
        let refused = decided(&grants, true, false).expect_err("nobody vouches for it");
        assert!(refused.to_string().contains("parity"), "{refused}");
        let vouched = decided(&grants, true, true).expect("somebody does");
        assert!(!vouched.intact && vouched.view.torn);
        // Stopped cleanly, nothing is in doubt.
        let clean = decided(&grants, false, false).expect("nothing was under way");
        assert_eq!(holders(&clean), there);
    }
}

#[test]
fn what_journals_do_not_hold_keeps_nobody_from_starting() {
    let grants = grants(&[0, 1, 2, 3], &[0, 1, 2, 3], true);
    let neither = findings(&grants, true, false);
    decide(&neither).expect_err("parities are in doubt");
    let recorded = Findings { recorded: true, ..neither };
    let copies = Findings { parities: false, ..neither };
    for findings in [recorded, copies] {
        let decision = decide(&findings).expect("it starts");
        assert!(decision.view.torn && !decision.fits, "a resync is due, or much is lost");
        assert_eq!(holders(&decision), [0, 1, 2, 3]);
    }
}

/// Decides on a mirror of two whose witness is node 9; `there` lists the roles that are there.
fn mirror(there: &[u16], witness: bool, alone: bool) -> Result<Decision, Refusal> {
    let witnesses = vec![Witness { node: NodeId(9), address: "w:7000".into() }];
    let members = [100, 101].map(NonZeroU64::new).to_vec();
    let voters = [0, 1, 9].map(NodeId).to_vec();
    let before = View { epoch: Epoch(3), count: 1, members, voters, witnesses, ..View::default() };
    // Role 1 was lost, of which it has not heard.
    let after =
        View { count: 2, members: [100, 0].map(NonZeroU64::new).to_vec(), ..before.clone() };
    let grant = |&voter: &u16| {
        let view = if voter == 1 { before.clone() } else { after.clone() };
        let node = if voter < 2 { voter } else { 9 };
        let incarnation = 100 + u64::from(voter);
        (VoterNo(voter), NodeGrant { view: Some(view), incarnation, node: NodeId(node.into()) })
    };
    let grants = there.iter().chain(&[2][..usize::from(witness)]).map(grant).collect();
    decide(&Findings {
        epoch: Epoch(4),
        nodes: 2,
        grants: &grants,
        in_sync: &|role| role < Role(2),
        lost: &BTreeSet::new(),
        alone,
        vouched: alone,
        survives: &|lost| !lost(Role(0)) || !lost(Role(1)),
        parities: false,
        marked: true,
        recorded: false,
        ppl: false,
    })
}

#[test]
fn a_witness_has_a_vote_and_knows_who_was_lost() {
    let decision = mirror(&[0], true, false).expect("two of three");
    assert_eq!(decision.view.members, [100, 0].map(NonZeroU64::new));
    assert_eq!((decision.view.voters.len(), decision.view.witnesses.len()), (3, 1));
    let why = mirror(&[0], false, false).expect_err("one of three");
    assert!(why.next.advice.contains("the witness at w:7000"), "{why}");
    let why = mirror(&[1], true, false).expect_err("it has missed writes");
    assert!(why.reason.contains("missed writes"), "{why}");
    // Whoever insists has that one as it is.
    assert_eq!(
        mirror(&[1], true, true).expect("somebody answers for it").view.members,
        [0, 101].map(NonZeroU64::new)
    );
    assert_eq!(mirror(&[0, 1], true, false).expect("all").stale, [Role(1)]);
}
