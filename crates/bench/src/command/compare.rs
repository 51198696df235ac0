//! `braid bench levels`, `states` ...: one comparison, or all of them, and the report.

use std::path::{Path, PathBuf};
use std::time::Duration;

use braid_bench::compare::{self, Plan, Rival, Wishes, chunk, engine, levels, policies};
use braid_bench::folder::Folder;
use braid_bench::model::Comparison;
use braid_bench::runner;
use braid_bench::session::{self, RunArgs};
use braid_cli::{Failure, output, system_error};
use indicatif::ProgressBar;

use super::args::{AllArgs, ChunkArgs, EngineArgs, LevelsArgs, ReportArgs, RunsArgs};

/// Where the report goes if it was not said.
const REPORT: &str = "braid-bench";

/// All comparisons that were published first by others, at their standard sizes.
pub(super) fn all(args: &AllArgs) -> Result<(), Failure> {
    run(&args.usual.run, compare::published(&wishes(&args.usual, &args.against)))
}

fn wishes(args: &RunsArgs, against: &[Rival]) -> Wishes {
    Wishes { quick: args.run.quick, runs: args.runs, against: against.to_vec() }
}

pub(super) fn usual<P: Plan>(args: &RunsArgs) -> Result<(), Failure> {
    run(&args.run, vec![Box::new(P::of(&wishes(args, &[])))])
}

/// What was asked for, or the usual.
fn asked<T: Clone>(asked: &[T], usual: Vec<T>) -> Vec<T> {
    if asked.is_empty() { usual } else { asked.to_vec() }
}

pub(super) fn policies(args: &RunsArgs) -> Result<(), Failure> {
    run(&beside_memory(&args.run), vec![Box::new(policies::PolicyOptions::of(&wishes(args, &[])))])
}

pub(super) fn chunk(args: &ChunkArgs) -> Result<(), Failure> {
    let usual = chunk::ChunkOptions::of(&wishes(&args.usual, &[]));
    let levels = asked(&args.levels, usual.levels);
    let options = chunk::ChunkOptions { levels, against: args.against.clone(), ..usual };
    run(&args.usual.run, vec![Box::new(options.checked()?)])
}

pub(super) fn engine(args: &EngineArgs) -> Result<(), Failure> {
    let usual = engine::EngineOptions::of(&wishes(&args.usual, &[]));
    let levels = asked(&args.levels, usual.levels);
    let options = engine::EngineOptions { levels, ..usual };
    run(&beside_memory(&args.usual.run), vec![Box::new(options)])
}

/// Files of comparisons that have members of memory beside them do not go into memory, too.
fn beside_memory(args: &RunArgs) -> RunArgs {
    let dir = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    RunArgs { dir: Some(dir), ..args.clone() }
}

pub(super) fn levels(args: &LevelsArgs) -> Result<(), Failure> {
    let usual = levels::LevelOptions::of(&wishes(&args.usual, &[]));
    let job = args.job.as_deref().map(job_file).transpose()?;
    // A job file of somebody's own does not know that all is small.
    let full = levels::LevelOptions::usual(false);
    let size_bytes = if job.is_some() { full.size_bytes } else { usual.size_bytes };
    let mut common = args.usual.run.clone();
    let members = count(&common.members);
    let options = levels::LevelOptions {
        levels: asked(&args.levels, usual.levels),
        members,
        size_bytes: args.size.map_or(size_bytes, |size| size.0),
        against: args.against.clone(),
        job,
        ..usual
    };
    if members.is_some() {
        common.members.clear();
    }
    run(&common, vec![Box::new(options.checked()?)])
}

/// `--members 4` is a number, unless there is a file of that name.
fn count(members: &[PathBuf]) -> Option<u16> {
    match members {
        [one] if !one.exists() => one.to_str()?.parse().ok(),
        _ => None,
    }
}

fn job_file(path: &Path) -> Result<levels::JobFile, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let next = "name a job file of fio's";
        Failure::refused("bench", path.display().to_string(), system_error(&error), next)
    })?;
    let name = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into());
    Ok(levels::JobFile::new(&name, &text)?)
}

/// Runs comparisons, with a report wherever none was named.
pub(super) fn run(args: &RunArgs, comparisons: Vec<Box<dyn Comparison>>) -> Result<(), Failure> {
    let report = args.report.clone().or_else(|| (!args.json).then(|| PathBuf::from(REPORT)));
    run_as_said(&RunArgs { report, ..args.clone() }, comparisons)
}

/// Runs comparisons, says beforehand how long it takes, and what came out.
pub(super) fn run_as_said(
    args: &RunArgs,
    comparisons: Vec<Box<dyn Comparison>>,
) -> Result<(), Failure> {
    let to = args.report.as_ref().map(|to| to.display().to_string());
    let kept = to.as_ref().map_or_else(String::new, |to| format!(", report in {to}"));
    output::warning(&format!("bench: takes {}{kept}", about(runner::takes(&comparisons))));
    let interrupted = to.map_or_else(String::new, |to| {
        format!("; {to} has what was measured, and --resume goes on")
    });
    let bar = if output::shows_progress() { ProgressBar::new(0) } else { ProgressBar::hidden() };
    let reported = session::run(comparisons, args, bar, move || {
        output::warning(&format!("bench: interrupted{interrupted}"));
    })?;
    output::answer(if args.json { &reported.json } else { &reported.text })
}

/// `braid bench report`: writes the report again from what the tools said.
pub(super) fn report(args: &ReportArgs) -> Result<(), Failure> {
    output::answer(&session::write(&Folder::of_report(&args.dir)?)?.text)
}

/// A length of time in words.
fn about(time: Duration) -> String {
    let minutes = time.as_secs().div_ceil(60);
    match (minutes / 60, minutes % 60) {
        (0, 0 | 1) => "about a minute".to_owned(),
        (0, minutes) => format!("about {minutes} minutes"),
        (hours, minutes) => format!("about {hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_up() {
        let words = |seconds| about(Duration::from_secs(seconds));
        assert_eq!(words(20), "about a minute");
        assert_eq!(words(241), "about 5 minutes");
        assert_eq!(words(2 * 3600 + 60), "about 2 h 1 min");
    }

    #[test]
    fn members_are_counted_or_named() {
        assert_eq!(count(&["4".into()]), Some(4));
        for names in [&["4", "5"][..], &["/dev/null"], &["disk"], &["99999"], &[]] {
            let names: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
            assert_eq!(count(&names), None, "{names:?}");
        }
    }
}
