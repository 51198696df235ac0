//! Cases that are set up together, measured once, and taken down.

use braid_bench::folder::Folder;
use braid_bench::model::{Comparison, Found, Note, Run};
use braid_bench::rig::{Room, process};
use serde_json::Value;

/// Runs these jobs of a comparison on these cases, and keeps what they leave.
pub(crate) fn measure(
    comparison: &dyn Comparison,
    room: &Room,
    folder: &Folder,
    cases: &[String],
    jobs: &[&str],
) {
    let mut standing: Vec<_> = Vec::new();
    for case in cases {
        standing.push((case, comparison.set_up(case, room).expect(case)));
    }
    for job in jobs {
        for (case, stands) in &mut standing {
            let mut note = Note { scratch: room.scratch.clone(), ..Note::default() };
            let server = stands.server();
            let cpu = || server.and_then(process::cpu_seconds);
            let before = cpu();
            stands.run(job, &mut note).expect(case);
            let used = before.zip(cpu()).map(|(before, after)| after - before);
            let run = Run { server_cpu_s: used, ..Run::new(case, job, 0) };
            folder.keep(comparison.name(), run, &note).expect("kept");
        }
    }
}

/// Requests a second by what fio itself said of a run; nothing for one that is not from fio.
pub(crate) fn said_by_fio(found: &Found, run: &Run) -> Option<f64> {
    let text = found.text(run, "fio.json")?;
    let said: Value = serde_json::from_str(&text[text.find("{\n")?..]).expect("JSON");
    let job = &said["jobs"][0];
    let iops = |side: &str| job[side]["iops"].as_f64().expect("a number");
    assert!(
        job["read"]["total_ios"].as_u64() > Some(0) || job["write"]["total_ios"].as_u64() > Some(0)
    );
    Some(iops("read") + iops("write"))
}
