//! `bench levels` with the real command, a job file of one's own, and one level.

use std::fs;
use std::path::Path;

use crate::support::{Lab, skip};
use serde_json::Value;

const JOB: &str = "[global]\nioengine=psync\nsize=2m\nruntime=50ms\ntime_based\nstonewall\n\
                   [small]\nrw=randwrite\nbs=4k\n[long]\nrw=read\nbs=1m\n";

fn mounts() -> String {
    fs::read_to_string("/proc/self/mounts").expect("mounts")
}

#[test]
fn a_level_is_measured_beside_one_disk_and_nothing_of_it_stays() {
    let test = "a_level_is_measured_beside_one_disk_and_nothing_of_it_stays";
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
        return skip(test, "it needs root and loop devices");
    }
    if ["/usr/bin/fio", "/usr/local/bin/fio"].iter().all(|path| !Path::new(path).exists()) {
        return skip(test, "it needs fio");
    }
    let lab = Lab::new();
    fs::write(lab.path("small.fio"), JOB).expect("a job file");
    fs::create_dir(lab.path("dir")).expect("a directory");
    let words = "bench levels --levels 5 --members 4 --size 8M --runs 1 --job small.fio --json \
                 --dir dir --report report";
    let json: Value = serde_json::from_slice(&lab.ok(words, &[])).expect("JSON");
    let levels = &json["comparisons"]["levels"];
    assert_eq!(levels["gaps"], Value::Array(Vec::new()));
    assert_eq!(levels["published"], Value::Array(Vec::new()), "it is about another job file");
    let cells = levels["cases"].as_array().expect("cells");
    for case in
        ["bare host, cold", "no RAID, cold", "no RAID, warm", "RAID 5, cold", "RAID 5, warm"]
    {
        for job in ["small", "long"] {
            let cell = cells.iter().find(|cell| {
                cell["case"] == case && cell["job"] == job && cell["metric"] == "bandwidth"
            });
            let cell = cell.unwrap_or_else(|| panic!("no cell for {job} on {case}"));
            assert!(cell["median"].as_f64().is_some_and(|rate| rate > 0.0), "{cell}");
            assert_eq!((&cell["runs"], cell["ratio"].is_number()), (&1.into(), true), "{cell}");
            let raw = cell["raw"][0].as_str().expect("a path");
            assert!(lab.path("report").join(raw).exists(), "{raw}");
        }
    }
    assert!(!mounts().contains(&lab.path("dir").display().to_string()));
    assert_eq!(fs::read_dir(lab.path("dir")).expect("a directory").count(), 0);
}

#[test]
fn a_job_file_that_leads_elsewhere_is_refused() {
    let lab = Lab::new();
    fs::write(lab.path("disk.fio"), format!("{JOB}filename=/dev/sda\n")).expect("a job file");
    for (words, reason) in [
        ("--job disk.fio", "/dev/sda"),
        ("--against gluster", "over nodes"),
        ("--levels 7", "[possible values: 1, 5, 6, 10"),
        ("--members 900", "members"),
    ] {
        let said = lab.refused(2, &format!("bench levels --quick {words}"), &[], &[]);
        assert!(said.contains(reason), "{said}");
    }
}
