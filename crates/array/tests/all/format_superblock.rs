//! The superblock codecs against superblocks that Linux md wrote (see `data/README.md`), and
//! against damaged ones.

use braid_array::Role;
use braid_array::format::superblock::{
    MAX_SECTOR, READ_BYTES, devflag, feature, time_code, time_parts,
};
use braid_array::format::{DevRole, Superblock, SuperblockError, Version, locations};

const V12: &[u8] = include_bytes!("../data/v12.superblock");
const V11: &[u8] = include_bytes!("../data/v11.superblock");
const V10: &[u8] = include_bytes!("../data/v10.superblock");
const V090: &[u8] = include_bytes!("../data/v090.superblock");
const V090_SPARE: &[u8] = include_bytes!("../data/v090-spare.superblock");
const V090_DEGRADED: &[u8] = include_bytes!("../data/v090-degraded.superblock");

/// Members of the test arrays are 16 MiB.
const DEVICE_SECTORS: u64 = 32768;

fn decode(version: Version, bytes: &[u8]) -> Superblock {
    let sector = version.location(DEVICE_SECTORS).unwrap();
    Superblock::decode(version, sector, bytes).unwrap()
}

/// The bytes with one field changed and the checksum made right again.
fn patched(bytes: &[u8], at: usize, field: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at..at + field.len()].copy_from_slice(field);
    let (sum_at, used) = if bytes[4] == 1 { (216, 512) } else { (152, 4096) };
    bytes[sum_at..sum_at + 4].fill(0);
    let words = bytes[..used].as_chunks::<4>().0;
    let sum: u64 = words.iter().map(|word| u64::from(u32::from_le_bytes(*word))).sum();
    let sum = u32::try_from(sum & 0xffff_ffff).unwrap() + u32::try_from(sum >> 32).unwrap();
    bytes[sum_at..sum_at + 4].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[test]
fn superblocks_of_all_versions_say_what_mdadm_says() {
    let sb = decode(Version::V1_2, V12);
    assert_eq!(sb.uuid_text(), "00112233:44556677:8899aabb:ccddeeff");
    assert_eq!(sb.name(), "h:twelve");
    assert_eq!((sb.level, sb.layout, sb.raid_disks, sb.chunk_sectors), (5, 2, 3, 128));
    assert_eq!((sb.size_sectors, sb.data_offset, sb.data_size), (30720, 2048, 30720));
    assert_eq!((sb.events, sb.resync_offset, sb.role()), (19, 0, DevRole::Active(Role(1))));
    assert_eq!(sb.feature_map, feature::BITMAP_OFFSET | feature::BAD_BLOCKS);
    assert_eq!((sb.bitmap_sector(), sb.bblog_sector()), (Some(16), Some(24)));
    assert_eq!(sb.bblog_size_sectors, 8);
    assert_eq!(sb.roles.len(), 128);
    // The last member of a new raid5 is rebuilt from the others, under the next free number.
    let roles = [
        DevRole::Active(Role(0)),
        DevRole::Active(Role(1)),
        DevRole::Spare,
        DevRole::Active(Role(2)),
        DevRole::Spare,
    ];
    assert_eq!(sb.roles[..5], roles);

    let sb = decode(Version::V1_1, V11);
    assert_eq!((sb.level, sb.raid_disks, sb.chunk_sectors), (1, 2, 0));
    assert_eq!((sb.super_offset, sb.data_offset), (0, 2048));
    assert_eq!(sb.devflags, devflag::WRITE_MOSTLY);
    assert_eq!((sb.bitmap_sector(), sb.bblog_sector()), (None, Some(16)));

    let sb = decode(Version::V1_0, V10);
    assert_eq!((sb.level, sb.layout, sb.raid_disks), (10, 0x102, 4));
    assert_eq!((sb.super_offset, sb.data_offset, sb.data_size), (32752, 0, 32736));
    assert_eq!((sb.bitmap_sector(), sb.bblog_sector()), (Some(32736), Some(32744)));
    assert_eq!(sb.role(), DevRole::Active(Role(2)));
}

