//! From the words typed to low arguments; wrong usage becomes one line.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};

use super::{Cli, similar};
use crate::failure::Failure;
use crate::output;

/// Parses the command line of `braid`.
pub(crate) fn parse() -> Result<Cli, Failure> {
    let first = std::env::args_os().nth(1);
    let known = first.as_ref().and_then(|word| word.to_str()).filter(|name| {
        let command = Cli::command();
        command.find_subcommand(name).is_some()
    });
    parse_as(known)
}

/// Parses the command line of a program, or of `braid OPERATION`. Help and version are answers, and
/// end the command well.
///
/// # Errors
/// Wrong usage, in one line.
pub fn parse_as<C: Parser>(operation: Option<&str>) -> Result<C, Failure> {
    let error = match C::try_parse() {
        Ok(typed) => return Ok(typed),
        Err(error) => error,
    };
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let text = error.render();
            let styled = std::io::IsTerminal::is_terminal(&std::io::stdout());
            let text = if styled { text.ansi().to_string() } else { text.to_string() };
            output::answer(&text)?;
            // The answer was given: nothing is left to say or do.
            Err(Failure::Silent(0))
        }
        _ => Err(explain::<C>(&error, operation)),
    }
}

/// One line of clap's several: what is wrong, and where to read how it is right.
fn explain<C: CommandFactory>(error: &clap::Error, known: Option<&str>) -> Failure {
    let help = known.map_or_else(|| "braid --help".into(), |name| format!("braid {name} --help"));
    let object = known.map_or("command line", |_| "arguments");
    let operation = known.unwrap_or("read");
    let meant =
        meant::<C>(error).map(|words| format!("did you mean {words}? ")).unwrap_or_default();
    Failure::usage(operation, object, reason(error), format!("{meant}see {help}"))
}

/// Returns the known words that resemble a word unknown to clap.
fn meant<C: CommandFactory>(error: &clap::Error) -> Option<String> {
    let kinds =
        [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    match kinds.into_iter().find_map(|kind| error.get(kind)) {
        Some(ContextValue::String(word)) => Some(word.clone()),
        Some(ContextValue::Strings(words)) if !words.is_empty() => Some(words.join(" or ")),
        // After `braid help`.
        _ => match error.get(ContextKind::InvalidSubcommand)? {
            ContextValue::String(word) => {
                let command = C::command();
                similar(word, command.get_subcommands().map(|known| known.get_name()))
                    .map(str::to_owned)
            }
            _ => None,
        },
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
