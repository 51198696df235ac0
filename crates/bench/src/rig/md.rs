//! An array of the kernel's, where the kernel has md; stopped when it goes.

use std::path::{Path, PathBuf};

use super::leftovers::{Guard, Leftover};
use crate::failure::Failure;
use crate::tool::Tool;

/// Above these are those that mdadm chooses itself when it finds arrays.
const NUMBERS: std::ops::Range<u32> = 32..120;

/// Checks that this kernel has it.
pub(crate) fn md_exists() -> Result<(), Failure> {
    let there = || Path::new("/proc/mdstat").exists();
    if !there()
        && let Ok(modprobe) = Tool::find("modprobe", "kmod")
    {
        // Where it is not a module, the next look tells.
        let _ = modprobe.output(&["md_mod"]);
    }
    if there() {
        return Ok(());
    }
    Err(Failure::gap("md", "this kernel has no software RAID", "boot one with the module md_mod"))
}

/// Creates and starts an array; its device. Members are taken to be in sync.
pub(super) fn start(
    level: &str,
    layout: Option<&str>,
    members: &[PathBuf],
) -> Result<(PathBuf, Guard), Failure> {
    let mdadm = Tool::find("mdadm", "mdadm")?;
    let free = |number: &u32| !Path::new(&format!("/sys/block/md{number}")).exists();
    let number = NUMBERS.into_iter().find(free).ok_or_else(|| {
        Failure::gap("md", "all of its numbers are taken", "stop what is not needed")
    })?;
    let device = PathBuf::from(format!("/dev/md{number}"));
    let name = device.display().to_string();
    let count = members.len().to_string();
    let mut words = vec!["--create", &name, "--run", "--quiet", "--assume-clean"];
    words.extend(["--metadata=1.2", "--bitmap=none", "--level", level]);
    words.extend(layout.iter().flat_map(|layout| ["--layout", *layout]));
    words.extend(["--raid-devices", &count]);
    let named: Vec<String> = members.iter().map(|m| m.display().to_string()).collect();
    words.extend(named.iter().map(String::as_str));
    let guard = Guard::new(Leftover::Md(device.clone(), members.to_vec()));
    mdadm.output(&words)?;
    Ok((device, guard))
}
