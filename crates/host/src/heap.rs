//! Settings of glibc's allocator for keeping memory: enough that requests find theirs warm, and
//! nothing while there are no requests.

/// Buffers of this length and more are mapped on their own: there are few, and they are touched as
/// far as they are used.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES: i32 = 4 << 20;

/// Free memory at the end of the heap that is kept while requests come.
#[cfg(target_env = "gnu")]
const KEPT_BYTES: i32 = 64 << 20;

/// To be called before there are threads.
pub(crate) fn set_up() {
    #[cfg(target_env = "gnu")]
    // SAFETY: these take numbers; no other thread uses the allocator meanwhile.
    unsafe {
        // Only the first heap can be given back in whole, and a few threads do not fight for it.
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES);
    }
}

/// Gives kept memory back to the system.
pub(crate) fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes a number and may be called at any time from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}
