//! Members of arrays that exist in tests only.

use braid_array::MemberId;
use braid_array::status::{MemberState, MemberStatus};

/// Returns a member without a role, of which nothing is said but this.
pub(crate) fn member(number: u16, device: &str, state: MemberState) -> MemberStatus {
    MemberStatus {
        member: MemberId(number),
        device: device.to_owned(),
        role: None,
        number,
        state,
        replacement: false,
        want_replacement: false,
        needed: false,
        events: 0,
        errors: 0,
        corrected_reads: 0,
        unreliable: false,
        slow_ms: None,
        refused: None,
        awaited: false,
        recovery_offset_sectors: None,
        devflags: 0,
    }
}
