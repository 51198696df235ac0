//! A lab of network namespaces with the real programs in it.

use std::process::{Child, Command};

use crate::support::{Lab, program};

/// A lab that is up. The programs in it end, and it is taken down, whatever happens.
pub(crate) struct Spaces<'a> {
    pub(crate) lab: &'a Lab,
    pub(crate) name: String,
    /// Programs that run until then.
    pub(crate) running: Vec<Child>,
}

impl Drop for Spaces<'_> {
    fn drop(&mut self) {
        for child in &mut self.running {
            // It may have ended already.
            let _ = child.kill().and_then(|()| child.wait());
        }
        let down = self.lab.run(&format!("bench lab down {}", self.name), &[]);
        assert!(down.status.success() || std::thread::panicking(), "{down:?}");
    }
}

impl Spaces<'_> {
    /// `braid` with these words, on a host of the lab.
    pub(crate) fn exec(&self, host: &str, words: &str) -> Command {
        let mut command = self.lab.braid_at("setpriv".as_ref());
        let space = format!("--net=/run/netns/{}-{host}", self.name);
        command.args(["--pdeathsig", "KILL", "--", "nsenter", &space, "--"]);
        command.arg(program()).args(words.split_whitespace());
        command
    }
}

/// Returns whether this is root, and these tools of iproute2 are installed.
pub(crate) fn can_be_made(tools: &[&str]) -> bool {
    let is_here = |tool: &&str| Command::new(tool).arg("-V").output().is_ok();
    rustix::process::geteuid().is_root() && tools.iter().all(is_here)
}
