//! Rivals: other programs that can do the job, measured in the same run.

use std::str::FromStr;

use braid_array::refusal::Refusal;

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

impl FromStr for Rival {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        Self::ALL.into_iter().find(|rival| rival.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Refusal::new("nothing of this name is known here", format!("name one of {names}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_rival_is_refused_with_their_names() {
        assert_eq!("nbdkit".parse(), Ok(Rival::Nbdkit));
        let refused = "raid".parse::<Rival>().expect_err("not one of them");
        assert!(refused.next.advice.contains("btrfs, md"), "{}", refused.next.advice);
    }
}
