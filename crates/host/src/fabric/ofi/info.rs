//! Choice of the provider that carries the fabric, and its requirements.

use std::ffi::{CStr, CString};
use std::net::IpAddr;
use std::ptr::{self, NonNull};

use super::ffi;
use super::library::{Library, keeping_signals};

/// The interface this was written to.
const API: u32 = 1 << 16 | 17;

/// The shortest data that must come with a write.
const IMM_BYTES: usize = 4;

/// A call of libfabric's that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}: {reason}")]
pub(super) struct OfiError {
    /// Name of the call.
    pub(super) call: &'static str,
    /// Reason, in libfabric's words.
    pub(super) reason: String,
}

impl OfiError {
    /// Creates an error from the result of a call.
    pub(super) fn new(call: &'static str, code: i64) -> Self {
        let number = i32::try_from(code.unsigned_abs()).unwrap_or(i32::MAX);
        // SAFETY: it knows all numbers, and answers with a text that is never freed.
        let text = unsafe { CStr::from_ptr((Library::get().fi_strerror)(number)) };
        Self { call, reason: text.to_string_lossy().into_owned() }
    }

    /// Turns a negative result into an error.
    pub(super) fn check(call: &'static str, code: i64) -> Result<(), Self> {
        if code < 0 { Err(Self::new(call, code)) } else { Ok(()) }
    }
}

/// A provider, and how it is used from one address.
#[derive(Debug)]
pub(super) struct ProviderInfo {
    /// Head of a list, which is freed as a whole.
    list: NonNull<ffi::fi_info>,
    /// The element that we use.
    chosen: NonNull<ffi::fi_info>,
}

// SAFETY: plain memory of libfabric's without thread affinity; nobody writes to it.
unsafe impl Send for ProviderInfo {}
// SAFETY: as above.
unsafe impl Sync for ProviderInfo {}

impl ProviderInfo {
    /// Finds the provider of this name, or else the one that libfabric prefers, with all features
    /// that we need; to be used from this address, or from any.
    pub(super) fn find(provider: Option<&str>, source: Option<IpAddr>) -> Result<Self, OfiError> {
        let library = Library::get();
        let name = provider.map(CString::new).transpose().map_err(|_| Self::none())?;
        let node = source.map(|ip| CString::new(ip.to_string()).expect("no zeroes in it"));
        let node = node.as_ref().map_or(ptr::null(), |node| node.as_ptr());
        let flags = if node.is_null() { 0 } else { ffi::FI_SOURCE };
        let mut list = ptr::null_mut();
        let hints = Self::hints(name.as_deref())?;
        // SAFETY: the strings are terminated, the hints valid, and `list` is written on success.
        let code = keeping_signals(|| unsafe {
            (library.fi_getinfo)(API, node, ptr::null(), flags, hints.as_ptr(), &raw mut list)
        });
        // SAFETY: made by `hints`, and used by nobody else.
        unsafe { (library.fi_freeinfo)(hints.as_ptr()) };
        if code == -(ffi::FI_ENODATA.cast_signed()) {
            return Err(Self::none());
        }
        OfiError::check("fi_getinfo", code.into())?;
        let list = NonNull::new(list).ok_or_else(Self::none)?;
        let mut info = Self { list, chosen: list };
        while !info.suits() {
            // SAFETY: an element of the list that `fi_getinfo` made, which lives in `info`.
            let next = unsafe { info.chosen.as_ref() }.next;
            info.chosen = NonNull::new(next).ok_or_else(Self::none)?;
        }
        Ok(info)
    }

    fn none() -> OfiError {
        let reason = "no such provider with reliable messages, remote writes and 32 bits with them";
        OfiError { call: "fi_getinfo", reason: reason.into() }
    }

    /// Returns the hints for a provider: features needed of it, and requirements that it may have.
    fn hints(provider: Option<&CStr>) -> Result<NonNull<ffi::fi_info>, OfiError> {
        let out_of_memory = || OfiError::new("fi_allocinfo", libc::ENOMEM.into());
        // SAFETY: without an original it makes an empty one.
        let hints = NonNull::new(unsafe { (Library::get().fi_dupinfo)(ptr::null()) })
            .ok_or_else(out_of_memory)?;
        let ordered = u64::from(ffi::FI_ORDER_SAS);
        let memory =
            ffi::FI_MR_LOCAL | ffi::FI_MR_VIRT_ADDR | ffi::FI_MR_ALLOCATED | ffi::FI_MR_PROV_KEY;
        // SAFETY: `fi_dupinfo` allocated the attributes along with it; nobody else knows of them.
        // The name is freed with `free`, as `strdup` wants it.
        unsafe {
            let info = hints.as_ptr();
            (*info).caps = u64::from(ffi::FI_MSG | ffi::FI_RMA);
            (*(*info).ep_attr).type_ = ffi::FI_EP_RDM;
            (*(*info).tx_attr).msg_order = ordered;
            (*(*info).rx_attr).msg_order = ordered;
            let domain = (*info).domain_attr;
            (*domain).mr_mode = memory.cast_signed();
            (*domain).threading = ffi::FI_THREAD_SAFE;
            (*domain).resource_mgmt = ffi::FI_RM_ENABLED;
            if let Some(provider) = provider {
                (*(*info).fabric_attr).prov_name = libc::strdup(provider.as_ptr());
            }
        }
        Ok(hints)
    }

    fn suits(&self) -> bool {
        // SAFETY: libfabric fills in all attributes.
        unsafe { (*self.chosen.as_ref().domain_attr).cq_data_size >= IMM_BYTES }
    }

    /// Returns a pointer for calls of libfabric, which do not write to it.
    pub(super) const fn as_ptr(&self) -> *mut ffi::fi_info {
        self.chosen.as_ptr()
    }

    /// Its full name, as `tcp;ofi_rxm`.
    pub(super) fn provider(&self) -> String {
        // SAFETY: libfabric fills in the name.
        let name = unsafe { CStr::from_ptr((*self.chosen.as_ref().fabric_attr).prov_name) };
        name.to_string_lossy().into_owned()
    }

    /// Returns whether it works from IP addresses. The others have names of their own.
    pub(super) const fn has_ip(&self) -> bool {
        // SAFETY: it lives in `self`.
        let format = unsafe { self.chosen.as_ref() }.addr_format;
        !matches!(format, ffi::FI_ADDR_STR | ffi::FI_ADDR_EFA)
    }

    /// Returns whether it requires this of the memory it works on.
    pub(super) fn wants(&self, mr_mode: u32) -> bool {
        // SAFETY: as in `suits`.
        let wanted = unsafe { (*self.chosen.as_ref().domain_attr).mr_mode };
        wanted.cast_unsigned() & mr_mode != 0
    }

    /// The largest key of a region.
    pub(super) fn largest_key(&self) -> u64 {
        // SAFETY: as in `suits`.
        let bytes = unsafe { (*self.chosen.as_ref().domain_attr).mr_key_size };
        u64::MAX >> (64 - 8 * bytes.clamp(1, 8))
    }
}

impl Drop for ProviderInfo {
    fn drop(&mut self) {
        // SAFETY: the list came from `fi_getinfo`, and only we hold it.
        unsafe { (Library::get().fi_freeinfo)(self.list.as_ptr()) };
    }
}
