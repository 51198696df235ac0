//! Archives, images and file systems, made by their own programs. Of file systems blkid says what
//! they are called.

use braid_rescue::kind::{Finding, Kind, look};

use crate::support::{FileImage, Folder, have, run};

fn found(folder: &Folder, name: &str) -> Vec<Finding> {
    let look = look(&mut FileImage::open(&folder.path(name)));
    assert_eq!(look.unreadable, []);
    look.findings
}

fn kinds(folder: &Folder, name: &str) -> Vec<Kind> {
    found(folder, name).iter().map(|found| found.kind).collect()
}

#[test]
fn archives_are_known() {
    let programs = ["gzip", "xz", "zstd", "bzip2", "zip", "7z"];
    if !have("archives_are_known", &programs) {
        return;
    }
    let folder = Folder::new("archives");
    let cases = [
        (Kind::Gzip, "gzip -k disk", "disk.gz"),
        (Kind::Xz, "xz -k disk", "disk.xz"),
        (Kind::Zstd, "zstd -q disk", "disk.zst"),
        (Kind::Bzip2, "bzip2 -k disk", "disk.bz2"),
        (Kind::Zip, "zip -q disk.zip disk", "disk.zip"),
        (Kind::SevenZip, "7z a -bd disk.7z disk", "disk.7z"),
    ];
    folder.file("disk", 100_000);
    for (kind, line, name) in cases {
        run(&folder, line, "");
        assert_eq!(kinds(&folder, name), [kind], "{line}");
    }
    folder.file("empty", 0);
    run(&folder, "bzip2 empty", "");
    assert_eq!(kinds(&folder, "empty.bz2"), [Kind::Bzip2]);
}

#[test]
fn images_of_disks_are_known() {
    if !have("images_of_disks_are_known", &["qemu-img"]) {
        return;
    }
    let folder = Folder::new("images");
    let cases = [
        (Kind::Qcow2, "qcow2"),
        (Kind::Vmdk, "vmdk"),
        (Kind::VmdkDescriptor, "vmdk -o subformat=monolithicFlat"),
        (Kind::Vdi, "vdi"),
        (Kind::Vhd, "vpc"),
        (Kind::Vhd, "vpc -o subformat=fixed"),
        (Kind::Vhdx, "vhdx"),
    ];
    for (kind, format) in cases {
        run(&folder, &format!("qemu-img create -q -f {format} image 12M"), "");
        assert_eq!(kinds(&folder, "image"), [kind], "{format}");
        if let Some(given) = kind.advice().split("-f ").nth(1) {
            // The step that is advised works.
            let format = given.split(' ').next().expect("a format");
            run(&folder, &format!("qemu-img convert -f {format} -O raw image raw"), "");
            assert_eq!(kinds(&folder, "raw"), [Kind::Zeroes], "{format}");
        }
    }
}

/// What blkid says of a file: type, uuid, label.
fn blkid(folder: &Folder, name: &str) -> [Option<String>; 3] {
    let told = run(folder, &format!("blkid --probe --output export {name}"), "");
    ["TYPE", "UUID", "LABEL"].map(|key| {
        let of_key = |line: &str| Some(line.strip_prefix(key)?.strip_prefix('=')?.to_owned());
        told.lines().find_map(of_key)
    })
}

#[test]
fn file_systems_are_what_blkid_says_they_are() {
    let programs = [
        "blkid",
        "mkfs.ext4",
        "mkfs.xfs",
        "mkfs.btrfs",
        "mkfs.ntfs",
        "mkfs.fat",
        "mkfs.exfat",
        "mkfs.f2fs",
        "mkswap",
        "mksquashfs",
        "xorriso",
        "cryptsetup",
    ];
    if !have("file_systems_are_what_blkid_says_they_are", &programs) {
        return;
    }
    let folder = Folder::new("file-systems");
    let options = "--batch-mode --pbkdf pbkdf2 --pbkdf-force-iterations 1000";
    let cases = [
        (
            Kind::Ext2,
            "ext2",
            "mkfs.ext4 -q -O ^has_journal,^extent,^64bit,^metadata_csum,\
                              ^huge_file,^flex_bg,^dir_nlink,^extra_isize -L second"
                .to_owned(),
        ),
        (Kind::Ext3, "ext3", "mkfs.ext4 -q -t ext3 -L third".to_owned()),
        (Kind::Ext4, "ext4", "mkfs.ext4 -q".to_owned()),
        (Kind::Xfs, "xfs", "mkfs.xfs -q -L exfs".to_owned()),
        (Kind::Btrfs, "btrfs", "mkfs.btrfs -q -L butter".to_owned()),
        (Kind::Ntfs, "ntfs", "mkfs.ntfs -q -F -s 512 -p 0 -H 1 -S 1".to_owned()),
        (Kind::Fat, "vfat", "mkfs.fat -F 16 -n SIXTEEN".to_owned()),
        (Kind::Fat, "vfat", "mkfs.fat -F 32".to_owned()),
        (Kind::ExFat, "exfat", "mkfs.exfat".to_owned()),
        (Kind::F2fs, "f2fs", "mkfs.f2fs -q -l flash".to_owned()),
        (Kind::Swap, "swap", "mkswap -q -L swapped".to_owned()),
        (Kind::Swap, "swap", "mkswap -q --pagesize 65536".to_owned()),
        (Kind::Luks1, "crypto_LUKS", format!("cryptsetup luksFormat --type luks1 {options}")),
        (
            Kind::Luks2,
            "crypto_LUKS",
            format!("cryptsetup luksFormat --type luks2 --label locked {options}"),
        ),
    ];
    for (kind, name, line) in cases {
        folder.file("disk", 400 << 20);
        run(&folder, &format!("{line} disk"), "secret");
        let told = blkid(&folder, "disk");
        let [found] = &found(&folder, "disk")[..] else { panic!("several, of {line}") };
        assert_eq!(found.kind, kind, "{line}");
        assert_eq!(
            told,
            [Some(name.to_owned()), found.uuid.clone(), found.label.clone()],
            "{line}"
        );
    }
    // These are made of files.
    std::fs::create_dir(folder.path("tree")).unwrap();
    run(&folder, "mksquashfs tree tree.squashfs -quiet", "");
    assert_eq!(kinds(&folder, "tree.squashfs"), [Kind::Squashfs]);
    run(&folder, "xorriso -as mkisofs -quiet -V BOOKS -o tree.iso tree", "");
    let [iso] = &found(&folder, "tree.iso")[..] else { panic!("several") };
    assert_eq!((iso.kind, iso.label.as_deref()), (Kind::Iso9660, Some("BOOKS")));
}
