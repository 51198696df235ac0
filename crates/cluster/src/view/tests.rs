use super::*;
use crate::ids::{Epoch, NodeId};

const ARRAY: [u8; 16] = [7; 16];

fn vote() -> Vote {
    let members = [0x1122_3344_5566_7788, 0, 3].map(NonZeroU64::new).to_vec();
    let voters = [10, 11, 12, 13].map(NodeId).to_vec();
    let witnesses = vec![Witness { node: NodeId(13), address: "w:7000".into() }];
    let view = View {
        epoch: Epoch(8),
        count: 3,
        torn: true,
        members,
        voters,
        voted: [14, 11].map(NodeId).to_vec(),
        witnesses,
    };
    Vote { granted: Epoch(9), to: 10, view: Some(view) }
}

#[test]
fn a_slot_says_what_was_put_into_it() {
    let slot = vote().encode(&ARRAY, 5);
    assert_eq!(slot.len(), SLOT_BYTES);
    assert_eq!(Vote::decode(&ARRAY, &slot), Some((5, vote())));
    assert_eq!(slot[..8], *MAGIC);
    // The places that the format names.
    assert_eq!((slot[12], slot[14], slot[16], slot[32], slot[40]), (1, 4, 7, 5, 9));
    assert_eq!((slot[44], slot[48], slot[52], slot[56], slot[58]), (8, 3, 1, 3, 2));
    assert_eq!(slot[64], 10);
    assert_eq!(slot[72..80], 0x1122_3344_5566_7788u64.to_le_bytes());
    assert_eq!((slot[96], slot[128]), (10, 14));
    assert_eq!((slot[60], slot[144], slot[152], &slot[154..160]), (1, 13, 6, &b"w:7000"[..]));
}

#[test]
fn no_flipped_bit_and_no_other_array_gets_through() {
    let slot = vote().encode(&ARRAY, 5);
    for bit in 0..8 * 160 {
        let mut bad = slot.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(Vote::decode(&ARRAY, &bad), None, "bit {bit}");
    }
    assert_eq!(Vote::decode(&[8; 16], &slot), None);
    assert_eq!(Vote::decode(&ARRAY, &slot[..SLOT_BYTES - 1]), None);
}

#[test]
fn a_torn_slot_leaves_the_one_before() {
    let old = vote();
    let new = Vote { granted: Epoch(10), ..vote() };
    let mut file = vec![0; 2 * SLOT_BYTES];
    for (vote, sequence) in [(&old, 4), (&new, 5)] {
        let at = slot_byte(sequence) as usize;
        file[at..at + SLOT_BYTES].copy_from_slice(&vote.encode(&ARRAY, sequence));
    }
    assert_eq!(Vote::newest(&ARRAY, &file), Some((5, new)));
    file[SLOT_BYTES + 60] ^= 1;
    assert_eq!(Vote::newest(&ARRAY, &file), Some((4, old.clone())));
    assert_eq!(Vote::newest(&ARRAY, &file[..SLOT_BYTES]), Some((4, old)));
    assert_eq!(Vote::newest(&ARRAY, &[]), None);
}

#[test]
fn what_enough_voters_have_every_majority_hears_of() {
    for voters in 1..70 {
        let view = View { voters: (0..voters as u64).map(NodeId).collect(), ..View::default() };
        let first = |count: usize| (0..count as u64).map(NodeId).collect::<BTreeSet<NodeId>>();
        let enough = (0..=voters).find(|&count| view.holds(&first(count))).expect("all");
        assert!(enough + majority(voters) > voters);
        assert!(2 * majority(voters) > voters);
        assert!(enough <= majority(voters));
        assert_eq!(view.lacks(&first(majority(voters))), None);
        let less = majority(voters) - 1;
        assert_eq!(view.lacks(&first(less)), Some((less, less + 1)));
    }
}

#[test]
fn the_largest_view_fits() {
    let voters = vec![NodeId(2); (SLOT_BYTES - HEAD_BYTES - 16) / 8 - 6];
    let one = NonZeroU64::new(1);
    let view = View { members: vec![one; 4], voters, ..vote().view.expect("one") };
    assert!(view.fits());
    let vote = Vote { view: Some(view.clone()), ..vote() };
    assert_eq!(Vote::decode(&ARRAY, &vote.encode(&ARRAY, 1)), Some((1, vote.clone())));
    let view = View { members: vec![one; 5], ..view };
    assert!(!view.fits());
    let long = Witness { node: NodeId(1), address: "w".repeat(MAX_ADDRESS_BYTES + 1) };
    assert!(!View { witnesses: vec![long], ..View::default() }.fits());
}

/// Returns whether two clients, neither of which learns of the other, can both go on while node 2
/// of the voters 0 to 2 gives its vote to node 3. Tries all states that can have been noted then.
fn two_can_go_on(joint: &View) -> bool {
    let sets = || (0u32..16).map(|bits| (0..4).filter(move |node| bits & 1 << node != 0));
    let sets = || sets().map(|set| set.map(NodeId).collect::<BTreeSet<NodeId>>());
    let voters = |last| [0, 1, last].map(NodeId).to_vec();
    let before = View { epoch: Epoch(1), count: 1, voters: voters(2), ..View::default() };
    let after = View { epoch: Epoch(1), count: 3, voters: voters(3), ..View::default() };
    let goes_on = |noted: [Option<&View>; 4], here: &BTreeSet<NodeId>| {
        let newest = here.iter().filter_map(|&node| noted[node.0 as usize]);
        newest.max_by_key(|view| view.order()).is_some_and(|view| view.lacks(here).is_none())
    };
    sets().any(|has_joint| {
        let next = sets().filter(|next| next.is_empty() || joint.holds(&has_joint));
        next.into_iter().any(|has_after| {
            let noted = [0, 1, 2, 3].map(NodeId).map(|node| match node {
                _ if has_after.contains(&node) => Some(&after),
                _ if has_joint.contains(&node) => Some(joint),
                NodeId(3) => None,
                _ => Some(&before),
            });
            let able: Vec<_> = sets().filter(|here| goes_on(noted, here)).collect();
            able.iter().any(|one| able.iter().any(|other| one.is_disjoint(other)))
        })
    })
}

#[test]
fn while_voters_change_no_two_clients_go_on() {
    let voters = [0, 1, 3].map(NodeId).to_vec();
    let voted = [0, 1, 2].map(NodeId).to_vec();
    let joint = View { epoch: Epoch(1), count: 2, voters, voted, ..View::default() };
    assert!(!two_can_go_on(&joint));
    // Only a majority of the new ones is not enough.
    assert!(two_can_go_on(&View { voted: Vec::new(), ..joint }));
}
