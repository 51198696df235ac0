//! Volumes that LVM2 made and into which the kernel's device-mapper wrote: `tests/lvm/make.sh`.
//! Each 32 KiB of a volume begin with its number and their offset.

use braid_rescue::contents::{Content, ContentKind, look, readable};
use braid_rescue::lvm::{Group, LogicalVolume, LvmRemark, PhysicalVolume, Refusal, groups};
use braid_rescue::{Image, image::PAGE_BYTES};

use crate::support::{FileImage, Folder, have, run};

const NAMES: [&str; 3] = ["pv0", "pv1", "pv2"];

fn unpacked(folder: &Folder) -> Vec<FileImage> {
    let archive = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lvm/volumes.tar.gz");
    run(folder, &format!("tar xzf {archive}"), "");
    NAMES.iter().map(|name| FileImage::open(&folder.path(name))).collect()
}

fn physical(images: &mut [FileImage]) -> Vec<PhysicalVolume> {
    images.iter_mut().map(|image| PhysicalVolume::read(image).expect("a volume")).collect()
}

fn volume<'a>(group: &'a Group, name: &str) -> &'a LogicalVolume {
    let volumes = &group.description.logical_volumes;
    volumes.iter().find(|volume| volume.name == name).unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn volumes_are_where_the_device_mapper_wrote_them() {
    if !have("volumes_are_where_the_device_mapper_wrote_them", &["tar", "gzip"]) {
        return;
    }
    let folder = Folder::new("lvm");
    let mut images = unpacked(&folder);
    let physical = physical(&mut images);
    let [group] = &groups(&physical)[..] else { panic!("one group") };
    assert_eq!(group.remarks, []);
    assert_eq!(
        (group.description.name.as_str(), group.description.extent_bytes),
        ("vg", 512 << 10)
    );
    let cases: [(&str, u64, u64, usize); 4] = [
        ("linear", 1, 13 << 19, 3),
        ("striped", 2, 12 << 19, 1),
        ("pair", 3, 4 << 19, 1),
        ("origin", 4, 2 << 19, 1),
    ];
    for (name, number, size_bytes, segments) in cases {
        let volume = volume(group, name);
        assert_eq!((volume.size_bytes, volume.is_visible), (size_bytes, true), "{name}");
        assert_eq!(volume.segments.as_ref().map(Vec::len), Ok(segments), "{name}");
        let mut at = 0;
        for piece in volume.pieces(0..u64::MAX) {
            let index = physical.iter().position(|found| found.id == piece.volume).unwrap();
            for within in (0..piece.bytes).step_by(32 << 10) {
                let mut page = vec![0; PAGE_BYTES as usize];
                images[index].read(piece.offset_bytes + within, &mut page).unwrap();
                let field = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().unwrap());
                assert_eq!((field(0), field(8)), (number, at + within), "{name}");
            }
            at += piece.bytes;
        }
        assert_eq!(at, size_bytes, "{name}");
        assert_eq!(volume.piece(size_bytes), None);
        let middle: u64 = volume.pieces(5000..size_bytes - 7).map(|piece| piece.bytes).sum();
        assert_eq!(middle, size_bytes - 5007);
    }
}

#[test]
fn what_only_lvm_reads_is_refused_by_name() {
    if !have("what_only_lvm_reads_is_refused_by_name", &["tar", "gzip"]) {
        return;
    }
    let folder = Folder::new("lvm-types");
    let physical = physical(&mut unpacked(&folder));
    let [group] = &groups(&physical)[..] else { panic!("one group") };
    let cases = [
        ("mirrored", "mirror"),
        ("twice", "raid1"),
        ("thin", "thin"),
        ("pool", "thin-pool"),
        ("slow", "cache"),
        ("fast_cpool", "cache-pool+METADATA_FORMAT"),
        ("frozen", "snapshot"),
    ];
    for (name, kind) in cases {
        let refusal = Refusal::Type { kind: kind.to_owned() };
        assert_eq!(volume(group, name).segments, Err(refusal), "{name}");
    }
    // Its halves are linear, and not for users.
    let half = volume(group, "twice_rimage_1");
    assert!(half.segments.is_ok() && !half.is_visible);
}

#[test]
fn a_missing_volume_costs_what_lies_on_it() {
    if !have("a_missing_volume_costs_what_lies_on_it", &["tar", "gzip"]) {
        return;
    }
    let folder = Folder::new("lvm-missing");
    let mut physical = physical(&mut unpacked(&folder));
    let id = physical.remove(0).id;
    let [group] = &groups(&physical)[..] else { panic!("one group") };
    let [LvmRemark::Missing { id: missing, name }] = &group.remarks[..] else {
        panic!("{:?}", group.remarks)
    };
    assert_eq!((*missing, name.starts_with("pv0, once /dev/")), (id, true));
    let refusal = Refusal::Missing { id, name: name.clone() };
    assert_eq!(volume(group, "striped").segments, Err(refusal.clone()));
    assert_eq!(volume(group, "linear").segments, Err(refusal));
    assert!(volume(group, "origin").segments.is_ok());
}

#[test]
fn the_tree_of_contents_holds_volumes_over_several_arrays() {
    if !have("the_tree_of_contents_holds_volumes_over_several_arrays", &["tar", "gzip"]) {
        return;
    }
    let folder = Folder::new("lvm-contents");
    let mut images = unpacked(&folder);
    let mut given: Vec<(String, &mut dyn Image)> = Vec::new();
    for (name, image) in NAMES.iter().zip(&mut images) {
        given.push(((*name).to_owned(), image));
    }
    let contents = look(&mut given);
    let group = contents[0].contents.last().expect("the group lies on its first volume");
    let homes = NAMES.map(str::to_owned).to_vec();
    assert_eq!(group.kind, ContentKind::Group { physical_volumes: homes });
    let find = |name: &str| {
        let found = contents.iter().flat_map(Content::all).find(|content| content.name == name);
        found.unwrap_or_else(|| panic!("no {name}"))
    };
    for (name, number) in [("vg/linear", 1), ("vg/striped", 2)] {
        let content = find(name);
        let place = content.place.as_ref().expect("it can be read");
        let mut at = 0;
        while let Some(piece) = place.piece(at) {
            let mut page = vec![0; PAGE_BYTES as usize];
            given[piece.array].1.read(piece.offset_bytes, &mut page).unwrap();
            let field = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().unwrap());
            assert_eq!((field(0), field(8)), (number, at), "{name}");
            at += piece.bytes;
        }
        assert_eq!(at, content.size_bytes, "{name}");
    }
    let thin = find("vg/thin");
    assert_eq!(thin.place, None);
    assert!(thin.remarks[0].contains("type thin"), "{:?}", thin.remarks);
    let names: Vec<String> = readable(&contents).into_iter().map(|(name, _)| name).collect();
    assert!(names.contains(&"vg-striped".to_owned()) && !names.contains(&"vg-thin".to_owned()));

    // One array alone: what lies on others is refused, and the rest is not.
    let alone = look(&mut given[..1]);
    let group = alone[0].contents.last().expect("a group");
    assert!(group.remarks.iter().any(|remark| remark.contains("is not there")));
    assert!(group.contents.iter().any(|volume| volume.place.is_none()));
}
