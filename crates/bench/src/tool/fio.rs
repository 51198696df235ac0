//! fio: runs a job file, and reads what it says of each job.

use std::collections::BTreeMap;
use std::fs;

use serde_json::Value;

use super::{Note, Tool};
use crate::failure::{About, Failure};

/// The file of a run that holds what fio said.
pub(crate) const OUTPUT: &str = "fio.json";

/// One job of a job file: all processes of it together.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FioFigures {
    pub(crate) name: String,
    /// Options of the job, with those of all.
    pub(crate) options: BTreeMap<String, String>,
    /// Error of the system; 0 for none.
    pub(crate) error: i64,
    pub(crate) read: Side,
    pub(crate) write: Side,
    /// Share of one core that its processes took each on average, outside the kernel: 0 to 100.
    pub(crate) user_cpu_percent: f64,
    /// The same in the kernel.
    pub(crate) system_cpu_percent: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Side {
    pub(crate) requests: f64,
    pub(crate) bytes_s: f64,
    pub(crate) iops: f64,
    /// Percentiles of the latency in seconds: 50, 99 and 99.9.
    pub(crate) latency_s: [Option<f64>; 3],
}

impl FioFigures {
    /// The direction that counts: reads if there were any.
    pub(crate) fn side(&self) -> &Side {
        if self.read.bytes_s > 0.0 { &self.read } else { &self.write }
    }

    /// A number that the job file gives, fio's `k`, `m` and `g` being powers of 1024.
    pub(crate) fn number(&self, option: &str) -> Option<f64> {
        let text = self.options.get(option)?.to_ascii_lowercase();
        let text = text.strip_suffix('b').unwrap_or(&text);
        let text = text.strip_suffix('i').unwrap_or(text);
        let factor = match text.chars().next_back()? {
            'k' => 1024.0,
            'm' => 1024.0 * 1024.0,
            'g' => 1024.0 * 1024.0 * 1024.0,
            _ => 1.0,
        };
        let digits = text.trim_end_matches(['k', 'm', 'g']);
        digits.parse::<f64>().ok().map(|number| number * factor)
    }
}

/// Runs a job file with this content, and notes what fio says as [`OUTPUT`].
pub(crate) fn run(fio: &Tool, job_file: &str, note: &mut Note) -> Result<(), Failure> {
    let path = note.scratch.join("job.fio");
    fs::write(&path, job_file).about(path.display(), "name another --dir")?;
    note.file("job.fio", job_file);
    let word = path.display().to_string();
    let output = fio.run(["--output-format=json", "--eta=never", &word], note);
    // It has been noted, and nothing else stays.
    let _ = fs::remove_file(path);
    let output = output?;
    note.file(OUTPUT, output.stdout.clone());
    let jobs = parse(&String::from_utf8_lossy(&output.stdout));
    match jobs.iter().find(|job| job.error != 0) {
        Some(job) => {
            let reason = format!("its job {} failed with error {}", job.name, job.error);
            Err(Failure::refused("fio", reason, "see what it works on"))
        }
        None if jobs.is_empty() => {
            let reason = "it said nothing of any job";
            Err(Failure::refused("fio", reason, "see that the job file has jobs"))
        }
        None => Ok(()),
    }
}

/// The jobs in the order of the job file, out of what fio printed: JSON, with remarks before it.
/// Nothing for anything else. Processes of a job that report one by one are added up.
pub(crate) fn parse(text: &str) -> Vec<FioFigures> {
    let begin = if text.starts_with('{') { Some(0) } else { text.find("\n{") };
    let json = begin.map_or("", |at| &text[at..]);
    // Something may follow it as well.
    let mut values = serde_json::Deserializer::from_str(json).into_iter::<Value>();
    let Some(Ok(whole)) = values.next() else { return Vec::new() };
    let global = options(&whole["global options"]);
    let mut jobs: Vec<FioFigures> = Vec::new();
    let mut processes: Vec<f64> = Vec::new();
    for entry in whole["jobs"].as_array().into_iter().flatten() {
        let Some(job) = job(entry, &global) else { continue };
        match jobs.iter().position(|other| other.name == job.name) {
            Some(at) => {
                processes[at] += 1.0;
                add(&mut jobs[at], &job, processes[at]);
            }
            None => {
                jobs.push(job);
                processes.push(1.0);
            }
        }
    }
    jobs
}

fn job(entry: &Value, global: &BTreeMap<String, String>) -> Option<FioFigures> {
    let mut all = global.clone();
    all.extend(options(&entry["job options"]));
    Some(FioFigures {
        name: entry["jobname"].as_str()?.to_owned(),
        options: all,
        error: entry["error"].as_i64().unwrap_or(0),
        read: side(&entry["read"]),
        write: side(&entry["write"]),
        user_cpu_percent: entry["usr_cpu"].as_f64().unwrap_or(0.0),
        system_cpu_percent: entry["sys_cpu"].as_f64().unwrap_or(0.0),
    })
}

fn options(value: &Value) -> BTreeMap<String, String> {
    let all = value.as_object().into_iter().flatten();
    all.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect()
}

