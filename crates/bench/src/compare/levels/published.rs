//! Published figures, and the job file that they were measured with.

use super::case::Built;

/// Where.
pub(super) const SOURCE: &str = "Ubuntu Weekly Recipe, part 749 (RAID 5, 6 and 10 built with LXD \
and Ubuntu Server, and their speed compared, 2023)";

/// The size of the file in bytes, how often it is gone through, and for how long at most in
/// milliseconds.
pub(super) const SIZE_BYTES: u64 = 1 << 30;
pub(super) const LOOPS: u32 = 5;
pub(super) const RUNTIME_MS: u64 = 30_000;

/// The jobs in their order: name, block size, depth, processes, direction, and whether they report
/// together.
pub(super) const JOBS: [(&str, &str, u16, u16, &str, bool); 8] = [
    ("SEQ1MQ8T1-Read", "1m", 8, 1, "read", false),
    ("SEQ1MQ8T1-Write", "1m", 8, 1, "write", false),
    ("SEQ128KQ32T1-Read", "128k", 32, 1, "read", true),
    ("SEQ128KQ32T1-Write", "128k", 32, 1, "write", false),
    ("RND4KQ32T16-Read", "4k", 32, 16, "randread", true),
    ("RND4KQ32T16-Write", "4k", 32, 16, "randwrite", true),
    ("RND4KQ1T11-Read", "4k", 1, 1, "randread", false),
    ("RND4KQ1T1-Write", "4k", 1, 1, "randwrite", false),
];

/// Units of 1000 KiB a second, job by job: on the bare host, without RAID, and on the first levels.
const RATES: [[f64; 6]; 8] = [
    [3093.0, 20888.0, 22599.0, 21313.0, 21141.0, 19065.0],
    [2497.0, 5871.0, 4923.0, 2986.0, 2544.0, 7468.0],
    [3216.0, 23617.0, 19065.0, 15697.0, 13725.0, 16435.0],
    [2436.0, 6497.0, 4524.0, 3185.0, 2114.0, 5607.0],
    [1705.0, 1249.0, 1164.0, 1201.0, 1072.0, 1121.0],
    [679.0, 583.0, 345.0, 214.0, 171.0, 362.0],
    [37.0, 158.0, 153.0, 154.0, 151.0, 153.0],
    [247.0, 124.0, 116.0, 59.0, 57.0, 118.0],
];
/// Requests a second of the same.
const REQUESTS: [[f64; 6]; 8] = [
    [3021.0, 20398.0, 22069.0, 20813.0, 20645.0, 18618.0],
    [2438.0, 5733.0, 4808.0, 2916.0, 2484.0, 7293.0],
    [25129.0, 184_505.0, 148_945.0, 122_635.0, 107_225.0, 128_401.0],
    [19033.0, 50756.0, 35341.0, 24885.0, 16516.0, 43807.0],
    [426_291.0, 312_312.0, 290_932.0, 300_211.0, 267_993.0, 280_154.0],
    [169_671.0, 145_832.0, 86349.0, 53501.0, 42741.0, 90621.0],
    [9336.0, 39405.0, 38184.0, 38455.0, 37803.0, 38202.0],
    [61768.0, 31083.0, 28916.0, 14625.0, 14242.0, 29425.0],
];

/// The rate in units of 1000 KiB a second, and requests a second.
pub(super) fn figures(built: Built, job: &str) -> Option<(f64, f64)> {
    let row = JOBS.iter().position(|(name, ..)| *name == job)?;
    let column = match built {
        Built::Bare => 0,
        Built::Plain => 1,
        Built::Braid(level) if level.is_published() => 2 + level as usize,
        _ => return None,
    };
    Some((RATES[row][column], REQUESTS[row][column]))
}

/// Published rate by that without RAID.
pub(super) fn ratio(built: Built, job: &str) -> Option<f64> {
    Some(figures(built, job)?.0 / figures(Built::Plain, job)?.0)
}

/// The job file, for a file of another size, gone through more or less often.
pub(super) fn job_file(size_bytes: u64, loops: u32, runtime_ms: u64) -> String {
    let size = match size_bytes {
        bytes if bytes.is_multiple_of(1 << 30) => format!("{}g", bytes >> 30),
        bytes if bytes.is_multiple_of(1 << 20) => format!("{}m", bytes >> 20),
        bytes => bytes.to_string(),
    };
    let runtime = match runtime_ms {
        ms if ms.is_multiple_of(1000) => format!("{}", ms / 1000),
        ms => format!("{ms}ms"),
    };
    let mut text = format!(
        "[global]\nioengine=libaio\niodepth=1\nsize={size}\ndirect=1\nloops={loops}\n\
         runtime={runtime}\nfilename=cdm\ndirectory=/tmp/\nstonewall\n"
    );
    for (name, block, depth, processes, direction, together) in JOBS {
        let together = if together { "group_reporting\n" } else { "" };
        text += &format!(
            "\n[{name}]\nbs={block}\niodepth={depth}\nnumjobs={processes}\n{together}\
             rw={direction}\n"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::level::Level;
    use super::*;

    #[test]
    fn rates_and_requests_that_were_published_fit_together() {
        let all = [Built::Bare, Built::Plain].into_iter();
        let levels = [Level::Raid1, Level::Raid5, Level::Raid6, Level::Near2].map(Built::Braid);
        for built in all.chain(levels) {
            for (name, block, ..) in JOBS {
                let (rate, requests) = figures(built, name).expect("published");
                let kib =
                    if block == "1m" { 1024.0 } else { block.replace('k', "").parse().unwrap() };
                // The rate was printed without decimals.
                assert!((requests * kib / 1000.0 - rate).abs() < 1.0, "{built:?} {name}");
            }
        }
        for level in Level::ALL {
            let there = figures(Built::Braid(level), "SEQ1MQ8T1-Read").is_some();
            assert_eq!(there, level.is_published(), "{level}");
        }
    }

    #[test]
    fn the_job_file_is_the_published_one() {
        let text = job_file(SIZE_BYTES, LOOPS, RUNTIME_MS);
        assert!(text.starts_with(
            "[global]\nioengine=libaio\niodepth=1\nsize=1g\ndirect=1\nloops=5\nruntime=30\n\
             filename=cdm\ndirectory=/tmp/\nstonewall\n\n[SEQ1MQ8T1-Read]\nbs=1m\niodepth=8\n\
             numjobs=1\nrw=read\n\n[SEQ1MQ8T1-Write]\n"
        ));
        assert!(text.ends_with(
            "\n[RND4KQ32T16-Write]\nbs=4k\niodepth=32\nnumjobs=16\ngroup_reporting\n\
             rw=randwrite\n\n[RND4KQ1T11-Read]\nbs=4k\niodepth=1\nnumjobs=1\nrw=randread\n\n\
             [RND4KQ1T1-Write]\nbs=4k\niodepth=1\nnumjobs=1\nrw=randwrite\n"
        ));
        let small = job_file(24 << 20, 1000, 150);
        assert!(small.contains("size=24m\n") && small.contains("runtime=150ms\n"));
    }
}
