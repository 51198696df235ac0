//! From the words typed to low arguments; wrong usage becomes one line.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};

use super::{Cli, similar};
use crate::failure::Failure;
use crate::output;

/// Parses the command line. Help and version are answers, and end the command well.
pub(crate) fn parse() -> Result<Cli, Failure> {
    let words: Vec<_> = std::env::args_os().collect();
    let error = match Cli::try_parse_from(&words) {
        Ok(cli) => return Ok(cli),
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
        _ => Err(explain(&error, words.get(1).and_then(|word| word.to_str()))),
    }
}

/// One line of clap's several: what is wrong, and where to read how it is right.
fn explain(error: &clap::Error, first: Option<&str>) -> Failure {
    let command = Cli::command();
    let known = first.filter(|&name| command.find_subcommand(name).is_some());
    let help = known.map_or_else(|| "braid --help".into(), |name| format!("braid {name} --help"));
    let object = known.map_or("command line", |_| "arguments");
    let operation = known.unwrap_or("read");
    let meant = meant(error).map(|words| format!("did you mean {words}? ")).unwrap_or_default();
    Failure::usage(operation, object, reason(error), format!("{meant}see {help}"))
}

/// What clap takes a word that it does not know for.
fn meant(error: &clap::Error) -> Option<String> {
    let kinds =
        [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    match kinds.into_iter().find_map(|kind| error.get(kind)) {
        Some(ContextValue::String(word)) => Some(word.clone()),
        Some(ContextValue::Strings(words)) if !words.is_empty() => Some(words.join(" or ")),
        // After `braid help`.
        _ => match error.get(ContextKind::InvalidSubcommand)? {
            ContextValue::String(word) => {
                let command = Cli::command();
                similar(word, command.get_subcommands().map(|known| known.get_name()))
                    .map(str::to_owned)
            }
            _ => None,
        },
    }
}

fn reason(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::MissingSubcommand {
        return "no command given".into();
    }
    let text = error.render().to_string();
    let lines = text.lines().map(str::trim);
    let said: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
    said.join(" ").trim_start_matches("error: ").to_owned()
}
