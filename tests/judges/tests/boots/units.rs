//! What systemd does for arrays and nodes beyond starting them at boot: processes that died or
//! hang are started again, under a mount of fstab's (FUSE and a loop device) that is in use; an
//! array over nodes of the same machine comes after them and goes before them; a scrub tells what
//! it found.
//!
//! Not here: `SurviveFinalKillSignal`, and whatever else systemd knows only from 255 on, where
//! this machine's systemd, which the guest boots, is older.

use std::path::{Path, PathBuf};

use super::{
    BOOT_TOOLS, CANNOT, Machine, boot, enable_monitor, expect_order, file_system, install, members,
};
use crate::support::{base, directory, is_drawn, program, skip};

const SCRIPT: &str = include_str!("units.sh");

/// As an administrator has it at first. Members of `vault` are looked for among all devices.
const ARRAYS: &str = r#"
[array.vault]
exports = ["fuse:/srv/array"]
wait = 120

[node.a]
listen = "127.0.0.1:7001"
store = "/srv/nodes/a"
ring = "32M"

[node.b]
listen = "127.0.0.1:7002"
store = "/srv/nodes/b"
ring = "32M"

[node.c]
listen = "127.0.0.1:7003"
store = "/srv/nodes/c"
ring = "32M"
"#;
const FSTAB: &str = "\
/srv/array/vault /data ext4 loop,nofail,x-systemd.after=braid@vault.service 0 0
/dev/disk/by-id/virtio-nodes /srv/nodes ext4 nofail 0 2
";
/// What comes to that once there is an array over the nodes.
const MORE_ARRAYS: &str = r#"
[array.far]
members = [
    "node://127.0.0.1:7001/far", "node://127.0.0.1:7002/far", "node://127.0.0.1:7003/far",
]
exports = ["fuse:/srv/far"]
"#;
const MORE_FSTAB: &str =
    "/srv/far/far /far ext4 loop,nofail,_netdev,x-systemd.after=braid@far.service 0 0\n";
const MOUNTPOINTS: [&str; 5] = ["data", "far", "srv/array", "srv/far", "srv/nodes"];

const VAULT_STOPS: [&str; 4] = [
    "Unmounted data.mount",
    "Stopping braid@vault.service",
    "Stopped braid@vault.service",
    "Reached target shutdown.target",
];
/// The array, then its nodes, then what they keep their volumes on.
const FAR_STOPS: [&str; 6] = [
    "Unmounted far.mount",
    "Stopping braid@far.service",
    "Stopped braid@far.service",
    "Stopping braid-node@b.service",
    "Stopped braid-node@b.service",
    "Unmounted srv-nodes.mount",
];

fn tree(dir: &Path, arrays: &str, fstab: &str) -> PathBuf {
    let tree = dir.join("tree");
    install(&tree);
    let more = &[("more/arrays.toml", MORE_ARRAYS), ("more/fstab", MORE_FSTAB)];
    Machine { arrays, fstab, mountpoints: &MOUNTPOINTS, more }.write(&tree);
    enable_monitor(&tree);
    tree
}

#[test]
fn a_mount_outlives_its_process_and_an_array_its_nodes_over_a_boot() {
    let test = "a_mount_outlives_its_process_and_an_array_its_nodes_over_a_boot";
    if !is_drawn(0) {
        return println!("the other whole machine is drawn");
    }
    let tools = ["fio"].into_iter().chain(BOOT_TOOLS).map(program);
    if let Err(reason) = tools.collect::<Result<Vec<()>, _>>() {
        return skip(test, &reason);
    }
    let dir = directory("units");
    let mut disks = members(&dir, "vault", 3, "-l 5 -n 3");
    let nodes = dir.join("nodes");
    file_system(&nodes, 256 << 20);
    disks.push(nodes);

    let first = boot(&dir, &tree(&dir.join("first"), ARRAYS, FSTAB), SCRIPT, &disks);
    if first.status.code() == Some(CANNOT) {
        return skip(test, first.stderr.trim());
    }
    let first = first.expect_success("the first boot");
    println!("{}", first.stdout);
    expect_order(&first, &VAULT_STOPS);
    expect_order(&first, &FAR_STOPS);

    let arrays = format!("{ARRAYS}{MORE_ARRAYS}");
    let tree = tree(&dir.join("second"), &arrays, &format!("{FSTAB}{MORE_FSTAB}"));
    let second = boot(&dir, &tree, &format!("AGAIN=yes\n{SCRIPT}"), &disks);
    let second = second.expect_success("the second boot");
    expect_order(&second, &VAULT_STOPS);
    expect_order(&second, &FAR_STOPS);
    std::fs::remove_dir_all(base().join("units")).expect("nobody uses it");
}
