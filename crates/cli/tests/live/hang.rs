//! A member that answers nothing: its file lies on the mount of a process that was stopped.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Instant;

use crate::support::stopped::Stopped;
use crate::support::{Lab, patience, until};

/// A mirror served through FUSE; its file.
pub(crate) fn serve(lab: &Lab, name: &str, members: &[PathBuf]) -> PathBuf {
    let mountpoint = lab.path(&format!("mnt-{name}"));
    std::fs::create_dir(&mountpoint).unwrap();
    lab.ok(&format!("create {name} -l 1 -n 2 --assume-clean"), members);
    lab.ok(&format!("assemble {name} --export fuse:{}", mountpoint.display()), members);
    mountpoint.join(name)
}

#[test]
fn writers_commands_and_the_end_do_not_wait_for_a_member_that_was_failed() {
    let lab = Lab::new();
    let below = serve(&lab, "below", &lab.members("b", 2, 32));
    let members = [lab.members("m", 1, 32).remove(0), below];
    let file = serve(&lab, "x", &members);
    let file = OpenOptions::new().write(true).open(file).unwrap();
    let data = vec![0x5a; 1 << 20];
    file.write_all_at(&data, 0).unwrap();
    file.sync_all().unwrap();

    let stopped = Stopped::serving(&lab, "below");
    let writer = std::thread::spawn(move || {
        file.write_all_at(&data, 1 << 20).and_then(|()| file.sync_all())
    });
    until("the array tells of itself", || lab.run("status x", &[]).status.success());
    let began = Instant::now();
    lab.ok("fail x", &members[1..]);
    writer.join().unwrap().expect("the other member has it");
    lab.ok("remove x", &members[1..]);
    lab.ok("stop x", &[]);
    // The member still hangs: nobody waited for it, though `remove` waits a while for what is in
    // flight.
    assert!(began.elapsed() < patience() / 2, "{:?}", began.elapsed());
    drop(stopped);
    lab.ok("assemble x --run", &members[..1]);
    let held = lab.ok("cat x --offset 1M --length 1M", &[]);
    assert!(held == vec![0x5a; 1 << 20], "what was written while it hung is there");
    lab.ok("stop x", &[]);
    until("nobody has the file below any more", || lab.run("stop below", &[]).status.success());
}
