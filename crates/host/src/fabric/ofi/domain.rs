//! A network device, and memory that it may read and write.

use std::net::IpAddr;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use braid_array::Buf;

use super::ffi;
use super::info::{OfiError, ProviderInfo};
use super::library::Library;
use crate::arena::Memory;

/// A device, open.
#[derive(Debug)]
pub(super) struct Domain {
    domain: NonNull<ffi::fid_domain>,
    fabric: NonNull<ffi::fid_fabric>,
    info: ProviderInfo,
}

// SAFETY: we ask for FI_THREAD_SAFE.
unsafe impl Send for Domain {}
// SAFETY: as above.
unsafe impl Sync for Domain {}

impl Domain {
    /// Opens the device that has this address, if the provider knows addresses.
    pub(super) fn open(provider: &str, source: Option<IpAddr>) -> Result<Arc<Self>, OfiError> {
        let info = ProviderInfo::find(Some(provider), source)?;
        let mut fabric = ptr::null_mut();
        let mut domain = ptr::null_mut();
        // SAFETY: the attributes come from libfabric; `fabric` is written on success.
        let code = unsafe {
            (Library::get().fi_fabric)(
                (*info.as_ptr()).fabric_attr,
                &raw mut fabric,
                ptr::null_mut(),
            )
        };
        OfiError::check("fi_fabric", code.into())?;
        // SAFETY: the fabric is open; `domain` is written on success.
        let code =
            unsafe { ffi::fi_domain(fabric, info.as_ptr(), &raw mut domain, ptr::null_mut()) };
        let (Some(fabric), Some(domain)) = (NonNull::new(fabric), NonNull::new(domain)) else {
            if let Some(fabric) = NonNull::new(fabric) {
                close(fabric);
            }
            return Err(OfiError::new("fi_domain", code.into()));
        };
        Ok(Arc::new(Self { domain, fabric, info }))
    }

    pub(super) const fn as_ptr(&self) -> *mut ffi::fid_domain {
        self.domain.as_ptr()
    }

    /// Returns a key that cannot be guessed, for providers that leave keys to us.
    fn new_key(&self) -> Result<u64, OfiError> {
        let mut bytes = [0; 8];
        let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        // So few come at once, or not at all.
        filled.map_err(|errno| OfiError::new("getrandom", errno.raw_os_error().into()))?;
        Ok(u64::from_le_bytes(bytes) & self.info.largest_key())
    }

    pub(super) const fn info(&self) -> &ProviderInfo {
        &self.info
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        close(self.domain);
        close(self.fabric);
    }
}

/// An object of libfabric's. All begin with a `fid`.
///
/// # Safety
/// Only for types that do.
pub(super) unsafe trait Object {}
// SAFETY: see libfabric's headers.
unsafe impl Object for ffi::fid_fabric {}
// SAFETY: as above.
unsafe impl Object for ffi::fid_domain {}
// SAFETY: as above.
unsafe impl Object for ffi::fid_mr {}
// SAFETY: as above.
unsafe impl Object for ffi::fid_ep {}
// SAFETY: as above.
unsafe impl Object for ffi::fid_av {}
// SAFETY: as above.
unsafe impl Object for ffi::fid_cq {}

/// Closes an object that its owner drops.
pub(super) fn close<T: Object>(object: NonNull<T>) {
    // SAFETY: it begins with its fid, and the owner, being dropped, lets nobody use it any more.
    // Closing fails only while other objects hold on to it, and owners are dropped in order.
    let code = unsafe { ffi::fi_close(object.as_ptr().cast()) };
    debug_assert_eq!(code, 0, "an object was closed while in use");
}

/// Description of a region, as a peer needs it to write there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RemoteRegion {
    pub(super) key: u64,
    /// Address of its first byte for the device.
    pub(super) base: u64,
    /// Place of the region in the peer's memory.
    pub(super) start: u64,
    pub(super) bytes: u64,
}

impl RemoteRegion {
    /// Returns the address of a range for the peer's device; `None` if the region ends before it.
    pub(super) fn address(&self, offset: u64, bytes: u64) -> Option<u64> {
        let at = offset.checked_sub(self.start)?;
        let inside = at.checked_add(bytes).is_some_and(|end| end <= self.bytes);
        if inside { self.base.checked_add(at) } else { None }
    }
}

/// A part of some memory, known to the device.
#[derive(Debug)]
pub(super) struct RegisteredRegion {
    mr: NonNull<ffi::fid_mr>,
    memory: Arc<Memory>,
    range: Range<u64>,
    domain: Arc<Domain>,
}

// SAFETY: we ask for FI_THREAD_SAFE, and of the memory `Memory` says so itself.
unsafe impl Send for RegisteredRegion {}
// SAFETY: as above.
unsafe impl Sync for RegisteredRegion {}

impl RegisteredRegion {
    /// Tells the device of a range of the memory, for these kinds of access.
    ///
    /// # Panics
    /// When the memory is shorter than that.
    pub(super) fn register(
        domain: &Arc<Domain>,
        memory: &Arc<Memory>,
        range: Range<u64>,
        access: u32,
    ) -> Result<Self, OfiError> {
        assert!(range.start <= range.end && range.end <= memory.len_bytes() as u64);
        let start = memory.address(Buf { offset: range.start, len: 0 });
        let bytes = usize::try_from(range.end - range.start).expect("the memory is mapped");
        let key = domain.new_key()?;
        let mut mr = ptr::null_mut();
        let access = u64::from(access);
        // SAFETY: the memory is mapped, and stays so for longer than the region lives.
        let code = unsafe {
            let domain = domain.as_ptr();
            let start = start.cast_const().cast();
            let none = ptr::null_mut();
            ffi::fi_mr_reg(domain, start, bytes, access, 0, key, 0, &raw mut mr, none)
        };
        let mr = NonNull::new(mr).ok_or_else(|| OfiError::new("fi_mr_reg", code.into()))?;
        OfiError::check("fi_mr_reg", code.into())?;
        Ok(Self { mr, memory: Arc::clone(memory), range, domain: Arc::clone(domain) })
    }

    pub(super) const fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    pub(super) const fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Returns the description that a peer needs to write here.
    pub(super) fn remote(&self) -> RemoteRegion {
        // SAFETY: the region is registered.
        let key = unsafe { ffi::fi_mr_key(self.mr.as_ptr()) };
        let first = self.memory.address(Buf { offset: self.range.start, len: 0 }) as u64;
        let base = if self.domain.info().wants(ffi::FI_MR_VIRT_ADDR) { first } else { 0 };
        let Range { start, end } = self.range;
        RemoteRegion { key, base, start, bytes: end - start }
    }

    /// Returns the bytes of a range, and the device's name of the region, for an operation on them.
    ///
    /// # Panics
    /// When the range does not lie in the region.
    pub(super) fn piece(&self, buf: Buf) -> (ffi::iovec, *mut libc::c_void) {
        let end = buf.offset.checked_add(buf.len.into());
        let inside = self.range.start <= buf.offset && end.is_some_and(|end| end <= self.range.end);
        assert!(inside, "{buf:?} is not in the region");
        let address = self.memory.address(buf).cast();
        // SAFETY: the region is registered.
        let name = unsafe { ffi::fi_mr_desc(self.mr.as_ptr()) };
        (ffi::iovec { iov_base: address, iov_len: buf.len as usize }, name)
    }
}

impl Drop for RegisteredRegion {
    fn drop(&mut self) {
        close(self.mr);
    }
}
