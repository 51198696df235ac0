//! Tables by sfdisk, sgdisk and fdisk; what sfdisk reads in them is what is expected.

use std::path::Path;

use braid_rescue::partitions::{Flaw, NoTable, Remark, Table, TableKind, read};

use crate::support::{FileImage, Folder, have, run, write_at};

const MIB: u64 = 1 << 20;

fn table(path: &Path) -> Result<Table, NoTable> {
    read(&mut FileImage::open(path))
}

/// Number, first sector, sectors and type of each partition, as `sfdisk --dump` has them.
fn dumped(dump: &str) -> Vec<(u32, u64, u64, String)> {
    let mut found = Vec::new();
    for line in dump.lines() {
        let Some((device, fields)) = line.split_once(" : ") else { continue };
        let field = |name: &str| {
            let of_name = |field: &str| Some(field.trim().strip_prefix(name)?.trim().to_owned());
            fields.split(',').find_map(of_name).unwrap_or_else(|| panic!("no {name}: {line}"))
        };
        let digits = device.trim_start_matches(|c: char| !c.is_ascii_digit());
        let number = digits.parse().unwrap_or_else(|_| panic!("no number: {line}"));
        let start = field("start=").parse().expect("sectors");
        let size = field("size=").parse().expect("sectors");
        found.push((number, start, size, field("type=").to_lowercase()));
    }
    assert!(!found.is_empty(), "nothing in {dump}");
    found
}

fn ours(table: &Table) -> Vec<(u32, u64, u64, String)> {
    let row = |partition: &braid_rescue::partitions::Partition| {
        let kind = match partition.kind {
            braid_rescue::partitions::PartitionType::Guid(guid) => guid.to_string(),
            braid_rescue::partitions::PartitionType::Mbr(byte) => format!("{byte:x}"),
        };
        (partition.number, partition.start_bytes / 512, partition.size_bytes / 512, kind)
    };
    table.partitions.iter().map(row).collect()
}

#[test]
fn an_mbr_with_logical_partitions_is_as_sfdisk_reads_it() {
    if !have("an_mbr_with_logical_partitions_is_as_sfdisk_reads_it", &["sfdisk"]) {
        return;
    }
    let folder = Folder::new("mbr");
    let disk = folder.file("disk", 64 * MIB);
    // As Synology partitions: 1, 2, then an extended one; with gaps, and an unused third.
    let script = "label: dos\n1: start=2048,size=8192,type=fd\n2: start=12288,size=2048,type=82\n\
                  4: start=16384,size=98304,type=f\n5: start=18432,size=16384,type=fd\n\
                  6: start=40960,size=20480,type=83\n7: start=65536,size=40000,type=8e\n";
    run(&folder, "sfdisk --no-reread --no-tell-kernel disk", script);
    let found = table(&disk).expect("a table");
    assert_eq!((found.kind, found.sector_bytes), (TableKind::Mbr, 512));
    assert_eq!(found.remarks, []);
    assert_eq!(ours(&found), dumped(&run(&folder, "sfdisk --dump disk", "")));
    let names: Vec<_> = found.partitions.iter().map(|part| part.kind.to_string()).collect();
    assert_eq!(names[..3], ["Linux raid autodetect", "Linux swap / Solaris", "W95 Ext'd (LBA)"]);

    // The chain's second sector leads back to its first one.
    write_at(&disk, (40960 - 2048) * 512 + 446 + 16 + 8, &0_u32.to_le_bytes());
    let found = table(&disk).expect("a table");
    assert_eq!(found.remarks, [Remark::Loop { at_bytes: 16384 * 512 }]);
    assert_eq!(
        found.partitions.iter().map(|part| part.number).collect::<Vec<_>>(),
        [1, 2, 4, 5, 6]
    );
}

#[test]
fn a_gpt_is_as_sfdisk_reads_it() {
    if !have("a_gpt_is_as_sfdisk_reads_it", &["sfdisk", "sgdisk"]) {
        return;
    }
    let folder = Folder::new("gpt");
    let disk = folder.file("disk", 64 * MIB);
    let line = "sgdisk --clear --new=1:2048:+8M --typecode=1:fd00 --change-name=1:Räder \
                --new=2:0:+4M --typecode=2:8e00 --new=7:0:0 --typecode=7:ef00 disk";
    run(&folder, line, "");
    let found = table(&disk).expect("a table");
    assert_eq!((found.kind, found.sector_bytes), (TableKind::Gpt, 512));
    assert_eq!(found.remarks, []);
    assert_eq!(ours(&found), dumped(&run(&folder, "sfdisk --dump disk", "")));
    assert_eq!(found.partitions[0].name, "Räder");
    let names: Vec<_> = found.partitions.iter().map(|part| part.kind.to_string()).collect();
    assert_eq!(names, ["Linux RAID", "Linux LVM", "EFI System"]);

    // md 1.2 leaves the first sectors alone; others do not.
    let whole = found.partitions;
    write_at(&disk, 512, &[0; 512]);
    let found = table(&disk).expect("the backup");
    let why = Flaw::Absent { at_bytes: 512 };
    assert_eq!(found.remarks, [Remark::BackupUsed { why }]);
    assert_eq!(found.partitions, whole);

    // The backup's entries are gone, too: of the header that is left they are shown.
    write_at(&disk, 64 * MIB - 33 * 512 + 128, &[0; 128]);
    let found = table(&disk).expect("what is left");
    let at_bytes = 64 * MIB - 33 * 512;
    let why = Flaw::Checksum { what: "entries", at_bytes };
    assert_eq!(found.remarks, [Remark::EntriesDamaged { why }]);
    assert_eq!(found.partitions, [whole[0].clone(), whole[2].clone()]);

    write_at(&disk, 64 * MIB - 512 + 40, &[1; 8]);
    let error = table(&disk).expect_err("nothing left").to_string();
    assert_eq!(
        error,
        "the GPT is damaged: no signature at byte 512; its backup: \
         the checksum of the header at byte 67108352 is wrong"
    );
}

