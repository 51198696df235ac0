//! libfabric itself. A fabric over it loads it, not the start of the process: so a braid that was
//! built with it runs without it, and the libraries it brings along, of which some take over
//! signals as soon as they are loaded, stay out of processes that do not need them.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::OnceLock;
use std::{mem, ptr};

use super::ffi;

/// The library that fits the headers of all versions there are.
const NAME: &CStr = c"libfabric.so.1";

/// Before this version, `fi_info` and the structures it points to were shorter.
const LONGER_SINCE: (u32, u32) = (1, 20);

/// Version of symbols in these older headers.
const OLD_SYMBOLS: &CStr = c"FABRIC_1.3";

/// Signals that mean something to us, or to Rust.
const SIGNALS: [c_int; 8] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGABRT,
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
];

type GetInfo = unsafe extern "C" fn(
    u32,
    *const c_char,
    *const c_char,
    u64,
    *const ffi::fi_info,
    *mut *mut ffi::fi_info,
) -> c_int;
type OfiFabric =
    unsafe extern "C" fn(*mut ffi::fi_fabric_attr, *mut *mut ffi::fid_fabric, *mut c_void) -> c_int;

/// The few functions that are not in headers.
#[derive(Debug)]
pub(super) struct Library {
    pub(super) fi_getinfo: GetInfo,
    pub(super) fi_freeinfo: unsafe extern "C" fn(*mut ffi::fi_info),
    pub(super) fi_dupinfo: unsafe extern "C" fn(*const ffi::fi_info) -> *mut ffi::fi_info,
    pub(super) fi_fabric: OfiFabric,
    pub(super) fi_strerror: unsafe extern "C" fn(c_int) -> *const c_char,
}

static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();

impl Library {
    /// The library, loaded at the first call; `None` if it is not installed.
    pub(super) fn load() -> Option<&'static Self> {
        LIBRARY.get_or_init(|| keeping_signals(Self::open)).as_ref()
    }

    /// The library, once something of it is in use.
    ///
    /// # Panics
    /// Before it was loaded.
    pub(super) fn get() -> &'static Self {
        Self::load().expect("libfabric is loaded")
    }

    fn open() -> Option<Self> {
        // SAFETY: its constructors take over signals, which the caller undoes, and do no more.
        let handle = unsafe { libc::dlopen(NAME.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return None;
        }
        let current = |name: &CStr| {
            // SAFETY: the library stays loaded.
            let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
            (!address.is_null()).then_some(address)
        };
        let fitting = |name: &CStr| {
            if (ffi::FI_MAJOR_VERSION, ffi::FI_MINOR_VERSION) >= LONGER_SINCE {
                return current(name);
            }
            // SAFETY: as above.
            let address = unsafe { libc::dlvsym(handle, name.as_ptr(), OLD_SYMBOLS.as_ptr()) };
            (!address.is_null()).then_some(address)
        };
        // SAFETY: these are the functions' types in libfabric's headers.
        unsafe {
            Some(Self {
                fi_getinfo: mem::transmute::<*mut c_void, GetInfo>(fitting(c"fi_getinfo")?),
                fi_freeinfo: mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut ffi::fi_info)>(
                    fitting(c"fi_freeinfo")?,
                ),
                fi_dupinfo: mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*const ffi::fi_info) -> *mut ffi::fi_info,
                >(fitting(c"fi_dupinfo")?),
                fi_fabric: mem::transmute::<*mut c_void, OfiFabric>(current(c"fi_fabric")?),
                fi_strerror: mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(c_int) -> *const c_char,
                >(current(c"fi_strerror")?),
            })
        }
    }
}

/// Calls `work`, which uses libfabric, and restores the signal handlers.
pub(super) fn keeping_signals<T>(work: impl FnOnce() -> T) -> T {
    let before = SIGNALS.map(|signal| {
        // SAFETY: all zeroes is an action, and it is only written to.
        unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            let told = libc::sigaction(signal, ptr::null(), &raw mut action);
            (signal, action, told == 0)
        }
    });
    let result = work();
    for (signal, action, told) in before {
        if told {
            // SAFETY: this action was in force before.
            unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
        }
    }
    result
}
