//! Judges we did not write: a real md kernel, mdadm, libnbd, qemu, fio, ext4, xfs. All drive the
//! command `braid` as a user does.

mod golden;
mod md_to_braid;
mod served;
mod support;
