//! Rivals: other programs that can do the job, measured in the same run.

use super::words::names;

names! {
    /// Something to be measured beside Braid.
    pub enum Rival {
        /// The RAID profiles of btrfs, in the kernel.
        Btrfs = "btrfs",
        /// The kernel's own software RAID.
        Md = "md",
        /// The file or disk below, with nothing between.
        File = "file",
        /// nbdkit's file plugin: another server in user space, without RAID.
        Nbdkit = "nbdkit",
        /// A dispersed volume of GlusterFS, over nodes.
        Gluster = "gluster",
    }
}
