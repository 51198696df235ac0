//! Output about arrays whose names are no plain words, and about work that is held.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use crate::support::{Lab, name_as_md_may, skip};

const NAME: &str = "my \"big\" data";

/// Runs the command with a name that is no plain word; it must succeed.
fn ok(lab: &Lab, words: &str, name: &str, paths: &[PathBuf]) -> String {
    let mut command = lab.braid();
    let output = command.args(words.split_whitespace()).arg(name).args(paths).output().unwrap();
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn lines_for_programs_keep_their_form_whatever_names_hold() {
    let lab = Lab::new();
    let members = lab.members("a (old) disk ", 3, 16);
    lab.ok("create x --level 5 --raid-devices 3 --chunk 64K --assume-clean", &members);
    name_as_md_may(&members, NAME);
    ok(&lab, "assemble", NAME, &members);
    let line = lab.ok_text("detail --scan", &[]);
    assert!(line.starts_with("ARRAY '/dev/md/my_\"big\"_data' metadata=1.2 name='"), "{line}");
    assert!(line.contains(":my \"big\" data' UUID="), "{line}");
    let mdstat = lab.ok_text("status --mdstat", &[]);
    let expected = "my_\"big\"_data : active raid5 \
                    a__old__disk_2[2] a__old__disk_1[1] a__old__disk_0[0]\n";
    assert!(mdstat.contains(expected), "{mdstat}");
    assert!(ok(&lab, "detail --export", NAME, &[]).contains(":my \"big\" data\n"));
    ok(&lab, "stop", NAME, &[]);
}

#[test]
fn a_new_name_is_a_plain_word_over_nodes_too() {
    let lab = Lab::new();
    let mut command = lab.braid();
    let command = command.args(["create", "my data", "-l", "1", "-n", "2"]);
    let output = command.args(["node://127.0.0.1:1/a", "node://127.0.0.1:2/b"]).output().unwrap();
    let line = String::from_utf8(output.stderr).unwrap();
    assert!(line.contains("a name cannot contain ' '; use up to 32 letters"), "{line}");
    assert_eq!(output.status.code(), Some(2), "{line}");
}

#[test]
fn work_that_is_held_is_pending_and_its_limits_can_be_read() {
    let lab = Lab::new();
    let members = lab.members("m", 4, 16);
    lab.ok("create home --level 5 --raid-devices 3 --chunk 64K --assume-clean", &members[..3]);
    lab.ok("assemble home", &members[..3]);
    assert_eq!(lab.ok_text("sync home", &[]), "home: min 10M, max none\n");
    lab.ok("sync home --max 64K", &[]);
    lab.ok("fail home", &members[2..3]);
    lab.ok("remove home", &members[2..3]);
    lab.ok("add home", &members[3..]);
    let mdstat = lab.ok_text("status --mdstat", &[]);
    assert!(mdstat.contains("]  recovery = ") && mdstat.contains("K/sec\n"), "{mdstat}");
    lab.ok("sync home --pause", &[]);
    assert_eq!(lab.ok_text("sync home", &[]), "home: min 10M, max 64K, paused\n");
    let pending = |because: &str| {
        let mdstat = lab.ok_text("status --mdstat", &[]);
        assert!(mdstat.contains("[UU_]\n      \trecovery=PENDING\n"), "{mdstat}");
        assert!(!mdstat.contains("speed="), "{mdstat}");
        let detail = lab.ok_text("detail home", &[]);
        assert!(detail.contains("State : clean, degraded, recovering (PENDING) \n"), "{detail}");
        assert!(!detail.contains("Rebuild Status"), "{detail}");
        let status = lab.ok_text("status home", &[]);
        assert!(status.contains(because) && !status.contains("left"), "{status}");
    };
    pending("%, paused\n");
    let json = |text: Vec<u8>| serde_json::from_slice::<serde_json::Value>(&text).unwrap();
    let sync = json(lab.ok("sync home --resume --json", &[]));
    assert_eq!((&sync["paused"], &sync["max_bytes_per_s"]), (&false.into(), &65536.into()));
    lab.ok("sync home --max 0", &[]);
    pending("%, held by --max 0\n");
    assert!(lab.ok_text("detail home", &[]).contains("Sync Speed : min 10M, max 0\n"));
    let status = json(lab.ok("status home --json", &[]));
    assert_eq!(status["sync"]["max_bytes_per_s"], 0);
    assert_eq!(status["sync"]["min_bytes_per_s"], 10 << 20);
    lab.ok("sync home --max none", &[]);
    lab.ok("status home --watch", &[]);
    assert!(lab.ok_text("detail home", &[]).contains("State : clean \n"));
}

/// Compares the output with md's for such an array.
#[test]
fn an_unclean_array_served_read_only_waits_for_its_resync() {
    let lab = Lab::new();
    let members = lab.members("m", 2, 16);
    lab.ok("create home --level 1 --raid-devices 2", &members);
    lab.ok("assemble home --readonly", &members);
    let mdstat = lab.ok_text("status --mdstat", &[]);
    assert!(mdstat.contains("[2/2] [UU]\n      \tresync=PENDING\n      \n"), "{mdstat}");
    let detail = lab.ok_text("detail home", &[]);
    assert!(detail.contains("State : clean, resyncing (PENDING) \n"), "{detail}");
    lab.ok("stop home", &[]);
}

#[test]
fn a_leaf_that_failed_is_told_of_in_the_array_it_is_in() {
    let lab = Lab::new();
    let members = lab.nested("0 --chunk 64K");
    lab.ok("assemble top", &members);
    lab.ok("fail top", &members[..1]);
    let log = std::fs::read_to_string(lab.path("run/top.log")).unwrap();
    let failed: Vec<&str> = log.lines().filter(|line| line.contains(" failed")).collect();
    let [line] = failed[..] else { panic!("{log}") };
    let device = members[0].canonicalize().unwrap();
    assert!(line.contains(&format!("left: {} failed: ", device.display())), "{line}");
    let mdstat = lab.ok_text("status --mdstat", &[]);
    let lines: Vec<&str> = mdstat.lines().collect();
    assert_eq!(lines[1], "top : active raid0 right[1] left[0]", "{mdstat}");
    assert_eq!(lines[4], "left : active raid1 m1[1] m0[0](F)", "{mdstat}");
    assert!(lines[5].ends_with(" blocks super 1.2 [2/1] [_U]"), "{mdstat}");
    assert_eq!(lines[7], "right : active raid1 m3[1] m2[0]", "{mdstat}");
    let scan = lab.ok_text("detail --scan", &[]);
    let names: Vec<&str> = scan.lines().filter_map(|line| line.split(' ').nth(1)).collect();
    assert_eq!(names, ["/dev/md/left", "/dev/md/right", "/dev/md/top"]);
}

#[test]
fn what_a_check_finds_is_told_of_the_array_it_is_in() {
    let lab = Lab::new();
    let members = lab.nested("1 --assume-clean");
    let text = lab.ok("examine --json", &members[3..]);
    let examined: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let data = examined[0]["data_offset_sectors"].as_u64().unwrap() * 512;
    let member = std::fs::File::options().write(true).open(&members[3]).unwrap();
    // Behind the superblock and the data offset of the array in it.
    member.write_all_at(&[7; 4096], data + (8 << 20)).unwrap();
    lab.ok("assemble top", &members);
    let found = lab.run("check top --wait --json", &[]).stdout;
    let found: serde_json::Value = serde_json::from_slice(&found).unwrap();
    assert!(found["mismatches"].as_u64().unwrap() > 0, "{found}");
    // The mirror of the mirrors differs too, if that is the copy which it happens to read.
    let mut ranges = found["mismatch_ranges"].as_array().unwrap().iter();
    let range = ranges.find(|range| range["within"] == "right").unwrap();
    assert_eq!(range["array_offset_bytes"], 8 << 20, "{found}");
    let text = String::from_utf8(lab.run("check top --wait", &[]).stdout).unwrap();
    assert!(text.contains("at array offset 8388608 of right"), "{text}");
}

/// Checks that the JSON of `--explain` has all of its text.
#[test]
fn what_is_explained_is_there_as_json() {
    let lab = Lab::new();
    let members = lab.members("m", 3, 16);
    lab.ok("create home --level 5 --raid-devices 3 --chunk 64K --assume-clean", &members);
    let other = lab.members("o", 2, 16);
    lab.ok("create other --level 1 --raid-devices 2 --assume-clean", &other);
    let blank = lab.members("blank", 1, 1);
    let explained = |lab: &Lab, paths: &[PathBuf]| {
        let text = lab.told("assemble --explain", paths);
        let json = lab.told("assemble --explain --json", paths);
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        for array in json["arrays"].as_array().unwrap() {
            let next = array["next"].as_str().unwrap();
            assert!(text.contains(&format!("next: {next}\n")), "{next}: {text}");
            for member in array["members"].as_array().unwrap() {
                let place = if member["in"] == true { "in " } else { "out" };
                let word = |field: &str| member[field].as_str().unwrap().to_owned();
                let line = format!("  {place}  {}: {}\n", word("device"), word("verdict"));
                assert!(text.contains(&line), "{line}: {text}");
            }
        }
        json
    };
    let both = explained(&lab, &[&members[..], &other[..1], &blank].concat());
    let [home, degraded] = &both["arrays"].as_array().unwrap()[..] else { panic!("{both}") };
    assert_eq!((&home["can_start"], &home["reason"]), (&true.into(), &().into()));
    assert_eq!(home["condition"], "clean and complete");
    assert_eq!((&home["level"], &home["raid_devices"]), (&"raid5".into(), &3.into()));
    assert_eq!((&degraded["can_start"], &degraded["condition"]), (&false.into(), &().into()));
    assert!(
        degraded["next"].as_str().unwrap().contains("braid assemble --readonly --run "),
        "{degraded}"
    );
    for array in [home, degraded] {
        assert_eq!(lab.type_all(array["next"].as_str().unwrap(), &[0; 4096]), 1, "{array}");
    }
    assert!(both["others"][0]["device"].as_str().unwrap().ends_with("blank0"), "{both}");
    lab.ok("assemble", &members);
    let runs = explained(&lab, &members);
    let array = &runs["arrays"][0];
    assert_eq!((&array["runs_as"], &array["can_start"]), (&"home".into(), &false.into()));
    assert_eq!(array["next"], "braid status home");
    lab.refused(2, "assemble --json", &members, &members);

    let stack = Lab::new();
    let nested = explained(&stack, &stack.nested("1 --assume-clean"));
    let top = &nested["arrays"][0];
    assert_eq!(top["children"].as_array().unwrap().len(), 2);
    assert_eq!(top["children"][0]["next"], serde_json::Value::Null);
}

/// Returns the output of mdadm; `None` where it is not installed.
fn mdadm(words: &[&str], path: &PathBuf) -> Option<String> {
    let ran = ["mdadm", "/sbin/mdadm"].into_iter().find_map(|program| {
        std::process::Command::new(program).args(words).arg(path).output().ok()
    });
    ran.map(|output| String::from_utf8(output.stdout).unwrap())
}

const NAMES: [&str; 5] = [NAME, "it's", "it's one", "a b", "both ' and \""];

#[test]
fn mdadm_says_the_same_of_a_name_that_is_no_plain_word() {
    let test = "mdadm_says_the_same_of_a_name_that_is_no_plain_word";
    for name in NAMES {
        let lab = Lab::new();
        let members = lab.members("m", 2, 16);
        lab.ok("create x --level 1 --raid-devices 2 --assume-clean", &members);
        name_as_md_may(&members, name);
        for words in [&["--examine"][..], &["--examine", "--export"]] {
            let Some(theirs) = mdadm(words, &members[0]) else {
                return skip(test, "mdadm is not installed");
            };
            let ours = words.join(" ").replace("--examine", "examine");
            assert_eq!(lab.ok_text(&ours, &members[..1]), theirs, "{name}");
        }
    }
}

/// Checks that mdadm reads the lines as a configuration: its monitor reports the arrays that do not
/// run.
#[test]
fn mdadm_reads_the_array_lines_of_any_name() {
    let test = "mdadm_reads_the_array_lines_of_any_name";
    for name in NAMES {
        let lab = Lab::new();
        let members = lab.members("m", 2, 16);
        lab.ok("create x --level 1 --raid-devices 2 --assume-clean", &members);
        name_as_md_may(&members, name);
        ok(&lab, "assemble", name, &members);
        let config = lab.path("mdadm.conf");
        for words in ["examine --scan m0", "detail --scan"] {
            std::fs::write(&config, lab.ok(words, &[])).unwrap();
            let monitor = ["--monitor", "--scan", "--oneshot", "--no-sharing"];
            let words = [&monitor[..], &["--program", "/bin/echo", "--config"]].concat();
            let Some(read) = mdadm(&words, &config) else {
                return skip(test, "mdadm is not installed");
            };
            let path = format!("/dev/md/{}", name.replace(' ', "_"));
            assert_eq!(read, format!("DeviceDisappeared {path}\n"), "{name}");
        }
        ok(&lab, "stop", name, &[]);
    }
}
