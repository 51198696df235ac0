//! Who holds an array that another client takes over.

use super::super::takeover::{Decision, Findings, Grant, decide};
use super::*;
use crate::view::View;

const N: u16 = 5;

/// The newest view that all have been told of: all five, as they were started first.
fn view(torn: bool) -> View {
    let members = (0..N).map(|role| 100 + u64::from(role)).collect();
    View { epoch: 3, count: 1, torn, members, voters: (0..u64::from(N)).collect(), voted: vec![] }
}

/// These roles are there, of which some were started again.
fn grants(there: &[u16], anew: &[u16], torn: bool) -> BTreeMap<u16, Grant> {
    let grant = |&role: &u16| {
        let incarnation = u64::from(role) + if anew.contains(&role) { 200 } else { 100 };
        (role, Grant { view: view(torn), incarnation, node: role.into() })
    };
    there.iter().map(grant).collect()
}

fn decided(
    grants: &BTreeMap<u16, Grant>,
    marked: bool,
    vouched: bool,
) -> Result<Decision, Refusal> {
    decide(&Findings {
        epoch: 4,
        nodes: N,
        grants,
        in_sync: &|_| true,
        lost: &BTreeSet::new(),
        alone: vouched,
        vouched,
        survives: &|lost| (0..N).filter(|&role| lost(role)).count() <= 2,
        parities: true,
        marked,
        recorded: false,
    })
}

fn holders(decision: &Decision) -> Vec<u16> {
    (0..N).filter(|&role| decision.view.has(role)).collect()
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
        assert!(decision.soft && !decision.view.torn, "{there:?} {anew:?}");
        assert_eq!((holders(&decision), decision.stale), (holds.to_vec(), stale.to_vec()));
    }
}

#[test]
fn parities_are_in_doubt_where_too_few_never_died() {
    let complete = decided(&grants(&[0, 1, 2, 3, 4], &[1, 2, 3], false), true, false);
    let complete = complete.expect("all are there");
    assert!(!complete.soft && complete.view.torn, "a resync is due");
    assert_eq!(holders(&complete), [0, 1, 2, 3, 4]);

    for (there, anew, torn) in [(&[0, 1, 2, 3][..], &[1, 2][..], false), (&[0, 1, 2, 3], &[], true)]
    {
        let grants = grants(there, anew, torn);
        let refused = decided(&grants, true, false).expect_err("nobody vouches for it");
        assert!(refused.to_string().contains("parity"), "{refused}");
        let vouched = decided(&grants, true, true).expect("somebody does");
        assert!(!vouched.soft && vouched.view.torn);
        // Stopped cleanly, nothing is in doubt.
        let clean = decided(&grants, false, false).expect("nothing was under way");
        assert_eq!(holders(&clean), there);
    }
}
