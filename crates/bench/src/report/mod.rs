//! The report: `report.html`, `report.md`, `results.json`, `results.csv` and the plots, made of
//! chapters. Each file takes the place of the one before when it is whole, never earlier.

mod data;
mod html;
mod markdown;
mod plot;

use std::fs;
use std::path::Path;

use crate::failure::{About, Failure};
use crate::folder;
use crate::machine::Machine;
use crate::model::{Chapter, Gap, found};

/// File that scripts read.
pub const RESULTS: &str = "results.json";
const MAKE_ROOM: &str = "make room, or choose another folder with --report";

/// Writes the files of the report into its folder, beside `raw/`.
pub fn write(folder: &Path, machine: &Machine, chapters: &[Chapter]) -> Result<(), Failure> {
    let plots = folder.join("plots");
    fs::create_dir_all(&plots).about(plots.display(), MAKE_ROOM)?;
    for plot in chapters.iter().flat_map(|chapter| &chapter.plots) {
        replace(&plots.join(format!("{}.svg", plot.id)), &plot::svg(plot)?)?;
    }
    replace(&folder.join("results.json"), &data::json(machine, chapters))?;
    replace(&folder.join("results.csv"), &data::csv(chapters))?;
    replace(&folder.join("report.md"), &markdown::page(machine, chapters))?;
    replace(&folder.join("report.html"), &html::page(machine, chapters)?)
}

/// The chapters for a terminal.
pub fn text(chapters: &[Chapter]) -> String {
    markdown::terminal(chapters)
}

fn replace(file: &Path, content: &str) -> Result<(), Failure> {
    folder::replace(file, content.as_bytes()).about(file.display(), MAKE_ROOM)
}

/// Names may come from elsewhere (a job file, a path): what neither XML nor a terminal may be given
/// becomes U+FFFD.
fn clean(text: &str) -> String {
    let is_odd = |c: char| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}');
    text.chars().map(|c| if is_odd(c) { '\u{fffd}' } else { c }).collect()
}

/// Lines of at most so many characters, broken at spaces; a word that is longer stays whole.
fn wrap(text: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let length = word.chars().count();
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + length <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The name of the value that needs more room than the others.
const TOOLS: &str = "Tools";

/// Name and value of what a reader has to know of the machine.
fn about_machine(machine: &Machine) -> Vec<(&'static str, String)> {
    let tenths = machine.memory_bytes.saturating_mul(10) >> 30;
    let mut all = vec![
        ("Processor", machine.cpu.clone()),
        ("Cores", machine.cores.to_string()),
        ("Memory", format!("{}.{} GiB", tenths / 10, tenths % 10)),
        ("Kernel", machine.kernel.clone()),
        ("Braid", machine.braid.clone()),
        ("Members", machine.storage.clone()),
        (TOOLS, machine.tools.join(" · ")),
    ];
    all.retain(|(_, value)| !value.is_empty());
    all
}

/// Explains the mark behind a number.
fn noise() -> String {
    let percent = found::NOISY * 100.0;
    format!(
        "A ~ after a number: its rounds lie further apart than {percent} % of their median; \
         it says little."
    )
}

/// The case and the job that were not measured.
fn where_it_is(gap: &Gap) -> String {
    let parts: Vec<&str> =
        [&gap.case, &gap.job].into_iter().flatten().map(String::as_str).collect();
    if parts.is_empty() { "all of it".to_owned() } else { parts.join(", ") }
}