#[test]
fn superblocks_0_90_say_what_mdadm_says() {
    let sb = decode(Version::V0_90, V090);
    assert_eq!(sb.uuid_text(), "00112233:44556677:8899aabb:ccddeeff");
    assert_eq!((sb.level, sb.layout, sb.raid_disks, sb.chunk_sectors), (5, 2, 3, 128));
    assert_eq!((sb.size_sectors, sb.data_offset, sb.super_offset), (32640, 0, 32640));
    assert_eq!(
        (sb.events, sb.resync_offset, sb.role()),
        (19, MAX_SECTOR, DevRole::Active(Role(1)))
    );
    assert_eq!(sb.bitmap_sector(), Some(32648));
    assert_eq!(sb.role_of(3), DevRole::Spare);
    assert_eq!(decode(Version::V0_90, V090_SPARE).role(), DevRole::Spare);

    let sb = decode(Version::V0_90, V090_DEGRADED);
    assert_eq!((sb.events, sb.resync_offset, sb.role_of(0)), (24, 0, DevRole::Faulty));
    assert_eq!(sb.role(), DevRole::Active(Role(1)));
}

/// All but the numbers of devices, which say nothing once a machine has started anew, and what
/// makes the sums of sectors equal.
#[test]
fn superblocks_0_90_are_written_as_md_writes_them() {
    for (name, bytes) in [("active", V090), ("spare", V090_SPARE), ("degraded", V090_DEGRADED)] {
        let mut expected = bytes.to_vec();
        let disks = (0..27).map(|number| 512 + 128 * number).chain([3968]);
        disks.for_each(|at| expected[at + 4..at + 12].fill(0));
        let mut written = decode(Version::V0_90, bytes).encode();
        assert_eq!(written.len(), bytes.len(), "{name}");
        (1..8).for_each(|sector| written[512 * sector + 508..][..4].fill(0));
        let differ = (0..bytes.len()).filter(|at| written[*at] != expected[*at]);
        // The sum is another one.
        let differ: Vec<usize> = differ.filter(|at| !(152..156).contains(at)).collect();
        assert!(differ.is_empty(), "{name}: {differ:?}");
    }
}

#[test]
fn a_superblock_0_90_tells_of_its_own_device_whoever_else_does() {
    let mut sb = decode(Version::V0_90, V090);
    sb.dev_number = 5;
    let found = decode(Version::V0_90, &sb.encode());
    assert_eq!((found.dev_number, found.role()), (5, DevRole::Spare));
}

/// Whichever sectors are new.
#[test]
fn a_superblock_0_90_that_was_written_in_part_can_be_read() {
    let old = decode(Version::V0_90, V090);
    let mut new = old.clone();
    new.events += 1;
    new.roles[0] = DevRole::Faulty;
    new.roles.resize(26, DevRole::Faulty);
    let [before, after] = [old.encode(), new.encode()];
    for written in 0..256 {
        let mut mixed = before.clone();
        for sector in (0..8).filter(|sector| written >> sector & 1 > 0) {
            let range = 512 * sector..512 * (sector + 1);
            mixed[range.clone()].copy_from_slice(&after[range]);
        }
        let found = decode(Version::V0_90, &mixed);
        assert_eq!(found.events, if written & 1 > 0 { new.events } else { old.events });
        assert_eq!(found.role_of(0), if written & 2 > 0 { new.roles[0] } else { old.roles[0] });
    }
}

