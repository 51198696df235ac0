//! Deallocated ranges, and writes that are omitted because the content is already right.

use braid_array::Role;
use braid_array::code::Content;
use braid_cluster::Family;
use braid_cluster::ids::StripeNo;
use braid_cluster::set::{Set, Touched, WriteStrategy};

use super::array::{Array, ENCODER};

/// Written everywhere in one stripe.
fn written(stripe: u64, seed: u64) -> Array {
    let mut array = Array::connected(Family::Xor2d, 5, ENCODER, seed);
    let halves: Vec<Set> =
        [0, 4096].map(|offset| Set { offset, ..array.set((offset / 4096) as u16, stripe) }).into();
    halves.iter().for_each(|set| array.write(set));
    array.run();
    array.expect_closed(&halves);
    array
}

fn writes(array: &Array) -> Vec<usize> {
    array.world.sites().map(|site| array.world.counts(site).writes).collect()
}

#[test]
fn a_stripe_that_is_trimmed_reads_as_zeroes_and_needs_no_space() {
    for seed in 0..10 {
        let mut array = written(3, seed);
        let before = writes(&array);
        let set = Set { strategy: WriteStrategy::Zero, ..array.set(2, 3) };
        array.blank(&set);
        array.run();
        array.expect_closed(&[set]);
        array.verify();
        assert_eq!(writes(&array), before);
        let rows = usize::from(array.pipeline.rows());
        assert!(array.world.sites().all(|site| array.world.counts(site).given_back == rows));
    }
}

#[test]
fn a_part_of_a_stripe_cannot_be_trimmed() {
    let mut array = written(3, 1);
    let whole = Set { strategy: WriteStrategy::Zero, ..array.set(2, 3) };
    assert!(array.pipeline.plan_of(&whole).is_some());
    let mut touched = Touched::none(whole.touched.blocks());
    touched.insert(1);
    assert!(array.pipeline.plan_of(&Set { touched, ..whole }).is_none());
}

/// Makes the parities of a stripe right.
fn resync(array: &mut Array, stripe: u64) {
    let touched = Touched::none(array.pipeline.data_blocks());
    let set = Set { strategy: WriteStrategy::Reconstruct, touched, ..array.set(1, stripe) };
    array.write(&set);
    array.run();
    array.expect_closed(&[set]);
}

#[test]
fn of_parities_only_those_are_written_that_are_wrong() {
    for seed in 0..10 {
        let mut array = written(3, seed);
        let before = writes(&array);
        resync(&mut array, 3);
        // Never written: unwritten parities of unwritten data.
        resync(&mut array, 4);
        assert_eq!(writes(&array), before);

        let plan = array.pipeline.plan(StripeNo(3), ENCODER).expect("a plan");
        let mut parities = plan.code.cells().filter(|&cell| {
            matches!(plan.code.content(cell), Content::Sum(_))
                && cell.node == Role((seed % 5) as u16)
        });
        let Some(spoilt) = parities.next() else { continue };
        array.cell(3, spoilt)[100] ^= 1;
        resync(&mut array, 3);
        array.verify();
        let mut expected = before;
        expected[spoilt.node.index()] += 1;
        assert_eq!(writes(&array), expected);
    }
}

#[test]
fn what_cannot_be_read_is_written() {
    let mut array = written(3, 7);
    let plan = array.pipeline.plan(StripeNo(3), ENCODER).expect("a plan");
    let is_sum = |cell: &_| matches!(plan.code.content(*cell), Content::Sum(_));
    let cell = plan.code.cells().find(is_sum).expect("a parity");
    let byte = array.pipeline.member_byte(StripeNo(3), cell.row, 0);
    let site = cell.node.index();
    let before = array.world.counts(site).writes;
    array.world.disk(site, "v").lose_sector(super::array::DATA_SECTOR + byte / 512);
    resync(&mut array, 3);
    assert_eq!(array.world.counts(site).writes, before + 1);
    array.verify();
}
