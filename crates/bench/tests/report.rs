//! The files of the report, made of chapters that are made up.

mod support;

use std::fs;
use std::path::Path;
use std::process::Command;

use braid_bench::folder::Folder;
use braid_bench::model::{Chapter, Plot};
use braid_bench::{report, session};
use roxmltree::Document;
use serde_json::{Value, json};

use support::{HOSTILE, chapters, machine};

struct Report {
    folder: tempfile::TempDir,
    chapters: Vec<Chapter>,
}

impl Report {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let chapters = chapters();
        report::write(folder.path(), &machine(), &chapters).expect("a report");
        Self { folder, chapters }
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).expect(name)
    }

    fn plots(&self) -> impl Iterator<Item = &Plot> {
        self.chapters.iter().flat_map(|chapter| &chapter.plots)
    }
}

#[test]
fn every_number_is_there_for_machines() {
    let report = Report::new();
    let results: Value = serde_json::from_str(&report.read("results.json")).expect("JSON");
    assert_eq!(results["schema"], 1);
    assert_eq!(results["machine"]["cores"], 2);
    assert_eq!(results["results"], json!([{"level": 5}]));
    let levels = &results["comparisons"]["levels"];
    let cases = levels["cases"].as_array().expect("cells");
    assert_eq!(cases.len(), report.chapters[0].cells.len());
    let first = json!({
        "case": "no RAID", "job": "read", "metric": "bandwidth", "unit": "MB/s",
        "median": 900.0, "min": 720.0, "max": 918.0, "runs": 3, "noisy": false,
        "published": 810.0, "ratio": 1.0, "published_ratio": null, "bound": null,
        "server_cores": null,
        "raw": ["raw/levels/0.fio.json", "raw/levels/1.fio.json", "raw/levels/2.fio.json"],
    });
    assert_eq!(cases[0], first);
    assert_eq!(cases[3]["noisy"], true);
    let published = levels["published"].as_array().expect("what was published");
    let without_cell = json!(
        {"case": "RAID 7", "job": "read", "metric": "bandwidth", "value": 12.0}
    );
    assert_eq!(published[0], without_cell);
    assert_eq!(published.len(), 1 + 6 * 7, "offset2 was not published");
    let gap = json!({
        "case": "RAID 6", "job": "randrw",
        "reason": "fio: not installed", "next": "apt-get install fio",
    });
    assert_eq!(levels["gaps"], json!([gap]));
    assert_eq!(levels["says"].as_array().map(Vec::len), Some(2));
}

#[test]
fn every_cell_is_a_line_of_the_csv() {
    let report = Report::new();
    let text = report.read("results.csv");
    let mut lines = csv::Reader::from_reader(text.as_bytes());
    let head = lines.headers().expect("a head").clone();
    let records: Vec<csv::StringRecord> = lines.records().map(|line| line.expect("line")).collect();
    assert_eq!(records.len(), report.chapters[0].cells.len());
    let field = |line: usize, name: &str| {
        let column = head.iter().position(|head| head == name).expect(name);
        records[line][column].to_owned()
    };
    assert_eq!([field(3, "case"), field(3, "min"), field(3, "noisy")], ["RAID 5", "792", "true"]);
    assert_eq!([field(7, "published"), field(0, "published")], ["", "810"]);
}

#[test]
fn each_plot_is_a_drawing_with_words() {
    let report = Report::new();
    let page = report.read("report.html");
    for plot in report.plots() {
        let text = report.read(&format!("plots/{}.svg", plot.id));
        assert!(page.contains(&text), "{} is in the page", plot.id);
        let svg = Document::parse(&text).expect("XML");
        let root = svg.root_element();
        assert_eq!(root.attribute("role"), Some("img"));
        assert_eq!(
            root.attribute("aria-label").map(str::len),
            Some(
                plot.title.len()
                    + if plot.title == HOSTILE { '\u{fffd}'.len_utf8() - 1 } else { 0 }
            )
        );
        assert!(root.attribute("viewBox").is_some());
        let words: Vec<&str> = svg.descendants().filter_map(|node| node.text()).collect();
        let words: Vec<&str> = words.iter().map(|word| word.trim()).collect();
        let names = plot.series.iter().map(|series| &series.name);
        for name in names.chain(plot.rules.iter().map(|rule| &rule.name)) {
            assert!(name == HOSTILE || words.contains(&name.as_str()), "{name} in {words:?}");
        }
    }
}

