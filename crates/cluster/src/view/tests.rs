use super::*;

const ARRAY: [u8; 16] = [7; 16];

fn vote() -> Vote {
    let (members, voters) = (vec![0x1122_3344_5566_7788, 0, 3], vec![10, 11, 12, 13]);
    let view = View { epoch: 8, count: 3, torn: true, members, voters, voted: vec![14, 11] };
    Vote { granted: 9, to: 10, view }
}

#[test]
fn the_checksum_is_that_of_iscsi() {
    assert_eq!(crc32c(b"123456789"), 0xe306_9283);
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
}

#[test]
fn no_flipped_bit_and_no_other_array_gets_through() {
    let slot = vote().encode(&ARRAY, 5);
    for bit in 0..8 * 128 {
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
    let new = Vote { granted: 10, ..vote() };
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
        let view = View { voters: (0..voters as u64).collect(), ..View::default() };
        let first = |count: usize| (0..count as u64).collect::<BTreeSet<u64>>();
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
    let voters = vec![2; MAX_NAMED - 6];
    let view = View { members: vec![1; 4], voters, ..vote().view };
    let vote = Vote { view, ..vote() };
    assert_eq!(Vote::decode(&ARRAY, &vote.encode(&ARRAY, 1)), Some((1, vote.clone())));
    let view = View { members: vec![1; 5], ..vote.view };
    assert!(!view.fits());
}
