//! Words of mdadm, of zpool and of people in the place of a command, and the command for each. A
//! step is made of what was typed; only one that the parser takes is given.

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use super::Cli;
use crate::invocation::shell_word;
use meanings::{MEANINGS, WRONG_ARGUMENTS};

mod meanings;

/// Words of mdadm that say nothing here.
const NOISE: &[&str] = &["--manage", "--misc", "--verbose", "-v", "--quiet", "-q"];
/// Options that nobody is told to use by a table.
const NEVER_SAID: &[&str] = &["-f", "--force", "--run", "-R"];

/// A command line as it was typed, without the program.
#[derive(Debug, Default)]
pub(super) struct CommandLine {
    /// Options in front of the command.
    options: Vec<String>,
    /// The command, and what follows.
    pub(super) words: Vec<String>,
}

impl CommandLine {
    /// The command line of this process.
    pub(super) fn typed() -> Self {
        Self::of(std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()))
    }

    fn of(words: impl Iterator<Item = String>) -> Self {
        let mut line = Self::default();
        let mut words = words.peekable();
        while let Some(option) = words.next_if(|word| word.starts_with("--run-dir")) {
            let is_split = option == "--run-dir";
            line.options.push(option);
            line.options.extend(is_split.then(|| words.next()).flatten());
        }
        // Help about a word that is no command is asked for as the word itself.
        line.words = words.skip_while(|word| word == "help").collect();
        line
    }

    /// The name of the command, if there is one of this name.
    pub(super) fn command(&self) -> Option<String> {
        command(self.words.first()?)
    }

    /// Returns the next step for a line whose first word is no command, where one is known.
    pub(super) fn step(&self, configured: &dyn Fn(&str) -> bool) -> Option<String> {
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        let words: Vec<&str> = words.into_iter().filter(|word| !NOISE.contains(word)).collect();
        let first = *words.first()?;
        // mdadm names the device first, and people a name.
        let places = if md_device(first).is_some() { words.len() } else { 2.min(words.len()) };
        let places = if first.starts_with('-') { 1 } else { places };
        let found = (0..places).find_map(|at| {
            let rest = [&words[..at], &words[at + 1..]].concat();
            let Some(meaning) = MEANINGS.iter().find(|one| one.words.contains(&words[at])) else {
                let command = command(words[at].trim_start_matches('-'))?;
                let made = ["NAME REST", "ONLY", "ALL"].map(|words| format!("{command} {words}"));
                return self.fitting("", &made.each_ref().map(String::as_str), &rest, configured);
            };
            self.fitting(meaning.advice, meaning.commands, &rest, configured)
        });
        found.or_else(|| {
            md_device(first)?;
            self.fitting("", &["status NAME"], &words, configured)
        })
    }

    /// Returns the next step for wrong arguments of a command, where one is known.
    pub(super) fn step_for_arguments(&self) -> Option<String> {
        let command = self.command()?;
        let is_typed = |option: &str| self.words.iter().any(|word| word == option);
        let wrong = WRONG_ARGUMENTS.iter().find(|wrong| {
            let counted = wrong.words == 0 || wrong.words == self.words.len();
            wrong.command == command
                && counted
                && (wrong.option.is_empty() || is_typed(wrong.option))
        })?;
        let rest = self.words.iter().skip(1).map(String::as_str);
        let rest: Vec<&str> = rest.filter(|word| *word != wrong.option).collect();
        self.fitting(wrong.advice, wrong.commands, &rest, &|_| false)
    }

    /// Returns the step by the first of the templates that fits and makes a command.
    fn fitting(
        &self,
        advice: &str,
        templates: &[&str],
        words: &[&str],
        configured: &dyn Fn(&str) -> bool,
    ) -> Option<String> {
        let given = Words::of(words);
        let mut made = templates.iter().filter_map(|template| given.put_into(template, configured));
        let command = made.find(|command| is_understood(command))?;
        let all = self.options.iter().chain(&command).map(|word| shell_word(word));
        let line = std::iter::once("braid".to_owned()).chain(all).collect::<Vec<_>>().join(" ");
        let is_help = command.last().is_some_and(|word| word == "--help");
        Some(match advice {
            "" if is_help => format!("see {line}"),
            "" => format!("use {line}"),
            advice => format!("{advice}: {line}"),
        })
    }
}