/// A reshape of Braid's is told from one of md's by the microseconds, and comes back whole.
#[test]
fn superblocks_0_90_keep_a_reshape_and_its_end() {
    let mut sb = decode(Version::V0_90, V090);
    sb.feature_map |= feature::RESHAPE_ACTIVE;
    sb.utime = time_code(1_700_000_000, 7);
    sb.raid_disks = 4;
    sb.roles = Role::all(4).map(DevRole::Active).collect();
    sb.reshape.position = 3 << 32;
    sb.reshape.new_level = 5;
    sb.reshape.delta_disks = 1;
    sb.reshape.new_layout = 2;
    sb.reshape.new_chunk_sectors = 256;
    let bytes = sb.encode();
    assert_eq!(bytes[8..12], 91u32.to_le_bytes());
    assert_eq!(decode(Version::V0_90, &bytes), sb);
    sb.feature_map &= !feature::RESHAPE_ACTIVE;
    let ended = sb.encode();
    assert_eq!(ended[8..12], 90u32.to_le_bytes());
    assert!(ended[176..200].iter().chain(&ended[64..68]).all(|byte| *byte == 0));
    assert_eq!(decode(Version::V0_90, &ended).utime, 1_700_000_000);
}

/// As far as a number of 32 bits tells it; beyond that nothing is in sync.
#[test]
fn superblocks_0_90_tell_how_far_a_resync_is() {
    let mut sb = decode(Version::V0_90, V090);
    for (resynced, told) in [(0, 0), (4096, 4096), (1 << 32, 0), (MAX_SECTOR, MAX_SECTOR)] {
        sb.resync_offset = resynced;
        assert_eq!(decode(Version::V0_90, &sb.encode()).resync_offset, told);
    }
}

/// The kernel writes minor version 91 then, and no recovery offset: a member that is active and not
/// in sync has what was moved.
#[test]
fn superblocks_0_90_tell_of_a_reshape() {
    let mut bytes = patched(V090, 8, &91u32.to_le_bytes());
    bytes = patched(&bytes, 176, &4096u64.to_le_bytes());
    bytes = patched(&bytes, 184, &6u32.to_le_bytes());
    bytes = patched(&bytes, 188, &1u32.to_le_bytes());
    bytes = patched(&bytes, 192, &18u32.to_le_bytes());
    bytes = patched(&bytes, 196, &(32u32 << 10).to_le_bytes());
    let sb = decode(Version::V0_90, &bytes);
    let told = sb.reshape;
    assert_eq!((told.position, told.new_level, told.delta_disks), (4096, 6, 1));
    assert_eq!((told.new_layout, told.new_chunk_sectors, told.new_offset), (18, 64, 0));
    assert_eq!(sb.feature_map, feature::BITMAP_OFFSET | feature::RESHAPE_ACTIVE);
    assert_eq!((sb.role(), sb.recovery_offset), (DevRole::Active(Role(1)), MAX_SECTOR));

    let state = 512 + 128 + 16;
    let sb = decode(Version::V0_90, &patched(&bytes, state, &2u32.to_le_bytes()));
    assert!(sb.has(feature::RECOVERY_OFFSET));
    assert_eq!((sb.role(), sb.recovery_offset), (DevRole::Active(Role(1)), 4096));
    // Without a reshape such a member is a spare.
    let sb = decode(Version::V0_90, &patched(V090, state, &2u32.to_le_bytes()));
    assert_eq!((sb.role(), sb.recovery_offset), (DevRole::Spare, MAX_SECTOR));
}

#[test]
fn what_md_wrote_is_encoded_to_the_same_bytes() {
    for (version, bytes) in [(Version::V1_2, V12), (Version::V1_1, V11), (Version::V1_0, V10)] {
        assert_eq!(decode(version, bytes).encode(), bytes, "{version:?}");
    }
}

#[test]
fn superblocks_lie_where_md_puts_them() {
    let at = |sectors| locations(sectors).map(|(v, at, _)| (v.name(), at)).collect::<Vec<_>>();
    let all = vec![("1.2", 8), ("1.1", 0), ("1.0", 32752), ("0.90", 32640)];
    assert_eq!(at(DEVICE_SECTORS), all);
    assert_eq!(at(DEVICE_SECTORS + 127)[2..], [("1.0", 32872), ("0.90", 32640)]);
    assert_eq!(at(16), [("1.2", 8), ("1.1", 0), ("1.0", 0)]);
    assert_eq!(at(8), [("1.1", 0)]);
    assert_eq!(at(0), []);
}