#[test]
fn a_gpt_on_a_disk_with_another_end_is_found() {
    if !have("a_gpt_on_a_disk_with_another_end_is_found", &["sfdisk"]) {
        return;
    }
    let folder = Folder::new("gpt-end");
    let disk = folder.file("disk", 32 * MIB);
    let script = "label: gpt\nstart=2048,size=20480,type=raid\nsize=+,type=linux\n";
    run(&folder, "sfdisk --no-reread --no-tell-kernel disk", script);
    let before = table(&disk).expect("a table");
    let file = std::fs::File::options().write(true).open(&disk).unwrap();
    // Grown: the backup is where it was.
    file.set_len(40 * MIB).unwrap();
    let found = table(&disk).expect("a table");
    assert_eq!(found.partitions, before.partitions);
    assert_eq!(found.remarks, [Remark::BackupElsewhere { at_bytes: 32 * MIB - 512 }]);
    // Cut off: the second partition ends beyond it.
    file.set_len(16 * MIB).unwrap();
    let found = table(&disk).expect("a table");
    assert_eq!(found.partitions, before.partitions);
    let end = before.partitions[1].start_bytes + before.partitions[1].size_bytes;
    let beyond = Remark::BeyondEnd { number: 2, bytes: end - 16 * MIB };
    assert_eq!(found.remarks.last(), Some(&beyond));
}

#[test]
fn tables_in_large_sectors_are_read() {
    if !have("tables_in_large_sectors_are_read", &["fdisk"]) {
        return;
    }
    let folder = Folder::new("large-sectors");
    let disk = folder.file("disk", 64 * MIB);
    let script = "g\nn\n1\n512\n+2048\nt\n29\nn\n2\n4096\n+4095\nw\n";
    run(&folder, "fdisk --sector-size 4096 disk", script);
    let found = table(&disk).expect("a table");
    assert_eq!((found.kind, found.sector_bytes), (TableKind::Gpt, 4096));
    assert_eq!(found.remarks, []);
    let ranges: Vec<_> =
        found.partitions.iter().map(|part| (part.start_bytes, part.size_bytes)).collect();
    assert_eq!(ranges, [(512 << 12, 2049 << 12), (4096 << 12, 4096 << 12)]);
    write_at(&disk, 4096, &[0; 4096]);
    let found = table(&disk).expect("the backup");
    assert_eq!(found.remarks, [Remark::BackupUsed { why: Flaw::Absent { at_bytes: 4096 } }]);

    let disk = folder.file("disk", 64 * MIB);
    let script = "o\nn\np\n1\n512\n+1023\nn\ne\n2\n2048\n+8191\nn\nl\n2560\n+1023\nw\n";
    run(&folder, "fdisk --sector-size 4096 disk", script);
    let found = table(&disk).expect("a table");
    assert_eq!((found.kind, found.sector_bytes), (TableKind::Mbr, 4096));
    let ranges: Vec<_> =
        found.partitions.iter().map(|part| (part.number, part.start_bytes >> 12)).collect();
    assert_eq!(ranges, [(1, 512), (2, 2048), (5, 2560)]);
}

/// fdisk knows the types by the names that we have for them.
#[test]
fn types_have_the_names_that_fdisk_has() {
    if !have("types_have_the_names_that_fdisk_has", &["sfdisk"]) {
        return;
    }
    use braid_rescue::partitions::PartitionType;
    let folder = Folder::new("types");
    let mut named = 0;
    for line in run(&folder, "sfdisk --label gpt --list-types", "").lines() {
        let Some((guid, name)) = line.trim().split_once("  ") else { continue };
        let Ok(guid) = guid.parse() else { continue };
        if let Some(ours) = PartitionType::Guid(guid).name() {
            assert_eq!(ours, name.trim());
            named += 1;
        }
    }
    for line in run(&folder, "sfdisk --label dos --list-types", "").lines() {
        let Some((byte, name)) = line.trim().split_once("  ") else { continue };
        let Ok(byte) = u8::from_str_radix(byte, 16) else { continue };
        if let Some(ours) = PartitionType::Mbr(byte).name() {
            assert_eq!(ours, name.trim());
            named += 1;
        }
    }
    assert!(named > 30, "only {named} of the types are known to sfdisk");
}
