//! An array as the disk of a virtual machine: QEMU's own front end of vhost-user and the kernel's
//! driver in it, under fio and ext4, while the process that serves the array is killed.

use crate::braid_to_md::{create, members};
use crate::served::Served;
use crate::support::{kernel, skip};
use std::time::Duration;

const GUEST: &str = include_str!("guest.sh");
const MEMBER_BYTES: u64 = 64 << 20;
const KILLS: usize = 3;
/// How often the array is looked at.
const INTERVAL: Duration = Duration::from_millis(20);

#[test]
fn a_virtual_machine_gets_over_the_death_of_who_serves_its_disk() {
    let test = "a_virtual_machine_gets_over_the_death_of_who_serves_its_disk";
    if let Err(reason) = kernel::available() {
        return skip(test, &reason);
    }
    let name = "guest";
    let members = members(name, 3, MEMBER_BYTES);
    create(name, "5", &members, &["--chunk", "64K", "--bitmap", "internal"]);
    let socket = std::env::temp_dir().join(format!("bj-{}-vhost", std::process::id()));
    let export = format!("vhost-user:{}", socket.display());
    let serve = || Served::in_foreground(name, &members, &["--export", &export]);
    let mut served = serve();
    served.wait_until_whole();
    let guest = std::thread::spawn(move || kernel::with_disk(name, GUEST, &socket));
    let mut kills = 0;
    while kills < KILLS && !guest.is_finished() {
        if served.is("active") {
            served.kill();
            served = serve();
            kills += 1;
        }
        std::thread::sleep(INTERVAL);
    }
    let run = guest.join().expect("a guest");
    if run.status.code() == Some(kernel::CANNOT) {
        return skip(test, run.stderr.trim());
    }
    println!("{}", run.stdout);
    run.expect_success("a guest uses the array");
    assert_eq!(kills, KILLS, "the guest wrote too little");
    served.wait_until_whole();
    assert_eq!(served.check(), 0, "mismatches");
    served.stop();
}