/// Words to be put into a template.
struct Words {
    name: Option<String>,
    rest: Vec<String>,
    /// Both, as they were typed.
    all: Vec<String>,
    has_scan: bool,
    /// `-e`, as in `zpool online -e`.
    has_expand: bool,
}

impl Words {
    fn of(words: &[&str]) -> Self {
        let is_name = |word: &str| !word.starts_with('-') && !word.contains('/');
        let device = words.iter().position(|word| md_device(word).is_some());
        let at = device.or_else(|| words.iter().position(|word| is_name(word)));
        let name = at.map(|at| md_device(words[at]).unwrap_or(words[at]).to_owned());
        let has_scan = words.iter().any(|word| ["--scan", "-s"].contains(word));
        let has_expand = words.contains(&"-e");
        let said = |word: &str| !NEVER_SAID.contains(&word);
        let all = || words.iter().enumerate().filter(|(_, word)| said(word));
        let rest = all().filter(|(index, _)| Some(*index) != at);
        let owned = |(_, word): (usize, &&str)| (*word).to_owned();
        Self {
            name,
            rest: rest.map(owned).collect(),
            all: all().map(owned).collect(),
            has_scan,
            has_expand,
        }
    }

    /// The words of a template; `None` where a part of it was not typed.
    fn put_into(&self, template: &str, configured: &dyn Fn(&str) -> bool) -> Option<Vec<String>> {
        let mut made = Vec::new();
        for part in template.split(' ') {
            match part {
                "NAME" => made.push(self.name.clone()?),
                "CONFIGURED" => made.push(self.name.clone().filter(|name| configured(name))?),
                "REST" if self.rest.is_empty() => return None,
                "REST" => made.extend(self.rest.iter().cloned()),
                "ONLY" if !self.rest.is_empty() => return None,
                "ONLY" => made.push(self.name.clone()?),
                "ALL" if self.all.is_empty() => return None,
                "ALL" => made.extend(self.all.iter().cloned()),
                "SCAN" if !self.has_scan => return None,
                "SCAN" => {}
                "EXPAND" if !self.has_expand => return None,
                "EXPAND" => {}
                "SECOND" => made.push(self.rest.get(1)?.clone()),
                part if part.contains("FIRST") => {
                    made.push(part.replace("FIRST", self.rest.first()?));
                }
                part => made.push(part.to_owned()),
            }
        }
        Some(made)
    }
}

/// Returns the name of the array that a device of md stands for: `/dev/md0`, `/dev/md/home` or
/// `md/home`.
pub(crate) fn md_device(word: &str) -> Option<&str> {
    let device = word.strip_prefix("/dev/");
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    let name = match device.unwrap_or(word).strip_prefix("md/") {
        Some(name) => name,
        None => device.filter(|device| device.strip_prefix("md").is_some_and(is_number))?,
    };
    (!name.is_empty() && !name.contains('/')).then_some(name)
}

