//! Recognition of the kind of an image by its first bytes.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;

use super::super::AlignedBytes;

/// Kinds of images that hold the bytes of a disk in another order, or compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::member) enum ImageKind {
    /// QEMU's, version 2 or 3 (`docs/interop/qcow2.rst` of QEMU).
    Qcow2,
    /// VMware's: a descriptor of files beside it (VMware's "Virtual Disk Format 5.0").
    Vmdk,
    /// VMDK in one file, or a part of it, in which only written data take space.
    SparseVmdk,
}

impl ImageKind {
    pub(in crate::member) fn of(file: &File) -> Option<Self> {
        // The file may be open with O_DIRECT.
        let mut start = AlignedBytes::new(4096);
        file.read_at(start.as_mut_slice(), 0).ok()?;
        Self::by(start.as_slice())
    }

    fn by(start: &[u8]) -> Option<Self> {
        const QCOW2: &[u8] = b"QFI\xfb\0\0\0";
        const DESCRIPTOR: &[u8] = b"# Disk DescriptorFile";
        if start.starts_with(QCOW2) && matches!(start[7], 2 | 3) {
            return Some(Self::Qcow2);
        }
        let one_file = start.starts_with(b"KDMV") && matches!(start[4..8], [1..=3, 0, 0, 0]);
        if one_file {
            return Some(Self::SparseVmdk);
        }
        start.starts_with(DESCRIPTOR).then_some(Self::Vmdk)
    }
}

impl fmt::Display for ImageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Qcow2 => "qcow2",
            Self::Vmdk => "VMDK",
            Self::SparseVmdk => "sparse VMDK",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_known_by_how_they_begin() {
        let by = |begin: &[u8]| {
            let mut start = [0; 512];
            start[..begin.len()].copy_from_slice(begin);
            ImageKind::by(&start)
        };
        assert_eq!(by(b"QFI\xfb\0\0\0\x03"), Some(ImageKind::Qcow2));
        assert_eq!(by(b"QFI\xfb\0\0\0\x01"), None, "QEMU's first kind");
        assert_eq!(by(b"KDMV\x01\0\0\0"), Some(ImageKind::SparseVmdk));
        assert_eq!(by(b"# Disk DescriptorFile\nversion=1\n"), Some(ImageKind::Vmdk));
        assert_eq!(by(b"KDMV"), None);
        assert_eq!(by(b""), None);
    }
}
