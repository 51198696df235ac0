//! Physical volumes as LVM2 does not leave them, made here by the layout.

use super::{
    AreaError, Description, LvmId, LvmRemark, PhysicalVolume, PhysicalVolumeError, Refusal, groups,
};
use crate::crc::crc32_update;
use crate::image::tests::Torn;

const CRC_START: u32 = 0xf597_a6cf;
const AREA_AT: usize = 4096;
const AREA_BYTES: usize = 32 << 10;
const A: &str = "AAAAAA-AAAA-AAAA-AAAA-AAAA-AAAA-AAAAAA";
const B: &str = "BBBBBB-BBBB-BBBB-BBBB-BBBB-BBBB-BBBBBB";

fn put<const N: usize>(bytes: &mut [u8], at: usize, field: [u8; N]) {
    bytes[at..at + N].copy_from_slice(&field);
}

/// A volume of 1 MiB with its label in that sector and this text at that place of its area.
fn volume(id: &str, sector: usize, text: &str, offset: usize) -> Vec<u8> {
    let mut disk = vec![0; 1 << 20];
    let label = &mut disk[sector * 512..sector * 512 + 512];
    put(label, 0, *b"LABELONE");
    put(label, 8, (sector as u64).to_le_bytes());
    put(label, 20, 32_u32.to_le_bytes());
    put(label, 24, *b"LVM2 001");
    let id = id.replace('-', "");
    label[32..64].copy_from_slice(id.as_bytes());
    put(label, 64, (1_u64 << 20).to_le_bytes());
    // Data up to the end; then the area.
    put(label, 72, (256_u64 << 10).to_le_bytes());
    put(label, 104, (AREA_AT as u64).to_le_bytes());
    put(label, 112, (AREA_BYTES as u64).to_le_bytes());
    let crc = crc32_update(CRC_START, &label[20..]);
    put(label, 16, crc.to_le_bytes());
    let area = &mut disk[AREA_AT..AREA_AT + AREA_BYTES];
    for (index, byte) in text.bytes().enumerate() {
        let at = offset + index;
        area[if at < AREA_BYTES { at } else { at - AREA_BYTES + 512 }] = byte;
    }
    put(area, 4, *b" LVM2 x[5A%r0N*>");
    put(area, 20, 1_u32.to_le_bytes());
    put(area, 24, (AREA_AT as u64).to_le_bytes());
    put(area, 32, (AREA_BYTES as u64).to_le_bytes());
    put(area, 40, (offset as u64).to_le_bytes());
    put(area, 48, (text.len() as u64).to_le_bytes());
    put(area, 56, crc32_update(CRC_START, text.as_bytes()).to_le_bytes());
    sign(area);
    disk
}

/// Gives an area's header the checksum that it should have.
fn sign(area: &mut [u8]) {
    let crc = crc32_update(CRC_START, &area[4..512]);
    put(area, 0, crc.to_le_bytes());
}

/// Two physical volumes of eight extents of 64 KiB, and these logical volumes.
fn text(seqno: u64, logical: &str) -> String {
    let volume = |name: &str, id: &str, more: &str| {
        format!(
            "{name} {{ id = \"{id}\" pe_start = 512 pe_count = 8 device = \"/dev/x\" {more} }}\n"
        )
    };
    format!(
        "contents = \"Text Format Volume Group\"\nversion = 1\nvg {{ id = \"{A}\" seqno = {seqno}\n\
         extent_size = 128 # of sectors\nphysical_volumes {{\n{}{}}}\n\
         logical_volumes {{ {logical} }} }}\n",
        volume("pv0", A, ""),
        volume("pv1", B, "flags = []"),
    )
}

/// A logical volume of one segment, with these entries.
fn logical(name: &str, segment: &str) -> String {
    format!(
        "{name} {{ id = \"{B}\" status = [\"VISIBLE\"] segment_count = 1 \
         segment1 {{ start_extent = 0 type = \"striped\" {segment} }} }}\n"
    )
}

const LINEAR: &str = "extent_count = 2 stripe_count = 1 stripes = [\"pv0\", 1]";

fn read(disk: &[u8]) -> PhysicalVolume {
    let mut image = disk;
    PhysicalVolume::read(&mut image).unwrap()
}

