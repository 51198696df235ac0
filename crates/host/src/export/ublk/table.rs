//! Table of requests, as the kernel describes them: memory shared with it, for reading.

use std::fs::File;
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::proto::DESCRIPTOR_BYTES;

/// The descriptors of the first queue, one for each tag.
#[derive(Debug)]
pub(super) struct DescriptorTable {
    start: NonNull<u8>,
    len: usize,
    depth: u16,
}

// SAFETY: it owns the mapping, and only reads from it.
unsafe impl Send for DescriptorTable {}

impl DescriptorTable {
    /// Maps the descriptors of a device with so many tags.
    pub(super) fn of(device: &File, depth: u16) -> Result<Self, Errno> {
        // The kernel takes no other length.
        let len = usize::from(depth) * DESCRIPTOR_BYTES;
        let len = len.next_multiple_of(rustix::param::page_size());
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping, where there was none.
        let start = unsafe { mmap(std::ptr::null_mut(), len, ProtFlags::READ, flags, device, 0) }?;
        Ok(Self { start: NonNull::new(start.cast()).ok_or(Errno::NOMEM)?, len, depth })
    }

    pub(super) const fn depth(&self) -> u16 {
        self.depth
    }

    /// A copy of the descriptor of a tag, which must be one of these. The kernel changes it only
    /// while it waits for a request of the tag.
    pub(super) fn descriptor(&self, tag: u16) -> [u8; DESCRIPTOR_BYTES] {
        assert!(tag < self.depth, "there is no tag {tag}");
        // SAFETY: it is within the mapping, and bytes need no alignment.
        unsafe {
            self.start.as_ptr().cast::<[u8; DESCRIPTOR_BYTES]>().add(tag.into()).read_volatile()
        }
    }
}

impl Drop for DescriptorTable {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's, and nothing points there any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}
