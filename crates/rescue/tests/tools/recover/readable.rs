//! What is answered can be read: nothing is advised that would be refused.

use braid_array::Role;
use braid_array::level::{Layout, Level};
use braid_rescue::Image;
use braid_rescue::recover::{
    Gathered, Hints, MemberInRole, Members, Ranked, Shape, Structure, rank, search,
};

/// What superblocks alone say of members that were cut off at so many sectors.
fn told_of(sectors: [u64; 3]) -> Vec<Ranked> {
    let held = sectors.map(|sectors| vec![0; sectors as usize * 512]);
    let mut images: Vec<&[u8]> = held.iter().map(Vec::as_slice).collect();
    let mut images: Vec<&mut dyn Image> =
        images.iter_mut().map(|image| image as &mut dyn Image).collect();
    let shape = Shape {
        level: Level::Raid5,
        layout: Layout::default_for(Level::Raid5),
        chunk_sectors: 128,
        raid_disks: 3,
    };
    let place = |member: usize| (Role(member as u16), MemberInRole { member, data_offset: 2048 });
    let hints = Hints { shape, roles: (0..3).map(place).collect(), behind: Vec::new() };
    let gathered = Gathered::default();
    let known = [Structure::DISK];
    let found = search(&sectors, &gathered, &known, Some(&hints));
    let names = ["a", "b", "c"].map(str::to_owned);
    rank(&found, &mut Members::new(&mut images), &gathered, &known, &names)
}

#[test]
fn data_that_begin_behind_the_end_of_a_member_are_not_answered_with() {
    assert_eq!(told_of([4096; 3]).len(), 1);
    for cut in [2048, 128] {
        assert!(told_of([4096, cut, 4096]).is_empty());
    }
}
