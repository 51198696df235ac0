//! Maps by ddrescue, of a disk that it is told to find bad; ddrescuelog says what is missing.

use braid_rescue::map_file::MapFile;

use crate::support::{Folder, have, run};

const SIZE_BYTES: u64 = 4 << 20;

#[test]
fn a_map_says_what_ddrescue_could_not_read() {
    if !have("a_map_says_what_ddrescue_could_not_read", &["ddrescue", "ddrescuelog"]) {
        return;
    }
    let folder = Folder::new("map");
    folder.file("disk", SIZE_BYTES);
    let bad = "0 ?\n0 0x10200 +\n0x10200 0x400 -\n0x10600 0x1FFA00 +\n0x210000 512 -\n\
               0x210200 0x1EFE00 +\n";
    std::fs::write(folder.path("bad"), bad).unwrap();
    // Once all of it, once without a part that is not tried, once not to the end.
    for options in ["", "--no-scrape --no-trim", "--size=2200000"] {
        let _ = std::fs::remove_file(folder.path("map"));
        run(&folder, &format!("ddrescue -q --test-mode=bad {options} disk image map"), "");
        let text = std::fs::read(folder.path("map")).unwrap();
        let map = MapFile::parse(&text, SIZE_BYTES).unwrap();
        let listed = run(&folder, "ddrescuelog --list-blocks=?*/- map", "");
        let mut listed: Vec<u64> = listed.lines().map(|line| line.parse().unwrap()).collect();
        // It lists what the map covers.
        let last = text.split(|byte| *byte == b'\n').rev().find(|line| !line.is_empty()).unwrap();
        let fields: Vec<&str> = str::from_utf8(last).unwrap().split_whitespace().collect();
        let hex = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
        let covered = hex(fields[0]) + hex(fields[1]);
        listed.extend(covered.div_ceil(512)..SIZE_BYTES / 512);
        let ours = |sector: &u64| map.is_missing(&(sector * 512..sector * 512 + 512));
        let missing: Vec<u64> = (0..SIZE_BYTES / 512).filter(ours).collect();
        assert_eq!(missing, listed, "{options}");
        assert!(missing.len() >= 3, "{options}: nothing was bad");
    }
}
