//! The bindings, as `build.rs` made them from libfabric's headers.

#[allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    unreachable_pub,
    dead_code,
    clippy::all,
    clippy::use_self,
    clippy::undocumented_unsafe_blocks,
    reason = "generated"
)]
mod bindings {
    include!(concat!(env!("OUT_DIR"), "/ofi.rs"));
}

#[allow(clippy::wildcard_imports, reason = "these are all it consists of")]
pub(super) use bindings::*;
