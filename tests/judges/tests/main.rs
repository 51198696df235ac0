//! Judges we did not write: a real md kernel, mdadm, libnbd, qemu, fio, ext4, xfs. All drive the
//! command `braid` as a user does. One of ours is among them: `power` cuts the power.

mod alerts;
mod backups;
mod boots;
mod braid_to_md;
mod cluster;
mod crash;
mod golden;
mod guest;
mod guest_waits;
mod handoff;
mod installed;
mod live;
mod logs;
mod made;
mod md_to_braid;
mod mixed;
mod nbd_clients;
mod nested;
mod newer;
mod nodes;
mod numbered;
mod package;
mod places;
mod policies;
mod power;
mod refusals;
mod rescue;
mod reshape;
mod revive;
mod served;
mod split;
mod support;
mod typed;
mod ublk;
mod upgrade;
