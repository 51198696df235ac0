//! The functions of `tests/md/guest.sh` outlast an md kernel that answers EBUSY.

use crate::braid_to_md::{available, members};
use crate::support::{guest, skip};

/// A check is under way when the next one is asked for, and an array has the devices that another
/// is made of; both end a moment later.
const BUSY: &str = r#"
    attach m0.img m1.img
    md --create /dev/md0 --run -l1 -n2 --assume-clean "${LOOPS[@]}"
    idle md0
    sysfs=/sys/block/md0/md
    later() { sleep 1; "$@"; }

    echo 0 >$sysfs/sync_max
    echo check >$sysfs/sync_action
    # As if md had just said that it is idle.
    idle() { unset -f idle; source "$BASH_ENV"; }
    finish() { echo max >$sysfs/sync_max; }
    later finish &
    scrub md0
    wait
    [ "$MISMATCHES" = 0 ] || fail mismatches

    later mdadm --stop /dev/md0 &
    md --create /dev/md1 --run -l1 -n2 --assume-clean "${LOOPS[@]}"
    wait
    md --stop /dev/md1
    detach

    # As mdadm has it of devices that are busy, now and then.
    for words in "device loop0 not suitable for any style of array" "for write - not zeroing"; do
        rm -f asked
        once() { [ ! -e asked ] || return 0; : >asked; echo "mdadm: $words"; return 1; }
        patiently once
    done
"#;

#[test]
fn a_busy_md_is_asked_again() {
    let test = "a_busy_md_is_asked_again";
    if let Err(reason) = available() {
        return skip(test, &reason);
    }
    let members = members("busy", 2, 32 << 20);
    let directory = members[0].parent().expect("a directory").display();
    guest::run(test, &format!("cd {directory}\n{BUSY}")).expect_success("md is busy for a moment");
}
