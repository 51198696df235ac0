//! From the words typed to low arguments; wrong usage becomes one line.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};

use super::foreign::CommandLine;
use super::{Cli, nearest};
use crate::failure::Failure;
use crate::{messages, output};

/// Commands that are suggested for a misspelled word: they change no array.
const READING: &[&str] = &[
    "cat",
    "check",
    "completions",
    "config",
    "detail",
    "examine",
    "identify",
    "layout",
    "monitor",
    "nodes",
    "probe",
    "status",
    "top",
];

/// Options that are not suggested for a misspelled one: each gives up a protection.
const DARING: &[&str] =
    &["--assume-clean", "--force", "--insecure", "--no-key", "--run", "--take-over", "--undo"];

/// Parses the command line of `braid`. `configured` tells whether an array of this name is in the
/// file of arrays and nodes.
pub(crate) fn parse(configured: impl Fn(&str) -> bool) -> Result<Cli, Failure> {
    let line = CommandLine::typed();
    let error = match parsed::<Cli>()? {
        Ok(typed) => return Ok(typed),
        Err(error) => error,
    };
    let Some(command) = line.command() else {
        if let Some(sections) = messages::sections(&line.words)? {
            output::answer(&sections)?;
            return Err(Failure::Silent(0));
        }
        if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
            output::help(&error.render());
            return Err(Failure::Silent(Failure::USAGE));
        }
        return Err(match (line.words.first(), line.step(&configured)) {
            (Some(word), Some(step)) => {
                Failure::usage("read", "command line", format!("'{word}' is no command"), step)
            }
            _ => explain::<Cli>(&error, None, |word| READING.contains(&word)),
        });
    };
    Err(match line.step_for_arguments() {
        Some(step) => Failure::usage(&command, "arguments", reason(&error), step),
        None => explain::<Cli>(&error, Some(&command), |word| READING.contains(&word)),
    })
}

/// Parses the command line of a program, or of `braid OPERATION`. Help and version are answers, and
/// end the command well.
///
/// # Errors
/// Wrong usage, in one line.
pub fn parse_as<C: Parser>(operation: Option<&str>) -> Result<C, Failure> {
    parsed::<C>()?.map_err(|error| explain::<C>(&error, operation, |_| true))
}

/// Parses the words of this process.
///
/// # Errors
/// Returns a failure where help or version were asked for, with their status.
fn parsed<C: Parser>() -> Result<Result<C, clap::Error>, Failure> {
    let error = match C::try_parse() {
        Ok(typed) => return Ok(Ok(typed)),
        Err(error) => error,
    };
    if !matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        return Ok(Err(error));
    }
    let text = error.render();
    let styled = std::io::IsTerminal::is_terminal(&std::io::stdout());
    let text = if styled { text.ansi().to_string() } else { text.to_string() };
    output::answer(&text)?;
    // The answer was given: nothing is left to say or do.
    Err(Failure::Silent(0))
}

/// One line of clap's several: what is wrong, and where to read how it is right.
fn explain<C: CommandFactory>(
    error: &clap::Error,
    known: Option<&str>,
    may_be_meant: impl Fn(&str) -> bool,
) -> Failure {
    let help = known.map_or_else(|| "braid --help".into(), |name| format!("braid {name} --help"));
    let object = known.map_or("command line", |_| "arguments");
    let operation = known.unwrap_or("read");
    let meant = meant::<C>(error, known, may_be_meant);
    let meant = meant.map(|words| format!("did you mean {words}? ")).unwrap_or_default();
    Failure::usage(operation, object, reason(error), format!("{meant}see {help}"))
}

/// Returns the known words that resemble a word unknown to clap. Of commands that is one that may
/// be meant.
fn meant<C: CommandFactory>(
    error: &clap::Error,
    known: Option<&str>,
    may_be_meant: impl Fn(&str) -> bool,
) -> Option<String> {
    if let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) {
        let all = C::command();
        let within = known.and_then(|name| all.find_subcommand(name)).unwrap_or(&all);
        let commands = within.get_subcommands().map(clap::Command::get_name);
        return nearest(word, commands).filter(|name| may_be_meant(name)).map(str::to_owned);
    }
    let kinds = [ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    match kinds.into_iter().find_map(|kind| error.get(kind)) {
        Some(ContextValue::String(word)) if !DARING.contains(&word.as_str()) => Some(word.clone()),
        Some(ContextValue::Strings(words)) if !words.is_empty() => Some(words.join(" or ")),
        _ => None,
    }
}

fn reason(error: &clap::Error) -> String {
    let none = [
        ErrorKind::MissingSubcommand,
        // With no word at all.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand,
    ];
    if none.contains(&error.kind()) {
        return "no command given".into();
    }
    let text = error.render().to_string();
    let lines = text.lines().map(str::trim);
    let said: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
    said.join(" ").trim_start_matches("error: ").to_owned()
}
