//! The devices behind the members of a machine.

use braid_array::MemberId;

/// Device of each member; the index is the member's id.
pub type Attached = Vec<Option<usize>>;

/// Puts a device behind a member id; `None` takes it away.
pub fn attach(attached: &mut Attached, member: MemberId, device: Option<usize>) {
    let at = usize::from(member.0);
    if attached.len() <= at {
        attached.resize(at + 1, None);
    }
    attached[at] = device;
}