#[test]
fn any_flipped_bit_of_a_superblock_is_noticed() {
    for (version, bytes) in [(Version::V1_2, V12), (Version::V0_90, V090)] {
        let sector = version.location(DEVICE_SECTORS).unwrap();
        let good = Superblock::decode(version, sector, bytes).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut bytes = bytes.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            match Superblock::decode(version, sector, &bytes) {
                Err(_) => {}
                Ok(decoded) => {
                    // 0.90 checksums are compared in a folded form, in which one half may change.
                    assert!(version == Version::V0_90 && decoded == good, "bit {bit}");
                    assert!((152..156).contains(&(bit / 8)), "bit {bit}");
                }
            }
        }
    }
}

#[test]
fn superblocks_cut_off_or_of_other_places_are_refused() {
    for length in 0..V12.len() {
        let error = Superblock::decode(Version::V1_2, 8, &V12[..length]).unwrap_err();
        let no_magic = error == SuperblockError::NoMagic;
        assert_eq!(no_magic, length < 4, "{length}: {error}");
    }
    let error = Superblock::decode(Version::V1_0, 16, V12).unwrap_err();
    assert_eq!(error.to_string(), "md superblock field super_offset is 8, but it was read at 16");
    let error = Superblock::decode(Version::V1_2, 8, V090).unwrap_err();
    assert_eq!(error, SuperblockError::WrongVersion { major: 0, minor: 90 });
    let error = Superblock::decode(Version::V0_90, 32640, &[V12, &[0; 4096]].concat());
    assert_eq!(error.unwrap_err(), SuperblockError::WrongVersion { major: 1, minor: 0 });
}

/// As a machine of the other byte order has it, of which numbers of 64 bits are two words.
#[test]
fn the_byte_order_of_0_90_does_not_matter() {
    let mut swapped = V090.to_vec();
    for at in [156, 164, 176] {
        let (low, high) = swapped[at..at + 8].split_at_mut(4);
        low.swap_with_slice(high);
    }
    swapped.as_chunks_mut::<4>().0.iter_mut().for_each(|word| word.reverse());
    let other = Superblock::decode(Version::V0_90, 32640, &swapped);
    assert_eq!(other, Superblock::decode(Version::V0_90, 32640, V090));
    swapped[2000] ^= 1;
    let other = Superblock::decode(Version::V0_90, 32640, &swapped);
    assert!(matches!(other, Err(SuperblockError::BadChecksum { .. })));
}

#[test]
fn hostile_fields_with_a_right_checksum_are_refused() {
    let field = |version: Version, bytes: &[u8], at, value: &[u8]| {
        let sector = version.location(DEVICE_SECTORS).unwrap();
        match Superblock::decode(version, sector, &patched(bytes, at, value)) {
            Err(SuperblockError::Malformed { field, .. }) => field,
            other => panic!("{at}: {other:?}"),
        }
    };
    assert_eq!(field(Version::V1_2, V12, 220, &u32::MAX.to_le_bytes()), "max_dev");
    assert_eq!(field(Version::V1_2, V12, 92, &u32::MAX.to_le_bytes()), "raid_disks");
    assert_eq!(field(Version::V1_2, V12, 136, &9u64.to_le_bytes()), "data_size");
    assert_eq!(field(Version::V1_2, V12, 128, &u64::MAX.to_le_bytes()), "data_offset");
    assert_eq!(field(Version::V1_2, V12, 200, &u64::MAX.to_le_bytes()), "events");
    assert_eq!(field(Version::V0_90, V090, 156, &u64::MAX.to_le_bytes()), "events");
    assert_eq!(field(Version::V0_90, V090, 40, &28u32.to_le_bytes()), "raid_disks");
    assert_eq!(field(Version::V0_90, V090, 3968, &27u32.to_le_bytes()), "this_disk.number");
    assert_eq!(field(Version::V0_90, V090, 260, &513u32.to_le_bytes()), "chunk_size");
}

