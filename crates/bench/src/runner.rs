//! Runs comparisons: cases that stand side by side take turns, job by job, so that whatever else
//! the machine does meanwhile falls on all alike.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::{About, Ends, Failure};
use crate::folder::Folder;
use crate::model::{Chapter, Comparison, Gap, Group, Note, Run, Standing};
use crate::rig::{Room, process};

/// One run of one or several comparisons.
pub struct Runner<'a> {
    folder: &'a Folder,
    room: &'a Room,
    bar: ProgressBar,
}

/// About how long comparisons take.
pub fn takes(comparisons: &[Box<dyn Comparison>]) -> Duration {
    comparisons.iter().flat_map(|one| one.groups()).map(|group| group.takes()).sum()
}

/// Remainder of a group: what is not done yet, and can be.
struct Left<'a> {
    comparison: &'a dyn Comparison,
    group: &'a Group,
    done: Vec<Run>,
}

impl Left<'_> {
    fn is_done(&self, case: &str, job: &str, round: u16) -> bool {
        self.done.iter().any(|run| (&*run.case, &*run.job, run.round) == (case, job, round))
    }

    fn wants(&self, case: &str) -> bool {
        let mut jobs = self.group.jobs.iter();
        jobs.any(|job| (0..self.group.rounds).any(|round| !self.is_done(case, &job.name, round)))
    }
}

impl<'a> Runner<'a> {
    /// Creates a runner that shows its progress with this bar.
    pub fn new(folder: &'a Folder, room: &'a Room, bar: ProgressBar) -> Self {
        Self { folder, room, bar }
    }

    /// Runs all comparisons. Results are in the folder even after a failure.
    pub fn run(&self, all: &[Box<dyn Comparison>], resume: bool) -> Result<(), Failure> {
        for comparison in all {
            self.folder.begin(comparison.name(), &comparison.options(), resume)?;
        }
        self.bar.set_length(takes(all).as_secs());
        let style = "{elapsed_precise} of about {len}s {wide_bar} {msg}";
        let style = ProgressStyle::with_template(style);
        self.bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        self.bar.enable_steady_tick(Duration::from_millis(200));
        for comparison in all {
            for group in comparison.groups() {
                self.group(comparison.as_ref(), &group)?;
            }
        }
        self.bar.finish_and_clear();
        Ok(())
    }

    fn group(&self, comparison: &dyn Comparison, group: &Group) -> Result<(), Failure> {
        let done = self.folder.found(comparison.name()).runs;
        let mut left = Left { comparison, group, done };
        let cases: Vec<&str> = group.cases.iter().map(String::as_str).collect();
        // The same disks cannot belong to two arrays at once.
        if !self.room.members.is_empty() {
            return cases.chunks(1).try_for_each(|case| self.side_by_side(&mut left, case));
        }
        self.side_by_side(&mut left, &cases)
    }

    fn side_by_side(&self, left: &mut Left<'_>, cases: &[&str]) -> Result<(), Failure> {
        let mut standing: Vec<(&str, Standing)> = Vec::new();
        for &case in cases {
            self.bar.set_message(format!("{}: setting up {case}", left.group.title));
            if left.wants(case) {
                match left.comparison.set_up(case, self.room) {
                    Ok(one) => standing.push((case, one)),
                    Err(failure) => self.gap(left, Some(case), None, failure)?,
                }
            }
            self.bar.inc(left.group.set_up.as_secs());
        }
        let rounds = left.group.rounds;
        for round in 0..rounds {
            for job in &left.group.jobs {
                for (case, one) in &mut standing {
                    if !left.is_done(case, &job.name, round) {
                        let doing =
                            format!("{case}, {}, round {} of {rounds}", job.name, round + 1);
                        self.bar.set_message(format!("{}: {doing}", left.group.title));
                        let run = Run::new(*case, &job.name, round);
                        if let Err(failure) = self.once(left.comparison.name(), run, one) {
                            self.gap(left, Some(case), Some(&job.name), failure)?;
                            let again = (round..rounds).map(|it| Run::new(*case, &job.name, it));
                            left.done.extend(again);
                        }
                    }
                    self.bar.inc(job.takes.as_secs());
                }
            }
        }
        Ok(())
    }

    fn once(&self, name: &str, mut run: Run, standing: &mut Standing) -> Result<(), Failure> {
        let scratch = self.room.scratch.join("job");
        std::fs::create_dir_all(&scratch).about(scratch.display(), "name another --dir")?;
        let mut note = Note { scratch: scratch.clone(), ..Note::default() };
        let server = standing.server();
        let cpu = || server.and_then(process::cpu_seconds);
        let before = cpu();
        let start = Instant::now();
        let result = standing.run(&run.job, &mut note);
        run.seconds = start.elapsed().as_secs_f64();
        run.server_cpu_s = before.zip(cpu()).map(|(before, after)| after - before);
        std::fs::remove_dir_all(&scratch).about(scratch.display(), "name another --dir")?;
        if let Some(pid) = server.filter(|pid| !process::is_running(*pid)) {
            let reason = format!("the process {pid} that serves it has ended");
            return Err(Failure::refused(run.case, reason, "see the kernel's log for why"));
        }
        result?;
        self.folder.keep(name, run, &note)
    }