#[test]
fn a_text_may_go_around_the_end_of_its_area() {
    let text = text(1, &logical("lv", LINEAR));
    for (sector, offset) in [(0, 512), (1, 1024), (2, AREA_BYTES - 100), (3, AREA_BYTES - 1)] {
        let mut disk = volume(A, sector, &text, offset);
        let found = read(&disk);
        assert_eq!((found.id, found.size_bytes), (LvmId::parse(A).unwrap(), 1 << 20));
        assert_eq!(found.broken, []);
        assert_eq!(found.descriptions[0].1.logical_volumes[0].size_bytes, 128 << 10);
        // Of what goes around, too, each byte counts.
        disk[AREA_AT + 512 + if offset == 512 { 9 } else { 0 }] ^= 1;
        let at_bytes = (AREA_AT + offset) as u64;
        let counts = offset != 1024;
        let broken = [(AREA_AT as u64, AreaError::Checksum { at_bytes })];
        assert_eq!(read(&disk).broken, if counts { broken.to_vec() } else { vec![] });
    }
}

#[test]
fn the_newest_metadata_counts_and_what_differs_is_told() {
    let old = text(6, "");
    let new = text(7, &logical("lv", LINEAR));
    let other = text(7, "");
    let physical = [read(&volume(A, 1, &old, 512)), read(&volume(B, 1, &new, 512))];
    let [group] = &groups(&physical)[..] else { panic!("one group") };
    assert_eq!(group.description.seqno, 7);
    let id = LvmId::parse(A).unwrap();
    let at_bytes = AREA_AT as u64;
    assert_eq!(group.remarks, [LvmRemark::Older { id, at_bytes, seqno: 6, newest: 7 }]);
    let physical = [physical[1].clone(), read(&volume(A, 1, &other, 512))];
    let [group] = &groups(&physical)[..] else { panic!("one group") };
    assert_eq!(group.description.logical_volumes.len(), 1);
    assert_eq!(group.remarks, [LvmRemark::Disagrees { id, at_bytes, seqno: 7 }]);
    // The members of a mirror.
    let twin = physical[0].clone();
    let [group] = &groups(&[twin.clone(), twin.clone()])[..] else { panic!("one group") };
    assert!(group.remarks.contains(&LvmRemark::Several { id: twin.id, times: 2 }));
    // A volume without metadata is there all the same; another group is another group.
    let mut bare = twin.clone();
    bare.id = id;
    bare.descriptions.clear();
    assert_eq!(groups(&[twin.clone(), bare])[0].remarks, []);
    let mut elsewhere = twin.clone();
    elsewhere.descriptions[0].1.id = twin.id;
    assert_eq!(groups(&[twin, elsewhere]).len(), 2);
}

#[test]
fn volumes_that_make_no_sense_are_refused_alone() {
    let damaged = |place: &str, what| Err(Refusal::Damaged { place: place.to_owned(), what });
    let stripes = "its length is no number of whole stripes";
    let beyond = "it ends beyond its physical volume";
    let count = "it has not as many stripes as it says";
    let cases = [
        ("extent_count = 2 stripe_count = 2 stripes = [\"pv0\", 1]", "segment1", count),
        ("extent_count = 2 stripe_count = 1 stripes = [\"pv0\"]", "segment1", count),
        ("extent_count = 2 stripe_count = 0 stripes = []", "segment1", count),
        ("extent_count = 2 stripe_count = 1 stripes = [\"pv0\", 7]", "segment1", beyond),
        ("extent_count = 2 stripe_count = 1 stripes = [\"pv0\", -1]", "segment1", beyond),
        ("stripe_count = 1 stripes = [\"pv0\", 1]", "segment1", "it has no range"),
        ("extent_count = 9223372036854775807", "volume", "it is larger than any disk"),
        ("extent_count = 0 stripe_count = 1 stripes = [\"pv0\", 1]", "segment1", stripes),
        (
            "extent_count = 3 stripe_count = 2 stripe_size = 8 stripes = [\"pv0\", 1, \"pv1\", 1]",
            "segment1",
            stripes,
        ),
        (
            "extent_count = 2 stripe_count = 2 stripes = [\"pv0\", 1, \"pv1\", 1]",
            "segment1",
            stripes,
        ),
    ];
    for (segment, place, what) in cases {
        let text = text(1, &(logical("bad", segment) + &logical("good", LINEAR)));
        let found = Description::parse(text.as_bytes()).unwrap();
        assert_eq!(found.logical_volumes[0].segments, damaged(place, what), "{segment}");
        assert!(found.logical_volumes[1].segments.is_ok());
    }
    let twice = logical("lv", LINEAR).replace(
        "segment_count = 1",
        "segment_count = 2 segment2 { \
        start_extent = 1 type = \"striped\" extent_count = 1 stripe_count = 1 \
        stripes = [\"pv1\", 1] }",
    );
    let found = Description::parse(text(1, &twice).as_bytes()).unwrap();
    let what = "its segments overlap, or something is missing between them";
    assert_eq!(found.logical_volumes[0].segments, damaged("volume", what));
    let moved = logical("lv", &LINEAR.replace("pv0", "pvmove0"));
    let found = Description::parse(text(1, &moved).as_bytes()).unwrap();
    let name = "pvmove0".to_owned();
    assert_eq!(found.logical_volumes[0].segments, Err(Refusal::OnVolume { name }));
}

