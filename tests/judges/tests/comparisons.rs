//! A report of what was measured once, and one of a comparison that runs: every number in it has
//! its files, and what can be read off them without the code that made the report is the same
//! again. `BRAID_REPORT` names another report, of all comparisons.

#[allow(dead_code, reason = "the other judges use the rest")]
mod support;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use support::{Run, braid, directory, program, read, skip};

const COMPARISONS: [&str; 5] = ["levels", "states", "members", "cluster", "chunk"];
/// Generous where others build meanwhile; some seconds are meant.
const LIMIT: Duration = Duration::from_secs(300);
/// What is run: a job file of somebody's own.
const JOB: &str = "[global]\nioengine=libaio\ndirect=1\nsize=4m\nfilename=f\ntime_based\n\
                   runtime=150ms\n[read]\nrw=randread\n[write]\nstonewall\nrw=randwrite\n";
/// JSON and sums of many numbers round.
const EXACT: f64 = 1e-6;

/// Returns the mounts and loop devices below a directory: others measure at the same time.
fn mounts_and_loops(below: &Path) -> Vec<String> {
    let mounts = read(Path::new("/proc/self/mounts"));
    let loops = Run::of(Command::new("losetup").args(["--list", "--output", "BACK-FILE"])).stdout;
    let below = below.display().to_string();
    let ours = |line: &&str| line.contains(&below);
    mounts.lines().chain(loops.lines()).filter(ours).map(str::to_owned).collect()
}

#[test]
fn every_number_of_all_comparisons_comes_from_what_the_tools_said() {
    let report = std::env::var_os("BRAID_REPORT").map_or_else(measured_once, PathBuf::from);
    check(&report, &COMPARISONS);
    tables_and_plots(&report);
    made_again(&report);
}

/// What the tools said in short runs is committed. Nothing but a report is made of it.
fn measured_once() -> PathBuf {
    let report = directory("comparisons").join("report");
    fs::create_dir_all(&report).expect("a directory");
    let archive = "../../crates/bench/tests/measured.tar.gz";
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join(archive);
    let mut tar = Command::new("tar");
    Run::of(tar.arg("-xzf").arg(archive).arg("-C").arg(&report)).expect_success("unpacking");
    Run::of(braid().args(["bench", "report"]).arg(&report)).expect_success("writing the report");
    report
}

#[test]
fn every_number_of_one_that_runs_comes_from_what_fio_said() {
    let test = "every_number_of_one_that_runs_comes_from_what_fio_said";
    let root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    if !root || !Path::new("/dev/loop-control").exists() || !Path::new("/dev/fuse").exists() {
        return skip(test, "it needs root, loop devices and FUSE");
    }
    for needed in ["fio", "mkfs.ext4", "losetup"] {
        if let Err(reason) = program(needed) {
            return skip(test, &reason);
        }
    }
    let directory = directory("compared");
    let report = directory.join("report");
    let job = directory.join("own.fio");
    fs::write(&job, JOB).expect("a job file");
    let scratch = directory.join("scratch");
    fs::create_dir(&scratch).expect("a directory");
    let mut bench = braid();
    bench.args(["bench", "levels", "--quick", "--levels", "5", "--size", "4M", "--runs", "2"]);
    bench.arg("--job").arg(&job).arg("--report").arg(&report).arg("--dir").arg(&scratch);
    let run = Run::within(LIMIT, &mut bench).expect_success("comparing");
    assert!(run.stderr.contains("minute"), "it says beforehand how long it takes: {}", run.stderr);
    assert_eq!(mounts_and_loops(&scratch), Vec::<String>::new(), "something stays");
    assert_eq!(fs::read_dir(&scratch).expect("a directory").count(), 0, "something stays");
    check(&report, &["levels"]);
    made_again(&report);
}