    /// Notes that something is missing; ends the run if more than that is wrong.
    fn gap(
        &self,
        left: &Left<'_>,
        case: Option<&str>,
        job: Option<&str>,
        failure: Failure,
    ) -> Result<(), Failure> {
        let gap = Gap::of(case, job, &failure.object, &failure.why);
        self.folder.keep_gap(left.comparison.name(), gap)?;
        if failure.ends == Ends::Part { Ok(()) } else { Err(failure) }
    }
}

/// The chapters of everything that the folder holds, made again from what the tools said.
pub fn chapters(folder: &Folder) -> Result<Vec<Chapter>, Failure> {
    let mut chapters = Vec::new();
    for name in crate::compare::names() {
        let Some(options) = folder.options(name) else { continue };
        let comparison = crate::compare::read(name, options)?;
        let found = folder.found(name);
        let mut chapter = comparison.chapter(&found);
        chapter.name = name.to_owned();
        for gap in found.gaps {
            if !chapter.gaps.contains(&gap) {
                chapter.gaps.push(gap);
            }
        }
        for command in found.runs.into_iter().flat_map(|run| run.commands) {
            if !chapter.commands.contains(&command) {
                chapter.commands.push(command);
            }
        }
        chapters.push(chapter);
    }
    Ok(chapters)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use serde_json::{Value, json};

    use super::*;
    use crate::model::{Found, Job};
    use crate::rig::Stack;
    use crate::tool::Tool;

    type Asked = Rc<RefCell<Vec<String>>>;

    /// Notes what is asked of it; `broken` cannot be set up, `hard` cannot be run on `b`.
    struct Made {
        asked: Asked,
        ends: Ends,
    }

    impl Comparison for Made {
        fn name(&self) -> &'static str {
            "levels"
        }
        fn options(&self) -> Value {
            json!({})
        }
        fn groups(&self) -> Vec<Group> {
            let job = |name: &str| Job { name: name.to_owned(), takes: Duration::from_secs(2) };
            vec![Group {
                title: "made".to_owned(),
                cases: ["a", "broken", "b"].map(str::to_owned).to_vec(),
                jobs: vec![job("easy"), job("hard")],
                rounds: 2,
                set_up: Duration::from_secs(1),
            }]
        }
        fn set_up(&self, case: &str, room: &Room) -> Result<Standing, Failure> {
            if case == "broken" {
                return Err(Failure::gap(case, "it is not installed", "install it"));
            }
            let asked = self.asked.clone();
            let ends = self.ends;
            let case = case.to_owned();
            Ok(Standing::on(Stack::new(room, &case), move |_, job, note| {
                asked.borrow_mut().push(format!("{case} {job}"));
                if (case.as_str(), job) == ("b", "hard") {
                    let failure = Failure::refused("b", "no room left", "make room");
                    return Err(Failure { ends, ..failure });
                }
                note.file("out.txt", "1");
                Ok(())
            }))
        }
        fn chapter(&self, _: &Found) -> Chapter {
            Chapter::default()
        }
    }

    fn run(folder: &Folder, ends: Ends, resume: bool) -> (Vec<String>, Result<(), Failure>) {
        let asked = Asked::default();
        let all: Vec<Box<dyn Comparison>> = vec![Box::new(Made { asked: asked.clone(), ends })];
        assert_eq!(takes(&all), Duration::from_secs(27));
        let room =
            Room::new(folder.path().join("scratch"), Vec::new(), Tool::at("braid", "true".into()));
        let result = Runner::new(folder, &room, ProgressBar::hidden()).run(&all, resume);
        let asked = asked.borrow().clone();
        (asked, result)
    }

    #[test]
    fn cases_take_turns_and_what_is_missing_leaves_a_gap() {
        let directory = tempfile::tempdir().expect("a directory");
        let folder = Folder::open(directory.path()).expect("a folder");
        let (asked, result) = run(&folder, Ends::Part, false);
        result.expect("gaps do not end it");
        assert_eq!(asked, ["a easy", "b easy", "a hard", "b hard", "a easy", "b easy", "a hard"]);
        let found = folder.found("levels");
        let gap = |gap: &Gap| (gap.case.clone().unwrap_or_default(), gap.job.clone());
        let gaps: Vec<_> = found.gaps.iter().map(gap).collect();
        let hard = Some("hard".to_owned());
        assert_eq!(gaps, [("broken".to_owned(), None), ("b".to_owned(), hard)]);
        let (asked, _) = run(&folder, Ends::Part, true);
        assert_eq!(asked, ["b hard"], "only what is missing is tried again");
        assert_eq!(folder.found("levels").gaps.len(), 2);
    }

    #[test]
    fn what_cannot_be_trusted_ends_the_run_and_it_goes_on_there() {
        let directory = tempfile::tempdir().expect("a directory");
        let folder = Folder::open(directory.path()).expect("a folder");
        let (asked, result) = run(&folder, Ends::Run, false);
        assert_eq!(result.expect_err("no room").why.reason, "no room left");
        assert_eq!(asked, ["a easy", "b easy", "a hard", "b hard"]);
        let (asked, result) = run(&folder, Ends::Part, true);
        result.expect("gaps do not end it");
        assert_eq!(asked, ["b hard", "a easy", "b easy", "a hard"]);
    }
}
