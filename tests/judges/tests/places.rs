//! Members whose data do not lie where the others' do: md gives each an offset of its own.

use crate::braid_to_md::{available, create, members};
use crate::handoff::{Left, to_md_and_back};
use crate::served::Served;
use crate::support::{guest, skip, sparse_file};
use braid_judges::Content;

#[test]
fn a_device_as_large_as_another_member_is_taken_wherever_the_first_has_its_data() {
    let test = "a_device_as_large_as_another_member_is_taken_wherever_the_first_has_its_data";
    if let Err(reason) = available() {
        return skip(test, &reason);
    }
    let members = members("places", 3, 24 << 20);
    sparse_file(&members[0], 32 << 20);
    let directory = members[0].parent().expect("a directory").display();
    // The data of the first, larger one begin 4 MiB later.
    let script = format!(
        "PATTERN={}\ncd {directory}\nattach m0.img m1.img\n\
         md --create /dev/md0 --run -l1 -n2 --bitmap=internal --assume-clean \
            --data-offset=variable ${{LOOPS[0]}}:5120 ${{LOOPS[1]}}:1024\n\
         $PATTERN write /dev/md0 1 || fail 'the first write'\nmd --stop /dev/md0\n",
        env!("CARGO_BIN_EXE_pattern")
    );
    guest::run(test, &script).expect_success("an array with two offsets");

    let served = Served::start("places", &members[..2], &[]);
    served.manage("fail", &members[1]);
    served.manage("remove", &members[1]);
    served.manage("add", &members[2]);
    served.wait_until_whole();
    let content = Content::of(1);
    served.expect(&content, "on the new member");
    assert_eq!(served.check(), 0, "mismatches");
    let size_bytes = served.size_bytes();
    served.stop();
    let members = vec![members[0].clone(), members[2].clone()];
    to_md_and_back(test, vec![Left { name: "places".into(), members, content, size_bytes }]);
}

/// md rounds the used size of raid10 with far copies; a member that left before must have said so.
#[test]
fn a_stale_member_of_a_far_layout_has_the_size_that_md_gives_the_others() {
    let test = "a_stale_member_of_a_far_layout_has_the_size_that_md_gives_the_others";
    if let Err(reason) = available() {
        return skip(test, &reason);
    }
    let members = members("far-size", 3, 24 << 20);
    // 301 chunks: with two far copies, md uses 300.
    let size = (301 * 65536).to_string();
    let shape = ["--layout", "f2", "--chunk", "64K", "--size", &size, "--assume-clean"];
    create("far-size", "10", &members, &shape);
    let served = Served::start("far-size", &members, &[]);
    served.manage("fail", &members[2]);
    let content = Content::of(0).then(3, 1 << 20, 65536);
    served.write(&content, 1 << 20, 65536);
    served.stop();
    let directory = members[0].parent().expect("a directory").display();
    let script = format!(
        "cd {directory}\nattach m0.img m1.img m2.img\n\
         md --assemble --run /dev/md0 ${{LOOPS[0]}} ${{LOOPS[1]}}\n\
         dd if=/dev/zero of=/dev/md0 bs=4096 count=1 oflag=direct status=none\n\
         md --stop /dev/md0\n\
         md --assemble --run /dev/md0 \"${{LOOPS[@]}}\"\nmd --stop /dev/md0\n"
    );
    guest::run(test, &script).expect_success("md assembles all three");
}