#[test]
fn a_bar_is_as_high_as_its_number() {
    let report = Report::new();
    let text = report.read("plots/levels-read.svg");
    let svg = Document::parse(&text).expect("XML");
    let number = |node: &roxmltree::Node<'_, '_>, name: &str| {
        node.attribute(name).and_then(|text| text.parse::<f64>().ok())
    };
    let is_bar = |node: &roxmltree::Node<'_, '_>| {
        node.has_tag_name("rect")
            && node.attribute("fill") == Some("#0072B2")
            && node.attribute("opacity") == Some("1")
    };
    let bars = svg.descendants().filter(is_bar);
    let mut heights: Vec<f64> = bars.filter_map(|bar| number(&bar, "height")).collect();
    let sample = heights.pop();
    assert_eq!(sample, Some(14.0), "in the legend");
    let values: Vec<f64> = report.chapters[0].cells[..8].iter().map(|c| c.spread.median).collect();
    assert_eq!(heights.len(), values.len());
    for (height, value) in heights.iter().zip(&values) {
        let expected = value / values[0] * heights[0];
        assert!((height - expected).abs() <= 1.5, "{heights:?} for {values:?}");
    }
}

#[test]
fn names_are_words_and_nothing_else() {
    let report = Report::new();
    let page = report.read("report.html");
    for trace in ["<script", "<img", "\u{1b}"] {
        assert!(!page.contains(trace), "{trace}");
    }
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    let markdown = report.read("report.md");
    assert!(!markdown.contains("\u{1b}") && !markdown.contains(" <img"));
    let table: Vec<&str> = markdown.lines().filter(|line| line.contains("alert")).collect();
    let rows = table.iter().filter(|line| line.starts_with('|'));
    assert!(rows.clone().count() == 2 && rows.clone().all(|row| row.contains(r"\|")));
    let terminal = report::text(&report.chapters);
    assert!(terminal.contains(&HOSTILE[..40]) && !terminal.contains('\u{1b}'));
}

#[test]
fn tables_stand_in_columns() {
    let report = Report::new();
    let markdown = report.read("report.md");
    let rows: Vec<&str> = markdown.lines().filter(|line| line.starts_with('|')).collect();
    let wide = rows.iter().take(8);
    let places = |row: &str| row.match_indices('|').map(|(at, _)| at).collect::<Vec<usize>>();
    assert!(wide.clone().all(|row| places(row) == places(rows[0])), "{rows:#?}");
    assert!(rows[1].starts_with("|:--") || rows[1].starts_with("| :--"), "{}", rows[1]);
    assert!(markdown.contains("](plots/chunk-sizes.svg)"));
    let terminal = report::text(&report.chapters);
    let column = |start: &str, word: &str| {
        let line = terminal.lines().find(|line| line.starts_with(start)).expect(start);
        line.find(word).map(|at| at + word.len())
    };
    assert_eq!(column("job", "no RAID"), column("write ", "450.0"));
    assert!(terminal.contains("not measured: RAID 6, randrw: fio: not installed; apt-get"));
    assert!(terminal.contains("25 %"), "the mark is explained");
}

#[test]
fn a_report_takes_the_place_of_the_one_before() {
    let report = Report::new();
    let folder = report.folder.path();
    report::write(folder, &machine(), &[]).expect("another report");
    assert!(!report.read("report.html").contains("Which level"));
    let left: Vec<_> = fs::read_dir(folder).expect("files").flatten().collect();
    assert!(left.iter().all(|file| file.path().extension().is_none_or(|end| end != "new")));
}

#[test]
fn a_report_that_cannot_be_written_says_where() {
    let failure = report::write(Path::new("/dev/null/x"), &machine(), &[]).expect_err("no folder");
    assert_eq!(failure.object, "/dev/null/x/plots");
}

/// `measured.tar.gz` has what the tools said in short runs of all comparisons, some of it cut out,
/// and the report of that: its text, and the sums of its files.
#[test]
fn the_report_of_what_was_measured_once_stays_the_same() {
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/measured.tar.gz");
    let folder = tempfile::tempdir().expect("a folder");
    let run = |command: &mut Command| {
        let output = command.current_dir(folder.path()).output().expect("it runs");
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    assert!(run(Command::new("tar").arg("-xzf").arg(archive)).0, "it is unpacked");
    let measured = Folder::of_report(folder.path()).expect("what was measured");
    let text = session::write(&measured).expect("a report").text;
    let expected = fs::read_to_string(folder.path().join("expected/report.txt")).expect("a text");
    for (number, (found, expected)) in text.lines().zip(expected.lines()).enumerate() {
        assert_eq!(found, expected, "line {} of the report", number + 1);
    }
    assert_eq!(text.len(), expected.len());
    let (same, said) = run(Command::new("sha256sum").args(["--check", "expected/sums"]));
    assert!(same, "{said}");
}
