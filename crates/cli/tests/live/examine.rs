//! `braid examine` of superblocks whose checksum is right and whose fields are not.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use crate::support::Lab;

/// Where a 1.2 superblock lies, in bytes, and how much of it the checksum of 128 roles covers.
const AT: u64 = 4096;
const USED_BYTES: usize = 512;

/// Puts a field into the superblock and makes the checksum right again.
fn forge(member: &Path, original: &[u8; USED_BYTES], at: usize, field: [u8; 4]) {
    let mut bytes = *original;
    bytes[at..at + 4].copy_from_slice(&field);
    bytes[216..220].fill(0);
    let words = bytes.as_chunks::<4>().0;
    let sum: u64 = words.iter().map(|word| u64::from(u32::from_le_bytes(*word))).sum();
    let folded = (sum & 0xffff_ffff) + (sum >> 32);
    bytes[216..220].copy_from_slice(&folded.to_le_bytes()[..4]);
    OpenOptions::new().write(true).open(member).unwrap().write_all_at(&bytes, AT).unwrap();
}

#[test]
fn any_field_of_a_superblock_is_shown_or_refused_in_bounded_time_and_memory() {
    let lab = Lab::new();
    let members = lab.members("m", 2, 8);
    lab.ok("create hostile --level 1 --raid-devices 2 --assume-clean", &members);
    let mut original = [0; USED_BYTES];
    let file = OpenOptions::new().read(true).open(&members[0]).unwrap();
    file.read_exact_at(&mut original, AT).unwrap();
    // 512 MiB of address space and 20 s of time, for all forms together.
    let script = r#"
        ulimit -v 524288
        for form in "" --json --export --scan; do
            timeout 20 "$0" examine $form "$1" >>"$2" 2>&1
            status=$?
            [ $status -le 1 ] || { echo "form '$form': status $status"; exit 1; }
        done"#;
    let printed = lab.path("printed");
    for at in (0..260).step_by(4).filter(|at| *at != 216) {
        for field in [u32::MAX, 1 << 31, 0x00ff_ffff] {
            forge(&members[0], &original, at, field.to_le_bytes());
            let _ = std::fs::remove_file(&printed);
            let mut shell = Command::new("sh");
            shell.args(["-c", script, env!("CARGO_BIN_EXE_braid")]).arg(&members[0]).arg(&printed);
            let output = shell.output().expect("sh runs");
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "field {at} = {field:#x}: {text}");
            let printed_bytes = std::fs::metadata(&printed).unwrap().len();
            assert!(printed_bytes < 1 << 17, "field {at} = {field:#x}: {printed_bytes} bytes");
        }
    }
}