/// Checks the numbers of these comparisons, and that nothing is missing in them.
fn check(report: &Path, comparisons: &[&str]) {
    let results: Value = serde_json::from_str(&read(&report.join("results.json"))).expect("JSON");
    assert_eq!(results["schema"], 1);
    let mut wrong = Vec::new();
    for name in comparisons {
        let comparison = &results["comparisons"][name];
        let gaps = comparison["gaps"].as_array().expect("gaps").iter();
        // Nothing that measures speaks it.
        let unexpected: Vec<_> = gaps.filter(|gap| !gap.to_string().contains("vhost")).collect();
        assert!(unexpected.is_empty(), "{name}: {unexpected:?}");
        let cells = comparison["cases"].as_array().expect("cells");
        assert!(!cells.is_empty() && says(comparison) >= 2, "{name} says too little");
        let mut again = 0;
        for cell in cells {
            match recomputed(report, cell) {
                Ok(None) => {}
                Ok(Some(median)) if near(median, number(&cell["median"])) => again += 1,
                Ok(Some(median)) => wrong.push(format!("{name}: {median} by the files: {cell}")),
                Err(reason) => wrong.push(format!("{name}: {reason}: {cell}")),
            }
        }
        let count = cells.len();
        assert!(again * 3 >= count, "{name}: {again} of {count} could be read again");
    }
    let first = wrong[..5.min(wrong.len())].join("\n");
    assert!(wrong.is_empty(), "{} cells are wrong:\n{first}", wrong.len());
}