/// Striped as they are, their content is not what users would see.
#[test]
fn what_a_snapshot_changes_is_refused() {
    let volumes = ["origin", "store", "other"].map(|name| logical(name, LINEAR)).concat();
    let snapshot = |entries: &str| {
        let segment = format!("extent_count = 2 chunk_size = 8 {entries}");
        logical("snapshot0", &segment).replace("striped", "snapshot")
    };
    let kept = snapshot("origin = \"origin\" cow_store = \"store\"");
    let merging = snapshot("origin = \"origin\" merging_store = \"store\"");
    for (snapshot, refused) in [(kept, [false, true, false]), (merging, [true, true, false])] {
        let found = Description::parse(text(1, &(volumes.clone() + &snapshot)).as_bytes()).unwrap();
        let kind = "snapshot".to_owned();
        let refusal = Err(Refusal::Type { kind });
        let refusals = found.logical_volumes.iter().map(|volume| volume.segments == refusal);
        assert_eq!(refusals.take(3).collect::<Vec<_>>(), refused, "{snapshot}");
    }
}

#[test]
fn a_volume_that_lvm_went_on_without_is_not_read() {
    let text = text(1, &logical("lv", &LINEAR.replace("pv0", "pv1")));
    let marked = text.replace("flags = []", "flags = [\"MISSING\"]");
    let physical = [read(&volume(A, 1, &marked, 512)), read(&volume(B, 1, &text, 512))];
    let [group] = &groups(&physical)[..] else { panic!("one group") };
    let refusal = group.description.logical_volumes[0].segments.clone().unwrap_err();
    assert_eq!(
        refusal.to_string(),
        format!("it needs the physical volume {B} (pv1, once /dev/x), which LVM marked as missing")
    );
}

#[test]
fn labels_and_areas_that_are_damaged_are_told() {
    let disk = volume(A, 1, &text(1, ""), 512);
    let mut blank = &[0; 4096][..];
    assert_eq!(PhysicalVolume::read(&mut blank), Err(PhysicalVolumeError::None));
    let mut bad = disk.clone();
    bad[600] ^= 1;
    let error = PhysicalVolume::read(&mut bad.as_slice()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the label of LVM2 at byte 512 is damaged: its checksum is wrong"
    );
    let mut torn = Torn { bytes: disk.clone(), torn: vec![512..1024] };
    assert!(matches!(PhysicalVolume::read(&mut torn), Err(PhysicalVolumeError::Unreadable(_))));
    torn.torn = vec![AREA_AT as u64 + 600..AREA_AT as u64 + 601];
    let found = PhysicalVolume::read(&mut torn).unwrap();
    assert!(matches!(found.broken[..], [(4096, AreaError::Unreadable(_))]));
    let length = (AREA_BYTES - 511) as u64;
    let cases: [(usize, u64, &str); 4] = [
        (24, 512, "it belongs elsewhere"),
        (40, 100, "its text is outside of it"),
        (40, AREA_BYTES as u64, "its text is outside of it"),
        (48, length, "its text is longer than texts are"),
    ];
    for (at, value, what) in cases {
        let mut bad = disk.clone();
        let area = &mut bad[AREA_AT..];
        put(area, at, value.to_le_bytes());
        sign(area);
        assert_eq!(read(&bad).broken, [(4096, AreaError::Header { what })]);
    }
    // Ignored, or empty: nothing is wrong with that.
    for (at, value) in [(60, 1_u32), (40, 0)] {
        let mut other = disk.clone();
        put(&mut other[AREA_AT..], at, value.to_le_bytes());
        sign(&mut other[AREA_AT..]);
        let found = read(&other);
        assert_eq!((found.descriptions, found.broken), (vec![], vec![]));
    }
}
