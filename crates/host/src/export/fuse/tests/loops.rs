//! The file below a loop device.

use super::*;

/// Script in a mount namespace of its own, so that no mount of another process keeps ours busy.
const EXT4_ON_LOOP: &str = r#"
set -eu
loop=$(losetup -f --show --direct-io=on --sector-size 512 "$1")
trap 'umount "$2" 2>/dev/null || true; losetup -d "$loop"' EXIT
mkfs.ext4 -q -F "$loop"
mount -o discard "$loop" "$2"
fio --name=v --directory="$2" --size=24M --rw=randwrite --bsrange=512-64k --ioengine=libaio \
    --direct=1 --iodepth=16 --fsync=64 --randseed=7 --output="$2.log" \
    --verify=crc32c --verify_state_save=0 --do_verify=1 --verify_fatal=1
rm "$2"/v*
fstrim "$2"
umount "$2"
e2fsck -fn "$loop"
"#;

#[test]
fn ext4_on_a_loop_device_keeps_its_data() {
    let Some(mut mounted) = mounted(96 * MIB, false) else { return };
    let work = tempfile::tempdir().unwrap();
    let target = work.path().join("ext4");
    std::fs::create_dir(&target).unwrap();
    for tool in ["losetup", "mkfs.ext4", "fio", "e2fsck", "unshare"] {
        if Command::new(tool).arg("--version").output().is_err() {
            return skipped(tool);
        }
    }
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "bash", "-c", EXT4_ON_LOOP, "bash"])
        .args([mounted.path(), target])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = format!("{}{}", lossy(&output.stdout), lossy(&output.stderr));
    if text.contains("losetup: ") && !output.status.success() {
        return skipped(&format!("losetup ({})", text.trim()));
    }
    let log = std::fs::read_to_string(work.path().join("ext4.log")).unwrap_or_default();
    assert!(output.status.success(), "{text}\n{log}");
    {
        let asked = mounted.asked();
        assert!(asked.flushes > 10, "{} flushes", asked.flushes);
        assert!(asked.zeroed.iter().any(|(_, unmap)| *unmap), "no discard came through");
    }
    unmount(mounted.mount.take().unwrap());
}

#[test]
fn members_are_not_looked_for_on_the_loop_device() {
    let Some(mut mounted) = mounted(MIB, false) else { return };
    let made = Command::new("losetup").args(["-f", "--show"]).arg(mounted.path()).output();
    let Some(made) = made.ok().filter(|made| made.status.success()) else {
        return skipped("losetup");
    };
    let device = PathBuf::from(lossy(&made.stdout).trim_end());
    let listed = std::fs::read_to_string("/proc/partitions").unwrap();
    let found = crate::member::scan().unwrap();
    let gone = Command::new("losetup").arg("-d").arg(&device).status().unwrap();
    assert!(gone.success());
    assert!(listed.contains(device.file_name().unwrap().to_str().unwrap()), "{listed}");
    assert!(!found.contains(&device), "{found:?}");
    unmount(mounted.mount.take().unwrap());
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