fn says(comparison: &Value) -> usize {
    comparison["says"].as_array().map_or(0, Vec::len)
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

fn near(one: f64, other: f64) -> bool {
    (one - other).abs() <= EXACT * one.abs().max(other.abs())
}

/// The median of a cell out of its files. `None`: it is computed of several numbers. Each file must
/// be there, and hold something.
fn recomputed(report: &Path, cell: &Value) -> Result<Option<f64>, String> {
    let files: Vec<PathBuf> = cell["raw"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(|file| report.join(file))
        .collect();
    if files.is_empty() {
        return Err("no raw output".to_owned());
    }
    let mut numbers = Vec::new();
    for file in &files {
        let text =
            fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        if text.is_empty() {
            return Err(format!("{} is empty", file.display()));
        }
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        numbers.extend(number_of(name, &text, cell));
    }
    if numbers.len() != files.len() || numbers.len() as u64 != cell["runs"].as_u64().unwrap_or(0) {
        return Ok(None);
    }
    numbers.sort_by(f64::total_cmp);
    let low = (numbers.len() - 1) / 2;
    let high = numbers.len() / 2;
    Ok(Some(f64::midpoint(numbers[low], numbers[high])))
}

/// What a tool's output says of a cell, read here on its own.
fn number_of(file: &str, text: &str, cell: &Value) -> Option<f64> {
    let [metric, unit, job] = ["metric", "unit", "job"].map(|key| cell[key].as_str().unwrap_or(""));
    let kind = |name: &str| file.ends_with(&format!(".{name}"));
    match metric {
        "bandwidth" if kind("fio.json") => fio(text, job, "bw_bytes").map(|rate| match unit {
            "1000 KiB/s" => rate / 1_024_000.0,
            _ => rate / 1e6,
        }),
        "iops" if kind("fio.json") => fio(text, job, "iops"),
        "bandwidth" if kind("dd.txt") => dd(text),
        "dd-cores" if kind("dd.txt") => dd_cores(text),
        "bandwidth" if kind("qemu-img.txt") => qemu_img(text),
        _ if kind("counted.json") => counted(text, metric),
        _ if kind("bonnie.csv") => bonnie(text, metric),
        _ => None,
    }
}

/// All processes of the job that has this name, or whose name the cell's begins with.
fn fio(text: &str, job: &str, field: &str) -> Option<f64> {
    let json = &text[text.find('{')?..];
    let said: Value = serde_json::from_str(json).ok()?;
    let section = |name: &str| job == name || job.starts_with(&format!("{name} "));
    let jobs = said["jobs"].as_array()?.iter();
    let of_it = jobs.filter(|entry| entry["jobname"].as_str().is_some_and(section));
    let sum = |side: &str| of_it.clone().map(|entry| number(&entry[side][field])).sum::<f64>();
    let read = sum("read");
    let write = sum("write");
    Some(if read > 0.0 { read } else { write }).filter(|sum| *sum > 0.0)
}

/// `N bytes (…) copied, S s, …`: all of them, from the first to the last.
fn dd(text: &str) -> Option<f64> {
    let copied = |line: &str| {
        let (bytes, rest) = line.split_once(" bytes ")?;
        let seconds = rest.split_once("copied, ")?.1.split_once(" s")?.0;
        Some((bytes.parse::<f64>().ok()?, seconds.parse::<f64>().ok()?))
    };
    let all: Vec<(f64, f64)> = text.lines().filter_map(copied).collect();
    let bytes: f64 = all.iter().map(|(bytes, _)| bytes).sum();
    let seconds = all.iter().map(|(_, seconds)| *seconds).fold(0.0, f64::max);
    (seconds > 0.0).then(|| bytes / seconds / 1e6)
}

/// `0.004u 7.900s 75.500 10.47%`: the share of a core, of all together.
fn dd_cores(text: &str) -> Option<f64> {
    let share = |line: &str| {
        let percent = line.rsplit_once(' ')?.1.strip_suffix('%')?.parse::<f64>().ok()?;
        line.contains("u ").then_some(percent / 100.0)
    };
    text.lines().filter_map(share).reduce(|one, other| one + other)
}

/// `Sending N … requests, S bytes each` and `Run completed in T seconds.`
fn qemu_img(text: &str) -> Option<f64> {
    let after = |words: &str| text.rsplit_once(words)?.1.trim_start().split([' ', ',']).next();
    let requests: f64 = after("Sending ")?.parse().ok()?;
    let bytes: f64 = after("requests, ")?.parse().ok()?;
    let seconds: f64 = after("completed in ")?.parse().ok()?;
    Some(requests * bytes / seconds / 1e6)
}

/// What clients were answered, and what the links and the system counted meanwhile.
fn counted(text: &str, metric: &str) -> Option<f64> {
    let raw: Value = serde_json::from_str(text).ok()?;
    let clients = || raw["clients"].as_array().into_iter().flatten();
    let sum = |key: &str| clients().map(|done| number(&done[key])).sum::<f64>();
    let used = |key: &str| number(&raw["after"][key]) - number(&raw["before"][key]);
    let total = sum("total_bytes");
    let carried = |host: &str, way: &str| {
        let at = |when: &str| {
            let links = raw[when]["traffic"].as_array().into_iter().flatten();
            let ours = links.filter(|link| link[0].as_str().is_some_and(|h| h.starts_with(host)));
            ours.map(|link| number(&link[1][way])).sum::<f64>()
        };
        at("after") - at("before")
    };
    let rate = |done: &Value| number(&done["window_bytes"]) / number(&done["window_seconds"]);
    Some(match metric {
        "bandwidth" => clients().map(rate).sum::<f64>() / 1e6,
        "client-bytes" if raw["pattern"] == "write" => carried("c", "sent") / total,
        "node-bytes" => (carried("n", "sent") - carried("c", "received")) / total,
        "client-cpu" => used("clients_cpu_s") / total * f64::from(1 << 30),
        "node-cpu" => used("nodes_cpu_s") / total * f64::from(1 << 30),
        _ => return None,
    })
}

/// By the order of fields that `bon_csv2html` documents.
fn bonnie(text: &str, metric: &str) -> Option<f64> {
    let place = match metric {
        "write" => 11,
        "rewrite" => 13,
        "read" => 17,
        "seeks" => 19,
        _ => return None,
    };
    text.lines().last()?.split(',').nth(place)?.parse().ok()
}

/// All five have tables and plots, in every form.
fn tables_and_plots(report: &Path) {
    let page = read(&report.join("report.html"));
    let markdown = read(&report.join("report.md"));
    assert!(markdown.matches("\n| ").count() > 50, "too few rows");
    for name in COMPARISONS {
        let plots = fs::read_dir(report.join("plots")).expect("plots").flatten();
        let names = plots.map(|plot| plot.file_name().into_string().expect("a name"));
        let of_it: Vec<String> = names.filter(|plot| plot.starts_with(name)).collect();
        assert!(!of_it.is_empty(), "no plot of {name}");
        for plot in of_it {
            assert!(page.contains(plot.trim_end_matches(".svg")), "{plot} is not in the page");
        }
    }
    let lines = read(&report.join("results.csv")).lines().count();
    assert!(lines > 100, "only {lines} lines of CSV");
}

/// The report is made of the raw files alone.
fn made_again(report: &Path) {
    let files = ["results.json", "results.csv", "report.html", "report.md"];
    let before = files.map(|file| read(&report.join(file)));
    for file in files {
        fs::remove_file(report.join(file)).expect("removed");
    }
    let mut again = braid();
    again.args(["bench", "report"]).arg(report);
    Run::of(&mut again).expect_success("writing the report again");
    for (file, before) in files.iter().zip(before) {
        assert!(before == read(&report.join(file)), "{file} is another");
    }
}
