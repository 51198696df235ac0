//! The sentences, of numbers that might have been found.

use super::cases::{ChunkSweep, DiskJob, IMAGE, SweepJob, VirtualDiskPlace, counted_job};
use super::numbers::{MOVED, RATE};
use super::*;
use crate::compare::numbers::Numbers;
use crate::model::Run;

type Rates = Vec<(String, String, f64)>;

/// The sentences of a part of the chapter.
fn says(
    options: &ChunkOptions,
    metric: &str,
    rates: &Rates,
    cores: impl Fn(&str) -> Option<f64>,
    part: impl Fn(&mut Chapter, &Chunks<'_>),
) -> String {
    let run = |(case, job, _): &(String, String, f64)| Run {
        server_cpu_s: cores(case),
        ..Run::new(case, job, 0)
    };
    let found = Found { runs: rates.iter().map(run).collect(), ..Found::default() };
    let all = rates.iter().map(|(case, job, rate)| (case, job, metric, *rate));
    let numbers = Numbers::of(&found).with(all);
    let mut chapter = Chapter::default();
    part(&mut chapter, &Chunks { options, numbers });
    chapter.says.join("\n")
}

fn disks(rate: impl Fn(VirtualDiskPlace, &str) -> f64) -> Rates {
    let all = VirtualDiskPlace::all(&ChunkOptions::usual(true)).into_iter();
    let of = |disk: VirtualDiskPlace| DiskJob::ALL.map(|job| (disk, job.to_string()));
    all.flat_map(of).map(|(disk, job)| (disk.to_string(), job.clone(), rate(disk, &job))).collect()
}

#[test]
fn goals_are_judged_by_the_numbers() {
    let options = ChunkOptions::usual(true);
    let says = |rates: Rates, cores: Option<f64>| {
        let nbd = VirtualDiskPlace::Nbd.to_string();
        let cores = |case: &str| if case == nbd { cores } else { cores.map(|_| 0.8) };
        says(&options, RATE, &rates, cores, disks::says)
    };
    let kept = says(disks(|_, _| 1000.0), None);
    let nbd = "Array over NBD: 512K requests keep 1.00 (reads)";
    assert!(kept.contains(nbd) && !kept.contains("Where"), "{kept}");
    assert!(kept.contains("published 0.80. The goal is 0.95; it keeps that everywhere."), "{kept}");
    let slow = || disks(|disk, _| if disk == VirtualDiskPlace::Nbd { 500.0 } else { 1000.0 });
    assert!(!says(slow(), None).contains("Where NBD loses"), "nothing is known of the CPU");
    let said = says(slow(), Some(0.8));
    assert!(said.contains("CPU: 2.00 times at Seq read,"), "{said}");
    assert!(says(slow(), Some(0.4)).contains("so the time goes"));
    // The image at half the speed; a quarter of what it loses is lost by the device already.
    let lost = says(
        disks(|disk, job| match disk {
            IMAGE if job == "4K write" => 500.0,
            VirtualDiskPlace::Device => 800.0,
            _ => 1000.0,
        }),
        None,
    );
    assert!(lost.contains("it loses more than that at 4K write (0.50)."), "{lost}");
    assert!(lost.contains("takes 4K write 25% of what is lost"), "{lost}");
    assert_eq!(says(Vec::new(), None), "");
}

#[test]
fn a_claim_is_judged_by_what_was_counted() {
    let options = ChunkOptions { levels: vec!["5".into()], ..ChunkOptions::usual(true) };
    let judge = |moved: &dyn Fn(u64) -> f64| {
        let one = |sweep: ChunkSweep| {
            (sweep.counted(), counted_job(true).to_owned(), moved(sweep.chunk_bytes))
        };
        let all = ChunkSweep::all(&options).into_iter().map(one).collect();
        says(&options, MOVED, &all, |_| None, moved::says)
    };
    let refuted = judge(&|_| 4.0);
    assert!(refuted.contains("4.00 bytes on RAID 5 (old bytes"), "{refuted}");
    assert!(refuted.contains("up to 256") && refuted.ends_with("is refuted."), "{refuted}");
    let borne_out = judge(&|chunk| (chunk / 4096) as f64);
    assert!(borne_out.contains("(4.00 are needed)") && borne_out.ends_with("as claimed."));
    assert!(judge(&|chunk| 4.0 + (chunk >> 18) as f64).contains("less than claimed"));
}

#[test]
fn chunks_are_told_apart_where_they_differ() {
    let options = ChunkOptions { levels: vec!["0".into()], ..ChunkOptions::usual(true) };
    let said = |rate: &dyn Fn(u64, &str) -> f64| {
        let mut all = Vec::new();
        for sweep in ChunkSweep::all(&options) {
            for job in SweepJob::all(&options) {
                for section in job.sections(&options) {
                    let job = job.number(&section);
                    let rate = rate(sweep.chunk_bytes, &job);
                    all.push((sweep.to_string(), job, rate));
                }
            }
        }
        says(&options, RATE, &all, |_| None, sweep::add)
    };
    let alike = said(&|_, job| if job.starts_with("32") { 400.0 } else { 100.0 });
    let expected = "4K random reads are as fast with every chunk (100 MB/s at best)";
    assert!(alike.contains(expected), "{alike}");
    assert!(alike.contains("Many sequential streams at once cost nothing"), "{alike}");
    assert!(alike.contains("4.00 times (reads) and 4.00 times (writes) on RAID 0"), "{alike}");
    let slow = said(&|chunk, job| {
        let many = if job.starts_with("32") { 0.5 } else { 1.0 };
        many * if chunk == 4096 && job.contains("1M") { 25.0 } else { 100.0 }
    });
    assert!(slow.contains("slowest with 4K (0.25 of that)"), "{slow}");
    assert!(slow.contains("Many sequential streams at once cost something"), "{slow}");
}

#[test]
fn what_holds_no_disk_is_no_rival() {
    let against =
        |rival| ChunkOptions { against: vec![rival], ..ChunkOptions::usual(true) }.checked();
    assert!(against(Rival::Nbdkit).is_ok());
    let refused = against(Rival::Gluster).expect_err("no disk of a machine");
    assert!(refused.why.next.advice.contains("file or nbdkit"), "{refused:?}");
}
