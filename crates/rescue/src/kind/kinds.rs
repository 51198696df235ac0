//! The kinds of things that are known, and what helps with each.

use std::fmt;

/// The kind of a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is what its name says")]
pub enum Kind {
    Gzip,
    Xz,
    Zstd,
    Bzip2,
    Zip,
    SevenZip,
    Qcow2,
    /// Sparse: data is in the file itself.
    Vmdk,
    /// The text that names the files with data.
    VmdkDescriptor,
    Vdi,
    Vhd,
    Vhdx,
    /// Expert Witness: E01, L01, Ex01.
    Ewf,
    /// Advanced Forensics Format.
    Aff,
    Luks1,
    Luks2,
    BitLocker,
    Lvm2,
    Ddf,
    Imsm,
    Zfs,
    Bcache,
    Drbd,
    Ext2,
    Ext3,
    Ext4,
    Xfs,
    Btrfs,
    Ntfs,
    Fat,
    ExFat,
    Iso9660,
    Squashfs,
    Swap,
    F2fs,
    Gpt,
    Mbr,
    /// Nothing but zeroes, wherever was looked.
    Zeroes,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 38] = [
        Self::Gzip,
        Self::Xz,
        Self::Zstd,
        Self::Bzip2,
        Self::Zip,
        Self::SevenZip,
        Self::Qcow2,
        Self::Vmdk,
        Self::VmdkDescriptor,
        Self::Vdi,
        Self::Vhd,
        Self::Vhdx,
        Self::Ewf,
        Self::Aff,
        Self::Luks1,
        Self::Luks2,
        Self::BitLocker,
        Self::Lvm2,
        Self::Ddf,
        Self::Imsm,
        Self::Zfs,
        Self::Bcache,
        Self::Drbd,
        Self::Ext2,
        Self::Ext3,
        Self::Ext4,
        Self::Xfs,
        Self::Btrfs,
        Self::Ntfs,
        Self::Fat,
        Self::ExFat,
        Self::Iso9660,
        Self::Squashfs,
        Self::Swap,
        Self::F2fs,
        Self::Gpt,
        Self::Mbr,
        Self::Zeroes,
    ];

    /// Its name in one word, for programs.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Xz => "xz",
            Self::Zstd => "zstd",
            Self::Bzip2 => "bzip2",
            Self::Zip => "zip",
            Self::SevenZip => "7z",
            Self::Qcow2 => "qcow2",
            Self::Vmdk => "vmdk",
            Self::VmdkDescriptor => "vmdk-descriptor",
            Self::Vdi => "vdi",
            Self::Vhd => "vhd",
            Self::Vhdx => "vhdx",
            Self::Ewf => "ewf",
            Self::Aff => "aff",
            Self::Luks1 => "luks1",
            Self::Luks2 => "luks2",
            Self::BitLocker => "bitlocker",
            Self::Lvm2 => "lvm2",
            Self::Ddf => "ddf",
            Self::Imsm => "imsm",
            Self::Zfs => "zfs",
            Self::Bcache => "bcache",
            Self::Drbd => "drbd",
            Self::Ext2 => "ext2",
            Self::Ext3 => "ext3",
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::Ntfs => "ntfs",
            Self::Fat => "fat",
            Self::ExFat => "exfat",
            Self::Iso9660 => "iso9660",
            Self::Squashfs => "squashfs",
            Self::Swap => "swap",
            Self::F2fs => "f2fs",
            Self::Gpt => "gpt",
            Self::Mbr => "mbr",
            Self::Zeroes => "zeroes",
        }
    }

    /// Its name, as the end of "it is …".
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "compressed by gzip",
            Self::Xz => "compressed by xz",
            Self::Zstd => "compressed by zstd",
            Self::Bzip2 => "compressed by bzip2",
            Self::Zip => "a zip archive",
            Self::SevenZip => "a 7z archive",
            Self::Qcow2 => "a qcow2 image",
            Self::Vmdk => "a VMDK image",
            Self::VmdkDescriptor => "the description of a VMDK image",
            Self::Vdi => "a VDI image",
            Self::Vhd => "a VHD image",
            Self::Vhdx => "a VHDX image",
            Self::Ewf => "an image of Expert Witness (E01)",
            Self::Aff => "an AFF image",
            Self::Luks1 => "encrypted by LUKS1",
            Self::Luks2 => "encrypted by LUKS2",
            Self::BitLocker => "encrypted by BitLocker",
            Self::Lvm2 => "a physical volume of LVM2",
            Self::Ddf => "a member of a controller's array (DDF)",
            Self::Imsm => "a member of an Intel array (IMSM)",
            Self::Zfs => "a member of a ZFS pool",
            Self::Bcache => "a device of bcache",
            Self::Drbd => "a device of DRBD",
            Self::Ext2 => "an ext2 file system",
            Self::Ext3 => "an ext3 file system",
            Self::Ext4 => "an ext4 file system",
            Self::Xfs => "an XFS file system",
            Self::Btrfs => "a btrfs file system",
            Self::Ntfs => "an NTFS file system",
            Self::Fat => "a FAT file system",
            Self::ExFat => "an exFAT file system",
            Self::Iso9660 => "an ISO 9660 file system",
            Self::Squashfs => "a squashfs file system",
            Self::Swap => "swap space",
            Self::F2fs => "an F2FS file system",
            Self::Gpt => "a disk with a GPT",
            Self::Mbr => "a disk with an MBR",
            Self::Zeroes => "nothing but zeroes",
        }
    }

    /// The step that helps next: one sentence for people, with a command where there is one. FILE,
    /// DEVICE, DIR and the like are for users to fill in. No step writes to what was found.
    #[must_use]
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Gzip => "unpack it by `gunzip -k FILE` and name what comes out",
            Self::Xz => "unpack it by `xz -dk FILE` and name what comes out",
            Self::Zstd => "unpack it by `zstd -d FILE` and name what comes out",
            Self::Bzip2 => "unpack it by `bzip2 -dk FILE` and name what comes out",
            Self::Zip => "unpack it by `unzip FILE` and name what comes out",
            Self::SevenZip => "unpack it by `7z x FILE` and name what comes out",
            Self::Qcow2 => "make a raw image by `qemu-img convert -O raw FILE FILE.raw`",
            Self::Vmdk => "make a raw image by `qemu-img convert -f vmdk -O raw FILE FILE.raw`",
            Self::VmdkDescriptor => {
                "with the files it names beside it, make a raw image by \
                 `qemu-img convert -f vmdk -O raw FILE FILE.raw`"
            }
            Self::Vdi => "make a raw image by `qemu-img convert -f vdi -O raw FILE FILE.raw`",
            Self::Vhd => "make a raw image by `qemu-img convert -f vpc -O raw FILE FILE.raw`",
            Self::Vhdx => "make a raw image by `qemu-img convert -f vhdx -O raw FILE FILE.raw`",
            Self::Ewf => "show it as a raw image by `ewfmount FILE DIR` and name DIR/ewf1",
            Self::Aff => "show it as a raw image by `affuse FILE DIR` and name DIR/FILE.raw",
            Self::Luks1 | Self::Luks2 => {
                "open it by `cryptsetup open --readonly DEVICE NAME` and look at /dev/mapper/NAME"
            }
            Self::BitLocker => {
                "open it by `cryptsetup open --readonly --type bitlk DEVICE NAME` and look at \
                 /dev/mapper/NAME"
            }
            Self::Lvm2 => {
                "see what is on it by `pvs -a` and `lvs`; `vgchange -ay GROUP` starts its volumes"
            }
            Self::Ddf | Self::Imsm => {
                "see what it belongs to by `mdadm --examine DEVICE`; mdadm assembles it by \
                 `mdadm --assemble --scan --readonly`"
            }
            Self::Zfs => "import its pool by `zpool import -o readonly=on -d DIR POOL`",
            Self::Bcache => "see which cache it needs by `bcache-super-show DEVICE`",
            Self::Drbd => "see what it belongs to by `drbdadm dump-md RESOURCE` on its host",
            Self::Ext2 => "it is whole by itself: mount it by `mount -o ro DEVICE DIR`",
            Self::Ext3 | Self::Ext4 => {
                "it is whole by itself: mount it by `mount -o ro,noload DEVICE DIR`"
            }
            Self::Xfs => "it is whole by itself: mount it by `mount -o ro,norecovery DEVICE DIR`",
            Self::Btrfs => {
                "mount it by `mount -o ro DEVICE DIR`; `btrfs filesystem show` tells whether it \
                 needs more devices"
            }
            Self::Ntfs => "it is whole by itself: mount it by `mount -t ntfs3 -o ro DEVICE DIR`",
            Self::Fat | Self::ExFat | Self::Iso9660 | Self::Squashfs | Self::F2fs => {
                "it is whole by itself: mount it by `mount -o ro DEVICE DIR`"
            }
            Self::Swap => "no data is lost with it; see what else is on its disk by `lsblk -f`",
            Self::Gpt | Self::Mbr => "name a partition of it, as DEVICE#1",
            Self::Zeroes => {
                "it is new, wiped, or another disk than it should be: compare serial numbers by \
                 `lsblk -o NAME,SIZE,SERIAL`"
            }
        }
    }
}

/// Its name.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
