use std::path::Path;

use super::*;
use crate::folder::{Folder, Place};
use crate::model::{Note, Style};
use crate::tool::{bonnie, fio};

/// A line of bonnie++ 2.00a in which these numbers stand.
fn line(case: &str, write: f64, rewrite: f64, seeks: &str) -> String {
    format!(
        "1.98,2.00a,{case},1,1795327197,64M,,8192,5,,,{write:.0},34,{rewrite:.0},31,,,+++++,+++,\
         {seeks},97,,,,,,,,,,,,,,,,,,,3485us,7197us,,2439us,3761us,,,,,,\n"
    )
}

/// What fio 3.33 says, without what is not read.
fn reads(kb_s: f64) -> String {
    let bytes_s = kb_s * 1024.0;
    format!(r#"{{"jobs":[{{"jobname":"reads","read":{{"io_bytes":1,"bw_bytes":{bytes_s:.0}}}}}]}}"#)
}

/// All cases at such a share of their bounds, reads from memory at 2 GB/s, seeks as published.
fn found(folder: &Path, share: impl Fn(Case) -> f64, seeks: impl Fn(Case) -> f64) -> Found {
    let folder = Folder::open(folder).expect("a folder");
    let keep = |case: &str, job: &str, file: &str, text: String| {
        let mut note = Note::default();
        note.file(file, text);
        let place = Place { comparison: "members", case, job, round: 0 };
        folder.keep(place, &note, 2.0, Some(0.5)).expect("kept");
    };
    for case in Case::all() {
        let name = case.name();
        let kb_s = case.class.bound_kb_s(case.members) * share(case);
        let csv = line(&name, kb_s, 0.9 * kb_s, &format!("{:.0}", seeks(case)));
        keep(&name, BONNIE, bonnie::OUTPUT, csv);
        keep(&name, WARM, fio::OUTPUT, reads(2e6));
        keep(&name, COLD, fio::OUTPUT, reads(kb_s));
    }
    folder.found("members")
}

fn published_seeks(case: Case) -> f64 {
    case.class.published(case.members, bonnie::SEEKS).expect("a number")
}

fn chapter(share: impl Fn(Case) -> f64, seeks: impl Fn(Case) -> f64) -> Chapter {
    let directory = tempfile::tempdir().expect("a directory");
    let found = found(directory.path(), share, seeks);
    Members(Options::quick()).chapter(&found)
}

#[test]
fn the_tables_have_the_published_shape_and_both_numbers() {
    let chapter = chapter(|_| 1.0, published_seeks);
    let table = &chapter.tables[0];
    assert_eq!(table.rows.len(), 12);
    assert!(table.rows.iter().all(|row| row.len() == table.head.len()));
    let row = &table.rows[4];
    let expected = "m1.large, 2 volumes|81370|78498|73233|75381|2000000|1123610|10670|10670|-";
    assert_eq!(row.join("|"), expected);
    assert_eq!(
        chapter.tables[1].rows[2].join("|"),
        "m1.large, 2 volumes|2.00|1.93|2.00|1.60|1.00|0.98|1.13|1.13"
    );
    assert_eq!(
        chapter.tables[2].rows[4].join("|"),
        "m1.large, 2 volumes|81370|1.00|0.90|1.00|81370|11368|0.94"
    );
    for table in &chapter.tables {
        assert!(table.rows.iter().all(|row| row.len() == table.head.len()), "{}", table.title);
    }
    assert_eq!(chapter.tables.len(), 4, "nothing else was measured");
}

#[test]
fn every_number_is_a_cell_with_its_source_and_what_was_published_is_complete() {
    let chapter = chapter(|_| 0.5, published_seeks);
    assert_eq!(chapter.published.len(), 48);
    assert_eq!(chapter.published.iter().map(|one| one.value).sum::<f64>(), 16_189_938.0);
    let cell = |case: &str, job: &str, metric: &str| {
        let same = |cell: &&crate::model::Cell| {
            (cell.case.as_str(), cell.job.as_str(), cell.metric.as_str()) == (case, job, metric)
        };
        chapter.cells.iter().find(same).expect("a cell")
    };
    let write = cell("m2.2xlarge x4", BONNIE, "write");
    assert_eq!((write.bound, write.published), (Some(82137.0), Some(82137.0)));
    assert_eq!(write.spread.median, 41068.0);
    assert_eq!(write.raw, ["raw/members/m2-2xlarge-x4/bonnie.1.bonnie.csv"]);
    let cold = cell("t1.micro x2", COLD, "read");
    assert_eq!((cold.published, cold.server_cores, cold.bound), (None, Some(0.25), Some(36763.0)));
    let warm = cell("t1.micro x2", WARM, "read");
    assert_eq!((warm.published, warm.bound), (Some(162_178.0), None));
    assert_eq!(cell("t1.micro x1", BONNIE, "seeks, CPU").spread.median, 97.0);
}

#[test]
fn plots_show_what_was_found_published_and_computed() {
    let chapter = chapter(|_| 1.0, published_seeks);
    let ids: Vec<&str> = chapter.plots.iter().map(|plot| plot.id.as_str()).collect();
    let expected = ["write", "rewrite", "read-from-memory", "seeks", "read-from-the-members"];
    assert_eq!(ids, expected.map(|name| format!("members-{name}")));
    let series = |plot: usize, style| {
        chapter.plots[plot].series.iter().filter(|series| series.style == style).count()
    };
    let all = |style| [0, 1, 2, 3, 4].map(|plot| series(plot, style));
    assert_eq!(all(Style::Measured), [4; 5]);
    assert_eq!(all(Style::Published), [4, 4, 4, 4, 0]);
    assert_eq!(all(Style::Bound), [4, 4, 0, 4, 4]);
    let first = &chapter.plots[0].series[0];
    assert_eq!((first.name.as_str(), first.points.len()), ("t1.micro", 3));
}

#[test]
fn sentences_change_with_the_numbers() {
    let good =
        chapter(|_| 0.97, |case| case.class.bound(case.members, bonnie::SEEKS).expect("one"));
    let text = good.says.join("\n");
    for part in [
        "Two members double what one writes: 2.00 times on m1.large (published 1.93), 2.00",
        "but not everywhere: 1.29 times on t1.micro (published 1.23), where the host lets no more",
        "as much as the host lets through (0.97 of it)",
        "more members make them no faster",
        "seek less than one on t1.micro is not seen",
        "\"rewrite\" over 2 members of t1.micro: 0.87 of what the limits let through",
    ] {
        assert!(text.contains(part), "'{part}' is not in\n{text}");
    }
    let slow = |case: Case| if case.members == 1 { 1.0 } else { 1.0 / f64::from(case.members) };
    let bad = chapter(slow, published_seeks).says.join("\n");
    for part in [
        "Two members nowhere double what one writes: 0.65 times on t1.micro",
        "less than the limits let through.",
        "Four members stay below what the host lets through (0.25 of it)",
        "seek less than one on t1.micro is seen here, too",
    ] {
        assert!(bad.contains(part), "'{part}' is not in\n{bad}");
    }
}

#[test]
fn nothing_found_says_nothing() {
    let chapter = Members(Options::full()).chapter(&Found::default());
    assert!(chapter.says.is_empty() && chapter.cells.is_empty() && chapter.plots.is_empty());
    assert!(chapter.tables.iter().all(|table| table.rows.is_empty()));
    assert_eq!(chapter.published.len(), 48);
}

#[test]
fn in_short_it_takes_about_a_minute_and_the_cases_are_twelve() {
    let groups = Members(Options::quick()).groups();
    let cases: Vec<&String> = groups.iter().flat_map(|group| &group.cases).collect();
    assert!(cases.iter().zip(Case::all()).all(|(name, case)| **name == case.name()));
    assert_eq!(cases.len(), 12);
    let takes: Duration = groups.iter().map(Group::takes).sum();
    assert!(takes <= Duration::from_secs(60), "{takes:?}");
    let options = Members(Options::full()).options();
    assert_eq!(serde_json::from_value::<Options>(options).expect("read"), Options::full());
}
