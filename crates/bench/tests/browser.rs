//! The report, opened in a browser, as wide as a desk's screen and as a phone's.

mod support;

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use braid_bench::report;
use serde::Deserialize;

use support::{chapters, machine, skip};

const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// Shows the page in a frame of the width of a screen (a browser's own window is never as narrow as
/// a phone) and notes where everything is. The page itself is not touched.
const FRAME: &str = r#"<!DOCTYPE html><meta charset="utf-8"><style>
* { margin: 0; padding: 0; border: 0; } iframe { display: block; } body > p { display: none; }
</style><iframe id="page" width="WIDTH" height="HEIGHT" srcdoc="PAGE"></iframe><p id="seen"></p>
<script>
page.onload = () => {
  const of = page.contentDocument, root = of.documentElement;
  const box = (e) => {
    const { left, top, width, height } = e.getBoundingClientRect();
    const visible = e.checkVisibility();
    return { id: e.id || e.parentElement.id, left, top, width, height, visible };
  };
  const all = (what) => [...of.querySelectorAll(what)];
  seen.textContent = JSON.stringify({
    width: page.contentWindow.innerWidth,
    scroll_width: root.scrollWidth,
    height: root.scrollHeight,
    plots: all('figure > svg').map(box),
    tables: all('.table').map(box),
    texts: all('figure > svg text').map(box),
    loaded: page.contentWindow.performance.getEntriesByType('resource').map((e) => e.name),
    scripts: all('script, img').length,
  });
};
</script>"#;

#[derive(Debug, Deserialize)]
struct Seen {
    width: f64,
    scroll_width: f64,
    height: f64,
    plots: Vec<Box>,
    tables: Vec<Box>,
    texts: Vec<Box>,
    loaded: Vec<String>,
    scripts: usize,
}

#[derive(Debug, Deserialize)]
struct Box {
    id: String,
    left: f64,
    top: f64,
    width: f64,
    height: f64,
    visible: bool,
}

#[test]
fn everything_is_seen_on_a_desk_and_on_a_phone() {
    let is_there = |name: &&&str| Command::new(name).arg("--version").output().is_ok();
    let Some(browser) = BROWSERS.iter().find(is_there) else {
        return skip("everything_is_seen_on_a_desk_and_on_a_phone", "chromium is not installed");
    };
    let folder = tempfile::tempdir().expect("a folder");
    let chapters = chapters();
    report::write(folder.path(), &machine(), &chapters).expect("a report");
    let page = fs::read_to_string(folder.path().join("report.html")).expect("the page");
    let plots: Vec<&str> =
        chapters.iter().flat_map(|one| &one.plots).map(|plot| plot.id.as_str()).collect();
    let tables = chapters.iter().flat_map(|one| &one.tables).count();
    for width in [1280, 390] {
        let seen = open(browser, folder.path(), &page, width);
        let ids: Vec<&str> = seen.plots.iter().map(|plot| plot.id.as_str()).collect();
        assert_eq!(ids, plots, "at {width}");
        assert_eq!(seen.tables.len(), tables, "at {width}");
        assert_eq!(seen.width, f64::from(width));
        assert!(seen.scroll_width <= seen.width, "{width}: {} wide", seen.scroll_width);
        assert_eq!(seen.loaded, [] as [&str; 0], "nothing is asked for");
        assert_eq!(seen.scripts, 0);
        let inside = |one: &Box| one.left >= 0.0 && one.left + one.width <= seen.width + 0.5;
        for table in &seen.tables {
            assert!(table.visible && inside(table), "{width}: {table:?}");
            assert!(table.width > 300.0 && table.height > 40.0, "{width}: {table:?}");
        }
        for plot in &seen.plots {
            assert!(plot.visible && plot.width > 300.0 && plot.height > 150.0, "{plot:?}");
            assert!(plot.id == "levels-all" || inside(plot), "{width}: {plot:?}");
        }
        texts_lie_inside_their_plots(&seen);
        plots_are_painted(&folder.path().join(format!("{width}.png")), &seen);
    }
}

fn texts_lie_inside_their_plots(seen: &Seen) {
    for text in &seen.texts {
        let holds = |plot: &&Box| {
            text.top >= plot.top
                && text.top + text.height <= plot.top + plot.height + 1.0
                && text.left >= plot.left - 1.0
                && text.left + text.width <= plot.left + plot.width + 1.0
        };
        assert!(text.height.max(text.width) > 8.0, "no one can read that: {text:?}");
        assert!(seen.plots.iter().any(|plot| holds(&plot)), "{text:?} in {:?}", seen.plots);
    }
}

/// Where a plot is there is more than one colour.
fn plots_are_painted(screenshot: &Path, seen: &Seen) {
    let file = std::io::BufReader::new(File::open(screenshot).expect("a screenshot"));
    let mut reader = png::Decoder::new(file).read_info().expect("a PNG");
    let mut pixels = vec![0; reader.output_buffer_size().expect("a size")];
    let shot = reader.next_frame(&mut pixels).expect("pixels");
    let each = shot.color_type.samples();
    for plot in seen.plots.iter().filter(|plot| plot.id != "members-empty") {
        let right = (plot.left + plot.width).min(seen.width);
        let rows = (plot.top as usize)..((plot.top + plot.height) as usize);
        let coloured = rows.map(|row| {
            let row = &pixels[row * shot.line_size..][..shot.line_size];
            let inside = &row[plot.left as usize * each..right as usize * each];
            let is_coloured = |pixel: &&[u8]| pixel[0].abs_diff(pixel[2]) > 40;
            inside.chunks_exact(each).filter(is_coloured).count()
        });
        let coloured: usize = coloured.sum();
        assert!(coloured > 100, "{} is blank: {coloured} pixels", plot.id);
    }
}

/// Opens the page in a browser. A first load measures its height, a second takes a screenshot.
fn open(browser: &str, folder: &Path, page: &str, width: u32) -> Seen {
    let quoted = page.replace('&', "&amp;").replace('"', "&quot;");
    let frame = |height: u32| {
        let frame = FRAME.replace("WIDTH", &width.to_string());
        frame.replace("HEIGHT", &height.to_string()).replace("PAGE", &quoted)
    };
    let file = folder.join(format!("frame-{width}.html"));
    fs::write(&file, frame(800)).expect("a frame");
    let first = look(browser, folder, &file, (width, 800));
    let height = first.height as u32;
    fs::write(&file, frame(height)).expect("a frame");
    look(browser, folder, &file, (width, height))
}

fn look(browser: &str, folder: &Path, file: &Path, (width, height): (u32, u32)) -> Seen {
    let profile = tempfile::tempdir_in(folder).expect("a folder");
    let screenshot = folder.join(format!("{width}.png"));
    let run = |what: String| {
        Command::new(browser)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"])
            .args(["--no-first-run", "--disable-background-networking", "--disable-sync"])
            .args(["--disable-component-update", "--hide-scrollbars", "--disable-dev-shm-usage"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg(format!("--window-size={},{height}", width.max(1280)))
            .arg(what)
            .arg(format!("file://{}", file.display()))
            .stderr(Stdio::null())
            .output()
            .expect("the browser runs")
    };
    let shot = run(format!("--screenshot={}", screenshot.display()));
    assert!(shot.status.success(), "{shot:?}");
    let dump = String::from_utf8(run("--dump-dom".to_owned()).stdout).expect("a page");
    let (_, seen) = dump.rsplit_once(r#"<p id="seen">"#).expect("it was noted");
    let seen = seen.split("</p>").next().expect("its end").replace("&amp;", "&");
    serde_json::from_str(&seen).expect("what was noted")
}
