//! Types of partitions: the purposes that tables name.

use std::fmt;

use uuid::{Uuid, uuid};

/// The type that a partition table gives a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartitionType {
    /// A type of a GPT.
    Guid(Uuid),
    /// A type of an MBR.
    Mbr(u8),
}

impl PartitionType {
    /// Its name, as fdisk has it; `None` for a type that has nothing to do with arrays or with what
    /// usually lies on them.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Guid(guid) => GUIDS.iter().find(|(known, _)| *known == guid).map(|(_, n)| *n),
            Self::Mbr(byte) => BYTES.iter().find(|(known, _)| *known == byte).map(|(_, n)| *n),
        }
    }

    /// Returns whether it is a place for logical partitions rather than for data.
    #[must_use]
    pub const fn is_extended(self) -> bool {
        matches!(self, Self::Mbr(0x05 | 0x0f | 0x85))
    }
}

/// The name, or else the number.
impl fmt::Display for PartitionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name(), self) {
            (Some(name), _) => f.write_str(name),
            (None, Self::Guid(guid)) => write!(f, "{guid}"),
            (None, Self::Mbr(byte)) => write!(f, "type {byte:02x}"),
        }
    }
}

pub(super) const GUIDS: &[(Uuid, &str)] = &[
    (uuid!("a19d880f-05fc-4d3b-a006-743f0f84911e"), "Linux RAID"),
    (uuid!("e6d6d379-f507-44c2-a23c-238f2a3df928"), "Linux LVM"),
    (uuid!("0fc63daf-8483-4772-8e79-3d69d8477de4"), "Linux filesystem"),
    (uuid!("0657fd6d-a4ab-43c4-84e5-0933c84b4f4f"), "Linux swap"),
    (uuid!("933ac7e1-2eb4-4f13-b844-0e14e2aef915"), "Linux home"),
    (uuid!("4f68bce3-e8cd-4db1-96e7-fbcaf984b709"), "Linux root (x86-64)"),
    (uuid!("3b8f8425-20e0-4f3b-907f-1a25a76f98e8"), "Linux server data"),
    (uuid!("8da63339-0007-60c0-c436-083ac8230908"), "Linux reserved"),
    (uuid!("ca7d7ccb-63ed-4c53-861c-1742536059cc"), "LUKS"),
    (uuid!("7ffec5c9-2d00-49b7-8941-3ea10a5586b7"), "dm-crypt"),
    (uuid!("c12a7328-f81f-11d2-ba4b-00a0c93ec93b"), "EFI System"),
    (uuid!("21686148-6449-6e6f-744e-656564454649"), "BIOS boot"),
    (uuid!("9e1a2d38-c612-4316-aa26-8b49521e5a8b"), "PowerPC PReP boot"),
    (uuid!("ebd0a0a2-b9e5-4433-87c0-68b6b72699c7"), "Microsoft basic data"),
    (uuid!("e3c9e316-0b5c-4db8-817d-f92df00215ae"), "Microsoft reserved"),
    (uuid!("de94bba4-06d1-4d40-a16a-bfd50179d6ac"), "Windows recovery environment"),
    (uuid!("5808c8aa-7e8f-42e0-85d2-e1e90434cfb3"), "Microsoft LDM metadata"),
    (uuid!("af9b60a0-1431-4f62-bc68-3311714a69ad"), "Microsoft LDM data"),
    (uuid!("e75caf8f-f680-4cee-afa3-b001e56efc2d"), "Microsoft Storage Spaces"),
    (uuid!("48465300-0000-11aa-aa11-00306543ecac"), "Apple HFS/HFS+"),
    (uuid!("7c3457ef-0000-11aa-aa11-00306543ecac"), "Apple APFS"),
    (uuid!("52414944-0000-11aa-aa11-00306543ecac"), "Apple RAID"),
    (uuid!("516e7cba-6ecf-11d6-8ff8-00022d09712b"), "FreeBSD ZFS"),
    (uuid!("6a898cc3-1dd2-11b2-99a6-080020736631"), "Solaris /usr & Apple ZFS"),
];

const BYTES: &[(u8, &str)] = &[
    (0x01, "FAT12"),
    (0x04, "FAT16 <32M"),
    (0x05, "Extended"),
    (0x06, "FAT16"),
    (0x07, "HPFS/NTFS/exFAT"),
    (0x0b, "W95 FAT32"),
    (0x0c, "W95 FAT32 (LBA)"),
    (0x0e, "W95 FAT16 (LBA)"),
    (0x0f, "W95 Ext'd (LBA)"),
    (0x27, "Hidden NTFS WinRE"),
    (0x42, "SFS"),
    (0x82, "Linux swap / Solaris"),
    (0x83, "Linux"),
    (0x85, "Linux extended"),
    (0x8e, "Linux LVM"),
    (0xa5, "FreeBSD"),
    (0xbf, "Solaris"),
    (0xda, "Non-FS data"),
    (0xe8, "LUKS"),
    (0xee, "GPT"),
    (0xef, "EFI (FAT-12/16/32)"),
    (0xfb, "VMware VMFS"),
    (0xfd, "Linux raid autodetect"),
];
