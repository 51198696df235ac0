//! Devices that are no members: each is named by its content, and never becomes part of an array.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::support::Lab;

fn run(program: &str, args: &[&str], path: &PathBuf) {
    let done = Command::new(program).args(args).arg(path).output();
    let done = done.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(done.status.success(), "{program}: {}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn what_is_no_member_is_called_what_it_is() {
    let lab = Lab::new();
    let blank = lab.members("m", 5, 16);
    run("gzip", &["-1"], &blank[0]);
    let zipped = lab.path("m0.gz");
    run("mkfs.ext4", &["-q", "-L", "photos"], &blank[1]);
    // The least that its tool makes.
    fs::File::create(&blank[2]).unwrap().set_len(320 << 20).unwrap();
    run("mkfs.xfs", &["-q", "-f"], &blank[2]);
    fs::remove_file(&blank[3]).unwrap();
    let vdi = lab.path("disk.vdi");
    let mut made = Command::new("qemu-img");
    let made = made.args(["create", "-q", "-f", "vdi"]).arg(&vdi).arg("16M").status();
    assert!(made.expect("qemu-img runs").success());
    for (path, what, next) in [
        (&zipped, "compressed by gzip", "gunzip -k"),
        (&blank[1], "an ext4 file system called photos", "mount -o ro"),
        (&blank[2], "an XFS file system", "mount -o ro"),
        (&vdi, "a VDI image", "qemu-img convert"),
        (&blank[4], "nothing but zeroes", "serial"),
    ] {
        let path = std::slice::from_ref(path);
        for words in ["cat", "examine", "assemble", "assemble x", "assemble --readonly"] {
            let line = lab.refused(1, words, path, path);
            assert!(line.contains(&format!("no md superblock; it is {what}; ")), "{words}: {line}");
            assert!(line.contains(next), "{words}: {line}");
        }
        let text = lab.told("assemble --explain", path);
        assert!(text.contains(&format!("no md superblock; it is {what}\n")), "{text}");
        let said = text.lines().find(|line| line.starts_with("next: ")).expect("a next step");
        assert!(said.contains(next) && !said.contains("create"), "{said}");
    }
}