/// Returns the line of this process with another word in the place of one.
pub(crate) fn typed_with(wrong: &str, right: &str) -> String {
    let line = CommandLine::typed();
    let mut words: Vec<String> = line.options.into_iter().chain(line.words).collect();
    if let Some(word) = words.iter_mut().find(|word| *word == wrong) {
        right.clone_into(word);
    }
    let words = words.iter().map(|word| shell_word(word));
    std::iter::once("braid".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

/// The name of the command that is called so.
fn command(word: &str) -> Option<String> {
    Some(Cli::command().find_subcommand(word)?.get_name().to_owned())
}

/// Returns whether the parser takes these words.
fn is_understood(words: &[String]) -> bool {
    let words = std::iter::once("braid").chain(words.iter().map(String::as_str));
    match Cli::try_parse_from(words) {
        Ok(_) => true,
        Err(error) => {
            matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(line: &str) -> String {
        let line = CommandLine::of(line.split(' ').map(str::to_owned));
        let configured = |name: &str| name == "attic";
        let step = match line.command() {
            None => line.step(&configured),
            Some(_) => line.step_for_arguments(),
        };
        step.unwrap_or_default()
    }

    #[test]
    fn words_of_other_programs_lead_to_the_command() {
        for (typed, expected) in [
            ("import home", "use braid assemble home --scan"),
            ("import -f home", "use braid assemble home --scan"),
            ("start attic", "use braid up attic"),
            ("start home a.img b.img", "use braid assemble home a.img b.img"),
            ("--run-dir x start home", "use braid --run-dir x assemble home --scan"),
            ("help import", "use braid assemble --scan"),
            (
                "--create /dev/md0 -l1 -n2 /dev/a /dev/b",
                "use braid create md0 -l1 -n2 /dev/a /dev/b",
            ),
            (
                "-C -v -l 1 -n 2 /dev/md/home /dev/a /dev/b",
                "use braid create home -l 1 -n 2 /dev/a /dev/b",
            ),
            ("--create home", "see braid create --help"),
            ("-A /dev/md0 /dev/a /dev/b", "use braid assemble md0 /dev/a /dev/b"),
            ("--assemble --scan", "use braid assemble --scan"),
            ("--detail --scan", "use braid detail --scan"),
            ("-D /dev/md0", "use braid detail md0"),
            ("--stop /dev/md/home", "use braid stop home"),
            ("--stop --scan", "use braid stop --all"),
            ("--stop", "see braid stop --help"),
            ("-E /dev/sda", "use braid examine /dev/sda"),
            ("/dev/md0", "use braid status md0"),
            ("/dev/md0 --fail /dev/a --remove /dev/a", "use braid fail md0 /dev/a"),
            ("--manage md/home --add /dev/a", "use braid add home /dev/a"),
            (
                "/dev/md0 --replace /dev/a --with /dev/b",
                "use braid replace md0 /dev/a --with /dev/b",
            ),
            ("home status", "use braid status home"),
            ("home info", "use braid detail home"),
            ("info /dev/sda", "use braid examine /dev/sda"),
            ("--status /dev/md/home", "use braid status home"),
            ("home status --json", "use braid status home --json"),
            ("-F --mail root", "use braid monitor --mail root"),
            ("dump a.img b.img", "use braid cat a.img b.img"),
            ("--examine /dev/md0", "use braid examine /dev/md0"),
            ("mount home /mnt", "use braid export home add fuse:/mnt"),
            (
                "attach home old new",
                "for one more copy of a mirror braid grow takes --raid-devices and --add; \
                 a spare: braid add home new",
            ),
            ("online -e home /dev/sdb", "use braid grow home --size max"),
            ("online home /dev/sdb", "use braid re-add home /dev/sdb"),
            ("--grow /dev/md0 --size=max", "use braid grow md0 --size=max"),
            ("/dev/md0 --grow --size=max", "use braid grow md0 --size=max"),
            ("-G /dev/md/home -n3 --add /dev/c", "use braid grow home -n3 --add /dev/c"),
            ("--grow /dev/md0 --level=6 --raid-devices=4 --backup-file=x", "see braid grow --help"),
            ("expand home", "see braid grow --help"),
            ("offline home /dev/sdb", "use braid fail home /dev/sdb"),
            ("it's home", ""),
            ("crate repair -l 1 -n 2 a b", ""),
            ("export home", "to stop it, as zpool export does: braid stop home"),
            ("replace home a b", "use braid replace home a --with b"),
            ("scrub -s home", "use braid check home --stop"),
            ("scrub home --pause", "use braid limit home --pause"),
            ("stop --scan", "use braid stop --all"),
            ("status --frob", ""),
        ] {
            assert_eq!(step(typed), expected, "{typed}");
        }
    }

    #[test]
    fn no_word_has_two_meanings_or_is_a_command() {
        let mut seen = Vec::new();
        for word in MEANINGS.iter().flat_map(|meaning| meaning.words) {
            assert!(!seen.contains(&word), "{word} stands there twice");
            assert_eq!(command(word), None, "{word} is a command");
            seen.push(word);
        }
        for meaning in MEANINGS {
            let last = CommandLine::of([meaning.words[0].to_owned()].into_iter());
            assert!(last.step(&|_| false).is_some(), "{} alone leads nowhere", meaning.words[0]);
        }
    }
}