#[test]
fn features_that_are_not_run_are_named() {
    let mut sb = decode(Version::V1_2, V12);
    assert_eq!(sb.supported(), Ok(()));
    sb.feature_map |= feature::CLUSTERED | feature::JOURNAL | 1 << 24;
    let error = sb.supported().unwrap_err();
    assert_eq!(error.bits, feature::CLUSTERED | 1 << 24);
    let text = "uses clustered md, unknown feature bits 0x1000000, which braid does not run";
    assert_eq!(error.to_string(), text);
    // Over nodes, logs of arrays on disks are no use.
    assert_eq!(sb.supported_over_nodes().unwrap_err().bits & feature::LOGS, feature::JOURNAL);
    let reshaping = patched(V090, 8, &91u32.to_le_bytes());
    assert!(decode(Version::V0_90, &reshaping).supported().is_err());
}

#[test]
fn what_newer_kernels_keep_in_the_pads_is_kept_or_refused() {
    let at = |at, field: &[u8]| decode(Version::V1_2, &patched(V12, at, field));
    for block_bytes in [512u32, 4096] {
        let sb = at(224, &block_bytes.to_le_bytes());
        assert_eq!((sb.logical_block_bytes, sb.supported()), (block_bytes, Ok(())));
        assert_eq!(sb.encode(), patched(V12, 224, &block_bytes.to_le_bytes()));
    }
    for unfit in [1u32, 256, 513, 8192, u32::MAX] {
        let sb = at(224, &unfit.to_le_bytes());
        let text = format!("uses logical blocks of {unfit} bytes, which braid does not run");
        assert!(sb.supported().unwrap_err().to_string().starts_with(&text));
    }
    for byte in [12, 15, 228, 255] {
        let sb = at(byte, &[1]);
        let text = "uses superblock fields of a newer md, which braid does not run";
        assert_eq!(sb.supported().unwrap_err().to_string(), text, "{byte}");
        assert_eq!(sb.encode(), patched(V12, byte, &[1]), "{byte}");
    }
    let sb = decode(Version::V0_90, &patched(V090, 200, &4096u32.to_le_bytes()));
    assert_eq!(sb.logical_block_bytes, 4096);
}

#[test]
fn a_hostile_name_is_one_harmless_line() {
    let sb = decode(Version::V1_2, &patched(V12, 32, b"h:\x1b[2Ja\nb\xffc\0"));
    assert_eq!(sb.name(), "h:\u{fffd}[2Ja\u{fffd}b\u{fffd}c");
}

#[test]
fn times_keep_seconds_and_microseconds() {
    assert_eq!(time_parts(time_code(1_795_294_099, 999_999)), (1_795_294_099, 999_999));
    assert_eq!(time_code(5, 1_000_000), 5);
    assert_eq!(READ_BYTES, 4096);
}

#[test]
fn news_of_an_update_include_what_it_says_of_journals_of_nodes() {
    let own = decode(Version::V1_2, V12);
    let of_journals = feature::NODE_JOURNALS | feature::NODE_PPL;
    let feature_map = feature::BAD_BLOCKS | of_journals;
    let events = own.events + 1;
    let newest = Superblock { events, resync_offset: 0, feature_map, ..own.clone() };
    let told = own.with_news_of(&newest);
    assert_eq!((told.events, told.resync_offset), (events, 0));
    assert_eq!(told.feature_map, own.feature_map | of_journals, "and nothing of other members'");
    let stopped = Superblock { resync_offset: MAX_SECTOR, ..own.clone() };
    assert_eq!(told.with_news_of(&stopped).feature_map, own.feature_map);
}