fn side(value: &Value) -> Side {
    let number = |name: &str| value[name].as_f64().unwrap_or(0.0);
    // The whole of a latency is only there where the job file asks for it.
    let of = |latency: &str, name: &str| value[latency]["percentile"][name].as_f64();
    let percentile = |name: &str| Some(of("lat_ns", name).or_else(|| of("clat_ns", name))? / 1e9);
    Side {
        requests: number("total_ios"),
        bytes_s: number("bw_bytes"),
        iops: number("iops"),
        latency_s: ["50.000000", "99.000000", "99.900000"].map(percentile),
    }
}

/// Adds one more process to a job, which has `processes` then.
fn add(job: &mut FioFigures, more: &FioFigures, processes: f64) {
    for (side, more) in [(&mut job.read, &more.read), (&mut job.write, &more.write)] {
        side.requests += more.requests;
        side.bytes_s += more.bytes_s;
        side.iops += more.iops;
        // Of all of them it is not known; the worst is not too good.
        for (one, other) in side.latency_s.iter_mut().zip(more.latency_s) {
            *one = [*one, other].into_iter().flatten().reduce(f64::max);
        }
    }
    job.error = if job.error == 0 { more.error } else { job.error };
    job.user_cpu_percent += (more.user_cpu_percent - job.user_cpu_percent) / processes;
    job.system_cpu_percent += (more.system_cpu_percent - job.system_cpu_percent) / processes;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output of fio 3.33, without what is not read.
    const PRINTED: &str = r#"note: iodepth >= 1 with a synchronous engine: depth is capped at 1
{"fio version":"fio-3.33"
,"global options":{"ioengine":"psync","size":"1m","loops":"200","directory":"/srv/bench",
"filename":"cdm"}
,"jobs":[{"jobname":"SEQ-Write","groupid":0,"error":0,"elapsed":5
,"job options":{"bs":"128k","iodepth":"8","rw":"write"},
"read":{"io_bytes":0,"bw_bytes":0,"bw":0,
"iops":0,"runtime":0,
"clat_ns":{"percentile":{"50.000000":null,"99.000000":null}}},
"write":{"io_bytes":209715200,"bw_bytes":5115004878,"bw":4995121,
"iops":39024.390244,"runtime":41,
"clat_ns":{"percentile":{"50.000000":5856,"99.000000":22912}}}
,"usr_cpu":0,"sys_cpu":40},{"jobname":"RND-Read","groupid":1,"error":0,"elapsed":5
,"job options":{"bs":"4k","numjobs":"2","rw":"randread"},
"read":{"io_bytes":209715200,"bw_bytes":53403412,"bw":52151,
"iops":13037.94245,"runtime":3927,
"clat_ns":{"percentile":{"50.000000":61696,"99.000000":193536}}},
"write":{"io_bytes":0,"bw_bytes":0,"bw":0,
"iops":0,"runtime":0,
"clat_ns":{"percentile":{"50.000000":null,"99.000000":null}}}
,"usr_cpu":1.986755,"sys_cpu":26.15894},{"jobname":"RND-Read","groupid":1,"error":0,"elapsed":5
,"job options":{"bs":"4k","numjobs":"2","rw":"randread"},
"read":{"io_bytes":209715200,"bw_bytes":69534217,"bw":67904,
"iops":16976.127321,"runtime":3016,
"clat_ns":{"percentile":{"50.000000":38144,"99.000000":140288}}},
"write":{"io_bytes":0,"bw_bytes":0,"bw":0,
"iops":0,"runtime":0,
"clat_ns":{"percentile":{"50.000000":null,"99.000000":null}}}
,"usr_cpu":1.3267,"sys_cpu":25.439469}]}
"#;

    #[test]
    fn jobs_are_read_behind_remarks_and_their_processes_added_up() {
        let jobs = parse(PRINTED);
        let [write, read] = jobs.as_slice() else { panic!("two jobs, not {jobs:?}") };
        assert_eq!((write.name.as_str(), read.name.as_str()), ("SEQ-Write", "RND-Read"));
        assert_eq!(write.side(), &write.write);
        assert_eq!(write.side().bytes_s, 5_115_004_878.0);
        assert_eq!(write.side().iops, 39024.390244);
        assert_eq!(write.side().latency_s[1], Some(22.912e-6));
        assert_eq!(
            (write.read.latency_s[0], write.error, write.system_cpu_percent),
            (None, 0, 40.0)
        );
        assert_eq!(read.side().bytes_s, 53_403_412.0 + 69_534_217.0);
        assert_eq!(read.side().latency_s[0], Some(61.696e-6));
        assert!((read.user_cpu_percent - 1.656_727_5).abs() < 1e-9);
    }

    #[test]
    fn options_of_a_job_come_before_those_of_all() {
        let jobs = parse(PRINTED);
        assert_eq!(jobs[0].options["ioengine"], "psync");
        assert_eq!(jobs[0].options["rw"], "write");
        assert_eq!(jobs[0].number("bs"), Some(131_072.0));
        assert_eq!(jobs[1].number("size"), Some(1_048_576.0));
        assert_eq!(jobs[1].number("numjobs"), Some(2.0));
        assert_eq!((jobs[0].number("rw"), jobs[0].number("numjobs")), (None, None));
    }

    #[test]
    fn what_is_not_from_fio_holds_no_jobs() {
        let half = &PRINTED[..PRINTED.len() / 2];
        for text in ["", "{", "{}", "[]", "fio: no\n{\"jobs\": 3}", "{\"jobs\": [7]}", "é\n{", half]
        {
            assert_eq!(parse(text), Vec::new(), "{text}");
        }
    }
}
